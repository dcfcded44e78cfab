from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.models import BasicBlock, ResNet
from tests.models import numpy_networks
from tests.models.linen_networks import drawn_variables, loss_and_gradients
from tests.models.linen_networks import images as random_images

_TINY = partial(ResNet, depth=8, num_classes=3, widths=(4, 4, 6))


@cache
def _tiny_variables():
    return drawn_variables(_TINY())


@pytest.mark.parametrize(
    ("depth", "count"),
    # conv stem 432; n = (depth - 2) / 6 blocks a stage; 3x3 kernels:
    #   2n of 16*16*9, one of 16*32*9, 2n-1 of 32*32*9, one of 32*64*9, 2n-1 of 64*64*9
    # batch norm: 2 * (16 * (2n + 1) + 32 * 2n + 64 * 2n); dense: 64*10 + 10
    [
        (20, 432 + 13824 + 4608 + 46080 + 18432 + 184320 + 1376 + 650),
        (32, 432 + 23040 + 4608 + 82944 + 18432 + 331776 + 2272 + 650),
        (56, 432 + 41472 + 4608 + 156672 + 18432 + 626688 + 4064 + 650),
    ],
)
def test_parameter_count(depth, count):
    model = ResNet(depth=depth, num_classes=10)
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    assert sum(p.size for p in jax.tree.leaves(variables["params"])) == count
    assert count == {20: 269_722, 32: 464_154, 56: 853_018}[depth]


@pytest.mark.parametrize("size", [(32, 32), (28, 28), (8, 8), (9, 7)])
def test_shapes_at_all_input_sizes(size):
    model = ResNet(depth=20, num_classes=100)
    images = jnp.zeros((2, *size, 1))
    output, variables = jax.eval_shape(
        model.init_with_output, jax.random.key(0), images
    )
    assert output.logits.shape == (2, 100) and output.features.shape == (2, 64)
    assert set(variables) == {"params", "batch_stats"}


@pytest.mark.parametrize(
    ("channels", "width", "stride"), [(2, 2, 1), (2, 3, 2), (3, 5, 1)]
)
def test_block_equals_a_numpy_forward_pass(channels, width, stride):
    images = random_images(3, 5, 6, channels)
    block = BasicBlock(width, stride=stride)
    out, variables = jax.jit(block.init_with_output, static_argnums=2)(
        jax.random.key(0), images, True
    )
    expected = numpy_networks.basic_block(
        *numpy_networks.in_float64((variables["params"], images)), stride=stride
    )
    # Batch norm divides by a standard deviation computed from float32 moments.
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-5)


def test_running_statistics_move_in_train_mode_only():
    images = random_images(4, 8, 8, 3)
    variables = _tiny_variables()
    before = variables["batch_stats"]
    apply = jax.jit(
        partial(_TINY().apply, mutable=["batch_stats"]), static_argnames="train"
    )
    _, evaluated = apply(variables, images, train=False)
    jax.tree.map(np.testing.assert_array_equal, evaluated["batch_stats"], before)
    _, trained = apply(variables, images, train=True)
    moved = jax.tree.map(
        lambda a, b: bool(jnp.any(a != b)), trained["batch_stats"], before
    )
    assert all(jax.tree.leaves(moved))
    stem = numpy_networks.convolution(
        images, variables["params"]["stem"]["kernel"], padding=1
    )
    running = trained["batch_stats"]["stem_norm"]
    np.testing.assert_allclose(
        running["mean"], 0.1 * stem.mean((0, 1, 2)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        running["var"], 0.9 + 0.1 * stem.var((0, 1, 2)), rtol=1e-5
    )


def test_evaluation_of_an_example_does_not_depend_on_the_others():
    images = random_images(4, 8, 8, 3)
    apply = jax.jit(partial(_TINY().apply, _tiny_variables()))
    np.testing.assert_allclose(
        apply(images).logits[:1], apply(images[:1]).logits, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("remat", [False, True])
def test_axis_name_gives_whole_batch_statistics_and_gradients(remat):
    images, variables = random_images(16, 8, 8, 3), _tiny_variables()
    params, stats = variables["params"], variables["batch_stats"]
    (loss, (logits, moved)), gradients = jax.jit(loss_and_gradients(_TINY()))(
        params, stats, images
    )
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = jax.shard_map(
        loss_and_gradients(_TINY(axis_name="data", remat=remat)),
        mesh=mesh,
        in_specs=(P(), P(), P("data")),
        out_specs=((P(), (P("data"), P())), P()),
        check_vma=True,
    )
    (loss_8, (logits_8, moved_8)), gradients_8 = jax.jit(sharded)(params, stats, images)
    np.testing.assert_allclose(loss_8, loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits_8, logits, rtol=1e-4, atol=1e-5)
    # Sums over 1,024 pixels in another order, then seven batch norms.
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=5e-5)
    jax.tree.map(close, moved_8, moved)
    jax.tree.map(close, gradients_8, gradients)
    # Not so without the axis name, or this test could not fail.
    alone = jax.shard_map(
        lambda v, x: _TINY().apply(v, x, train=True, mutable=["batch_stats"])[0],
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=P("data"),
    )
    if not remat:
        other = jax.jit(alone)(variables, images).logits
        assert float(jnp.abs(other - logits).max()) > 0.1


def test_remat_changes_neither_the_tree_nor_the_values():
    images, variables = random_images(4, 8, 8, 3), _tiny_variables()
    params, stats = variables["params"], variables["batch_stats"]
    tree = jax.eval_shape(_TINY(remat=True).init, jax.random.key(0), images)
    assert jax.tree.structure(tree) == jax.tree.structure(variables)
    plain = loss_and_gradients(_TINY())
    remat = loss_and_gradients(_TINY(remat=True))
    for function, recomputes in ((plain, False), (remat, True)):
        text = str(jax.make_jaxpr(function)(params, stats, images))
        # The primitive's name differs between versions of jax.
        assert ("remat" in text or "checkpoint" in text) == recomputes
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(
        close,
        jax.jit(remat)(params, stats, images),
        jax.jit(plain)(params, stats, images),
    )


def test_bfloat16_computes_low_and_answers_in_float32():
    images = random_images(4, 8, 8, 3)
    model = _TINY(dtype=jnp.bfloat16)
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)
    assert {p.dtype for p in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}

    def apply(model):
        train = partial(model.apply, train=True, mutable=["batch_stats"])
        return jax.jit(train)(_tiny_variables(), images)

    output, updated = apply(model)
    assert {p.dtype for p in jax.tree.leaves(updated)} == {jnp.dtype("float32")}
    assert output.logits.dtype == output.features.dtype == jnp.float32
    exact = apply(_TINY())[0]
    difference = float(jnp.abs(output.logits - exact.logits).max())
    assert 0 < difference < 0.3


def test_kernels_are_he_normal_by_fan_out():
    init = jax.jit(BasicBlock(64, stride=2).init, static_argnums=2)
    params = init(jax.random.key(0), jnp.zeros((1, 4, 4, 32)), False)["params"]
    kernel = params["conv1"]["kernel"]  # 3 x 3 x 32 x 64
    # 18,432 normal draws: the sample deviation is within 3 % (six sigma).
    np.testing.assert_allclose(jnp.std(kernel), np.sqrt(2 / (9 * 64)), rtol=0.03)
    # Not truncated: a truncated normal of this variance ends at 2.27 deviations.
    assert float(jnp.abs(kernel).max()) > 3 * np.sqrt(2 / (9 * 64))
