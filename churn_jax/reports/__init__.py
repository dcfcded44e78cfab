"""Comparison of the runs of a study: `table.md`, `table.csv` and `report.html`.

Studies of model updates have `updates.md` and `updates.csv`, too. `write(run_dir)` does
everything; `print_report` shows the result in a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.reports.artefacts import ReportError
    from churn_jax.reports.compare import Comparison, compare_with_baseline
    from churn_jax.reports.estimates import Estimate
    from churn_jax.reports.quantities import DEFAULT_COLUMNS, QUANTITIES, column
    from churn_jax.reports.report import Missing, Report, Row, collect
    from churn_jax.reports.results import StoredLogits, figures, predictions, table
    from churn_jax.reports.study_report import (
        csv_table,
        html_table,
        markdown_table,
        print_report,
        render,
        write,
        write_report,
    )
    from churn_jax.reports.summary import MethodSummary, summarize
    from churn_jax.reports.sweep import SweepResult, collect_sweep, write_sweep


__all__ = [
    "DEFAULT_COLUMNS",
    "QUANTITIES",
    "Comparison",
    "Estimate",
    "MethodSummary",
    "Missing",
    "Report",
    "ReportError",
    "Row",
    "StoredLogits",
    "SweepResult",
    "collect",
    "collect_sweep",
    "column",
    "compare_with_baseline",
    "csv_table",
    "figures",
    "html_table",
    "markdown_table",
    "predictions",
    "print_report",
    "render",
    "summarize",
    "table",
    "write",
    "write_report",
    "write_sweep",
]

_FILES = (
    "artefacts",
    "compare",
    "estimates",
    "quantities",
    "report",
    "study_report",
    "summary",
    "sweep",
    "results",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
