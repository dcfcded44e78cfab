"""Selection: of several runs of a release, ship the one nearest to their mean."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp

from churn_jax.setting_checks import check_least


class Selection(NamedTuple):
    """Churn and accuracy of selected runs, on examples that did not select them.

    Attributes:
        churn: share of examples whose class differs between two releases' shipped runs.
        accuracy: accuracy of the shipped runs.
        churn_of_any: churn between any run of one release and any of another.
        accuracy_of_any: mean accuracy of all runs.
    """

    churn: float
    accuracy: float
    churn_of_any: float
    accuracy_of_any: float


def nearest_to_mean(logits) -> int:
    """The run whose probabilities are nearest to the runs' mean probabilities.

    `argmin_r 1/N sum_i KL(mean_s p_s(x_i) || p_r(x_i))`.

    Args:
        logits: `[R, N, C]`.

    Returns:
        The number of the run; of equal ones the first.

    Raises:
        ValueError: `logits` has another form or holds NaN.

    Example:
        >>> import numpy as np
        >>> p = np.array([[[0.5, 0.5]], [[0.6, 0.4]], [[0.9, 0.1]]])
        >>> nearest_to_mean(np.log(p))  # the mean is (2/3, 1/3)
        1

    Notes:
        The distance is ours; it takes the direction in which a distilled ensemble
        teaches. It costs R trainings for each release, and serves one network.
    """
    log_p = _log_probs(logits)
    mean = logsumexp(log_p, axis=0) - np.log(len(log_p))
    with np.errstate(invalid="ignore"):  # a class that no run gives a chance adds 0
        gaps = np.where(np.isneginf(mean), 0.0, np.exp(mean) * (mean - log_p))
    away = np.sum(gaps, axis=-1)
    return int(np.argmin(np.mean(away, axis=-1)))


def _log_probs(logits) -> np.ndarray:
    """`[R, N, C]` in float64."""
    if np.ndim(logits) != 3 or 0 in np.shape(logits):
        raise ValueError(f"logits must be [R, N, C]; got shape {np.shape(logits)}")
    log_p = log_softmax(np.asarray(logits, np.float64), axis=-1)
    if np.isnan(log_p).any():
        raise ValueError("logits have no probabilities (nan); leave such runs out")
    return log_p


def cross_fitted_selection(
    logits, labels, size: int, *, repeats: int = 100, seed: int = 0
) -> Selection:
    """Churn and accuracy of releases that ship the run nearest to their mean.

    Runs are put into releases of `size` at random and examples into halves. Each
    release selects on one half and is measured on the other, and the reverse: what was
    selected on is never measured. Means over pairs of releases, halves and `repeats`.

    Args:
        logits: `[R, N, C]` of R independent runs.
        labels: `[N]`.
        size: runs of a release, at most half of R.
        repeats: number of random partitions.
        seed: seed of the partitions.

    Raises:
        ValueError: there are fewer than two releases or two examples, or `logits`
            holds NaN.

    Notes:
        There is no standard error: the partitions share runs. Repeat the study with
        other seeds.
    """
    check_least("repeats", repeats, 1)
    labels = np.asarray(labels)
    log_p = _log_probs(logits)
    classes = np.argmax(log_p, axis=-1)
    runs, examples = classes.shape
    if not 1 <= size <= runs // 2 or examples < 2 or labels.shape != (examples,):
        raise ValueError(
            "selection needs two releases and two labelled examples or more; got "
            f"{runs} runs in releases of {size}, {examples} examples and labels of "
            f"shape {labels.shape}"
        )
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(repeats):
        order = rng.permutation(runs)[: runs // size * size].reshape(-1, size)
        halves = np.array_split(rng.permutation(examples), 2)
        for own, other in (halves, halves[::-1]):
            shipped = [g[nearest_to_mean(log_p[g][:, own])] for g in order]
            found.append(
                [
                    _apart(classes[shipped][:, None], other),
                    np.mean(classes[shipped][:, other] == labels[other]),
                    _apart(classes[order], other),
                    np.mean(classes[order][..., other] == labels[other]),
                ]
            )
    return Selection(*map(float, np.mean(found, axis=0)))


def _apart(classes: np.ndarray, rows: np.ndarray) -> float:
    """Mean over pairs of runs of different releases; classes `[G, S, N]`."""
    differ = [
        np.mean(a[rows] != b[rows])
        for g, release in enumerate(classes)
        for other in classes[g + 1 :]
        for a in release
        for b in other
    ]
    return float(np.mean(differ))
