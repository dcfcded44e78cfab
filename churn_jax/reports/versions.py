"""The two sides of a model update: what the runs of a row, or of a file, predict."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

import numpy as np

from churn_jax.class_sets import UNKNOWN_LOGIT
from churn_jax.example_ids import PredictionsError, rows_of, some
from churn_jax.prediction_shards import MappedPredictions, load_stored
from churn_jax.predictions import Predictions
from churn_jax.reports.artefacts import TEST, ReportError, Study
from churn_jax.reports.block_sums import classes_in_blocks
from churn_jax.reports.estimates import BLOCK_NUMBERS
from churn_jax.reports.summary import MethodSummary, known_by_some

__all__ = [
    "Version",
    "flip_ranks",
    "from_file",
    "is_file",
    "of_row",
    "pair_ranks",
    "sum_counts",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Version:
    """The runs of one model, without those that stopped.

    Attributes:
        name: the row, or the path as the update gives it.
        label: for people.
        runs: their numbers, by which a targeted update pairs them.
        classes: `[R, N]` what each predicts for the study's examples.
        known: `[C]` the classes that the model knows.
        file: its predictions; where they are in shards, what would be the file.
        order: `[N]` where the study's examples are in the file; None for a row, whose
            order is that of the study.
    """

    name: str
    label: str
    runs: tuple[int, ...]
    classes: np.ndarray
    known: np.ndarray
    file: Path
    order: np.ndarray | None = None

    def knows(self, labels: np.ndarray) -> np.ndarray:
        """Which examples are of a class that the model knows, `[N]`."""
        inside = labels < len(self.known)
        return inside & self.known[np.where(inside, labels, 0)]

    def open(self) -> Callable[[int, np.ndarray], np.ndarray]:
        """The predictions opened again.

        Returns:
            `rows(i, picked) -> [n, C]`: logits of the i-th of the runs counted for the
            study's examples `picked [n]`.

        Raises:
            PredictionsError: the file has gone or changed.
        """
        found = load_stored(self.file)

        def rows(i: int, picked: np.ndarray) -> np.ndarray:
            places = picked if self.order is None else self.order[picked]
            if isinstance(found, MappedPredictions):
                return found.rows(self.runs[i], places)
            return found.logits[self.runs[i]][places]

        return rows


def is_file(old: str) -> bool:
    """Whether the old model of an update is a file of predictions and not a row."""
    return PurePath(old).suffix == ".npz"


def of_row(study: Study, name: str, summary: MethodSummary) -> Version:
    """A row of the study, from what was already computed of it."""
    labels = {info.name: info.label for info in study.methods}
    return Version(
        name,
        labels.get(name, name),
        summary.runs,
        summary.curves.classes,
        summary.curves.known,
        study.method_folder(name) / TEST,
    )


def from_file(study: Study, given: str, ids: np.ndarray, labels: np.ndarray) -> Version:
    """A model of another study or framework, joined with the study's examples by id.

    Args:
        study: relative paths begin in its folder.
        given: path of a `predictions.npz`, or of one that stands for the shards beside
            it; it may hold more examples, in any order.
        ids: `[N]` of the study's examples.
        labels: `[N]` their class ids.

    Returns:
        The `Version`, labelled like the folder of the file.

    Raises:
        ReportError: the file cannot be read, lacks some of the examples, has other
            labels, or none of its runs finished.
    """
    path = study.folder / given
    try:
        predictions = load_stored(path)
    except PredictionsError as error:
        raise ReportError(" ".join(str(error).split())) from error
    order = _places(path, predictions, ids)
    differ = predictions.labels[order] != labels
    if differ.any():
        raise ReportError(
            f"{path}: labels differ for {int(differ.sum())} of {differ.size} examples, "
            f"for example ids {some(ids[differ])}"
        )
    stopped = predictions.stopped
    runs = tuple(r for r in range(predictions.shape[0]) if r not in stopped)
    if not runs:
        raise ReportError(f"{path}: all {predictions.shape[0]} runs were stopped")
    if isinstance(predictions, MappedPredictions):
        classes, known = classes_in_blocks(predictions, runs)
    else:
        logits = predictions.logits
        classes = np.stack([logits[run].argmax(axis=-1) for run in runs])
        known = known_by_some(logits, runs)
    label = path.resolve().parent.name or given
    return Version(given, label, runs, classes[:, order], known, path, order)


def _places(
    path: Path, predictions: Predictions | MappedPredictions, ids: np.ndarray
) -> np.ndarray:
    """Where each of `ids` is in the file."""
    order = rows_of(ids, predictions.ids)
    lacking = order < 0
    if lacking.any():
        raise ReportError(
            f"{path}: {int(lacking.sum())} of the study's {ids.size} examples are not "
            f"in it, for example ids {some(ids[lacking])}; its ids are "
            f"{some(predictions.ids)}"
        )
    return order


def pair_ranks(
    rows: Callable[[int, np.ndarray], np.ndarray],
    old: Version,
    new: Version,
    pair: tuple[int, int],
    labels: np.ndarray,
) -> np.ndarray:
    """`flip_ranks` of an old and a new run; logits are read of the flips alone.

    Args:
        rows: from `old.open()`.
        old: the model in use.
        new: the one that replaces it.
        pair: places of the two runs among those counted.
        labels: `[N]` class ids.

    Returns:
        `[max rank + 1]` counts.
    """
    before, after = old.classes[pair[0]], new.classes[pair[1]]
    flipped = np.flatnonzero((before == labels) & (after != labels))
    size = max(1, BLOCK_NUMBERS // len(old.known))
    starts = range(0, len(flipped), size)
    parts = [flipped[start : start + size] for start in starts]
    return sum_counts(
        [np.zeros(2, np.int64)]
        + [flip_ranks(rows(pair[0], p), after[p], labels[p]) for p in parts]
    )


def sum_counts(counts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of counts of different length, `[longest]`.

    Example:
        >>> sum_counts([np.array([1, 2]), np.array([0, 0, 3])]).tolist()
        [1, 2, 3]
    """
    width = max(map(len, counts))
    return np.sum([np.pad(c, (0, width - len(c))) for c in counts], axis=0)


def flip_ranks(
    old_logits: np.ndarray, new_classes: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """How often a negative flip's wrong class has each rank in the old model.

    The ranks of `churn_jax.metrics.flip_rank`, computed for the flips alone.

    Args:
        old_logits: `[N, C]` of one old run.
        new_classes: `[N]` what one new run predicts; may be beyond `C`.
        labels: `[N]` class ids.

    Returns:
        `[max rank + 1]` counts; 0 and 1 are no ranks of a wrong class.

    Example:
        >>> logits = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
        >>> flip_ranks(logits, np.array([1, 0]), np.array([0, 0])).tolist()
        [0, 0, 0, 1]
    """
    flipped = (old_logits.argmax(axis=-1) == labels) & (new_classes != labels)
    scores, wrong = old_logits[flipped], new_classes[flipped]
    if len(wrong) and (more := int(wrong.max()) + 1 - scores.shape[1]) > 0:
        scores = np.pad(scores, ((0, 0), (0, more)), constant_values=UNKNOWN_LOGIT)
    own = np.take_along_axis(scores, wrong[:, None], axis=1)
    before = np.arange(scores.shape[1]) < wrong[:, None]  # ties: the lower id first
    ranks = 1 + np.sum((scores > own) | ((scores == own) & before), axis=1)
    return np.bincount(ranks, minlength=2)
