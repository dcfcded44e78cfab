"""What all networks share: names, sizes, precision, remat, batch norm, dropout."""

from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import models
from churn_jax.configuration.training import Seeds
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import from_linen
from churn_jax.methods import ERM
from churn_jax.models import (
    MIMO,
    MLP,
    VGG,
    BatchEnsemble,
    BatchEnsembleDense,
    Bert,
    DenseNet,
    ImageNetResNet,
    LeNet5,
    ResNet,
    ResNetV2,
    Swin,
    WideResNet,
)
from churn_jax.studies import ModelConfig
from tests.devices import over_devices
from tests.models import numpy_networks
from tests.models.linen_networks import (
    BERT,
    SWIN,
    drawn_variables,
    equations,
    images,
    products,
)
from tests.refusals import refusals
from tests.training import tiny

_TINY = {
    "mlp": partial(models.MLP, features=(12,)),
    "lenet5": models.LeNet5,
    "resnet": partial(models.ResNet, depth=8, widths=(4, 4, 6)),
    "wide_resnet": partial(models.WideResNet, depth=10),
    "batch_ensemble": partial(
        models.ResNet, depth=8, widths=(4, 4, 6), layers=BatchEnsemble(2)
    ),
    "mimo": partial(models.LeNet5, layers=MIMO(2)),
    "imagenet_resnet": partial(models.ImageNetResNet, stages=(1,), width=4),
    "resnet_v2": partial(models.ResNetV2, stages=(1,), width=4),
    "densenet": partial(models.DenseNet, blocks=(1, 1), growth=4, width=8),
    "vgg": partial(
        models.VGG, stages=(1,), width=4, grid=2, hidden=12, batch_norm=True
    ),
    "airbench": partial(models.Airbench, width=4),
    "swin": partial(models.Swin, stages=(1,), attention_heads=(2,), width=4, window=3),
    "bert": partial(models.Bert, depth=1, **BERT),
}
every = pytest.mark.parametrize("name", _TINY)
_OF_GELU = ("airbench", "swin", "bert")


def _network(name, **fields):
    return _TINY[name](num_classes=3, **fields)


def _inputs(name):
    return np.array([[3, 9, 4], [7, 0, 0]]) if name == "bert" else images(2, 12, 12, 3)


@cache
def _variables(name):
    return drawn_variables(_network(name), _inputs(name))


def test_every_network_of_the_zoo_is_here():
    kinds = {type(models.create(n, num_classes=2)) for n in models.available()}
    assert kinds == {type(_network(name)) for name in _TINY}


# With 10 classes and 32 x 32 x 3 pixels; the public models with 1,000. Those that
# golden logits are of are counted in test_convolutional.py.
_PARAMETERS = {
    # 75*6+6, 25*6*16+16, 576*120+120, 120*84+84, 84*10+10
    "lenet5": 456 + 2416 + 69240 + 10164 + 850,
    # conv stem 432; n = (depth - 2) / 6 blocks a stage; 3x3 kernels:
    #   2n of 16*16*9, one of 16*32*9, 2n-1 of 32*32*9, one of 32*64*9, 2n-1 of 64*64*9
    # batch norm: 2 * (16 * (2n + 1) + 32 * 2n + 64 * 2n); dense: 64*10 + 10
    "resnet20": 432 + 13824 + 4608 + 46080 + 18432 + 184320 + 1376 + 650,
    "wide_resnet28_1": 369_498,
    "wide_resnet28_10": 36_479_194,  # as published
    # 24; 9 * (24*64 + 64*64) + 128; 9 * (64*256 + 256*256) + 512; 9 * 2*256*256 + 512;
    # dense 256*10
    "airbench94": 24 + 50_816 + 737_792 + 1_180_160 + 2_560,
    "resnet101": 44_549_160,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "vgg11": 132_863_336,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg19_bn": 143_678_248,
    "swin_tiny": 28_288_354,
    "bert_base": 109_482_240 + 769 * 1000,
}
_LARGE = ("resnet101", "densenet121", "densenet161", "swin_tiny")  # long to trace


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in _LARGE)) for n in _PARAMETERS],
)
def test_parameter_count(name):
    small = name.startswith(("lenet", "resnet2", "wide", "air"))
    model = models.create(name, num_classes=10 if small else 1000)
    x = np.zeros((1, 5), int) if name == "bert_base" else np.zeros((1, 32, 32, 3), "f4")
    params = jax.eval_shape(model.init, jax.random.key(0), x)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == _PARAMETERS[name]


@every
def test_a_network_has_the_settings_that_it_is_given_and_the_same_parameters(name):
    """Precision, remat, dropout and activation, traced in training."""
    own, x, variables = _network(name), _inputs(name), _variables(name)
    recomputes = hasattr(own, "remat")
    assert recomputes == (name not in ("mlp", "lenet5", "mimo"))
    fields = {"dtype": jnp.bfloat16, "dropout": 0.5, "activation": "softplus"}
    fields |= {"remat": True} if recomputes else {}
    train = partial(_network(name, **fields).apply, train=True, mutable=["batch_stats"])
    program, (output, moved) = jax.make_jaxpr(train, return_shape=True)(
        variables, x, rngs={"dropout": jax.random.key(0)}
    )
    found = jax.tree.leaves((output, moved))
    assert {leaf.dtype for leaf in found} == {jnp.dtype("float32")}
    assert output.logits.shape[-2:] == (2, 3) and output.features.shape[-2] == 2
    factors = [v.aval.dtype for e in products(program) for v in e.invars]
    assert set(factors) == {jnp.dtype("bfloat16")}
    # The primitive's name differs between versions of jax.
    names = [e.primitive.name for e in equations(program)]
    assert any("remat" in n or "checkpoint" in n for n in names) == recomputes
    assert any("random_bits" in n for n in names)

    # In evaluation, and with the activation that it has without being told.
    apply = _network(name, dropout=0.5).apply
    evaluated = jax.make_jaxpr(partial(apply, train=False))(variables, x)
    names = [e.primitive.name for e in equations(evaluated)]
    assert not any("random_bits" in n for n in names)
    assert own.activation == ("gelu" if name in _OF_GELU else "relu")
    word = {"gelu": "erf", "relu": "relu"}[own.activation]
    assert word in str(evaluated) and word not in str(program)

    for field, value, message in (
        ("activation", "tanh", "activation must be one of relu, smelu"),
        ("dropout", 1.0, r"at least 0 and below 1; got 1\.0"),
        ("dropout", -0.1, r"at least 0 and below 1; got -0\.1"),
    ):
        with pytest.raises(ValueError, match=message):
            _network(name, **{field: value})

    # Every batch norm's settings are the network's, and no parameter is another.
    wanted, norms = {"axis_name": "data"}, []
    if hasattr(own, "momentum"):
        wanted |= {"momentum": 0.75, "epsilon": 0.1}

    def note(call, args, kwargs, context):
        if isinstance(context.module, nn.BatchNorm):
            norms.append({field: getattr(context.module, field) for field in wanted})
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        model = _network(name, **fields, **wanted)
        shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    assert len(norms) == len(jax.tree.leaves(shapes.get("batch_stats"))) / 2
    assert all(one == wanted for one in norms)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    like = jax.tree.map(lambda leaf: leaf.shape, shapes)
    assert like == jax.tree.map(np.shape, variables)


@pytest.mark.parametrize("name", ["mlp", "bert"])  # others drop by the same functions
def test_without_dropout_nothing_is_drawn(name):
    train = partial(_network(name, dropout=0.0).apply, train=True)
    program = jax.make_jaxpr(train)(_variables(name), _inputs(name))
    assert not any("random_bits" in e.primitive.name for e in equations(program))


_KINDS = [n + beta for n in models.ACTIVATIONS for beta in ("", ":0.25", ":4.0")]


@pytest.mark.parametrize("kind", [k for k in _KINDS if not k.startswith("relu:")])
def test_activations_equal_numpy_and_have_smooth_gradients(kind):
    function = models.activation(kind)
    name, _, beta = kind.partition(":")
    reference = partial(numpy_networks.activation, name, beta=float(beta or 1))
    x = np.concatenate([np.linspace(-6, 6, 49), [-0.25, 0.25, -1.0, 1.0, 30.0, -30.0]])
    points = x + 1e-3  # away from SmeLU's seams
    both = jax.jit(lambda x: (function(x), jax.vmap(jax.grad(function))(x)))
    (value, slope), (_, of_points) = both(np.float32(x)), both(np.float32(points))
    np.testing.assert_allclose(value, reference(x), rtol=1e-5, atol=1e-6)
    assert function(jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
    if name == "relu":
        assert function is nn.relu
        return
    quotient = (reference(points + 1e-6) - reference(points - 1e-6)) / 2e-6
    np.testing.assert_allclose(of_points, quotient, atol=1e-4)
    np.testing.assert_allclose(of_points, slope, atol=0.01)  # no jump, also at seams
    assert np.isfinite(jax.grad(function)(jnp.float32(1e30)))


def test_smelu_by_hand():
    # (0 + 2)^2 / 8, (1 + 2)^2 / 8 and (-1 + 2)^2 / 8 between -2 and 2.
    x = jnp.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0])
    expected = [0.0, 0.0, 0.125, 0.5, 1.125, 2.0, 5.0]
    np.testing.assert_array_equal(models.smelu(x, beta=2.0), expected)
    np.testing.assert_array_equal(models.smelu(x), jax.nn.sparse_plus(x))
    with pytest.raises(ValueError, match="beta must be above 0; got -1"):
        models.smelu(x, -1)


@pytest.mark.parametrize("name", ["relu:2", "smelu:0", "gelu:x", "smelu:inf"])
def test_a_number_of_an_activation_that_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match=r"after a colon, such as smelu:0\.5"):
        models.activation(name)


def _loss_and_gradients(model):
    def loss(params, stats, images):
        output, updated = model.apply(
            {"params": params, "batch_stats": stats},
            images,
            train=True,
            mutable=["batch_stats"],
        )
        total = jnp.sum(jnp.sin(output.logits))
        if model.axis_name is not None:
            total = jax.lax.psum(total, model.axis_name)
        return total, (output.logits, updated["batch_stats"])

    return jax.value_and_grad(loss, has_aux=True)


@pytest.mark.slow
def test_axis_name_and_remat_give_whole_batch_statistics_and_equal_gradients():
    x, variables = images(16, 8, 8, 3), _variables("imagenet_resnet")
    params, stats = variables["params"], variables["batch_stats"]
    whole = jax.jit(_loss_and_gradients(_network("imagenet_resnet")))
    (loss, (logits, moved)), gradients = whole(params, stats, x)
    together = over_devices(
        _loss_and_gradients(_network("imagenet_resnet", axis_name="data", remat=True)),
        P(),
        P(),
        P("data"),
        out=((P(), (P("data"), P())), P()),
    )
    (loss_8, (logits_8, moved_8)), gradients_8 = together(params, stats, x)
    np.testing.assert_allclose(loss_8, loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits_8, logits, rtol=1e-4, atol=1e-5)
    # Sums over pixels in another order, then five batch norms.
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=5e-5)
    jax.tree.map(close, moved_8, moved)
    jax.tree.map(close, gradients_8, gradients)


# The other convolutional networks end in the same function as `resnet_v2`.
@pytest.mark.parametrize("name", ["mlp", "lenet5", "resnet_v2", "vgg", "swin", "bert"])
def test_logits_are_the_head_of_the_features_and_training_drops_some(name):
    network = from_linen(_network(name, dropout=0.5))
    variables = _variables(name)

    @jax.jit
    @jax.vmap
    def train(seed):
        key = jax.random.key(seed)
        return network.apply(variables, _inputs(name), train=True, key=key)[0]

    output = train(np.array([0, 0, 1]))
    head = network.head(variables, output.features)
    np.testing.assert_allclose(output.logits, head, rtol=1e-5, atol=1e-5)
    features = np.asarray(output.features)
    head = jax.tree.map(np.asarray, variables["params"]["head"])
    expected = features @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(output.logits, expected, rtol=1e-5, atol=1e-5)
    zeros = features == 0
    assert np.array_equal(zeros[0], zeros[1]) and not np.array_equal(zeros[0], zeros[2])
    assert zeros.mean() > 0.3
    with pytest.raises(Exception, match="dropout"):  # without a key
        jax.eval_shape(partial(network.apply, train=True), variables, _inputs(name))


def test_a_share_is_dropped_and_the_rest_grows():
    model = models.MLP(features=(), num_classes=2, dropout=0.2)
    x, rngs = np.ones((40, 250), np.float32), {"dropout": jax.random.key(0)}
    train = jax.jit(partial(model.apply, train=True, rngs=rngs))
    features = np.asarray(train(drawn_variables(model, x), x).features)
    assert set(np.unique(features)) == {np.float32(0), np.float32(1.25)}
    # 10,000 draws: four deviations are 0.016.
    assert abs((features == 0).mean() - 0.2) < 0.016


@pytest.mark.slow
def test_replicas_drop_differently_and_a_repeated_step_drops_the_same():
    network = tiny.hashed(ModelConfig(features=(4,), dropout=0.5).build(tiny.CLASSES))
    run = tiny.make_run(
        ERM(),
        network=network,
        replicas=2,
        augmentation=Augmentation(),
        seeds=Seeds(3, init="fixed", order="fixed"),
    )
    training = tiny.stepper(run)
    first = training.now()
    assert tiny.bitwise_equal(*(tiny.replica(first.params, r) for r in (0, 1)))
    once = training.advance(1)
    before = jax.tree.map(jnp.copy, training.states)
    twice = training.advance(1)
    assert tiny.largest_difference(*(tiny.replica(once.params, r) for r in (0, 1))) > 0
    training.states = before
    assert tiny.bitwise_equal(training.advance(1), twice)


@pytest.mark.parametrize("name", models.available())
def test_a_study_builds_every_network_with_its_options_in_the_name(name):
    fields = {"remat": True} if name not in ("mlp", "lenet5") else {}
    config = ModelConfig(name, dtype="bfloat16", dropout=0.1, **fields)
    assert config.build(5).name == f"{name}-dropout0.1"


@every
def test_inputs_of_another_rank_or_dtype_are_refused(name):
    model, x = _network(name), _inputs(name)
    row = x[0] if name == "bert" else x[0, 0, 0]
    with pytest.raises(ValueError, match=r"must be .*\[B, .*; got shape \(3,\)"):
        jax.eval_shape(model.init, jax.random.key(0), row)
    other, message = ("f4", "integer ids") if name == "bert" else ("u1", "normalised")
    with pytest.raises(TypeError, match=f"{message}; got {np.dtype(other)}"):
        jax.eval_shape(model.init, jax.random.key(0), x.astype(other))


test_a_network_that_cannot_be_made_is_refused = refusals(
    ("resnet23", {}, "'resnet23'; known: mlp, .*; did you mean resnet"),
    ("mlp", {"feature": (3,)}, "no field 'feature'; .*; did you mean features"),
    ("lenet5", {"remat": True}, "'lenet5' has no field 'remat'"),
    ("mlp", {"num_classes": 1}, "at least 2; got 1"),
    ("resnet18", {"layers": models.BatchEnsemble(4)}, r"'resnet18' is made of pla"),
    call=lambda name, fields: models.create(name, **({"num_classes": 10} | fields)),
)


@pytest.mark.parametrize(
    ("features", "activation", "inputs"),
    [((7, 6), "relu", "dense1"), ((7, 6), "smelu:0.5", "dense1"), ((), "relu", "head")],
    ids=["deep", "smooth", "linear"],
)
def test_images_and_vectors_are_flattened_and_equal_a_numpy_forward_pass(
    features, activation, inputs
):
    x, model = images(3, 4, 5, 2), MLP(features, 4, activation=activation)
    variables = drawn_variables(model, x)
    vectors, rows, output = jax.jit(
        lambda v, x: [
            model.apply(v, x.reshape(shape), train=True)
            for shape in ((3, 40), (3, 8, 5), x.shape)
        ]
    )(variables, x)
    params, hidden = numpy_networks.in_float64((variables["params"], x.reshape(3, -1)))
    for layer in range(1, len(features) + 1):
        hidden = numpy_networks.dense(hidden, params[f"dense{layer}"])
        hidden = numpy_networks.activation(activation.split(":")[0], hidden, 0.5)
    logits = numpy_networks.dense(hidden, params["head"])
    for given in (vectors, rows, output):
        np.testing.assert_allclose(given.features, hidden, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(given.logits, logits, rtol=1e-5, atol=1e-5)
    assert model.input_params == (inputs,)
    assert params[inputs]["kernel"].shape[0] == 40


@pytest.mark.parametrize(
    ("kind", "gains"),
    # Variance of a kernel's entries, as a multiple of 1 / fan_in, hidden and last.
    [("he", (2.0, 1.0)), ("uniform", None), ("truncated_normal", (1.0, 1.0))],
)
def test_kernels_start_with_the_variance_that_is_asked_for(kind, gains):
    model = models.MLP(features=(200,), num_classes=50, kernel_init=kind)
    params = jax.jit(model.init)(jax.random.key(0), np.zeros((1, 100), "f4"))["params"]
    for number, name in enumerate(("dense1", "head")):
        kernel = np.asarray(params[name]["kernel"], np.float64)
        assert not np.any(params[name]["bias"])
        fan_in, fan_out = kernel.shape
        if gains is None:
            limit = np.sqrt(6 / (fan_in + fan_out))
            # Of 10,000 draws the largest is within a thousandth of the limit, and a
            # uniform variable's fourth moment is 9/5 of its squared variance.
            assert 0.999 * limit < np.abs(kernel).max() <= limit
            variance = limit**2 / 3
            kurtosis = np.mean(kernel**4) / np.mean(kernel**2) ** 2
            np.testing.assert_allclose(kurtosis, 9 / 5, rtol=0.05)
        else:
            variance = gains[number] / fan_in
            # Cut at two standard deviations of a normal that the cut makes narrower.
            widest = np.abs(kernel).max() / np.sqrt(variance)
            np.testing.assert_allclose(widest, 2 / 0.8796, rtol=0.01)
        np.testing.assert_allclose(kernel.var(), variance, rtol=0.05)
        np.testing.assert_allclose(kernel.mean(), 0.0, atol=5 * kernel.std() / 100)


USUAL = {Bert: BERT, Swin: SWIN | {"num_classes": 3, "width": 4}}
USUAL |= {BatchEnsemble: {"size": 2}, MIMO: {"size": 2}}
USUAL[BatchEnsembleDense] = {"features": 3, "members": 2}

test_impossible_fields_are_refused = refusals(
    (MLP, {"features": (4,), "kernel_init": "ones"}, "he, uniform, .*; got 'ones'"),
    (LeNet5, {"layout": "nchw"}, "auto, nhwc, banded; got 'nchw'"),
    (ResNet, {"depth": 18}, r"6 n \+ 2.*got 18"),
    (ResNet, {"depth": 20, "widths": (16, 32)}, "numbers that do not decrease"),
    (ResNet, {"depth": 20, "widths": (16, 8, 32)}, "numbers that do not decrease"),
    (WideResNet, {"depth": 26}, r"6 n \+ 4.*got 26"),
    (WideResNet, {"depth": 28, "widen": 0}, "widen must be at least 1; got 0"),
    (ImageNetResNet, {"block": "wide"}, "one of basic, bottleneck; got 'wide'"),
    (ImageNetResNet, {"stride_at": 3}, r"one of 3x3, 1x1; got 3"),
    (ImageNetResNet, {"stages": ()}, r"at least 1; got \(\)"),
    (ResNetV2, {"stages": (3, 0)}, r"at least 1; got \(3, 0\)"),
    (ResNetV2, {"width": 0}, "at least 1; got 0"),
    (DenseNet, {"blocks": (6, 0)}, r"blocks must be numbers .* \(6, 0\)"),
    (DenseNet, {"growth": 0}, "growth must be at least 1; got 0"),
    (VGG, {"stages": ()}, r"stages must be numbers of convolutions, .* got \(\)"),
    (VGG, {"hidden": 0}, "hidden must be at least 1; got 0"),
    (Swin, {"attention_heads": (1,)}, r"heads must be 2 divisors .* got \(1,\)"),
    (Swin, {"attention_heads": (3, 2)}, r"\(4, doubled .*\); got \(3, 2\)"),
    (Swin, {"stages": (2, 0)}, r"at least 1; got \(2, 0\)"),
    (Swin, {"drop_path": 1.0}, "drop_path must be at least 0 and below 1; got 1.0"),
    (Bert, {"pooling": "last"}, "first, mean; got 'last'"),
    (Bert, {"attention_heads": 3}, "width 8 cannot be divided among 3 heads"),
    (BatchEnsemble, {"size": 0}, "size must be at least 1; got 0"),
    (BatchEnsemble, {"fast_weights": "ones"}, "one of normal, signs; got 'ones'"),
    (BatchEnsemble, {"bias": "both"}, "one of member, shared, none; got 'both'"),
    (BatchEnsemble, {"norm_of": "none"}, "one of shared, member; got 'none'"),
    (BatchEnsemble, {"batches": "cut"}, "one of tiled, split; got 'cut'"),
    (BatchEnsembleDense, {"bias": "other"}, "shared, none; got 'other'"),
    (BatchEnsembleDense, {"fast_weights": "other"}, "normal, signs; got 'other'"),
    (MIMO, {"size": 0}, "size must be at least 1; got 0"),
    (MIMO, {"repetition": 1.5}, "0 to 1; got 1.5"),
    call=lambda kind, fields: kind(**USUAL.get(kind, {"num_classes": 10}) | fields),
)


test_inputs_of_another_size_are_refused = refusals(
    (LeNet5(10), np.zeros((2, 8, 8, 1), "f4"), r"at least 12 x 12.*8, 8, 1"),
    (VGG(2, (1, 1, 1)), np.zeros((1, 7, 28, 1), "f4"), r"8 x 8 .*1, 7, 28"),
    (Bert(**BERT), np.zeros((2, 9), int), r"1 to 8 columns .*2, 9"),
    (
        BatchEnsembleDense(3, 2),
        np.zeros((5, 4), "f4"),
        "5 rows cannot be shared out among 2 members",
    ),
    call=lambda model, x: jax.eval_shape(model.init, jax.random.key(0), x),
)
