"""Labels that are smoothed by the labels of an example's nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from churn_jax.lazy import jnp
from churn_jax.setting_checks import check_least

if TYPE_CHECKING:
    from churn_jax.typing import Array, Labels, Logits


def neighbour_targets(
    logits: Logits, labels: Labels, neighbours: int, *, uniform: float = 0.0
) -> Array:
    """Share of each class among the training examples with the nearest logits.

    `uniform / C + (1 - uniform) 1/k sum_(j in N_i) onehot(y_j)`, where `N_i` are the k
    examples whose logits have the least Euclidean distance from those of example i, the
    example itself among them. SciPy's k-d tree finds them on the host, not under `jit`,
    in memory linear in N; time is linear in N for few classes, quadratic for hundreds.

    Args:
        logits: `[N, C]` of a trained model on its training examples.
        labels: `[N]`, integers.
        neighbours: k, from 1 to N.
        uniform: share of the uniform distribution, from 0 to 1.

    Returns:
        `[N, C]` float32 probabilities. Among equally near examples any may be used.

    Raises:
        ValueError: the shapes do not fit, a number is out of range, or logits are not
            finite.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> logits = jnp.array([[0.0, 9.0], [0.0, 8.0], [5.0, 0.0]])
        >>> print(neighbour_targets(logits, jnp.array([1, 0, 0]), 2))
        [[0.5 0.5]
         [0.5 0.5]
         [1.  0. ]]

    Notes:
        k-NN label smoothing mixes these targets with the labels. In a study it is the
        method `EnsembleDistillation(alpha=a, temperature=1)` with
        `Teaching(offline=True, neighbours=k, uniform=b)`; the loss differs by a
        constant. Written from the paper's abstract and public code with the settings a,
        b and k; that an example is its own neighbour is our reading of them.

    References:
        [knn-smoothing] k-NN label smoothing -- Bahri and Jiang, Locally Adaptive Label
        Smoothing for Predictive Churn, ICML 2021. https://arxiv.org/abs/2102.05140
    """
    from churn_jax._checks import check_labels, check_logits

    check_logits(logits=logits)
    check_labels(labels, logits)
    check_least("neighbours", neighbours, 1)
    if logits.ndim != 2 or neighbours > len(logits) or not 0.0 <= uniform <= 1.0:
        raise ValueError(
            "neighbour_targets needs logits [N, C], at most N neighbours and a uniform "
            f"share from 0 to 1; got {logits.shape}, {neighbours} and {uniform}"
        )
    from scipy.spatial import KDTree

    points, classes = np.asarray(logits, np.float64), np.asarray(labels)
    (N, C), known = points.shape, (classes >= 0) & (classes < logits.shape[-1])
    if not np.all(known) or not np.all(np.isfinite(points)):
        raise ValueError(
            "neighbour_targets needs finite logits and labels from 0 to C - 1"
        )
    tree = KDTree(points)
    near = tree.query(points, np.arange(1, neighbours + 1), workers=-1)[1]
    place = np.arange(N)[:, None] * C + classes[near]
    shares = np.bincount(place.reshape(-1), minlength=N * C).reshape(N, C) / neighbours
    return jnp.asarray(uniform / C + (1.0 - uniform) * shares, jnp.float32)
