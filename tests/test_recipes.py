"""Launch recipes and the container file: they parse, and their options exist."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from churn_jax.command.study import read_study
from tests.test_source import requirement, settings_of

ROOT = Path(__file__).parents[1]
SAID = {"capture_output": True, "text": True, "timeout": 20}
FOLDER = ROOT / "experiments" / "launch" / "recipes"
GKE, SLURM, QUEUED, VM, WORKSTATION = RECIPES = sorted(FOLDER.glob("*.s*"))


def dry(recipe, **variables):
    """What the recipe would run, one command per line; it may run nothing."""
    ours = {"PATH": os.environ["PATH"], "HOME": "/home/somebody", "SOURCE": "churn-jax"}
    ours |= variables
    done = subprocess.run(["bash", str(recipe), "--dry-run"], env=ours, **SAID)
    assert done.returncode == 0, done.stderr
    return done.stdout


def studies(text):
    """The words after `churn-jax` of every command, here or on another machine."""
    found = []
    for line in text.splitlines():
        words = shlex.split(line)
        remote = [shlex.split(word) for word in words if "churn-jax study" in word]
        for inner in (words, *remote):
            places = [i for i, word in enumerate(inner) if word.endswith("churn-jax")]
            found += [inner[i + 1 :] for i in places if inner[i + 1 :][:1] == ["study"]]
    return found


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
    config, options = read_study(words[1:])
    name = words[1].partition("experiments/reproducibility/presets.py:")[2]
    assert config.name == name.replace("_", "-") and options.out.name == name
    given = studies(dry(recipe, PRESET="digits", MESH="replica=2", OUT="/it's x/y"))[0]
    config, options = read_study(given[1:])
    assert config.name == "digits" and str(options.out) == "/it's x/y"
    if recipe.name != "workstation_gpu.sh":
        assert config.train.mesh.replica == 2


def test_a_dry_run_needs_none_of_the_tools_it_names(tmp_path):
    """Not even gcloud: nothing is asked, nothing created."""
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for recipe in RECIPES:
        text = dry(recipe, PATH=str(tmp_path), SOURCE="")  # and nothing to install
        assert "churn-jax study" in text


def test_a_slice_is_asked_for_before_it_is_used():
    lines = dry(QUEUED).splitlines()
    order = ["queued-resources create", "churn-jax study", "queued-resources delete"]
    places = [next(i for i, s in enumerate(lines) if word in s) for word in order]
    assert places == sorted(places)


def test_a_mesh_has_all_chips_of_the_slice():
    """The compiler refuses to leave some of a large slice out, and they cost too."""
    for recipe in (GKE, QUEUED, VM):
        (chips,) = set(re.findall(r"v5litepod-(\d+)", text := dry(recipe)))
        config, _ = read_study(studies(text)[0][1:])
        assert config.train.mesh.size == int(chips)


def test_processes_of_a_node_see_all_of_its_gpus():
    """The i-th process takes the i-th GPU that it sees; bound to one, it has none."""
    text = SLURM.read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    assert "gpus-per-task" not in options
    assert "srun --kill-on-bad-exit=1 --gpu-bind=none" in dry(SLURM)


def test_both_wheels_are_copied_to_every_host_before_they_are_installed():
    lines = dry(VM, SOURCE="dist/churn_jax-1-any.whl").splitlines()
    both = "scp dist/churn_compare-1-any.whl dist/churn_jax-1-any.whl churn:"
    (copied,) = [i for i, line in enumerate(lines) if both in line]
    assert "--worker=all" in lines[copied]
    (installed,) = [i for i, s in enumerate(lines) if "./churn_jax-1" in s]
    assert copied < installed and "any.whl[tpu]" in lines[installed]
    assert "./churn_compare-1-any.whl" in lines[installed]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("/a/clone[cuda]", "/a/clone/compare '/a/clone[cuda]'"),
        ("dist/churn_jax-1.whl", "--find-links dist dist/churn_jax-1.whl"),
        ("git+https://a/b", "'git+https://a/b#subdirectory=compare' git+https://a/b"),
        ("churn-jax", "churn-jax"),
    ],
)
def test_churn_compare_is_installed_from_the_same_place(source, words):
    assert f"pip install --quiet {words}\n" in dry(WORKSTATION, SOURCE=source)


@pytest.mark.parametrize("recipe", ["tpu_vm.sh", "tpu_queued.sh"])
def test_a_wheel_without_that_of_churn_compare_creates_nothing(recipe, tmp_path):
    (wheel := tmp_path / "churn_jax-1.whl").touch()
    ended, words, printed = on_cloud(tmp_path, recipe, source=str(wheel))
    assert (ended, words) == (2, []) and "churn_compare-1.whl is not there" in printed


@pytest.mark.skipif(
    bool(requirement(settings_of(ROOT))), reason="pip knows where the package is"
)
def test_nothing_is_installed_from_an_address_that_nobody_gave(tmp_path):
    ours = {"PATH": os.environ["PATH"], "HOME": "/home/somebody"}
    for recipe in (VM, WORKSTATION):
        done = subprocess.run(["bash", str(recipe)], env=ours, **SAID)
        assert (done.returncode, done.stdout) == (2, "")
        assert "set SOURCE to" in done.stderr and done.stderr.count("\n") == 1
    ended, words, printed = on_cloud(tmp_path, "tpu_queued.sh", source="")
    assert (ended, words) == (2, []) and "set SOURCE to" in printed


# A cloud in place of the real one: answers with `states`, one by one, and ends studies
# with `codes`, where "hang" keeps one running; the commands it got are in `asked`.
CLOUD = """#!/bin/bash
echo "$@" >> "$CLOUD/asked"
next() { head -n 1 "$CLOUD/$1"; sed -i 1d "$CLOUD/$1"; }
case "$*" in
  *queued-resources\\ describe*) next states ;;
  *tpu-vm\\ describe*) exit 1 ;;
  *churn-jax\\ study*)
    code="$(next codes)"
    if [[ "$code" == hang ]]; then exec sleep 20; else exit "$code"; fi ;;
esac
"""


def on_cloud(
    folder, recipe, *options, states=(), codes=(), wait="0", signals=None, source="a"
):
    """Runs a recipe; returns its exit code, its main requests and what it printed.

    `signals` is (word of the last request before it, signal, to the group or not).
    """
    cloud = folder / "gcloud"
    cloud.write_text(CLOUD)
    cloud.chmod(0o755)
    (folder / "states").write_text("\n".join(states) + "\n")
    (folder / "codes").write_text("\n".join(map(str, codes)) + "\n")
    asked = folder / "asked"
    asked.write_text("")
    ours = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    ours |= {"CLOUD": str(folder), "WAIT": wait, "TRIES": "3", "SOURCE": source}
    # pytest's workers ignore Ctrl-C and nohup hangups, and so would the shell.
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    process = subprocess.Popen(
        ["bash", str(FOLDER / recipe), *options],
        env=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    for number, handler in before.items():
        signal.signal(number, handler)
    if signals:
        word, number, to_group = signals
        deadline = time.monotonic() + 15
        while word not in asked.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        (os.killpg if to_group else os.kill)(process.pid, number)
    printed, _ = process.communicate(timeout=15)
    words = re.findall(r"(create|delete|study)\b", asked.read_text().replace("\\", ""))
    return process.returncode, words, printed


MACHINE = "Delete it with: gcloud compute tpus tpu-vm delete churn"
REQUEST = "Delete it with: gcloud compute tpus queued-resources delete churn-request"
CREATED, ALL = ["create", "study"], ["create", "study", "delete"]
TAKEN = ["WAITING_FOR_RESOURCES", "ACTIVE", "PROVISIONING", "ACTIVE"]
NEVER = ["FAILED", "SUSPENDED", "FAILED"]


@pytest.mark.parametrize(
    ("recipe", "option", "states", "codes", "ended", "asked", "told"),
    [
        # A study that failed left its machine running without the line that deletes it.
        *(("tpu_vm.sh", "", (), [n], n, CREATED, MACHINE) for n in (0, 1, 2)),
        *(("tpu_vm.sh", "--delete", (), [n], n, ALL, "") for n in (0, 1, 2)),
        ("tpu_vm.sh", "--remove", (), [], 2, [], "unknown option: --remove"),
        ("tpu_queued.sh", "--remove", (), [], 2, [], "unknown option: --remove"),
        ("tpu_queued.sh", "", TAKEN, [255, 0], 0, ALL * 2, ""),  # is asked for again
        ("tpu_queued.sh", "", ["ACTIVE"] * 2, [2, 0], 2, ALL, ""),  # bad input
        ("tpu_queued.sh", "", NEVER, [], 3, ["create", "delete"] * 3, ""),
    ],
)
def test_a_recipe_asks_for_what_it_needs_and_tells_what_it_leaves(
    recipe, option, states, codes, ended, asked, told, tmp_path
):
    options = [option] if option else []
    found = on_cloud(tmp_path, recipe, *options, states=states, codes=codes)
    assert found[:2] == (ended, asked)
    assert told in found[2] and (MACHINE in found[2]) == (told == MACHINE)
    # A request that failed was once followed by an ordinary one, at full price.
    ordinary = "tpu-vm create" in (tmp_path / "asked").read_text()
    assert ordinary == (recipe == "tpu_vm.sh" and bool(asked))


# Which word of the cloud's log the signal waits for, and what the recipe has asked by
# then.
WAITING = {"states": ["WAITING_FOR_RESOURCES"], "wait": "30"}


@pytest.mark.parametrize(
    ("recipe", "number", "options", "word", "asked", "told"),
    [
        *(
            ("tpu_vm.sh", n, {"codes": ["hang"]}, "study", ["create", "study"], MACHINE)
            for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ),
        *(
            ("tpu_queued.sh", n, WAITING, "describe", ["create"], REQUEST)
            for n in (signal.SIGINT, signal.SIGTERM)
        ),
    ],
)
def test_an_interrupted_recipe_leaves_nothing_without_a_word(
    tmp_path, recipe, number, options, word, asked, told
):
    signals = (word, number, recipe == "tpu_vm.sh")
    for delete in ((), ("--delete",)):
        ended, words, printed = on_cloud(
            tmp_path, recipe, *delete, signals=signals, **options
        )
        assert ended == 128 + number
        assert words == [*asked, *(["delete"] * len(delete))]
        assert (told in printed) == (not delete)


def test_ctrl_c_during_a_queued_study_asks_for_no_other_slice(tmp_path):
    signals = ("study", signal.SIGINT, True)
    ended, words, printed = on_cloud(
        tmp_path, "tpu_queued.sh", states=["ACTIVE"], codes=["hang"], signals=signals
    )
    assert (ended, words) == (130, ["create", "study"]) and REQUEST in printed


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
    # Code that changes does not install everything again.
    installed = text.index('pip install --no-cache-dir ./compare ".$')
    assert installed < text.index("COPY churn_jax") < text.index("--no-deps .")
    for extra in ("tpu", "cuda"):
        assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
