"""Entropy histograms and box plots: drawn from the right numbers, with every label."""

import numpy as np
import pytest

from churn_jax.analysis import corruption_summary, out_of_distribution
from churn_jax.reports.diversity_figures import corruption_boxes, entropy_histograms

KINDS = ("fog", "snow", "frost", "contrast", "pixelate")


@pytest.fixture
def found(rng):
    return out_of_distribution(
        4 * rng.normal(size=(2, 60, 3)), rng.normal(size=(2, 50, 3)), bins=6
    )


@pytest.fixture
def cells(rng):
    labels = rng.integers(0, 4, 40)
    return {
        (kind, severity): (rng.normal(size=(2, 40, 4)).astype(np.float32), labels)
        for kind in KINDS
        for severity in (1, 2, 3)
    }


@pytest.fixture
def summary(cells):
    return corruption_summary(cells)


@pytest.fixture
def drawn(monkeypatch):
    """What `Axes.stairs` and `Axes.bxp` were called with."""
    from matplotlib.axes import Axes

    calls = []
    for name in ("stairs", "bxp"):

        def keep(axes, *args, _draw=getattr(Axes, name), **options):
            calls.append((args, options))
            return _draw(axes, *args, **options)

        monkeypatch.setattr(Axes, name, keep)
    return calls


def test_histograms_show_shares_of_both_sets_for_every_method(found, drawn):
    svg = entropy_histograms({"BE-4": found, "BE-4 + ODS": found}, foreign="SVHN")
    for text in ("BE-4 + ODS", "SVHN", "own test images", "Entropy, nats"):
        assert text in svg
    assert svg.startswith("<svg") and 'role="img"' in svg
    assert len(drawn) == 4
    (own, edges), _ = drawn[0]
    (foreign, _), _ = drawn[1]
    np.testing.assert_array_equal(edges, found.histogram_in.edges)
    np.testing.assert_allclose(own, 100 * found.histogram_in.counts.sum(0) / 120)
    np.testing.assert_allclose(foreign, 100 * found.histogram_out.counts.sum(0) / 100)


def test_a_stopped_run_is_not_in_the_histogram(rng, drawn):
    own, foreign = rng.normal(size=(2, 60, 3)), rng.normal(size=(2, 50, 3))
    own[0, 5] = np.nan
    entropy_histograms({"a": out_of_distribution(own, foreign)})
    alone = out_of_distribution(own[1:], foreign[1:])
    np.testing.assert_allclose(drawn[0][0][0], 100 * alone.histogram_in.shares[0])
    np.testing.assert_allclose(drawn[1][0][0], 100 * alone.histogram_out.shares[0])


def test_boxes_are_the_quartiles_of_nll_and_ece(summary, drawn):
    svg = corruption_boxes({"BE-4": summary, "DE-4": summary})
    for text in ("BE-4", "DE-4", "NLL, nats", "ECE", "Severity"):
        assert text in svg
    assert len(drawn) == 4  # two panels of two methods
    for (boxes, *_), quantity in ((drawn[0][0], "nll"), (drawn[3][0], "ece")):
        found = [list(box.values()) for box in boxes]
        np.testing.assert_array_equal(found, summary.quartiles(quantity))
    left, right = (drawn[i][1]["positions"] for i in (0, 1))
    np.testing.assert_allclose((left + right) / 2, [0, 1, 2])  # beside each other


def test_accuracy_is_in_per_cent(summary, drawn):
    assert "Accuracy %" in corruption_boxes({"a": summary}, ("accuracy",))
    median = drawn[0][0][0][1]["med"]
    assert median == pytest.approx(100 * summary.quartiles("accuracy")[1].median)


def test_what_cannot_be_drawn_is_refused(found, cells, summary, rng):
    other = out_of_distribution(*rng.normal(size=(2, 1, 5, 3)), bins=7)
    with pytest.raises(ValueError, match=r"6 bins up to 1.099 and 7 up to 1.099"):
        entropy_histograms({"a": found, "b": other})
    fewer = corruption_summary({("fog", 1): cells["fog", 1]})
    with pytest.raises(ValueError, match=r"b has \(1,\), others have \(1, 2, 3\)"):
        corruption_boxes({"a": summary, "b": fewer})
    with pytest.raises(ValueError, match="quantity must be one of"):
        corruption_boxes({"a": summary}, ("churn",))
    for draw in (entropy_histograms, corruption_boxes):
        with pytest.raises(ValueError, match="at least one method"):
            draw({})
