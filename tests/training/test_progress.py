"""What is shown of a training: true, whole and every few seconds."""

import io
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from churn_jax.configuration.record import Stopped
from churn_jax.training import Progress, progress
from churn_jax.training.progress import COMPILING, Display, Work, line_interval


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
    clock = SimpleNamespace(
        monotonic=lambda: clock.now, strftime=time.strftime, now=0.0
    )
    monkeypatch.setattr(progress, "time", clock)
    shown = Display()
    shown.expect(400.0, "all 4 methods")
    shown.begin("old", weight=100.0, finished_before=True)
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
