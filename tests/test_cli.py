import itertools
import json
import os
import subprocess
import sys

import pytest

from churn_jax import cli
from churn_jax.cli import main
from churn_jax.command.signals import NOT_FINISHED
from churn_jax.methods import ERM, METHODS
from churn_jax.models import MLP, MODELS
from churn_jax.studies import PRESETS
from churn_jax.training import LOGGERS, OPTIMIZERS


class MyMethod(ERM):
    """What I train."""


def test_help_lists_every_exit_code(capsys):
    assert main(["equations", "-h"]) == 0
    capsys.readouterr()
    assert main(["-h"]) == 0
    said = capsys.readouterr().out
    codes = said.partition("exit codes:\n")[2].splitlines()
    found = [int(line.split()[0]) for line in codes]
    assert found == [0, 1, 2, NOT_FINISHED, 4, 130, 134, 141]
    (line,) = (line for line in codes if int(line.split()[0]) == NOT_FINISHED)
    assert "--minutes" in line


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("study clicks:tiny", "covariance_1_s1"),
        ("sweep elodi-digits", "elodi"),
        ("plan digits:tiny", "codistill_skl"),
        ("doctor digits", "codistill_skl"),
        ("study own", "codistill_ce"),
    ],
)
def test_commands_of_a_study_list_its_rows_and_print_its_record(
    words, row, capsys, monkeypatch
):
    monkeypatch.setattr("churn_jax.studies.repeatability.measure", pytest.fail)
    command, name = words.split()
    assert main([command, name, "--list"]) == 0
    assert row in [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    if name != "own":  # whose record needs its data
        with pytest.raises(SystemExit, match=r"^0$"):
            main([command, name, "--print-config"])
        record = json.loads(capsys.readouterr().out)
        assert record["name"] == name.replace(":", "-")


@pytest.mark.parametrize("words", [[], ["study", "--list"]])
def test_a_reader_that_went_away_is_no_error(words):
    command = [sys.executable, "-m", "churn_jax", *words]
    gone, end = os.pipe()
    os.close(gone)
    done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, timeout=60)
    os.close(end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_closed_streams_are_no_error():
    command = f"exec {sys.executable} -m churn_jax --version"
    for closed in (">&-", ">&- 2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], timeout=60)
        assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("JAX_DEBUG_NANS", "1", "use NaN for what is not defined; unset it"),
        ("JAX_DEBUG_INFS", "True", "JAX_DEBUG_INFS is set"),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict", "set it to standard"),
    ],
)
def test_settings_that_would_end_in_another_sentence_are_refused(
    name, value, words, monkeypatch, refused
):
    monkeypatch.setenv(name, value)
    ran = []
    monkeypatch.setattr(cli, "_command", lambda name: lambda argv: ran.append(1) or 0)
    refused(["study", "digits"], words)
    assert not ran
    assert main(["compare"]) == 0  # which computes without JAX
    monkeypatch.setenv(name, "0")
    assert main(["study", "digits"]) == 0


def test_a_name_that_the_locale_cannot_spell_is_refused(monkeypatch, refused):
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "ascii")
    words = ["study", "digits", "--out", "\udcc3\udca4"]
    refused(words, "set LC_ALL=C.UTF-8 or PYTHONUTF8=1")


@pytest.mark.parametrize("cache", ["", "xdg"])
def test_a_user_without_a_home_can_train(cache, monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setattr("pathlib.Path.home", nobody)
    told = {}
    monkeypatch.setattr("jax.config.update", told.__setitem__)
    monkeypatch.setattr(cli, "_command", lambda name: lambda argv: 0)
    assert main(["study"]) == 0
    assert told.get("jax_compilation_cache_dir") == (
        os.path.join("xdg", "churn_jax", "xla") if cache else None
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("745 GiB"), "not enough memory (745 GiB); --verbose shows where"),
        (RecursionError("too deep"), "unexpected RecursionError: too deep; --verbose"),
        (AssertionError("x" * 999), "unexpected AssertionError: xxx"),
        (AssertionError(), "JAX finds no device for JAX_PLATFORMS=cpu; unset it"),
        (
            RuntimeError("Unable to initialize backend 'tpu'"),
            "JAX finds no device for JAX_PLATFORMS=cpu; unset it",
        ),
        (OSError(40, "Too many levels of symbolic links", "a"), "symbolic links: a"),
        (ValueError("a\n::error::b\x1b[2J"), "churn-jax: a : :error: :b [2J\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_error_is_one_sentence_and_exit_code_two(error, words, monkeypatch, capsys):
    def fail(argv):
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(cli, "_command", lambda name: fail)
    assert main(["compare"]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and len(said) < 400
    assert main(["compare", "--verbose"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said and words in said.splitlines()[-1] + "\n"


def test_modules_in_the_current_folder_are_found_and_hide_no_others(tmp_path):
    (tmp_path / "tyro.py").write_text("raise SystemExit(9)")
    (tmp_path / "mine.py").write_text(
        "from churn_jax.studies import preset\n"
        "def study(): return preset('digits:tiny')\n"
    )
    code = "import sys; from churn_jax.cli import main; sys.exit(main())"
    done = subprocess.run(  # -P: without the current folder, as an installed script
        [sys.executable, "-P", "-c", code, "study", "mine:study", "--list"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Baseline" in done.stdout


@pytest.mark.slow
def test_libtpu_is_silent_before_a_sentence(tmp_path):
    """In a process of its own, on whatever devices it finds."""
    words = ["study", "digits:tiny", "--data", "missing.npz", "--out", tmp_path / "out"]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TPU_")}
    done = subprocess.run(
        [sys.executable, "-m", "churn_jax", *words],
        capture_output=True,
        text=True,
        env=inherited | {"JAX_PLATFORMS": ""},
    )
    said = "churn-jax: there is no file missing.npz\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_studies_methods_and_networks_are_listed_one_a_line(capsys, monkeypatch):
    for kind in (PRESETS, METHODS, MODELS):
        monkeypatch.setattr(kind, "_registered", {})
    PRESETS.register("my_study")(PRESETS["digits"])
    MODELS.register("my_net")(MLP)
    METHODS.register("my_method")(MyMethod)

    assert main(["study", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0]: line for line in lines if line.startswith("    ")}
    registries = (PRESETS, METHODS, MODELS, OPTIMIZERS, LOGGERS)
    assert set(listed) == {"own", *itertools.chain(*registries)}
    assert listed["digits"].endswith("Churn on the UCI hand-written digits")
    assert listed["my_method"].endswith("What I train.")
    assert all(len(line.split()) > 1 for line in listed.values())

    assert any("experiments/PAPER/presets.py:NAME" in line for line in lines)
