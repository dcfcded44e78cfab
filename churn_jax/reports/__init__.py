"""Comparison of the runs of a study: `table.md`, `table.csv` and `report.html`.

Studies of model updates have `updates.md` and `updates.csv`, too. `write(run_dir)` does
everything; `print_report` shows the result in a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use
from churn_jax.predictions import replace_file

if TYPE_CHECKING:
    from churn_jax.reports.artefacts import ReportError
    from churn_jax.reports.compare import Comparison, compare_with_baseline
    from churn_jax.reports.estimates import Estimate
    from churn_jax.reports.html import render, write_report
    from churn_jax.reports.quantities import QUANTITIES, column
    from churn_jax.reports.report import Missing, Report, Row, collect
    from churn_jax.reports.stream import StreamReport, collect_stream, is_stream
    from churn_jax.reports.stream_report import print_stream, write_stream
    from churn_jax.reports.summary import MethodSummary, summarize
    from churn_jax.reports.sweep import SweepResult, collect_sweep
    from churn_jax.reports.sweep_report import print_sweep, write_sweep
    from churn_jax.reports.tables import csv_table, markdown_table, print_report


__all__ = [
    "QUANTITIES",
    "Comparison",
    "Estimate",
    "MethodSummary",
    "Missing",
    "Report",
    "ReportError",
    "Row",
    "StreamReport",
    "SweepResult",
    "collect",
    "collect_stream",
    "collect_sweep",
    "column",
    "compare_with_baseline",
    "csv_table",
    "is_stream",
    "markdown_table",
    "print_report",
    "print_stream",
    "print_sweep",
    "render",
    "summarize",
    "write",
    "write_report",
    "write_stream",
    "write_sweep",
]

_FILES = (
    "artefacts",
    "compare",
    "estimates",
    "html",
    "quantities",
    "report",
    "stream",
    "stream_report",
    "summary",
    "sweep",
    "sweep_report",
    "tables",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)


def write(run_dir) -> Report:
    """Write `table.md`, `table.csv` and `report.html` into a run folder.

    A study of model updates gets `updates.md` and `updates.csv`, too.
    Works while a study is unfinished: methods without usable predictions are named
    with the reason. Every file is replaced whole or not at all.

    Args:
        run_dir: the folder of a study.

    Returns:
        The `Report`; its `files` map names to the paths written.

    Raises:
        ReportError: there is no usable `study.json`, no row can be reported and one is
            damaged, or an update names a file of other examples.
        OSError: a file could not be written; an earlier one is left as it was.

    Example:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from churn_jax.predictions import Predictions, save_predictions
        >>> logits = 9.0 * np.eye(2)[[[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]]]
        >>> runs = Predictions(np.arange(4), np.array([0, 1, 1, 1]), logits)
        >>> with tempfile.TemporaryDirectory() as run:
        ...     facts = {"methods": [{"name": "baseline"}]}
        ...     _ = (Path(run) / "study.json").write_text(json.dumps(facts))
        ...     file = Path(run) / "methods" / "baseline" / "predictions.npz"
        ...     _ = save_predictions(file, runs)
        ...     report = write(run)
        >>> sorted(report.files)
        ['report.html', 'table.csv', 'table.md']
        >>> round(report.rows[0].summary.churn.mean, 3)
        0.5
    """
    from churn_jax.reports.html import render
    from churn_jax.reports.report import check_readable, collect
    from churn_jax.reports.tables import csv_table, markdown_table
    from churn_jax.reports.updates_report import updates_csv, updates_markdown

    report = collect(run_dir)
    check_readable(report)
    texts = {
        "table.md": markdown_table(report),
        "table.csv": csv_table(report),
        "report.html": render(report),
    }
    if report.updates is not None:
        texts["updates.md"] = updates_markdown(report)
        texts["updates.csv"] = updates_csv(report)
    for name, text in texts.items():
        path = report.study.folder / name
        with replace_file(path) as file:
            file.write(text.encode())
        report.files[name] = path
    return report
