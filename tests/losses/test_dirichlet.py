"""The Dirichlet student: worked example, scipy, its mean, high precision, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import dirichlet

from churn_jax.losses import dirichlet_nll
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

ROWS, TEACHERS = 4, 3  # of every call, so that one program serves a number of classes


@jax.jit
def run(s, t, temperature, smoothing):
    def loss(s):
        return dirichlet_nll(
            student_logits=s,
            teacher_logits=t,
            temperature=temperature,
            smoothing=smoothing,
        )

    value, pull = jax.vjp(loss, s)
    return value, pull(jnp.ones_like(value))[0]


def nll(s, t, temperature=1.0, smoothing=1e-4):
    """Value and gradient of up to four rows `[B, C]` for `[T, B, C]`, T 1 or 3."""
    s, t = np.float32(s), np.float32(t)
    rows = np.arange(ROWS) % len(s)
    teachers = np.broadcast_to(t[:, rows], (TEACHERS, ROWS, s.shape[-1]))
    found = run(s[rows], teachers, np.float32(temperature), np.float32(smoothing))
    return [np.asarray(x)[: len(s)] for x in found]


def test_by_hand():
    # Dir(2, 1) has the density 2 p_1; the teachers say 1/2, 1/4 and 1/4.
    s = np.log([[2.0, 1.0]])
    value, _ = nll(s, np.log([[[1.0, 1.0]], [[1.0, 3.0]], [[1.0, 3.0]]]), smoothing=0.0)
    np.testing.assert_allclose(value, [2 / 3 * np.log(2.0)], rtol=2e-6)
    # Smoothed, the sure teacher is 0.8 (1, 0) + 0.2 (1/2, 1/2) = (0.9, 0.1).
    value, _ = nll(s, [[[200.0, 0.0]]], smoothing=0.2)
    np.testing.assert_allclose(value, [-np.log(1.8)], rtol=2e-6)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_equals_scipy(rng, temperature):
    s = rng.normal(scale=2.0, size=(4, 5)).astype(np.float32)
    t = rng.normal(scale=2.0, size=(3, 4, 5)).astype(np.float32)
    p = 0.99 * reference.softmax(t / temperature) + 0.01 / 5
    a = np.exp(np.float64(s) / temperature)
    expected = [
        -np.mean([dirichlet.logpdf(p[m, i] / p[m, i].sum(), a[i]) for m in range(3)])
        for i in range(4)
    ]
    value, _ = nll(s, t, temperature, smoothing=0.01)
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-5)


def test_one_teacher_is_followed_by_the_mean(rng):
    """At high precision the best Dirichlet has its mean at the teacher."""
    t = rng.normal(size=(1, 4, 5))
    _, grad = nll(t[0] + 9.0, t, smoothing=0.0)
    # The mode, not the mean, is where the density is largest: one count per class.
    _, away = nll(t[0] + 9.0 + 0.1 * np.eye(4, 5), t, smoothing=0.0)
    assert np.max(np.abs(grad)) < 2.0
    assert np.min(np.max(np.abs(away), -1)) > 40.0


def test_teachers_that_differ_ask_for_less_precision(rng):
    agree, noise = rng.normal(size=(1, 1, 5)), rng.normal(size=(3, 1, 5))

    def push(teachers):  # along a shift of all logits; negative raises the precision
        return np.sum(nll(agree[0] + 3.0, teachers)[1])

    assert push(agree + 0.01 * noise) < 0 < push(agree + noise)


def test_high_precision_keeps_its_digits():
    # lgamma(1e6) is 1e7, of which float32 keeps ones: the naive sum is off by several.
    s = np.log(np.array([[3e5, 6e5, 1e5], [2e6, 5e5, 5e5]])).astype(np.float32)
    value, _ = nll(s, s[None], smoothing=0.0)
    # What is left is the precision times the rounding of log probabilities.
    expected = reference.dirichlet_nll(s, s[None], smoothing=0.0)
    np.testing.assert_allclose(value, expected, atol=0.5)
    assert np.all(value < -10.0)


def test_low_precision_and_both_sides_of_the_series():
    s = np.log(np.array([[1e-6, 1e-3, 0.5], [7.99, 8.01, 8.0]])).astype(np.float32)
    t = np.float32([[[1.0, 0.0, 0.5]] * 2])
    expected = reference.dirichlet_nll(s, t)
    np.testing.assert_allclose(nll(s, t)[0], expected, rtol=2e-6, atol=5e-6)


def test_finite_and_pulled_back_beyond_the_largest_concentration():
    s = [[500.0, 0.0, 3.0], [-500.0, -600.0, -550.0], [40.0, 39.0, 0.0]]
    value, grad = nll(s, [[[1.0, 0.0, 0.0]] * 3])
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(np.square(grad)))
    assert grad[0, 0] > 1e9  # a wrong and far too precise student comes down
    assert np.sum(grad[1]) < -1.0  # one without any precision goes up
    # The factor is smooth at the largest concentration, e^30.
    _, grad = nll([[29.999, 28.999], [30.001, 29.001]], [[[0.0, 1.0]] * 2])
    below, above = np.sum(grad / np.exp(30.0), -1)
    np.testing.assert_allclose(below, above, rtol=3e-3)


S, T = np.zeros((4, 3), np.float32), np.zeros((2, 4, 3), np.float32)


@pytest.mark.parametrize(
    ("teacher", "options", "message"),
    [
        (S, {}, r"\[T, \.\.\., C\].*\(4, 3\) over \(4, 3\)"),
        (T[:0], {}, "at least one teacher"),
        (T[..., :2], {}, r"one teacher must.*\(4, 3\) and \(4, 2\)"),
        (T, {"temperature": 0.0}, "temperature must be positive"),
        (T, {"temperature": np.ones(4)}, r"temperature must be a scalar.*\(4,\)"),
        (T, {"smoothing": 1.5}, r"smoothing must be between 0 and 1; got 1.5"),
    ],
)
def test_errors_name_the_argument(teacher, options, message):
    with pytest.raises(ValueError, match=message):
        dirichlet_nll(student_logits=S, teacher_logits=teacher, **options)
