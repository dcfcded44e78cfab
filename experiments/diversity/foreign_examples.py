"""Out-of-distribution detection by the entropy of predictions on foreign images.

A model that tells them apart gives images of unseen classes, or of another data set, a
higher entropy than its own test images. Entropies are NumPy in float64, in nats.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from churn_jax._checks import check_logits


@dataclasses.dataclass(frozen=True, eq=False)
class EntropyHistogram:
    """A histogram of entropies.

    Attributes:
        edges: `[bins + 1]` in nats, equally spaced from 0 to log C.
        counts: `[..., bins]` int64, examples per bin; one row per run.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """`[..., bins]`, counts over the number of counted examples; nan if none."""
        total = self.counts.sum(axis=-1, keepdims=True)
        return self.counts / np.where(total, total, np.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class OutOfDistribution:
    """How well a method's runs tell their own test images from foreign ones.

    Attributes:
        entropy_in: `[R]`, mean entropy on images of the data set, in nats.
        entropy_out: `[R]`, mean entropy on the foreign images.
        auroc_entropy: `[R]`, probability that a foreign image has the higher entropy,
            ties half; 1 is perfect, 0.5 is chance.
        auroc_max_probability: `[R]`, probability that a foreign image has the lower
            top probability.
        histogram_in: histogram of the entropies, `counts [R, bins]`.
        histogram_out: the same of the foreign images, with the same edges.
    """

    entropy_in: NDArray[np.float64]
    entropy_out: NDArray[np.float64]
    auroc_entropy: NDArray[np.float64]
    auroc_max_probability: NDArray[np.float64]
    histogram_in: EntropyHistogram
    histogram_out: EntropyHistogram


def entropy_histogram(logits: ArrayLike, bins: int = 50) -> EntropyHistogram:
    """Counts of `-sum_j p_j log p_j` in bins of equal width over [0, log C].

    Bins are closed on the left; the last one also on the right.

    Args:
        logits: `[..., N, C]`; leading axes such as runs are kept.
        bins: how many, at least 1.

    Returns:
        Edges and counts. An example whose entropy is nan is in no bin.

    Notes:
        The paper does not print its number of bins; 50 is ours.

    References:
        [diversity] Fig. 8 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    entropies, _ = _entropy_and_doubt(_checked(logits, "logits", "[..., N, C]", 2))
    return _histogram(entropies, np.shape(logits)[-1], bins)


def out_of_distribution(
    in_logits: ArrayLike, out_logits: ArrayLike, *, bins: int = 50
) -> OutOfDistribution:
    """Entropies of each run on its own and on foreign images, and how they separate.

    With a score s that should be high on foreign images, the area under the ROC curve
    is `P[s(out) > s(in)] + 1/2 P[s(out) = s(in)]`; s is the entropy, or 1 minus the top
    probability.

    Args:
        in_logits: `[R, N, C]`, R runs on N images of the data set.
        out_logits: `[R, N2, C]`, the same runs on foreign images.
        bins: bins of the two histograms.

    Returns:
        One value per run. A run that stopped, with nan among its logits, has nan.

    Notes:
        The paper shows histograms only; means and areas are ours.

    References:
        [diversity] Fig. 8 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    inside = _checked(in_logits, "in_logits", "[R, N, C]", 3)
    outside = _checked(out_logits, "out_logits", "[R, N2, C]", 3)
    runs, classes = inside.shape[0], inside.shape[-1]
    if inside.ndim != 3 or (runs, classes) != (outside.shape[0], outside.shape[-1]):
        raise ValueError(
            "in_logits [R, N, C] and out_logits [R, N2, C] must have the same runs and "
            f"classes; got {inside.shape} and {outside.shape}"
        )
    if 0 in inside.shape or 0 in outside.shape:
        raise ValueError(
            "in_logits and out_logits must hold examples; got "
            f"{inside.shape} and {outside.shape}"
        )
    entropy_in, doubt_in = _entropy_and_doubt(inside)
    entropy_out, doubt_out = _entropy_and_doubt(outside)
    return OutOfDistribution(
        entropy_in=entropy_in.mean(axis=-1),
        entropy_out=entropy_out.mean(axis=-1),
        auroc_entropy=_areas(entropy_in, entropy_out),
        auroc_max_probability=_areas(doubt_in, doubt_out),
        histogram_in=_histogram(entropy_in, classes, bins),
        histogram_out=_histogram(entropy_out, classes, bins),
    )


def _checked(logits, name: str, axes: str, fewest: int) -> np.ndarray:
    check_logits(**{name: logits})
    logits = np.asarray(logits)
    if logits.ndim < fewest:
        raise ValueError(f"{name} must be {axes}; got shape {logits.shape}")
    return logits


def _entropy_and_doubt(logits: np.ndarray):
    """Entropy, and 1 minus the top probability, each `[..., N]` float64."""
    # The doubt is the sum of the other probabilities, which stays exact where the top
    # probability rounds to 1 and would tie.
    with np.errstate(invalid="ignore"):  # logits of a run that stopped
        log_p = special.log_softmax(logits.astype(np.float64), axis=-1)
        p = np.exp(log_p)
        # 0 log 0 is 0; with nan for p it stays nan.
        entropy = -np.sum(p * np.where(p == 0, 0.0, log_p), axis=-1)
    top = np.argmax(log_p, axis=-1)[..., None]
    others = np.array(p)
    np.put_along_axis(others, top, 0.0, axis=-1)
    doubt = others.sum(axis=-1) + 0.0 * entropy  # nan where the entropy is
    return np.maximum(entropy, 0.0), doubt


def _histogram(entropies: np.ndarray, classes: int, bins: int) -> EntropyHistogram:
    if bins < 1:
        raise ValueError(f"bins must be at least 1; got {bins}")
    highest = np.log(classes)
    edges = np.linspace(0.0, highest, bins + 1)
    rows = entropies.reshape(-1, entropies.shape[-1])
    counts = [
        np.histogram(np.minimum(row, highest)[~np.isnan(row)], edges)[0] for row in rows
    ]
    shape = (*entropies.shape[:-1], bins)
    return EntropyHistogram(edges, np.array(counts, np.int64).reshape(shape))


def _areas(score_in: np.ndarray, score_out: np.ndarray) -> NDArray[np.float64]:
    """`[R]` areas under the ROC curve; foreign examples are the positives."""
    # As `churn_jax.metrics.roc_auc`, in float64 and without compiling for every size.
    areas = np.full(len(score_in), np.nan)
    for run, (own, foreign) in enumerate(zip(score_in, score_out, strict=True)):
        if np.isnan(own).any() or np.isnan(foreign).any():
            continue
        own = np.sort(own)
        below = np.searchsorted(own, foreign, side="left")
        not_above = np.searchsorted(own, foreign, side="right")
        areas[run] = np.mean(below + not_above) / (2 * len(own))
    return areas
