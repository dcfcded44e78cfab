"""Corrupted test sets: every cell against NumPy, means and boxes by hand."""

import jax.numpy as jnp
import numpy as np

from experiments.diversity.corruption import QUANTITIES, CorruptionSummary, measure
from tests import reference_metrics as reference

KINDS, SEVERITIES = ("fog", "snow", "contrast"), (1, 3)


def test_every_cell_equals_the_reference(rng):
    cells = {
        (kind, severity): (
            rng.normal(size=(2, 40, 4)).astype(np.float32),
            rng.integers(0, 4, 40),
        )
        for severity in SEVERITIES
        for kind in KINDS
    }
    found = CorruptionSummary.of({cell: measure(*of) for cell, of in cells.items()})
    assert (found.corruptions, found.severities) == (KINDS, SEVERITIES)
    functions = (
        reference.accuracy,
        reference.negative_log_likelihood,
        reference.brier_score,
        reference.expected_calibration_error,
    )
    for q, function in enumerate(functions):
        for k, s, r in np.ndindex(3, 2, 2):
            logits, labels = cells[KINDS[k], SEVERITIES[s]]
            # The metrics are float32.
            np.testing.assert_allclose(
                found.values[k, s, q, r],
                function(logits[r].astype(float), labels),
                rtol=1e-5,
            )


def test_means_and_boxes_are_over_the_right_axes():
    # The label's probability: 1/2 for runs that say nothing, e^-a / (e^-a + 1) else.
    def cell(a):
        logits = np.array([[[0.0, 0.0]], [[-a, 0.0]]])
        return measure(logits, np.zeros(1, int))

    gaps = {"fog": (0, 1), "snow": (2, 3), "frost": (4, 5), "rain": (6, 7)}
    summary = CorruptionSummary.of(
        {
            (kind, severity): cell(float(a))
            for kind, row in gaps.items()
            for severity, a in zip((1, 2), row, strict=True)
        }
    )
    nll = np.log1p(np.exp(np.arange(8.0)))
    np.testing.assert_allclose(summary.mean("nll"), [np.log(2), nll.mean()], rtol=1e-6)
    a, b, c, d = (nll[1::2] + np.log(2)) / 2
    # The quartiles of four numbers lie a quarter of the way between neighbours.
    expected = [a, a + 0.75 * (b - a), (b + c) / 2, c + 0.25 * (d - c), d]
    np.testing.assert_allclose(summary.quartiles("nll")[1], expected, rtol=1e-6)


def test_a_stopped_run_is_nan_alone_and_bfloat16_has_its_own_values(rng):
    logits, labels = rng.normal(size=(2, 40, 4)).astype(np.float32), np.arange(40) % 4
    low = jnp.asarray(logits, jnp.bfloat16)
    high = measure(np.asarray(low, np.float32), labels)
    np.testing.assert_allclose(measure(low, labels), high, rtol=1e-6)
    logits[1, 7] = np.nan
    assert np.isnan(measure(logits, labels)).tolist() == [[False, True]] * len(
        QUANTITIES
    )
