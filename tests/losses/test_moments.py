"""Running moments, and Gram-Schmidt over the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import losses
from tests import reference_losses as reference
from tests.devices import over_devices

pytestmark = pytest.mark.usefixtures("strict_dtypes")

M, B, C = 3, 8, 2


def draw(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.normal(size=(M, 1, C)), 1.0, (M, B, C)).astype(np.float32)


@jax.jit
def update(state, z, decay, mask):
    return state.update(z, decay, mask)


@jax.jit
def penalties(z, state, decay, mask):
    """The penalty, its gradient and the new state, for both kinds."""

    def one(centred):
        def loss(z):
            return losses.running_correlation_penalty(
                z, state, decay, mask, centred=centred
            )

        (value, new), grad = jax.value_and_grad(loss, has_aux=True)(z)
        return value, grad, new

    return one(False), one(True)


ALL = np.ones(B, np.float32)
EMPTY = losses.MomentState.empty(M, (C,))


def after(*batches, decay=0.5):
    state = EMPTY
    for z in batches:
        state = update(state, z, decay, ALL)
    return state


def leaves(*states):
    return zip(*map(jax.tree.leaves, states), strict=True)


@pytest.mark.parametrize("decay", [0.3, 0.9, 0.999])
def test_equals_the_weighted_history(decay):
    batches = [draw(seed) for seed in range(5)]
    state = after(*batches[:-1], decay=decay)
    results = penalties(batches[-1], state, decay, ALL)
    for centred, (value, _, new) in zip((False, True), results):
        expected = reference.running_correlation_penalty(batches, decay, centred)
        np.testing.assert_allclose(value, expected, rtol=2e-5)
        for a, b in leaves(new, after(*batches, decay=decay)):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


PLAIN = [
    jax.jit(jax.value_and_grad(loss))
    for loss in (losses.correlation_penalty, losses.covariance_penalty)
]


def test_decay_zero_and_the_first_batch_are_the_plain_penalty():
    z = draw(5)
    for plain, (value, grad, _) in zip(
        PLAIN, penalties(z, after(draw(6), draw(7)), 0.0, ALL)
    ):
        expected, gradient = plain(z)
        np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(grad, gradient)
    overflown = after(1e30 * draw(6))
    for plain, (value, grad, _) in zip(PLAIN, penalties(z, overflown, 0.0, ALL)):
        np.testing.assert_array_equal(value, plain(z)[0])
        np.testing.assert_array_equal(grad, plain(z)[1])
    for decay in (0.5, 0.999):
        value, grad, _ = penalties(z, EMPTY, decay, ALL)[0]
        expected, gradient = PLAIN[0](z)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(grad, gradient, rtol=1e-5, atol=1e-6)


def test_nothing_flows_into_the_state_or_out_of_it():
    state = after(draw(10))

    def through_old(state):
        return losses.running_correlation_penalty(draw(11), state, 0.5).penalty

    def through_new(z):
        new = losses.running_correlation_penalty(z, state, 0.5).state
        return sum(jnp.sum(x) for x in jax.tree.leaves((new, state.update(z, 0.5))))

    old, new = jax.jit(jax.grad(through_old)), jax.jit(jax.grad(through_new))
    for grad in (old(state), new(draw(11))):
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(grad))


def test_padding_and_a_batch_without_examples_move_no_moment():
    z, state = draw(12), after(draw(13))
    mask = (np.arange(B) % 3 > 0).astype(np.float32)
    padded = np.where(mask[None, :, None] > 0, z, np.float32(np.nan))
    kept = update(state, z[:, mask > 0], 0.5, mask[mask > 0])
    for a, b in leaves(update(state, padded, 0.5, mask), kept):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    for a, b in leaves(update(state, padded, 0.5, 0.0 * mask), state):
        np.testing.assert_array_equal(a, b)


def test_the_running_covariance_keeps_its_digits_at_a_large_offset():
    batches = [draw(seed) for seed in range(14, 17)]
    offset = [np.asarray(z + 4096.0, np.float32) for z in batches]
    expected = reference.running_correlation_penalty(offset, 0.5, centred=True)
    _, (value, _, _) = penalties(offset[-1], after(*offset[:-1]), 0.5, ALL)
    # E[zz] - E[z]E[z] of numbers near 2^24 would be off by 1.
    np.testing.assert_allclose(value, expected, rtol=1e-2)


def test_the_state_over_devices_is_that_of_the_global_batch():
    batches = [draw(18), draw(19)]
    mask = (np.arange(B) % 3 > 0).astype(np.float32)

    def step(first, second, mask):
        state = EMPTY.update(first, 0.9, mask, "data")
        return losses.running_correlation_penalty(second, state, 0.9, mask, "data")

    data = P(None, "data")
    penalty, state = over_devices(step, data, data, P("data"))(*batches, mask)
    valid = [z[:, mask > 0] for z in batches]
    expected = reference.running_correlation_penalty(valid, 0.9)
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)
    whole = update(update(EMPTY, batches[0], 0.9, mask), batches[1], 0.9, mask)
    for a, b in leaves(state, whole):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# ---- Gram-Schmidt over the batch: orthogonality, dependent vectors, what is counted

orthogonalize = jax.jit(losses.orthogonalize)
penalty = jax.jit(jax.value_and_grad(losses.orthogonalized_correlation_penalty))


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("members", [1, 6])
def test_equals_a_qr_factorisation_for_every_class(members):
    z = normal(0, (members, 16, 3))
    q = orthogonalize(z)
    assert q.shape == z.shape and q.dtype == jnp.float32
    for c in range(3):
        basis, r = np.linalg.qr(z[:, :, c].T.astype(np.float64))
        np.testing.assert_allclose(q[:, :, c], (basis * np.diag(r)).T, atol=3e-6)


def test_nearly_dependent_vectors_stay_orthogonal():
    z = normal(1, (6, 64))
    z[4] = z[0] + 1e-3 * z[4]
    q = np.asarray(orthogonalize(z), np.float64)
    unit = q / np.linalg.norm(q, axis=1, keepdims=True)
    np.testing.assert_allclose(unit @ unit.T, np.eye(6), atol=2e-6)


def test_dependent_and_zero_vectors_become_zero_without_nan():
    z = normal(2, (6, 64))
    z[2] = 2.0 * z[0] - z[1]
    z[3] = 0.0
    z[5] = z[4]
    q = np.asarray(orthogonalize(z))
    np.testing.assert_array_equal(q[[2, 3, 5]], np.zeros((3, 64)))
    np.testing.assert_allclose(q[4] @ z[:2].T, np.zeros(2), atol=2e-5)
    cubes = jax.jit(jax.grad(lambda z: jnp.sum(losses.orthogonalize(z) ** 3)))
    assert np.all(np.isfinite(cubes(z))) and np.all(np.isfinite(penalty(z)[1]))


def test_the_size_of_a_vector_does_not_matter():
    z = normal(3, (6, 64))
    expected = orthogonalize(z)
    for size in (2.0**-60, 2.0**-30, 2.0**30, 2.0**60, 2.0**126):
        sizes = np.float32([1.0, size, 1.0, 1.0, size, size])[:, None]
        np.testing.assert_allclose(orthogonalize(sizes * z), sizes * expected, 1e-6)


def test_padding_and_devices():
    z, mask = normal(4, (4, 24, 2)), np.arange(24) % 7 < 4
    expected = np.zeros_like(z)
    expected[:, mask] = orthogonalize(z[:, mask])
    padded = np.where(mask[None, :, None], z, np.float32(np.nan))
    step = over_devices(
        lambda z, mask: losses.orthogonalize(z, mask, "data"),
        P(None, "data"),
        P("data"),
        out=P(None, "data"),
    )
    np.testing.assert_allclose(step(padded, mask), expected, atol=2e-6)
