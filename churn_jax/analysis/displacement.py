"""How far logits move from one model to another, and why ensembles move less.

Networks of one kind are draws from a distribution with mean mu and covariance Sigma, so
the mean of m of them has covariance Sigma / m. Features do as well as logits if those
of all networks live in one space. Everything is computed by NumPy in float64.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

_BLOCK = 2**23  # numbers that are averaged at a time


class DisplacementDistribution(NamedTuple):
    """Mean and covariance of the displacement between two single networks."""

    mean: NDArray[np.float64]  # `[..., C]`, `mu_1 - mu_2`
    # `[..., C, C]`, `Sigma_1 + Sigma_2`; ensembles of m have it over m
    covariance: NDArray[np.float64]


def logit_displacement(
    *, old_logits: ArrayLike, new_logits: ArrayLike
) -> NDArray[np.float64]:
    """The displacement between two models, `phi(x) - psi(x)`.

    Args:
        old_logits: `[..., C]`, phi.
        new_logits: `[..., C]`, psi.

    Returns:
        `[..., C]` float64.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> logit_displacement(old_logits=[2.0, 1.0], new_logits=[1.5, 3.0])
        array([ 0.5, -2. ])

    References:
        [elodi] Sec. 3.1
    """
    old = np.asarray(old_logits, np.float64)
    new = np.asarray(new_logits, np.float64)
    if old.shape != new.shape or not old.ndim:
        raise ValueError(
            "old_logits and new_logits must have one shape [..., C]; got "
            f"{old.shape} and {new.shape}"
        )
    return old - new


def displacement_distribution(
    a: ArrayLike, b: ArrayLike | None = None
) -> DisplacementDistribution:
    """Mean and covariance of the displacement, from single networks.

    `N(mu_1 - mu_2, (Sigma_1 + Sigma_2) / m)` is the displacement of two ensembles of m.
    Of one kind of network it is `N(0, 2 Sigma / m)`.

    Args:
        a: `[R1, ..., C]`, networks of the old kind.
        b: `[R2, ..., C]`, networks of the new kind; None where both are of one kind.

    Returns:
        Mean `[..., C]` and covariance `[..., C, C]` for m = 1, covariances unbiased.

    Raises:
        ValueError: the shapes do not fit, or a kind has fewer than two networks.
        TypeError: not real numbers.

    Example:
        >>> old, new = [[1.0, 0.0], [3.0, 0.0]], [[0.0, 5.0], [0.0, 5.0]]
        >>> found = displacement_distribution(old, new)
        >>> found.mean.tolist(), found.covariance.tolist()
        ([2.0, -5.0], [[2.0, 0.0], [0.0, 0.0]])

    References:
        [elodi] Eq. 1
        [elodi] Eq. 3
        [elodi] Eq. 4
    """
    mean, root = mean_and_root(a, b)
    return DisplacementDistribution(mean, np.swapaxes(root, -1, -2) @ root)


def mean_and_root(
    a: ArrayLike, b: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean `[..., C]` and a root `[..., R, C]` of the covariance, `root^T root`."""
    # With a thousand classes and a hundred networks the root is a tenth of the
    # covariance, and its singular values are those that are not zero.
    sides = [networks_of(a, "a")] if b is None else two_sides(a, b)
    roots = []
    for side in sides:
        if len(side) < 2:
            raise ValueError(
                f"a covariance needs at least 2 networks of a kind; got {len(side)}"
            )
        centred = (side - side.mean(axis=0)) / np.sqrt(len(side) - 1)
        roots.append(np.moveaxis(centred, 0, -2))
    if b is None:
        return np.zeros(sides[0].shape[1:]), np.sqrt(2.0) * roots[0]
    mean = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    return mean, np.concatenate(roots, axis=-2)


def ensemble_displacement_norms(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    size: int,
    draws: int,
    key: jax.Array,
    order: float = 2,
) -> NDArray[np.float64]:
    """Norms of the displacement between random ensembles of `size` members.

    `||(1/m) sum_{i in M1} phi_i(x) - (1/m) sum_{j in M2} psi_j(x)||_p`, M1 and M2 drawn
    without replacement from networks that the other side does not have.

    Args:
        a: `[R1, ..., C]`, networks of the old kind.
        b: `[R2, ..., C]`, networks of the new kind; None draws old ensembles from the
            first half of `a` and new ones from the second.
        size: m, at most the networks of a side.
        draws: how many pairs of ensembles.
        key: key of the draws.
        order: p, at least 1.

    Returns:
        `[draws, ...]` float64.

    Raises:
        ValueError: the shapes do not fit, there are too few networks, or p is below 1.
        TypeError: not real numbers, or `key` is not a key.

    Example:
        >>> networks = [[0.0, 0.0], [3.0, 4.0]]
        >>> key = jax.random.key(0)
        >>> ensemble_displacement_norms(networks, size=1, draws=3, key=key)
        array([5., 5., 5.])

    Notes:
        One draw is the same two ensembles for all images. Draws share networks: the
        networks are the sample, not the draws.

    References:
        [elodi] Eq. 2
    """
    if not order >= 1:
        raise ValueError(f"order must be at least 1; got {order}")
    first, second = two_sides(a, b)
    rng = generator(key)
    old = drawn_weights(len(first), size, draws, rng)
    new = drawn_weights(len(second), size, draws, rng)
    norms = drawn_norms(first, second, old, new, order)
    return norms.T.reshape(draws, *first.shape[1:-1])


def drawn_norms(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    first_weights: NDArray[np.float64],
    second_weights: NDArray[np.float64],
    order: float = 2,
) -> NDArray[np.float64]:
    """`[N, draws]` norms of ensembles whose members are given by weights."""
    classes, draws = first.shape[-1], len(first_weights)
    # Both sides are one product: [N, C, R1 + R2] @ [R1 + R2, draws].
    networks = np.concatenate([first, -second])
    networks = networks.reshape(len(networks), -1, classes).transpose(1, 2, 0)
    weights = np.concatenate([first_weights, second_weights], axis=1).T
    out = np.empty((len(networks), draws))
    for block in blocks_of(len(networks), classes * draws):
        part = np.ascontiguousarray(networks[block]).reshape(-1, len(weights))
        moved = (part @ weights).reshape(-1, classes, draws)
        if order == 2:  # several times faster than the general norm
            out[block] = np.sqrt(np.einsum("ncd,ncd->nd", moved, moved))
        else:
            out[block] = np.linalg.norm(moved, ord=order, axis=1)
    return out


def top_k_share(
    *, old_logits: ArrayLike, new_logits: ArrayLike, top_k: int, order: float = 2
) -> NDArray[np.float64]:
    """Share of the displacement that the old model's top K classes have.

    `sum_{k in K(x)} |phi_k(x) - psi_k(x)|^p / ||phi(x) - psi(x)||_p^p`, K(x) the K
    classes with the highest logits phi. If all classes moved alike, it were K / C.

    Args:
        old_logits: `[..., C]`, phi, which ranks; the paper's is an ensemble.
        new_logits: `[..., C]`, psi.
        top_k: K, from 1 to C.
        order: p, at least 1.

    Returns:
        `[...]` float64 in [0, 1]; nan where nothing has moved.

    Raises:
        ValueError: the shapes differ, or K or p cannot be.

    Example:
        >>> old, new = [3.0, 2.0, 0.0], [0.0, 2.0, 4.0]
        >>> float(top_k_share(old_logits=old, new_logits=new, top_k=1))  # 9 / 25
        0.36

    Notes:
        Ties go to the lower class id.

    References:
        [elodi] Eq. 5
    """
    moved = logit_displacement(old_logits=old_logits, new_logits=new_logits)
    if not order >= 1 or not np.isfinite(order):
        raise ValueError(f"order must be at least 1 and finite; got {order}")
    if not 1 <= top_k <= moved.shape[-1]:
        raise ValueError(
            f"top_k must be from 1 to the {moved.shape[-1]} classes; got {top_k}"
        )
    moved = np.abs(moved)
    largest = moved.max(axis=-1, keepdims=True)
    powers = (moved / np.where(largest > 0, largest, 1.0)) ** order
    ranked = np.argsort(-np.asarray(old_logits, np.float64), axis=-1, kind="stable")
    top = np.take_along_axis(powers, ranked[..., :top_k], axis=-1).sum(axis=-1)
    total = powers.sum(axis=-1)
    return np.where(total > 0, top / np.where(total > 0, total, 1.0), np.nan)


def few_classes(logits: ArrayLike, labels: ArrayLike, count: int) -> list[int]:
    """Classes that networks confuse with each other: a plane shows two or three.

    Args:
        logits: `[..., N, C]`.
        labels: `[N]`.
        count: how many, from 2 to C; the two that are confused most, then whichever is
            confused most with those.

    Returns:
        Class ids, increasing.
    """
    logits = np.asarray(logits)
    if not 2 <= count <= logits.shape[-1]:
        raise ValueError(f"count must be from 2 to {logits.shape[-1]}; got {count}")
    predicted = logits.argmax(axis=-1)
    cells = np.zeros((logits.shape[-1],) * 2)
    np.add.at(cells, (np.broadcast_to(labels, predicted.shape), predicted), 1)
    cells = cells + cells.T
    np.fill_diagonal(cells, -1)
    found = [int(x) for x in np.unravel_index(np.argmax(cells), cells.shape)]
    while len(found) < count:
        with_these = cells[found].sum(axis=0)
        with_these[found] = -np.inf
        found.append(int(np.argmax(with_these)))
    return sorted(found)


def generator(key: jax.Array) -> np.random.Generator:
    """NumPy's generator of a typed JAX key."""
    typed = hasattr(key, "dtype") and jax.dtypes.issubdtype(
        key.dtype, jax.dtypes.prng_key
    )
    if not typed or key.shape:
        raise TypeError(f"key must be one key of jax.random.key; got {key!r}")
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def networks_of(outputs: ArrayLike, name: str) -> NDArray[np.float64]:
    """`[R, ..., C]` as float64, refused if there is no network or class."""
    outputs = np.asarray(outputs)
    if outputs.dtype.kind not in "fiu" and outputs.dtype.name != "bfloat16":
        raise TypeError(f"{name} must be real numbers; got {outputs.dtype}")
    if outputs.ndim < 2 or 0 in outputs.shape:
        raise ValueError(f"{name} must be [R, ..., C]; got shape {outputs.shape}")
    return outputs.astype(np.float64)


def two_sides(
    a: ArrayLike, b: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The networks of old and of new ensembles; halves of `a` if `b` is None."""
    first = networks_of(a, "a")
    if b is None:
        if len(first) < 2:
            raise ValueError("a must hold at least 2 networks to be split; got 1")
        half = len(first) // 2
        return first[:half], first[half:]
    second = networks_of(b, "b")
    if first.shape[1:] != second.shape[1:]:
        raise ValueError(
            "a [R1, ..., C] and b [R2, ..., C] may differ in the number of networks "
            f"only; got {first.shape} and {second.shape}"
        )
    return first, second


# An ensemble of m members is a row of weights, 1 / m for its members and 0 for other
# networks, so all ensembles of all images are one product of matrices.
def drawn_weights(
    networks: int, size: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """`[draws, networks]`: each row `1 / size` at members drawn without replacement."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1; got {draws}")
    if not 1 <= size <= networks:
        raise ValueError(
            f"size must be at least 1 and at most the {networks} networks that "
            f"members are drawn from; got {size}"
        )
    order = np.argsort(rng.random((draws, networks)), axis=1)
    weights = np.zeros((draws, networks))
    np.put_along_axis(weights, order[:, :size], 1.0 / size, axis=1)
    return weights


def blocks_of(count: int, numbers_each: int) -> Iterator[slice]:
    """Slices of `count` things, each slice small enough to be averaged at a time."""
    step = max(1, _BLOCK // max(1, numbers_each))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
