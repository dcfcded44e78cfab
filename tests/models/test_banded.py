import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import banded_convolution
from tests.models import numpy_networks


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "features", "padding"),
    [
        ((5, 5), (3, 3), 1, 2, 0),
        ((6, 9), (5, 5), 3, 4, 2),  # not square; 9 columns make two blocks of 5
        ((7, 19), (3, 5), 2, 3, 1),  # 17 columns make three blocks of 6
        ((4, 4), (1, 1), 2, 2, 0),
        ((5, 5), (5, 5), 2, 3, 0),  # one output pixel
    ],
)
def test_equals_a_numpy_convolution(rng, size, kernel, channels, features, padding):
    images = rng.normal(size=(2, *size, channels)).astype(np.float32)
    weights = rng.normal(size=(*kernel, channels, features)).astype(np.float32)
    out = banded_convolution(jnp.asarray(images), jnp.asarray(weights), padding=padding)
    expected = numpy_networks.convolution(images, weights, padding=padding)
    # float32 sums of up to 75 products of order one.
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_worked_out_by_hand():
    images = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).reshape(1, 2, 3, 1)
    kernel = jnp.array([[1.0, 10.0], [100.0, 1000.0]]).reshape(2, 2, 1, 1)
    # [1 + 20 + 400 + 5000, 2 + 30 + 500 + 6000]
    np.testing.assert_array_equal(
        banded_convolution(images, kernel)[0, :, :, 0], [[5421.0, 6532.0]]
    )


def test_gradients_equal_those_of_lax(rng):
    images = jnp.asarray(rng.normal(size=(2, 6, 13, 2)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 2, 4)), jnp.float32)
    cotangent = jnp.asarray(rng.normal(size=(2, 6, 13, 4)), jnp.float32)

    def lax_convolution(images, kernel):
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            (1, 1),
            ((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def padded(images, kernel):
        return banded_convolution(images, kernel, padding=1)

    _, pull = jax.vjp(padded, images, kernel)
    _, pull_lax = jax.vjp(lax_convolution, images, kernel)
    for ours, theirs in zip(pull(cotangent), pull_lax(cotangent)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-5)


def test_vmap_over_networks_equals_a_loop(rng):
    images = jnp.asarray(rng.normal(size=(2, 6, 6, 1)), jnp.float32)
    kernels = jnp.asarray(rng.normal(size=(3, 3, 3, 1, 2)), jnp.float32)
    mapped = jax.vmap(banded_convolution, (None, 0))(images, kernels)
    looped = jnp.stack([banded_convolution(images, k) for k in kernels])
    np.testing.assert_allclose(mapped, looped, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", [(3, 3, 2, 1), (5, 3, 1, 1), (3, 5, 1, 1)])
def test_a_kernel_that_does_not_fit_is_refused(kernel):
    with pytest.raises(ValueError, match="does not fit images of shape") as error:
        banded_convolution(jnp.zeros((1, 4, 4, 1)), jnp.zeros(kernel))
    assert str(kernel) in str(error.value)
