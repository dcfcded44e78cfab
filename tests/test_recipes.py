"""Launch recipes and the container file: they parse, and their options exist."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from churn_jax.command.study import _parse

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "experiments" / "launch" / "recipes").glob("*.s*"))


def dry(recipe, **variables):
    """What the recipe would run, one command per line; it may run nothing."""
    ours = {"PATH": os.environ["PATH"], "HOME": "/home/somebody", **variables}
    done = subprocess.run(
        ["bash", str(recipe), "--dry-run"],
        env=ours,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def studies(text):
    """The words after `churn-jax` of every command in the text."""
    lines = re.findall(r"churn-jax (study [^\n\"']*)", text)
    return [shlex.split(line) for line in lines]


def test_there_is_a_recipe_for_every_place():
    assert [recipe.name for recipe in RECIPES] == [
        "gke_xpk.sh",
        "slurm_gpu.sbatch",
        "tpu_queued.sh",
        "tpu_vm.sh",
        "workstation_gpu.sh",
    ]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_a_recipe_is_sound_shell(recipe):
    subprocess.run(["bash", "-n", str(recipe)], check=True)
    text = recipe.read_text()
    assert "set -euo pipefail" in text and "--dry-run" in text
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(recipe)], check=True)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_the_command_of_a_recipe_has_real_options(recipe):
    (words,) = studies(dry(recipe))
    config, options = _parse(words[1:])
    assert config.name == words[1] and str(options.out).endswith(words[1])
    given = studies(dry(recipe, PRESET="digits", MESH="replica=2", OUT="/x/y"))[0]
    config, options = _parse(given[1:])
    assert config.name == "digits" and str(options.out) == "/x/y"
    if recipe.name != "workstation_gpu.sh":
        assert config.train.mesh.replica == 2


def test_a_dry_run_needs_none_of_the_tools_it_names(tmp_path):
    """Not even gcloud: nothing is asked, nothing created."""
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for recipe in RECIPES:
        text = dry(recipe, PATH=str(tmp_path))
        assert "churn-jax study" in text


def test_a_slice_is_asked_for_before_it_is_used():
    lines = dry(RECIPES[2]).splitlines()
    order = ["queued-resources create", "churn-jax study", "queued-resources delete"]
    places = [next(i for i, s in enumerate(lines) if word in s) for word in order]
    assert places == sorted(places)


def test_the_container_copies_files_that_are_there():
    text = (ROOT / "Containerfile").read_text()
    copied = [
        name
        for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert {"pyproject.toml", "churn_jax"} <= set(copied)
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists() and f"!{name}" in kept
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    for extra in ("tpu", "cuda"):
        assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
