"""Table, figures and predictions of a folder as Python objects."""

import csv
import io
import sys

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.reports.study_report import html_table
from tests.reports.conftest import LABELS, three_methods, write_three
from tests.reports.fake_study import csv_table


@pytest.fixture
def no_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_the_table_holds_what_is_shown_as_in_the_csv(report, no_pandas):
    table = reports.table(report)
    written = list(csv.DictReader(io.StringIO(csv_table(report))))
    shown = [quantity.name for quantity in report.columns]
    deltas = [f"delta_{name}" for name in ("churn", "accuracy")]
    errors = [f"{name}_stderr" for name in (*shown, *deltas)]
    assert {*shown, *errors, *deltas, "delta_churn_p_holm"} <= {*table[0]}
    assert [row["method"] for row in table] == ["baseline", "steady", "halting"]
    for ours, line in zip(table, written, strict=True):
        assert ours["label"] == line["label"] and ours["runs"] == int(line["runs"])
        for name in (*shown, *errors, *deltas):
            expected = float(line[name]) if line[name] else np.nan
            np.testing.assert_equal(ours[name], expected)


def test_the_table_is_a_data_frame_where_pandas_is_installed(report):
    pandas = pytest.importorskip("pandas")
    table = reports.table(report.study.folder)
    assert isinstance(table, pandas.DataFrame)
    assert table.loc["steady", "churn"] == 0.0 and table.index.name == "method"
    assert np.isnan(table.loc["baseline", "delta_churn"])


def test_predictions_are_read_row_by_row(tmp_path):
    folder = write_three(tmp_path)
    (folder / "methods" / "steady" / "predictions.npz").unlink()
    stored = reports.predictions(folder)
    assert list(stored) == ["baseline", "halting"] and "steady" not in stored
    np.testing.assert_array_equal(stored["baseline"], three_methods()["baseline"])
    np.testing.assert_array_equal(stored.labels, LABELS)
    np.testing.assert_array_equal(stored.ids, np.arange(10))
    with pytest.raises(KeyError, match="no predictions of 'steady'; there are: base"):
        stored["steady"]
    assert list(reports.predictions(folder, "validation")) == []
    with pytest.raises(ValueError, match="split must be test or validation"):
        reports.predictions(folder, "train")


def test_a_notebook_shows_the_table(report):
    shown = html_table(report)
    assert "Steady" in shown and "Churn %" in shown and "run 2 stopped" in shown
