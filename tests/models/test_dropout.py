"""Dropout before the last dense layer, in every network of the zoo."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

from churn_jax import models
from churn_jax.configuration.training import Seeds
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import from_linen
from churn_jax.methods import ERM
from churn_jax.studies import ModelConfig
from churn_jax.training.identity import difference, identity
from tests.models.linen_networks import drawn_variables, images
from tests.training import tiny

_TINY = {
    "mlp": partial(models.MLP, features=(12,)),
    "lenet5": models.LeNet5,
    "resnet": partial(models.ResNet, depth=8, widths=(4, 4, 6)),
    "wide_resnet": partial(models.WideResNet, depth=10),
    "imagenet_resnet": partial(models.ImageNetResNet, stages=(1,), width=4),
    "resnet_v2": partial(models.ResNetV2, stages=(1,), width=4),
    "densenet": partial(models.DenseNet, blocks=(1, 1), growth=4, width=8),
    "vgg": partial(models.VGG, stages=(1,), width=4, grid=2, hidden=12),
    "swin": partial(models.Swin, stages=(1,), attention_heads=(2,), width=4, window=3),
}


def test_every_network_of_the_zoo_is_here():
    kinds = {type(models.create(n, num_classes=2)) for n in models.available()}
    kinds.remove(models.Bert)  # of texts, see test_bert.py
    assert kinds == {type(build(num_classes=2)) for build in _TINY.values()}


# These end in the same function as `resnet_v2`, so that one compiles for all of them.
_ALIKE = ("resnet", "wide_resnet", "imagenet_resnet", "densenet")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in _ALIKE)) for n in _TINY],
)
def test_logits_are_the_head_of_the_features_and_training_drops_some(name):
    x, model = images(2, 12, 12, 3), _TINY[name](num_classes=3, dropout=0.5)
    network, variables = from_linen(model), drawn_variables(model, x.shape)

    @jax.jit
    def answers(variables, x):
        def train(key):
            return network.apply(variables, x, train=True, key=key)[0]

        keys = jax.vmap(jax.random.key)(jnp.array([1, 1, 2]))
        return network.apply(variables, x)[0], jax.vmap(train)(keys)

    whole, dropped = answers(variables, x)
    dropped = [jax.tree.map(lambda leaf, k=k: leaf[k], dropped) for k in range(3)]
    head = jax.tree.map(np.asarray, variables["params"]["head"])
    for out in (whole, *dropped):
        expected = np.asarray(out.features) @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(out.logits, expected, rtol=1e-5, atol=1e-5)
    zeros = [np.asarray(out.features) == 0 for out in dropped]
    assert np.array_equal(zeros[0], zeros[1]) and not np.array_equal(zeros[0], zeros[2])
    # In evaluation only what ReLU holds back is zero.
    assert zeros[0].mean() > (np.asarray(whole.features) == 0).mean()


def test_a_share_is_dropped_and_the_rest_grows():
    model = models.MLP(features=(), num_classes=2, dropout=0.2)
    x = jnp.ones((40, 250))
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), variables)
    train = jax.jit(partial(model.apply, train=True))
    features = np.asarray(
        train(variables, x, rngs={"dropout": jax.random.key(0)}).features
    )
    assert set(np.unique(features)) == {np.float32(0), np.float32(1.25)}
    # 10,000 draws: four deviations are 0.016.
    assert abs((features == 0).mean() - 0.2) < 0.016


def _program(name, dropout, train):
    model = _TINY[name](num_classes=3, dropout=dropout)
    variables = drawn_variables(model, (1, 12, 12, 3))
    apply = partial(from_linen(model).apply, train=train, key=jax.random.key(0))
    x = jnp.zeros((2, 12, 12, 3))
    traced = jax.make_jaxpr(lambda v: apply(v, x)[0].logits)(variables)
    # Older versions of JAX keep equations that nothing uses.
    return str(partial_eval.dce_jaxpr(traced.jaxpr, [True])[0].eqns)


@pytest.mark.parametrize("name", _ALIKE)
def test_every_network_draws_in_training(name):
    assert "random_bits" in _program(name, 0.5, train=True)


def test_nothing_is_drawn_in_evaluation_nor_where_nothing_is_dropped():
    assert "random_bits" in _program("mlp", 0.5, train=True)
    assert _program("mlp", 0.0, train=True) == _program("mlp", 0.5, train=False)
    assert "random_bits" not in _program("mlp", 0.0, train=True)


def test_a_key_is_needed_to_drop():
    model = _TINY["mlp"](num_classes=3, dropout=0.5)
    network = from_linen(model)
    with pytest.raises(Exception, match="dropout"):
        network.apply(drawn_variables(model), images(2, 8, 8, 3), train=True)


def test_a_study_drops_and_says_so_in_the_name():
    x = jax.ShapeDtypeStruct((1, 8, 8, 1), jnp.float32)
    plain, dropping = (
        ModelConfig(features=(4,)),
        ModelConfig(features=(4,), init="uniform", dropout=0.2),
    )
    assert plain.build(5).name == "mlp"
    assert dropping.build(5).name == "mlp-uniform-dropout0.2"
    assert "dropout" in difference(identity(plain), identity(dropping))
    for name in models.available():
        network = ModelConfig(name, dropout=0.1).build(5)
        assert network.name == f"{name}-dropout0.1"
    variables = [
        jax.eval_shape(config.build(5).init, jax.random.key(0), x)
        for config in (plain, dropping)
    ]
    assert variables[0] == variables[1]
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"at least 0 and below 1; got {share}"):
            ModelConfig(dropout=share).build(5)


def test_replicas_drop_apart_and_a_step_taken_again_drops_the_same():
    network = tiny.hashed(ModelConfig(features=(4,), dropout=0.5).build(tiny.CLASSES))
    run = tiny.make_run(
        ERM(),
        network=network,
        replicas=2,
        augmentation=Augmentation(),
        seeds=Seeds(3, init="fixed", order="fixed"),
    )
    training = tiny.stepper(run, donate=False)
    first = training.now()
    assert tiny.bitwise_equal(*(tiny.replica(first.params, r) for r in (0, 1)))
    once = training.advance(1)
    before = training.states
    twice = training.advance(1)
    assert tiny.largest_difference(*(tiny.replica(once.params, r) for r in (0, 1))) > 0
    training.states = before
    assert tiny.bitwise_equal(training.advance(1), twice)
