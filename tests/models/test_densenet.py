"""`DenseNet`: what the public models and the tests of all networks do not show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import DenseNet
from churn_jax.studies import ModelConfig
from tests.models import numpy_networks
from tests.models.linen_networks import evaluated, images


def test_equals_a_numpy_forward_pass():
    blocks, x = (2, 1), images(2, 12, 9, 2)
    model = DenseNet(num_classes=3, blocks=blocks, growth=2, width=3)
    variables, output = evaluated(model, x)
    expected = numpy_networks.densenet(
        *numpy_networks.in_float64((variables, x)), blocks
    )
    for ours, reference in zip(output, expected, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=2e-5)


def test_blocks_have_the_resolutions_of_the_paper():
    model = DenseNet(10, (1, 1, 1, 1), dtype=jnp.bfloat16, remat=True)
    x = jnp.zeros((1, 224, 224, 3))
    output, state = jax.eval_shape(
        lambda key: model.init_with_output(key, x, capture_intermediates=True),
        jax.random.key(0),
    )
    seen = state["intermediates"]
    for block, size in enumerate((28, 14, 7), start=1):
        (out,) = seen[f"transition{block}"]["__call__"]
        assert out.shape[1:3] == (size, size) and out.dtype == jnp.bfloat16
    assert output.logits.dtype == output.features.dtype == jnp.float32


@pytest.mark.parametrize(("blocks", "smallest"), [(1, 1), (2, 5), (4, 29)])
def test_the_smallest_image_leaves_a_pixel_and_a_smaller_one_is_refused(
    blocks, smallest
):
    model = DenseNet(num_classes=2, blocks=(1,) * blocks, growth=1, width=8)

    def last(size):
        x = jnp.zeros((1, size, size, 1))
        _, state = jax.eval_shape(
            lambda key: model.init_with_output(key, x, capture_intermediates=True),
            jax.random.key(0),
        )
        return state["intermediates"]["norm"]["__call__"][0].shape

    assert last(smallest)[1:3] == (1, 1)
    if smallest > 1:
        with pytest.raises(ValueError, match=f"at least {smallest} x {smallest}"):
            last(smallest - 1)


def test_a_study_builds_it_with_options_in_its_name():
    config = ModelConfig("densenet_tiny", dtype="bfloat16", remat=True, dropout=0.2)
    network = config.build(10)
    assert network.name == "densenet_tiny-dropout0.2"
    assert network.input_params == ("stem",)
