"""Loggers and metrics files: what they get, what resuming leaves, what faults cost."""

import csv
import errno
import json
import math
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from churn_jax.training import CsvLogger, LoggedRun, TensorBoardLogger, scalars
from churn_jax.training.loggers import Loggers, MetricsWriter, as_loggers, flat
from tests.refusals import refusals
from tests.training.tiny import read_metrics


def record(epoch, value=0.5):
    return {
        "epoch": epoch,
        "step": 8 * epoch,
        "seconds": 1.5,
        "train": {"loss": np.array([value, math.nan])},
        "validation": {"accuracy": [value, 0.75], "churn": np.float32(value)},
    }


def logged(epoch):
    """The values of `Logger.log`."""
    values = flat(record(epoch), "/")
    return {name: value for name, value in values.items() if name != "step"}


class Recorder:
    """Remembers what it is told; `fails` names a method that raises."""

    def __init__(self, fails="", error=None):
        self.fails, self.error = fails, error or RuntimeError("no\n  network")
        self.runs, self.steps, self.values, self.closed = [], [], [], []

    def _told(self, method):
        if method == self.fails:
            raise self.error

    def start(self, run):
        self.runs.append(run)
        self._told("start")

    def log(self, values, step):
        self.steps.append(step)
        self.values.append(values)
        self._told("log")

    def close(self, finished):
        self.closed.append(finished)
        self._told("close")


def log(logger, folder, epochs, *, step=0, **options):
    logger.start(LoggedRun("pair", directory=folder, step=step, **options))
    for epoch in epochs:
        logger.log(logged(epoch), 8 * epoch)
    logger.close(True)


def events_in(folder):
    """`(step, tag, value)` and the steps from which earlier files are hidden."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    scalars, hidden = [], []
    for path in sorted((folder / "tensorboard").iterdir()):
        raw = path.read_bytes()
        while raw:
            length = int.from_bytes(raw[:8], "little")
            event = Event.FromString(raw[12 : 12 + length])
            raw = raw[16 + length :]
            if event.session_log.status == SessionLog.START:
                hidden.append(event.step)
            scalars += [
                (event.step, v.tag, v.simple_value) for v in event.summary.value
            ]
    return scalars, hidden


def rows_in(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_scalars_are_means_of_the_finite_replicas():
    values = logged(1)
    assert values["train/loss"][0] == 0.5
    assert scalars(values) == {
        "epoch": 1,
        "seconds": 1.5,
        "train/loss": 0.5,
        "validation/accuracy": 0.625,
        "validation/churn": 0.5,
    }
    every = scalars(values, replicas=True)
    assert every["validation/accuracy_replica_1"] == 0.75
    assert "train/loss_replica_1" not in every  # it stopped
    assert scalars({"loss": [math.nan, math.inf], "churn": math.nan}) == {}


def test_a_launch_hides_the_events_that_it_repeats_and_shares_no_file(tmp_path):
    logger = TensorBoardLogger(replicas=True)
    log(TensorBoardLogger(), tmp_path, [1, 2])
    scalars, hidden = events_in(tmp_path)
    assert (8, "train/loss", 0.5) in scalars  # of the finite replicas
    assert (16, "validation/churn", 0.5) in scalars
    assert len(scalars) == 6 and hidden == []
    log(logger, tmp_path, [3, 4], step=16)
    scalars, hidden = events_in(tmp_path)
    assert hidden == [17]
    assert (32, "validation/accuracy_replica_1", 0.75) in scalars
    log(logger, tmp_path, [1])  # from the beginning, as no checkpoint was written
    assert events_in(tmp_path)[1] == [17, 1]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3


def test_a_resumed_table_has_each_row_once(tmp_path):
    logger = CsvLogger()
    log(logger, tmp_path, [1, 2, 3])
    whole = (tmp_path / "metrics.csv").read_bytes()
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("32,4")  # cut by a kill
    log(logger, tmp_path, [3], step=16)
    assert (tmp_path / "metrics.csv").read_bytes() == whole
    (tmp_path / "metrics.csv").write_bytes(whole.replace(b"\n24,", b"\nx,2\n24,"))
    log(logger, tmp_path, [3], step=16)
    assert (tmp_path / "metrics.csv").read_bytes() == whole
    first, *_, last = rows_in(tmp_path)
    assert list(first) == [
        *("step", "epoch", "seconds", "train/loss"),
        *("train/loss_replica_0", "validation/accuracy"),
        *("validation/accuracy_replica_0", "validation/accuracy_replica_1"),
        "validation/churn",
    ]
    assert last["step"] == "24"
    log(CsvLogger(replicas=False), tmp_path, [4], step=24)  # old columns stay
    assert rows_in(tmp_path)[-1]["train/loss"] == "0.5"
    assert rows_in(tmp_path)[0]["train/loss_replica_0"] == "0.5"


@pytest.mark.parametrize("method", ["start", "log", "close"])
def test_a_failing_logger_is_left_out_with_one_sentence(method):
    failing, sound, notes = Recorder(method), Recorder(), []
    loggers = as_loggers([failing, sound])
    assert as_loggers(loggers) is loggers
    loggers.start(LoggedRun("pair"), notes.append)
    for epoch in (1, 2):
        loggers.log(record(epoch))
    loggers.close(True)
    loggers.start(LoggedRun("next"), notes.append)
    assert notes == [
        "pair: Recorder failed, and training goes on without it: no network"
    ]
    assert sound.steps == [8, 16] and sound.closed == [True]
    assert len(sound.runs) == 2 and len(failing.runs) == 1
    assert len(failing.steps) == {"start": 0, "log": 1, "close": 2}[method]
    assert failing.closed == [method == "close"]


def test_a_full_disk_under_our_own_files_stops_training_at_once(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    notes = []
    run = LoggedRun("pair", directory=tmp_path)
    loggers = Loggers([Recorder("log", full)])
    loggers.start(run, notes.append)
    loggers.log(record(1))
    assert len(notes) == 1
    loggers = Loggers([TensorBoardLogger()])
    loggers.start(run, notes.append)
    monkeypatch.setattr(TensorBoardLogger, "_write", mock.Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left"):
        loggers.log(record(1))
    loggers.close(False)
    assert len(notes) == 1
    waiting = Recorder()  # is not closed, as it was not started
    loggers = Loggers([CsvLogger(), waiting])
    with pytest.raises(ValueError, match="CsvLogger needs a folder"):
        loggers.start(LoggedRun("pair"), notes.append)
    loggers.close(False)
    assert waiting.closed == []


def test_without_tensorboardx_training_goes_on(tmp_path, monkeypatch):
    for module in ("tensorboardX", "tensorboardX.event_file_writer"):
        monkeypatch.setitem(sys.modules, module, None)
    notes = []
    run = LoggedRun("pair", directory=tmp_path)
    Loggers([TensorBoardLogger()]).start(run, notes.append)
    assert len(notes) == 1 and "tensorboardX" in notes[0]


def test_loggers_are_named_or_given():
    mine = Recorder()
    first, second, third = as_loggers(["csv", f"{__name__}:Recorder", mine])
    assert type(first) is CsvLogger and type(second) is Recorder and third is mine
    assert [type(x) for x in as_loggers("tensorboard")] == [TensorBoardLogger]
    assert as_loggers(()) == []


test_what_is_no_logger_is_refused = refusals(
    (["tensorbord"], "unknown logger 'tensorbord'.*did you mean tensorboard"),
    ([CsvLogger], "a logger is a name or an object with the methods start, log"),
    ([print], "a logger is a name or an object"),
    (["numpy:array"], "numpy:array cannot be made without arguments"),
    call=as_loggers,
    error=(ValueError, TypeError),
)


def write(folder, epochs, **options):
    writer = MetricsWriter(folder, **options)
    for epoch in epochs:
        writer.write(record(epoch))
    writer.close()


def epochs_in(folder):
    return [line["epoch"] for line in read_metrics(folder)]


def test_numbers_that_are_not_finite_become_null(tmp_path):
    write(tmp_path, [1])
    (line,) = read_metrics(tmp_path)
    assert line["train"]["loss"] == [0.5, None]
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == line


def test_lines_after_the_checkpoint_are_dropped_and_written_again(tmp_path):
    write(tmp_path, [1, 2, 3])
    write(tmp_path, [3, 4], done=16)
    assert epochs_in(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize("tail", ['{"epoch": 3, "st', "null", '{"other": 1}', "\x00"])
def test_a_line_that_was_cut_is_left_out(tmp_path, tail):
    write(tmp_path, [1, 2])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(tail)
    write(tmp_path, [3], done=16)
    assert epochs_in(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["[1", '{"epoch": "2", "step": 2}', "", "[" * 9999])
def test_a_damaged_line_does_not_take_those_after_it_along(tmp_path, damage):
    write(tmp_path, [1, 2, 3, 4])
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], damage, *lines[2:], ""]))
    writer = MetricsWriter(tmp_path, done=24)
    writer.close()
    assert epochs_in(tmp_path) == [1, 3]
    assert writer.note == f"line 2 of {path} could not be read and was left out"


def test_a_full_disk_while_opening_keeps_the_earlier_lines(tmp_path, monkeypatch):
    write(tmp_path, [1, 2])
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr("os.fsync", full)
        MetricsWriter(tmp_path, done=8)
    assert epochs_in(tmp_path) == [1, 2]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_while_writing_is_heard_at_once(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer._file.close()
    writer._file = open("/dev/full", "a")  # every write to it fails as on a full disk
    with pytest.raises(OSError) as error:
        writer.write(record(1))
    assert error.value.errno == errno.ENOSPC
    writer.close()
