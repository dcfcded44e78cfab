"""`churn-jax stream`, from the command line to the report."""

import json

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.command.stream import read_stream

CLICKS = "experiments/anti_distillation/clicks.py"
_ROWS = ["--only", "baseline", "correlation_0_02_s1"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "stream needs the name of a preset, such as clicks"),
        (["clciks"], "did you mean clicks"),
        ([f"{CLICKS}:adult"], "needs --data FILE: python experiments/"),
        ([f"{CLICKS}:adult", "--data", "nowhere.csv"], "does not exist"),
        (["clicks", "--windows", "3"], "--windows"),
        (["clicks", "--minutes", "-1"], "--minutes must be a positive number"),
        (["clicks", "--batch-size", "100"], "not a multiple of batch_size"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(argv, words, capsys, tmp_path):
    assert main(["stream", *argv, *(["--out", str(tmp_path)] if argv else [])]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_short_options_reach_the_study():
    argv = [f"{CLICKS}:adult", "--data", "a.csv", "--window=512", "--replicas", "4"]
    argv += ["--set", "difference_1_s1.strength=0.5", "--mesh", "replica=2"]
    config, options = read_stream([*argv, "--warm-share", "0.25"])
    assert (config.data.source, config.data.schema) == ("a.csv", "adult")
    assert (config.train.window, config.train.replicas) == (512, 4)
    assert config.train.mesh.replica == 2 and config.warm_share == 0.25
    assert config.spec("difference_1_s1").method.strength == 0.5
    assert str(options.out) == "runs/ad-table3-adult"


@pytest.mark.slow
def test_a_stream_from_the_first_command_to_the_report(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["stream", "clicks:tiny", *_ROWS, "--out", str(out), "--holdout", "0.2"]
    # The time is over at once: one row is left half done, and the same command goes on.
    assert main([*command, "--minutes", "1e-9"]) == 3
    said = capsys.readouterr().out
    assert "To go on: churn-jax stream clicks:tiny" in said
    assert not (out / "table.csv").exists()
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "No AD" in said and "report.html" in said

    record = json.loads((out / "study.json").read_text())
    finished = [m["name"] for m in record["methods"]]
    assert finished == ["baseline", "correlation_0_02_s1"]
    page = (out / "report.html").read_text()
    assert "Not finished" not in page  # rows that were not asked for
    assert page.count("<figure>") == 2
    result = json.loads((out / "methods" / "baseline" / "result.json").read_text())
    assert np.isfinite(result["totals"]["log_loss"]).all()
    assert result["totals"]["relative_pd"] > 0 and result["holdout"]
    table = (out / "table.csv").read_text()

    (out / "table.csv").unlink()
    assert main(command) == 0  # nothing is trained again
    assert capsys.readouterr().out.count("finished before, kept") == 2
    assert (out / "table.csv").read_text() == table
    (out / "table.csv").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "table.csv").read_text() == table
