"""`Bert` against NumPy without masks; what dropout, remat and bfloat16 change."""

from functools import cache

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import Bert
from tests.models import numpy_transformers

_SIZES = {
    "num_classes": 3,
    "vocabulary_size": 20,
    "positions": 8,
    "depth": 2,
    "width": 8,
    "attention_heads": 2,
    "hidden": 12,
}
_ONE_LAYER = {**_SIZES, "depth": 1}  # leaves the weights of the other unused
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
both = pytest.mark.parametrize("pooling", ["first", "mean"])


@cache
def _variables(pooling):
    """Everything off its default, activations of order one."""
    model = Bert(pooling=pooling, **_SIZES)
    shapes = jax.eval_shape(model.init, jax.random.key(0), _TOKENS)
    generator = np.random.default_rng(0)

    def draw(path, leaf):
        kind = path[-1].key
        spread = leaf.shape[0] ** -0.5 if kind == "kernel" else 0.3
        start = 1.0 if kind == "scale" else 0.0
        spread = 1.0 if kind == "embedding" else spread
        return jnp.asarray(start + spread * generator.normal(size=leaf.shape), "f4")

    return jax.tree_util.tree_map_with_path(draw, shapes)


@both
def test_logits_are_those_of_every_text_without_its_padding(pooling):
    model, variables = Bert(pooling=pooling, **_SIZES), _variables(pooling)
    known = np.minimum(_TOKENS[:-1], 19)
    expected = numpy_transformers.bert(
        variables["params"], known, heads=2, pooling=pooling
    )
    assert np.abs(expected[0] - expected[1]).max() > 0.1
    logits = jax.jit(model.apply)(variables, _TOKENS).logits
    # Layer norms of eight features in float32.
    np.testing.assert_allclose(logits[:-1], expected, atol=2e-5)
    assert np.isfinite(logits[-1]).all()


def test_training_drops_by_its_key_and_the_head_of_the_features_gives_the_logits():
    model, variables = Bert(dropout=0.3, **_ONE_LAYER), _variables("first")

    @jax.jit
    def train(key):
        return model.apply(variables, _TOKENS, train=True, rngs={"dropout": key})

    head = jax.tree.map(np.asarray, variables["params"]["head"])
    logits = []
    for key in (1, 1, 2):
        output = train(jax.random.key(key))
        expected = np.asarray(output.features) @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(output.logits, expected, rtol=1e-5, atol=1e-5)
        logits.append(np.asarray(output.logits))
    assert output.features.dtype == output.logits.dtype == jnp.float32
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 0.01
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        jax.eval_shape(lambda v: model.apply(v, _TOKENS, train=True), variables)


def test_padding_and_unused_tokens_get_no_gradient():
    model, variables = Bert(pooling="mean", **_ONE_LAYER), _variables("mean")

    def loss(table):
        params = {**variables["params"], "tokens": {"embedding": table}}
        return jnp.sum(jnp.sin(model.apply({"params": params}, _TOKENS).logits))

    gradient = jax.jit(jax.grad(loss))(variables["params"]["tokens"]["embedding"])
    rows = np.abs(np.asarray(gradient)).max(-1)
    seen = np.isin(np.arange(20), np.minimum(_TOKENS[_TOKENS > 0], 19))
    assert (rows[seen] > 0).all() and (rows[~seen] == 0).all()


def test_bfloat16_is_computed_in_and_remat_adds_no_parameter():
    variables = _variables("mean")
    model = Bert(pooling="mean", remat=True, dtype=jnp.bfloat16, **_SIZES)
    shapes = jax.eval_shape(model.init, jax.random.key(0), _TOKENS)
    assert jax.tree.structure(shapes) == jax.tree.structure(variables)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    program, output = jax.make_jaxpr(model.apply, return_shape=True)(variables, _TOKENS)
    assert output.logits.dtype == output.features.dtype == jnp.float32
    text = str(program)
    # The primitive's name differs between versions of jax.
    assert "remat" in text or "checkpoint" in text
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert sum("bf16" in line for line in products) > len(products) / 2
