"""Our ImageNet networks against golden logits of public torch models.

`make test-oracles` compares with the models themselves.
"""

import jax
import numpy as np
import pytest

from tests.models import drawn, public_networks


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        pytest.param("resnet50", marks=pytest.mark.slow),
        pytest.param("resnet50_stride_1x1", marks=pytest.mark.slow),
        "resnet_v2_50",
    ],
)
def test_logits_and_parameters_are_those_of_the_public_model(name):
    golden, copy = public_networks.golden(name), public_networks.NETWORKS[name]
    model = public_networks.build(name)
    like = public_networks.variable_shapes(model)
    count = sum(leaf.size for leaf in jax.tree.leaves(like["params"]))
    width = like["params"]["head"]["kernel"].shape[0]
    more_classes = (1000 - public_networks.CLASSES) * (width + 1)
    assert count + more_classes == golden["parameters"]  # has those of 1,000 classes
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, "f4"), like)
    shapes = {key: value.shape for key, value in copy.write(empty).items()}
    assert drawn.fingerprint(shapes) == golden["weights"]
    variables = copy.read(drawn.weights(shapes), like)
    output = jax.jit(model.apply)(variables, drawn.images())
    np.testing.assert_allclose(output.logits, golden["logits"], rtol=0, atol=1e-4)


def test_golden_logits_tell_images_and_strides_apart():
    logits = {
        name: np.array(public_networks.golden(name)["logits"])
        for name in public_networks.NETWORKS
    }
    for rows in logits.values():
        assert np.abs(rows[0] - rows[1]).max() > 0.1  # 1,000 times the tolerance
    moved = logits["resnet50"] - logits["resnet50_stride_1x1"]
    assert np.abs(moved).max() > 0.1
