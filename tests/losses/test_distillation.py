"""Distillation: worked example, scipy, the limits of the temperature, traced sweeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from churn_jax.losses import distillation_kl

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@pytest.fixture
def pair(rng):
    student, teacher = rng.normal(scale=2.0, size=(2, 64, 10)).astype(np.float32)
    return jnp.asarray(student), jnp.asarray(teacher)


def test_by_hand():
    # At tau = 2 the logits halve: teacher (2/3, 1/3), student (1/2, 1/2);
    # 4 (2/3 log 4/3 + 1/3 log 2/3) = 4 (5/3 log 2 - log 3).
    teacher, student = jnp.log(jnp.array([4.0, 1.0])), jnp.zeros(2)
    value = distillation_kl(
        student_logits=student, teacher_logits=teacher, temperature=2.0
    )
    expected = 4 * (5 / 3 * np.log(2.0) - np.log(3.0))
    np.testing.assert_allclose(value, expected, rtol=2e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_equals_scipy(pair, temperature):
    s, t = pair
    tau = np.float64(temperature)
    expected = tau**2 * rel_entr(
        softmax(np.float64(t) / tau, -1), softmax(np.float64(s) / tau, -1)
    ).sum(-1)
    value = distillation_kl(student_logits=s, teacher_logits=t, temperature=temperature)
    np.testing.assert_allclose(value, expected, rtol=4e-6, atol=2e-6 * tau)


def test_zero_at_equality_and_positive_elsewhere(pair):
    s, t = pair
    assert jnp.all(distillation_kl(student_logits=t, teacher_logits=t) == 0.0)
    assert jnp.all(distillation_kl(student_logits=s, teacher_logits=t) > 0.0)
    grad = jax.grad(
        lambda s: jnp.sum(distillation_kl(student_logits=s, teacher_logits=t))
    )(t)
    np.testing.assert_allclose(grad, jnp.zeros_like(t), atol=3e-7)


def test_expectation_is_under_the_teacher():
    sure, unsure = jnp.array([30.0, 0.0]), jnp.zeros(2)
    covers = distillation_kl(student_logits=unsure, teacher_logits=sure)
    np.testing.assert_allclose(covers, np.log(2.0), rtol=1e-6)
    misses = distillation_kl(student_logits=sure, teacher_logits=unsure)
    np.testing.assert_allclose(misses, 15.0 - np.log(2.0), rtol=1e-6)


def test_student_gradient_is_tau_times_the_difference_of_tempered_probabilities(pair):
    s, t = pair
    grad = jax.grad(
        lambda s: jnp.sum(
            distillation_kl(student_logits=s, teacher_logits=t, temperature=3.0)
        )
    )(s)
    expected = 3.0 * (jax.nn.softmax(s / 3.0) - jax.nn.softmax(t / 3.0))
    np.testing.assert_allclose(grad, expected, atol=2e-6)


def test_hot_limit_is_logit_matching(pair):
    s, t = pair
    centred = (s - t) - jnp.mean(s - t, -1, keepdims=True)
    matching = jnp.sum(centred**2, -1) / (2 * 10)
    hot = distillation_kl(student_logits=s, teacher_logits=t, temperature=100.0)
    # The next term is of order 1 / temperature; float32 adds 1e4 * 1e-7.
    np.testing.assert_allclose(hot, matching, rtol=0.05, atol=5e-3)


def test_cold_limit_is_the_hinge_of_the_arg_max(pair):
    s, t = pair
    cold = distillation_kl(student_logits=s, teacher_logits=t, temperature=1e-3)
    wrong = jnp.argmax(s, -1) != jnp.argmax(t, -1)
    # tau^2 KL -> tau (max s - s_y) with y the teacher's class: 0 where they agree.
    gap = jnp.max(s, -1) - jnp.take_along_axis(s, jnp.argmax(t, -1)[:, None], -1)[:, 0]
    assert 20 < jnp.sum(wrong) < 64
    np.testing.assert_allclose(cold, 1e-3 * gap, rtol=1e-2, atol=2e-5)


def test_temperature_can_be_swept_and_differentiated(pair):
    s, t = pair

    def at(temperature):
        return distillation_kl(
            student_logits=s, teacher_logits=t, temperature=temperature
        )

    swept = jax.jit(jax.vmap(at))(jnp.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(
        swept, jnp.stack([at(1.0), at(2.0), at(4.0)]), rtol=1e-5, atol=1e-6
    )
    slope = jax.grad(lambda tau: jnp.sum(at(tau)))(jnp.float32(2.0))
    difference = (jnp.sum(at(2.02)) - jnp.sum(at(1.98))) / 0.04
    np.testing.assert_allclose(slope, difference, rtol=1e-2)


def test_finite_where_teacher_and_student_exclude_the_same_class():
    t, s = jnp.array([1.0, 0.0, -jnp.inf]), jnp.array([0.0, 2.0, -jnp.inf])
    value, grad = jax.value_and_grad(
        lambda s: distillation_kl(student_logits=s, teacher_logits=t, temperature=4.0)
    )(s)
    expected = distillation_kl(
        student_logits=s[:2], teacher_logits=t[:2], temperature=4.0
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert jnp.all(jnp.isfinite(grad))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(pair, temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        distillation_kl(
            student_logits=pair[0], teacher_logits=pair[1], temperature=temperature
        )


def test_temperature_must_be_a_scalar_and_roles_are_keyword_only(pair):
    with pytest.raises(ValueError, match=r"scalar; got shape \(64,\)"):
        distillation_kl(
            student_logits=pair[0], teacher_logits=pair[1], temperature=jnp.ones(64)
        )
    with pytest.raises(TypeError, match="positional"):
        distillation_kl(*pair)
