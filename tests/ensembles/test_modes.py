"""Training and evaluation are switched in every way that networks know, or refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from churn_jax.ensembles import from_function, from_linen, from_nnx
from tests.ensembles.networks import NnxNet
from tests.refusals import refusals

KEY = jax.random.key(0)
X = 1 + np.random.default_rng(5).normal(size=(16, 4)).astype(np.float32)


def layers(x, off):
    x = nn.BatchNorm(use_running_average=off)(nn.Dense(8)(x))
    return nn.Dense(3)(nn.Dropout(0.5, deterministic=off)(x))


def called_with(switch, default):
    """A Linen network whose `__call__` has the switch, with the default given."""
    source = f"def __call__(self, x, {switch}={default}):\n"
    source += f"    return layers(x, {'not ' * (switch == 'train')}{switch})"
    space = {"layers": layers}
    exec(source, space)
    return type("Net", (nn.Module,), {"__call__": nn.compact(space["__call__"])})()


class ByField(nn.Module):
    deterministic: bool = True

    @nn.compact
    def __call__(self, x):
        return layers(x, self.deterministic)


class Forwarding(nn.Module):
    """Hands on whatever keywords it is given."""

    @nn.compact
    def __call__(self, x, **kwargs):
        return called_with("train", True)(x, **kwargs)


class NnxLayers(NnxNet):
    def __init__(self, rngs):
        super().__init__(4, rngs=rngs)
        self.training = False

    def logits(self, x, off=None, rngs=None):
        x = self.norm(self.hidden(x), use_running_average=off)
        return self.head(self.dropout(x, deterministic=off, rngs=rngs))


class NnxTrain(NnxLayers):
    def __call__(self, x):
        return self.logits(x)


class NnxArgument(NnxLayers):
    def __call__(self, x, is_training=False):
        return self.logits(x, not is_training)


class NnxAttribute(NnxLayers):
    def __call__(self, x):
        return self.logits(x, not self.training)


class NnxRemat(NnxLayers):
    """Transformed, so that all of its state is renewed in every call."""

    def __call__(self, x):
        return nnx.remat(type(self).logits)(self, x)


def function():
    def init(key, x):
        return {"w": jax.random.normal(key, (4, 3))}

    def apply(params, x, *, deterministic=True, key=None):
        keep = True if deterministic else jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.where(keep, x, 0.0) @ params["w"]

    return from_function(init, apply)


NETWORKS = {
    "linen train": lambda: from_linen(called_with("train", False)),
    "linen deterministic": lambda: from_linen(called_with("deterministic", True)),
    "linen field": lambda: from_linen(ByField()),
    "linen keywords": lambda: from_linen(Forwarding()),
    **{
        f"nnx {kind.__name__}": lambda kind=kind: from_nnx(kind)
        for kind in (NnxTrain, NnxArgument, NnxAttribute, NnxRemat)
    },
    "function": function,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_switch_drops_and_normalises_in_training_only(name):
    network = NETWORKS[name]()
    variables = jax.jit(network.init)(KEY, X)
    before = {k: v for k, v in variables.items() if k != "params"}

    @jax.jit  # as in training: values are traced
    def both(variables, key, x):
        trained = network.apply(variables, x, train=True, key=key)
        return trained, network.apply(variables, x, train=False)

    (one, moved), (whole, kept) = both(variables, jax.random.key(1), X)
    (two, _), _ = both(variables, jax.random.key(2), X)
    (again, _), _ = both(variables, jax.random.key(1), X)
    assert np.max(np.abs(one.logits - two.logits)) > 1e-2  # dropout, of the step's key
    np.testing.assert_array_equal(again.logits, one.logits)
    # In evaluation an example's logits do not depend on chance or on its batch.
    others = np.concatenate([X[:3], 2 * X[3:]])
    _, (first, _) = both(variables, KEY, others)
    np.testing.assert_allclose(whole.logits[:3], first.logits[:3], rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, kept, before)
    norm = "function" not in name
    assert len(jax.tree.leaves(before)) == 2 * norm
    for was, now in zip(*map(jax.tree.leaves, (before, moved)), strict=True):
        assert np.max(np.abs(now - was)) > 1e-3


class Fixed(nn.Module):
    """One layer whose mode is fixed, called with or without a switch."""

    layer: nn.Module

    @nn.compact
    def __call__(self, x):
        return self.layer(x)


class Deaf(nn.Module):
    """Takes a switch and does not hand it on."""

    @nn.compact
    def __call__(self, x, train):
        return nn.Dropout(0.5, deterministic=True, name="drop")(nn.Dense(3)(x))


class OwnNorm(nn.Module):
    """Moves its mean where it is told to; nobody tells it."""

    @nn.compact
    def __call__(self, x, train=False):
        mean = self.variable("batch_stats", "mean", jnp.zeros, x.shape[-1:])
        if train and not self.is_initializing():
            mean.value = 0.9 * mean.value + 0.1 * jnp.mean(x, axis=0)
        return x - mean.value[None]


class Wrapped(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return OwnNorm(name="norm")(nn.Dense(3)(x))


class Sown(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("losses", "size", jnp.mean(x))
        return nn.Dense(3)(x)


class Noisy(nn.Module):
    """Draws from a stream of its own, in training or always."""

    always: bool = False

    @nn.compact
    def __call__(self, x, train):
        if train or self.always:
            x = x + jax.random.normal(self.make_rng("noise"), x.shape)
        return nn.Dense(3)(x)


class NnxStuck(NnxLayers):
    def __call__(self, x):
        return self.head(self.dropout(self.norm(self.hidden(x)), deterministic=True))


class NnxAlways(NnxLayers):
    def __call__(self, x):
        return self.head(self.dropout(self.norm(self.hidden(x)), deterministic=False))


def attention(**options):
    return nn.MultiHeadDotProductAttention(1, dropout_rate=0.5, **options)


def applied(module, train):
    linen = isinstance(module, nn.Module)
    network = from_linen(module) if linen else from_nnx(module)
    variables = jax.eval_shape(network.init, KEY, X)
    key = KEY if train else None
    jax.eval_shape(lambda v: network.apply(v, X, train=train, key=key), variables)


test_a_layer_that_does_not_follow_is_named = refusals(
    (Fixed(nn.Dropout(0.5, deterministic=True)), True, "layer .*Dropout.*none of"),
    (Fixed(nn.Dropout(0.5, deterministic=False)), False, "Dropout.* as if trained"),
    (Fixed(nn.BatchNorm(use_running_average=True)), True, "BatchNorm.*as if eval"),
    (Fixed(attention(deterministic=True)), True, "DotProductAttention.*none of"),
    (Deaf(), True, r"Deaf: the layer drop \(Dropout\).*network's train switch it"),
    (Wrapped(), True, "Wrapped: the layer norm .*network's train switch it"),
    (Sown(), True, "Sown: its collection losses has another form"),
    (Noisy(always=True), False, 'Noisy draws random numbers.*needs PRNG for "nois'),
    (NnxStuck, True, r"NnxStuck: the layer dropout \(Dropout\) behaves as if eva"),
    (NnxAlways, False, r"NnxAlways: the layer itself .* as if trained"),
    call=applied,
)


def test_streams_of_any_name_are_drawn_from_the_steps_key():
    network = from_linen(Noisy())
    variables = network.init(KEY, X)

    def logits(seed, train=True):
        key = jax.random.key(seed)
        return network.apply(variables, X, train=train, key=key)[0].logits

    np.testing.assert_array_equal(logits(1), logits(1))
    assert np.max(np.abs(logits(1) - logits(2))) > 1e-2
    np.testing.assert_array_equal(logits(1, train=False), logits(2, train=False))


def test_layers_without_a_mode_of_their_own_need_no_switch():
    """Dropout of nothing, and normalisation of every example by itself."""
    module = nn.Sequential([nn.Dropout(0.0, deterministic=True), nn.LayerNorm()])
    network = from_linen(module)
    variables = network.init(KEY, X)
    once, _ = network.apply(variables, X, train=True, key=KEY, axis_name=None)
    np.testing.assert_array_equal(once.logits, network.apply(variables, X)[0].logits)


@pytest.mark.parametrize("answer", [("tuple",), {"logits": 1}])
def test_answers_that_are_no_logits_are_refused(answer):
    network = from_function(lambda key, x: {}, lambda params, x: answer, name="pair")
    with pytest.raises(ValueError, match=f"pair returns a {type(answer).__name__}"):
        network.apply({"params": {}}, X)
