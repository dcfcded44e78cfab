"""Gram-Schmidt over the batch: orthogonality, dependent vectors, what is counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import losses
from tests.devices import over_devices

pytestmark = pytest.mark.usefixtures("strict_dtypes")

orthogonalize = jax.jit(losses.orthogonalize)
penalty, plain_penalty = (
    jax.jit(jax.value_and_grad(loss))
    for loss in (losses.orthogonalized_correlation_penalty, losses.correlation_penalty)
)


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
    for size in (2.0**-60, 2.0**-30, 2.0**30, 2.0**60):
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
