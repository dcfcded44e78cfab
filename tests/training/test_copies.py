"""Copies of the weights: those that peers follow, and their moving average."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from churn_jax.configuration import replaced
from churn_jax.ensembles import from_linen
from churn_jax.methods import ERM, Codistillation
from churn_jax.methods.codistillation import stale_disagreement
from churn_jax.training import OptimizerConfig
from churn_jax.training.examples import changed_form
from churn_jax.training.state import Weights
from tests.integration.test_resume import lines, make_run, trained, with_interruptions
from tests.training import tiny
from tests.training.digits import digits
from tests.training.tiny import compilations, read_metrics

UPDATES, STEPS = 7, 3


def stale(steps, **more):
    return Codistillation(beta=0.5, update="independent", refresh_steps=steps, **more)


@functools.cache
def history():
    """The state before the first update and after each of the others."""
    stepper = tiny.stepper(tiny.linear_run(stale(STEPS), ema_decay=0.9))
    return stepper, stepper.history(UPDATES)


def test_copies_are_those_of_the_last_multiple_of_t():
    _, states = history()
    for t in range(UPDATES):  # update t leads from states[t] to states[t + 1]
        made = t // STEPS * STEPS
        assert tiny.bitwise_equal(states[t + 1].peers.params, states[made].params)
        assert tiny.largest_difference(states[t + 1].params, states[t].params) > 1e-3


def test_an_update_follows_the_copies():
    """The logged disagreement, from the weights that the schedule says."""
    stepper, states = history()
    part = tiny.dataset().train
    pixels = (part.images / np.float32(255) - np.float32(0.5)) / np.float32(0.25)
    column = 1 + stepper.session.terms.index("skl")
    for t in range(UPDATES):
        inputs = stepper.session.parts[0].inputs(t // tiny.STEPS_PER_EPOCH)
        start = t % tiny.STEPS_PER_EPOCH * tiny.BATCH
        for r in range(2):
            rows = np.asarray(inputs.order)[r, start : start + tiny.BATCH]

            def logits(state, r=r, rows=rows):
                x = pixels[rows].reshape(len(rows), -1)
                return np.stack([x @ k for k in state.params[0]["kernel"][r]])

            members_now, copies = logits(states[t]), logits(states[t // STEPS * STEPS])
            apart = np.mean(stale_disagreement("skl", members_now, copies))
            logged = states[t + 1].sums[r, column] - states[t].sums[r, column]
            # The sums run over the updates so far; ours is the difference of two.
            np.testing.assert_allclose(logged, apart, rtol=2e-4, atol=2e-5)
    assert apart > 0.1


def test_refreshing_compiles_nothing_and_fetches_nothing():
    stepper, _ = history()
    stepper.advance(1)  # `history` still looks at the state before
    inputs = stepper.inputs(1)
    with compilations() as names, jax.transfer_guard("disallow"):
        for _ in range(tiny.STEPS_PER_EPOCH):
            before = jax.tree.leaves(stepper.states[0].peers)
            stepper.states[0] = stepper.step(
                stepper.states[0], inputs[0], (), *stepper.data
            )
            assert all(leaf.is_deleted() for leaf in before)  # donated
    assert names == []


def test_a_stopped_replica_keeps_its_copies_and_its_average():
    stepper, _ = history()  # of an equal program
    rates = [("config.optimizer", tiny.STOPPING)]
    stepper = tiny.stepper(replaced(stepper.run, rates))
    early, late = stepper.advance(3), stepper.advance(3)
    assert late.alive.tolist() == [True, False]
    assert early.stopped_step[1] == late.stopped_step[1] >= 0
    for field in ("peers", "ema", "params"):
        ours, theirs = (tiny.replica(getattr(s, field), 1) for s in (early, late))
        assert tiny.bitwise_equal(ours, theirs)
        healthy = [tiny.replica(getattr(s, field), 0) for s in (early, late)]
        assert tiny.largest_difference(*healthy) > 1e-4
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(healthy))


class Normalised(nn.Module):
    """Batch norm and a layer whose weights are bfloat16."""

    @nn.compact
    def __call__(self, x, train):
        norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
        x = norm(x.reshape(x.shape[0], -1))
        return nn.Dense(tiny.CLASSES, param_dtype=jnp.bfloat16)(x)


def test_the_average_follows_its_recurrence():
    """`a <- d a + (1 - d) w`, `d = min(decay, (1 + t) / (10 + t))`, in float64."""
    network = from_linen(Normalised())
    run = tiny.make_run(ERM(), network=network, replicas=2, ema_decay=0.25)
    states = tiny.stepper(run).history(6)
    trees = [(s.params, s.model_state) for s in states]
    assert not changed_form(trees[0], trees[-1])  # weights keep their dtypes
    assert states[-1].params[0]["Dense_0"]["kernel"].dtype == jnp.bfloat16
    assert "batch_stats" in states[0].model_state[0]
    average = jax.tree.map(np.float64, trees[0])
    used = []
    for t, tree in enumerate(trees[1:]):
        decay = min(0.25, (1 + t) / (10 + t))
        used.append(decay)
        average = jax.tree.map(
            lambda a, w, d=decay: d * a + (1 - d) * np.float64(w), average, tree
        )
        ours = (states[t + 1].ema.params, states[t + 1].ema.model_state)
        assert tiny.largest_difference(ours, average) < 1e-6
    # The warm-up and the decay proper were both seen, and the average is another one.
    assert used[0] == 0.1 and used[-1] == 0.25
    assert tiny.largest_difference(average, trees[-1]) > 1e-3


@pytest.mark.slow
def test_stopped_between_two_refreshes_it_goes_on_as_if_it_had_not_been(
    tmp_path, blocks_of
):
    """Copies, average and the members' own samples come back from the checkpoint."""
    blocks_of(32)
    method = stale(50, member_sample="bootstrap")
    run = make_run(method, epochs=2, batch_size=4, ema_decay=0.9)
    whole, _ = trained(run, tmp_path / "whole")
    (resumed, _), stops = with_interruptions(run, tmp_path / "resumed", 0)
    assert stops == [32]  # 64 updates; the copies were made before updates 0 and 50
    assert isinstance(whole.last.peers, Weights)
    assert tiny.bitwise_equal(whole.last, resumed.last)
    assert lines(tmp_path / "whole") == lines(tmp_path / "resumed") != []
    images = digits().test.images
    averaged = whole.predict(images, "ema")
    assert tiny.bitwise_equal(averaged, resumed.predict(images, weights="ema"))
    assert jnp.max(jnp.abs(averaged - whole.predict(images))) > 1e-3


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    directory = tmp_path_factory.mktemp("averaged")
    # A rate that stays high: the weights wander, their average does not.
    rate = OptimizerConfig(learning_rate=0.2, weight_decay=0.0)
    run = make_run(ERM(), epochs=1, batch_size=4, ema_decay=0.99, optimizer=rate)
    return trained(run, directory)


@pytest.mark.slow
def test_log_lines_hold_what_the_average_predicts(averaged):
    result, directory = averaged
    record = read_metrics(directory)[-1]["validation"]
    part = digits().validation
    predicted = np.argmax(result.predict(part.images, "ema"), axis=-1)
    accuracy = np.mean(predicted == part.labels, axis=-1)
    np.testing.assert_allclose(record["accuracy_ema"], accuracy, rtol=1e-6)
    churn = np.mean(predicted[0] != predicted[1])
    np.testing.assert_allclose(record["churn_ema"], churn, rtol=1e-6)
    assert record["accuracy_ema"] != record["accuracy"]


@pytest.mark.slow
def test_both_sets_of_weights_have_a_name_if_there_are_two(averaged):
    result, _ = averaged
    images = digits().test.images[:20]
    plain = result.predict(images)
    np.testing.assert_array_equal(result.predict(images, "config"), plain)
    averages = result.predict(images, weights="ema")
    assert np.max(np.abs(averages - plain)) > 1e-3
    members = result.predict(images, "ema", every_member=True)
    np.testing.assert_array_equal(members[:, 0], averages)
    alone = tiny.session_of(tiny.make_run(ERM(), network=tiny.LINEAR)).parts[0].state
    assert alone.ema == () and alone.peers == () and result.last.peers == ()
    without = dataclasses.replace(result, last=alone)
    for found, name, message in (
        (result, "swa", "config or ema; got 'swa'"),
        (without, "ema", "ema_decay 0, so it has no averaged weights"),
    ):
        with pytest.raises(ValueError, match=message):
            found.predict(images, name)
