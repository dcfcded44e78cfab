"""Bad input is one sentence and exit code 2, and earlier results stay as they were."""

from pathlib import Path

import pytest

from churn_jax.cli import main

STUDY = ["study", "digits:tiny", "--only", "baseline"]


def refused(capsys, argv, *words):
    """Runs the command in this process, which says one sentence."""
    capsys.readouterr()
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("churn-jax: ")
    for word in words:
        assert str(word) in err, f"{word!r} is not in: {err}"


# What a network, an optimiser, devices or data cannot do is seen when a run begins.
# Each mistake in a setting has its test with the setting.
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "lenet5"], ["12 x 12", "8, 8"]),
        (["--mesh", "replica=16", "--replicas", "16"], ["16 devices", "present"]),
        (["--set", "train.steps_per_call=300"], ["steps_per_call 300"]),
        (["--set", "train.optimizer.learning_rate=1,2,3"], ["3", "2"]),
        (["--train-size", "5000"], ["train_size=5000", "digits"]),
    ],
    ids=lambda value: " ".join(value),
)
@pytest.mark.filterwarnings("ignore")
def test_settings_that_do_not_fit_are_refused_and_bind_nobody(
    capsys, tmp_path, options, words
):
    out = tmp_path / "run"
    refused(capsys, [*STUDY, "--out", out, *options], *words)
    assert not list(out.glob("methods/*/predictions.npz"))
    assert not list(out.glob("methods/*/checkpoints/*"))


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
    refused(capsys, ["report", tmp_path], "study.json")
    assert (tmp_path / "study.json").read_text() == text


def test_a_report_of_no_study_and_nothing_in_the_working_folder(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    refused(capsys, ["report", tmp_path], "study.json")
    refused(capsys, ["study", "digits:tiny", "--data", "missing.npz"], "missing.npz")
    assert list(Path().iterdir()) == []
