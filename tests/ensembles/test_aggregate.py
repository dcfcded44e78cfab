import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import ensembles
from tests.reference_losses import softmax

average_logits, average_probs, gate = map(
    jax.jit, (ensembles.average_logits, ensembles.average_probs, ensembles.gate)
)


@pytest.fixture
def logits(rng):
    return (3 * rng.normal(size=(3, 4, 5))).astype(np.float32)


def test_average_probs_is_the_log_of_the_mean_softmax(logits):
    expected = np.log(np.mean(softmax(logits), axis=0))
    np.testing.assert_allclose(average_probs(logits), expected, rtol=2e-6, atol=1e-6)


def test_average_logits_is_the_mean(logits):
    expected = np.mean(logits.astype(np.float64), axis=0)
    np.testing.assert_allclose(average_logits(logits), expected, atol=1e-6)
    assert average_logits(logits.astype(jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.parametrize("average", [average_probs, average_logits])
def test_extreme_logits_stay_finite_in_value_and_gradient(average):
    z = jnp.array([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]])
    value, gradient = jax.jit(jax.value_and_grad(lambda z: jnp.sum(average(z))))(z)
    assert jnp.isfinite(value) and jnp.all(jnp.isfinite(gradient))


def test_a_class_that_one_member_excludes_keeps_the_others_share():
    z = jnp.array([[[0.0, -jnp.inf]], [[0.0, 0.0]]])
    np.testing.assert_allclose(jnp.exp(average_probs(z)), [[0.75, 0.25]], rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 1), (3, 4)])
def test_gate_mixes_with_one_weight_per_model_or_example(logits, rng, shape):
    weights = rng.dirichlet(np.ones(3), size=shape[1]).T
    mixed = np.broadcast_to(weights, (3, 4))
    expected = np.log(np.einsum("mb,mbc->bc", mixed, softmax(logits)))
    given = np.log(weights if shape == (3, 4) else weights[:, 0]) + 7.0
    got = gate(logits, given)  # weights are normalised
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-6)


def test_gate_that_closes_on_a_model_ignores_it(logits):
    got = gate(logits, np.array([0.0, -np.inf, -np.inf]))
    np.testing.assert_allclose(got, jax.nn.log_softmax(logits[0]), atol=1e-6)


@pytest.mark.parametrize("shape", [(), (4,), (3, 5)])
def test_gate_refuses_weights_of_another_form(logits, shape):
    with pytest.raises(ValueError, match=r"must be \(3,\) or \(3, 4\); got \("):
        gate(logits, np.zeros(shape))


@pytest.mark.parametrize("average", [average_probs, average_logits])
def test_integer_logits_are_refused(average):
    with pytest.raises(TypeError, match="floating"):
        average(jnp.zeros((2, 3), jnp.int32))
