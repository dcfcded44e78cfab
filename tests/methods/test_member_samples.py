"""Members with a bootstrap of their own: counts weigh the labels, nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.methods import ERM, Codistillation
from tests import reference_losses as reference
from tests.devices import over_devices
from tests.methods import reference as objectives
from tests.methods.cases import batch_of, draw, labels_of, loss_of

COUNTS = np.array([[0, 1, 2, 0, 1, 3, 1, 0], [1, 0, 0, 2, 1, 1, 0, 4]], np.float32)
TWIN = Codistillation(beta=0.4, alpha=0.2, member_sample="bootstrap")
METHODS = [ERM(members=2, member_sample="bootstrap"), TWIN]


def batch(labels, counts=COUNTS, mask=None):
    return batch_of(labels, mask).replace(member_weights=counts)


@jax.jit
def value_and_gradient(method, logits, batch):
    return jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)(logits)


@pytest.mark.parametrize("mask", [None, np.float32([1, 1, 0, 1, 1, 1, 1, 0])])
def test_bagging_weighs_each_members_cross_entropy(mask):
    """1/n sum_i k_mi CE(y_i, f_m(x_i)) with n examples, not the sum of the counts."""
    logits, labels = np.float32(draw(0, 2, 8, 5)), labels_of(0)
    rows = np.flatnonzero(np.ones(8) if mask is None else mask)
    expected = sum(
        np.sum((c * reference.cross_entropy(z, labels))[rows]) / len(rows)
        for c, z in zip(COUNTS, logits)
    )
    out = loss_of(METHODS[0], logits, batch(labels, mask=mask))
    np.testing.assert_allclose(out.loss, expected, rtol=1e-6)


def test_a_twin_bootstrap_is_coupled_on_the_whole_common_batch():
    logits, labels = np.float32(draw(1, 2, 8, 5)), labels_of(1)
    out = loss_of(TWIN, logits, batch(labels))
    wide = logits.astype(float)
    bags = loss_of(METHODS[0], logits, batch(labels)).loss
    apart = np.mean(objectives.disagreement(wide, wide, "skl"))
    entropies = np.mean(sum(reference.entropy(z) for z in wide))
    np.testing.assert_allclose(out.terms["cross_entropy"], bags, rtol=1e-6)
    np.testing.assert_allclose(out.terms["skl"], apart, rtol=3e-6)
    expected = bags + 0.4 * apart + 0.2 * entropies
    np.testing.assert_allclose(out.loss, expected, rtol=3e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_labels_that_a_member_does_not_hold_do_not_reach_it(method):
    """Whatever they are, even if no class has that number: bitwise the same."""
    logits, labels = np.float32(draw(2, 2, 8, 5)), labels_of(2)
    _, before = value_and_gradient(method, logits, batch(labels))
    for member in range(2):
        changed = labels.copy()
        absent = COUNTS[member] == 0
        changed[absent] = (labels[absent] + 1) % 5
        _, after = value_and_gradient(method, logits, batch(changed))
        np.testing.assert_array_equal(after[member], before[member])
        assert np.max(np.abs(after[1 - member] - before[1 - member])) > 0.01
        nobody = changed.copy()
        nobody[absent] = 99  # its cross-entropy is NaN
        _, gone = value_and_gradient(method, logits, batch(nobody))
        np.testing.assert_array_equal(gone[member], before[member])


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_counts_of_one_are_the_shared_training_set(method):
    logits, labels = np.float32(draw(3, 2, 8, 5)), labels_of(3)
    ones = value_and_gradient(method, logits, batch(labels, np.ones_like(COUNTS)))
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
    np.testing.assert_allclose(
        mean, np.nansum(values * COUNTS * mask, 1) / 6, rtol=1e-6
    )
