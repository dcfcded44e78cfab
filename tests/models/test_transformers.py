"""`Bert` and `Swin` against NumPy without masks and windows."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import Bert, Swin
from churn_jax.models.transformers import SwinBlock
from tests.models import numpy_transformers
from tests.models.linen_networks import BERT, SWIN, drawn_variables, images

# Of the full length, with padding, of one token, with a gap, with ids beyond the
# vocabulary, of padding alone.
_TOKENS = np.array(
    [
        [3, 9, 4, 7, 5, 2],
        [11, 2, 0, 0, 0, 0],
        [6, 0, 0, 0, 0, 0],
        [8, 0, 3, 1, 0, 0],
        [5, 20, 99, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ],
    np.int32,
)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_logits_of_bert_are_those_of_every_text_without_its_padding(pooling):
    model = Bert(pooling=pooling, depth=2, **BERT)
    variables = drawn_variables(model, _TOKENS)
    known = np.minimum(_TOKENS[:-1], 19)
    options = {"heads": 2, "pooling": pooling}
    expected = numpy_transformers.bert(variables["params"], known, **options)
    assert np.abs(expected[0] - expected[1]).max() > 0.1
    logits = jax.jit(model.apply)(variables, _TOKENS).logits
    # Layer norms of eight features in float32.
    np.testing.assert_allclose(logits[:-1], expected, atol=2e-5)
    assert np.isfinite(logits[-1]).all()


def test_padding_and_unused_tokens_get_no_gradient():
    model = Bert(pooling="mean", depth=1, **BERT)
    variables = drawn_variables(model, _TOKENS)

    def loss(table):
        params = {**variables["params"], "tokens": {"embedding": table}}
        return jnp.sum(jnp.sin(model.apply({"params": params}, _TOKENS).logits))

    gradient = jax.jit(jax.grad(loss))(variables["params"]["tokens"]["embedding"])
    rows = np.abs(np.asarray(gradient)).max(-1)
    seen = np.isin(np.arange(20), np.minimum(_TOKENS[_TOKENS > 0], 19))
    assert (rows[seen] > 0).all() and (rows[~seen] == 0).all()


def test_logits_of_swin_are_those_of_pixels_that_see_their_window_on_their_side():
    model, x = Swin(num_classes=3, width=4, **SWIN), images(2, 24, 12, 3)
    variables = drawn_variables(model, x)
    # 12 x 6 pixels, windows of 3 x 3 shifted by one in the second block.
    expected = numpy_transformers.swin(variables["params"], x, **SWIN)
    output = jax.jit(model.apply)(variables, x)
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    np.testing.assert_allclose(output.logits, expected, atol=2e-5)


def test_a_block_of_swin_skips_each_branch_for_whole_examples():
    block = SwinBlock(heads=1, window=2, shifted=True, hidden=8, drop_path=0.4)
    x = np.broadcast_to(images(1, 4, 4, 4), (400, 4, 4, 4))
    shapes = jax.eval_shape(lambda key: block.init(key, x, False), jax.random.key(0))
    variables = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.3, "f4"), shapes)
    variables["params"]["norm1"]["bias"] = np.arange(4, dtype="f4")
    rngs = {"dropout": jax.random.key(0)}
    run = jax.jit(lambda variables: block.apply(variables, x, True, rngs=rngs))
    out = np.asarray(run(variables)).reshape(400, -1)
    kinds, counts = np.unique(out.round(3), axis=0, return_counts=True)
    assert len(kinds) == 4  # none, one, the other, both
    unchanged = (out == np.asarray(x).reshape(400, -1)).all(-1).sum()
    assert unchanged in counts and abs(unchanged / 400 - 0.4**2) < 0.08


def test_rates_grow_from_zero_in_the_first_block_of_swin_to_drop_path_in_the_last():
    seen = []

    def note(call, args, kwargs, context):
        if isinstance(context.module, SwinBlock):
            seen.append(context.module.drop_path)
        return call(*args, **kwargs)

    model = Swin(num_classes=2, width=4, drop_path=0.2, **SWIN)
    with nn.intercept_methods(note):
        jax.eval_shape(model.init, jax.random.key(0), images(1, 12, 12, 3))
    assert list(dict.fromkeys(seen)) == [0.0, 0.1, 0.2]
