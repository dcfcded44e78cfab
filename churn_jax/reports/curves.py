"""What the plots of a method need, all runs pooled."""

import dataclasses
import functools

import numpy as np

RELIABILITY_BINS = 15
CONFIDENCE_BINS = 10


@dataclasses.dataclass(frozen=True)
class Curves:
    """Classes, ambiguity and binned probabilities."""

    classes: np.ndarray  # `[R, N]` predicted class per finished run
    # `[N]` share of pairs of runs that differ on the example; NaN with one run
    ambiguity: np.ndarray
    # `[10]` examples per equal-width bin of prediction confidence
    confidence_counts: np.ndarray
    bin_counts: np.ndarray  # `[15]` examples per equal-width bin of top probability
    bin_probability: np.ndarray  # `[15]` mean top probability in the bin; NaN if empty
    # `[15]` share of right predictions in the bin; NaN if empty
    bin_accuracy: np.ndarray
    # `[C]` the classes that some run knows, as `known_classes` says it
    known: np.ndarray


def confidence_counts(confidences: np.ndarray) -> np.ndarray:
    """Examples per equal-width bin of prediction confidence, `[10]`."""
    return np.histogram(confidences, bins=CONFIDENCE_BINS, range=(0.0, 1.0))[0]


def reliability_bins(top: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sums of predictions by their top probability; they add up over examples."""
    top = top.ravel().astype(np.float64)
    # Bins are open on the left and closed on the right, as for the ECE.
    which = np.clip(np.ceil(top * RELIABILITY_BINS).astype(int) - 1, 0, None)
    which = np.minimum(which, RELIABILITY_BINS - 1)
    count = functools.partial(np.bincount, which, minlength=RELIABILITY_BINS)
    weighted = (count(weights=w) for w in (top, right.ravel().astype(float)))
    return np.stack([count(), *weighted])


def curves_of_bins(bins: np.ndarray) -> dict[str, np.ndarray]:
    """The reliability curves of `Curves` from the sums of `reliability_bins`."""
    counts, probability, right = bins
    safe = np.where(counts, counts, np.nan)
    return {
        "bin_counts": counts.astype(int),
        "bin_probability": probability / safe,
        "bin_accuracy": right / safe,
    }
