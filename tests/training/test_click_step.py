"""A window step against the same training written densely."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.configuration import replaced
from churn_jax.ensembles import Outputs, average_probs
from churn_jax.methods import AntiDistillation, Batch
from churn_jax.models.click import ClickNetwork
from churn_jax.training import MeshShape, clicks
from churn_jax.training.clicks import click_program, make_score
from churn_jax.training.partition import REPLICA, make_mesh
from churn_jax.training.session import open_session
from churn_jax.training.state import TrainState, without_sums
from churn_jax.training.step import make_step
from tests.training.tiny_clicks import adagrad, few_clicks, tiny_model, tiny_run

RATE = 0.3
window_order = jax.jit(clicks.window_order)


def ready(run):
    """`(program, inputs, state)` before the first window."""
    data = few_clicks(count=26)
    session = open_session(run, data)
    (part,) = session.parts
    return part.program, part.inputs(0), part.state


@pytest.fixture(scope="module")
def run():
    method = AntiDistillation(members=2, strength=np.array([0.5, 2.0, 1.0]))
    return tiny_run(method, optimizer=adagrad(RATE))


@pytest.fixture(scope="module")
def stream():
    return few_clicks(count=26).train  # a window of 16, then one of 10


def learn(run, stream):
    """State before and after two windows, and the scores of both."""
    program, inputs, state = ready(run)
    step, scores = make_step(program), []
    before = jax.tree.map(jnp.copy, state)
    for number, window in enumerate(stream.windows(16)):
        state, given = step(state, inputs, (), window, np.int32(number))
        scores.append(np.asarray(given))
    return program, inputs, before, state, scores


@pytest.fixture(scope="module")
def learned(run, stream):
    return learn(run, stream)


def of_replica(run, table, r):
    """One replica's table; on one device they lie one after another."""
    return table.reshape(run.config.replicas, -1, table.shape[-1])[r]


def dense_replica(run, program, inputs, state, stream, r):
    """One replica by autodiff and optax over whole tables, batch after batch."""
    state = jax.device_get(state)
    model, network = run.clicks, ClickNetwork(run.clicks)
    coefficients = jax.device_get(inputs.coefficients)
    method = jax.tree.map(lambda x: x[r], coefficients.method)
    params = {
        "table": of_replica(run, state.tables[0], r),
        "towers": jax.tree.map(lambda x: x[r], state.params[0]),
    }
    optimizer = optax.adagrad(RATE, initial_accumulator_value=0.1, eps=1e-7)
    opt_state = optimizer.init(params)

    @jax.jit
    def update(params, opt_state, ids, numeric, labels, mask):
        def objective(params):
            rows = params["table"][ids + jnp.asarray(model.offsets)[None]]
            out = network.apply(
                {"params": {"towers": params["towers"]}},
                model.split_rows(rows),
                numeric,
            )
            keys = jax.random.split(jax.random.key(0), len(mask))
            result = method.loss(
                lambda *args, **kwargs: (Outputs(out.logits), ()),
                params,
                Batch(numeric, labels, mask, keys),
                teacher=None,
                step=0,
                key=keys[0],
            )
            deployed = average_probs(out.logits)
            return result.loss, deployed[:, 1] - deployed[:, 0]

        (_, scores), gradients = jax.value_and_grad(objective, has_aux=True)(params)
        changes, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, changes), opt_state, scores

    all_scores = []
    for number, window in enumerate(stream.windows(16)):
        order = window_order(inputs.order[r], np.int32(number), window.mask)
        placed = np.zeros(16, np.float32)
        for first in range(0, int(window.mask.sum()), 8):
            chosen = np.asarray(order)[first : first + 8]
            parts = (getattr(window, n)[chosen] for n in ("ids", "numeric", "labels"))
            params, opt_state, scores = update(
                params, opt_state, *parts, window.mask[chosen]
            )
            placed[chosen] = scores
        all_scores.append(placed)
    return params, opt_state[0].sum_of_squares["table"], all_scores


def test_windows_are_learned_as_by_dense_adagrad(run, stream, learned):
    r = 1
    program, inputs, before, after, scores = learned
    after = jax.device_get(after)
    # Two batches of the first window, two of ten examples in the second.
    np.testing.assert_array_equal(after.step, [4, 4, 4])
    params, squares, wanted = dense_replica(run, program, inputs, before, stream, r)
    close = {"rtol": 2e-5, "atol": 1e-6}
    table, kept = (of_replica(run, t, r) for t in after.tables)
    np.testing.assert_allclose(table, params["table"], **close)
    np.testing.assert_allclose(kept, squares, **close)
    towers = jax.tree.map(lambda x: x[r], after.params[0])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **close), towers, params["towers"]
    )
    for number, window in enumerate(stream.windows(16)):
        valid = window.mask > 0
        found, expected = (of[valid] for of in (scores[number][r], wanted[number]))
        np.testing.assert_allclose(found, expected, **close)


def test_the_first_batch_is_scored_before_anything_is_learned(learned, stream):
    program, inputs, before, _, scores = learned
    window = next(stream.windows(16))
    fresh = make_score(program)(before, inputs, window)
    for r in range(2):
        order = window_order(inputs.order[r], np.int32(0), window.mask)
        first, later = np.asarray(order)[:8], np.asarray(order)[8:]
        np.testing.assert_allclose(scores[0][r][first], fresh[r][first], rtol=1e-6)
        assert np.all(scores[0][r][later] != fresh[r][later])


def test_an_order_is_a_permutation_with_padding_last():
    mask = jnp.asarray([1.0] * 5 + [0.0] * 3)
    keys = jax.random.split(jax.random.key(0), 2)
    orders = [
        np.asarray(window_order(k, np.int32(n), mask)) for k in keys for n in (0, 1)
    ]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(8))
        np.testing.assert_array_equal(order[5:], [5, 6, 7])
    assert len({tuple(order) for order in orders}) == 4


def test_sums_stay_where_they_are_when_a_segment_begins():
    """The step refuses others."""
    placed = NamedSharding(make_mesh(MeshShape(2, 1, 2)), P(REPLICA))
    sums, updates = jax.device_put((np.ones((4, 2)), np.ones(4)), placed)
    state = without_sums(TrainState.specs().replace(sums=sums, updates=updates))
    for leaf in (state.sums, state.updates):
        assert leaf.sharding.is_equivalent_to(placed, leaf.ndim) and not leaf.any()


@pytest.mark.slow
def test_three_devices_learn_what_one_learns(run, stream, learned):
    _, _, _, alone, scores = learned
    wide = replaced(run, [("config.mesh", MeshShape(replica=3))])
    _, _, _, spread, spread_scores = learn(wide, stream)
    table = spread.tables[0]
    assert table.shape == alone.tables[0].shape == (3 * 18, 8)
    assert table.sharding.shard_shape(table.shape) == (18, 8)
    close = {"rtol": 2e-5, "atol": 1e-6}
    for a, b in zip(spread_scores, scores, strict=True):
        np.testing.assert_allclose(a, b, **close)
    for a, b in zip(jax.tree.leaves(spread), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, **close)


@pytest.mark.slow
def test_no_operation_has_the_size_of_a_table():
    """Tables are updated in place, and XLA copies or selects none of them."""
    rows = 500_000
    large = tiny_model(sizes=(rows, rows), features=(4,), gate=True)
    small = tiny_model(features=(4,), gate=True)
    method = AntiDistillation(members=2, deploy="gate", on="part")
    _, inputs, state = ready(tiny_run(method, small, replicas=2))
    table = jax.ShapeDtypeStruct((2 * large.rows, large.width), jnp.float32)
    state = state.replace(tables=(table, table))
    window = next(few_clicks().train.windows(16))
    step = make_step(click_program(tiny_run(method, large, replicas=2), 70))
    lowered = step.lower(state, inputs, (), window, np.int32(0))
    compiled = lowered.compile()
    size = 4 * np.prod(table.shape)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes > 2 * size
    assert memory.temp_size_in_bytes < size / 50
    shape = f"= f32[{','.join(map(str, table.shape))}]"
    of_tables = [line for line in compiled.as_text().splitlines() if shape in line]
    assert any("scatter" in line for line in of_tables)
    moved = (" copy(", " select(", " copy-start(", " transpose(", " broadcast(")
    assert [x for x in of_tables if any(kind in x for kind in moved)] == []
