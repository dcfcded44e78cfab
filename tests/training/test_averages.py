"""The moving average of the weights: its recurrence, its predictions, its log lines."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from churn_jax.methods import ERM
from churn_jax.training import OptimizerConfig, train
from tests.integration.test_resume import make_run
from tests.training import tiny
from tests.training.digits import digits
from tests.training.tiny import read_metrics


@functools.cache
def averaged():
    """Six updates of networks with batch norm, and the states between."""
    run = tiny.make_run(ERM(), replicas=2, ema_decay=0.25)
    return tiny.stepper(run).history(6)


def test_the_average_follows_its_recurrence():
    """`a <- d a + (1 - d) w`, `d = min(decay, (1 + t) / (10 + t))`, in float64."""
    states = averaged()
    trees = [(s.params, s.model_state) for s in states]
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("averaged")
    # A rate that stays high: the weights wander, their average does not.
    rate = OptimizerConfig(learning_rate=0.2, weight_decay=0.0)
    run = make_run(ERM(), epochs=1, batch_size=4, ema_decay=0.99, optimizer=rate)
    return train(run, digits(), directory=directory), digits(), directory


@pytest.mark.slow
def test_log_lines_hold_what_the_average_predicts(trained):
    result, digits, directory = trained
    record = read_metrics(directory)[-1]["validation"]
    part = digits.validation
    predicted = np.argmax(result.predict(part.images, "ema"), axis=-1)
    accuracy = np.mean(predicted == part.labels, axis=-1)
    np.testing.assert_allclose(record["accuracy_ema"], accuracy, rtol=1e-6)
    churn = np.mean(predicted[0] != predicted[1])
    np.testing.assert_allclose(record["churn_ema"], churn, rtol=1e-6)
    assert record["accuracy_ema"] != record["accuracy"]


@pytest.mark.slow
def test_both_sets_of_weights_have_a_name_if_there_are_two(trained):
    result, digits, _ = trained
    images = digits.test.images[:20]
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
