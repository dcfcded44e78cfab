"""The Dirichlet student: worked example, scipy, its mean, high precision, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import dirichlet

from churn_jax.losses import dirichlet_nll
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def test_by_hand():
    # Dir(2, 1) has the density 2 p_1; the teachers say 1/2 and 1/4 without smoothing.
    value = dirichlet_nll(
        student_logits=jnp.log(jnp.array([2.0, 1.0])),
        teacher_logits=jnp.log(jnp.array([[1.0, 1.0], [1.0, 3.0]])),
        smoothing=0.0,
    )
    np.testing.assert_allclose(value, 0.5 * np.log(2.0), rtol=2e-6)


def test_smoothing_mixes_with_the_uniform_distribution():
    # The sure teacher becomes 0.8 (1, 0) + 0.2 (1/2, 1/2) = (0.9, 0.1).
    value = dirichlet_nll(
        student_logits=jnp.log(jnp.array([2.0, 1.0])),
        teacher_logits=jnp.array([[200.0, 0.0]]),
        smoothing=0.2,
    )
    np.testing.assert_allclose(value, -np.log(1.8), rtol=2e-6)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_equals_scipy(rng, temperature):
    s = rng.normal(scale=2.0, size=(8, 5)).astype(np.float32)
    t = rng.normal(scale=2.0, size=(3, 8, 5)).astype(np.float32)
    p = 0.99 * reference.softmax(t / temperature) + 0.01 / 5
    a = np.exp(np.float64(s) / temperature)
    expected = [
        -np.mean([dirichlet.logpdf(p[m, i] / p[m, i].sum(), a[i]) for m in range(3)])
        for i in range(8)
    ]
    value = dirichlet_nll(
        student_logits=s, teacher_logits=t, temperature=temperature, smoothing=0.01
    )
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-5)


def test_one_teacher_is_followed_by_the_mean(rng):
    """At high precision the best Dirichlet has its mean at the teacher."""
    t = jnp.asarray(rng.normal(size=(1, 4, 5)).astype(np.float32))

    def loss(s):
        return jnp.sum(dirichlet_nll(student_logits=s, teacher_logits=t, smoothing=0.0))

    grad = jax.grad(loss)(t[0] + 9.0)
    # The mode, not the mean, is where the density is largest: one count per class.
    away = jax.grad(loss)(t[0] + 9.0 + 0.1 * jnp.eye(4, 5))
    assert jnp.max(jnp.abs(grad)) < 2.0
    assert jnp.min(jnp.max(jnp.abs(away), -1)) > 40.0


def test_teachers_that_differ_ask_for_less_precision(rng):
    agree = jnp.asarray(rng.normal(size=(1, 1, 5)).astype(np.float32))
    noise = jnp.asarray(rng.normal(size=(4, 1, 5)).astype(np.float32))

    def push(teachers):  # along a shift of all logits; negative raises the precision
        grads = jax.grad(
            lambda s: jnp.sum(dirichlet_nll(student_logits=s, teacher_logits=teachers))
        )(agree[0] + 3.0)
        return jnp.sum(grads)

    assert push(agree + 0.01 * noise) < 0 < push(agree + noise)


def test_high_precision_keeps_its_digits():
    # lgamma(1e6) is 1e7, of which float32 keeps ones: the naive sum is off by several.
    s = np.log(np.array([[3e5, 6e5, 1e5], [2e6, 5e5, 5e5]])).astype(np.float32)
    expected = reference.dirichlet_nll(s, s[None], smoothing=0.0)
    value = dirichlet_nll(student_logits=s, teacher_logits=s[None], smoothing=0.0)
    # What is left is the precision times the rounding of log probabilities.
    np.testing.assert_allclose(value, expected, atol=0.5)
    assert jnp.all(value < -10.0)


def test_low_precision_and_both_sides_of_the_series():
    s = np.log(np.array([[1e-6, 1e-3, 0.5], [7.99, 8.01, 8.0]])).astype(np.float32)
    t = np.float32([[[1.0, 0.0, 0.5]] * 2])
    np.testing.assert_allclose(
        dirichlet_nll(student_logits=s, teacher_logits=t),
        reference.dirichlet_nll(s, t),
        rtol=2e-6,
        atol=5e-6,
    )


def test_finite_and_pulled_back_beyond_the_largest_concentration():
    s = jnp.array([[500.0, 0.0, 3.0], [-500.0, -600.0, -550.0], [40.0, 39.0, 0.0]])
    t = jnp.array([[[1.0, 0.0, 0.0]] * 3])
    value, grad = jax.jit(
        jax.vmap(
            jax.value_and_grad(
                lambda s, t: dirichlet_nll(student_logits=s, teacher_logits=t)
            ),
            in_axes=(0, 1),
        )
    )(s, t)
    assert jnp.all(jnp.isfinite(value))
    assert jnp.all(jnp.isfinite(jnp.square(grad)))
    assert grad[0, 0] > 1e9  # a wrong and far too precise student comes down
    assert jnp.sum(grad[1]) < -1.0  # one without any precision goes up


def test_the_factor_is_smooth_at_the_largest_concentration():
    t = jnp.array([[0.0, 1.0]])
    gradient = jax.grad(
        lambda x: (
            dirichlet_nll(student_logits=jnp.stack([x, x - 1.0]), teacher_logits=t)
            / jnp.exp(30.0)
        )
    )
    at = jax.jit(jax.vmap(gradient))(jnp.array([29.999, 30.001]))
    np.testing.assert_allclose(at[0], at[1], rtol=3e-3)


def test_temperature_and_smoothing_can_be_swept(rng):
    s = rng.normal(size=(4, 5)).astype(np.float32)
    t = rng.normal(size=(2, 4, 5)).astype(np.float32)

    def at(temperature, smoothing):
        return dirichlet_nll(
            student_logits=s,
            teacher_logits=t,
            temperature=temperature,
            smoothing=smoothing,
        )

    swept = jax.jit(jax.vmap(at))(jnp.array([1.0, 4.0]), jnp.array([0.0, 1e-3]))
    np.testing.assert_allclose(
        swept, jnp.stack([at(1.0, 0.0), at(4.0, 1e-3)]), rtol=1e-5, atol=1e-5
    )


def test_errors_name_the_argument():
    s, t = jnp.zeros((4, 3)), jnp.zeros((2, 4, 3))
    with pytest.raises(ValueError, match=r"\[T, \.\.\., C\].*\(4, 3\) over \(4, 3\)"):
        dirichlet_nll(student_logits=s, teacher_logits=s)
    with pytest.raises(ValueError, match="at least one teacher"):
        dirichlet_nll(student_logits=s, teacher_logits=t[:0])
    with pytest.raises(ValueError, match=r"one teacher must.*\(4, 3\) and \(4, 2\)"):
        dirichlet_nll(student_logits=s, teacher_logits=t[..., :2])
    with pytest.raises(ValueError, match="temperature must be positive"):
        dirichlet_nll(student_logits=s, teacher_logits=t, temperature=0.0)
    with pytest.raises(ValueError, match=r"temperature must be a scalar.*\(4,\)"):
        dirichlet_nll(student_logits=s, teacher_logits=t, temperature=jnp.ones(4))
    with pytest.raises(ValueError, match=r"smoothing must be between 0 and 1; got 1.5"):
        dirichlet_nll(student_logits=s, teacher_logits=t, smoothing=1.5)
    with pytest.raises(TypeError, match="positional"):
        dirichlet_nll(s, t)
