"""Quality on corrupted test images: every kind and severity, their means and quartiles.

The numbers behind Table 3 (means over 15 kinds and 5 severities) and Figure 9 (a box
per severity, over the kinds).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from churn_jax._checks import check_labels, check_logits
from churn_jax.metrics import (
    accuracy,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
)
from churn_jax.setting_checks import check_choice

QUANTITIES = ("accuracy", "nll", "brier", "ece")

Cell = tuple[str, int]  # a kind of corruption and its severity
Outputs = tuple[ArrayLike, ArrayLike]  # logits [R, N, C] and labels [N]


class Quartiles(NamedTuple):
    """Five numbers of a box plot.

    Attributes:
        low: the smallest value.
        first: a quarter of the values lie below.
        median: half of them do.
        third: three quarters do.
        high: the largest value.
    """

    low: float
    first: float
    median: float
    third: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class CorruptionSummary:
    """Four quantities of R runs on K kinds of corruption at S severities.

    Attributes:
        corruptions: names of the K kinds, in the order they came.
        severities: the S severities, rising.
        accuracy: `[K, S, R]`, in [0, 1].
        nll: `[K, S, R]`, negative log-likelihood in nats.
        brier: `[K, S, R]`, Brier score, summed over classes.
        ece: `[K, S, R]`, expected calibration error, 15 bins.
    """

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    accuracy: NDArray[np.float64]
    nll: NDArray[np.float64]
    brier: NDArray[np.float64]
    ece: NDArray[np.float64]

    def mean(self, quantity: str) -> NDArray[np.float64]:
        """`[R]`, mean over kinds and severities: a cell of Table 3."""
        return self._values(quantity).mean(axis=(0, 1))

    def by_severity(self, quantity: str) -> NDArray[np.float64]:
        """`[S, K]`, each kind's mean over runs: what the boxes are drawn over."""
        return self._values(quantity).mean(axis=-1).T

    def quartiles(self, quantity: str) -> tuple[Quartiles, ...]:
        """One box of Figure 9 per severity, over the kinds of corruption.

        Quartiles between two values are interpolated.
        """
        cuts = np.quantile(self.by_severity(quantity), [0, 0.25, 0.5, 0.75, 1], axis=1)
        return tuple(Quartiles(*map(float, cut)) for cut in cuts.T)

    def _values(self, quantity: str) -> NDArray[np.float64]:
        check_choice("quantity", quantity, QUANTITIES)
        return getattr(self, quantity)


def corruption_summary(
    cells: Mapping[Cell, Outputs] | Iterable[tuple[Cell, Outputs]],
) -> CorruptionSummary:
    """Accuracy, NLL, Brier score and ECE of every run on every corrupted test set.

    Args:
        cells: from `(corruption, severity)` to `(logits [R, N, C], labels [N])`; as a
            mapping, or as pairs that come one after the other, so that only one cell
            of logits need be in memory.

    Returns:
        The table. A run with nan among its logits has nan.

    References:
        [diversity] Table 3 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
        [diversity] Fig. 9 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    measured: dict[Cell, np.ndarray] = {}
    pairs = cells.items() if isinstance(cells, Mapping) else cells
    for cell, (logits, labels) in cast(Iterable[tuple[Cell, Outputs]], pairs):
        where = f"{cell[0]}, severity {cell[1]}"
        if cell in measured:
            raise ValueError(f"{where} is given twice")
        measured[cell] = _measure(where, logits, labels)
        first = next(iter(measured))
        if measured[cell].shape != measured[first].shape:
            raise ValueError(
                f"{where} has {measured[cell].shape[1]} runs, but {first[0]}, severity "
                f"{first[1]} has {measured[first].shape[1]}"
            )
    if not measured:
        raise ValueError("cells must not be empty")
    corruptions = tuple(dict.fromkeys(name for name, _ in measured))
    severities = tuple(sorted({severity for _, severity in measured}))
    missing = [
        (c, s) for c in corruptions for s in severities if (c, s) not in measured
    ]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(corruptions)} x {len(severities)} cells are "
            f"missing, the first is {missing[0][0]}, severity {missing[0][1]}"
        )
    table = np.array([[measured[c, s] for s in severities] for c in corruptions])
    columns = {name: table[:, :, q] for q, name in enumerate(QUANTITIES)}
    return CorruptionSummary(corruptions, severities, **columns)


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


def _measure(where: str, logits: ArrayLike, labels: ArrayLike) -> np.ndarray:
    """`[4, R]` float64 of one cell."""
    logits, labels = np.asarray(logits), np.asarray(labels)
    shape = logits.shape
    if len(shape) != 3 or 0 in shape[:2]:
        raise ValueError(f"{where}: logits must be [R, N, C]; got shape {shape}")
    check_logits(logits=logits)
    if labels.shape != shape[1:2]:
        raise ValueError(
            f"{where}: labels must be [N] for logits [R, N, C]; got {labels.shape} and "
            f"{shape}"
        )
    check_labels(labels, logits[0])
    single = np.asarray(logits, np.float32)  # one compilation for every dtype
    values = np.asarray(_of_runs(single, labels), np.float64)
    stopped = np.isnan(single).any(axis=(1, 2))
    values[:, stopped] = np.nan  # arg max of nan would still be right now and then
    return values
