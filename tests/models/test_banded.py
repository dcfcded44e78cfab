from functools import partial

import jax
import numpy as np
import pytest

from churn_jax.models import banded_convolution
from churn_jax.models.layers import xla_convolution
from tests.models import numpy_networks
from tests.models.linen_networks import images


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "features", "padding"),
    [
        ((6, 9), (5, 5), 3, 4, 2),  # not square; 9 columns make two blocks of 5
        ((7, 19), (3, 5), 2, 3, 1),  # 17 columns make three blocks of 6
        ((5, 5), (5, 5), 2, 3, 0),  # one output pixel
    ],
)
def test_equals_a_numpy_convolution(size, kernel, channels, features, padding):
    x, weights = images(2, *size, channels), images(*kernel, channels, features)
    out = jax.jit(partial(banded_convolution, padding=padding))(x, weights)
    expected = numpy_networks.convolution(x, weights, padding=padding)
    # float32 sums of up to 75 products of order one.
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_worked_out_by_hand():
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32).reshape(1, 2, 3, 1)
    kernel = np.array([[1, 10], [100, 1000]], np.float32).reshape(2, 2, 1, 1)
    # [1 + 20 + 400 + 5000, 2 + 30 + 500 + 6000]
    out = np.asarray(jax.jit(banded_convolution)(x, kernel))
    np.testing.assert_array_equal(out[0, :, :, 0], [[5421.0, 6532.0]])


def test_gradients_equal_those_of_lax_and_vmap_over_networks_a_loop():
    x, cotangent = images(2, 6, 13, 2), images(2, 6, 13, 4)
    kernels = images(2, 3, 3, 2, 4)

    def pulled(convolve, kernel):
        out, pull = jax.vjp(partial(convolve, padding=1), x, kernel)
        return out, pull(cotangent)

    ours, theirs = (partial(pulled, f) for f in (banded_convolution, xla_convolution))
    mapped, alone, theirs = jax.jit(
        lambda k: (jax.vmap(ours)(k), ours(k[1]), theirs(k[1]))
    )(kernels)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-5)
    jax.tree.map(close, alone, theirs)
    jax.tree.map(lambda a, b: close(np.asarray(a)[1], b), mapped, alone)


@pytest.mark.parametrize("kernel", [(3, 3, 2, 1), (5, 3, 1, 1), (3, 5, 1, 1)])
def test_a_kernel_that_does_not_fit_is_refused(kernel):
    with pytest.raises(ValueError, match="does not fit images of shape") as error:
        banded_convolution(np.zeros((1, 4, 4, 1), "f4"), np.zeros(kernel, "f4"))
    assert str(kernel) in str(error.value)
