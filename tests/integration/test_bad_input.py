"""Bad input is one sentence and exit code 2, and earlier results stay as they were."""

import re
from pathlib import Path

import numpy as np
import pytest

from churn_jax.cli import main

STUDY = ["study", "digits:tiny", "--only", "baseline"]
COEFFICIENT = "codistill_skl.beta"


def refused(capsys, argv, *words):
    """Runs the command in this process; returns its one sentence."""
    capsys.readouterr()
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("churn-jax: ")
    for word in words:
        assert str(word) in err, f"{word!r} is not in: {err}"
    return err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["studdy"], ["'studdy'", "did you mean study"]),
        (["study", "digit"], ["'digit'", "did you mean digits"]),
        (["study", "digits:huge"], ["'digits:huge'", "digits:tiny"]),
        ([*STUDY, "--bogus", "3"], ["--bogus", "study -h"]),
        ([*STUDY, "--epochs", "many"], ["--epochs", "'many'"]),
        ([*STUDY, "--epochs", "0"], ["epochs must be at least 1; got 0"]),
        ([*STUDY, "--epochs"], ["--epochs", "Missing value"]),
        ([*STUDY, "--mapping", "spread"], ["vmap, unroll, loop", "'spread'"]),
        ([*STUDY, "--optimizer", "lion"], ["sgd, adam", "'lion'"]),
        ([*STUDY, "--mesh", "rows=2"], ["replica, member and data", "'rows=2'"]),
        ([*STUDY, "--mesh", "replica=3", "--replicas", "4"], ["4 replicas", "3 dev"]),
        (
            [*STUDY, "--mesh", "data=3", "--batch-size", "32"],
            ["batch_size 32", "data axis, 3"],
        ),
        ([*STUDY, "--set", COEFFICIENT], ["method.coefficient=value"]),
        ([*STUDY, "--set", f"{COEFFICIENT}=big"], [COEFFICIENT, "'big'"]),
        ([*STUDY, "--set", "codistil_skl.beta=1"], ["did you mean codistill_skl"]),
        ([*STUDY, "--set", "codistill_skl.gamma=1"], ["'gamma'", "beta"]),
        (["data"], ["mnist"]),
        (["doctor", "--launches", "1"], ["at least two launches"]),
    ],
    ids=lambda value: " ".join(value[1:]) if "study" in value else "",
)
def test_a_wrong_command_is_refused(capsys, argv, words):
    refused(capsys, argv, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "baselin"], ["'baselin'", "did you mean baseline"]),
        (["--set", "model.dtype=float16"], ["float32, bfloat16", "'float16'"]),
        (["--set", "model.remat=true"], ["remat"]),
        (["--model", "lenet5"], ["12 x 12", "8, 8"]),
        (["--batch-size", "300"], ["batch_size 300", "examples"]),
        (["--mesh", "replica=16", "--replicas", "16"], ["16 devices", "present"]),
        (["--set", "train.steps_per_call=300"], ["steps_per_call 300"]),
        (["--set", "train.optimizer.learning_rate=1,2,3"], ["3", "2"]),
        (["--train-size", "5000"], ["train_size=5000", "digits"]),
        (["--data", "no_such_set"], ["no_such_set"]),
        (["--data", "missing.npz"], ["there is no file", "missing.npz"]),
    ],
    ids=lambda value: " ".join(value),
)
@pytest.mark.filterwarnings("ignore")
def test_settings_that_do_not_fit_are_refused_and_bind_nobody(
    capsys, tmp_path, options, words
):
    out = tmp_path / "run"
    command = ["study", "digits:tiny", "--out", out]
    only = [] if "--only" in options else ["--only", "baseline"]
    refused(capsys, [*command, *only, *options], *words)
    assert not list(out.glob("methods/*/predictions.npz"))
    assert not list(out.glob("methods/*/checkpoints/*"))


def images():
    return np.random.default_rng(0).integers(0, 256, (60, 6, 6, 1), dtype=np.uint8)


def labels(count=60):
    return np.arange(count) % 3


# Each mistake has its test in `tests/data`.
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": images(), "labels": labels(59)}, ["60", "59"]),
        ({"images": images()[:, 0, 0, 0], "labels": labels()}, ["(60,)"]),
        ({"pictures": images(), "labels": labels()}, ["pictures"]),
    ],
    ids=["lengths", "no image axes", "other keys"],
)
def test_a_users_arrays_that_do_not_fit_are_refused(capsys, tmp_path, arrays, words):
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    out = tmp_path / "run"
    refused(
        capsys,
        [*STUDY, "--data", path, "--train-size", "32", "--out", out],
        *words,
    )
    assert not out.exists()


def test_a_truncated_data_file_is_refused(capsys, tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, images=images(), labels=labels())
    path.write_bytes(path.read_bytes()[:-200])
    refused(capsys, [*STUDY, "--data", path, "--out", tmp_path / "r"], path)


@pytest.mark.parametrize("name", ["file/run", "file"])
def test_a_folder_that_cannot_be_written_is_refused(capsys, tmp_path, name):
    """Below a regular file, where not even root can write."""
    (tmp_path / "file").write_text("precious")
    refused(capsys, [*STUDY, "--out", tmp_path / name], tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("text", ["{", "[]", '{"config": 3}'])
def test_a_record_that_is_not_a_studys_is_refused(capsys, tmp_path, text):
    (tmp_path / "study.json").write_text(text)
    refused(capsys, [*STUDY, "--out", tmp_path], tmp_path / "study.json", "--fresh")
    assert (tmp_path / "study.json").read_text() == text


@pytest.mark.parametrize(
    ("content", "words"), [(None, ["study.json"]), ("{", ["study.json"])]
)
def test_a_report_of_no_study_is_refused(capsys, tmp_path, content, words):
    if content is not None:
        (tmp_path / "study.json").write_text(content)
    refused(capsys, ["report", tmp_path], *words)


def test_help_lists_the_commands_and_is_no_mistake(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {c} ", out, re.M) for c in ("study", "report", "doctor"))
    with pytest.raises(SystemExit) as stopped:
        main(["study", "digits", "--help"])
    assert not stopped.value.code
    assert "--epochs" in capsys.readouterr().out


def test_nothing_is_left_in_the_working_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(capsys, ["study", "digits:tiny", "--data", "missing.npz"], "missing.npz")
    assert list(Path().iterdir()) == []
