"""The lemmas' bounds on churn, pair by pair, and how the report shows them."""

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_jax import metrics, reports
from churn_jax.predictions import Predictions
from churn_jax.reports.study_sections import (
    bounds_against_churn,
    bounds_section,
    mean_bounds,
)
from churn_jax.reports.summary import BOUNDS, summarize
from tests.reports.conftest import LABELS
from tests.reports.fake_study import noisy_logits, write_study


@pytest.fixture(scope="module")
def logits():
    return noisy_logits(np.random.default_rng(1), LABELS, 3, 3, margin=0.5)


def test_no_pair_exceeds_a_bound(logits):
    pairs = summarize(Predictions(np.arange(10), LABELS, logits)).pair_values
    off = ~np.eye(3, dtype=bool)
    assert pairs["churn"][off].min() > 0
    for name, metric in BOUNDS.items():
        assert (pairs[name][off] >= pairs["churn"][off]).all()
        needed = (LABELS,) if name == "bound_from_errors" else ()
        for a, b in itertools.combinations(range(3), 2):
            expected = metric(logits[a], logits[b], *needed)
            assert pairs[name][a, b] == pytest.approx(float(expected), abs=1e-6)
    sharper = pairs["bound_from_confidence_sum"][off]
    assert (sharper <= pairs["bound_from_confidence"][off]).all()
    assert sharper.mean() < pairs["bound_from_confidence"][off].mean()


def test_means_of_the_table_are_over_all_pairs(tmp_path, logits):
    report = reports.collect(write_study(tmp_path, {"baseline": logits}, LABELS))
    means = mean_bounds(report.rows[0])
    assert means["churn"] == pytest.approx(report.rows[0].summary.churn.mean)
    errors = 2 * np.mean([metrics.error_rate(run, LABELS) for run in logits])
    assert means["bound_from_errors"] == pytest.approx(errors)
    (fold,) = bounds_section(report).blocks
    (grid,) = fold.blocks
    _, table = grid.blocks
    assert fold.summary.startswith("Bounds on churn")
    assert table.rows[0][2] == f"{100 * errors:.2f}"


def test_points_lie_on_or_below_the_diagonal(tmp_path, logits, monkeypatch):
    from matplotlib.axes import Axes

    drawn, original = [], Axes.plot

    def keep(axes, x, y, **style):
        drawn.append((np.array(x), np.array(y), style))
        return original(axes, x, y, **style)

    monkeypatch.setattr(Axes, "plot", keep)
    report = reports.collect(write_study(tmp_path, {"baseline": logits}, LABELS))
    ElementTree.fromstring(bounds_against_churn(report))
    points = [(x, y) for x, y, style in drawn if "label" in style]
    assert len(points) == 3
    for bound, churn in points:
        assert len(bound) == 3 and (churn <= bound + 1e-4).all()


def test_one_run_has_no_bounds(tmp_path, logits):
    report = reports.collect(write_study(tmp_path, {"baseline": logits[:1]}, LABELS))
    assert bounds_section(report) is None
    assert np.isnan(mean_bounds(report.rows[0])["churn"])
