"""Rows that differ in one setting of their method become one curve."""

from xml.etree import ElementTree

import pytest

from churn_jax import reports
from churn_jax.reports.series_figures import (
    against_members,
    against_strength,
    series_of,
)
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import write_study

COLUMNS = ["accuracy", "prediction_difference", "hamming_prediction_difference"]


def study(folder, entries, **config):
    logits = three_methods()
    methods = dict.fromkeys(entries, logits["steady"])
    methods["baseline"] = logits["baseline"]
    path = write_study(
        folder, methods, LABELS, entries=entries, config={"columns": COLUMNS, **config}
    )
    return reports.collect(path)


def apart(strength, members=2, **entry):
    method = {"class": "AntiDistillation", "strength": strength, "members": members}
    label = f"AD, λ = {strength:g}, J = {members}"
    return {"label": label, "method": method, **entry}


def plain(members):
    deploy = "mean_probs" if members > 1 else "member"
    method = {"class": "ERM", "members": members, "deploy": deploy}
    return {"label": f"No AD, J = {members}", "method": method}


@pytest.fixture
def strengths(tmp_path):
    entries = {
        "baseline": plain(2),
        "c": apart(0.5),
        "a": apart(0.02),
        "b": apart(0.1),
        "zero": apart(0.0),
        "other_network": apart(0.3, model={"name": "mlp", "features": [8]}),
        "other_training": apart(0.4, train=[["seeds.init", "fixed"]]),
        "more": apart(0.1, members=4),
    }
    return study(tmp_path, entries)


def test_a_series_is_one_method_with_several_strengths(strengths):
    (found,) = series_of(strengths, "strength")
    assert found.values == (0.0, 0.02, 0.1, 0.5)
    assert [row.info.name for row in found.rows] == ["zero", "a", "b", "c"]
    assert found.label == "AD"
    assert series_of(strengths, "members") == ()  # two sizes are no curve


def drawn(monkeypatch, draw, report):
    from matplotlib.axes import Axes

    lines, levels = [], []
    errorbar, axhline = Axes.errorbar, Axes.axhline

    def keep(axes, x, y, yerr=None, **style):
        lines.append((style["label"], tuple(x), list(y), list(yerr)))
        return errorbar(axes, x, y, yerr=yerr, **style)

    def keep_level(axes, y, **style):
        levels.append((style["label"], float(y)))
        return axhline(axes, y, **style)

    monkeypatch.setattr(Axes, "errorbar", keep)
    monkeypatch.setattr(Axes, "axhline", keep_level)
    svg = draw(report)
    monkeypatch.undo()
    return svg, lines, levels


def test_the_figure_has_delta_and_accuracy_and_the_baseline(strengths, monkeypatch):
    svg, lines, levels = drawn(monkeypatch, against_strength, strengths)
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "Δ₁" in text and "Accuracy %" in text and "0.02" in text
    assert [line[1] for line in lines] == [(0.02, 0.1, 0.5)] * 2  # zero has no log
    base, steady = strengths.baseline.summary, strengths.rows[1].summary
    assert lines[0][2][1] == steady.prediction_difference.mean
    assert lines[0][3][1] == steady.prediction_difference.stderr
    assert lines[1][2][1] == pytest.approx(100 * steady.accuracy.mean)
    assert [level for _, level in levels] == [
        base.prediction_difference.mean,
        pytest.approx(100 * base.accuracy.mean),
    ]
    assert svg in reports.render(strengths)


def test_sizes_with_and_without_the_penalty_are_two_curves(tmp_path, monkeypatch):
    entries = {"baseline": plain(2), "one": plain(1), "four": plain(4)}
    entries |= {f"ad_{j}": apart(0.1, members=j) for j in (2, 4, 6)}
    entries["wide"] = {**plain(1), "model": {"name": "mlp", "features": [99, 99]}}
    report = study(tmp_path, entries)
    svg, lines, levels = drawn(monkeypatch, against_members, report)
    assert svg and not levels
    assert [line[:2] for line in lines] == [
        ("No AD", (1, 2, 4)),
        ("AD, λ = 0.1", (2, 4, 6)),
    ] * 2
    assert against_strength(report) == ""


def test_a_row_with_its_own_network_says_so(strengths):
    text = reports.markdown_table(strengths)
    assert "network mlp 8" in text


def test_a_study_without_such_rows_draws_nothing(report):
    assert against_strength(report) == "" and against_members(report) == ""
