"""The loop: equal replicas, warm starts, going on where it stopped, settings."""

import errno
import json
import os
import threading
from unittest import mock

import numpy as np
import pytest

from churn_jax.data.augment import Augmentation
from churn_jax.losses import binary_logits
from churn_jax.methods import ERM, AntiDistillation
from churn_jax.training import Interrupted, MeshShape, Seeds, click_feed, train
from churn_jax.training.checkpoint import CheckpointError, OtherConfiguration
from tests import reference_metrics as reference
from tests.refusals import refusals
from tests.training.test_loggers import Recorder
from tests.training.tiny import read_metrics
from tests.training.tiny_clicks import adagrad, few_clicks, tiny_model, tiny_run

VARIED = Seeds(init="varied", order="varied")
# Everything that may differ after a warm start does, the components' samples too.
WARM = {"seeds": Seeds(init="fixed", sample="varied")}
WARM["one_pass"] = {"warm_examples": 17}
BAGGED = ERM(members=2, deploy="mean_probs", member_sample="bootstrap")


def train_clicks(run, data, directory=None, **options):
    options = {"show_progress": False, "loggers": (), **options}
    return train(run, data, directory=directory, **options)


def scores_of(*args, **options):
    return train_clicks(*args, **options).scores


def assert_same(a, b):
    a, b = a.scores, b.scores
    np.testing.assert_array_equal(a.stream, b.stream)
    np.testing.assert_array_equal(a.held_out, b.held_out)


FIXED = Seeds(init="fixed", order="fixed")


@pytest.mark.parametrize("seeds", [FIXED, Seeds(init="fixed"), Seeds(order="fixed")])
def test_order_or_weights_alone_make_replicas_differ(seeds):
    found = scores_of(tiny_run(seeds=seeds), few_clicks(held_out=9))
    assert found.stream.shape == (3, 70) and found.held_out.shape == (3, 9)
    for scores in (found.stream, found.held_out):
        spread = np.ptp(scores, axis=0).max()
        assert spread == 0.0 if seeds == FIXED else spread > 1e-3


@pytest.mark.slow
def test_a_warm_start_is_one_replica_and_is_not_counted(tmp_path):
    found = scores_of(tiny_run(BAGGED, **WARM), few_clicks(), tmp_path)
    # 17 examples are two windows of 16.
    assert (found.first, found.stream.shape) == (32, (3, 38))
    assert np.ptp(np.load(tmp_path / "scores.npy")[:, :32], axis=0).max() == 0.0
    assert np.ptp(found.stream, axis=0).max() > 0.0
    lines = read_metrics(tmp_path)
    assert [line["examples"] for line in lines] == [16, 32, 48, 64, 70]
    terms = [line["train"]["cross_entropy"] for line in lines]
    assert [np.unique(shared).size for shared in terms[:3]] == [1, 1, 3]
    assert lines[1]["validation"] == {} and lines[2]["validation"]["churn"] >= 0.0
    with pytest.raises(ValueError, match="all 30 examples are in the warm start of 32"):
        train_clicks(tiny_run(BAGGED, **WARM), few_clicks(count=30))


def test_lines_of_metrics_are_of_the_scores(tmp_path):
    data = few_clicks(count=61)
    found = train_clicks(tiny_run(), data, tmp_path)
    lines = read_metrics(tmp_path)
    for part, line in zip((slice(0, 16), slice(48, 61)), (lines[0], lines[3])):
        logits = np.asarray(binary_logits(found.scores.stream[:, part]))
        labels, said = data.train.labels[part], line["validation"]
        for r in range(3):
            nll = reference.negative_log_likelihood(logits[r], labels)
            np.testing.assert_allclose(said["nll"][r], nll, rtol=1e-6)
            auc = reference.roc_auc(logits[r], labels)
            np.testing.assert_allclose(said["auc"][r], auc, rtol=1e-6)
        wanted = reference.positive_prediction_difference(logits)
        np.testing.assert_allclose(said["positive_prediction_difference"], wanted, 1e-5)
    model = tiny_model()
    with pytest.raises(ValueError, match="tiny is a click model, whose predictions"):
        found.chunks()
    with pytest.raises(ValueError, match="a click model learns without a teacher"):
        train_clicks(tiny_run(), data, start=found)
    towers = 2 * ((2 * 3 + 2) * 5 + 5 + 5 + 1 + 2)
    assert found.parameters == towers + model.rows * model.width


class StopAfter:
    """Sets the event once so many lines of metrics were reported."""

    def __init__(self, lines):
        self.event, self.left = threading.Event(), lines

    def __call__(self, progress):
        self.left -= 1
        if self.left == 0:
            self.event.set()


@pytest.mark.slow
def test_a_pass_that_stopped_goes_on_as_if_it_had_not(tmp_path):
    method = AntiDistillation(members=2, strength=0.5, deploy="gate")
    run = tiny_run(method, tiny_model(gate=True, wide=False), seeds=VARIED)
    data, halt = few_clicks(count=90, held_out=10), StopAfter(2)
    whole = train_clicks(run, data, tmp_path / "whole")
    folder, notes = tmp_path / "parts", []
    first, second, third = Recorder(), Recorder(), Recorder()

    def launch(*recorders, **options):
        options |= {"loggers": ["csv", *recorders], "on_note": notes.append}
        return train_clicks(run, data, folder, group="ads", **options)

    with pytest.raises(Interrupted, match="stopped after 2 of 6 windows"):
        launch(first, Recorder("log"), on_progress=halt, stop=halt.event)
    assert "tiny: Recorder failed, and training goes on without it: no ne" in notes[0]
    result = launch(second)
    assert_same(result, whole)
    assert_same(train_clicks(run, data), whole)
    assert result.seconds > 0
    # Once more: there is nothing left to learn, and nothing to log.
    assert_same(launch(third), whole)
    assert third.runs == third.closed == [] and len(notes) == 1
    assert (first.closed, second.closed) == ([False], [True])
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["examples"] for line in lines] == [16, 32, 48, 64, 80, 90]
    (one,), (again,) = first.runs, second.runs
    assert (one.name, one.group, one.step) == ("tiny", "ads", 0)
    assert one.settings["method.class"] == "AntiDistillation"
    assert one.settings["method.strength"] == 0.5 and one.settings["data"] == "few"
    assert one.settings["train.optimizer.learning_rate"] == 0.1
    assert len(first.values[0]["train/loss"]) == 3 and one.directory == folder
    assert again.step == first.steps[-1] and first.steps + second.steps == [
        *range(1, 7)
    ]
    assert len((folder / "metrics.csv").read_text().splitlines()) == 1 + len(lines)


def test_scores_have_room_on_the_disk_and_are_not_continued_if_lost(tmp_path):
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with mock.patch.object(os, "posix_fallocate", full):
        with pytest.raises(OSError, match="No space left"):
            train_clicks(tiny_run(), few_clicks(), tmp_path)
    assert not list((tmp_path / "checkpoints").iterdir())
    train_clicks(tiny_run(), few_clicks(), tmp_path)
    (tmp_path / "scores.npy").unlink()
    with pytest.raises(CheckpointError, match=r"scores.npy is missing .* --fresh"):
        train_clicks(tiny_run(), few_clicks(), tmp_path)


@pytest.mark.slow
def test_a_line_of_several_windows_goes_on_inside(tmp_path, monkeypatch, blocks_of):
    blocks_of(1)
    monkeypatch.setattr(click_feed, "_LINES", 2)  # of five windows, three and two
    data, stop = few_clicks(), threading.Event()
    whole = train_clicks(tiny_run(), data, tmp_path / "whole")
    stop.set()
    for windows in (1, 2, 3, 4):
        message = f"stopped after {windows} of 5 windows"
        with pytest.raises(Interrupted, match=message):
            train_clicks(tiny_run(), data, tmp_path / "parts", stop=stop)
    assert_same(train_clicks(tiny_run(), data, tmp_path / "parts", stop=stop), whole)
    for lines in zip(*(_lines(tmp_path / name) for name in ("whole", "parts"))):
        assert lines[0] == lines[1]


def _lines(folder):
    lines = read_metrics(folder)
    assert [line["examples"] for line in lines] == [48, 70]
    return [line | {"seconds": 0} for line in lines]


@pytest.mark.slow
def test_a_pass_goes_on_with_fewer_devices(tmp_path):
    three, one = (tiny_run(seeds=VARIED, mesh=MeshShape(n)) for n in (3, 1))
    data, halt = few_clicks(), StopAfter(2)
    whole = train_clicks(one, data)
    with pytest.raises(Interrupted):
        train_clicks(three, data, tmp_path, on_progress=halt, stop=halt.event)
    result = train_clicks(one, data, tmp_path)
    found, expected = result.scores.stream, whole.scores.stream
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_replica_that_breaks_down_leaves_the_others_as_they_are(tmp_path):
    rates = adagrad((0.1, 0.1, 1e30))
    found = train_clicks(tiny_run(optimizer=rates), few_clicks(), tmp_path)
    whole = train_clicks(tiny_run(), few_clicks())
    assert [(s.replica, s.term) for s in found.stopped] == [(2, "cross_entropy")]
    np.testing.assert_array_equal(found.scores.stream[:2], whole.scores.stream[:2])
    line = read_metrics(tmp_path)[-1]["validation"]
    assert line["nll"][2] is None and line["prediction_difference"] > 0.0


@pytest.mark.parametrize("change", [{"sizes": (7, 12)}, {"numeric": 3}])
def test_data_that_do_not_fit_are_named(change):
    with pytest.raises(ValueError, match=r"the model has tables of \(7, 11\) rows and"):
        train_clicks(tiny_run(), few_clicks(**change))


test_settings_that_do_not_fit_are_named = refusals(
    ({"one_pass": {"window": 20}}, "window 20 is not a multiple of batch_size 8"),
    ({"optimizer": adagrad(name="adam")}, "adagrad, or by sgd with momentum 0"),
    ({"optimizer": adagrad(schedule="cosine")}, "learning rate is constant"),
    ({"optimizer": adagrad(clip_norm=1.0)}, "not clipped"),
    ({"optimizer": adagrad(member_algorithms=("sgd",))}, "member_algorithms sgd"),
    ({"augmentation": Augmentation(flip=True)}, "leave augmentation out"),
    ({"epochs": 2}, "last weights after 1 epoch"),
    ({"eval_every_epochs": 2}, "since the last one; got eval_every_epochs 2, write 1"),
    ({"one_pass": {"warm_examples": -1}}, "warm_examples must be at least 0"),
    ({"one_pass": {"warm_share": 0.5}, "seeds": VARIED}, "of one model, so seeds."),
    ({"model": tiny_model(gate=True)}, "deploy='mean_probs' would not train it"),
    ({"seed_numbers": (1,)}, "one per replica"),
    ({"mesh": MeshShape(1, 1, 2)}, "the replica axis alone"),
    ({"method": ERM(members=3)}, "3 members, the committee 2"),
    ({"method": AntiDistillation(members=2, deploy="gate")}, "click model has none"),
    (
        {
            "model": tiny_model(shared_embeddings=True),
            "optimizer": adagrad(member_rates=(1.0, 2.0)),
        },
        "rates of their own",
    ),
    call=lambda settings: tiny_run(**settings),
)


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    data = few_clicks(count=20)
    train_clicks(tiny_run(), data, tmp_path)
    changed = tiny_run(optimizer=adagrad(0.2))
    with pytest.raises(OtherConfiguration, match=r"optimizer.learning_rate: 0.1 there"):
        train_clicks(changed, data, tmp_path)
    with pytest.raises(OtherConfiguration, match="data"):
        train_clicks(tiny_run(), few_clicks(count=21), tmp_path)
