"""Gram-Schmidt over the batch: orthogonality, dependent vectors, what is counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from churn_jax import losses

pytestmark = pytest.mark.usefixtures("strict_dtypes")

orthogonalize = jax.jit(losses.orthogonalize)
penalty, plain_penalty = (
    jax.jit(jax.value_and_grad(loss))
    for loss in (losses.orthogonalized_correlation_penalty, losses.correlation_penalty)
)


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_worked_by_hand():
    # q2 = (3, -1) - (1/5) (1, 2); the third vector lies in the plane of the others.
    z = np.float32([[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]])
    expected = [[1.0, 2.0], [2.8, -1.4], [0.0, 0.0]]
    np.testing.assert_allclose(orthogonalize(z), expected, rtol=1e-6)
    # <q1, z2> = 1, <q1, z3> = 2, <q2, z3> = 5.6; k = 2.
    value = jax.jit(losses.orthogonalized_correlation_penalty)(z)
    np.testing.assert_allclose(value, 0.25 + 1.0 + 2.8**2, rtol=1e-6)


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
    for size in (2.0**-60, 2.0**-30, 2.0**30, 2.0**60):
        sizes = np.float32([1.0, size, 1.0, 1.0, size, size])[:, None]
        np.testing.assert_allclose(orthogonalize(sizes * z), sizes * expected, 1e-6)


def test_padding_and_devices():
    z, mask = normal(4, (4, 24, 2)), np.arange(24) % 7 < 4
    expected = np.zeros_like(z)
    expected[:, mask] = orthogonalize(z[:, mask])
    padded = np.where(mask[None, :, None], z, np.float32(np.nan))
    step = jax.shard_map(
        lambda z, mask: losses.orthogonalize(z, mask, "data"),
        mesh=Mesh(np.array(jax.devices()), ("data",)),
        in_specs=(P(None, "data"), P("data")),
        out_specs=P(None, "data"),
    )
    np.testing.assert_allclose(jax.jit(step)(padded, mask), expected, atol=2e-6)


def test_read_literally_the_penalty_is_zero_for_any_outputs():
    z = normal(5, (6, 64)) + 1.0
    assert plain_penalty(orthogonalize(z))[0] < 1e-10 < 1.0 < plain_penalty(z)[0]


def test_two_members_pay_the_plain_penalty():
    z = normal(6, (2, 16, 3))
    (value, grad), (expected, gradient) = penalty(z), plain_penalty(z)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grad, gradient, atol=1e-6)


def test_a_shared_direction_counts_once_per_later_member():
    z = np.repeat(normal(7, (1, 64)), 6, axis=0)
    square = np.mean(np.square(z[0])) ** 2
    np.testing.assert_allclose(plain_penalty(z)[0], 15 * square, rtol=1e-5)
    np.testing.assert_allclose(penalty(z)[0], 5 * square, rtol=1e-5)


def test_too_large_outputs_give_no_finite_number():
    z = normal(8, (6, 64))
    assert np.isfinite(penalty(np.float32(1e8) * z)[0])
    assert penalty(np.float32(1e12) * z)[0] == np.inf
    for size in (1e19, 1e25, 1e35):
        assert not np.isfinite(penalty(np.float32(size) * z)[0])
    assert np.isnan(penalty(np.where(z > 2.0, np.float32(np.nan), z))[0])
