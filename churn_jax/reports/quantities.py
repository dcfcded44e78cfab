"""The numbers that tables and figures show: headings, units, which a study chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from churn_jax.reports.cells import equivalent, millions, number, of_set, percent

if TYPE_CHECKING:
    from churn_jax.reports.estimates import Estimate

__all__ = [
    "DEFAULT_COLUMNS",
    "QUANTITIES",
    "Quantity",
    "check_columns",
    "headline",
    "shown_columns",
]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One number of a `MethodSummary`.

    Attributes:
        name: its field.
        heading: of its column.
        write: the text of a cell.
        scale: 100 for what is shown in per cent.
        narrow: whether a narrow terminal shows it too.
        on_request: whether only studies that have such a column show it at all.
    """

    name: str
    heading: str
    write: Callable[[Estimate], str] = number
    narrow: bool = False
    on_request: bool = False

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is shown."""
        return 100.0 if self.write is percent else 1.0


QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("accuracy", "Accuracy %", percent, narrow=True),
        Quantity("churn", "Churn %", percent, narrow=True),
        # No share of anything: the paper's number, times 100, may exceed 100.
        Quantity("surrogate_churn", "SChurn ×100", percent),
        Quantity("churn_correct", "Churn correct %", percent),
        Quantity("churn_incorrect", "Churn incorrect %", percent),
        Quantity("ece", "ECE %", percent),
        Quantity("nll", "NLL"),
        Quantity("brier", "Brier"),
        Quantity("confidence", "Confidence"),
        Quantity("entropy", "Entropy, nats"),
        Quantity("l1", "L1"),
        Quantity("nfr", "NFR %", percent),
        Quantity("prediction_difference", "Δ₁", of_set, narrow=True),
        Quantity("prediction_difference_2", "Δ₂", of_set),
        Quantity("relative_prediction_difference", "Δʳ", of_set),
        Quantity("label_prediction_difference", "Δᴸ", of_set),
        Quantity("hamming_prediction_difference", "Δᴴ", of_set),
        Quantity("calibrated_nll", "Cal. NLL", narrow=True, on_request=True),
        Quantity("calibrated_brier", "Cal. Brier", on_request=True),
        Quantity("calibrated_ece", "Cal. ECE %", percent, on_request=True),
        Quantity("temperature", "Temperature", on_request=True),
        Quantity("dee", "DEE", equivalent, narrow=True, on_request=True),
        Quantity("member_kl", "KL of members", on_request=True),
        Quantity("member_disagreement", "Churn of members %", percent, on_request=True),
        Quantity("parameters", "Parameters", millions, on_request=True),
    )
}
"""By name, in the order of the CSV."""

DEFAULT_COLUMNS = (
    *("accuracy", "churn", "surrogate_churn", "churn_correct", "churn_incorrect"),
    *("ece", "nll"),
)
"""Those of Table 2 of the first paper."""


def headline(columns: tuple[str, ...]) -> Quantity:
    """What a study is about, and its rows are compared in, beside accuracy.

    Delta_1 where it is among the columns, or else the calibrated NLL; churn otherwise.

    Example:
        >>> headline(DEFAULT_COLUMNS).name
        'churn'
        >>> headline(("accuracy", "prediction_difference")).name
        'prediction_difference'
        >>> headline(("accuracy", "calibrated_nll", "churn")).name
        'calibrated_nll'
    """
    known = ("prediction_difference", "calibrated_nll")
    return QUANTITIES[next((name for name in known if name in columns), "churn")]


def shown_columns(names: tuple[str, ...]) -> tuple[Quantity, ...]:
    """The columns that a study names, those that are known here.

    Example:
        >>> [q.heading for q in shown_columns(("nll", "unknown"))]
        ['NLL']
    """
    return tuple(QUANTITIES[name] for name in names if name in QUANTITIES)


def check_columns(columns: tuple[str, ...]) -> None:
    """Refuses names that are no quantity.

    Raises:
        ValueError: with the names that there are.
    """
    for name in columns:
        if name not in QUANTITIES:
            raise ValueError(
                f"no column {name!r} can be shown; known: {', '.join(QUANTITIES)}"
            )
