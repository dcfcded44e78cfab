"""`churn-jax sweep` from its words to its files and exit codes."""

import json

import pytest

from churn_jax.cli import main
from churn_jax.command.sweep import read_sweep

SMALL = """--set model.features=8 --train-size 64 --validation 40
    --batch-size 32 --seeds 2""".split()


def test_the_folder_is_named_after_what_is_swept():
    config, options = read_sweep(
        ["digits:tiny", "codistill_ce.beta=1", "codistill_skl.beta", "--epochs", "3"]
    )
    assert list(options.axes) == ["codistill_ce.beta=1", "codistill_skl.beta"]
    assert config.train.epochs == 3
    name = "digits-tiny-codistill_ce.beta-codistill_skl.beta"
    assert options.out.as_posix() == f"runs/sweeps/{name}"
    # Its replicas are its seeds x values, so the preset's refuse no mesh.
    config, _ = read_sweep(["digits:tiny", "codistill_skl.beta", "--mesh", "replica=3"])
    assert config.train.mesh.replica == 3


@pytest.mark.slow
def test_a_sweep_leaves_its_report_and_stops_when_asked(tmp_path, capsys):
    out = tmp_path / "out"
    command = ["sweep", "digits:tiny", "entropy.alpha=0.1", *SMALL, "--out", str(out)]
    long = [*command, "--epochs", "400", "--set", "train.eval_every_epochs=400"]
    assert main([*long, "--minutes", "1e-5"]) == 3
    assert "To go on: churn-jax sweep digits:tiny" in capsys.readouterr().out
    assert main([*command, "--fresh"]) == 0
    said = capsys.readouterr().out
    assert "Entropy: alpha" in said and "On the validation split" in said
    assert "never used" in " ".join(said.split())
    assert (out / "report.html").stat().st_size > 10_000
    record = json.loads((out / "study.json").read_text())
    assert sorted(p["value"] for p in record["sweep"]["points"]) == [0.0, 0.1]
    assert record["launch"]["command"].startswith("churn-jax sweep")
