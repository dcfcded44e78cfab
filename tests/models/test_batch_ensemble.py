"""Layers and networks of several members against a loop over explicit weights."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters.partial_eval import dce_jaxpr

from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM
from churn_jax.models import MLP, BatchEnsemble, BatchEnsembleDense, LeNet5, ResNet
from churn_jax.models.batch_ensemble import BatchEnsembleConv, check_fast_weights
from churn_jax.models.convolution import banded_convolution
from churn_jax.models.layers import compiling_for, xla_convolution
from churn_jax.training.run import Run
from tests.models import numpy_networks
from tests.models.linen_networks import drawn_variables, images, products
from tests.reference_losses import softmax
from tests.training import tiny

K, B = 3, 4


def assert_close(a, b, rtol=1e-5):
    """Relative to the largest entry: a sum's own error is relative to its terms."""
    b = np.asarray(b, np.float64)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1e-3))


@pytest.mark.parametrize("bias", ["member", "shared", "none"])
def test_dense_equals_a_loop_over_weight_matrices_forward_and_gradient(rng, bias):
    layer = BatchEnsembleDense(5, K, bias=bias)
    x = images(K * B, 7)
    params = drawn_variables(layer, x)["params"]
    outer = rng.normal(size=(K * B, 5)).astype(np.float32)

    def loss(params, x):
        y = layer.apply({"params": params}, x)
        return jnp.sum(outer * y), y

    both = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    with jax.default_matmul_precision("highest"):
        # Where the inputs are data, another way leads to the same gradient.
        ((_, y), (found, in_inputs)), (as_data, _) = jax.jit(
            lambda p, x: (both(p, x), jax.grad(loss, has_aux=True)(p, x))
        )(params, x)
    assert_close(y, numpy_networks.batch_ensemble(params, x, np.matmul))
    inputs, expected = numpy_networks.dense_gradients(params, x, outer)
    assert_close(in_inputs, inputs)
    assert set(expected) == set(found) == set(params)
    for name in params:
        assert_close(found[name], expected[name])
        assert_close(as_data[name], expected[name])


@pytest.mark.parametrize(
    ("options", "bias"),
    [
        ({}, "none"),
        pytest.param({"stride": 2}, "member", marks=pytest.mark.slow),
        pytest.param(
            {"size": 1, "padding": 0, "stride": 2}, "none", marks=pytest.mark.slow
        ),
        ({"padding": 1, "convolve": partial(banded_convolution, padding=1)}, "shared"),
    ],
    ids=["same", "stride", "projection", "banded"],
)
def test_convolution_equals_a_loop_over_kernels_forward_and_gradient(
    rng, options, bias
):
    layer = BatchEnsembleConv(4, K, bias=bias, **options)
    x = images(K * 2, 5, 6, 3)
    params = drawn_variables(layer, x)["params"]
    stride, padding = options.get("stride", 1), options.get("padding", 1)
    y = numpy_networks.batch_ensemble(
        params, x, partial(numpy_networks.convolution, stride=stride, padding=padding)
    )
    outer = rng.normal(size=y.shape).astype(np.float32)

    def loss(params, x):
        out = layer.apply({"params": params}, x)
        return jnp.sum(outer * out), out

    def looped(params, x):
        total = 0.0
        for m, (part, weights) in enumerate(zip(jnp.split(x, K), jnp.split(outer, K))):
            factors = jnp.outer(params["fast_in"][m], params["fast_out"][m])
            kernel = params["kernel"] * factors[None, None]
            out = xla_convolution(part, kernel, stride=stride, padding=padding)
            if "bias" in params:
                own = jnp.broadcast_to(params["bias"], (K, 4))[m]
                out = out + own.reshape(1, 1, 1, -1)
            total += jnp.sum(weights * out)
        return total

    def both(params, x):
        ours = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)
        as_data, _ = jax.grad(loss, has_aux=True)(params, x)
        return ours, as_data, jax.grad(looped, argnums=(0, 1))(params, x)

    with jax.default_matmul_precision("highest"):
        ((_, out), found), as_data, expected = jax.jit(both)(params, x)
        with compiling_for("tpu"):
            _, elsewhere = jax.jit(lambda p, x: loss(p, x))(params, x)
    assert_close(out, y)
    assert_close(elsewhere, y)
    jax.tree.map(assert_close, found, expected)
    jax.tree.map(assert_close, as_data, expected[0])


@pytest.mark.slow
def test_a_jacobian_of_the_gradient_agrees_in_both_modes():
    """The product's own rule is nested and run forward, as Jacobian analyses do."""
    layer, x = BatchEnsembleDense(2, 2), images(2, 2)
    params = drawn_variables(layer, x)["params"]

    def by_data(params, moved=0.0):
        return jnp.sum(jnp.sin(layer.apply({"params": params}, x + moved)))

    def by_both(params):
        return by_data(params, 0 * params["bias"])

    forward, reverse, other = jax.jit(
        lambda p: (
            jax.jacfwd(jax.grad(by_data))(p),
            jax.jacrev(jax.grad(by_data))(p),
            jax.jacfwd(jax.grad(by_both))(p),
        )
    )(params)
    jax.tree.map(assert_close, forward, reverse)
    jax.tree.map(assert_close, forward, other)


@pytest.mark.parametrize(
    ("kind", "moments"), [("normal", (1.0, 0.5)), ("signs", (0.0, 1.0))]
)
def test_fast_weights_start_as_the_paper_draws_them(kind, moments):
    layer = BatchEnsembleDense(4000, 5, fast_weights=kind)
    params = jax.jit(layer.init)(jax.random.key(0), np.zeros((5, 2), "f4"))["params"]
    fast = np.asarray(params["fast_out"], np.float64)
    # 20,000 draws: seven standard errors of mean and deviation.
    np.testing.assert_allclose(
        (fast.mean(), fast.std()), moments, atol=7 * moments[1] / 20_000**0.5
    )
    assert len(np.unique(fast[:, :20].round(6), axis=0)) == 5  # members differ
    if kind == "signs":
        assert set(np.unique(fast)) == {-1.0, 1.0}
    assert not np.any(params["bias"])


def of_member(variables, m):
    """The variables of a BatchEnsemble that consists of member m alone."""

    def take(path, leaf):
        own = path[-1].key.startswith("fast") or (
            path[-1].key == "bias" and leaf.ndim == 2
        )
        return leaf[m : m + 1] if own or "norm" in {p.key for p in path} else leaf

    return jax.tree_util.tree_map_with_path(take, variables)


NETWORKS = {
    "mlp": (partial(MLP, (6, 5), 3), (2, 4, 4, 1)),
    "lenet5": (partial(LeNet5, 3, layout="banded"), (2, 12, 12, 1)),
    "resnet8": (partial(ResNet, 8, 3, widths=(4, 4, 6)), (2, 8, 8, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", "resnet8"])
def test_a_tiled_batch_is_evaluated_by_every_member_as_if_it_were_alone(name):
    build, shape = NETWORKS[name]
    together, alone = build(layers=BatchEnsemble(K)), build(layers=BatchEnsemble(1))
    x = images(*shape)
    variables = drawn_variables(together, x)
    each = [of_member(variables, m) for m in range(K)]
    both = jax.jit(
        lambda v, own: (together.apply(v, x), jax.vmap(alone.apply, (0, None))(own, x))
    )
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    output, own = jax.device_get(both(variables, stacked))
    assert output.logits.shape == (K, 2, 3)
    assert_close(output.logits, own.logits[:, 0])
    assert_close(output.features, own.features[:, 0])
    assert np.abs(output.logits[0] - output.logits[1]).max() > 1e-3


@pytest.mark.parametrize("name", ["lenet5", "resnet8"])
def test_one_member_with_fast_weights_of_one_is_the_plain_network(name):
    build, shape = NETWORKS[name]
    plain, wrapped = build(), build(layers=BatchEnsemble(1))
    x = images(*shape)
    variables = drawn_variables(plain, x)
    tree = jax.eval_shape(wrapped.init, jax.random.key(0), x)
    flat = dict(jax.tree_util.tree_leaves_with_path(variables))
    seen = set()

    def fill(path, leaf):
        if path[-1].key.startswith("fast"):
            return np.ones(leaf.shape, np.float32)
        seen.add(path)
        return flat[path].reshape(leaf.shape)

    ones = jax.tree_util.tree_map_with_path(fill, tree)
    assert seen == set(flat)
    ours, theirs = jax.jit(
        lambda a, b: (wrapped.apply(a, x).logits[0], plain.apply(b, x).logits)
    )(ones, variables)
    assert_close(ours, theirs, rtol=1e-6)


def test_shared_batch_norm_sees_all_members_rows_and_members_own_sees_theirs():
    x = images(K * B, 2, 2, 3) * np.repeat([1, 2, 3], B).reshape(-1, 1, 1, 1)
    for norm_of in ("shared", "member"):
        layers = BatchEnsemble(K, norm_of=norm_of)
        norm = layers.norm(train=True, name=None, momentum=0.9)
        variables = drawn_variables(norm, x)
        y, moved = jax.jit(partial(norm.apply, mutable=["batch_stats"]))(variables, x)
        params, stats = variables["params"], moved["batch_stats"]
        if norm_of == "shared":
            parts, own = [x], [params]
            assert stats["mean"].shape == (3,)
        else:
            parts = np.split(np.asarray(x), K)
            own = [{k: v[m] for k, v in params["norm"].items()} for m in range(K)]
            assert stats["norm"]["mean"].shape == (K, 3)
        expected = [
            numpy_networks.batch_norm(*numpy_networks.in_float64(pair))
            for pair in zip(parts, own, strict=True)
        ]
        assert_close(y, np.concatenate(expected), rtol=3e-5)


def test_a_split_batch_gives_every_member_its_part_and_zeros_elsewhere():
    build, _ = NETWORKS["mlp"]
    tiled, split = (
        build(layers=BatchEnsemble(K, batches=b)) for b in ("tiled", "split")
    )
    x = images(2 * K, 4, 4, 1)
    variables = drawn_variables(tiled, x)
    every = jax.jit(
        lambda v, x: (
            tiled.apply(v, x, train=True),
            split.apply(v, x, train=True),
            split.apply(v, x),
        )
    )
    whole, output, evaluated = jax.device_get(every(variables, x))
    for m in range(K):
        rows = slice(2 * m, 2 * m + 2)
        assert_close(output.logits[m, rows], whole.logits[m, rows], rtol=1e-6)
        assert_close(output.features[m, rows], whole.features[m, rows], rtol=1e-6)
        elsewhere = np.delete(output.logits[m], np.r_[rows], axis=0)
        assert not elsewhere.any()
    assert_close(evaluated.logits, whole.logits, rtol=1e-6)
    assert split.splits_batch and not tiled.splits_batch
    with pytest.raises(ValueError, match="batch of 4 cannot be split over 3 members"):
        split.apply(variables, x[:4], train=True)


def test_networks_can_be_mapped_over():
    build, shape = NETWORKS["mlp"]
    model, x = build(layers=BatchEnsemble(K)), images(*shape)
    each = [drawn_variables(model, x, seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    gradient = jax.grad(lambda v: jnp.sum(jnp.sin(model.apply(v, x).logits)))
    together, alone = jax.jit(
        lambda v: (jax.vmap(gradient)(v), jax.lax.map(gradient, v))
    )(stacked)
    jax.tree.map(assert_close, together, alone)


@pytest.mark.parametrize("name", ["lenet5", "resnet8"])
def test_there_is_one_convolution_per_layer_and_none_is_grouped(name):
    """Scaling goes around the shared convolution; kernels are never batched."""
    shape = NETWORKS[name][1]
    build = partial(LeNet5, 3, layout="nhwc") if name == "lenet5" else NETWORKS[name][0]
    model, x = build(layers=BatchEnsemble(4)), np.zeros(shape, "f4")
    found = products(jax.make_jaxpr(model.apply)(drawn_variables(model, x), x))
    found = [e for e in found if e.primitive.name == "conv_general_dilated"]
    assert len(found) == {"lenet5": 2, "resnet8": 7}[name]
    for equation in found:
        assert equation.params["feature_group_count"] == 1
        assert equation.params["batch_group_count"] == 1
        rows, kernel = (v.aval.shape for v in equation.invars)
        assert rows[0] == 4 * shape[0] and len(kernel) == 4


def test_a_processor_is_spared_the_gradient_in_data_an_accelerator_small_kernels(
    monkeypatch,
):
    layer, x = BatchEnsembleDense(5, K), images(K * B, 7)
    params = drawn_variables(layer, x)["params"]
    found = {}
    # Forward, and backward one per member, or one in the kernel and one in the data.
    for platform, expected in (("cpu", 1 + K), ("tpu", 3)):
        monkeypatch.setattr(jax, "default_backend", lambda p=platform: p)

        # A function of its own: JAX remembers what it has traced.
        def gradient(some, p):
            def loss(some):
                return jnp.sum(layer.apply({"params": {**p, **some}}, x) ** 2)

            return jax.grad(loss)(some)

        program = jax.make_jaxpr(gradient)(params, {}).jaxpr
        used, _ = dce_jaxpr(program, [True] * len(program.outvars))
        assert len(products(used)) == expected

        def both(p):
            """In all parameters, and in each while the others are fixed."""
            each = {name: gradient({name: p[name]}, p)[name] for name in p}
            return gradient(p, {}), each

        with jax.default_matmul_precision("highest"):
            found[platform] = jax.jit(both)(params)
    jax.tree.map(assert_close, found["cpu"], found["tpu"])
    jax.tree.map(assert_close, *found["cpu"])


class _Forgetful(nn.Module):
    """A network whose author made the last layer without asking for `layers`."""

    layers: BatchEnsemble
    plain: tuple = ("head",)

    def check_params(self, params):
        self.layers.check(params)

    @nn.compact
    def __call__(self, x):
        for name in ("dense1", "head"):
            if name in self.plain:
                x = nn.Dense(3, name=name)(x)
            else:
                x = self.layers.dense(3, dtype=jnp.float32, name=name)(x)
        return x


def test_a_network_in_which_a_layer_was_forgotten_is_refused():
    x = np.zeros((4, 2), "f4")
    for plain in (("head",), ("dense1",), ("dense1", "head")):
        network = from_linen(_Forgetful(BatchEnsemble(2), plain))
        with pytest.raises(ValueError, match=rf"2 members in {', '.join(plain)}:"):
            jax.eval_shape(network.init, jax.random.key(0), x)
    whole = from_linen(_Forgetful(BatchEnsemble(2), ()))
    params = jax.eval_shape(whole.init, jax.random.key(0), x)["params"]
    check_fast_weights(params, 2)
    with pytest.raises(ValueError, match="of 4 members in dense1, head"):
        check_fast_weights(params, 4)


@pytest.mark.slow
def test_the_first_update_of_members_that_split_a_batch_is_that_of_their_parts():
    """The mean over members of the mean cross-entropy over a member's own rows."""
    layers = BatchEnsemble(2, batches="split")
    network = tiny.hashed(from_linen(MLP((), tiny.CLASSES, layers=layers)))
    method = ERM(
        members=2, deploy="mean_probs", over_members="mean", member_sample="split"
    )
    config = TrainConfig(
        replicas=1,
        epochs=1,
        batch_size=tiny.BATCH,
        steps_per_call=1,
        optimizer=OptimizerConfig(learning_rate=0.1, weight_decay=0.0),
    )
    stepper = tiny.stepper(Run("parts", method, (Group(network, 1),), config))
    (params,) = tiny.replica(stepper.now().params, (0, 0))
    ((_, momentum, _),) = stepper.advance(1).opt_state

    data = tiny.dataset().train
    rows = np.asarray(stepper.session.parts[0].inputs(0).order)[0, : tiny.BATCH]
    x = (data.images[rows].reshape(tiny.BATCH, -1) / 255 - 0.5) / 0.25
    # Outputs of the loop over members are those of the parts, one after the other.
    logits = numpy_networks.batch_ensemble(params["head"], x, np.matmul)
    errors = softmax(logits) - np.eye(tiny.CLASSES)[data.labels[rows]]
    # Every member's mean is over B / K rows, and the loss is the mean over K members.
    _, expected = numpy_networks.dense_gradients(params["head"], x, errors / tiny.BATCH)
    found = tiny.replica(momentum.trace["head"], (0, 0))
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        assert np.abs(gradient).max() > 1e-3
        assert_close(found[name], gradient)
