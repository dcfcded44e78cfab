import jax
import numpy as np
import pytest

from churn_jax import models
from tests.models import drawn, public_networks

_HUGGING_FACE = (models.from_hugging_face, models.to_hugging_face)
_TIMM = (models.from_timm, models.to_timm)
_TINY = {
    "basic": (models.ImageNetResNet(3, (2, 1), "basic", 4), *_HUGGING_FACE),
    "bottleneck": (models.ImageNetResNet(3, (2, 1), width=4), *_HUGGING_FACE),
    "v2": (models.ResNetV2(3, (2, 1), width=4), *_TIMM),
    "densenet": (models.DenseNet(3, (2, 1), growth=2, width=4), *_TIMM),
    "vgg": (models.VGG(3, (2, 1), width=2, grid=3, hidden=5), *_TIMM),
    "vgg_bn": (
        models.VGG(3, (1, 2), width=2, grid=2, hidden=5, batch_norm=True),
        *_TIMM,
    ),
}


def _parts(name):
    model, read, write = _TINY[name]
    like = public_networks.variable_shapes(model)
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, "f4"), like)
    shapes = {key: value.shape for key, value in write(empty).items()}
    return drawn.weights(shapes), like, read, write


@pytest.mark.parametrize("name", _TINY)
def test_there_and_back_is_the_identity(name):
    weights, like, read, write = _parts(name)
    variables = read(weights, like)
    assert jax.tree.structure(variables) == jax.tree.structure(like)
    jax.tree.map(
        lambda a, b: np.testing.assert_equal(a.shape, b.shape), variables, like
    )
    back = write(variables)
    assert back.keys() == weights.keys() and len(weights) == len(jax.tree.leaves(like))
    for key, value in weights.items():
        np.testing.assert_array_equal(back[key], value)


def test_the_first_dense_layer_of_a_vgg_sees_row_column_channel():
    weights, like, read, _ = _parts("vgg")
    kernel = read(weights, like)["params"]["dense1"]["kernel"]  # [3 * 3 * 4, 5]
    theirs = weights["pre_logits.fc1.weight"]  # [O, I, H, W]
    assert theirs.shape == (5, 4, 3, 3)
    row, column, channel = 2, 0, 3
    flat = (row * 3 + column) * 4 + channel
    np.testing.assert_array_equal(kernel[flat], theirs[:, channel, row, column])


@pytest.mark.parametrize(
    ("name", "places"),
    [
        # convolution, ReLU, convolution, ReLU, maxima, convolution
        ("vgg", ["features.0", "features.2", "features.5"]),
        # convolution, batch norm, ReLU, maxima, convolution, batch norm, ReLU, ...
        ("vgg_bn", ["features.0", "features.4", "features.7"]),
    ],
)
def test_layers_of_a_vgg_are_counted_with_those_that_have_no_weights(name, places):
    weights = _parts(name)[0]
    kernels = {n for n, w in weights.items() if w.ndim == 4 and "features" in n}
    assert kernels == {f"{place}.weight" for place in places}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("norm.weight"), "the weights lack norm.weight$"),
        (lambda w: w.clear(), "lack head.fc.bias, .*, norm.bias and 51 more"),
        (lambda w: w.update(fc=0), "the network has no place for fc$"),
        (
            lambda w: w.update({"norm.bias": np.zeros(3)}),
            r"norm.bias must have shape \(32,\) for this network; got \(3,\)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, message):
    weights, like, read, _ = _parts("v2")
    change(weights)
    with pytest.raises(ValueError, match=message):
        read(weights, like)


@pytest.mark.parametrize(
    ("variables_of", "write", "message"),
    [
        ("v2", models.to_hugging_face, "not the variables of ImageNetResNet: .*/norm/"),
        ("basic", models.to_timm, "not the variables of ResNetV2: .*shortcut_norm"),
        ("vgg", models.to_hugging_face, "variables of ImageNetResNet: .*/dense1"),
    ],
)
def test_variables_of_another_network_are_refused(variables_of, write, message):
    like = public_networks.variable_shapes(_TINY[variables_of][0])
    with pytest.raises(ValueError, match=message):
        write(jax.tree.map(lambda leaf: np.zeros(leaf.shape), like))


@pytest.mark.parametrize("write", [models.to_hugging_face, models.to_timm])
@pytest.mark.parametrize(
    "params",
    [
        {"stage1": {"conv1": {"kernel": np.zeros((1, 1, 1, 1))}}},
        {"stage1_block1": {"gate": {"kernel": np.zeros((1, 1, 1, 1))}}},
        {"kernel": np.zeros((1, 1))},
        {"head": {"gain": np.zeros(2)}},
    ],
)
def test_names_that_no_network_has_are_refused(params, write):
    with pytest.raises(ValueError, match="these are not the variables of"):
        write({"params": params})
