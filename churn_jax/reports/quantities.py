"""The numbers that tables and figures show: headings, units, which a study chooses."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from churn_jax.reports.cells import number, of_set, percent
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
    """

    name: str
    heading: str
    write: Callable[[Estimate], str] = number
    narrow: bool = False

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is shown."""
        return 100.0 if self.write is percent else 1.0


QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("accuracy", "Accuracy %", percent, narrow=True),
        Quantity("churn", "Churn %", percent, narrow=True),
        Quantity("surrogate_churn", "SChurn %", percent),
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
    )
}
"""By name, in the order of the CSV."""

DEFAULT_COLUMNS = (
    *("accuracy", "churn", "surrogate_churn", "churn_correct", "churn_incorrect"),
    *("ece", "nll"),
)
"""Those of Table 2 of the first paper."""


def headline(columns: tuple[str, ...]) -> Quantity:
    """What a study is about: Delta_1 where it is among the columns, churn otherwise.

    It is what rows are compared in, beside accuracy.

    Example:
        >>> headline(DEFAULT_COLUMNS).name
        'churn'
        >>> headline(("accuracy", "prediction_difference")).name
        'prediction_difference'
    """
    known = "prediction_difference"
    return QUANTITIES[known if known in columns else "churn"]


def shown_columns(config: Any) -> tuple[Quantity, ...]:
    """The columns that a recorded configuration names, those that are known here.

    Args:
        config: of `study.json` or `sweep.json`; empty columns for anything else.

    Example:
        >>> [q.heading for q in shown_columns({"columns": ["nll", "unknown"]})]
        ['NLL']
    """
    found = config.get("columns") if isinstance(config, Mapping) else None
    names = found if isinstance(found, list) else []
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
