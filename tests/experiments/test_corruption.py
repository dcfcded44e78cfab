"""The table over corruptions: every cell, its means and boxes, gaps and bad shapes."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.diversity.corruption import QUANTITIES, corruption_summary
from tests import reference_metrics as reference

KINDS, SEVERITIES = ("fog", "snow", "contrast"), (1, 3)


@pytest.fixture
def cells(rng):
    """Two runs on three kinds at two severities, each with labels of its own."""
    return {
        (kind, severity): (
            rng.normal(size=(2, 40, 4)).astype(np.float32),
            rng.integers(0, 4, 40),
        )
        for kind in KINDS
        for severity in SEVERITIES
    }


def test_every_cell_equals_the_reference(cells):
    summary = corruption_summary(cells)
    assert (summary.corruptions, summary.severities) == (KINDS, SEVERITIES)
    functions = (
        reference.accuracy,
        reference.negative_log_likelihood,
        reference.brier_score,
        reference.expected_calibration_error,
    )
    for name, function in zip(QUANTITIES, functions, strict=True):
        table = getattr(summary, name)
        assert table.shape == (3, 2, 2) and table.dtype == np.float64
        for k, s, r in np.ndindex(3, 2, 2):
            logits, labels = cells[KINDS[k], SEVERITIES[s]]
            # The metrics are float32.
            np.testing.assert_allclose(
                table[k, s, r], function(logits[r].astype(float), labels), rtol=1e-5
            )


def test_means_and_boxes_are_over_the_right_axes():
    # The label's probability: 1/2 for runs that say nothing, e^-a / (e^-a + 1) else.
    def cell(a):
        logits = np.array([[[0.0, 0.0]], [[-a, 0.0]]])
        return logits, np.zeros(1, int)

    gaps = {"fog": (0, 1), "snow": (2, 3), "frost": (4, 5), "rain": (6, 7)}
    cells = {
        (kind, severity): cell(float(a))
        for kind, row in gaps.items()
        for severity, a in zip((1, 2), row, strict=True)
    }
    summary = corruption_summary(cells)
    nll = np.log1p(np.exp(np.arange(8.0)))
    np.testing.assert_allclose(summary.mean("nll"), [np.log(2), nll.mean()], rtol=1e-6)
    runs_mean = (nll + np.log(2)) / 2
    np.testing.assert_allclose(
        summary.by_severity("nll"), [runs_mean[::2], runs_mean[1::2]], rtol=1e-6
    )
    low, first, median, third, high = summary.quartiles("nll")[1]
    a, b, c, d = runs_mean[1::2]
    # The quartiles of four numbers lie a quarter of the way between neighbours.
    expected = [a, a + 0.75 * (b - a), (b + c) / 2, c + 0.25 * (d - c), d]
    np.testing.assert_allclose([low, first, median, third, high], expected, rtol=1e-6)


def test_pairs_one_after_the_other_are_as_good_as_a_mapping(cells):
    whole = corruption_summary(cells)
    streamed = corruption_summary(
        (cell, cells[cell]) for cell in sorted(cells, reverse=True)
    )
    assert streamed.corruptions == ("snow", "fog", "contrast")
    assert streamed.severities == SEVERITIES
    np.testing.assert_array_equal(streamed.ece[0], whole.ece[KINDS.index("snow")])


def test_a_stopped_run_is_nan_in_its_cells_alone(cells):
    cells["snow", 3][0][1, 7] = np.nan
    summary = corruption_summary(cells)
    for name in QUANTITIES:
        table = getattr(summary, name)
        assert np.argwhere(np.isnan(table)).tolist() == [[1, 1, 1]]
        assert np.isnan(summary.mean(name)).tolist() == [False, True]


def test_bfloat16_logits_give_the_figures_of_their_values(cells):
    low = {c: (jnp.asarray(x, jnp.bfloat16), y) for c, (x, y) in cells.items()}
    high = {c: (np.asarray(x, np.float32), y) for c, (x, y) in low.items()}
    a, b = corruption_summary(low), corruption_summary(high)
    np.testing.assert_allclose(a.brier, b.brier, rtol=1e-6)


LOGITS, LABELS = np.zeros((2, 40, 4), np.float32), np.zeros(40, int)
FOG = {("fog", 1): (LOGITS, LABELS)}


@pytest.mark.parametrize(
    ("cells", "error", "message"),
    [
        ({}, ValueError, "must not be empty"),
        (
            {**FOG, ("snow", 3): (LOGITS, LABELS)},
            ValueError,
            "2 of 2 x 2 cells are missing, the first is fog, severity 3",
        ),
        ([*FOG.items()] * 2, ValueError, "fog, severity 1 is given twice"),
        (
            {("fog", 1): (LOGITS[0], LABELS)},
            ValueError,
            r"fog, severity 1: .*\(40, 4\)",
        ),
        ({("fog", 1): (LOGITS, LABELS[:3])}, ValueError, r"\(3,\) and \(2, 40, 4\)"),
        (
            {**FOG, ("fog", 3): (LOGITS[:1], LABELS)},
            ValueError,
            "fog, severity 3 has 1 runs, but fog, severity 1 has 2",
        ),
        ({("fog", 1): (LOGITS.astype(int), LABELS)}, TypeError, "floating"),
        ({("fog", 1): (LOGITS, LABELS * 1.0)}, TypeError, "labels must be integers"),
    ],
)
def test_what_does_not_fit_is_refused(cells, error, message):
    with pytest.raises(error, match=message):
        corruption_summary(cells)


def test_a_quantity_that_is_none_is_refused():
    with pytest.raises(ValueError, match="accuracy, nll, brier, ece; got 'f1'"):
        corruption_summary(FOG).mean("f1")
