"""Updates between ensembles as they grow: errors, flips, ranks of flips.

Members are drawn at random without replacement, and old and new ensembles share no
network. NumPy, float64.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_jax.analysis.displacement import (
    blocks_of,
    drawn_weights,
    generator,
    networks_of,
    two_sides,
)
from churn_jax.metrics import flip_rank


@dataclasses.dataclass(frozen=True, eq=False)
class UpdatesBySize:
    """Errors and flips of random updates, per size of the ensembles."""

    sizes: tuple[int, ...]  # members of old and new ensembles
    old_error: NDArray[np.float64]  # `[S, draws]`, error rate of the old ensemble
    new_error: NDArray[np.float64]  # `[S, draws]`, of the new one
    # `[S, draws]`, share of examples that the old ensemble has right and the new one
    # wrong
    negative_flip_rate: NDArray[np.float64]

    @property
    def relative_negative_flip_rate(self) -> NDArray[np.float64]:
        """`[S, draws]`, `NFR / ((1 - ER_old) ER_new)`; nan where no flip can be."""
        chance = (1.0 - self.old_error) * self.new_error
        return self.negative_flip_rate / np.where(chance > 0, chance, np.nan)


def mixed_sides(
    rows: Sequence[ArrayLike],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Networks of several rows for heterogeneous ensembles: old and new ones.

    The first half of every row's networks is for old ensembles, the second for new
    ones; of an odd number the last is left out, so that both have the same mixture.

    Args:
        rows: each `[R_k, ..., C]`, two rows at least.

    Returns:
        Two arrays `[sum_k R_k // 2, ..., C]`.

    Raises:
        ValueError: fewer than two rows, rows of other shapes, or a row of one network.

    Example:
        >>> old, new = mixed_sides([np.eye(2), 2 * np.eye(2)])
        >>> old.tolist(), new.tolist()
        ([[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [0.0, 2.0]])

    Notes:
        The paper does not say how its heterogeneous ensembles are put together; random
        members of all rows are ours.
    """
    if len(rows) < 2:
        raise ValueError(f"a mixture needs at least 2 rows; got {len(rows)}")
    found = [networks_of(row, f"row {i}") for i, row in enumerate(rows)]
    for i, row in enumerate(found):
        if row.shape[1:] != found[0].shape[1:] or len(row) < 2:
            raise ValueError(
                "rows must be [R, ..., C] of at least 2 networks and may differ in "
                f"their number only; row {i} is {row.shape}, row 0 {found[0].shape}"
            )
    halves = [np.split(row[: len(row) // 2 * 2], 2) for row in found]
    old, new = map(np.concatenate, zip(*halves, strict=True))
    return old, new


def er_nfr_by_ensemble_size(
    old: ArrayLike,
    new: ArrayLike | None,
    labels: ArrayLike,
    *,
    sizes: Sequence[int],
    draws: int,
    key: jax.Array,
) -> UpdatesBySize:
    """Error and negative flip rates of updates between ensembles of growing size.

    An ensemble averages its members' logits.
    `NFR = (1/N) sum_i [old right, new wrong]`.

    Args:
        old: `[R1, N, C]`, networks of the old kind.
        new: `[R2, N, C]`, of the new kind; None halves `old`. For heterogeneous
            ensembles give the two sides of `mixed_sides`.
        labels: `[N]` class ids.
        sizes: members m of an ensemble.
        draws: updates per size.
        key: key of the draws.

    Returns:
        The `UpdatesBySize`.

    Raises:
        ValueError: the shapes do not fit, or a side has fewer networks than members.
        TypeError: not real numbers, or `key` is not a key.

    Example:
        >>> old = np.array([[[2.0, 0.0], [0.0, 2.0]]])
        >>> new = np.array([[[0.0, 2.0], [0.0, 2.0]]])
        >>> key = jax.random.key(0)
        >>> found = er_nfr_by_ensemble_size(
        ...     old, new, [0, 1], sizes=(1,), draws=1, key=key
        ... )
        >>> found.negative_flip_rate.tolist()
        [[0.5]]

    Notes:
        The spread over draws says how much one update differs from another. It is no
        standard error of their mean: draws share networks.

    References:
        [elodi] Fig. 2
    """
    first, second, labels = _checked(old, new, labels)
    rng = generator(key)
    out = np.empty((3, len(sizes), draws))
    for s, size in enumerate(sizes):
        weights = [drawn_weights(len(x), size, draws, rng) for x in (first, second)]
        for block in blocks_of(draws, first[0].size):
            right = [
                np.argmax(_averaged(x, w[block]), axis=-1) == labels
                for x, w in zip((first, second), weights, strict=True)
            ]
            flips = right[0] & ~right[1]
            for i, found in enumerate((~right[0], ~right[1], flips)):
                out[i, s, block] = found.mean(axis=1)
    return UpdatesBySize(tuple(sizes), *out)


def flip_rank_counts(
    old: ArrayLike,
    new: ArrayLike | None,
    labels: ArrayLike,
    *,
    size: int,
    draws: int,
    key: jax.Array,
) -> NDArray[np.int64]:
    """How high the old ensemble ranks the wrong classes of negative flips.

    Args:
        old, new, labels, key: as in `er_nfr_by_ensemble_size`; errors as there.
        size: members of an ensemble; 1 for single networks.
        draws: updates, whose flips are counted together.

    Returns:
        `[C]` int64, entry `r - 1` the negative flips of rank r. Rank 1 has none.

    Example:
        >>> old, new = np.array([[[3.0, 1.0, 2.0]]]), np.array([[[0.0, 5.0, 0.0]]])
        >>> key = jax.random.key(0)
        >>> flip_rank_counts(old, new, [0], size=1, draws=2, key=key).tolist()
        [0, 0, 2]

    References:
        [elodi] Fig. 4
    """
    first, second, labels = _checked(old, new, labels)
    rng = generator(key)
    weights = [drawn_weights(len(x), size, draws, rng) for x in (first, second)]
    counts = np.zeros(first.shape[-1] + 1, np.int64)
    for pair in zip(*weights, strict=True):
        was, now = (
            jnp.asarray(_averaged(x, w[None])[0], jnp.float32)
            for x, w in zip((first, second), pair, strict=True)
        )
        ranks = flip_rank(old_logits=was, new_logits=now, labels=jnp.asarray(labels))
        counts += np.bincount(np.asarray(ranks), minlength=len(counts))
    return counts[1:]


def _checked(old, new, labels):
    first, second = two_sides(old, new)
    labels = np.asarray(labels)
    if first.ndim != 3 or labels.shape != first.shape[1:2]:
        raise ValueError(
            "old must be [R, N, C] and labels [N]; got "
            f"{np.shape(old)} and {labels.shape}"
        )
    return first, second, labels


def _averaged(networks, weights):
    """`[draws, N, C]`, logits of ensembles."""
    flat = networks.reshape(len(networks), -1)
    return (weights @ flat).reshape(len(weights), *networks.shape[1:])
