"""Cross-entropy and binary logits: worked examples, limits and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.losses import binary_logits, cross_entropy, entropy
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")


@jax.jit
def value_and_gradient(z, y):
    value, pull = jax.vjp(lambda z: cross_entropy(z, y), z)
    return value, pull(jnp.ones_like(value))[0]


def test_cross_entropy_by_hand_and_at_its_limits():
    z = [
        np.log([2.0, 1.0, 1.0]),  # probabilities 1/2, 1/4, 1/4
        np.log([2.0, 1.0, 1.0]),
        [10000.0, 9999.0, -np.inf],  # huge logits keep their digits
        [0.0, 0.0, 0.0],
    ]
    labels = np.array([0, 2, 0, 3])  # the last is not a class
    value, grad = value_and_gradient(np.float32(z), labels)
    expected = [np.log(2), 2 * np.log(2), np.log1p(np.exp(-1)), np.nan]
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    # An impossible class adds nothing and receives nothing.
    np.testing.assert_allclose(grad[2], [-0.26894143, 0.26894143, 0.0], atol=1e-6)


def test_cross_entropy_and_its_gradient_see_each_examples_label(rng):
    z = rng.normal(size=(2, 16, 12)).astype(np.float32)
    y = rng.integers(12, size=(2, 16)).astype(np.uint8)
    value, grad = value_and_gradient(z, y)
    np.testing.assert_allclose(value, reference.cross_entropy(z, y), rtol=2e-6)
    np.testing.assert_allclose(grad, reference.softmax(z) - np.eye(12)[y], atol=3e-7)


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
        cross_entropy(np.zeros((4, 5), np.float32), labels)


def test_binary_logits_are_the_logistic_model():
    @jax.jit
    def run(z):
        logits = binary_logits(z)
        clicked = cross_entropy(logits, jnp.ones(z.shape, jnp.int32))
        return logits, clicked, entropy(logits)

    z = np.float32([[-3.0, -1.0, 0.0], [3.0, 1.0, 0.0]])
    logits, clicked, uncertainty = run(z)
    np.testing.assert_array_equal(logits, np.stack([np.zeros_like(z), z], -1))
    np.testing.assert_allclose(clicked, np.logaddexp(0, -z), rtol=2e-6)
    np.testing.assert_allclose(uncertainty[0], uncertainty[1], rtol=2e-6)
    assert uncertainty[0, 0] < uncertainty[0, 1] < uncertainty[0, 2]
    np.testing.assert_allclose(uncertainty[0, 2], np.log(2.0), rtol=1e-6)
    assert binary_logits(jnp.zeros(3, jnp.bfloat16)).dtype == jnp.float32
    with pytest.raises(TypeError, match="log-odds; got int32"):
        binary_logits(np.zeros(3, np.int32))
