"""Norms of displacements of two kinds of networks, and how well normal ones fit.

Of logits, or of features that share a space.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import numpy as np
from numpy.typing import NDArray

from churn_jax.analysis import (
    GoodnessOfFit,
    displacement_distribution,
    ensemble_displacement_norms,
    goodness_of_fit,
    simulate_displacement_norms,
)
from churn_jax.reports.artefacts import ReportError

__all__ = ["FEWEST_NETWORKS", "DisplacementOptions", "Norms", "compare_norms"]

FEWEST_NETWORKS = 64  # fewer say little about a distribution over networks
SHOWN = 4  # images whose histograms are drawn


@dataclasses.dataclass(frozen=True)
class DisplacementOptions:
    """What is computed.

    Attributes:
        images: examples, evenly spaced, whose norms are tested.
        sizes: members of ensembles.
        draws: ensembles, and simulated displacements.
        resamples: sets of normal networks for a p-value.
        seed: of all draws.
    """

    images: int = 8
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    draws: int = 10_000
    resamples: int = 200
    seed: int = 0

    def __post_init__(self):
        """Checks what needs no predictions."""
        for name in ("images", "draws", "resamples"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1; got {getattr(self, name)}"
                )
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be at least 1; got {self.sizes}")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"sizes must increase; got {self.sizes}")


@dataclasses.dataclass(frozen=True, eq=False)
class Norms:
    """Norms of displacements between ensembles, on some images.

    Attributes:
        label: of the two rows.
        networks: how many there are of each kind.
        fits: one per size.
        ids: of the images whose norms are kept.
        drawn: size to `[draws, images]`, of random ensembles.
        simulated: the same of normal displacements.
        centre: `[images]`, norm of the mean displacement: what no size takes away.
    """

    label: str
    networks: tuple[int, ...]
    fits: tuple[GoodnessOfFit, ...]
    ids: tuple[str, ...]
    drawn: Mapping[int, NDArray[np.float64]]
    simulated: Mapping[int, NDArray[np.float64]]
    centre: NDArray[np.float64]


def compare_norms(
    label: str,
    a: NDArray[np.float64],
    b: NDArray[np.float64] | None,
    ids: NDArray,
    options: DisplacementOptions,
    on_part: Callable[[str], None] = lambda part: None,
) -> Norms:
    """Norms of two kinds of networks, or of one.

    Args:
        label: of the two, for people.
        a: `[R1, N, C]` of the old kind.
        b: `[R2, N, C]` of the new kind; None takes ensembles from two halves of `a`.
        ids: `[N]` of the examples.
        options: what to compute.
        on_part: told of every size that is done.

    Raises:
        ReportError: there are too few networks for the sizes.
    """
    side = len(a) // 2 if b is None else min(len(a), len(b))
    if max(options.sizes) > side or min(len(x) for x in (a, b) if x is not None) < 2:
        raise ReportError(
            f"{label}: ensembles of {max(options.sizes)} need as many networks on "
            f"either side, and two of each kind; there are {side} on a side"
        )
    key, draws = jax.random.key(options.seed), options.draws
    spaced = np.linspace(0, len(ids) - 1, options.images).round().astype(int)
    images = np.unique(spaced)
    shown = images[:SHOWN]
    tested, drawn_of = (
        (a[:, places], None if b is None else b[:, places])
        for places in (images, shown)
    )
    mean, covariance = displacement_distribution(*drawn_of)
    fits, drawn, simulated = [], {}, {}
    for size in options.sizes:
        own = jax.random.fold_in(key, size)
        resamples = options.resamples
        fits.append(
            goodness_of_fit(
                *tested, size=size, draws=draws, key=own, resamples=resamples
            )
        )
        drawn[size] = ensemble_displacement_norms(
            *drawn_of, size=size, draws=draws, key=own
        )
        simulated[size] = simulate_displacement_norms(
            mean, covariance, size=size, draws=draws, key=own
        )
        on_part(f"{label}, ensembles of {size}")
    return Norms(
        label=label,
        networks=fits[0].networks,
        fits=tuple(fits),
        ids=tuple(str(x) for x in ids[shown]),
        drawn=drawn,
        simulated=simulated,
        centre=np.linalg.norm(mean, axis=-1),
    )
