"""What the figures of a page show: points, lines, curves of one setting, the map."""

import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_compare.documents.plotting import INK, LONGEST_LABEL
from churn_jax import reports
from churn_jax.reports.study_figures import first_figure, series_figures, series_of
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import markdown_table, write_study

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
    label = f"AD, λ = {strength:g}, J = {members}"
    return {"label": label, "method": method, **entry}


def plain(members, label="No AD", **entry):
    deploy = "mean_probs" if members > 1 else "member"
    method = {"class": "ERM", "members": members, "deploy": deploy}
    return {"label": f"{label}, J = {members}", "method": method} | entry


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


def svgs(report):
    """Those by size, by strength and by members; empty text for none."""
    return [figure.draw().svg for figure in series_figures(report)]


def test_a_series_is_one_method_with_several_strengths(strengths):
    (found,) = series_of(strengths, "strength")
    assert found.values == (0.0, 0.02, 0.1, 0.5)
    assert [row.info.name for row in found.rows] == ["zero", "a", "b", "c"]
    assert found.label == "AD"
    assert series_of(strengths, "members") == ()  # two sizes are not a curve
    assert "network mlp 8" in markdown_table(strengths)


def test_the_figure_has_delta_and_accuracy_and_the_baseline(strengths, drawn):
    _, svg, _ = svgs(strengths)
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
    entries["wide"] = plain(1, model={"name": "mlp", "features": [99, 99]})
    _, strength, members = svgs(study(tmp_path, entries))
    assert members and not strength and not drawn["axhline"]
    told = [(options["label"], x) for (x, _), options in drawn["errorbar"]]
    assert told == [("No AD", (1, 2, 4)), ("AD, λ = 0.1", (2, 4, 6))] * 2


def test_series_by_size_are_of_one_method_whatever_its_length(tmp_path, drawn):
    def sized(label, size, **entry):
        return plain(2) | {"label": label, "train_size": size} | entry

    penalty = penalized(0.1)["method"]
    entries = {
        "baseline": sized("Baseline", None),  # the study's own 697
        "b1000": sized("Baseline, 1,000 examples", 1000, train=[["epochs", 9]]),
        "b500": sized("Baseline, 500 examples", 500),
        "again": sized("Baseline again", 500),  # of a size that is there
        "ad500": sized("Net (n = 500)", 500, method=penalty),
        "ad1000": sized("Net (n = 1,000)", 1000, method=penalty),
        "alone": sized("Entropy, 500 examples", 500, model={"name": "lenet5"}),
    }
    report = study(tmp_path, entries)
    found = {one.label: one for one in series_of(report, "train_size", 2)}
    assert {k: one.values for k, one in found.items()} == {
        "Baseline": (500, 697, 1000),
        "Net": (500, 1000),
    }
    names = [row.info.name for row in found["Baseline"].rows]
    assert names == ["b500", "baseline", "b1000"]
    text = "".join(ElementTree.fromstring(svgs(report)[0]).itertext())
    assert "Churn %" in text and "Accuracy %" in text and "1,000" in text
    calls = [(o["label"], y, o["yerr"]) for (_, y), o in drawn["errorbar"]]
    assert [label for label, *_ in calls] == ["Baseline", "Net"] * 2
    churn = report.rows[0].summary.churn
    assert calls[0][1][1] == pytest.approx(100 * churn.mean)
    assert calls[0][2][1] == pytest.approx(100 * churn.stderr)


def test_a_study_without_such_rows_draws_nothing(report):
    assert svgs(report) == [""] * 3 and series_of(report, "train_size", 2) == ()


def test_the_map_holds_the_churn_of_runs_of_different_methods(report, drawn):
    reports.figures(report)
    image = np.asarray(drawn["imshow"][0][0][0])
    assert image.shape == (8, 8)  # 3 + 3 + 2 runs
    np.testing.assert_allclose(image[0, 1], 30.0)
    np.testing.assert_allclose(image[0, 3], 20.0)  # wrong at 9 against wrong at 0
    np.testing.assert_allclose(image[3, 4], 0.0)
    assert np.isnan(np.diagonal(image)).all()


@pytest.mark.slow
@pytest.mark.parametrize("label", ["_hidden", "$", "日本語", "x" * 80, "a & b"])
def test_any_label_can_be_drawn(report, label):
    row = report.rows[0]
    row = dataclasses.replace(row, info=dataclasses.replace(row.info, label=label))
    svg = first_figure(dataclasses.replace(report, rows=(row,))).draw().svg
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert label.strip("_")[: LONGEST_LABEL - 1] in text
    assert "currentColor" in svg and INK not in svg


def test_figures_are_those_of_the_page_and_leave_nothing_in_pyplot(report):
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    figures = reports.figures(report)
    assert list(figures)[:2] == ["accuracy_against_churn", "pairwise_churn"]
    assert {"reliability_diagram", "ambiguity_histogram"} <= {*figures}
    assert "on_reference_curve" not in figures  # it is empty here
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert figures["reliability_diagram"].axes[0].get_ylabel() == "Accuracy"
    assert figures["pairwise_churn"]._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == []
