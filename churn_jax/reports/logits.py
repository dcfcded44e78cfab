"""The report of logits that are given as arrays, whatever computed them."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import write_file
from churn_compare.comparison import compare_pair
from churn_compare.display import CompareResult
from churn_compare.documents import html_page, plain_text, table_files, write_files
from churn_compare.example_ids import as_labels
from churn_compare.pair import Table
from churn_compare.reading.contents import as_array
from churn_compare.reading.join import join
from churn_compare.store import Predictions, PredictionsError
from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import TrainConfig
from churn_jax.methods import ERM
from churn_jax.reports.artefacts import Study
from churn_jax.reports.estimates import compare_with_baseline, with_changes
from churn_jax.reports.quantities import (
    CALIBRATED,
    DEFAULT_COLUMNS,
    Quantity,
    column_name,
    headline,
    measured_columns,
    recorded_columns,
    shown_columns,
)
from churn_jax.reports.report import Report, Row
from churn_jax.reports.study_report import (
    figures,
    html_table,
    in_terminal,
    study_document,
    table,
)
from churn_jax.reports.summary import summarize, with_columns

_OF_STUDIES = ("dee", "member_kl", "member_disagreement", "parameters")
_WITH_VALIDATION = ("calibrated_ece", "temperature")
_OTHERS = "; churn_jax.compare takes predicted classes"


def report(
    logits: Mapping[str, Any],
    labels: Any,
    *,
    ids: Any = None,
    class_names: Sequence[str] | None = None,
    baseline: str | None = None,
    validation: tuple[Mapping[str, Any], Any] | None = None,
    columns: Sequence[str | Quantity] | None = None,
    title: str | None = None,
    out: str | os.PathLike | None = "runs/report",
) -> "LogitsReport":
    """The full report of models that are known by their logits alone.

    Each row is one model, in one run or in several independent ones: accuracy, churn,
    surrogate churn, NLL and ECE with their errors over runs, figures, which inputs
    churn, and what changes from the baseline to every other row, with intervals over
    examples (as `churn_jax.compare` finds it, also of single runs).

    Args:
        logits: name of the row to logits `[N, C]` of one run or `[R, N, C]` of R runs,
            of NumPy, JAX, PyTorch or as lists. Run r of every row is compared with run
            r of the baseline, so give runs of equal seeds equal places.
        labels: `[N]` class numbers, or names where `class_names` are given.
        ids: `[N]` integers or strings; 0 to N - 1 by default.
        class_names: `C` names for tables and figures.
        baseline: the row that others are compared with; the first by default.
        validation: logits of the same rows and runs on other examples, and the labels
            of these, which temperatures are fitted on.
        columns: columns of the table, names of `reports.QUANTITIES` or what
            `reports.column` made; by default accuracy, churn, SChurn, churn on right
            and on wrong examples, ECE and NLL, as far as there are runs enough.
        title: title of the page.
        out: the folder for `report.html`, `table.md` and `table.csv`, or the path of
            the page alone if it ends in `.html`; None writes nothing.

    Returns:
        A `LogitsReport`, which a notebook shows as a table.

    Raises:
        ValueError: logits, labels or an option do not fit; the message says which.
        OSError: a file could not be written.

    Example:
        >>> import churn_jax
        >>> old = 9.0 * np.eye(2)[[0, 1, 1, 0]]
        >>> new = 9.0 * np.eye(2)[[0, 1, 0, 0]]
        >>> found = churn_jax.report({"old": old, "new": new}, [0, 1, 1, 1], out=None)
        >>> found.comparisons["new"]["churn"].value
        0.25
    """
    names = None if class_names is None else tuple(map(str, class_names))
    rows = _predictions(logits, labels, ids, names)
    first = next(iter(rows)) if baseline is None else baseline
    if first not in rows:
        raise ValueError(
            f"baseline {first!r} is not a row; there are {', '.join(rows)}"
            f"{did_you_mean(first, rows)}"
        )
    held_out = _validation(validation, rows)
    shown = _columns(columns, held_out)
    measured, summaries = measured_columns(shown), {}
    for name, predictions in rows.items():
        try:
            found = summarize(predictions, validation=held_out.get(name))
        except PredictionsError as error:
            raise PredictionsError(f"{name}: {error}") from error
        summaries[name], wrong = with_columns(found, predictions, measured)
        for error in wrong:
            raise ValueError(f"{name}: {error}") from error
    summaries = with_changes(summaries, first, shown)
    if columns is None:  # what no row has runs enough for is left out
        shown = tuple(
            name
            for name in shown
            if any(np.isfinite(getattr(s, name).mean) for s in summaries.values())
        )
    of_rows = " → ".join(rows) if len(rows) == 2 else f"Report of {', '.join(rows)}"
    # Of a study that nobody ran; its settings are in no report without a record.
    specs = tuple(MethodSpec(name, name, ERM()) for name in rows)
    parts = DataConfig(), ModelConfig(), TrainConfig(), specs
    config = StudyConfig("", title or of_rows, *parts, first, columns=shown)
    compared, about = compare_with_baseline(summaries, first), headline(shown).name
    shown_rows = []
    for spec, summary in zip(specs, summaries.values()):
        info = RowRecord(spec.name, spec.name, spec, trained=False)
        changes = compared.get(spec.name, {})
        shown_rows.append(Row(info, summary, changes, headline=about))
    found = LogitsReport(
        Study(Path(), config, tuple(row.info for row in shown_rows)),
        tuple(shown_rows),
        ids=rows[first].ids,
        labels=rows[first].labels,
        comparisons=_comparisons(rows, first, names),
        class_names=names,
    )
    if out is not None:
        found.write(out)
    return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogitsReport(Report):
    """The report of logits; a notebook shows its table."""

    @functools.cached_property
    def table(self) -> Any:
        """The table as numbers, see `reports.table`."""
        return table(self)

    @functools.cached_property
    def figures(self) -> dict[str, Any]:
        """The figures of the page by name, see `reports.figures`."""
        return figures(self)

    @property
    def path(self) -> Path | None:
        """The page that was written last."""
        return self.files.get("report.html")

    def write(self, out: str | os.PathLike = "runs/report") -> Path:
        """Writes the page, and the tables next to it; returns the path of the page.

        Args:
            out: the folder, or the path of the page alone if it ends in `.html`.

        Raises:
            OSError: a file could not be written; an earlier one is left as it was.
        """
        document, path = study_document(self), Path(out)
        if path.suffix == ".html":
            files = {"report.html": write_file(path, html_page(document))}
        else:
            files = write_files(path, table_files(document))
        self.files.clear()
        self.files.update(files)
        return files["report.html"]

    def __repr__(self) -> str:
        names = ", ".join(row.info.name for row in self.rows)
        where = f"; {self.path}" if self.path else ""
        return f"<LogitsReport of {names}: {len(self.labels):,} examples{where}>"

    def __str__(self) -> str:
        """The table and the sentences as a terminal shows them."""
        return plain_text(in_terminal(self))

    def _repr_html_(self) -> str:
        return html_table(self)


def _predictions(
    logits: Mapping[str, Any],
    labels: Any,
    ids: Any,
    class_names: tuple[str, ...] | None,
) -> dict[str, Predictions]:
    """The rows, checked."""
    if not isinstance(logits, Mapping) or not logits:
        raise ValueError(
            'logits must be a mapping of names to arrays, as in {"old": logits, "new": '
            f"logits}}; got {type(logits).__name__}"
        )
    numbers = _labels(labels, class_names)
    ids = np.arange(len(numbers)) if ids is None else as_array(ids, "ids")
    found = {}
    for name, given in logits.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a row must be a text; got {name!r}")
        values = as_array(given, name)
        hint = _OTHERS if values.ndim == 1 else ""
        if values.ndim not in (2, 3):
            raise ValueError(
                f"{name} must be logits [N, C] of one run or [R, N, C] of several; got "
                f"shape {values.shape}{hint}"
            )
        values = values if values.ndim == 3 else values[None]
        some = values[0, :1000].astype(np.float64)
        if (some >= 0).all() and np.allclose(some.sum(axis=-1), 1, atol=1e-3):
            raise ValueError(
                f"{name} looks like probabilities (rows are at least 0 and sum to "
                "one); give their logarithms, np.log(p), which are logits, too"
            )
        if values.shape[1] != len(numbers):
            hint = _OTHERS if values.dtype.kind in "iub" else ""
            raise ValueError(
                f"{name} has logits of {values.shape[1]} examples (shape "
                f"{tuple(np.shape(given))}), and there are {len(numbers)} labels{hint}"
            )
        try:
            found[name] = Predictions(ids, numbers, values)
        except PredictionsError as error:
            raise PredictionsError(f"{name}: {error}") from error
        if class_names is not None and len(class_names) != values.shape[2]:
            raise ValueError(
                f"class_names has {len(class_names)} names, and {name} has "
                f"{values.shape[2]} classes"
            )
    return found


def _labels(given: Any, class_names: tuple[str, ...] | None) -> np.ndarray:
    labels = as_array(given, "labels")
    if labels.dtype.kind not in "USO":
        return as_labels(labels)
    if class_names is None:
        raise ValueError(
            "labels are names; give class_names, in the order of the logits' classes"
        )
    numbers = {name: i for i, name in enumerate(class_names)}
    unknown = sorted({str(one) for one in labels.flat} - {*numbers})
    if unknown:
        raise ValueError(
            f"labels name classes that class_names lacks: {', '.join(unknown[:3])}"
            f"{did_you_mean(unknown[0], numbers)}"
        )
    found = np.array([numbers[str(one)] for one in labels.flat])
    return as_labels(found.reshape(labels.shape))


def _validation(
    given: tuple[Mapping[str, Any], Any] | None, rows: Mapping[str, Predictions]
) -> dict[str, Predictions]:
    if given is None:
        return {}
    pair = isinstance(given, tuple | list) and len(given) == 2
    if not pair or not isinstance(given[0], Mapping) or set(given[0]) != set(rows):
        raise ValueError(
            "validation must be the pair (logits, labels), with logits a mapping of "
            f"{', '.join(rows)}"
        )
    try:
        return _predictions(*given, None, None)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from error


def _columns(
    given: Sequence[str | Quantity] | None, validation: Mapping[str, Predictions]
) -> tuple[str, ...]:
    if given is None:
        return (*DEFAULT_COLUMNS, *(_WITH_VALIDATION if validation else ()))
    if isinstance(given, str | Quantity):
        given = (given,)
    names = tuple(map(column_name, given))
    recorded_columns(names)  # refuses unknown ones
    names = tuple(quantity.name for quantity in shown_columns(names))
    for lacking in names:
        if lacking in _OF_STUDIES:
            raise ValueError(
                f"column {lacking} needs what only a study records; leave it out"
            )
        if lacking in CALIBRATED and not validation:
            raise ValueError(
                f"column {lacking} needs validation=(logits, labels), on which "
                "temperatures are fitted"
            )
    return names


def _comparisons(
    rows: Mapping[str, Predictions], baseline: str, names: tuple[str, ...] | None
) -> dict[str, CompareResult]:
    """Every other row compared with the baseline."""
    sides = {
        name: Table(
            name,
            "logits",
            given.logits,
            class_names=names,
            ids=given.ids,
            labels=given.labels,
            label_names=names,
            runs=tuple(range(len(given.logits))),
        )
        for name, given in rows.items()
    }
    alike = len({side.classes for side in sides.values()}) == 1
    class_map, base = None if alike else "identity", sides.pop(baseline)
    return {
        name: compare_pair(join(base, side, class_map=class_map))
        for name, side in sides.items()
    }
