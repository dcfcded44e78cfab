"""What the figures of a page show, and that any label can be drawn."""

import dataclasses
from xml.etree import ElementTree

import numpy as np

from churn_compare.documents.plotting import INK, LONGEST_LABEL
from churn_jax import reports
from churn_jax.reports.study_figures import first_figure


def test_the_map_holds_the_churn_of_runs_of_different_methods(report, drawn):
    reports.figures(report)
    image = np.asarray(drawn["imshow"][0][0][0])
    assert image.shape == (8, 8)  # 3 + 3 + 2 runs
    np.testing.assert_allclose(image[0, 1], 30.0)
    np.testing.assert_allclose(image[0, 3], 20.0)  # wrong at 9 against wrong at 0
    np.testing.assert_allclose(image[3, 4], 0.0)
    assert np.isnan(np.diagonal(image)).all()


def test_any_label_can_be_drawn(report):
    labels, row = ["_hidden", "$a$", "日本語", "x" * 80, "a & b"], report.rows[0]
    infos = [dataclasses.replace(row.info, label=label) for label in labels]
    rows = tuple(dataclasses.replace(row, info=info) for info in infos)
    svg = first_figure(dataclasses.replace(report, rows=rows)).draw().svg
    text = "".join(ElementTree.fromstring(svg).itertext())
    for label in labels:
        assert label.strip("_")[: LONGEST_LABEL - 1] in text
    assert "currentColor" in svg and INK not in svg


def test_figures_are_those_of_the_page_and_leave_nothing_in_pyplot(report):
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    before = pyplot.get_fignums()  # of other tests
    figures = reports.figures(report)
    assert list(figures)[:2] == ["accuracy_against_churn", "pairwise_churn"]
    assert "on_reference_curve" not in figures  # it is empty here
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert figures["training_curves"].axes[0].get_ylabel() == "Training loss"
    assert figures["pairwise_churn"]._repr_png_().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == before
