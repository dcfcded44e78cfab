"""Means over pairs of runs and their standard errors; metrics without one model."""

import functools

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import M, make_inputs

summarize_pairs = jax.jit(metrics.summarize_pairs)
summarize_cross = jax.jit(metrics.summarize_cross)
summarize_paired = jax.jit(metrics.summarize_paired)


@pytest.mark.parametrize(
    ("summarize", "matrix", "mean", "std", "stderr"),
    [
        # Pairs .1, .2, .3; without run 0: .3, without 1: .2, without 2: .1.
        # Variance 2/3 * (.01 + 0 + .01), its root .11547. The diagonal does not count.
        (
            summarize_pairs,
            [[np.nan, 0.1, 0.2], [0.1, np.nan, 0.3], [0.2, 0.3, np.nan]],
            0.2,
            0.0816497,
            0.1154701,
        ),
        (summarize_pairs, [[0, 0.25], [0.25, 0]], 0.25, 0.0, np.nan),
        # Means of rows .15, .35, .25 and of columns .2, .3; no pair is peculiar.
        # Variance .02 / 6 + .005 / 2, its root .0763763.
        (
            summarize_cross,
            [[0.1, 0.2], [0.3, 0.4], [0.2, 0.3]],
            0.25,
            0.0957427,
            0.0763763,
        ),
        # One run on a side leaves the other: deviations of .1 from .2, their root .1.
        (summarize_cross, [[0.1, 0.3]], 0.2, 0.1, 0.1),
        (summarize_cross, [[0.1], [0.3]], 0.2, 0.1, 0.1),
        (summarize_cross, [[0.5]], 0.5, 0.0, np.nan),
        # Only the diagonal: mean .3; squares .04 + .01 + .09; .14 / 6 = .152753^2.
        (
            summarize_paired,
            [[0.1, 9, 9], [9, 0.2, 9], [9, 9, 0.6]],
            0.3,
            0.216025,
            0.152753,
        ),
        (summarize_paired, [[0.5]], 0.5, 0.0, np.nan),
    ],
)
def test_by_hand(summarize, matrix, mean, std, stderr):
    summary = summarize(np.array(matrix))
    np.testing.assert_allclose(summary[:3], [mean, std, stderr], rtol=1e-5)
    assert summary[3:] in (np.shape(matrix), (len(matrix),))


@pytest.mark.parametrize(
    ("name", "shape"), [("summarize_pairs", (6, 6)), ("summarize_cross", (4, 3))]
)
def test_equals_deleting_rows_and_columns(name, shape):
    matrix = np.random.default_rng(0).random(shape).astype(np.float32)
    expected = getattr(ref, name)(matrix)
    np.testing.assert_allclose(globals()[name](matrix)[:3], expected, rtol=1e-5)


def mapped(summarize, matrices):
    return jax.jit(jax.vmap(lambda m: summarize(m)[:3]))(matrices)


@pytest.mark.parametrize(
    ("of_old", "of_new", "of_pair"),
    [(1, 1, 1), (1, 0.1, 0.3), (0.3, 0.5, 1), (0, 0, 1)],
)
def test_standard_error_of_cross_pairs_is_that_of_runs(of_old, of_new, of_pair):
    # Old runs, new runs and pairs each have an effect of their own.
    rng = np.random.default_rng(0)
    old, new = of_old * rng.normal(size=(4000, 5, 1)), rng.normal(size=(4000, 1, 6))
    matrices = old + of_new * new + of_pair * rng.normal(size=(4000, 5, 6))
    mean, std, stderr = mapped(metrics.summarize_cross, matrices)
    true = np.std(mean)
    # 4000 draws: the deviation is known to about 1 per cent.
    assert 0.94 * true < np.sqrt(np.mean(stderr**2)) < 1.13 * true
    if of_old:
        assert np.mean(std) / np.sqrt(30) < 0.7 * true


def test_standard_error_of_pairs_is_that_of_runs():
    # Each run moves all its pairs: value = u_a + u_b + noise.
    rng = np.random.default_rng(0)
    u, noise = rng.normal(size=(2000, 8)), 0.1 * rng.normal(size=(2000, 8, 8))
    matrices = u[:, :, None] + u[:, None] + noise + np.swapaxes(noise, 1, 2)
    mean, std, stderr = mapped(metrics.summarize_pairs, matrices)
    # 2000 draws: the variance is known to about 3 per cent.
    np.testing.assert_allclose(np.mean(stderr**2), np.var(mean), rtol=0.1)
    assert np.mean(std**2) / 28 < 0.3 * np.var(mean)


MASK = np.arange(48) % 3 > 0


def without_one(metric, logits, **inputs):
    run = functools.partial(metrics.leave_one_model_out, metric)
    found = jax.jit(run)(logits, **inputs)
    others = [np.arange(M) != m for m in range(M)]
    compiled = jax.jit(metric)
    return found, [compiled(logits[keep], **inputs) for keep in others]


@pytest.mark.parametrize(
    "metric",
    [
        metrics.relative_prediction_difference,
        metrics.hamming_prediction_difference,
        metrics.label_prediction_difference,
    ],
)
def test_leaving_a_model_out_is_the_metric_of_the_others(metric):
    labelled = metric is metrics.label_prediction_difference
    inputs = make_inputs("labelled models" if labelled else "models", 0)
    found, expected = without_one(metric, **inputs, mask=MASK)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_stream_keeps_one_state_per_left_out_model():
    logits = make_inputs("models", 2)["logits"]

    @jax.jit
    def window(x):
        empty = metrics.PredictionDifferenceState.empty()
        return metrics.leave_one_model_out(empty.update, x)

    states = window(logits[:, :24]).merge(window(logits[:, 24:]))
    _, expected = without_one(metrics.prediction_difference, logits)
    np.testing.assert_allclose(states.compute(), expected, rtol=1e-6)
