"""Focal weights and the two distances they multiply."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import focal_kl, focal_logit_matching, focal_weights
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

weigh = jax.jit(focal_weights)
LOSSES = {"kl": focal_kl, "logits": focal_logit_matching}
both = pytest.mark.parametrize("name", LOSSES)


@functools.partial(jax.jit, static_argnums=0)
def program(name, s, o, y, options):
    """The loss of every row and its gradient in the student."""

    def loss(s):
        return LOSSES[name](student_logits=s, old_logits=o, labels=y, **options)

    value, pull = jax.vjp(loss, s)
    return value, pull(jnp.ones_like(value))[0]


def run(name, s, o, y, alpha=1.0, beta=5.0, temperature=3.0):
    options = {"alpha": alpha, "beta": beta}
    if name == "kl":
        options["temperature"] = temperature
    return jax.device_get(program(name, np.float32(s), np.float32(o), y, options))


@pytest.fixture
def drawn(rng):
    student, old = rng.normal(size=(2, 16, 5)).astype(np.float32)
    return student, old, rng.integers(0, 5, 16)


def test_weights_by_hand():
    old = np.float32([[2.0, 0.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    labels = np.array([0, 2, 1])  # right, wrong, and wrong: a tie is class 0
    np.testing.assert_array_equal(weigh(old, labels), [6.0, 1.0, 1.0])
    weights, pull = jax.vjp(lambda o: focal_weights(o, labels, 0.0, 2.0), old)
    np.testing.assert_array_equal(weights, [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(*pull(weights), np.zeros_like(old))


def test_examples_of_new_classes_keep_the_base_weight(drawn):
    _, o, _ = drawn
    o[:, 4] = UNKNOWN_LOGIT
    np.testing.assert_array_equal(weigh(o, np.full(16, 4)), np.ones(16))


def test_by_hand():
    """At tau = 2: old (2/3, 1/3), student (1/2, 1/2); weight 6 where old is right."""
    s, old, labels = np.zeros((2, 2)), np.log([[4.0, 1.0]] * 2), np.array([0, 1])
    plain = 4 * (5 / 3 * np.log(2.0) - np.log(3.0))
    value, _ = run("kl", s, old, labels, temperature=2.0)
    np.testing.assert_allclose(value, [6 * plain, plain], rtol=2e-6)
    s, old = [[1.0, 1.0, 0.0]] * 2, [[3.0, 0.0, 1.0]] * 2
    value, _ = run("logits", s, old, np.array([0, 2]))
    np.testing.assert_allclose(value, [12.0, 2.0], rtol=1e-6)


@both
def test_focal_weights_change_the_gradient(drawn, name):
    """Each example's by its own factor; broadcast weights would scale all alike."""
    plain, focal = (run(name, *drawn, beta=beta)[1] for beta in (0.0, 5.0))
    right = np.argmax(drawn[1], -1) == drawn[2]
    assert 0 < right.sum() < 16
    np.testing.assert_allclose(focal[right], 6.0 * plain[right], rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(focal[~right], plain[~right])
    # The direction of the batch's gradient changes, not only its size.
    cosine = np.sum(plain * focal) / (np.linalg.norm(plain) * np.linalg.norm(focal))
    assert cosine < 0.9


def test_at_the_published_temperature_kl_is_half_the_variance_of_the_difference(drawn):
    s, o, y = drawn
    value, _ = run("kl", *drawn, beta=0.0, temperature=100.0)
    np.testing.assert_allclose(value, 0.5 * np.var(s - o, axis=-1), rtol=0.05)
    exact = reference.focal_kl(student_logits=s, old_logits=o, labels=y, beta=0.0)
    # tau^2 = 1e4 times the rounding of log-probabilities, 1e-7.
    np.testing.assert_allclose(value, exact, atol=3e-3)


@both
def test_classes_that_a_model_does_not_know_are_left_out(drawn, name):
    """Of the student's they would add 1e8, of which no gradient takes anything away."""
    s, o, y = drawn
    o[:, :3] += 9.0  # so that the old model is right or wrong as before
    y = y % 3
    expected, _ = run(name, s[:, :3], o[:, :3], y)
    unknown = np.concatenate([np.zeros(3), np.full(2, UNKNOWN_LOGIT)])
    for sides in ((s, o + unknown), (s + unknown, o)):
        value, grad = run(name, *sides, y)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_array_equal(grad[:, 3:], 0.0)
        assert np.all(np.abs(grad[:, :3]) > 0)


@both
def test_a_row_without_a_known_class_is_zero(name):
    s, o = np.tile(np.arange(5.0), (16, 1)), np.full((16, 5), UNKNOWN_LOGIT)
    value, grad = run(name, s, o, np.arange(16) % 5)
    assert not np.any(value) and not np.any(grad)


@both
def test_labels_are_checked(drawn, name):
    s, o, y = drawn
    with pytest.raises(ValueError, match=r"labels must have.*\(16,\); got \(15,\)"):
        run(name, s, o, y[1:])
    with pytest.raises(TypeError, match="labels must be integers"):
        run(name, s, o, y.astype(np.float32))
