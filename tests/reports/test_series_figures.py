"""Rows that differ in one setting of their method, or in size, become one curve."""

from xml.etree import ElementTree

import pytest

from churn_jax import reports
from churn_jax.reports import series_figures
from churn_jax.reports.series_figures import (
    against_members,
    against_strength,
    churn_against_training_size,
    series_of,
    size_series,
)
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import write_study

COLUMNS = ["accuracy", "prediction_difference", "hamming_prediction_difference"]


def study(folder, entries):
    """The baseline and rows that all predict the same, a little more each time."""
    methods = dict.fromkeys(entries, three_methods()["steady"])
    methods["baseline"] = three_methods()["baseline"]
    config = {"columns": COLUMNS}
    folder = write_study(folder, methods, LABELS, entries=entries, config=config)
    return reports.collect(folder)


def penalized(strength, members=2, **entry):
    method = {"class": "AntiDistillation", "strength": strength, "members": members}
    return {
        "label": f"AD, λ = {strength:g}, J = {members}",
        "method": method,
        **entry,
    }


def plain(members):
    deploy = "mean_probs" if members > 1 else "member"
    method = {"class": "ERM", "members": members, "deploy": deploy}
    return {"label": f"No AD, J = {members}", "method": method}


@pytest.fixture(scope="module")
def strengths(tmp_path_factory):
    entries = {
        "baseline": plain(2),
        "c": penalized(0.5),
        "a": penalized(0.02),
        "b": penalized(0.1),
        "zero": penalized(0.0),
        "other_network": penalized(0.3, model={"name": "mlp", "features": [8]}),
        "other_training": penalized(0.4, train=[["seeds.init", "fixed"]]),
        "more": penalized(0.1, members=4),
    }
    return study(tmp_path_factory.mktemp("strengths"), entries)


def test_a_series_is_one_method_with_several_strengths(strengths):
    (found,) = series_of(strengths, "strength")
    assert found.values == (0.0, 0.02, 0.1, 0.5)
    assert [row.info.name for row in found.rows] == ["zero", "a", "b", "c"]
    assert found.label == "AD"
    assert series_of(strengths, "members") == ()  # two sizes are no curve
    assert "network mlp 8" in reports.markdown_table(strengths)


def test_the_figure_has_delta_and_accuracy_and_the_baseline(strengths, drawn):
    svg = against_strength(strengths)
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert "Δ₁" in text and "Accuracy %" in text and "0.02" in text
    lines = [(x, y, options["yerr"]) for (x, y), options in drawn["errorbar"]]
    assert [x for x, *_ in lines] == [(0.02, 0.1, 0.5)] * 2  # zero has no logarithm
    base, steady = strengths.baseline.summary, strengths.rows[1].summary
    delta = steady.prediction_difference
    assert (lines[0][1][1], lines[0][2][1]) == (delta.mean, delta.stderr)
    assert lines[1][1][1] == pytest.approx(100 * steady.accuracy.mean)
    assert [y for (y,), _ in drawn["axhline"]] == [
        base.prediction_difference.mean,
        pytest.approx(100 * base.accuracy.mean),
    ]


def test_sizes_with_and_without_the_penalty_are_two_curves(tmp_path, drawn):
    entries = {"baseline": plain(2), "one": plain(1), "four": plain(4)}
    entries |= {f"ad_{j}": penalized(0.1, members=j) for j in (2, 4, 6)}
    entries["wide"] = {**plain(1), "model": {"name": "mlp", "features": [99, 99]}}
    report = study(tmp_path, entries)
    assert against_members(report) and not drawn["axhline"]
    told = [(options["label"], x) for (x, _), options in drawn["errorbar"]]
    assert told == [("No AD", (1, 2, 4)), ("AD, λ = 0.1", (2, 4, 6))] * 2
    assert against_strength(report) == ""


def sized(label, size):
    return {"label": label, "train_size": size}


def test_series_are_grouped_by_label_and_sorted_by_size(tmp_path, drawn):
    entries = {
        "baseline": sized("Baseline", None),  # the study's own 697
        "baseline_1000": sized("Baseline, 1,000 examples", 1000),
        "baseline_500": sized("Baseline, 500 examples", 500),
        "skl_500": sized("Net (n = 500)", 500),
        "skl_1000": sized("Net (n = 1,000)", 1000),
        "again": sized("Net, 500 examples", 500),  # of a size that is there
        "alone": sized("Entropy, 500 examples", 500),
    }
    report = study(tmp_path, entries)
    found = {one.label: one for one in size_series(report)}
    assert {k: one.values for k, one in found.items()} == {
        "Baseline": (500, 697, 1000),
        "Net": (500, 1000),
    }
    names = [r.info.name for r in found["Baseline"].rows]
    assert names == ["baseline_500", "baseline", "baseline_1000"]
    text = "".join(
        ElementTree.fromstring(churn_against_training_size(report)).itertext()
    )
    assert "Churn %" in text and "Accuracy %" in text and "1,000" in text
    calls = [
        (options["label"], y, options["yerr"]) for (_, y), options in drawn["errorbar"]
    ]
    assert [label for label, *_ in calls] == ["Baseline", "Net"] * 2
    churn = report.rows[0].summary.churn
    assert calls[0][1][1] == pytest.approx(100 * churn.mean)
    assert calls[0][2][1] == pytest.approx(100 * churn.stderr)


def test_a_study_without_such_rows_draws_nothing(report):
    draws = (against_strength, against_members, churn_against_training_size)
    assert [draw(report) for draw in draws] == [""] * 3 and size_series(report) == ()


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
