"""`Swin` against NumPy without windows; what skipping, remat and bfloat16 change."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models import Swin, SwinBlock
from tests.models import numpy_transformers
from tests.models.linen_networks import drawn_variables, images

_SIZES = {"stages": (2, 1), "attention_heads": (1, 2), "patch": 2, "window": 3}
_MODEL = Swin(num_classes=3, width=4, **_SIZES)


def test_logits_are_those_of_pixels_that_see_their_window_on_their_side():
    x, variables = images(2, 24, 12, 3), drawn_variables(_MODEL)
    # 12 x 6 pixels, windows of 3 x 3 shifted by one in the second block.
    expected = numpy_transformers.swin(variables["params"], x, **_SIZES)
    output = jax.jit(_MODEL.apply)(variables, x)
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    np.testing.assert_allclose(output.logits, expected, atol=2e-5)


def test_a_block_skips_each_branch_for_whole_examples():
    block = SwinBlock(heads=1, window=2, shifted=True, hidden=8, drop_path=0.4)
    x = jnp.broadcast_to(images(1, 4, 4, 4), (400, 4, 4, 4))
    shapes = jax.eval_shape(lambda key: block.init(key, x, False), jax.random.key(0))
    variables = jax.tree.map(lambda leaf: 0.3 + jnp.zeros(leaf.shape), shapes)
    variables["params"]["norm1"]["bias"] = jnp.arange(4.0)

    @jax.jit
    def run(variables):
        train = {"rngs": {"dropout": jax.random.key(0)}}
        return block.apply(variables, x, True, **train)

    out = np.asarray(run(variables)).reshape(400, -1)
    kinds, counts = np.unique(out.round(3), axis=0, return_counts=True)
    assert len(kinds) == 4  # none, one, the other, both
    unchanged = (out == np.asarray(x).reshape(400, -1)).all(-1).sum()
    assert unchanged in counts and abs(unchanged / 400 - 0.4**2) < 0.08


def test_rates_grow_from_zero_in_the_first_block_to_drop_path_in_the_last():
    seen = []

    def note(next_function, args, kwargs, context):
        if isinstance(context.module, SwinBlock):
            seen.append(context.module.drop_path)
        return next_function(*args, **kwargs)

    model = Swin(num_classes=2, width=4, drop_path=0.2, **_SIZES)
    with nn.intercept_methods(note):
        jax.eval_shape(model.init, jax.random.key(0), images(1, 12, 12, 3))
    assert list(dict.fromkeys(seen)) == [0.0, 0.1, 0.2]


def test_bfloat16_is_computed_in_and_remat_adds_no_parameter():
    x, variables = images(2, 12, 12, 3), drawn_variables(_MODEL)
    model = _MODEL.clone(remat=True, dtype=jnp.bfloat16)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    assert jax.tree.structure(shapes) == jax.tree.structure(variables)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    program, output = jax.make_jaxpr(model.apply, return_shape=True)(variables, x)
    assert output.logits.dtype == output.features.dtype == jnp.float32
    text = str(program)
    # The primitive's name differs between versions of jax.
    assert "remat" in text or "checkpoint" in text
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert sum("bf16" in line for line in products) > len(products) / 2
