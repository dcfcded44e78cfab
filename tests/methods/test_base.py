"""Batch, ramps, deployment, couplings of zero, samples of members."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.methods import (
    ERM,
    Codistillation,
    EnsembleDistillation,
    MinimumEntropy,
    Ramp,
    Updating,
    deploy,
    old_logits,
    teacher_logits,
)
from tests import reference_losses as reference
from tests.devices import over_devices
from tests.methods import reference as objectives
from tests.methods.cases import batch_of, draw, labels_of, loss_of
from tests.refusals import refusals

VALUES = np.array([[1.0, 2.0, 4.0, 8.0], [3.0, 5.0, 7.0, 9.0]], np.float32)


@pytest.mark.parametrize("kind", [bool, np.int32, np.float32])
def test_masked_sum_and_mean_equal_those_of_the_filtered_rows(kind):
    batch = batch_of(np.zeros(4), np.array([1, 0, 1, 0], kind))
    reduced = jax.jit(lambda b, v: (b.sum(v), b.mean(v), b.mean(v[0])))
    total, mean, first = reduced(batch, VALUES)
    np.testing.assert_array_equal(total, [5.0, 10.0])
    np.testing.assert_array_equal(mean, [2.5, 5.0])
    np.testing.assert_array_equal(first, 2.5)


def test_masked_values_have_zero_gradient_whatever_they_are():
    batch = batch_of(np.zeros(4), np.array([1, 0, 1, 1]))
    total = jax.jit(jax.value_and_grad(lambda v: jnp.sum(batch.mean(v))))
    for junk in (np.nan, np.inf):
        values = VALUES.copy()
        values[:, 1] = junk
        mean, gradient = total(values)
        np.testing.assert_allclose(mean, 13 / 3 + 19 / 3, rtol=1e-6)
        expected = np.tile(np.array([1, 0, 1, 1], np.float32) / np.float32(3), (2, 1))
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_ramps_are_those_of_appendix_c():
    """`min(c t, beta)`, or beta iff t > t_0, at the t-th update, counted from 1."""
    t = np.arange(1, 9)
    expected = {"linear": np.minimum(0.05 * t, 0.2), "step": 0.2 * (t > 4)}
    for kind, values in expected.items():
        got = [Ramp(kind, 4.0)(0.2, s) for s in t - 1]
        np.testing.assert_allclose(got, values, rtol=1e-6)
    for ramp in (Ramp(), Ramp("linear"), Ramp("step")):
        np.testing.assert_array_equal(ramp(0.2, 0), np.float32(0.2))


def test_deployed_is_one_member_or_the_mean_of_probabilities_or_of_logits():
    logits = draw(3, 3, 4, 5)
    expected = {
        ("mean_probs", 0): np.log(np.mean(reference.softmax(logits), axis=0)),
        ("mean_logits", 0): np.mean(logits, axis=0),
        ("member", 0): logits[0],
        ("member", 2): logits[2],
    }
    methods = [ERM(members=3, deploy=how, deployed_member=m) for how, m in expected]
    served = jax.jit(lambda z: [deploy(method, z) for method in methods])
    for found, value in zip(served(np.float32(logits)), expected.values()):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
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


class Mine(ERM):
    """Without `@pytree`."""


BATCH = batch_of(np.zeros(4))

test_what_is_missing_is_named = refusals(
    (Mine, "the class Mine needs the decorator"),
    (partial(teacher_logits, None, BATCH), "the method needs a teacher; none was"),
    (partial(old_logits, None, BATCH), r"an old model; name one in teaching\.o"),
    (partial(Updating().check_old_models, None), "Updating needs an old model"),
    error=(TypeError, ValueError),
)


@jax.jit
def value_and_gradient(method, logits, batch):
    return jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)(logits)


@pytest.mark.parametrize(
    ("kind", "update"), [("cross_entropy", "joint"), ("skl", "independent")]
)
def test_beta_zero_is_exactly_independent_training(kind, update):
    logits, batch = np.float32(draw(6, 2, 8, 5)), batch_of(labels_of(6))
    coupled = Codistillation(beta=0.0, divergence=kind, update=update)
    jax.tree.map(
        np.testing.assert_array_equal,
        value_and_gradient(coupled, logits, batch),
        value_and_gradient(ERM(members=2), logits, batch),
    )


def test_both_ramps_act_on_their_own_coefficient():
    logits, batch = np.float32(draw(7, 2, 8, 5)), batch_of(labels_of(7))
    ramps = {"beta_ramp": Ramp("linear", 20.0), "alpha_ramp": Ramp("step", 4.0)}
    ramped = Codistillation(beta=0.3, alpha=0.2, **ramps)
    for step in (0, 5):
        beta, alpha = 0.3 * (step + 1) / 20, 0.2 if step >= 4 else 0.0
        got = loss_of(ramped, logits, batch, step=step).loss
        expected = loss_of(Codistillation(beta=beta, alpha=alpha), logits, batch).loss
        np.testing.assert_allclose(got, expected, rtol=1e-6)


# ---- members with a bootstrap of their own: counts weigh the labels, nothing else

COUNTS = np.array([[0, 1, 2, 0, 1, 3, 1, 0], [1, 0, 0, 2, 1, 1, 0, 4]], np.float32)
TWIN = Codistillation(beta=0.4, alpha=0.2, member_sample="bootstrap")
BAGGED = [ERM(members=2, member_sample="bootstrap"), TWIN]


def sampled(labels, counts=COUNTS, mask=None):
    return batch_of(labels, mask).replace(member_weights=counts)


@pytest.mark.parametrize("mask", [None, np.float32([1, 1, 0, 1, 1, 1, 1, 0])])
def test_bagging_weighs_each_members_cross_entropy(mask):
    """1/n sum_i k_mi CE(y_i, f_m(x_i)) with n examples, not the sum of the counts."""
    logits, labels = np.float32(draw(0, 2, 8, 5)), labels_of(0)
    rows = np.flatnonzero(np.ones(8) if mask is None else mask)
    expected = sum(
        np.sum((c * reference.cross_entropy(z, labels))[rows]) / len(rows)
        for c, z in zip(COUNTS, logits)
    )
    out = loss_of(BAGGED[0], logits, sampled(labels, mask=mask))
    np.testing.assert_allclose(out.loss, expected, rtol=1e-6)


def test_a_twin_bootstrap_is_coupled_on_the_whole_common_batch():
    logits, labels = np.float32(draw(1, 2, 8, 5)), labels_of(1)
    out = loss_of(TWIN, logits, sampled(labels))
    wide = logits.astype(float)
    bags = loss_of(BAGGED[0], logits, sampled(labels)).loss
    apart = np.mean(objectives.disagreement(wide, wide, "skl"))
    entropies = np.mean(sum(reference.entropy(z) for z in wide))
    np.testing.assert_allclose(out.terms["cross_entropy"], bags, rtol=1e-6)
    np.testing.assert_allclose(out.terms["skl"], apart, rtol=3e-6)
    expected = bags + 0.4 * apart + 0.2 * entropies
    np.testing.assert_allclose(out.loss, expected, rtol=3e-6)


@pytest.mark.parametrize("method", BAGGED, ids=lambda m: type(m).__name__)
def test_labels_that_a_member_does_not_hold_do_not_reach_it(method):
    """Whatever they are, even if no class has that number: bitwise the same."""
    logits, labels = np.float32(draw(2, 2, 8, 5)), labels_of(2)
    _, before = value_and_gradient(method, logits, sampled(labels))
    for member in range(2):
        changed = labels.copy()
        absent = COUNTS[member] == 0
        changed[absent] = (labels[absent] + 1) % 5
        _, after = value_and_gradient(method, logits, sampled(changed))
        np.testing.assert_array_equal(after[member], before[member])
        assert np.max(np.abs(after[1 - member] - before[1 - member])) > 0.01
        nobody = changed.copy()
        nobody[absent] = 99  # its cross-entropy is NaN
        _, gone = value_and_gradient(method, logits, sampled(nobody))
        np.testing.assert_array_equal(gone[member], before[member])


@pytest.mark.parametrize("method", BAGGED, ids=lambda m: type(m).__name__)
def test_counts_of_one_are_the_shared_training_set(method):
    logits, labels = np.float32(draw(3, 2, 8, 5)), labels_of(3)
    ones = value_and_gradient(method, logits, sampled(labels, np.ones_like(COUNTS)))
    shared = method.replace(member_sample="shared")
    plain = value_and_gradient(shared, logits, batch_of(labels))
    jax.tree.map(np.testing.assert_array_equal, ones, plain)


def test_the_mean_is_over_the_examples_of_all_shards():
    values = np.where(COUNTS > 0, np.float32(draw(4, 2, 8)), np.nan)
    mask = np.float32([1, 1, 1, 0, 1, 1, 0, 1])

    def local(values, counts, mask):
        shard = batch_of(jnp.zeros(2), mask, axis_name="data")
        return shard.replace(member_weights=counts).member_mean(values)

    members = P(None, "data")
    mean = over_devices(local, members, members, P("data"), devices=4)(
        values, COUNTS, mask
    )
    np.testing.assert_allclose(mean, np.nansum(values * COUNTS * mask, 1) / 6, 1e-6)
