"""Cross-entropy and binary logits: worked examples, limits and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from churn_jax.losses import binary_logits, cross_entropy, entropy
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def test_cross_entropy_by_hand():
    # e^z = (2, 1, 1): probabilities 1/2, 1/4, 1/4; -log of them is log 2 and 2 log 2.
    z = jnp.log(jnp.array([[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]))
    np.testing.assert_allclose(
        cross_entropy(z, jnp.array([0, 2])), [0.69314718, 1.38629436], rtol=1e-6
    )


def test_cross_entropy_sees_each_examples_label(rng):
    z = rng.normal(size=(2, 16, 12)).astype(np.float32)
    y = rng.integers(12, size=(2, 16)).astype(np.int32)
    np.testing.assert_allclose(
        cross_entropy(jnp.asarray(z), jnp.asarray(y)),
        reference.cross_entropy(z, y),
        rtol=2e-6,
    )


def test_cross_entropy_equals_optax(rng):
    z = jnp.asarray(rng.normal(size=(64, 7)), jnp.float32)
    y = jnp.asarray(rng.integers(7, size=64), jnp.int32)
    expected = optax.softmax_cross_entropy_with_integer_labels(z, y)
    np.testing.assert_allclose(cross_entropy(z, y), expected, rtol=2e-6, atol=2e-7)


def test_cross_entropy_keeps_its_digits_at_huge_logits():
    z = jnp.array([10000.0, 9999.0])
    expected = np.log1p(np.exp(-1.0))
    np.testing.assert_allclose(cross_entropy(z, jnp.int32(0)), expected, rtol=1e-6)


def test_cross_entropy_gradient_is_probability_minus_label(rng):
    z = jnp.asarray(rng.normal(size=(16, 5)), jnp.float32)
    y = jnp.asarray(rng.integers(5, size=16), jnp.int32)
    grad = jax.grad(lambda z: jnp.sum(cross_entropy(z, y)))(z)
    np.testing.assert_allclose(
        grad, jax.nn.softmax(z) - jax.nn.one_hot(y, 5), atol=3e-7
    )


def test_cross_entropy_ignores_impossible_classes():
    z, y = jnp.array([[1.0, 0.0, -jnp.inf]]), jnp.array([0])
    value, grad = jax.value_and_grad(lambda z: jnp.sum(cross_entropy(z, y)))(z)
    np.testing.assert_allclose(value, np.log1p(np.exp(-1.0)), rtol=1e-6)
    np.testing.assert_allclose(grad[0], [-0.26894143, 0.26894143, 0.0], atol=1e-6)


def test_cross_entropy_reads_wide_and_narrow_label_types(rng):
    z = jnp.asarray(rng.normal(size=(16, 5)), jnp.float32)
    y = rng.integers(5, size=16)
    narrow = cross_entropy(z, jnp.asarray(y, jnp.uint8))
    np.testing.assert_array_equal(narrow, cross_entropy(z, jnp.asarray(y, jnp.int32)))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.zeros(3, np.int32), ValueError, r"\(4,\); got \(3,\).*\(4, 5\)"),
        (np.zeros((4, 5), np.int32), ValueError, r"\(4,\); got \(4, 5\)"),
        (np.zeros(4, np.float32), TypeError, "labels must be integers; got float32"),
    ],
)
def test_labels_that_do_not_fit_are_errors(labels, error, message):
    with pytest.raises(error, match=message):
        cross_entropy(jnp.zeros((4, 5)), jnp.asarray(labels))


def test_a_label_beyond_the_classes_is_nan_not_another_class():
    assert jnp.isnan(cross_entropy(jnp.zeros(3), jnp.int32(3)))


def test_binary_logits_are_the_logistic_model(rng):
    z = jnp.asarray(rng.normal(scale=5, size=(4, 6)), jnp.float32)
    out = binary_logits(z)
    assert out.shape == (4, 6, 2)
    np.testing.assert_allclose(
        jax.nn.softmax(out)[..., 1], jax.nn.sigmoid(z), rtol=2e-6
    )
    np.testing.assert_allclose(
        cross_entropy(out, jnp.ones((4, 6), jnp.int32)),
        optax.sigmoid_binary_cross_entropy(z, jnp.ones_like(z)),
        rtol=2e-6,
        atol=2e-7,
    )


def test_binary_entropy_is_largest_at_score_zero():
    z = jnp.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    h = entropy(binary_logits(z))
    np.testing.assert_allclose(h[2], np.log(2.0), rtol=1e-6)
    np.testing.assert_allclose(h[:2], h[:2:-1], rtol=2e-6)
    assert h[0] < h[1] < h[2]


def test_binary_logits_type():
    assert binary_logits(jnp.zeros(3, jnp.bfloat16)).dtype == jnp.float32
    with pytest.raises(TypeError, match="log-odds; got int32"):
        binary_logits(jnp.zeros(3, jnp.int32))
