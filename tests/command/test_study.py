"""`churn-jax study` interrupted, killed, repeated and started afresh."""

import errno
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.command.study import read_study
from churn_jax.studies import run_study
from churn_jax.studies.presets import tiny
from churn_jax.training import progress
from tests.studies.test_study import logits

_EPOCHS = 40
_LONG = f"""study digits:tiny --only baseline --epochs {_EPOCHS} --set model.features=8
    --train-size 64 --validation 20 --batch-size 32
    --set train.eval_every_epochs=1 --set train.checkpoint_every_seconds=0.2""".split()
# Training that lasts seconds, so that a signal meets it.
_SLOWLY = """
import sys, time
from churn_jax.cli import main
from churn_jax.training import loop

evaluate = loop._Loop.evaluate

def slowly(self, epoch):
    found = evaluate(self, epoch)
    time.sleep(0.1)
    return found

loop._Loop.evaluate = slowly
sys.exit(main(sys.argv[1:]))
"""
_SHORT = ["study", "digits:tiny", "--set", "model.features=8"]


def started(program, *words):
    """A program in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program, *words], **pipes)


def launch(out):
    """The long study, slowly."""
    return started(_SLOWLY, *_LONG, "--out", str(out))


def wait_for_lines(process, out, count):
    """Returns once the process has evaluated `count` epochs."""
    path = out / "methods" / "baseline" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().count("\n") >= count:
            return
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()}")
        time.sleep(0.005)
    process.kill()
    pytest.fail("no epoch was evaluated")


def checkpoints(out):
    folder = out / "methods" / "baseline" / "checkpoints"
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Predictions of the long study when nobody disturbs it."""
    out = tmp_path_factory.mktemp("whole") / "run"
    seldom = [word.replace("seconds=0.2", "seconds=1000") for word in _LONG[1:]]
    config, options = read_study(seldom)
    run_study(config, out, only=options.only)
    return logits(out)


def test_a_row_that_is_added_is_listed_and_trained_with_those_that_are_asked_for(
    capsys,
):
    added = ["--method", "MinimumEntropy", "ERM"]
    _, options = read_study(["digits:tiny", "--only", "baseline", *added])
    assert options.only == ("baseline", "minimum_entropy", "erm")
    assert read_study(["digits:tiny", *added])[1].only == ()
    for words in (added, ["--method=MinimumEntropy", "--epochs", "3", *added[::2]]):
        assert main(["study", "digits:tiny", "--list", *words]) == 0
        listed = capsys.readouterr().out.split("\n")
        assert listed[0].split() == ["baseline", "Baseline"]
        assert ["minimum_entropy", "MinimumEntropy"] in map(str.split, listed)
        assert ["erm", "ERM"] in map(str.split, listed)


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on_and_a_kill_anywhere_loses_little(
    tmp_path, whole, no_charts
):
    """The same command goes on to the same predictions."""
    out, lines = tmp_path / "run", 1
    rng = np.random.default_rng(0)
    metrics = out / "methods/baseline/metrics.jsonl"
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        process = launch(out)
        killed = number == signal.SIGKILL
        wait_for_lines(process, out, lines + killed * int(rng.integers(0, 12)))
        time.sleep(killed * float(rng.uniform(0, 0.3)))
        process.send_signal(number)
        said, errors = process.communicate(timeout=60)
        assert not (out / "methods/baseline/predictions.npz").exists()
        if killed:
            assert process.returncode == -number
            lines = metrics.read_text().count("\n") + 1
            continue
        assert process.returncode == 128 + number, said + errors
        assert "Traceback" not in errors
        (told,) = [line for line in said.splitlines() if "To go on: " in line]
        sentence, command = told.split(" To go on: ")
        done = checkpoints(out)[-1]
        assert sentence == f"baseline stopped after {done} of {2 * _EPOCHS} updates."
        assert lines <= done / 2 < _EPOCHS
        lines = done // 2 + 1  # epochs of two updates
    words = shlex.split(command)
    assert words[0] == "churn-jax"
    assert main(words[1:]) == 0
    np.testing.assert_array_equal(logits(out), whole)
    assert metrics.read_text().count("\n") == _EPOCHS


@pytest.mark.slow
def test_pieces_of_some_minutes_give_the_predictions_of_one(
    tmp_path, capsys, no_charts
):
    few = ["4" if word == str(_EPOCHS) else word for word in _LONG]
    assert main([*few, "--out", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    out = tmp_path / "pieces"
    # Over before the first update: every piece does what it cannot leave, one or two.
    command = [*few, "--minutes", "1e-06", "--out", str(out)]
    codes, done = [], [0]
    while not codes or codes[-1] == 3:
        codes.append(main(command))
        said = capsys.readouterr().out
        if codes[-1] == 3:
            (told,) = [line for line in said.splitlines() if "To go on: " in line]
            sentence, again = told.split(" To go on: ")
            assert sentence.endswith("updates, as --minutes 1e-06 are over.")
            assert shlex.split(again) == ["churn-jax", "study", *command[1:]]
            done.append(checkpoints(out)[-1])
    assert set(codes[:-1]) == {3} and codes[-1] == 0
    assert done == sorted(done) and len(done) > 2  # of eight updates
    np.testing.assert_array_equal(logits(out), logits(tmp_path / "whole"))


# A command whose training is pretended: it compiles, or has updates to save.
_PRETENDED = """
import sys, time
from pathlib import Path
from churn_jax.command.options import AllOfFolder
from churn_jax.command.run import run_command
from churn_jax.training.progress import COMPILING, Work

def train(*, on_work, stop, **told):
    on_work(Work("a", COMPILING if sys.argv[1] == "compiling" else sys.argv[1], 0))
    print("begun", flush=True)
    assert stop.wait(30)
    print("saving", flush=True)
    time.sleep(300)

run_command(
    AllOfFolder(Path(sys.argv[2])), "churn-jax study", train=train
)
"""


@pytest.mark.parametrize(
    ("doing", "signals", "said"),
    [
        pytest.param(
            *("training", 2, "stopped at once; the last checkpoint is kept"),
            marks=pytest.mark.slow,
        ),
        ("compiling", 1, "interrupted; there was nothing new to save"),
    ],
)
def test_ctrl_c_ends_at_once_without_updates_or_the_second_time(
    tmp_path, doing, signals, said
):
    process = started(_PRETENDED, doing, str(tmp_path))
    first, stopping = "", "SIGINT: stopping after this update, saving"
    # The sentence and what is stopped come from two threads.
    for words in (("begun\n",), ("saving\n", stopping))[:signals]:
        while not all(word in first for word in words):
            first += process.stdout.readline()
            assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
    last, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert (stopping in first + last) == (signals == 2)
    assert f"{said}. To go on: churn-jax study" in last


_IMPORTING = """
import sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "churn_jax.studies":
            print("importing", flush=True)
            try:
                time.sleep(300)
            except BaseException as error:  # as extensions do while they are imported
                raise ImportError(name) from error

sys.meta_path.insert(0, Finder())
sys.argv[0] = "churn-jax"
from churn_jax.cli import main
sys.exit(main())
"""


def test_sigterm_in_the_first_seconds_is_a_sentence(tmp_path):
    words = ["study", "digits:tiny", "--out", str(tmp_path / "run")]
    process = started(_IMPORTING, *words)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (143, "churn-jax: ended by SIGTERM\n")


@pytest.mark.slow
def test_the_same_command_trains_nothing_twice_and_fresh_starts_again(
    capsys, monkeypatch, tmp_path, refused
):
    out = tmp_path / "run"
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(progress, "line_interval", lambda seconds: 0.001)

    def run(*options, only=("baseline",)):
        assert main([*_SHORT, "--only", *only, *options, "--out", str(out)]) == 0
        return capsys.readouterr().out

    said = run("--fresh", "--minutes", "60")  # there is no old folder, and time enough
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert "baseline: validation accuracy" in said
    # Without a terminal, finished updates are told in lines.
    assert re.search(r"(?m)^\d\d:\d\d:\d\d Baseline: .*compiling, 0:\d\d so far$", said)
    saving = r"(?m)Baseline: \d+ of \d+ updates \(\d+%\), saving, .* so far"
    assert re.search(saving, said)
    first = logits(out)
    changed = (out / "methods/baseline/predictions.npz").stat().st_mtime_ns

    said = run("--set", "entropy.alpha=0.123", only=("baseline", "entropy"))
    assert "Baseline: finished before, kept" in said
    assert "entropy: validation accuracy" in said
    assert "baseline: validation accuracy" not in said
    assert (out / "methods/baseline/predictions.npz").stat().st_mtime_ns == changed
    assert (out / "report.html").is_file() and (out / "table.md").is_file()

    refused([*_SHORT, "--epochs", 3, "--out", out], "train.epochs: 2 there, 3 here")
    for minutes in ("0", "-1", "nan"):
        words = [f"--minutes={minutes}", "--fresh", "--out", out]
        refused([*_SHORT, *words], "--minutes must be a positive number")

    (out / "note.txt").write_text("mine")
    said = run("--fresh", "--epochs", "3", "--quiet")
    assert "Baseline:" not in said and "baseline:" not in said and "Report:" in said
    (aside,) = [p for p in tmp_path.iterdir() if p.name.startswith("run.")]
    assert str(aside) in "".join(said.split("\n"))
    assert (aside / "note.txt").read_text() == "mine"
    np.testing.assert_array_equal(logits(aside), first)
    assert not (out / "note.txt").exists()
    assert not np.array_equal(logits(out), first)
    assert handlers == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left"), 2, "no space left on the disk"),
    ],
)
def test_what_ends_a_study_before_it_has_begun_is_one_sentence(
    capsys, monkeypatch, error, code, said
):
    def ends(name):
        raise error

    monkeypatch.setattr("churn_jax.studies.presets.preset", ends)
    assert main(["study", "digits:tiny"]) == code
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"churn-jax: {said}")


def test_another_seed_is_another_one_for_rows_with_seeds_of_their_own():
    config, _ = read_study(["elodi-digits", "--seed", "1000"])
    bases = {spec.name: spec.config(config.train).seeds.base for spec in config.methods}
    assert bases["old"] == 1000 and bases["none"] == bases["ensemble"] == 1001


@pytest.mark.parametrize(
    "words",
    [
        "digits --epochs 3 --set codistill_skl.beta=0.2 --learning-rate 0.05",
        "digits:tiny --method ERM MinimumEntropy --model lenet5 --mesh replica=2",
        "dm-digits --set train.optimizer.nesterov=false train.seed_numbers=3,4,5,6,7",
        "dm-digits:tiny --set model.sharing.bias=shared --predictions shards",
        "own --data digits --model lenet5 --epochs 4 --set data.train_size=None",
    ],
)
def test_a_printed_record_is_the_same_study(words, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["study", *words.split(), "--print-config"])
    path = tmp_path / "study.json"
    path.write_text(capsys.readouterr().out)
    assert read_study([str(path)])[0] == read_study(words.split())[0]
    assert read_study([str(path), "--epochs", "7"])[0].train.epochs == 7
    assert read_study([f"{path}:tiny"])[0] == tiny(read_study(words.split())[0])


def test_help_shows_what_is_used_and_help_all_the_rest(capsys):
    counts = []
    for word in ("-h", "--help-all"):
        with pytest.raises(SystemExit):
            main(["study", word])
        said = capsys.readouterr().out
        counts.append(len(re.findall(r"^│ --\w", said, re.M)))
    assert counts[0] <= 12 and counts[1] <= 40
