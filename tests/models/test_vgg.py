"""`VGG`: what the public models and the tests of all networks do not show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import models
from churn_jax.models import VGG, adaptive_average_pool
from tests.models import numpy_networks
from tests.models.linen_networks import evaluated, images


@pytest.mark.parametrize("batch_norm", [False, True])
def test_equals_a_numpy_forward_pass(batch_norm):
    stages, x = (2, 1), images(2, 9, 13, 2)
    model = VGG(3, stages, width=3, grid=3, hidden=5, batch_norm=batch_norm)
    variables, output = evaluated(model, x)
    assert ("batch_stats" in variables) == batch_norm
    expected = numpy_networks.vgg(
        *numpy_networks.in_float64((variables, x)), stages, grid=3
    )
    for ours, reference in zip(output, expected, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(7, 7), (1, 2), (3, 9), (14, 8)])
def test_windows_of_any_image_are_averaged(shape):
    x = images(1, *shape, 2)
    np.testing.assert_allclose(
        adaptive_average_pool(x, 7),
        numpy_networks.adaptive_average_pool(np.asarray(x, np.float64), 7),
        rtol=1e-6,
        atol=1e-6,
    )


def test_the_grid_of_the_public_model_is_what_224_pixels_leave():
    model = models.create("vgg13_bn", num_classes=10, dtype=jnp.bfloat16, remat=True)
    x = jnp.zeros((1, 224, 224, 3))
    output, state = jax.eval_shape(
        lambda key: model.init_with_output(key, x, capture_intermediates=True),
        jax.random.key(0),
    )
    (last,) = state["intermediates"]["stage5"]["__call__"]
    assert last.shape == (1, 7, 7, 512) and last.dtype == jnp.bfloat16
    assert output.features.shape == (1, 4096) and output.logits.dtype == jnp.float32
