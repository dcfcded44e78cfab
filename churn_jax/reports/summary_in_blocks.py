"""One method's numbers from predictions that stay on the disk, block by block.

The numbers of `summarize`, up to the rounding of float32: means and rates are States
and sums over blocks of examples, so memory holds one block and, of every run, the
predicted classes `[N]`. Temperatures alone need one run of the validation split whole.
"""

from collections.abc import Sequence

import jax
import numpy as np

from churn_jax import metrics
from churn_jax.prediction_shards import (
    MappedPredictions,
    ShardedRows,
    TooLargeError,
    fits_whole,
)
from churn_jax.predictions import Predictions
from churn_jax.reports.block_sums import Pass, scored
from churn_jax.reports.estimates import of_set_sums
from churn_jax.reports.summary import (
    MethodSummary,
    assembled,
    check_same_runs,
    runs_counted,
)

__all__ = ["check_fits", "summarize_in_blocks"]


def summarize_in_blocks(
    predictions: Predictions | MappedPredictions,
    *,
    stopped: Sequence[int] = (),
    validation: Predictions | MappedPredictions | None = None,
) -> MethodSummary:
    """Every number of one method's runs, in bounded memory.

    Example:
        >>> logits = 9.0 * np.eye(2)[[[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]]]
        >>> p = Predictions(np.arange(4), np.array([0, 1, 1, 1]), logits)
        >>> s = summarize_in_blocks(p)
        >>> round(s.accuracy.mean, 4), round(s.churn.mean, 4)
        (0.75, 0.5)
    """
    mapped = _mapped(predictions)
    runs, left_out = runs_counted(mapped, stopped)
    found = Pass(mapped, runs)
    values, known = dict(found.values), found.curves.known
    if not known.all():
        # Infinite elsewhere, and not 10,000.
        values |= scored(mapped, runs, {"nll": known[mapped.labels]})
    if validation is not None:
        check_same_runs(mapped, validation)
        check_fits(validation)
        values |= _calibrated(mapped, _mapped(validation), runs, known)
    sets = of_set_sums(found.sets, len(runs), mapped.shape[1])
    return assembled(
        runs, left_out, mapped.shape, values, found.matrices, sets, found.curves
    )


def check_fits(validation: Predictions | MappedPredictions) -> None:
    """Refuses shards of which not even one run can be held in memory."""
    _, examples, classes = validation.shape
    mapped = isinstance(validation, MappedPredictions)
    if mapped and not fits_whole(examples * classes):
        raise TooLargeError(
            "a temperature is fitted on one run in memory, and one has "
            f"{4 * examples * classes / 2**30:.1f} GiB of validation logits; hold out "
            "fewer examples (--data.validation)"
        )


def _mapped(predictions: Predictions | MappedPredictions) -> MappedPredictions:
    if isinstance(predictions, MappedPredictions):
        return predictions
    rows = ShardedRows([predictions.logits])
    return MappedPredictions(
        predictions.ids, predictions.labels, rows, predictions.meta
    )


_fit = jax.jit(metrics.fit_temperature)


def _calibrated(
    predictions: MappedPredictions,
    validation: MappedPredictions,
    runs: Sequence[int],
    known: np.ndarray,
) -> dict[str, np.ndarray]:
    """Scores at the temperature of each run's own validation predictions, `[R]`."""
    names = {kind: f"calibrated_{kind}" for kind in ("nll", "brier", "ece")}
    # No temperature makes an unknown class likelier, so its examples fit none.
    kept = np.flatnonzero(known[validation.labels])
    if not kept.size:
        return dict.fromkeys(
            (*names.values(), "temperature"), np.full(len(runs), np.nan)
        )
    held_out = validation.labels[kept].astype(np.int32)
    fitted = np.asarray([_fit(validation.rows(run, kept), held_out) for run in runs])
    every = np.ones(len(predictions.labels), bool)
    counted = {"nll": known[predictions.labels], "brier": every, "ece": every}
    scores = scored(predictions, runs, counted, fitted)
    named = {names[kind]: values for kind, values in scores.items()}
    return {**named, "temperature": fitted.astype(np.float64)}
