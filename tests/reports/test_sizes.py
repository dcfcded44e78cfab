"""Rows of several training-set sizes become one curve per method."""

from xml.etree import ElementTree

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.reports import series_figures
from churn_jax.reports.series_figures import churn_against_training_size, size_series
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import write_study


def study(folder, rows):
    methods = {}
    for i, name in enumerate(rows):  # `i` examples more on which the runs agree
        methods[name] = three_methods()["baseline"]
        methods[name][:, 9 : 9 - i : -1] = methods[name][:1, 5:6]
    return reports.collect(write_study(folder, methods, LABELS, entries=rows))


def row(label, size):
    return {"label": label, "train_size": size}


@pytest.fixture
def report(tmp_path):
    rows = {
        "baseline": row("Baseline", None),  # the study's own 697
        "baseline_1000": row("Baseline, 1,000 examples", 1000),
        "baseline_500": row("Baseline, 500 examples", 500),
        "skl_500": row("Co-distill SKL (n = 500)", 500),
        "skl_1000": row("Co-distill SKL (n = 1,000)", 1000),
        "alone": row("Entropy, 500 examples", 500),
    }
    return study(tmp_path, rows)


def test_series_are_grouped_by_label_and_sorted_by_size(report):
    found = {one.label: one for one in size_series(report)}
    assert set(found) == {"Baseline", "Co-distill SKL"}
    assert found["Baseline"].values == (500, 697, 1000)
    names = [r.info.name for r in found["Baseline"].rows]
    assert names == ["baseline_500", "baseline", "baseline_1000"]


def test_the_figure_draws_means_with_jackknife_errors(report, monkeypatch):
    from matplotlib.axes import Axes

    drawn, original = [], Axes.errorbar

    def keep(axes, x, y, yerr=None, **style):
        if yerr is not None and np.ndim(
            x
        ):  # the figure of accuracy against churn has single points
            drawn.append((style["label"], tuple(x), list(y), list(yerr)))
        return original(axes, x, y, yerr=yerr, **style)

    monkeypatch.setattr(Axes, "errorbar", keep)
    svg = churn_against_training_size(report)
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "Churn %" in text and "Accuracy %" in text and "1,000" in text
    assert [d[0] for d in drawn] == ["Baseline", "Co-distill SKL"] * 2
    summary = report.rows[1].summary
    assert drawn[0][2][2] == pytest.approx(100 * summary.churn.mean)
    assert drawn[0][3][2] == pytest.approx(100 * summary.churn.stderr)
    assert drawn[2][3][2] == pytest.approx(100 * summary.accuracy.stderr)
    assert svg in reports.render(report)


def test_equal_labels_of_one_size_are_kept_apart(tmp_path):
    rows = {
        "baseline": row("Net 1", 500),
        "b": row("Net 2", 500),
        "c": row("Net 1", 1000),
    }
    found = size_series(study(tmp_path, rows))
    assert [one.label for one in found] == ["Net"]
    assert found[0].values == (500, 1000)


def test_one_size_draws_nothing(tmp_path):
    report = study(tmp_path, {"baseline": row("Baseline", None)})
    assert size_series(report) == () and churn_against_training_size(report) == ""


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Baseline, 1,000 examples", "Baseline"),
        ("Baseline, 50 training examples", "Baseline"),
        ("Baseline 500", "Baseline"),
        ("Baseline, 1,000 examples, EMA weights", "Baseline, EMA weights"),
        ("3 peers, 20 examples", "3 peers"),
        ("Co-distill SKL (n=250)", "Co-distill SKL"),
        ("2-Ensemble distil.", "2-Ensemble distil."),
    ],
)
def test_a_label_without_its_size(label, expected):
    assert series_figures._SIZE.sub("", label) == expected
