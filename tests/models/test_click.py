import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models.click import ClickModel, ClickNetwork, init_table

pytestmark = pytest.mark.usefixtures("quick_to_compile")

IDS = np.array([[3, 10], [0, 13], [9, 12]])
NUMERIC = np.array([[0.5, -1.0], [2.0, 0.0], [-0.3, 0.7]], np.float32)


def build(**settings):
    model = ClickModel(
        **{"sizes": (10, 4), "numeric": 2, "embedding_dim": 3, "features": (5,)}
        | settings
    )
    table = init_table(model, jax.random.key(0))
    rows = model.split_rows(table[IDS])
    network = ClickNetwork(model)
    variables = network.init(jax.random.key(1), rows, NUMERIC)
    return model, network, variables, rows


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
        x = np.maximum(x @ tower["dense1"]["kernel"] + tower["dense1"]["bias"], 0.0)
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
    ],
    ids=["own tables", "shared and wide", "fields of their own"],
)
def test_towers_equal_numpy(settings):
    model, network, variables, rows = build(**settings)
    # Linear weights start at zero; others say more.
    params = jax.tree.map(lambda p: p + 0.1, variables["params"])
    rows = rows + 0.1
    out = network.apply({"params": params}, rows, NUMERIC)
    scores, deep = in_numpy(model, params, rows)
    assert out.logits.shape == (3, 3, 2)
    assert out.features.shape == (3, 3, 5)
    np.testing.assert_array_equal(out.logits[..., 0], 0.0)
    np.testing.assert_allclose(out.logits[..., 1], scores, rtol=1e-5, atol=1e-6)
    if model.wide:
        np.testing.assert_allclose(out.part[..., 1], deep, rtol=1e-5, atol=1e-6)
    else:
        assert out.part is None


def test_components_start_different_and_the_wide_part_at_zero():
    model, network, variables, rows = build(wide=True)
    kernels = variables["params"]["towers"]["dense1"]["kernel"]
    assert len(np.unique(kernels[:, 0, 0])) == model.components
    out = network.apply(variables, rows, NUMERIC)
    np.testing.assert_array_equal(out.logits, out.part)
    assert not np.any(variables["params"]["towers"]["dense1"]["bias"])


def test_a_gate_starts_uniform_and_does_not_train_the_embeddings():
    _, network, variables, rows = build(gate=True, shared_embeddings=True)
    out = network.apply(variables, rows, NUMERIC)
    np.testing.assert_allclose(out.gate, np.log(1 / 3), rtol=1e-6)

    def weight(variables, rows):
        return jnp.sum(network.apply(variables, rows, NUMERIC).gate[0])

    of_gate, of_rows = jax.grad(weight, argnums=(0, 1))(variables, rows)
    assert np.any(of_gate["params"]["gate"]["kernel"])
    assert not np.any(of_rows)


def test_initial_variance_is_s_over_the_width():
    model = ClickModel(sizes=(20_000,), embedding_dim=4, components=2, wide=True)
    table = init_table(model, jax.random.key(0), 9.0)
    assert table.shape == (20_000, 10)
    split = model.split_rows(table[:, None])[:, :, 0]
    np.testing.assert_allclose(np.var(split[..., :4]), 9.0 / 4, rtol=0.02)
    assert np.abs(split[..., :4]).max() < 2.0 * 1.5 / 0.8796 + 1e-3
    assert not np.any(split[..., 4])
    kernel = ClickNetwork(ClickModel((5,), 395, features=(50,), components=1)).init(
        jax.random.key(0), jnp.zeros((1, 1, 1, 8)), jnp.zeros((1, 395))
    )["params"]["towers"]["dense1"]["kernel"]
    np.testing.assert_allclose(np.var(kernel), 1 / 403, rtol=0.05)


def test_a_component_is_drawn_the_same_beside_others_and_beside_padding():
    one = ClickModel(sizes=(6,), embedding_dim=2, components=1)
    two = ClickModel(sizes=(6,), embedding_dim=2, components=2)
    key = jax.random.key(3)
    alone = init_table(one, key)
    np.testing.assert_array_equal(init_table(two, key)[:, :2], alone)
    np.testing.assert_array_equal(init_table(one, key, rows=8)[:6], alone)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
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
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        ClickModel(**settings)


def test_rows_of_another_form_are_refused():
    _, network, variables, rows = build()
    with pytest.raises(ValueError, match=r"rows and numeric must be .*\(2, 3, 2, 3\)"):
        network.apply(variables, rows[:2], NUMERIC)
