"""Comparison of the runs of a study: `table.md`, `table.csv` and `report.html`.

Studies of model updates have `updates.md` and `updates.csv`, too. `write(run_dir)` does
everything; `print_report` shows the result in a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

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

__getattr__, __dir__, __all__ = load_on_use(__name__)
