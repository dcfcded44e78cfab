"""The command `churn-jax plan`: what it reads, what it refuses, what it prints."""

import dataclasses
import json
import subprocess
import sys

import pytest

from churn_jax.cli import main
from churn_jax.command.plan import read_plan
from tests.environment import as_users_have_it
from tests.planning.test_compile import made


def fake(config, row, part, mesh):
    """A plan that compiles nothing."""
    return made(
        row=row,
        topology=part.name,
        mesh=dataclasses.asdict(mesh),
        replicas=config.train.replicas,
        batch_size=config.train.batch_size,
    )


def compile_with(monkeypatch, plan):
    """Nothing is compiled; `plan` makes the plans."""
    monkeypatch.setattr("churn_jax.planning.compile.check_compiler", lambda: None)
    monkeypatch.setattr("churn_jax.planning.plan", plan)


@pytest.fixture
def without_compiler(monkeypatch):
    """The plans are made by hand."""
    compile_with(monkeypatch, fake)


CIFAR10 = "experiments/reproducibility/presets.py:cifar10"


def test_without_libtpu_the_command_says_how_to_install_it(refused, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(["plan", "digits"], "pip install libtpu")


def test_options_are_those_of_the_study():
    config, options, meshed = read_plan(
        ["digits", "--replicas", "4", "--mesh", "replica=4", "--set", "entropy.alpha=1"]
    )
    assert (config.train.replicas, config.train.mesh.replica, meshed) == (4, 4, True)
    assert float(config.spec("entropy").method.alpha) == 1
    assert options.topology == "v5e:4x4"


def test_one_mesh_is_planned_and_written(without_compiler, capsys, tmp_path):
    path = tmp_path / "plan.json"
    words = ["digits", "--row", "baseline", "--mesh", "2,1,2", "--json", str(path)]
    assert main(["plan", *words]) == 0
    assert "Fits: " in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert found["mesh"] == {"replica": 2, "member": 1, "data": 2}


def test_without_a_mesh_all_devices_take_part(without_compiler, capsys):
    assert main(["plan", "digits", "--row", "baseline", "--topology", "v5e:2x2"]) == 0
    assert "mesh replica=2,member=1,data=2" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["moves", "room"])
def test_replicas_that_are_not_apart_or_no_room_is_exit_code_one(change, monkeypatch):
    def failing(*arguments):
        found = fake(*arguments)
        if change == "room":
            return dataclasses.replace(found, fits=False)
        across = dataclasses.replace(found.communication[0], axes="replica")
        return dataclasses.replace(found, communication=(across,))

    compile_with(monkeypatch, failing)
    assert main(["plan", "digits", "--row", "baseline"]) == 1


# In a process of their own, as users have it: libtpu locks, logs and never lets go.
@pytest.mark.slow
def test_the_tpu_compiler_moves_what_it_must_alone(tmp_path):
    pytest.importorskip("libtpu", reason="libtpu, the TPU compiler, is not installed")
    # The compiler takes minutes for convolutions of more layers and images.
    small = ["--model", "lenet5", "--batch-size", "4"]
    networks_of = {
        (CIFAR10, "codistill_skl", "member=2,data=2"): 2,
        ("dm-digits", "kd", "member=2,data=2"): 4,  # teachers
        ("digits", "baseline", "replica=2"): 0,
    }
    asked = {}
    for preset, row, mesh in networks_of:
        words = ["plan", f"{preset}:tiny", "--row", row, "--topology", "v5e:2x2"]
        path = tmp_path / f"{row}.json"
        words += ["--replicas", "2", "--json", str(path), "--mesh", mesh]
        asked[path] = words + small * (preset == CIFAR10)
    each = "from churn_jax.cli import main\n"
    each += f"for words in {[*asked.values()]}: assert main(words) == 0"
    done = subprocess.run(
        [sys.executable, "-c", each],
        env={**as_users_have_it(), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for path, networks in zip(asked, networks_of.values()):
        found = json.loads(path.read_text())
        assert found["fits"] and sum(found["memory"].values()) < found["hbm"]
        assert found["memory"]["temporary"] > 0
        assert found["cycles"] > 0 and found["seconds"] > 0
        moved = found["communication"]
        axes = {"member", "data"} if networks else set()
        assert {one["axes"] for one in moved} == axes
        # Between members: gathered logits, float32, and a number of every replica.
        logits = found["replicas"] * networks * found["batch_size"] // 2 * 10 * 4
        of_members = [one for one in moved if one["axes"] == "member"]
        across = {one["kind"]: one["largest"] for one in of_members}
        assert not networks or 0 < across.pop("all-gather") <= logits
        assert all(largest <= 4 * found["replicas"] for largest in across.values())
