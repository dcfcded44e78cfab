"""One method's numbers over all its runs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from churn_compare.class_sets import known_classes
from churn_compare.store import Predictions, PredictionsError
from churn_jax import metrics
from churn_jax.reports.curves import (
    RELIABILITY_BINS,
    Curves,
    confidence_counts,
    curves_of_bins,
    reliability_bins,
)
from churn_jax.reports.estimates import (
    Estimate,
    over_pairs,
    over_runs,
    over_sets,
)
from churn_jax.reports.quantities import QUANTITIES

UNKNOWN = Estimate(np.nan, np.nan, np.nan)
BOUNDS = {
    "bound_from_errors": metrics.churn_bound_from_errors,
    "bound_from_confidence": metrics.churn_bound_from_confidence,
    "bound_from_confidence_sum": metrics.churn_bound_from_confidence_sum,
}
"""Upper bounds on churn, each `[R, R]` in `MethodSummary.pair_values`."""

PAIRS: Mapping[str, Callable] = {
    "churn": metrics.churn,
    "surrogate_churn": metrics.surrogate_churn,
    "l1": metrics.l1_distance,
    "by_correctness": metrics.churn_by_correctness,
    "nfr": metrics.negative_flip_rate,
    **BOUNDS,
}
"""Numbers of two runs; that by correctness is two."""
_OF_LABELS = ("by_correctness", "nfr", "bound_from_errors")


class AllRunsStoppedError(PredictionsError):
    """A method without a single run that finished."""


@dataclasses.dataclass(frozen=True)
class MethodSummary:
    """All numbers of one method; stopped runs are in none of them.

    Attributes:
        runs: indices of the runs counted.
        stopped: indices of the runs left out because they did not finish.
        examples: `N`.
        num_classes: `C`.
        accuracy: share of right predictions.
        confidence: mean prediction confidence.
        entropy: mean predictive entropy, nats.
        nll: negative log likelihood, nats; of runs that do not know all classes, as the
            calibrated one and the temperature, on the examples whose class they know.
        brier: Brier score, summed over classes.
        ece: expected calibration error, 15 equal-width bins.
        churn: share of examples two runs predict differently.
        surrogate_churn: soft churn at alpha 1.
        l1: mean L1 distance of two runs' distributions.
        churn_correct: churn on the examples one run gets right, over both directions.
        churn_incorrect: churn on the examples one run gets wrong, over both directions.
        nfr: share of examples one run gets right and the other wrong, over both.
        hamming_prediction_difference: mean pairwise churn under its other name.
        prediction_difference: Delta_1, and as all that follow over the set of all
            runs; `stderr` by the jackknife and `std = stderr * sqrt(R)`.
        prediction_difference_2: Delta_2.
        relative_prediction_difference: Delta^r.
        label_prediction_difference: Delta^L.
        run_values: run-level names to `[R]`.
        pair_values: pair-level names to `[R, R]`, symmetric: those of the estimates
            above and of `BOUNDS`.
        set_values: set-level names to `[R]`, the number without run r; NaN with fewer
            than three runs.
        curves: what the plots need.
        calibrated_nll: NLL of the logits divided by the run's temperature; this and the
            next three are NaN without validation predictions.
        calibrated_brier: Brier score of the same.
        calibrated_ece: expected calibration error of the same.
        temperature: of the run, fitted on its own validation predictions by NLL.
        dee: deep-ensemble equivalent of the run's calibrated NLL; NaN in studies that
            do not ask for it, or without an ensemble to compare with.
        member_kl: mean KL divergence of two members of a run, nats; NaN for rows
            without members' predictions.
        member_disagreement: churn of two members of a run; NaN for the same rows.
        parameters: trained numbers per run; NaN where the study does not tell.
        own: columns that were registered by name; they are attributes, too.
    """

    runs: tuple[int, ...]
    stopped: tuple[int, ...]
    examples: int
    num_classes: int
    accuracy: Estimate
    confidence: Estimate
    entropy: Estimate
    nll: Estimate
    brier: Estimate
    ece: Estimate
    churn: Estimate
    surrogate_churn: Estimate
    l1: Estimate
    churn_correct: Estimate
    churn_incorrect: Estimate
    nfr: Estimate
    hamming_prediction_difference: Estimate
    prediction_difference: Estimate
    prediction_difference_2: Estimate
    relative_prediction_difference: Estimate
    label_prediction_difference: Estimate
    run_values: Mapping[str, np.ndarray]
    pair_values: Mapping[str, np.ndarray]
    set_values: Mapping[str, np.ndarray]
    curves: Curves
    calibrated_nll: Estimate = UNKNOWN
    calibrated_brier: Estimate = UNKNOWN
    calibrated_ece: Estimate = UNKNOWN
    temperature: Estimate = UNKNOWN
    dee: Estimate = UNKNOWN
    member_kl: Estimate = UNKNOWN
    member_disagreement: Estimate = UNKNOWN
    parameters: Estimate = UNKNOWN
    own: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)

    def __getattr__(self, name: str) -> Estimate:
        """A registered column; NaN where it was not measured."""
        if name.startswith("__") or name not in QUANTITIES:
            raise AttributeError(f"a MethodSummary has no {name!r}")
        return vars(self).get("own", {}).get(name, UNKNOWN)


@jax.jit
def _of_one_run(logits, labels):
    top = jax.nn.softmax(logits, axis=-1).max(axis=-1)
    confidence = metrics.prediction_confidence(logits)
    values = {
        "accuracy": metrics.accuracy(logits, labels),
        "confidence": confidence.mean(),
        "entropy": metrics.prediction_entropy(logits).mean(),
        "nll": metrics.negative_log_likelihood(logits, labels),
        "brier": metrics.brier_score(logits, labels),
        "ece": metrics.expected_calibration_error(
            logits, labels, num_bins=RELIABILITY_BINS
        ),
    }
    return values, top, confidence, logits.argmax(axis=-1)


@jax.jit
def _calibrated(logits, labels, validation_logits, validation_labels):
    scores = metrics.calibrated_scores(
        logits,
        labels,
        validation_logits=validation_logits,
        validation_labels=validation_labels,
    )
    return {
        "calibrated_nll": scores.negative_log_likelihood,
        "calibrated_brier": scores.brier_score,
        "calibrated_ece": scores.expected_calibration_error,
        "temperature": scores.temperature,
    }


def summarize(
    predictions: Predictions,
    *,
    stopped: Sequence[int] = (),
    validation: Predictions | None = None,
) -> MethodSummary:
    """Every number of one method's runs.

    Args:
        predictions: logits `[R, N, C]` of `R` runs on one evaluation set.
        stopped: runs to leave out in addition to those `predictions.meta` marks.
        validation: of the same runs on the split that temperatures are fitted on; the
            calibrated numbers are NaN without.

    Returns:
        A `MethodSummary`; it says which runs it left out.

    Raises:
        PredictionsError: no run is left, a label is not among the classes, or the
            validation predictions are of other runs or classes.

    Example:
        >>> logits = 9.0 * np.eye(2)[[[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]]]
        >>> p = Predictions(np.arange(4), np.array([0, 1, 1, 1]), logits)
        >>> s = summarize(p)
        >>> round(s.accuracy.mean, 4), round(s.churn.mean, 4)
        (0.75, 0.5)

    Notes:
        The first paper reports "mean and standard deviation over 10 independent runs"
        without naming the pairs; these are all unordered pairs. Churn on right and on
        wrong examples depends on which run is asked to be right, so both directions are
        averaged.
    """
    shape = predictions.shape
    runs, left_out = runs_counted(predictions, stopped)
    values, curves = _run_level(predictions, runs)
    if validation is not None:
        values |= _calibrated_level(predictions, validation, runs)
    sets = over_sets(predictions.logits[runs], predictions.labels)
    matrices = _pair_level(predictions, runs)
    return assembled(runs, left_out, shape, values, matrices, sets, curves)


def runs_counted(
    predictions: Predictions, stopped: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The runs that finished, and the others."""
    total, _, num_classes = predictions.shape
    left_out = sorted({int(r) for r in stopped} | set(predictions.stopped))
    runs = [r for r in range(total) if r not in left_out]
    if not runs:
        raise AllRunsStoppedError(
            f"all {total} runs were stopped; nothing to summarize"
        )
    if predictions.labels.max() >= num_classes:
        raise PredictionsError(
            f"labels go up to {predictions.labels.max()}, but the logits have only "
            f"{num_classes} classes"
        )
    return runs, left_out


def assembled(
    runs: Sequence[int],
    stopped: Sequence[int],
    shape: tuple[int, ...],
    values: Mapping[str, np.ndarray],
    matrices: Mapping[str, np.ndarray],
    sets: tuple[Mapping[str, Estimate], Mapping[str, np.ndarray]],
    curves: Curves,
) -> MethodSummary:
    """The numbers of runs, of pairs and of sets with their spreads."""
    estimates: dict[str, Any] = {name: over_runs(v) for name, v in values.items()}
    estimates |= over_pairs({k: v for k, v in matrices.items() if k not in BOUNDS})
    of_sets: dict[str, Any] = dict(sets[0])
    return MethodSummary(
        runs=tuple(runs),
        stopped=tuple(stopped),
        examples=shape[1],
        num_classes=shape[2],
        hamming_prediction_difference=estimates["churn"],
        run_values=values,
        pair_values=matrices,
        set_values=sets[1],
        curves=curves,
        **estimates,
        **of_sets,
    )


def _run_level(predictions, runs):
    labels = predictions.labels.astype(np.int32)
    values, classes, tops, confidences = [], [], [], []
    known = known_by_some(predictions.logits, runs)
    for run in runs:  # one compilation per (N, C), shared by all methods of a study
        out = jax.device_get(_of_one_run(predictions.logits[run], labels))
        if not known.all():
            out[0]["nll"] = _known_nll(predictions.logits[run], labels, known[labels])
        for store, part in zip((values, tops, confidences, classes), out, strict=True):
            store.append(part)
    stacked = {
        name: np.array([v[name] for v in values], np.float64) for name in values[0]
    }
    classes = np.stack(classes)
    bins = reliability_bins(np.stack(tops), classes == predictions.labels)
    curves = Curves(
        classes=classes,
        ambiguity=np.asarray(metrics.ambiguity(predictions.logits[runs]), np.float64)
        if len(runs) > 1
        else np.full(classes.shape[1], np.nan),
        confidence_counts=confidence_counts(np.stack(confidences)),
        **curves_of_bins(bins),
        known=known,
    )
    return stacked, curves


def _known_nll(logits, labels, keep):
    """NLL where the label's class is known: elsewhere it is infinite, not 10,000."""
    if not keep.any():
        return np.nan
    return float(metrics.negative_log_likelihood(logits, labels, keep))


def known_by_some(logits: np.ndarray, runs: Sequence[int]) -> np.ndarray:
    """The classes that one of the runs knows for one of the examples, `[C]` bool."""
    return np.any([known_classes(logits[run]).any(axis=0) for run in runs], axis=0)


def _calibrated_level(predictions, validation, runs):
    """Scores at the temperature of each run's own validation predictions, `[R]`."""
    check_same_runs(predictions, validation)
    known = known_by_some(predictions.logits, runs)
    labels = predictions.labels.astype(np.int32)
    # No temperature makes an unknown class likelier, so its examples fit none.
    kept = known[validation.labels]
    held_out = validation.labels[kept].astype(np.int32)
    if not kept.any():
        names = ("calibrated_nll", "calibrated_brier", "calibrated_ece", "temperature")
        return dict.fromkeys(names, np.full(len(runs), np.nan))
    found = []
    for run in runs:
        logits, fitted = predictions.logits[run], validation.logits[run][kept]
        scores = jax.device_get(_calibrated(logits, labels, fitted, held_out))
        if not known.all():
            cooled = logits / scores["temperature"]
            scores["calibrated_nll"] = _known_nll(cooled, labels, known[labels])
        found.append(scores)
    return {name: np.array([v[name] for v in found], np.float64) for name in found[0]}


def check_same_runs(
    predictions: Predictions,
    validation: Predictions,
) -> None:
    """Refuses validation predictions that cannot be of the same runs."""
    ours, theirs = predictions.shape, validation.shape
    if (ours[0], ours[2]) != (theirs[0], theirs[2]):
        raise PredictionsError(
            f"validation logits {theirs} and test logits {ours} must be of the same "
            "runs and classes"
        )
    if validation.labels.max() >= theirs[2]:
        raise PredictionsError(
            f"validation labels go up to {validation.labels.max()}, but the logits "
            f"have only {theirs[2]} classes"
        )


def _pair_level(predictions, runs):
    """Symmetric `[R, R]` matrices of the runs counted."""
    # All runs, also stopped ones, go in: one shape per study, hence one compilation.
    matrices = _of_pairs(predictions.logits, predictions.labels.astype(np.int32))
    chosen = np.ix_(runs, runs)
    return {name: m[chosen] for name, m in symmetric(matrices).items()}


@jax.jit  # together they compile in half the time
def _of_pairs(logits, labels):
    return {
        name: metrics.pairwise(
            metric, logits, *((labels,) if name in _OF_LABELS else ())
        )
        for name, metric in PAIRS.items()
    }


def symmetric(found: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The mean of both directions of every pair, `[R, R]` float64, of all `PAIRS`."""
    correct, incorrect = found["by_correctness"]
    matrices = {"churn_correct": correct, "churn_incorrect": incorrect}
    matrices |= {k: v for k, v in found.items() if k != "by_correctness"}
    wide = {name: np.asarray(m, np.float64) for name, m in matrices.items()}
    return {name: (matrix + matrix.T) / 2 for name, matrix in wide.items()}
