"""Do norms of displacements follow the distribution that normal logits would give?

The norm of a normal vector has a generalised chi-square distribution. It is simulated
along the eigenvectors of the covariance. Draws of ensembles share networks, so the test
of fit draws whole sets of networks instead. NumPy, float64.
"""

import dataclasses

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_jax.analysis.displacement import (
    blocks_of,
    drawn_norms,
    drawn_weights,
    generator,
    mean_and_root,
    networks_of,
    two_sides,
)


@dataclasses.dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """How well normal logits explain the norms, for one size of ensembles."""

    size: int  # members of an ensemble
    networks: tuple[int, ...]  # number of each kind: the sample size of the test
    # `[N]`, mean norm over the drawn ensembles, per image
    observed: NDArray[np.float64]
    simulated: NDArray[np.float64]  # `[N]`, mean norm of the simulated displacements
    distance: NDArray[np.float64]  # `[N]`, Kolmogorov-Smirnov distance between the two
    # `[N]`, how often normal networks give at least such a distance
    p: NDArray[np.float64]
    mean_distance: float  # over the images
    # how often normal networks give at least such a mean distance. One test for all
    # images, which knows that they share networks.
    mean_p: float
    expected_distance: float  # mean over the images and the sets of normal networks


def simulate_displacement_norms(
    mean: ArrayLike, covariance: ArrayLike, *, size: int, draws: int, key: jax.Array
) -> NDArray[np.float64]:
    """Norms of `N(mean, covariance / m)`, a generalised chi-square distribution.

    `||v||^2 = sum_i (sqrt(lambda_i / m) z_i + u_i . mean)^2` with eigenvalues lambda_i
    and eigenvectors u_i of the covariance and independent standard normal z_i.

    Args:
        mean: `[..., C]`.
        covariance: `[..., C, C]` of single networks, symmetric.
        size: m.
        draws: how many.
        key: key of the normal numbers, which all images share.

    Returns:
        `[draws, ...]` float64 Euclidean norms.

    Raises:
        ValueError: the shapes do not fit, or size or draws are below 1.
        TypeError: `key` is not a key.

    Example:
        >>> norms = simulate_displacement_norms(
        ...     [3.0, 4.0], np.zeros((2, 2)), size=1, draws=2, key=jax.random.key(0)
        ... )
        >>> norms
        array([5., 5.])

    References:
        [elodi] Fig. 5
    """
    mean = np.asarray(mean, np.float64)
    covariance = np.asarray(covariance, np.float64)
    if not mean.ndim or covariance.shape != (*mean.shape, mean.shape[-1]):
        raise ValueError(
            "mean must be [..., C] and covariance [..., C, C]; got "
            f"{mean.shape} and {covariance.shape}"
        )
    if size < 1 or draws < 1:
        raise ValueError(f"size and draws must be at least 1; got {size}, {draws}")
    eigenvalues, vectors = np.linalg.eigh(covariance)
    along = np.einsum("...c,...ck->...k", mean, vectors)
    spread = np.sqrt(np.maximum(eigenvalues, 0.0))  # rounding makes some negative
    normals = generator(key).standard_normal((mean.shape[-1], draws))
    norms = _simulated(spread, along, mean, size, normals)
    return norms.T.reshape(draws, *mean.shape[:-1])


def _simulated(spread, along, mean, size: int, normals) -> NDArray[np.float64]:
    """`[N, draws]` norms from `[..., K]` along the axes that vary."""
    # `mean [..., C]` may have parts outside those axes, which all draws share.
    spread, along = (x.reshape(-1, x.shape[-1]) for x in (spread, along))
    mean = mean.reshape(len(spread), -1)
    fixed = np.maximum(np.sum(mean**2, axis=1) - np.sum(along**2, axis=1), 0.0)
    spread = spread / np.sqrt(size)
    # (s z + u)^2 multiplied out, so that all images are one product of matrices.
    squares = spread**2 @ normals**2 + (2.0 * spread * along) @ normals
    squares += (np.sum(along**2, axis=1) + fixed)[:, None]
    return np.sqrt(np.maximum(squares, 0.0))


def kolmogorov_smirnov(observed: ArrayLike, simulated: ArrayLike) -> float:
    """Largest difference between two empirical distribution functions.

    `D = sup_x |F_observed(x) - F_simulated(x)|`.

    Args:
        observed: `[n]`.
        simulated: `[k]`.

    Returns:
        D in [0, 1].

    Raises:
        ValueError: one of them is not one-dimensional, or empty.

    Example:
        >>> kolmogorov_smirnov([1.0, 2.0], [2.0, 3.0])
        0.5

    Notes:
        Its usual table of p-values holds for independent draws only; see
        `goodness_of_fit`.

    References:
        [kolmogorov-smirnov] pp. 68-78 -- Massey, The Kolmogorov-Smirnov Test for
        Goodness of Fit, Journal of the American Statistical Association 1951.
        https://doi.org/10.1080/01621459.1951.10500769
    """
    a, b = np.asarray(observed, np.float64), np.asarray(simulated, np.float64)
    if a.ndim != 1 or b.ndim != 1 or not a.size or not b.size:
        raise ValueError(
            f"observed must be [n] and simulated [k]; got {a.shape} and {b.shape}"
        )
    return _distance(np.sort(a), np.sort(b))


def _distance(a, b) -> float:
    """The distance of two ascending samples, which a stable sort merges in one pass."""
    both = np.concatenate([a, b])
    order = np.argsort(both, kind="stable")
    steps = np.where(order < len(a), len(b), -len(a))  # whole numbers do not round
    gap = np.abs(np.cumsum(steps))
    merged = both[order]
    gap[:-1][merged[1:] == merged[:-1]] = 0  # equal values are one step together
    return float(gap.max() / (len(a) * len(b)))


def goodness_of_fit(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    size: int,
    draws: int,
    key: jax.Array,
    resamples: int = 200,
) -> GoodnessOfFit:
    """Compares norms of drawn ensembles with those of normal logits, and tests the fit.

    The distance is that of `ensemble_displacement_norms` to
    `simulate_displacement_norms`, whose mean and covariance come from all networks. For
    the p-value as many *normal* networks of the same mean and covariance are drawn, the
    same procedure gives their distance, and
    `p = (1 + #{normal distance >= distance}) / (1 + resamples)`.

    Args:
        a: `[R1, C]` or `[R1, N, C]`, networks of the old kind.
        b: `[R2, C]` or `[R2, N, C]` of the new kind; None halves `a`.
        size: members m of an ensemble.
        draws: ensembles, and simulated displacements.
        key: key of all draws.
        resamples: sets of normal networks, which bound the p-value from below.

    Returns:
        The `GoodnessOfFit`, N = 1 for `[R, C]`.

    Raises:
        ValueError: the shapes do not fit, or there are too few networks or draws.
        TypeError: not real numbers, or `key` is not a key.

    Example:
        >>> networks = np.random.default_rng(0).normal(size=(16, 2, 3))
        >>> fit = goodness_of_fit(
        ...     networks, size=2, draws=500, key=jax.random.key(0), resamples=19
        ... )
        >>> fit.distance.shape, bool(fit.mean_p > 0.05)
        ((2,), True)

    Notes:
        The paper compares by eye. The p-value of a Kolmogorov-Smirnov table would be
        wrong: 10,000 draws from 64 networks are no 10,000 observations, their mean is
        off by what the two halves differ in, and the covariance is estimated from the
        same networks. All that happens to the normal networks too. Normal networks are
        normal for all images together, as the images share the networks.

    References:
        [elodi] Sec. 3.3
        [bootstrap] pp. 241-251 -- Stute, Manteiga and Quindimil, Bootstrap based
        goodness-of-fit-tests, Metrika 1993. https://doi.org/10.1007/BF02613687
    """
    sides = [
        _with_images(networks_of(side, name))
        for side, name in ((a, "a"), (b, "b"))
        if side is not None
    ]
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1; got {resamples}")
    first, second = two_sides(*sides)
    rng = generator(key)
    weights = [drawn_weights(len(s), size, draws, rng) for s in (first, second)]
    classes, images = first.shape[-1], first.shape[1]
    rank = min(classes, sum(map(len, sides)))
    normals = rng.standard_normal((rank, draws))
    observed, simulated, distance = _compared(sides, weights, size, normals)

    normal_distances = np.empty((resamples, images))
    for block in blocks_of(resamples, images * classes * draws // 4):
        count = block.stop - block.start
        drawn = [_normal_networks(side, count, rng) for side in sides]
        _, _, found = _compared(drawn, weights, size, normals)
        normal_distances[block] = found.reshape(count, images)
    mean_distance = float(distance.mean())
    as_far = normal_distances >= distance
    all_as_far = normal_distances.mean(axis=1) >= mean_distance
    return GoodnessOfFit(
        size=size,
        networks=tuple(map(len, sides)),
        observed=observed,
        simulated=simulated,
        distance=distance,
        p=(1 + as_far.sum(axis=0)) / (1 + resamples),
        mean_distance=mean_distance,
        mean_p=float((1 + all_as_far.sum()) / (1 + resamples)),
        expected_distance=float(normal_distances.mean()),
    )


def _with_images(networks):
    if networks.ndim not in (2, 3):
        raise ValueError(
            f"networks must be [R, C] or [R, N, C]; got shape {networks.shape}"
        )
    return networks[:, None] if networks.ndim == 2 else networks


def _compared(sides, weights, size: int, normals):
    """Mean observed and simulated norm and their distance, each `[N]`."""
    norms = drawn_norms(*two_sides(*sides), *weights)
    mean, root = mean_and_root(*sides)
    _, spread, axes = np.linalg.svd(root, full_matrices=False)
    along = np.einsum("nc,nkc->nk", mean, axes)
    simulated = _simulated(spread, along, mean, size, normals[: spread.shape[-1]])
    means = norms.mean(axis=1), simulated.mean(axis=1)
    norms.sort(axis=1)
    simulated.sort(axis=1)
    pairs = zip(norms, simulated, strict=True)
    return *means, np.array([_distance(*pair) for pair in pairs])


def _normal_networks(networks, count: int, rng) -> NDArray[np.float64]:
    """`[R, count * N, C]`: sets of normal networks with the moments of `networks`."""
    # `mean + G (networks - mean) / sqrt(R - 1)` with independent standard normal G has
    # exactly their covariance, across images too, and needs no matrix as large as that.
    runs, images, classes = networks.shape
    mean = networks.mean(axis=0)
    flat = (networks - mean).reshape(runs, -1) / np.sqrt(runs - 1)
    drawn = rng.standard_normal((count, runs, runs)) @ flat
    drawn = drawn.reshape(count, runs, images, classes) + mean
    return drawn.transpose(1, 0, 2, 3).reshape(runs, count * images, classes)
