"""The outcome of every example: how far two are apart, and what each is worth."""

import bisect
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.reading import arrow as pc

Kind = Literal[
    "correct", "score", "answer", "label", "class", "value", "set", "ranking"
]
Normalization = Literal["text", "squad", "none"]


@dataclasses.dataclass(frozen=True, eq=False)
class Measure:
    """One outcome of `N` joined examples, in R_old and R_new runs."""

    name: str  # name of its column
    # "correct" (0 or 1), "score" (a number), "answer" (a text), "label" or "class" (its
    # name or its number), "value" (a regression's number), "set" or "ranking".
    kind: Kind
    old: np.ndarray  # `[R_old, N]` in use: float64, or places in `things`
    new: np.ndarray  # `[R_new, N]` of the version that is to replace it
    # What the places stand for: normalised texts, sets (sorted tuples of items) or
    # rankings (tuples, the first is the best); None for numbers.
    things: Sequence[Any] | None = None
    target: np.ndarray | None = None  # `[N]` what is right; None where nothing says
    tolerance: float = 0.0  # outcomes this near count as equal
    relative: bool = False  # True if `tolerance` is a share of the larger of both
    # By side ("old", "new", "target") `[R, N]` texts as written; None but for answers.
    shown: Mapping[str, np.ndarray] | None = None
    lower_is_better: bool = False  # True if less of a score is better

    @property
    def examples(self) -> int:
        """N."""
        return self.old.shape[1]

    @property
    def judged(self) -> bool:
        """True if outcomes have an order, in which one is better than another."""
        return self.kind in ("correct", "score") or self.target is not None

    @property
    def decided(self) -> bool:
        """True if an outcome is right or wrong."""
        return self.kind == "correct" or (self.named and self.judged)

    @property
    def named(self) -> bool:
        """True if outcomes are equal or not, with no distance in between."""
        return self.kind in ("answer", "label", "class")

    @property
    def sign(self) -> float:
        """-1 where less of the reported number is better, else 1."""
        return -1.0 if self.kind == "value" or self.lower_is_better else 1.0

    def distance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How far outcomes are apart, `[N]`: 0 for equal ones.

        Of numbers the absolute difference, of answers 0 or 1, of sets 1 - Jaccard's
        index, of rankings 1 - Kendall's tau over the items that both have (1 where
        these are fewer than two).
        """
        if self.things is None:
            return np.abs(a - b)
        if self.named:
            return (a != b).astype(np.float64)
        distance = np.zeros(len(a))
        differ = np.flatnonzero(a != b)
        pairs, place = np.unique(
            np.stack([a[differ], b[differ]]), axis=1, return_inverse=True
        )
        between = jaccard if self.kind == "set" else kendall
        distance[differ] = between(self.things, *pairs)[place.reshape(-1)]
        return distance

    def right(self, outcome: np.ndarray) -> np.ndarray:
        """Which outcomes of a run are right, where they are right or wrong."""
        return outcome == self.target if self.named else outcome > 0.5

    def worth(self, outcome: np.ndarray) -> np.ndarray:
        """Values of the outcomes `[N]` of a run, more is better; needs `judged`.

        Whether they are right; of scores of which less is better minus the score, of
        values minus the absolute error, of sets the agreement with the target.
        """
        if self.decided:
            return self.right(outcome).astype(np.float64)
        if self.target is None:
            return -outcome if self.lower_is_better else outcome
        away = self.distance(outcome, self.target)
        return -away if self.kind == "value" else 1.0 - away

    def differ(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Where outcomes differ by more than the tolerance, `[N]`."""
        if self.named or self.things is not None:
            return a != b
        return self.beyond(self.distance(a, b), a, b)

    def beyond(self, size: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """True if sizes `[N]` of differences exceed the tolerance."""
        if self.things is not None:
            return size > self.tolerance + 1e-12
        scale = np.maximum(np.abs(a), np.abs(b))
        if self.relative:
            return size > (self.tolerance + 1e-12) * scale
        return size > self.tolerance + 1e-12 * scale

    def text(
        self, side: Literal["old", "new", "target"], example: int, run: int = 0
    ) -> str:
        """An example's outcome as a report shows it: the mean, or a run's."""
        if self.shown is not None:
            return str(self.shown[side][run, example])
        runs = np.atleast_2d(getattr(self, side))[:, example]
        if self.things is None:
            return f"{runs.mean():.4g}"
        outcome = runs[run]
        mark = " > " if self.kind == "ranking" else ", "
        return mark.join(self.things[outcome]) or "(none)"


def jaccard(things: Sequence[Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 - |A and B| / |A or B| of pairs of sets `[J]`; 0 for two empty ones."""
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    sets = ((frozenset(things[x]), frozenset(things[y])) for x, y in pairs)
    return np.array([len(x ^ y) / max(len(x | y), 1) for x, y in sets])


def kendall(things: Sequence[Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """1 - Kendall's tau of pairs of rankings `[J]`, over the items that both have."""
    out = np.ones(len(a))
    for j, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        places = {item: place for place, item in enumerate(things[y])}
        before: list[int] = []
        discordant = 0
        for place in map(places.get, things[x]):
            if place is not None:
                discordant += len(before) - bisect.bisect(before, place)
                bisect.insort(before, place)
        if pairs := len(before) * (len(before) - 1) // 2:
            out[j] = 2.0 * discordant / pairs
    return out


WHOLE = r"^([-+]?\d+)\.0+$"  # 1.0, which a column of numbers holds as 1
# Minus signs and decimal points of numbers stay: -3.5 is neither 3.5 nor -35.
_SQUAD = (
    (r"(^|[^\pL\pN])-(\.?\d)", "\\1\x01\\2"),
    (r"\.(\d)", "\x02\\1"),
    (r"[\pP$+<=>^`|~]", ""),
    ("\x01", "-"),
    ("\x02", "."),
)
_ARTICLE = r"\b(a|an|the)\b"


def normalized(texts: Any, normalize: Normalization = "text") -> Any:
    """Texts without the differences that do not count."""
    if normalize == "none":
        return texts

    def spaced(texts: Any) -> Any:
        one = pc.replace_substring_regex(texts, r"[\s\pZ]+", " ")
        return pc.utf8_trim_whitespace(one)

    plain = spaced(pc.utf8_lower(pc.utf8_normalize(texts, "NFC")))
    plain = pc.replace_substring_regex(plain, WHOLE, r"\1")
    if normalize == "text":
        return plain
    bare = plain
    for pattern, instead in _SQUAD:
        bare = pc.replace_substring_regex(bare, pattern, instead)
    short = pc.replace_substring_regex(bare, _ARTICLE, " ")
    # The option "A." is "a", and "..." is what it is.
    found = [
        pc.if_else(pc.equal(of, ""), None, of) for of in map(spaced, (short, bare))
    ]
    return pc.coalesce(*found, plain)


# Words in names of scores of which less is better, and words that say the contrary.
_LESS = frozenset(
    "loss nll perplexity ppl bpb wer cer ter mer mae mse rmse mape smape brier ece "
    "error errors latency duration runtime cost distance fid toxicity".split()
)
_CONTRARY = frozenset(
    "acc accuracy correction detection free improvement inv inverse minus neg negative "
    "recovery reduction reward saved savings".split()
)


def less_is_better(name: str) -> bool:
    """Return True if the name of a score says that less is better."""
    words = {*re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1 \2", name).lower())}
    named = words & _LESS or {"bits", "per"} <= words
    return bool(named) and not words & _CONTRARY
