"""Comparison of the runs of a study: `table.md`, `table.csv` and `report.html`.

Studies of model updates have `updates.md` and `updates.csv`, too. `write(run_dir)` does
everything; `print_report` shows the result in a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.reports.artefacts import ReportError, predictions
    from churn_jax.reports.estimates import Estimate
    from churn_jax.reports.quantities import DEFAULT_COLUMNS, QUANTITIES, column
    from churn_jax.reports.report import Report, Row
    from churn_jax.reports.study_report import (
        collect,
        figures,
        print_report,
        table,
        write,
    )
    from churn_jax.reports.summary import MethodSummary, summarize


__all__ = [
    "DEFAULT_COLUMNS",
    "QUANTITIES",
    "Estimate",
    "MethodSummary",
    "Report",
    "ReportError",
    "Row",
    "collect",
    "column",
    "figures",
    "predictions",
    "print_report",
    "summarize",
    "table",
    "write",
]

_FILES = ("artefacts", "estimates", "quantities", "report", "study_report", "summary")

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
