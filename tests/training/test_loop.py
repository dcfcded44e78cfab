"""What `train` returns and logs, on the digits with a small network."""

import dataclasses
import functools
import io
import re
import threading
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from churn_jax.configuration.record import Stopped
from churn_jax.ensembles import Group, from_function
from churn_jax.methods import ERM, EnsembleDistillation, MinimumEntropy
from churn_jax.training import (
    Interrupted,
    OptimizerConfig,
    Progress,
    Run,
    TrainConfig,
    loop,
    progress,
)
from churn_jax.training.checkpoint import Checkpoints, OtherConfiguration
from churn_jax.training.loop import stopped_teachers, train
from churn_jax.training.progress import COMPILING, Display, Work, line_interval
from churn_jax.training.state import BestState
from tests import reference_losses as reference
from tests.training.digits import digits, digits_run
from tests.training.test_loggers import Recorder
from tests.training.tiny import read_metrics

FAST = OptimizerConfig(learning_rate=0.3, weight_decay=0.0)
run_of = functools.partial(digits_run, epochs=8, batch_size=32, optimizer=FAST)
# What most runs here have, whose step is compiled once.
ENTROPY = MinimumEntropy(members=2, deploy="mean_probs", alpha=0.25)


def accuracy(trained, split):
    predicted = np.argmax(trained.predict(split.images), axis=-1)
    return np.mean(predicted == split.labels, axis=-1)


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """A rate so high that accuracy goes up and down: the best epoch is not the last."""
    directory = tmp_path_factory.mktemp("wild")
    optimizer = dataclasses.replace(FAST, learning_rate=0.8)
    run = run_of(ENTROPY, weights="best", optimizer=optimizer)
    return train(run, digits(), directory=directory), directory


def test_best_weights_are_those_of_the_best_validation_epoch(wild):
    trained, directory = wild
    lines = read_metrics(directory)
    scores = np.array([line["validation"]["accuracy"] for line in lines])  # [epoch, R]
    assert scores.shape == (8, 2)
    # The first of the epochs with the highest accuracy, counted from 1.
    np.testing.assert_array_equal(trained.best.epoch, 1 + np.argmax(scores, axis=0))
    assert np.any(np.asarray(trained.best.epoch) < 8)  # else the test shows nothing
    np.testing.assert_allclose(trained.best.score, scores.max(axis=0), rtol=1e-6)
    found = accuracy(trained, digits().validation)
    np.testing.assert_allclose(found, scores.max(axis=0), rtol=1e-6)


def test_a_folder_of_pixels_on_another_scale_is_refused(wild):
    trained, directory = wild
    with pytest.raises(OtherConfiguration, match=r"\(mean: 0.0 there, 0.5 here\)"):
        train(trained.run, digits(), directory=directory, mean=0.5)


def test_last_weights_are_those_of_the_last_epoch(wild):
    trained, directory = wild
    last = dataclasses.replace(
        trained, params=trained.last.params, model_state=trained.last.model_state
    )
    scores = read_metrics(directory)[-1]["validation"]["accuracy"]
    np.testing.assert_allclose(accuracy(last, digits().validation), scores, rtol=1e-6)


def test_a_tie_keeps_the_earlier_epoch_and_a_stopped_replica_its_best():
    """Scores per epoch of three replicas; the weights hold the number of the epoch."""
    scores = np.array([[0.5, 0.2, 0.5], [0.7, 0.2, 0.9], [0.7, 0.6, 1]], np.float32)
    best = BestState(
        ({"w": jnp.zeros((3, 1))},), ({},), jnp.full(3, -1.0), jnp.zeros(3, jnp.int32)
    )
    for epoch, score in enumerate(scores, start=1):
        state = SimpleNamespace(
            params=({"w": jnp.full((3, 1), float(epoch))},),
            model_state=({},),
            alive=jnp.array([True, True, epoch < 2]),
        )
        best = best.update(state, jnp.asarray(score), epoch)
    np.testing.assert_array_equal(best.epoch, [2, 3, 1])
    np.testing.assert_array_equal(best.params[0]["w"], [[2.0], [3.0], [1.0]])
    np.testing.assert_array_equal(best.score, np.float32([0.7, 0.6, 0.5]))


def test_metrics_hold_the_mean_of_the_epochs_terms(tmp_path):
    """At rate zero each batch is scored by the same weights, so the mean is known."""
    still = dataclasses.replace(FAST, learning_rate=0.0)
    run = run_of(ENTROPY, optimizer=still)
    trained = train(run, digits(), directory=tmp_path)
    part = digits().train
    logits = trained.predict(part.images, every_member=True)
    labels = np.tile(part.labels, (2, 2, 1))
    cross_entropy = reference.cross_entropy(logits, labels).mean(axis=-1).sum(axis=1)
    entropy = reference.entropy(logits).mean(axis=-1).sum(axis=1)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [*range(4, 33, 4)]
    for line in lines:
        assert set(line["train"]) == {"loss", "cross_entropy", "entropy"}
        for name, expected in (
            ("cross_entropy", cross_entropy),
            ("entropy", entropy),
            ("loss", 0.75 * cross_entropy + 0.25 * entropy),
        ):
            np.testing.assert_allclose(line["train"][name], expected, rtol=1e-5)


def test_every_member_is_predicted_and_their_mean_is_deployed(wild):
    trained, _ = wild
    images = digits().test.images[:30]
    members = trained.predict(images, every_member=True)
    assert members.shape == (2, 2, 30, 10)
    mean = np.log(np.mean(reference.softmax(members), axis=1))
    np.testing.assert_allclose(trained.predict(images), mean, rtol=1e-5, atol=1e-5)
    assert trained.parameters == 2 * (65 * 16 + 17 * 10) and not trained.stopped


@pytest.mark.slow
def test_training_in_bfloat16_keeps_float32_weights_and_learns():
    trained = train(run_of(dtype="bfloat16"), digits())
    assert not trained.stopped and np.all(accuracy(trained, digits().test) > 0.5)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(trained.params))


def test_a_run_that_cannot_be_trained_says_so():
    with pytest.raises(ValueError, match="run needs a trained teacher"):
        train(run_of(EnsembleDistillation()), digits())
    with pytest.raises(ValueError, match="CsvLogger needs a folder"):
        train(run_of(ENTROPY), digits(), loggers=["csv"])
    with pytest.raises(ValueError, match="the method has 1 members, the committee 2"):
        dataclasses.replace(run_of(ERM(members=2)), method=ERM())
    softmax = from_function(
        lambda key, x: jax.random.normal(key, (x[0].size, 10)),
        lambda kernel, x: jax.nn.softmax(x.reshape(len(x), -1) @ kernel),
    )
    run = Run("soft", ERM(), (Group(softmax, 1),), TrainConfig(replicas=2, epochs=1))
    with pytest.raises(ValueError, match=r"^soft: the network returns prob"):
        train(run, digits())


def test_students_of_a_stopped_replica_are_reported():
    stopped = (Stopped(1, "loss", 30), Stopped(4, "gradient", 7))
    teacher = SimpleNamespace(run=SimpleNamespace(name="teachers"), stopped=stopped)
    old = SimpleNamespace(stopped=())
    teachers = SimpleNamespace(trained=(teacher, old))
    (sentence,) = stopped_teachers("kd", teachers, old)
    assert sentence.startswith("kd learns from teachers, whose replicas 1, 4 stopped")
    assert stopped_teachers("kd", SimpleNamespace(trained=(old,))) == ()
    (sentence,) = stopped_teachers("tuned", None, teacher)
    assert sentence.startswith("tuned starts from teachers, whose replicas 1, 4 st")


@pytest.fixture
def slow_updates(monkeypatch):
    """Every update takes 40 ms of the device; the times at which they were done."""
    done = []

    def sleep(steps):
        time.sleep(0.04)
        done.append(time.monotonic())
        return steps

    @jax.jit
    def delayed(steps):
        return jax.pure_callback(sleep, jax.eval_shape(lambda: steps), steps)

    def make_step(program, original=loop.make_step, **options):
        step = original(program, **options)

        def call(*args):
            state = step(*args)
            return dataclasses.replace(state, step=delayed(state.step))

        return call

    monkeypatch.setattr(loop, "make_step", make_step)
    monkeypatch.setattr(loop, "_BLOCK_SECONDS", 0.1, raising=False)
    return done


def test_progress_checkpoints_and_stops_follow_the_devices_not_the_dispatch(
    slow_updates, monkeypatch, tmp_path
):
    saved, told, stop = [(0, 0.0)], [], threading.Event()
    monkeypatch.setattr(
        Checkpoints,
        "save",
        lambda self, step, tree, meta: saved.append((step, time.monotonic())),
    )
    run = run_of(epochs=1, batch_size=1, steps_per_call=1, checkpoint_every_seconds=1.0)

    def on_work(work):
        told.append((work.done, len(slow_updates)))
        if work.done >= 60:
            stop.set()

    with pytest.raises(Interrupted) as ended:
        train(run, digits(), directory=tmp_path, on_work=on_work, stop=stop)
    # Of 128 updates. What was reported was done, and soon after it was done.
    assert len(told) >= 10  # the more, the less busy the machine is
    assert all(0 <= done - said <= 20 for said, done in told), told
    stopped = int(str(ended.value).split(" after ")[1].split()[0])
    assert 60 <= stopped <= 80
    # A kill at any time loses a second, and what a busy machine takes on top.
    for number, (step, _) in enumerate(saved[:-1]):
        lost = saved[number + 1][1] - slow_updates[step]
        assert lost < 2.0, saved


def test_the_block_after_a_checkpoint_is_as_long_as_processes_agreed(
    monkeypatch, tmp_path
):
    saved = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, n, *_: saved.append(n))
    monkeypatch.setattr(loop, "_next_block", lambda updates, seconds: 7)
    # Another process measured two updates, and a checkpoint is due.
    monkeypatch.setattr(loop, "greatest", lambda own: [0, 1, -2])
    run = run_of(epochs=1, batch_size=16, steps_per_call=1)
    train(run, digits(), directory=tmp_path)
    assert saved == [1, 3, 5, 7, 8]


@pytest.mark.parametrize(
    ("updates", "seconds", "expected"),
    [
        (64, 0.5, 128),  # in a second
        (1, 1e-4, 4),  # at most four times as many: a time may be off
        (1, 0.7, 4),
        (4, 10.0, 3),  # in eight seconds
        (1, 30.0, 1),
    ],
)
def test_blocks_take_a_second_or_have_four_updates_on_a_cpu(updates, seconds, expected):
    assert loop._next_block(updates, seconds) == expected


def test_a_stopped_replica_and_a_failing_logger_are_reported_once(capsys):
    """By the training, unless it shows nothing and its caller takes the progress.

    `test_clicks.py` has what loggers are given in two launches.
    """
    wild = dataclasses.replace(FAST, learning_rate=(0.3, 1e30))
    run, found = run_of(ENTROPY, optimizer=wild), []
    failed = "run: Recorder failed, and training goes on without it: no network"
    for shown in (True, False):
        given = {} if shown else {"show_progress": False}
        train(run, digits(), loggers=[Recorder("log")], **given)
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("run: replica 1 stopped at update") == 1
        assert said.count(failed) == 1
        assert ("run: validation accuracy" in said) == shown
    train(run, digits(), show_progress=False, on_progress=found.append)
    assert capsys.readouterr().out == ""
    assert [stopped.replica for stopped in found[-1].stopped] == [1]


@pytest.fixture
def often(monkeypatch):
    """Lines come at once."""
    monkeypatch.setattr(progress, "line_interval", lambda seconds: 0.01)


def lines(capsys, shown, count=3):
    """What is printed until there are some lines."""
    said = ""
    with shown:
        last = time.monotonic() + 20
        while said.count("\n") < count and time.monotonic() < last:
            time.sleep(0.01)
            said += capsys.readouterr().out
    return said.splitlines()


def test_without_a_terminal_lines_with_times_say_what_happens(capsys, often):
    shown = Display()
    shown.begin("a", "Baseline")
    shown.work(Work("a", COMPILING, 0, 2340))
    for line in lines(capsys, shown):
        said = r"Baseline: 0 of 2,340 updates \(0%\), compiling, 0:0\d so far"
        assert re.fullmatch(rf"\d\d:\d\d:\d\d {said}", line)


def test_time_left_follows_from_finished_work_of_this_launch(monkeypatch, capsys):
    clock = SimpleNamespace(monotonic=lambda: clock.now, strftime=time.strftime, now=0)
    monkeypatch.setattr(progress, "time", clock)
    shown = Display()
    shown.expect(400.0, "all 4 methods")
    shown.begin("old", weight=100.0, kept=True)
    shown.begin("a", "Baseline", weight=100.0)
    for clock.now, doing, done in (
        (0.0, COMPILING, 50),  # half of it was done by an earlier launch
        (100.0, "training", 50),
        (110.0, "training", 60),
    ):
        shown.work(Work("a", doing, done, 100))
    about, everything = shown._line().split("; ")
    assert "60 of 100 updates (60%), training, 1:50 so far, about 0:40 left" in about
    # 10 of 400 in this launch, 160 in all.
    assert everything == "all 4 methods 40%, about 4:00 left"
    for done in (0, 1):  # in one tick of the clock
        shown.work(Work("b", "training", done, 2))
    assert "1 of 2 updates (50%)" in shown._line()


def test_a_terminal_has_one_line_that_changes():
    """Its words are whole on a narrow one."""
    text = io.StringIO()
    text.isatty = lambda: True
    shown = Display()
    shown.console = Console(file=text, width=50, force_terminal=True)
    shown.begin("a", "Co-distill SKL + entropy, four members")
    with shown:
        shown.work(Work("a", "training", 1204, 2340))
        shown.update(Progress("a", 12, 20, 0.9721, 0.0311, ()))
        last = time.monotonic() + 20
        while "churn 3.11" not in text.getvalue() and time.monotonic() < last:
            time.sleep(0.05)
        shown.note("a sentence")
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())
    assert "…" not in said and "a sentence\n" in said
    said = " ".join(said.split())
    for words in ("entropy", "1,204 of 2,340 updates (51%), training", "churn 3.11 %"):
        assert words in said


def test_quiet_shows_warnings_alone_and_silent_nothing(capsys, often):
    last = Progress("a", 2, 2, 0.5, 0.1, (Stopped(1, "loss", 7),))
    for shown, wanted in (
        (Display(quiet=True), "a: replica 1 stopped at update 7, loss was not finite"),
        (Display(silent=True), ""),
    ):
        with shown:
            shown.begin("a")
            shown.work(Work("a", "training", 3, 4))
            shown.update(last)
            shown.update(last)
            time.sleep(0.05)
        said = capsys.readouterr().out
        assert said.count("\n") == (1 if wanted else 0) and wanted in said


def test_lines_become_rarer_but_never_rare():
    seconds = (0, 1, 300, 600, 36_000)
    assert [line_interval(s) for s in seconds] == [1, 5, 5, 10, 30]


def test_names_cannot_steer_the_terminal_or_a_log(capsys):
    shown = Display()
    with shown:
        shown.begin("a", "::error::a\x1b[2J")
        shown.note("::error::b\nc [red]d")
    said = capsys.readouterr().out
    assert "::" not in said and "\x1b[2J" not in said
    assert ": :error: :b c [red]d" in said
