import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.network import ModelConfig
from churn_jax.methods import ERM
from churn_jax.models.click import ClickModel, ClickNetwork, init_table
from tests.models.linen_networks import images
from tests.models.numpy_networks import activation
from tests.refusals import refusals

NUMERIC = np.array([[0.5, -1.0], [2.0, 0.0], [-0.3, 0.7]], np.float32)


def build(**settings):
    """A model, its network's output as a jitted function, drawn parameters, rows."""
    model = ClickModel(
        **{"sizes": (10, 4), "numeric": 2, "embedding_dim": 3, "features": (5,)}
        | settings
    )
    rows = model.split_rows(0.1 + images(3, 2, model.width))
    network = ClickNetwork(model)
    shapes = jax.eval_shape(network.init, jax.random.key(1), rows, NUMERIC)
    generator = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: generator.normal(size=leaf.shape).astype("f4"), shapes["params"]
    )
    return model, network, params, rows


def in_numpy(model, params, rows):
    """`(scores, deep scores)` `[K, B]`, in float64."""
    scores, deeps = [], []
    for k in range(model.components):
        tower = jax.tree.map(lambda p, k=k: np.asarray(p[k], float), params["towers"])
        own = np.asarray(rows[min(k, model.tables - 1)], float)
        if model.component_fields:
            seen = [f in model.component_fields[k] for f in range(len(model.sizes))]
            own = own * np.asarray(seen)[None, :, None]
        embedded = own[..., : model.embedding_dim].reshape(len(own), -1)
        x = np.concatenate([embedded, NUMERIC], axis=1)
        x = x @ tower["dense1"]["kernel"] + tower["dense1"]["bias"]
        kind, _, beta = model.activation.partition(":")
        x = activation(kind, x, float(beta or 1.0))
        deep = (x @ tower["head"]["kernel"] + tower["head"]["bias"])[:, 0]
        wide = 0.0
        if model.wide:
            wide = own[..., -1].sum(1) + (NUMERIC @ tower["wide"]["kernel"])[:, 0]
        scores.append(deep + wide)
        deeps.append(deep)
    return np.stack(scores), np.stack(deeps)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shared_embeddings": True, "wide": True},
        {"wide": True, "component_fields": ((0,), (1,), (0, 1))},
        {"activation": "smelu:0.5"},
    ],
    ids=["own tables", "shared and wide", "fields of their own", "smelu"],
)
def test_towers_equal_numpy(settings):
    model, network, params, rows = build(**settings)
    out = jax.jit(network.apply)({"params": params}, rows, NUMERIC)
    scores, deep = in_numpy(model, params, rows)
    assert out.logits.shape == (3, 3, 2)
    assert out.features.shape == (3, 3, 5)
    np.testing.assert_array_equal(out.logits[..., 0], 0.0)
    np.testing.assert_allclose(out.logits[..., 1], scores, rtol=1e-5, atol=1e-6)
    if model.wide:
        np.testing.assert_allclose(out.part[..., 1], deep, rtol=1e-5, atol=1e-6)
    else:
        assert out.part is None


def test_a_gate_equals_numpy_and_does_not_train_the_embeddings():
    _, network, params, rows = build(gate=True)

    def weight(params, rows):
        gate = network.apply({"params": params}, rows, NUMERIC).gate
        return jnp.sum(gate[0]), gate

    gradient = jax.jit(jax.grad(weight, argnums=(0, 1), has_aux=True))
    (of_params, of_rows), gate = gradient(params, rows)
    embedded = np.asarray(rows, float).mean(0).reshape(3, -1)
    x = np.concatenate([embedded, NUMERIC], 1)
    scores = x @ params["gate"]["kernel"] + params["gate"]["bias"]
    expected = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    np.testing.assert_allclose(gate.T, expected, rtol=1e-5, atol=1e-5)
    assert np.any(of_params["gate"]["kernel"]) and not np.any(of_rows)


def test_variables_start_as_the_paper_says():
    """Variance s / D and 1 / fan-in, components of their own, linear parts at zero."""
    model = ClickModel((20_000,), 395, 4, (50,), components=2, wide=True, gate=True)
    table = jax.jit(init_table, static_argnums=0)(model, jax.random.key(0), 9.0)
    assert table.shape == (20_000, 10)
    split = np.asarray(model.split_rows(table[:, None])[:, :, 0])
    np.testing.assert_allclose(np.var(split[..., :4]), 9.0 / 4, rtol=0.02)
    assert np.abs(split[..., :4]).max() < 2.0 * 1.5 / 0.8796 + 1e-3
    assert not np.any(split[..., 4])
    params = jax.jit(ClickNetwork(model).init)(
        jax.random.key(0), np.zeros((2, 1, 1, 5), "f4"), np.zeros((1, 395), "f4")
    )["params"]
    towers = jax.tree.map(np.asarray, params["towers"])
    kernels = towers["dense1"]["kernel"]
    np.testing.assert_allclose(np.var(kernels), 1 / 399, rtol=0.05)
    assert not np.array_equal(*kernels) and not np.any(towers["dense1"]["bias"])
    assert not np.any(towers["wide"]["kernel"])
    assert not np.any(params["gate"]["kernel"])


def test_a_component_is_drawn_the_same_next_to_others():
    one, two = (ClickModel((6,), embedding_dim=2, components=k) for k in (1, 2))
    draw = jax.jit(lambda key: (init_table(one, key), init_table(two, key)))
    alone, both = draw(jax.random.key(3))
    np.testing.assert_array_equal(both[:, :2], alone)


def test_a_setting_that_a_click_model_does_not_have_is_refused():
    config = ModelConfig("click", dropout=0.5, init="he")
    with pytest.raises(ValueError, match="towers; leave out init, dropout"):
        config.click_model((3,), 0, ERM())


test_bad_settings_are_named = refusals(
    ({"sizes": ()}, "at least one categorical field"),
    ({"sizes": (3, 0)}, "at least one row"),
    ({"sizes": (3,), "components": 0}, "components must be at least 1; got 0"),
    ({"sizes": (3,), "features": (4, 0)}, "positive widths"),
    ({"sizes": (2**30, 2**30)}, r"fewer than 2\^31 rows"),
    ({"sizes": (3,), "component_fields": ((0,),)}, "one tuple for each of the 3"),
    (
        {"sizes": (3,), "component_fields": ((0,), (1,), (0,))},
        "component 1 must see fields between 0 and 0",
    ),
    call=lambda settings: ClickModel(**settings),
)


def test_rows_of_another_form_are_refused():
    _, network, params, rows = build()
    with pytest.raises(ValueError, match=r"rows and numeric must be .*\(2, 3, 2, 3\)"):
        network.apply({"params": params}, rows[:2], NUMERIC)
