"""Metrics files: a resumed run leaves what an uninterrupted one leaves."""

import errno
import json
from pathlib import Path

import pytest

from churn_jax.training.loggers import MetricsWriter
from tests.training.test_loggers import record
from tests.training.tiny import read_metrics


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

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
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
