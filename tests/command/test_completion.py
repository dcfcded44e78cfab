"""`churn-jax completion`: what may follow, and the scripts in real shells."""

import os
import shutil
import subprocess
import sys

import pytest

from churn_jax.cli import main
from churn_jax.command import COMMANDS
from churn_jax.command.candidates import candidates


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("churn-jax st", ["study", "stream"]),
        ("churn-jax study dm-d", ["dm-digits"]),
        ("churn-jax study digits:", ["tiny"]),  # bash completes what follows the colon
        ("churn-jax stream clicks:g", ["gated"]),
        ("churn-jax study digits --ep", ["--epochs"]),
        ("churn-jax study own --data-", ["--data-dir"]),
        (
            "churn-jax study digits --train.optimizer.no",
            ["--train.optimizer.no-nesterov"],
        ),
        ("churn-jax study digits --only baseline e", ["entropy", "ensemble"]),
        ("churn-jax study digits --set uniform", ["uniform_skl.alpha="]),
        ("churn-jax study digits --method Cod", ["Codistillation"]),
        ("churn-jax study digits --model lenet", ["lenet5"]),
        ("churn-jax study digits --optimizer ad", ["adam", "adagrad"]),
        ("churn-jax study digits --log csv w", ["wandb"]),
        ("churn-jax study --config a.toml --only bu", ["bu_cr"]),
        ("churn-jax study --config b.toml --only bu", []),
        ("churn-jax study digits --model.sh", []),  # its members share nothing
        ("churn-jax study dm-digits --model.sharing.h", ["--model.sharing.heads"]),
        ("churn-jax sweep digits ent", ["entropy.alpha"]),
        ("churn-jax sweep digits --replicas", []),  # which a sweep refuses
        ("churn-jax stream clicks --wind", ["--window"]),
        ("churn-jax plan digits --row ent", ["entropy"]),
        ("churn-jax compare a.npz b.npz --max-n", ["--max-nfr"]),
        ("churn-jax compare a.npz b.npz --on-missing ", ["error", "intersect"]),
        ("churn-jax compare ", []),  # files
        ("churn-jax study digits --config ", []),
        ("churn-jax study digits --epochs ", []),
        ("churn-jax study nothing --o", []),
        ("churn-jax nothing ", []),
        ("churn-jax study 'dig", []),
    ],
)
def test_the_last_word_is_completed(line, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text("preset = 'elodi-digits'")
    assert main(["completion", "bash", line]) == 0
    assert capsys.readouterr().out.split() == expected


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "equations"])
def test_every_command_that_has_options_is_completed(command):
    preset = {"stream": "clicks"}.get(command, "digits")
    found = candidates([command, preset], "-")
    assert bool(found) == (command not in ("report", "completion"))
    assert all(word.startswith("--") for word in found)


def test_other_shells_are_told_what_a_word_is(capsys):
    assert main(["completion", "fish", "study", "digits", "--quie"]) == 0
    said = "--quiet\tshow no progress, only warnings and the report\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "completion needs a shell: bash, zsh or fish"),
        (["tcsh"], 2, "the shell must be one of bash, zsh, fish; got 'tcsh'"),
        (["-h"], 0, "churn-jax completion fish | source"),
    ],
)
def test_a_shell_is_named(words, code, said, capsys):
    assert main(["completion", *words]) == code
    assert said in "".join(capsys.readouterr())


_BASH = """
eval "$(churn-jax completion bash)"
COMP_LINE="churn-jax study digits --only base" COMP_POINT=34
_churn_jax churn-jax
printf '%s' "${COMPREPLY[@]}"
complete -p churn-jax | grep -q -- '-F _churn_jax'
"""
_ZSH = """
compdef() { print -n "$@, "; }
_describe() { print -n ${(P)2}; }
_files() { print -n files; }
eval "$(churn-jax completion zsh)"
words=(churn-jax study digits --only base) CURRENT=5
_churn_jax
words=(churn-jax compare '') CURRENT=3
_churn_jax
"""
_FISH = """
churn-jax completion fish | source
complete -C 'churn-jax study digits --only base'
"""


@pytest.mark.parametrize(
    ("shell", "script", "said"),
    [
        ("bash", _BASH, "baseline"),
        ("zsh", _ZSH, "_churn_jax churn-jax, baseline:Baselinefiles"),
        ("fish", _FISH, "baseline\tBaseline\n"),
    ],
)
def test_the_scripts_work_in_their_shells(shell, script, said, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "churn-jax"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m churn_jax "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == (said, 0), done.stderr
