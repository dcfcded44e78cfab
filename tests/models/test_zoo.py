import jax
import jax.numpy as jnp
import pytest

from churn_jax import models

# Of the public models with 1,000 classes; tests/models/public_networks.py has others.
_PARAMETERS = {
    "resnet101": 44_549_160,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "swin_tiny": 28_288_354,
    "bert_base": 109_482_240 + 769 * 1000,
}


@pytest.mark.parametrize("name", models.available())
def test_every_network_answers_with_logits_and_features(name):
    classes = 1000 if name in _PARAMETERS else 7
    model = models.create(name, num_classes=classes)
    x = jnp.zeros((2, 32, 32, 3))
    if isinstance(model, models.Bert):
        x = jnp.zeros((2, 5), jnp.int32)
    output, variables = jax.eval_shape(
        lambda key, x: model.init_with_output(key, x, train=True), jax.random.key(0), x
    )
    assert isinstance(output, models.ModelOutput)
    assert output.logits.shape == (2, classes) and output.logits.dtype == jnp.float32
    assert output.features.shape[0] == 2
    assert variables["params"]["head"]["kernel"].shape[-1] == classes
    if name in _PARAMETERS:
        count = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
        assert count == _PARAMETERS[name]


@pytest.mark.parametrize("name", models.available())
def test_every_network_takes_dtype_and_axis_name(name):
    model = models.create(name, num_classes=2, dtype=jnp.bfloat16, axis_name="data")
    assert (model.dtype, model.axis_name) == (jnp.bfloat16, "data")


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("mlp", "features", (3,)),
        ("lenet5", "layout", "nhwc"),
        ("resnet32", "remat", True),
        ("resnet20", "widths", (4, 8, 8)),
    ],
)
def test_fields_can_be_overridden(name, field, value):
    model = models.create(name, num_classes=2, **{field: value})
    assert getattr(model, field) == value


def test_names_give_the_depth():
    for depth in (20, 32, 56):
        assert models.create(f"resnet{depth}", num_classes=2).depth == depth


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="'resnet23'; did you mean 'resnet"):
        models.create("resnet23", num_classes=10)
    with pytest.raises(ValueError, match=r"'gru'\. Available: mlp, lenet5, resnet20"):
        models.create("gru", num_classes=10)


def test_an_unknown_field_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"no field 'feature'; .*'features'"):
        models.create("mlp", num_classes=10, feature=(3,))
    with pytest.raises(ValueError, match="'lenet5' has no field 'remat'"):
        models.create("lenet5", num_classes=10, remat=True)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2; got 1"):
        models.create("mlp", num_classes=1)
