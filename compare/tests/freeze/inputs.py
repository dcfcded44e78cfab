"""Seeded predictions that comparisons share."""

from typing import Any

import numpy as np

N, C = 120, 4
NAMES = ("cat", "cow", "dog", "emu")
RNG = np.random.default_rng(20)
IDS = RNG.permutation(np.arange(N) * 7 + 3)
LABELS = RNG.integers(0, C, N)
_NOISE = RNG.normal(size=(6, N, C))
_SHARED = RNG.normal(size=(N, C))
REGION = np.array(["north", "south", "east"])[RNG.integers(0, 3, N)]
DEVICE = np.array(["phone", "desk"])[RNG.integers(0, 2, N)]
USER = RNG.integers(0, 25, N)
ORDER = RNG.permutation(N)  # of the new side


def _softmax(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits - logits.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def logits_of(run: int, strength: float = 1.6) -> np.ndarray:
    """Logits of one run, of which runs share a part."""
    return strength * np.eye(C)[LABELS] + 0.9 * _SHARED + 0.7 * _NOISE[run]


OLD, NEW = logits_of(0), logits_of(1, 1.8)
OLD_PROBS, NEW_PROBS = _softmax(OLD), _softmax(NEW)
OLD_CLASS, NEW_CLASS = OLD.argmax(1), NEW.argmax(1)
OLD_RUNS = np.stack([logits_of(r) for r in range(3)])
NEW_RUNS = np.stack([logits_of(r, 1.8) for r in range(3, 6)])
GROUPS = {"id": IDS, "region": REGION, "device": DEVICE}
OWN = {"ids": IDS, "labels": LABELS, "logits": OLD}
OTHER = {"ids": IDS, "labels": LABELS, "logits": NEW}


def named(classes: np.ndarray, names: Any = NAMES) -> np.ndarray:
    """Classes by their names."""
    return np.array(names)[classes]


def side(
    scores: np.ndarray | None = None,
    prefix: str = "logit_",
    *,
    classes: np.ndarray | None = None,
    names: Any = None,
    labels: Any = LABELS,
    ids: Any = IDS,
    order: np.ndarray | None = None,
    **more: Any,
) -> dict[str, np.ndarray]:
    """Columns of one version."""
    found: dict[str, Any] = {}
    if ids is not None:
        found["id"] = ids
    if labels is not None:
        found["label"] = labels if names is None else named(labels, names)
    if classes is not None:
        found["prediction"] = classes if names is None else named(classes, names)
    if scores is not None:
        of = range(scores.shape[1]) if names is None else names
        found |= {f"{prefix}{n}": scores[:, i] for i, n in enumerate(of)}
    found |= more
    rows = np.arange(len(next(iter(found.values())))) if order is None else order
    return {name: np.asarray(values)[rows] for name, values in found.items()}


def pair(old: str = "old.csv", new: str = "new.csv", **options: Any) -> dict[str, Any]:
    """Both versions by their classes, the new one in another order."""
    shared = {"region": REGION, "device": DEVICE, "user": USER} | options
    return {
        old: side(classes=OLD_CLASS, **shared),
        new: side(classes=NEW_CLASS, order=ORDER, **shared),
    }


def scored(old: str, new: str, prefix: str = "prob_", **options: Any) -> dict[str, Any]:
    """Both versions by their scores."""
    before, after = (OLD, NEW) if "log" in prefix else (OLD_PROBS, NEW_PROBS)
    return {
        old: side(before, prefix, **options),
        new: side(after, prefix, order=ORDER, **options),
    }


def stacked(scores: np.ndarray, first: int = 0, **more: Any) -> dict[str, np.ndarray]:
    """Runs below each other, with a column that tells them apart."""
    runs = len(scores)
    found = {
        "run": np.repeat(np.arange(first, first + runs), N),
        "id": np.tile(IDS, runs),
        "label": np.tile(LABELS, runs),
    }
    found |= {f"logit_{c}": scores[:, :, c].reshape(-1) for c in range(C)}
    return found | {name: np.tile(of, runs) for name, of in more.items()}


M = 60
ITEMS = np.arange(M)
TASK = np.array(["sums", "facts", "code"])[RNG.integers(0, 3, M)]
BOOK = RNG.integers(0, 12, M)
RIGHT_OLD = (RNG.random(M) < 0.6).astype(int)
RIGHT_NEW = np.where(RNG.random(M) < 0.25, 1 - RIGHT_OLD, RIGHT_OLD)
SCORE_OLD = RNG.normal(size=M).round(3)
SCORE_NEW = (SCORE_OLD + 0.3 * RNG.normal(size=M) + 0.05).round(3)
WORDS = np.array("red green blue gold grey".split())
TARGET = WORDS[RNG.integers(0, 5, M)]
SAID_OLD = np.where(RIGHT_OLD, TARGET, WORDS[RNG.integers(0, 5, M)])
SAID_NEW = np.where(RIGHT_NEW, TARGET, WORDS[RNG.integers(0, 5, M)])


def items(**columns: Any) -> list[dict[str, Any]]:
    """Records of outcomes with an id, a task and a book."""
    table = {"id": [f"q{i}" for i in ITEMS], "task": TASK, "book": BOOK} | columns
    return [
        {
            n: of[i].item() if hasattr(of[i], "item") else of[i]
            for n, of in table.items()
        }
        for i in range(M)
    ]


def sets(seed: int) -> list[list[str]]:
    """A set of words of each item."""
    rng = np.random.default_rng(seed)
    return [
        sorted(rng.choice(WORDS, rng.integers(0, 4), replace=False).tolist())
        for _ in range(M)
    ]


def rankings(seed: int) -> list[list[str]]:
    """An order of all words of each item."""
    rng = np.random.default_rng(seed)
    return [
        WORDS[np.argsort(np.arange(5) + rng.normal(size=5))].tolist() for _ in ITEMS
    ]
