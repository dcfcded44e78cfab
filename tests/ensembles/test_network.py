import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import Group, NetworkError, as_network, from_linen, from_nnx
from churn_jax.ensembles.wrappers import with_inputs
from churn_jax.models import create
from tests.devices import over_devices
from tests.ensembles.networks import CLASSES, DROPPED, PLAIN, NnxNet, affine
from tests.refusals import refusals

INPUTS = 4
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(5), (16, INPUTS)) + 1.0


@pytest.fixture(scope="module")
def nnx_network():
    return from_nnx(lambda rngs: NnxNet(INPUTS, rngs=rngs))


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_linen_without_train_is_called_without_it(x):
    variables = PLAIN.init(KEY, x)
    outputs, state = PLAIN.apply(variables, x, train=True, key=KEY)
    assert outputs.logits.shape == (16, CLASSES) and outputs.features is None
    assert set(variables) == {"params"} and state == {}
    equal(PLAIN.apply(variables, x, train=False)[0], outputs)
    assert PLAIN.name == "Plain" and PLAIN.heads == 1


def test_linen_output_with_logits_and_features_is_taken_as_it_is(x):
    network = from_linen(create("mlp", num_classes=3, features=(7,)), name="small")
    outputs, _ = network.apply(network.init(KEY, x), x)
    assert outputs.logits.shape == (16, 3) and outputs.features.shape == (16, 7)
    assert network.name == "small" and not network.convolves({})


test_a_network_in_another_form_is_one_sentence = refusals(
    (lambda: from_linen(nn.Sequential), "such as Net.*got the class Sequential"),
    (lambda: from_linen(NnxNet(4, rngs=nnx.Rngs(0))), "got a NnxNet .from_nnx"),
    (lambda: from_nnx(NnxNet(4, rngs=nnx.Rngs(0))), "has its weights already"),
    (lambda: from_nnx(nn.Dense(3)), "got a Dense .from_linen"),
    (lambda: from_nnx(lambda rngs: None), "it returns a NoneType"),
    (lambda: Group(nn.Dense(3)), "a group is of a Network.*got a Dense"),
    (lambda: Group(nn.Dense), "a group is of a Network.*got the class Dense"),
    error=NetworkError,
)


class Drops(nn.Module):
    """Two members, row by row of each; dropout of rows, of attention and by column."""

    noise: float = 0.0

    @nn.compact
    def __call__(self, x, train=False):
        off = not train
        attend = nn.MultiHeadDotProductAttention(1, dropout_rate=0.3, deterministic=off)
        x = x + attend(x[:, None])[:, 0]
        x = nn.Dropout(0.5, broadcast_dims=(1,), deterministic=off)(x)
        if self.noise and train:
            draws = jax.random.normal(self.make_rng("dropout"), x.shape)
            x = x + self.noise * draws
        x = nn.Dropout(0.5, deterministic=off)(jnp.concatenate([x, 2 * x]))
        return nn.Dense(CLASSES)(x).reshape(2, -1, CLASSES)


class NnxDrops(NnxNet):
    """With attention, whose one mask is of all rows."""

    def __init__(self, *, rngs, own=False):
        super().__init__(INPUTS, rngs=rngs)
        options = {"dropout_rate": 0.3, "decode": False, "rngs": rngs}
        self.attend = nnx.MultiHeadAttention(1, INPUTS, **options)
        if own:
            self.rngs = rngs

    def __call__(self, x):
        return super().__call__(x + self.attend(x[:, None])[:, 0])


def trained_on(devices, network):
    """A function of variables and inputs: logits in training, on so many devices."""

    def logits(variables, x):
        options = {"train": True, "key": KEY, "axis_name": "data"}
        out = network.apply(variables, x, **options)[0].logits
        return out if out.ndim == 3 else out[None]

    specs = {"out": P(None, "data"), "devices": devices}
    return over_devices(logits, P(), P("data"), **specs)


@pytest.mark.parametrize(
    ("network", "same"),
    [
        (from_linen(Drops(), heads=2), True),
        (from_nnx(NnxDrops), True),
        (from_linen(Drops(noise=0.1), heads=2), False),  # numbers of its own
        (from_nnx(lambda rngs: NnxDrops(rngs=rngs, own=True)), False),
    ],
    ids=["Linen", "NNX", "Linen, own draws", "NNX, own draws"],
)
def test_dropout_depends_on_the_place_in_the_global_batch(network, same, x):
    variables = jax.jit(network.init)(KEY, x)
    on_four = trained_on(4, network)
    four = np.asarray(on_four(variables, x))
    if same:
        one = np.asarray(trained_on(1, network)(variables, x))
        np.testing.assert_allclose(four, one, atol=1e-5)
        still = jax.jit(lambda v, x: network.apply(v, x)[0].logits)(variables, x)
        assert np.abs(one - np.asarray(still)).max() > 0.1
    else:  # devices with equal examples do not draw the same
        equal_rows = np.asarray(on_four(variables, jnp.tile(x[:4], (4, 1))))
        first, second = equal_rows[:, :4], equal_rows[:, 4:8]
        assert np.abs(first - second).max() > 1e-3


def test_nnx_does_what_the_module_itself_does(x):
    """Without dropout, so that the module's own random stream does not matter."""

    def construct(rngs):
        return NnxNet(INPUTS, rngs=rngs, rate=0.0)

    network = from_nnx(construct)
    variables = network.init(KEY, x)
    module = construct(nnx.Rngs(KEY))
    module.eval()
    outputs, _ = network.apply(variables, x)
    np.testing.assert_allclose(outputs.logits, module(x), atol=1e-6)
    module.train()
    outputs, state = network.apply(variables, x, train=True)
    np.testing.assert_allclose(outputs.logits, module(x), atol=1e-6)
    mean = state["state"]["norm"]["mean"]
    np.testing.assert_allclose(mean, module.norm.mean, atol=1e-6)


def test_nnx_template_is_not_touched(x):
    built = []

    def construct(rngs):
        built.append(NnxNet(INPUTS, rngs=rngs))
        return built[-1]

    network = from_nnx(construct)

    def snapshot():
        state = nnx.state(built[0])
        return jax.tree.map(
            lambda leaf: (
                np.asarray(jax.random.key_data(leaf))
                if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
                else np.asarray(leaf)
            ),
            nnx.to_pure_dict(state),
        )

    before = snapshot()
    variables = network.init(KEY, x)

    @jax.jit
    def train(variables, key):
        return network.apply(variables, x, train=True, key=key)

    train(variables, KEY)
    network.apply(variables, x, train=True, key=KEY)
    equal(snapshot(), before)  # and holds no tracer
    assert built[0].norm.axis_name is None and built[0].dropout.deterministic is False
    first = network.apply(variables, x)[0]
    equal(network.apply(variables, x)[0], first)


class Unaware(nn.Module):
    """Without an axis name."""

    @nn.compact
    def __call__(self, x, train):
        return nn.BatchNorm(use_running_average=not train)(nn.Dense(CLASSES)(x))


@pytest.mark.parametrize("kind", ["linen", "unaware", "nnx"])
def test_batch_norm_sees_the_global_batch(kind, x, nnx_network):
    """Eight shards of two examples leave the statistics of one batch of sixteen."""
    known = {"linen": DROPPED, "unaware": from_linen(Unaware())}
    network = known.get(kind, nnx_network)
    variables = network.init(KEY, x)

    def local(variables, x, axis_name="data"):
        return network.apply(variables, x, train=True, key=KEY, axis_name=axis_name)[1]

    sharded = over_devices(local, P(), P("data"))(variables, x)
    whole = local(variables, x, axis_name=None)
    chex.assert_trees_all_close(sharded, whole, atol=1e-6)


def test_inputs_may_be_columns_of_the_flattened_example_or_a_view():
    def reversed_inputs(x):
        return x[:, ::-1]

    images, columns = np.arange(24.0, dtype="f4").reshape(2, 2, 3, 2), [0, 5, 11]
    flat = images.reshape(2, 12)
    for inputs, x, seen in (
        (columns, images, flat[:, columns]),
        (reversed_inputs, flat, flat[:, ::-1]),
    ):
        inner = affine(seen.shape[1])
        network = with_inputs(inner, inputs)
        variables = network.init(KEY, x)
        ours = network.apply(variables, x, train=True, key=KEY)[0].logits
        theirs = inner.apply(variables, seen)[0].logits
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert network.name == "affine on reversed_inputs"


def test_modules_that_differ_have_other_settings():
    class Net(nn.Module):
        rate: float = 0.1
        change: object = nn.relu

    def built(rate):
        return from_nnx(lambda rngs: NnxNet(4, rngs=rngs, rate=rate))

    for a, same, other in (
        (Net(change=lambda x: x), Net(change=lambda x: x), Net(0.2)),
        (nn.Sequential([nn.Dense(2)]), nn.Sequential([nn.Dense(2)]), Net()),
    ):
        settings = [from_linen(one, name="net").settings for one in (a, same, other)]
        assert settings[0] == settings[1] != settings[2]
    assert built(0.1).settings == built(0.1).settings != built(0.2).settings


def test_networks_with_other_inputs_have_other_names():
    """A checkpoint knows a network by its name."""
    names = {
        with_inputs(affine(2), columns).name for columns in ([0, 1], [0, 2], [1, 0])
    }
    assert len(names) == 3 and all(n.startswith("affine on 2 inputs") for n in names)
    assert with_inputs(affine(2), [0, 1], name="left").name == "left"


test_inputs_that_an_example_does_not_have_are_refused = refusals(
    ([], "must be columns"),
    ([-1, 0], "counted from 0"),
    ([1, 1], "every column once"),
    ([0, INPUTS], "column 4, but an example has 4"),
    (lambda x: x, "a function without a name; give name="),
    call=lambda x, columns: with_inputs(affine(2), columns).init(KEY, x),
    fixtures=["x"],
)


class Made(nnx.Module):
    """Of as many classes as it is told, or of five."""

    def __init__(self, num_classes=5, *, rngs):
        self.layer = nnx.Linear(INPUTS, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


class Family(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(x)


FORMS = {
    "a Linen module": nn.Dense(3),
    "a Linen class": Family,
    "an NNX class": Made,
    "a function of rngs": lambda rngs: Made(3, rngs=rngs),
    "a function of the classes": lambda num_classes: nn.Dense(num_classes),
    "a function": lambda: nn.Dense(3),
    "a network": from_linen(nn.Dense(3)),
    "a function of a network": lambda: from_linen(nn.Dense(3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_network_is_given_in_any_form(form, x):
    network = as_network(FORMS[form], 3, name="mine")
    assert network is as_network(FORMS[form], 3, name="mine")
    variables = [network.init(jax.random.key(i), x) for i in (0, 0, 1)]
    equal(variables[0], variables[1])
    first, other = (jax.tree.leaves(v["params"])[-1] for v in variables[1:])
    assert np.any(first != other)
    outputs, _ = network.apply(variables[0], x, train=True, key=KEY)
    assert outputs.logits.shape == (16, 3)


test_what_is_no_network_is_refused = refusals(
    (Made(rngs=nnx.Rngs(0)), "has its weights already.*lambda rngs: Made"),
    (3, "mine is a int; a network is a Linen module"),
    (lambda width: nn.Dense(width), "mine needs 'width'.* num_classes and rngs"),
    (nn.Dense, "mine needs 'features'"),
    (lambda: 3, "mine is a int"),
    (lambda: len, "mine returns a builtin_function_or_method, not a network"),
    call=lambda given: as_network(given, 3, name="mine"),
    error=NetworkError,
)
