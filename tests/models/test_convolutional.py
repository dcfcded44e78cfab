"""The convolutional networks against NumPy and against golden logits of PyTorch."""

import re
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import models
from churn_jax.models import VGG, DenseNet, ImageNetResNet, LeNet5, ResNet, airbench
from churn_jax.models.convolution import banded_convolution
from churn_jax.models.layers import Conv, xla_convolution
from churn_jax.training.partition import compilation
from tests.models import drawn, numpy_networks, public_networks
from tests.models.linen_networks import drawn_variables, images, products

_STAGES = {"num_classes": 3, "stages": (1, 1), "width": 2}
_DENSE = DenseNet(num_classes=3, blocks=(2, 1), growth=2, width=3)
_VGG = VGG(3, (2, 1), width=3, grid=3, hidden=5)
_resnet, _densenet, _vgg = (
    numpy_networks.imagenet_resnet,
    partial(numpy_networks.densenet, blocks=(2, 1)),
    partial(numpy_networks.vgg, stages=(2, 1), grid=3),
)
_first = partial(_resnet, strides=(2, 1, 1))
_second = partial(_resnet, strides=(1, 2, 1))


# Golden logits below show basic blocks and `ResNetV2`.
@pytest.mark.parametrize(
    ("model", "shape", "reference"),
    [
        (LeNet5(10, layout="nhwc"), (2, 13, 12, 2), numpy_networks.lenet5),
        (LeNet5(10, layout="banded"), (2, 28, 28, 1), numpy_networks.lenet5),
        (ImageNetResNet(**_STAGES), (2, 17, 14, 3), _second),
        (ImageNetResNet(stride_at="1x1", **_STAGES), (2, 17, 14, 3), _first),
        (_DENSE, (2, 12, 9, 2), _densenet),
        (_VGG, (2, 9, 21, 2), _vgg),  # 2 x 5 pixels before the grid of 3 x 3
        (_VGG.clone(batch_norm=True), (2, 9, 13, 2), _vgg),
    ],
    ids="lenet5 banded resnet-3x3 resnet-1x1 densenet vgg vgg-norm".split(),
)
def test_logits_and_features_in_evaluation_are_those_of_numpy(model, shape, reference):
    x = images(*shape)
    variables = drawn_variables(model, x)
    output = jax.jit(model.apply)(variables, x)
    _close(output, reference(*numpy_networks.in_float64((variables, x))), rtol=2e-5)


def _close(output, expected, rtol=1e-4):
    """Seven batch norms divide by deviations computed from float32 moments."""
    for ours, theirs in zip(output, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", public_networks.NETWORKS)
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


def test_a_training_step_of_a_resnet_is_that_of_numpy_and_moves_running_statistics():
    model, x = ResNet(depth=8, num_classes=3, widths=(2, 2, 3)), images(3, 8, 6, 3)
    variables = drawn_variables(model, x)
    before, params = variables["batch_stats"], variables["params"]
    output, moved = _trained(model, variables, x)
    _close(output, _of_batch(numpy_networks.resnet, variables, x))
    now = moved["batch_stats"]
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), now, before)
    assert all(jax.tree.leaves(changed))
    stem = numpy_networks.convolution(x, params["stem"]["kernel"], padding=1)
    for name, moment in (("mean", np.mean), ("var", np.var)):
        expected = 0.9 * before["stem_norm"][name] + 0.1 * moment(stem, (0, 1, 2))
        found = now["stem_norm"][name]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # bfloat16 keeps 8 bits: different, but by a few per cent of order one.
    low = _trained(model.clone(dtype=jnp.bfloat16), variables, x)[0]
    assert 0 < np.abs(low.logits - output.logits).max() < 0.3
    # In evaluation statistics stay and an example does not see the others.
    evaluate = jax.jit(partial(model.apply, mutable=["batch_stats"]))
    whole, same = evaluate(variables, x)
    jax.tree.map(np.testing.assert_array_equal, same["batch_stats"], before)
    other = evaluate(variables, np.concatenate([x[:1], 3 * x[1:]]))[0]
    np.testing.assert_array_equal(*(np.asarray(o.logits)[0] for o in (whole, other)))


def test_a_training_step_of_a_wide_resnet_is_that_of_numpy():
    model, x = models.WideResNet(depth=10, num_classes=3), images(3, 8, 6, 3)
    variables = drawn_variables(model, x)
    output, _ = _trained(model, variables, x)
    _close(output, _of_batch(numpy_networks.wide_resnet, variables, x))


def _trained(model, variables, x):
    """Outputs in training, and the moved statistics."""
    apply = partial(model.apply, train=True, mutable=["batch_stats"])
    return jax.device_get(jax.jit(apply)(variables, x))


def _of_batch(reference, variables, x):
    """In NumPy, with the batch's own moments."""
    params, x = numpy_networks.in_float64((variables["params"], x))
    return reference({"params": params}, x)


def test_auto_is_banded_on_cpu_and_nhwc_elsewhere(monkeypatch):
    x, model = np.zeros((1, 28, 28, 1), "f4"), LeNet5(num_classes=10)
    trees = [
        jax.eval_shape(model.clone(layout=layout).init, jax.random.key(0), x)
        for layout in ("nhwc", "banded")
    ]
    assert trees[0] == trees[1]
    for platform, convolutions in (("cpu", 0), ("tpu", 2)):
        monkeypatch.setattr(jax, "default_backend", lambda p=platform: p)
        # A new function each time: jax remembers traces by function.
        program = jax.make_jaxpr(lambda v: model.apply(v, x))(drawn_variables(model, x))
        found = [e for e in products(program) if "conv" in e.primitive.name]
        assert len(found) == convolutions


def _outputs(model, size):
    """Shape and dtype of what every module returns, traced only."""
    seen = {}

    def note(call, args, kwargs, context):
        out = call(*args, **kwargs)
        seen["/".join(context.module.path)] = out
        return out

    x = np.zeros((1, size, size, 3), "f4")
    with nn.intercept_methods(note):
        jax.eval_shape(model.init, jax.random.key(0), x)
    return seen


_FOUR = (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("model", "size", "modules", "shapes"),
    [
        (
            models.ResNetV2(10, _FOUR),
            224,
            [f"stage{stage}_block1" for stage in (1, 2, 3, 4)],
            [(56, 56, 256), (28, 28, 512), (14, 14, 1024), (7, 7, 2048)],
        ),
        (DenseNet(10, _FOUR), 224, ["transition3"], [(7, 7, 36)]),
        (VGG(10, (1,) * 5, width=4), 224, ["stage5"], [(7, 7, 32)]),
        (models.WideResNet(10, 3, widen=2), 64, ["stage3_block1"], [(16, 16, 128)]),
    ],
)
def test_stages_have_the_resolutions_of_the_papers(model, size, modules, shapes):
    seen = _outputs(model, size)
    assert [seen[name].shape[1:] for name in modules] == shapes


@pytest.mark.parametrize(("blocks", "smallest"), [(1, 1), (2, 5), (4, 29)])
def test_the_smallest_image_of_a_densenet_leaves_a_pixel(blocks, smallest):
    model = DenseNet(num_classes=2, blocks=(1,) * blocks, growth=1, width=8)
    assert _outputs(model, smallest)["norm"].shape[1:3] == (1, 1)
    if smallest > 1:
        with pytest.raises(ValueError, match=f"at least {smallest} x {smallest}"):
            _outputs(model, smallest - 1)


@pytest.mark.parametrize(
    ("channels", "features", "stride", "padding", "widths"),
    [
        # Of the convolutions of a gradient: forward, in images, in the kernel.
        (2, 3, 2, "VALID", {3, 2}),  # strided, so no pixels together; 3 x 3 over 1 x 3
        (3, 5, 1, "SAME", {4 * 5, 4 * 3}),
        (5, 16, 1, 1, {2 * 16, 4 * 5}),
        pytest.param(4, 12, 1, 1, {4 * 12, 4 * 4, 2 * 12}, marks=pytest.mark.slow),
        pytest.param(20, 6, 1, ((0, 2), (2, 0)), {6, 20}, marks=pytest.mark.slow),
        pytest.param(2, 9, 2, ((0, 1), (1, 0)), {9, 2}, marks=pytest.mark.slow),
        # Six columns out, eight of the gradient.
        pytest.param(9, 7, 1, "VALID", {2 * 7, 2 * 9}, marks=pytest.mark.slow),
    ],
)
def test_conv_is_that_of_flax_with_all_its_derivatives(
    channels, features, stride, padding, widths
):
    x = images(19, 4, 8, channels)  # two parts, the second of them smaller
    ours, theirs = (
        m(features, (3, 3), strides=stride, padding=padding) for m in (Conv, nn.Conv)
    )
    variables, expected = (m.init(jax.random.key(0), x) for m in (ours, theirs))
    jax.tree.map(np.testing.assert_array_equal, variables, expected)

    def derivatives(layer, x):
        def value(v, x):
            return jnp.mean(jnp.sin(layer.apply(v, x)))

        def slope(v):  # forward mode over reverse mode
            return jax.jvp(lambda x: jax.grad(value)(v, x), (x,), (x**2,))

        members = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), variables)
        return slope(variables), jax.vmap(jax.value_and_grad(value, 1), (0, None))(
            members, x
        )

    both = jax.jit(lambda x: (derivatives(ours, x), derivatives(theirs, x)))(x)
    # Sums of 19 x 32 terms of order one, in another order.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), *both)

    def total(v, x):
        return ours.apply(v, x).sum()

    both_ways = jax.make_jaxpr(jax.grad(total, (0, 1)))(variables, x)
    found = [e for e in products(both_ways) if "conv" in e.primitive.name]
    assert {e.outvars[0].aval.shape[-1] for e in found} == widths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "size"),
    [
        (models.LeNet5(10, layers=models.BatchEnsemble(2)), 32),
        (
            models.create(
                "wide_resnet10_1", num_classes=10, layers=models.BatchEnsemble(2)
            ),
            32,
        ),
        # 3 x 3 kernels over 1 x 1
        (models.create("resnet18", num_classes=10, stages=(1, 1, 1, 1)), 32),
    ],
    ids=["lenet5", "wide_resnet10", "resnet18"],
)
def test_updates_in_a_loop_convolve_as_the_cpu_library_does(model, size):
    """XLA brings no other form to it there, and is many times slower by its own."""
    x = images(4, size, size, 3)
    variables = drawn_variables(model, x)

    def update(_, v):
        def loss(params):
            out, _ = model.apply({**v, "params": params}, x, True, mutable=list(v))
            return jnp.sum(out.logits**2)

        return {**v, "params": jax.grad(loss)(v["params"])}

    def updates(variables):
        return jax.lax.fori_loop(0, 3, update, variables)

    options = compilation(convolutional=True)
    compiled = jax.jit(updates, compiler_options=options).lower(variables).compile()
    forms = re.findall(r"convolution\(.*dim_labels=([^,]+)", compiled.as_text())
    assert len(forms) > 3 and set(forms) == {"b01f_01io->b01f"}


def test_kernels_are_he_normal_by_fan_out():
    model = ResNet(8, 2, widths=(32, 64, 64))

    @jax.jit
    def drawn_kernel(key):
        params = model.init(key, np.zeros((1, 4, 4, 3), "f4"))["params"]
        return params["stage2_block1"]["conv1"]["kernel"]  # 3 x 3 x 32 x 64

    kernel = drawn_kernel(jax.random.key(0))
    # 18,432 normal draws: the sample deviation is within 3 % (six sigma).
    np.testing.assert_allclose(np.std(kernel), np.sqrt(2 / (9 * 64)), rtol=0.03)
    # Not truncated: a truncated normal of this variance ends at 2.27 deviations.
    assert np.abs(kernel).max() > 3 * np.sqrt(2 / (9 * 64))


@pytest.mark.slow
def test_airbench_whitens_begins_as_the_identity_and_looks_at_six_views():
    model = models.Airbench(num_classes=3, width=24, views=1)
    x = images(3, 12, 12, 3)
    variables = jax.jit(model.init)(jax.random.key(0), x)
    for number, inputs in ((1, 24), (2, 24), (3, 96)):
        kernel = variables["params"][f"stage{number}"]["conv1"]["kernel"]
        copied = np.zeros((3, 3, inputs, inputs))
        copied[1, 1] = np.eye(inputs)
        np.testing.assert_array_equal(kernel[..., :inputs], copied)
        drawn = kernel[..., inputs:]  # uniform within 1 / sqrt(fan in)
        assert not drawn.size or abs(np.std(drawn) * (27 * inputs) ** 0.5 - 1) < 0.05
    half = airbench.whitening().reshape(12, 24)
    np.testing.assert_array_equal(half[:, :12], -half[:, 12:])
    # What has the built-in covariance has variances of at most 1 afterwards, which the
    # epsilon lowers most where they were smallest.
    inverse = np.linalg.inv(half[:, :12].astype(np.float64))
    covariance = inverse.T @ inverse - 5e-4 * np.eye(12)
    assert 0.98 < covariance[0, 0] < 1 and 0.45 < covariance[0, 11] < covariance[0, 3]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    views = np.stack([x, padded[:, :12, :12], padded[:, 2:, 2:]])
    views = np.stack([views, views[:, :, :, ::-1]], axis=1).reshape(-1, 12, 12, 3)
    logits = jax.jit(model.apply)(variables, views).logits
    logits = logits.reshape(3, 2, 3, 3).sum(axis=1)  # view, image, class
    expected = np.einsum("v,vbc->bc", [0.25, 0.125, 0.125], logits)
    found = jax.jit(model.clone(views=6).apply)(variables, x).logits
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"3 channels; got shape \(1, 12, 12, 1\)"):
        jax.eval_shape(model.init, jax.random.key(0), images(1, 12, 12, 1))


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "features", "padding"),
    [
        ((6, 9), (5, 5), 3, 4, 2),  # not square; 9 columns make two blocks of 5
        ((7, 19), (3, 5), 2, 3, 1),  # 17 columns make three blocks of 6
        ((5, 5), (5, 5), 2, 3, 0),  # one output pixel
    ],
)
def test_banded_equals_a_numpy_convolution(size, kernel, channels, features, padding):
    x, weights = images(2, *size, channels), images(*kernel, channels, features)
    out = jax.jit(partial(banded_convolution, padding=padding))(x, weights)
    expected = numpy_networks.convolution(x, weights, padding=padding)
    # float32 sums of up to 75 products of order one.
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_banded_gradients_equal_those_of_lax_and_vmap_over_networks_a_loop():
    x, cotangent = images(2, 6, 13, 2), images(2, 6, 13, 4)
    kernels = images(2, 3, 3, 2, 4)

    def pulled(convolve, kernel):
        out, pull = jax.vjp(partial(convolve, padding=1), x, kernel)
        return out, pull(cotangent)

    ours, theirs = (partial(pulled, f) for f in (banded_convolution, xla_convolution))
    mapped, alone, theirs = jax.jit(
        lambda k: (jax.vmap(ours)(k), ours(k[1]), theirs(k[1]))
    )(kernels)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-5)
    jax.tree.map(close, alone, theirs)
    jax.tree.map(lambda a, b: close(np.asarray(a)[1], b), mapped, alone)


@pytest.mark.parametrize("kernel", [(3, 3, 2, 1), (5, 3, 1, 1), (3, 5, 1, 1)])
def test_a_kernel_that_does_not_fit_is_refused(kernel):
    with pytest.raises(ValueError, match="does not fit images of shape") as error:
        banded_convolution(np.zeros((1, 4, 4, 1), "f4"), np.zeros(kernel, "f4"))
    assert str(kernel) in str(error.value)
