"""`fit_temperature` against an optimiser, known temperatures and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from churn_jax import metrics


def drawn(temperature, n=4000, classes=5, seed=0):
    """Logits that are `temperature` times those which the labels were drawn from."""
    rng = np.random.default_rng(seed)
    z = 2.0 * rng.normal(size=(n, classes))
    labels = np.argmax(z + rng.gumbel(size=z.shape), axis=-1)
    return (temperature * z).astype(np.float32), labels


def nll(log_t, logits, labels):
    z = logits.astype(np.float64) / np.exp(log_t)
    return np.mean(logsumexp(z, -1) - np.take_along_axis(z, labels[:, None], 1)[:, 0])


fit = jax.jit(metrics.fit_temperature)


def optimum(logits, labels):
    """Of the likelihood in float64, by scipy."""
    best = minimize_scalar(
        nll,
        bounds=(-6, 6),
        args=(logits, labels),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return np.exp(best.x)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.5])
def test_finds_what_the_likelihood_is_smallest_at(temperature):
    logits, labels = drawn(temperature)
    found = fit(logits, labels)
    np.testing.assert_allclose(found, optimum(logits, labels), rtol=1e-4)
    np.testing.assert_allclose(found, temperature, rtol=0.1)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.5])
def test_finds_the_optimum_of_an_ensemble(temperature):
    logits, labels = drawn(temperature)
    noise = np.random.default_rng(2).normal(size=(4, *logits.shape))
    members = logits + 2.0 * temperature * noise
    log_p = members - logsumexp(members, -1, keepdims=True)
    ensemble = (logsumexp(log_p, 0) - np.log(4)).astype(np.float32)
    found = fit(ensemble, labels)
    np.testing.assert_allclose(found, optimum(ensemble, labels), rtol=1e-4)


def test_where_every_prediction_is_right_the_lower_end_is_found():
    logits, _ = drawn(1.0)
    labels = np.argmax(logits, -1)
    np.testing.assert_allclose(fit(logits, labels), np.exp(-7), rtol=1e-5)
    # No optimum: the likelihood still improves there, and one error brings one back.
    assert nll(-7.0, logits, labels) <= nll(-6.9, logits, labels)
    labels[0] = (labels[0] + 1) % 5
    np.testing.assert_allclose(fit(logits, labels), optimum(logits, labels), rtol=1e-4)


def test_golden_case_one_in_four_wrong():
    # Two classes, logits 2 and 0, right 3 times in 4: softmax(2 / T) = 3/4.
    logits = jnp.array([[2.0, 0.0]] * 4)
    found = metrics.fit_temperature(logits, jnp.array([0, 0, 0, 1]))
    np.testing.assert_allclose(found, 2 / np.log(3), rtol=1e-5)


def test_a_common_shift_and_padding_change_nothing():
    logits, labels = drawn(3.0, n=300)
    expected = metrics.fit_temperature(logits, labels)
    shift = np.random.default_rng(1).normal(size=(300, 1)).astype(np.float32)
    np.testing.assert_allclose(
        metrics.fit_temperature(logits + shift, labels), expected, rtol=1e-4
    )
    mask = np.arange(400) < 300
    padded = np.concatenate([logits, np.full((100, 5), np.nan, np.float32)])
    more = np.concatenate([labels, np.zeros(100, int)])
    np.testing.assert_allclose(
        metrics.fit_temperature(padded, more, mask), expected, rtol=1e-6
    )


def test_excluded_classes_stay_excluded():
    logits, labels = drawn(2.0, n=500, classes=3)
    with_one_more = np.concatenate([logits, np.full((500, 1), -np.inf)], axis=1)
    np.testing.assert_allclose(
        metrics.fit_temperature(with_one_more, labels),
        metrics.fit_temperature(logits, labels),
        rtol=1e-6,
    )


def test_ends_of_the_range_and_nothing_valid():
    right = jnp.array([[1.0, 0.0]])
    assert metrics.fit_temperature(right, jnp.array([0])) < 1e-2
    assert metrics.fit_temperature(right, jnp.array([1])) > 1e3
    assert np.isnan(metrics.fit_temperature(right, jnp.array([0]), np.zeros(1, bool)))


def test_vmapped_over_runs_and_in_bfloat16():
    logits, labels = drawn(2.0, n=500)
    runs = jnp.stack([logits, 3 * logits])
    found = jax.vmap(metrics.fit_temperature, (0, None))(runs, labels)
    np.testing.assert_allclose(found[1], 3 * found[0], rtol=1e-4)
    low = metrics.fit_temperature(jnp.asarray(logits, jnp.bfloat16), labels)
    np.testing.assert_allclose(low, found[0], rtol=0.02)


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="labels"):
        metrics.fit_temperature(jnp.zeros((3, 2)), jnp.zeros(4, int))
