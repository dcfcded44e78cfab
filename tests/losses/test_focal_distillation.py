"""Focal weights and the two distances they multiply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import (
    distillation_kl,
    focal_kl,
    focal_logit_matching,
    focal_weights,
)
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

LOSSES = {
    "kl": lambda s, o, y, **kw: focal_kl(
        student_logits=s, old_logits=o, labels=y, temperature=3.0, **kw
    ),
    "logits": lambda s, o, y, **kw: focal_logit_matching(
        student_logits=s, old_logits=o, labels=y, **kw
    ),
}
both = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@pytest.fixture
def drawn(rng):
    student, old = rng.normal(size=(2, 16, 5)).astype(np.float32)
    return student, old, rng.integers(0, 5, 16)


def test_weights_by_hand():
    old = jnp.array([[2.0, 0.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    labels = jnp.array([0, 2, 1])  # right, wrong, and wrong: a tie is class 0
    np.testing.assert_array_equal(focal_weights(old, labels), [6.0, 1.0, 1.0])
    weights = focal_weights(old, labels, alpha=0.0, beta=jnp.float32(2.0))
    np.testing.assert_array_equal(weights, [2.0, 0.0, 0.0])


def test_weights_have_no_gradient(drawn):
    _, old, labels = drawn
    slope = jax.grad(lambda o: jnp.sum(focal_weights(o, labels)))(old)
    np.testing.assert_array_equal(slope, np.zeros_like(old))


def test_kl_by_hand():
    """At tau = 2: old (2/3, 1/3), student (1/2, 1/2); weight 6 where old is right."""
    old, student = jnp.log(jnp.array([4.0, 1.0])), jnp.zeros(2)
    plain = 4 * (5 / 3 * np.log(2.0) - np.log(3.0))
    for label, weight in ((0, 6.0), (1, 1.0)):
        value = focal_kl(
            student_logits=student,
            old_logits=old,
            labels=jnp.array(label),
            temperature=2.0,
        )
        np.testing.assert_allclose(value, weight * plain, rtol=2e-6)


def test_logit_matching_by_hand():
    old, student = jnp.array([3.0, 0.0, 1.0]), jnp.array([1.0, 1.0, 0.0])
    for label, weight in ((0, 6.0), (2, 1.0)):
        value = focal_logit_matching(
            student_logits=student, old_logits=old, labels=jnp.array(label)
        )
        np.testing.assert_allclose(value, weight * 2.0, rtol=1e-6)


@both
def test_focal_weights_change_the_gradient(drawn, loss):
    """Each example's by its own factor; broadcast weights would scale all alike."""
    s, o, y = drawn

    def mean_gradient(**weights):
        return jax.grad(lambda s: jnp.mean(loss(s, o, y, **weights)))(s)

    plain = mean_gradient(alpha=1.0, beta=0.0)
    focal = mean_gradient(alpha=1.0, beta=5.0)
    right = np.argmax(o, -1) == y
    assert 0 < right.sum() < 16
    np.testing.assert_allclose(focal[right], 6.0 * plain[right], rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(focal[~right], plain[~right])
    # The direction of the batch's gradient changes, not only its size.
    cosine = jnp.sum(plain * focal) / (jnp.linalg.norm(plain) * jnp.linalg.norm(focal))
    assert cosine < 0.9


def test_at_the_published_temperature_kl_is_half_the_variance_of_the_difference(drawn):
    s, o, y = drawn
    value = focal_kl(student_logits=s, old_logits=o, labels=y, beta=0.0)
    np.testing.assert_allclose(value, 0.5 * np.var(s - o, axis=-1), rtol=0.05)
    exact = reference.focal_kl(student_logits=s, old_logits=o, labels=y, beta=0.0)
    # tau^2 = 1e4 times the rounding of log-probabilities, 1e-7.
    np.testing.assert_allclose(value, exact, atol=3e-3)


@both
def test_classes_the_old_model_does_not_know_are_left_out(drawn, loss):
    s, o, y = drawn
    y = y % 3
    o[:, 3:] = UNKNOWN_LOGIT
    np.testing.assert_allclose(loss(s, o, y), loss(s[:, :3], o[:, :3], y), rtol=1e-5)
    g = jax.grad(lambda s: jnp.sum(loss(s, o, y)))(s)
    np.testing.assert_array_equal(g[:, 3:], 0.0)
    assert np.all(np.abs(g[:, :3]) > 0)


@both
def test_classes_the_student_cannot_know_are_left_out(drawn, loss):
    """They would add 1e8, of which no gradient takes anything away."""
    s, o, y = drawn
    o[:, :3] += 9.0  # so that the old model is right or wrong as before
    y = y % 3
    s[:, 3:] = UNKNOWN_LOGIT
    np.testing.assert_allclose(loss(s, o, y), loss(s[:, :3], o[:, :3], y), rtol=1e-5)


@both
@pytest.mark.parametrize("label", [0, 4])
def test_a_row_without_a_known_class_is_zero(loss, label):
    s, o = jnp.arange(5.0), jnp.full(5, UNKNOWN_LOGIT)
    value, g = jax.value_and_grad(lambda s: loss(s, o, jnp.array(label)))(s)
    assert value == 0.0
    np.testing.assert_array_equal(g, np.zeros(5))


def test_examples_of_new_classes_keep_the_base_weight(drawn):
    _, o, _ = drawn
    o[:, 4] = UNKNOWN_LOGIT
    np.testing.assert_array_equal(focal_weights(o, np.full(16, 4)), np.ones(16))


def test_temperature_and_weights_can_be_swept(drawn):
    s, o, y = drawn

    def at(temperature, beta):
        return focal_kl(
            student_logits=s,
            old_logits=o,
            labels=y,
            temperature=temperature,
            beta=beta,
        )

    swept = jax.vmap(at)(jnp.array([1.0, 4.0]), jnp.array([0.0, 2.0]))
    np.testing.assert_allclose(swept[1], at(4.0, 2.0), rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(
        swept[0], distillation_kl(student_logits=s, teacher_logits=o), rtol=1e-5
    )


@both
def test_labels_are_checked(drawn, loss):
    s, o, y = drawn
    with pytest.raises(ValueError, match=r"labels must have.*\(16,\); got \(15,\)"):
        loss(s, o, y[1:])
    with pytest.raises(TypeError, match="labels must be integers"):
        loss(s, o, y.astype(np.float32))
