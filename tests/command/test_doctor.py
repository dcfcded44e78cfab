"""`churn-jax doctor`: what it prints, keeps and returns."""

import json
from pathlib import Path

import pytest

from churn_jax.cli import main
from churn_jax.command.doctor import Arguments
from churn_jax.studies import launches
from tests.environment import QUICK
from tests.studies.test_launches import OTHER, SAME, leave


@pytest.fixture
def trained(monkeypatch):
    """Launches that train nothing: the second one leaves what the test says."""
    left = {"second": SAME, "env": []}

    def start(launch, folder, env):
        left["env"].append(env)
        leave(folder, *(SAME if folder.name == "0" else left["second"]))

    monkeypatch.setattr(launches, "_start", start)
    return left


def doctor(*options):
    return main(["doctor", "digits:tiny", "--updates", "2", *map(str, options)])


def test_it_returns_0_and_says_yes_where_launches_agree(
    tmp_path, capsys, monkeypatch, trained
):
    monkeypatch.setattr("churn_jax.command.doctor.misfits", lambda: ["libtpu is old"])
    assert doctor("--out", tmp_path / "out") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "repeats itself: yes, 2 launches of 2 updates gave equal weights" in said
    assert "Final churn 0.00 %, surrogate churn 0.00 %, accuracy 100.00 %" in said
    assert "jaxlib" in said and "libtpu is old" in said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"repeatability.json", "table.md", "distance.png"}


def test_it_returns_1_and_says_from_where_launches_differ(tmp_path, capsys, trained):
    trained["second"] = OTHER
    assert doctor("--out", tmp_path / "out") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "repeats itself: no, 2 launches of 2 updates gave 2 different" in said
    assert "apart from update 2 on" in said
    assert "Final churn 50.00 %" in said


def test_a_perturbed_launch_is_meant_to_differ(tmp_path, capsys, trained):
    trained["second"] = OTHER
    words = ["--perturb", "--deterministic", "--launches", 3]
    assert doctor(*words, "--out", tmp_path / "out") == 0
    flags = [env["XLA_FLAGS"] for env in trained["env"]]
    assert all("xla_gpu_deterministic_ops=true" in found for found in flags)
    said = " ".join(capsys.readouterr().out.split())
    assert "one flipped bit: 2 launches of 2 updates" in said
    assert "±" in said
    found = json.loads((tmp_path / "out" / "repeatability.json").read_text())
    assert (found["perturbed"], found["repeats"]) == (True, False)


def test_each_measurement_has_a_folder_of_its_own():
    assert Arguments().folder() == Path("runs/doctor/digits-100")
    given = Arguments(
        preset="digits:tiny", model="lenet5", data="/x/mnist.npz", perturb=True
    )
    assert given.folder() == Path("runs/doctor/digits-tiny-lenet5-mnist-100-perturbed")
    assert Arguments(deterministic=True).folder().name == "digits-100-deterministic"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--launches", "1"], "at least two launches"),
        (["--updates", "0"], "one update"),
        (["--steps", "5"], "--steps"),
        (["digist"], "did you mean digits"),
    ],
)
def test_bad_input_is_one_sentence_and_2(capsys, trained, options, words):
    assert main(["doctor", *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_this_machine_repeats_itself_in_launches_of_its_own(
    tmp_path, capsys, monkeypatch
):
    """The preset's own program, optimised: two processes, the same bits."""
    for name in QUICK:
        monkeypatch.delenv(name, raising=False)
    command = ["doctor", "digits", "--updates", "20", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    found = json.loads((tmp_path / "out" / "repeatability.json").read_text())
    assert found["repeats"]
    assert found["distance"] == [[0.0]] * 6  # after 0, 1, 2, 5, 10 and 20
    assert len(set(found["digests"])) == 1
    assert len(found["digests"][0]) == 64
