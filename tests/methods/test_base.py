"""Batch, Ramp, deployment and the checks that every method shares."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.ensembles import Outputs
from churn_jax.methods import (
    ERM,
    Codistillation,
    EnsembleDistillation,
    Method,
    MinimumEntropy,
    Ramp,
    Updating,
    deploy,
    forward,
    old_logits,
    teacher_logits,
)
from tests import reference_losses as reference
from tests.methods.cases import batch_of, draw, known_logits

VALUES = np.array([[1.0, 2.0, 4.0, 8.0], [3.0, 5.0, 7.0, 9.0]], np.float32)


@pytest.mark.parametrize("kind", [bool, np.int32, np.float32])
def test_masked_sum_and_mean_equal_those_of_the_filtered_rows(kind):
    batch = batch_of(np.zeros(4), np.array([1, 0, 1, 0], kind))
    np.testing.assert_array_equal(batch.sum(VALUES), [5.0, 10.0])
    np.testing.assert_array_equal(batch.mean(VALUES), [2.5, 5.0])
    np.testing.assert_array_equal(batch.mean(VALUES[0]), 2.5)


@pytest.mark.parametrize("junk", [np.nan, np.inf])
def test_masked_values_have_zero_gradient_whatever_they_are(junk):
    batch = batch_of(np.zeros(4), np.array([1, 0, 1, 1]))
    values = VALUES.copy()
    values[:, 1] = junk
    total = jax.jit(jax.value_and_grad(lambda v: jnp.sum(batch.mean(v))))
    mean, gradient = total(values)
    np.testing.assert_allclose(mean, 13 / 3 + 19 / 3, rtol=1e-6)
    expected = np.tile(np.array([1, 0, 1, 1], np.float32) / np.float32(3), (2, 1))
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize("where", ["images", "logits"])
def test_forward_hides_padding_on_both_sides_of_the_network(where):
    """A linear network's weight gradient is input times cotangent: 0 * nan is nan."""
    images = draw(0, 4, 3).astype(np.float32)
    weights = draw(1, 2, 3, 5).astype(np.float32)
    offset = np.zeros((2, 4, 5), np.float32)
    if where == "images":
        images[3] = np.nan
    else:
        offset[:, 3] = np.nan
    mask = np.array([1, 1, 1, 0])

    def network(variables, x, train=True):
        logits = jnp.einsum("bd,mdc->mbc", x, variables)
        return Outputs(logits + offset[:, : len(x)]), {}

    def loss(weights, images, mask):
        batch = batch_of(np.zeros(len(mask)), mask).replace(images=images)
        logits, _, _ = forward(network, weights, batch)
        return jnp.sum(batch.mean(jax.nn.logsumexp(logits, axis=-1)))

    value, gradient = jax.jit(jax.value_and_grad(loss))(weights, images, mask)
    clean = jax.jit(jax.value_and_grad(loss))(weights, images[:3], mask[:3])
    np.testing.assert_allclose(value, clean[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, clean[1], atol=1e-6)


def test_ramps_are_those_of_appendix_c():
    """`min(c t, beta)`, or beta iff t > t_0, at the t-th update, counted from 1."""
    t = np.arange(1, 9)
    expected = {"linear": np.minimum(0.05 * t, 0.2), "step": 0.2 * (t > 4)}
    for kind, values in expected.items():
        got = [Ramp(kind, 4.0)(0.2, s) for s in t - 1]
        np.testing.assert_allclose(got, values, rtol=1e-6)
    for ramp in (Ramp(), Ramp("constant", 5.0), Ramp("linear"), Ramp("step")):
        np.testing.assert_array_equal(ramp(0.2, 0), np.float32(0.2))


@pytest.mark.parametrize("kind", ["constant", "linear", "step"])
def test_ramps_take_traced_steps_and_coefficients_per_replica(kind):
    values, steps = jnp.array([0.1, 0.2, 0.4]), jnp.array([0, 2, 9])
    ramp = Ramp(kind, jnp.array([2.0, 4.0, 8.0]))
    together = jax.jit(jax.vmap(lambda r, v, s: r(v, s)))(ramp, values, steps)
    one = jax.jit(lambda n, v, s: Ramp(kind, n)(v, s))
    alone = [one(n, v, s) for n, v, s in zip([2.0, 4.0, 8.0], values, steps)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_traced_coefficients_are_not_looked_at():
    total = jax.jit(lambda b: Codistillation(beta=b).beta + 1.0)(jnp.float32(2.0))
    assert total == 3.0


def test_base_method_says_that_it_has_no_loss():
    with pytest.raises(TypeError, match="Method defines no loss"):
        Method().loss(known_logits, {}, batch_of([0]), teacher=None, step=0, key=None)


def test_deployed_is_one_member_or_the_mean_of_probabilities_or_of_logits():
    logits = draw(3, 3, 4, 5)
    expected = {
        ("mean_probs", 0): np.log(np.mean(reference.softmax(logits), axis=0)),
        ("mean_logits", 0): np.mean(logits, axis=0),
        ("member", 0): logits[0],
        ("member", 2): logits[2],
    }
    for (how, member), value in expected.items():
        method = ERM(members=3, deploy=how, deployed_member=member)
        served = deploy(method, jnp.float32(logits))
        np.testing.assert_allclose(served, value, rtol=1e-5, atol=1e-6)
    one = jnp.float32(logits[:1])  # serves its own bits
    np.testing.assert_array_equal(deploy(ERM(), one), one[0])
    assert deploy(ERM(), one.astype(jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.parametrize(
    ("method", "served"),
    [
        (ERM(members=3), "mean_probs"),
        (MinimumEntropy(members=3), "mean_probs"),
        (EnsembleDistillation(members=3), "mean_probs"),
        (Codistillation(members=3), "member"),  # the paper's
    ],
    ids=lambda value: type(value).__name__,
)
def test_several_networks_serve_their_mean_unless_the_method_is_of_peers(
    method, served
):
    logits = jnp.float32(draw(5, 3, 4, 5))
    said = dataclasses.replace(method, deploy=served)
    np.testing.assert_array_equal(deploy(method, logits), deploy(said, logits))
    assert method.inference_cost == (1.0 if served == "member" else 3.0)
    assert method.deploys_a_mean is (served != "member")


def test_a_method_without_the_decorator_says_so():
    class Mine(ERM):
        """Without `@pytree`."""

    with pytest.raises(TypeError, match="the class Mine needs the decorator"):
        Mine()


def test_a_method_without_its_teacher_says_so():
    batch = batch_of(np.zeros(4), np.ones(4))
    with pytest.raises(ValueError, match="the method needs a teacher; none was given"):
        teacher_logits(None, batch)
    with pytest.raises(ValueError, match=r"needs an old model; name one in teaching.o"):
        old_logits(None, batch)
    with pytest.raises(ValueError, match="Updating needs an old model"):
        Updating().check_old_models(None)
