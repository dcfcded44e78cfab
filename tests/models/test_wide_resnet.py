from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import models
from churn_jax.models import WideResNet
from tests import reference_models as reference
from tests.models import numpy_networks
from tests.models.linen_networks import drawn_variables, images, loss_and_gradients

_TINY = partial(WideResNet, depth=10, num_classes=3)


@cache
def _tiny_variables():
    return drawn_variables(_TINY())


def _count(model, size=32):
    example = jnp.zeros((1, size, size, 3))
    tree = jax.eval_shape(model.init, jax.random.key(0), example)
    return sum(p.size for p in jax.tree.leaves(tree["params"]))


@pytest.mark.parametrize(
    ("widen", "count"), [(1, 369_498), (2, 1_467_610), (5, 9_132_634), (10, 36_479_194)]
)
def test_parameter_count(widen, count):
    """By the formula, and the number that is published for WRN-28-10."""
    total, before = 9 * 3 * 16, 16
    for width in (16 * widen, 32 * widen, 64 * widen):
        kernels = 9 * before * width + 7 * 9 * width**2
        shortcut = 0 if before == width else before * width
        total += kernels + shortcut + 2 * (before + 7 * width)
        before = width
    total += 2 * before + 10 * before + 10
    model = models.create(f"wide_resnet28_{widen}", num_classes=10)
    assert _count(model) == total == count


def test_a_batch_ensemble_of_four_adds_its_fast_weights_and_biases():
    model = partial(models.create, "wide_resnet28_10", num_classes=10)
    kernels, before = 3 + 16, 16
    for width in (160, 320, 640):
        kernels += (before + width) + 7 * 2 * width + (before + width)
        before = width
    extra = 4 * (kernels + 640 + 10) + 3 * 10
    ours = _count(model(layers=models.BatchEnsemble(4)))
    assert ours == _count(model()) + extra


@pytest.mark.parametrize(("size", "last"), [(32, 8), (64, 16)])
def test_the_last_stage_sees_a_quarter_of_the_resolution(size, last):
    model = _TINY(widen=2)
    variables = jax.eval_shape(
        model.init, jax.random.key(0), jnp.zeros((2, size, size, 3))
    )
    _, state = jax.eval_shape(
        partial(model.apply, capture_intermediates=True, mutable=["intermediates"]),
        variables,
        jnp.zeros((2, size, size, 3)),
    )
    (stage,) = state["intermediates"]["stage3_block1"]["__call__"]
    assert stage.shape == (2, last, last, 128)


def test_equals_a_numpy_forward_pass():
    x, variables = images(3, 8, 6, 3), _tiny_variables()
    train = partial(_TINY().apply, train=True, mutable=["batch_stats"])
    output, _ = jax.jit(train)(variables, x)
    expected = reference.wide_resnet(
        *numpy_networks.in_float64((variables["params"], x)), blocks=1
    )
    # Seven batch norms divide by deviations computed from float32 moments.
    np.testing.assert_allclose(output.logits, expected, rtol=1e-4, atol=2e-5)


def test_remat_changes_neither_the_tree_nor_the_values():
    x, variables = images(2, 8, 8, 3), _tiny_variables()
    params, stats = variables["params"], variables["batch_stats"]
    tree = jax.eval_shape(_TINY(remat=True).init, jax.random.key(0), x)
    assert jax.tree.structure(tree) == jax.tree.structure(variables)
    results = []
    for remat in (False, True):
        function = loss_and_gradients(_TINY(remat=remat))
        text = str(jax.make_jaxpr(function)(params, stats, x))
        assert ("remat" in text or "checkpoint" in text) == remat
        results.append(jax.jit(function)(params, stats, x))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, *results)


def test_bfloat16_answers_in_float32_and_keeps_float32_parameters():
    model = _TINY(dtype=jnp.bfloat16)
    output, tree = jax.eval_shape(
        model.init_with_output, jax.random.key(0), jnp.zeros((2, 8, 8, 3))
    )
    assert {leaf.dtype for leaf in jax.tree.leaves((output, tree))} == {
        jnp.dtype("float32")
    }
