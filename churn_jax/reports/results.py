"""A finished folder in Python: its table, its figures and its predictions."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from churn_compare.documents.plotting import page_figures
from churn_compare.store import Predictions, is_stored, load_predictions
from churn_jax.reports.artefacts import read_study
from churn_jax.reports.report import Report
from churn_jax.reports.study_report import collect, study_document, table_fields

Source = str | os.PathLike | Report


def table(source: Source) -> Any:
    """The table of a study or a sweep, as numbers.

    One row per method, with the numbers that the report shows, shares as fractions. A
    quantity has its mean in a column of its name and the standard error in another, as
    in `churn`, `churn_stderr`; differences from the baseline are in `delta_churn`,
    `delta_churn_stderr` and `delta_churn_p_holm`. A sweep has a row per point, on the
    test split, with what was chosen and `validation_churn` and so on in addition.

    Args:
        source: the folder, or what `collect` or a function that writes a report
            returned.

    Returns:
        A `pandas.DataFrame` whose index is the name of the row, where pandas is
        installed; else a list of dicts. Absent numbers are NaN.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    fields = table_fields(report)
    rows = [
        {f: math.nan if row.get(f) is None else row[f] for f in fields}
        for row in study_document(report).data.rows
    ]
    try:
        import pandas  # pyrefly: ignore[missing-import]
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(fields)).set_index(fields[0])


def figures(source: Source) -> dict[str, Any]:
    """The figures of the page, as Matplotlib objects but for those of comparisons.

    Args:
        source: as in `table`.

    Returns:
        Name to `matplotlib.figure.Figure`, in the order of the page. They are not
        registered with pyplot, so they take no memory once they are out of use; a
        notebook shows them, and `figure.savefig(path)` writes them. Figures of
        comparisons are SVG, a string that a notebook shows, too.

    Raises:
        ReportError: the folder has no usable record.
    """
    report = source if isinstance(source, Report) else collect(source)
    return page_figures(study_document(report).blocks)


class StoredLogits(Mapping[str, np.ndarray]):
    """Logits `[R, N, C]` of every finished row, read from its file when it is used.

    Logits of a run that stopped may be NaN. Without a file there is a `KeyError`, with
    one that is damaged or too large to be read whole a `PredictionsError`.

    Attributes:
        files: name of the row to the file that holds, or stands for, its predictions.
    """

    def __init__(self, files: Mapping[str, Path]):
        self.files = {name: path for name, path in files.items() if is_stored(path)}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read(name).logits

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self) or 'no row'}>"

    @property
    def ids(self) -> np.ndarray:
        """`[N]` of the examples."""
        return self._read(next(iter(self))).ids

    @property
    def labels(self) -> np.ndarray:
        """`[N]` class numbers of the examples."""
        return self._read(next(iter(self))).labels

    def _read(self, name: str) -> Predictions:
        if name not in self.files:
            known = ", ".join(self.files) or "none"
            raise KeyError(f"no predictions of {name!r}; there are: {known}")
        return load_predictions(self.files[name], whole=True)


def predictions(
    folder: str | os.PathLike, split: Literal["test", "validation"] = "test"
) -> StoredLogits:
    """The predictions that a study keeps, a row at a time.

    Args:
        folder: folder of the study.
        split: on which split.

    Returns:
        A mapping of names of rows to logits, with `ids` and `labels`.

    Raises:
        ReportError: the folder has no usable record.
        ValueError: there is no such split.
    """
    study = read_study(folder)
    if split not in study.files:
        raise ValueError(f"split must be test or validation; got {split!r}")
    files = {row.name: study.file(row.name, split) for row in study.methods}
    return StoredLogits(files)
