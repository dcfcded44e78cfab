"""The networks for 224 pixels with batch norm: what the golden logits do not show."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import models
from churn_jax.models import VGG, DenseNet, ImageNetResNet, ResNetV2
from churn_jax.models.residual import max_pool
from churn_jax.studies import ModelConfig
from tests.models import numpy_networks
from tests.models.linen_networks import drawn_variables, images, loss_and_gradients

_TINY = {
    "v1": partial(ImageNetResNet, num_classes=3, stages=(1,), width=4),
    "v2": partial(ResNetV2, num_classes=3, stages=(1,), width=4),
}
both = pytest.mark.parametrize("name", tuple(_TINY))
_TINY["densenet"] = partial(DenseNet, 3, blocks=(1, 1), growth=2, width=4)
_TINY["vgg"] = partial(VGG, 3, (1, 1), width=4, grid=2, hidden=6, batch_norm=True)


@cache
def _variables(name):
    return drawn_variables(_TINY[name]())


@pytest.mark.usefixtures("fully_optimized")  # without, VGG's gradients differ
@pytest.mark.slow
@pytest.mark.parametrize("name", _TINY)
def test_axis_name_and_remat_give_whole_batch_statistics_and_equal_gradients(name):
    x, variables = images(16, 24, 24, 3), _variables(name)
    params, stats = variables["params"], variables["batch_stats"]
    (loss, (logits, moved)), gradients = jax.jit(loss_and_gradients(_TINY[name]()))(
        params, stats, x
    )
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    model = _TINY[name](axis_name="data", remat=True)
    tree = jax.eval_shape(model.clone(axis_name=None).init, jax.random.key(0), x)
    assert jax.tree.structure(tree) == jax.tree.structure(variables)
    function = loss_and_gradients(model)
    sharded = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(P(), P(), P("data")),
        out_specs=((P(), (P("data"), P())), P()),
        check_vma=True,
    )
    text = str(jax.make_jaxpr(sharded)(params, stats, x))
    # The primitive's name differs between versions of jax.
    assert "remat" in text or "checkpoint" in text
    (loss_8, (logits_8, moved_8)), gradients_8 = jax.jit(sharded)(params, stats, x)
    np.testing.assert_allclose(loss_8, loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits_8, logits, rtol=1e-4, atol=1e-5)
    # Sums over pixels in another order, then several batch norms.
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=5e-5)
    jax.tree.map(close, moved_8, moved)
    jax.tree.map(close, gradients_8, gradients)


def test_members_under_vmap_have_the_maxima_and_gradients_of_one():
    members = images(3, 2, 7, 6, 4)

    def total(x):
        return jnp.sum(jnp.sin(max_pool(x)))

    together = jax.jit(jax.vmap(jax.value_and_grad(total)))(members)
    one = jax.jit(jax.value_and_grad(total))
    for member in range(3):
        value, gradient = one(members[member])
        np.testing.assert_allclose(together[0][member], value, rtol=1e-5)
        np.testing.assert_allclose(together[1][member], gradient, rtol=1e-5)


@both
def test_running_statistics_move_by_the_momentum(name):
    x, variables = images(4, 16, 16, 3), _variables(name)
    model = _TINY[name](momentum=0.75)
    train = partial(model.apply, train=True, mutable=["batch_stats"])
    moved = jax.jit(train)(variables, x)[1]["batch_stats"]
    before = variables["batch_stats"]
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), moved, before)
    assert all(jax.tree.leaves(changed))
    stem = numpy_networks.convolution(
        x, variables["params"]["stem"]["kernel"], stride=2, padding=3
    )
    if name == "v1":
        running = moved["stem_norm"]
    else:  # the first batch norm comes after the maximum
        padded = np.pad(stem, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        stem = windows[:, ::2, ::2].max((-1, -2))
        running = moved["stage1_block1"]["norm1"]
    np.testing.assert_allclose(
        running["mean"], 0.25 * stem.mean((0, 1, 2)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        running["var"], 0.75 + 0.25 * stem.var((0, 1, 2)), rtol=1e-4
    )


@both
def test_bfloat16_computes_low_and_answers_in_float32(name):
    x, variables = images(4, 16, 16, 3), _variables(name)
    low = _TINY[name](dtype=jnp.bfloat16)
    shapes = jax.eval_shape(low.init, jax.random.key(0), x)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}

    def run(model):
        train = partial(model.apply, train=True, mutable=["batch_stats"])
        return jax.jit(train)(variables, x)

    output, updated = run(low)
    assert {leaf.dtype for leaf in jax.tree.leaves(updated)} == {jnp.dtype("float32")}
    assert output.logits.dtype == output.features.dtype == jnp.float32
    difference = float(jnp.abs(output.logits - run(_TINY[name]())[0].logits).max())
    assert 0 < difference < 0.3


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50", "resnet_v2_8", "resnet_v2_50"]
)
def test_a_study_builds_it_in_bfloat16_with_remat(name):
    network = ModelConfig(name=name, dtype="bfloat16", remat=True).build(10)
    x = jnp.zeros((2, 64, 64, 3))
    variables = jax.eval_shape(network.init, jax.random.key(0), x)
    assert set(variables) == {"params", "batch_stats"}
    assert variables["params"]["head"]["kernel"].shape[-1] == 10
    text = str(
        jax.make_jaxpr(lambda v: network.apply(v, x, train=True)[0].logits)(variables)
    )
    assert "bf16" in text


@pytest.mark.parametrize("name", ["resnet50", "resnet_v2_50"])
def test_stages_have_the_resolutions_of_the_paper(name):
    model = models.create(name, num_classes=10)
    x = jnp.zeros((1, 224, 224, 3))
    _, state = jax.eval_shape(
        lambda key: model.init_with_output(key, x, capture_intermediates=True),
        jax.random.key(0),
    )
    for stage, size in enumerate((56, 28, 14, 7), start=1):
        (out,) = state["intermediates"][f"stage{stage}_block1"]["__call__"]
        assert out.shape == (1, size, size, 256 * 2 ** (stage - 1))
