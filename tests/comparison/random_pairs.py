"""Random versions and what a pass over them keeps, written with plain NumPy."""

import numpy as np

from churn_jax.comparison.pair import Pair, Scanned, ScannedSide, Side


def random_logits(seed, runs=(1, 1), examples=40, classes=4):
    """Labels `[N]` and the logits `[R, N, C]` of two versions that often agree."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, examples)
    shared = 1.5 * np.eye(classes)[labels] + generator.normal(size=(examples, classes))
    sides = (
        (shared + generator.normal(size=(r, examples, classes))).astype(np.float32)
        for r in runs
    )
    return labels, *sides


def pair_of(old, new, labels=None, **fields):
    """The pair and what a pass over it keeps; `old` and `new` as in `random_logits`.

    Whole numbers `[R, N]` are predicted classes.
    """
    kinds = ["logits" if np.ndim(side) == 3 else "classes" for side in (old, new)]
    sides = [
        Side(name, kind, np.asarray(values), runs=tuple(range(len(values))))
        for name, kind, values in zip(("old", "new"), kinds, (old, new), strict=True)
    ]
    classes = max(side.classes for side in sides)
    if labels is not None:
        labels = np.asarray(labels)
        classes = max(classes, int(labels.max(initial=-1)) + 1)
    ids = fields.pop("ids", np.arange(sides[0].examples))
    pair = Pair(*sides, np.asarray(ids), classes, labels=labels, **fields)
    displacement = None
    if "classes" not in kinds:
        centred = [s.values - s.values.mean(-1, keepdims=True) for s in sides]
        moves = np.linalg.norm(centred[0][:, None] - centred[1][None], axis=-1)
        displacement = moves.mean((0, 1)).astype(np.float32)
    scanned = (_scanned(side, labels) for side in sides)
    return pair, Scanned(*scanned, displacement=displacement)


def _scanned(side, labels):
    if side.kind == "classes":
        return ScannedSide(side.values.astype(np.int32))
    top = side.values.max(-1, keepdims=True)
    logits = side.values.astype(np.float64) - top
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    label = None
    if labels is not None:
        label = np.take_along_axis(log_probs, labels[None, :, None], -1)[..., 0]
        label = label.astype(np.float32)
    return ScannedSide(
        side.values.argmax(-1).astype(np.int32),
        np.exp(log_probs.max(-1)).astype(np.float32),
        label,
    )
