"""The `churn-jax` command; `churn-jax -h` lists sub-commands and exit codes."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from churn_compare.command_line import fail, sentence_of, words_of
from churn_compare.command_line import run as run_command
from churn_compare.suggestions import did_you_mean
from churn_jax.command import COMMANDS
from churn_jax.command import command_named as _command

EXIT_CODES = {
    "0": "success",
    "1": "a gate failed (compare); a study does not fit (plan); a run was not repeated "
    "bit by bit (doctor); nothing else",
    "2": "bad input, another process was lost, or any other error, in one sentence",
    "3": "not finished: the time of --minutes is over; the same command continues",
    "4": "no gate fails, but one is inconclusive (compare); see --inconclusive",
    "130": "stopped by Ctrl-C (143: by SIGTERM); the same command continues",
    "134": "another process was lost or never started; JAX ends this one with its own "
    "lines",
    "141": "the reader of the output went away, as in `churn-jax ... | head`",
}

# What libtpu looks for on a machine without a TPU, and complains about if it is unset.
_WITHOUT_TPU = {
    "TPU_ACCELERATOR_TYPE": "v5e-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}


def _usage() -> str:
    width = max(map(len, COMMANDS))

    def listed(entries: dict[str, str]) -> list[str]:
        return [f"  {name:<{width}}  {text}" for name, text in entries.items()]

    said = "-h after a command lists its options; --verbose shows tracebacks of errors."
    usage = ["usage: churn-jax COMMAND [options]", "", *listed(COMMANDS), "", said, ""]
    return "\n".join([*usage, "exit codes:", *listed(EXIT_CODES)])


def _enable_compilation_cache() -> None:
    """Compiled programs outlive the process, so that a second run starts at once."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without HOME and without an entry in passwd
        return
    settings = {
        "jax_compilation_cache_dir": str(base / "churn_jax" / "xla"),
        # Sixty small programs of a study take three seconds together.
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    for name, value in settings.items():
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name, value)
        else:  # JAX reads them when it is imported; most mistakes are found before
            os.environ[name.upper()] = str(value)


def _quiet_libraries() -> None:
    """Silences what libraries log about errors that they also raise."""
    from churn_jax.command.launch import has_tpu

    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _without_closed_loops
    if not has_tpu():
        for name, value in _WITHOUT_TPU.items():
            os.environ.setdefault(name, value)


def _without_closed_loops(unraisable) -> None:
    # TensorStore has one for every write that fails after Orbax has given up.
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _sentence(error: Exception) -> str:
    """The error in one sentence; JAX says little about a platform that is missing."""
    platforms, said = os.environ.get("JAX_PLATFORMS"), str(error)
    if platforms and (said == "" or "Unable to initialize backend" in said):
        if isinstance(error, (AssertionError, RuntimeError)):
            return (
                f"JAX finds no device for JAX_PLATFORMS={platforms}; unset it, or "
                "install the JAX of that platform and see that its devices are visible"
            )
    return sentence_of(error)


def _check_environment(argv: Sequence[str]) -> None:
    """Refuses settings that would end in an error of somebody else's."""
    if sys.getfilesystemencoding() != "utf-8" and not "".join(argv).isascii():
        raise ValueError(
            "this locale cannot spell the names on the command line; set "
            "LC_ALL=C.UTF-8 or PYTHONUTF8=1"
        )
    refused = {
        "JAX_DEBUG_NANS": "studies and reports use NaN for what is not defined",
        "JAX_DEBUG_INFS": "log-probabilities of impossible classes are infinite",
    }
    on = ("1", "true", "t", "yes", "y", "on")
    for name, why in refused.items():
        if os.environ.get(name, "").lower() in on:
            raise ValueError(f"{name} is set, but {why}; unset it")
    if os.environ.get("JAX_NUMPY_DTYPE_PROMOTION", "").lower() == "strict":
        raise ValueError(
            "JAX_NUMPY_DTYPE_PROMOTION=strict refuses what schedules of optax compute; "
            "unset it or set it to standard"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    argv, verbose = words_of(argv, "churn-jax")

    def run() -> int:
        if not argv or argv[0] in ("-h", "--help"):
            print(_usage())
            return 0
        name, rest = argv[0], argv[1:]
        if name == "--version":
            from churn_jax import __version__

            print(__version__)
            return 0
        if name not in COMMANDS:
            hint = did_you_mean(name, COMMANDS, count=1, cutoff=0.6)
            said = f"unknown command {name!r}{hint} (churn-jax -h lists them)"
            return fail(said, "churn-jax")
        if name not in ("equations", "compare"):  # they compile nothing
            _check_environment(argv)
            if not verbose:
                _quiet_libraries()
            _enable_compilation_cache()
        return _command(name)(rest)

    return run_command(run, "churn-jax", verbose, _sentence)


if __name__ == "__main__":
    sys.exit(main())
