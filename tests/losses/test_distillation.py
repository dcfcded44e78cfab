"""Distillation: worked examples, the limits of the temperature, traced sweeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.losses import distillation_kl
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@pytest.fixture
def pair(rng):
    """A student's and a teacher's logits."""
    return rng.normal(scale=2.0, size=(2, 64, 10)).astype(np.float32)


@jax.jit
def run(s, t, temperature):
    """The loss of every row, its gradient in the student, and in the temperature."""

    def loss(s, tau):
        return distillation_kl(student_logits=s, teacher_logits=t, temperature=tau)

    value, pull = jax.vjp(loss, s, temperature)
    return value, *pull(jnp.ones_like(value))


def distill(s, t, temperature=1.0):
    return jax.device_get(run(np.float32(s), np.float32(t), np.float32(temperature)))


def test_by_hand():
    # At tau = 2 the logits halve: teacher (2/3, 1/3), student (1/2, 1/2);
    # 4 (2/3 log 4/3 + 1/3 log 2/3) = 4 (5/3 log 2 - log 3). A class that both exclude
    # adds nothing.
    never = -np.inf
    value, grad, _ = distill([[0, 0, never]], [[*np.log([4, 1]), never]], 2.0)
    np.testing.assert_allclose(value, [4 * (5 / 3 * np.log(2) - np.log(3))], rtol=2e-6)
    assert np.all(np.isfinite(grad))
    # The expectation is under the teacher.
    sure, unsure = [30.0, 0.0, never], [0.0, 0.0, never]
    value, _, _ = distill([unsure, sure], [sure, unsure])
    np.testing.assert_allclose(value, [np.log(2.0), 15.0 - np.log(2.0)], rtol=1e-6)


def test_zero_at_equality_and_positive_elsewhere(pair):
    value, grad, _ = distill(pair[1], pair[1])
    assert not np.any(value)
    np.testing.assert_allclose(grad, np.zeros_like(grad), atol=3e-7)
    assert np.all(distill(*pair)[0] > 0.0)


def test_student_gradient_is_tau_times_the_difference_of_tempered_probabilities(pair):
    s, t = pair
    expected = 3.0 * (reference.softmax(s / 3.0) - reference.softmax(t / 3.0))
    np.testing.assert_allclose(distill(s, t, 3.0)[1], expected, atol=2e-6)


def test_hot_limit_is_logit_matching(pair):
    s, t = pair
    matching = np.sum(((s - t) - np.mean(s - t, -1, keepdims=True)) ** 2, -1) / 20
    # The next term is of order 1 / temperature; float32 adds 1e4 * 1e-7.
    hot = distill(s, t, 100.0)[0]
    np.testing.assert_allclose(hot, matching, rtol=0.05, atol=5e-3)


def test_cold_limit_is_the_hinge_of_the_arg_max(pair):
    s, t = pair
    # tau^2 KL -> tau (max s - s_y) with y the teacher's class: 0 where they agree.
    gap = np.max(s, -1) - np.take_along_axis(s, np.argmax(t, -1)[:, None], -1)[:, 0]
    assert 20 < np.sum(gap > 0) < 64
    cold = distill(s, t, 1e-3)[0]
    np.testing.assert_allclose(cold, 1e-3 * gap, rtol=1e-2, atol=2e-5)


def test_temperature_can_be_differentiated(pair):
    slope = distill(*pair, 2.0)[2]
    below, above = (np.sum(distill(*pair, tau)[0]) for tau in (1.98, 2.02))
    np.testing.assert_allclose(slope, (above - below) / 0.04, rtol=1e-2)


@pytest.mark.parametrize(
    ("temperature", "message"),
    [
        (0.0, "temperature must be positive"),
        (-1.0, "temperature must be positive"),
        (np.ones(64), r"scalar; got shape \(64,\)"),
    ],
)
def test_temperature_must_be_a_positive_scalar(pair, temperature, message):
    roles = {"student_logits": pair[0], "teacher_logits": pair[1]}
    with pytest.raises(ValueError, match=message):
        distillation_kl(**roles, temperature=temperature)


def test_roles_are_keyword_only(pair):
    with pytest.raises(TypeError, match="positional"):
        distillation_kl(*pair)
