"""Quality on corrupted test images: every kind and severity, their means and quartiles.

The numbers behind Table 3 (means over 15 kinds and 5 severities) and Figure 9 (a box
per severity, over the kinds).
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_jax.metrics import (
    accuracy,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
)

QUANTITIES = ("accuracy", "nll", "brier", "ece")

Cell = tuple[str, int]  # a kind of corruption and its severity


class CorruptionSummary(NamedTuple):
    """Four quantities of R runs on K kinds of corruption at S severities.

    Accuracy in [0, 1], NLL in nats, Brier score summed over classes, ECE of 15 bins.

    Attributes:
        corruptions: names of the K kinds, in the order they came.
        severities: the S severities, rising.
        values: `[K, S, 4, R]`, in the order of `QUANTITIES`.

    References:
        [diversity] Table 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
        [diversity] Fig. 9 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, found: Mapping[Cell, NDArray[np.float64]]) -> Self:
        """Every kind at every severity, each `measure(logits, labels)`."""
        kinds = tuple(dict.fromkeys(kind for kind, _ in found))
        levels = tuple(sorted({level for _, level in found}))
        return cls(
            kinds, levels, np.array([[found[k, s] for s in levels] for k in kinds])
        )

    def mean(self, quantity: str) -> NDArray[np.float64]:
        """`[R]`, mean over kinds and severities: a cell of Table 3."""
        return self.values[:, :, QUANTITIES.index(quantity)].mean(axis=(0, 1))

    def quartiles(self, quantity: str) -> NDArray[np.float64]:
        """`[S, 5]`: smallest value, quartiles and largest of a box of Figure 9.

        A box is over the kinds, of each kind's mean over runs.
        """
        kinds = self.values[:, :, QUANTITIES.index(quantity)].mean(axis=-1)
        return np.quantile(kinds, [0, 0.25, 0.5, 0.75, 1], axis=0).T


@jax.jit
def _of_runs(logits, labels):
    """Four arrays `[R]` in the order of `QUANTITIES`."""

    def of_run(run):
        return (
            accuracy(run, labels),
            negative_log_likelihood(run, labels),
            brier_score(run, labels),
            expected_calibration_error(run, labels),
        )

    return jax.vmap(of_run)(logits)


def measure(logits: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """`[4, R]` of logits `[R, N, C]` and labels `[N]`; a run with nan has nan."""
    single = np.asarray(logits, np.float32)  # one compilation for every dtype
    values = np.asarray(_of_runs(single, np.asarray(labels)), np.float64)
    stopped = np.isnan(single).any(axis=(1, 2))
    values[:, stopped] = np.nan  # arg max of nan would still be right now and then
    return values
