"""The fitted temperature, and scores calibrated with it."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

fit = jax.jit(metrics.fit_temperature)
scores_of = jax.jit(metrics.calibrated_scores)


def drawn(temperature, n=500, classes=5):
    """Logits that are `temperature` times those which the labels were drawn from."""
    rng = np.random.default_rng(0)
    z = 2.0 * rng.normal(size=(n, classes))
    labels = np.argmax(z + rng.gumbel(size=z.shape), axis=-1)
    return (temperature * z).astype(np.float32), labels


def nll(log_t, logits, labels):
    return ref.negative_log_likelihood(logits / np.exp(log_t), labels)


def optimum(logits, labels):
    """Of the likelihood in float64, by scipy."""
    options = {"method": "bounded", "options": {"xatol": 1e-9}}
    best = minimize_scalar(nll, bounds=(-6, 6), args=(logits, labels), **options)
    return np.exp(best.x)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.5])
def test_finds_what_the_likelihood_is_smallest_at(temperature):
    logits, labels = drawn(temperature, n=4000)
    found = fit(logits, labels)
    np.testing.assert_allclose(found, optimum(logits, labels), rtol=1e-4)
    np.testing.assert_allclose(found, temperature, rtol=0.1)
    # And of an ensemble's mean.
    noise = np.random.default_rng(2).normal(size=(4, *logits.shape))
    members = logits + 2.0 * temperature * noise
    log_p = members - logsumexp(members, -1, keepdims=True)
    ensemble = (logsumexp(log_p, 0) - np.log(4)).astype(np.float32)
    found = fit(ensemble, labels)
    np.testing.assert_allclose(found, optimum(ensemble, labels), rtol=1e-4)


def test_ends_of_the_range_and_nothing_valid():
    logits, _ = drawn(1.0)
    labels, worst = np.argmax(logits, -1), np.argmin(logits, -1)
    np.testing.assert_allclose(fit(logits, labels), np.exp(-7), rtol=1e-5)
    np.testing.assert_allclose(fit(logits, worst), np.exp(7), rtol=1e-5)
    assert np.isnan(fit(logits, labels, np.zeros(500, bool)))
    # No optimum: the likelihood still improves there, and one error brings one back.
    assert nll(-7.0, logits, labels) <= nll(-6.9, logits, labels)
    labels[0] = (labels[0] + 1) % 5
    np.testing.assert_allclose(fit(logits, labels), optimum(logits, labels), rtol=1e-4)


def test_a_shift_padding_and_excluded_classes_change_nothing():
    logits, labels = drawn(3.0)
    valid = np.arange(500) < 300
    expected = fit(logits, labels, valid)
    kept = optimum(logits[:300].astype(float), labels[:300])
    np.testing.assert_allclose(expected, kept, rtol=1e-4)
    shift = np.random.default_rng(1).normal(size=(500, 1)).astype(np.float32)
    spoilt = np.where(valid[:, None], logits + shift, np.nan)
    np.testing.assert_allclose(fit(spoilt, labels, valid), expected, rtol=1e-4)
    one_more = np.concatenate([logits, np.full_like(shift, -np.inf)], axis=1)
    np.testing.assert_allclose(fit(one_more, labels, valid), expected, rtol=1e-6)


def split(seed, n=48):
    inputs = make_inputs("labelled", seed, n)
    return inputs["logits"], inputs["labels"]


def validation(logits, labels):
    return {"validation_logits": logits, "validation_labels": labels}


def test_every_replica_has_its_own_temperature():
    runs = [(split(seed), split(seed + 10)) for seed in (5, 6, 7)]
    (z, y), (vz, vy) = jax.tree.map(lambda *x: np.stack(x), *runs)
    z[1], vz[1] = 4 * z[1], 4 * vz[1]

    def one(z, y, vz, vy):
        return metrics.calibrated_scores(z, y, **validation(vz, vy))

    found = jax.jit(jax.vmap(one))(z, y, vz, vy)
    assert len(set(found.temperature.tolist())) == 3
    for r in range(3):
        alone = scores_of(z[r], y[r], **validation(vz[r], vy[r]))
        np.testing.assert_allclose([x[r] for x in found], alone, rtol=2e-6)


def test_padding_of_the_validation_split_is_ignored():
    (z, y), (vz, vy) = split(8), split(9)
    mask = np.arange(48) % 3 > 0
    expected = ref.calibrated_scores(z, y, vz[mask], vy[mask])
    vz[~mask], vy[~mask] = np.nan, -1
    found = scores_of(z, y, **validation(vz, vy), validation_mask=mask)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    nothing = scores_of(z, y, **validation(vz, vy), validation_mask=mask & False)
    assert np.isnan(nothing).all()


def test_the_gradient_takes_the_temperature_as_a_constant():
    (z, y), (vz, vy) = split(10, n=6), split(11, n=12)

    def nll(z, vz):
        return metrics.calibrated_scores(z, y, **validation(vz, vy))[1]

    of_logits, of_validation = jax.jit(jax.grad(nll, argnums=(0, 1)))(z, vz)
    temperature = ref.fit_temperature(vz, vy)
    p, one_hot = ref.softmax(z / temperature), np.eye(5)[y]
    expected = (p - one_hot) / len(y) / temperature
    np.testing.assert_allclose(of_logits, expected, rtol=1e-4, atol=1e-6)
    assert not np.any(of_validation)


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_an_offset_of_all_logits_costs_no_digits(offset):
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(500, 5)) + offset).astype(np.float32)
    shifted = logits - np.float32(offset)  # exact
    y = np.where(rng.random(500) < 0.7, logits.argmax(-1), 0)
    expected = ref.negative_log_likelihood(shifted.astype(float), y)
    found = jax.jit(metrics.negative_log_likelihood)(logits, y)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    both = [scores_of(z, y, **validation(z, y)) for z in (logits, shifted)]
    np.testing.assert_allclose(*both, rtol=1e-6)
