"""The `churn-jax` command; `churn-jax -h` lists sub-commands and exit codes."""

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from churn_jax.command import COMMANDS
from churn_jax.command import command_named as _command
from churn_jax.command.signals import end_at_a_signal
from churn_jax.escaping import printable
from churn_jax.registry import did_you_mean

__all__ = ["EXIT_CODES", "compare", "main"]

EXIT_CODES = {
    "0": "fine",
    "1": "a gate failed (compare); a study does not fit (plan); a run was not repeated "
    "bit by bit (doctor); nothing else",
    "2": "bad input, another process was lost, or any other error, in one sentence",
    "3": "not finished: the time of --minutes is over; the same command goes on",
    "4": "no gate fails, but one is inconclusive (compare); see --inconclusive",
    "130": "stopped by Ctrl-C (143: by SIGTERM); the same command goes on",
    "134": "another process was lost or never started; JAX ends this one with its own "
    "lines",
    "141": "the reader of the output went away, as in `churn-jax ... | head`",
}

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The longest sentence of an error that is not ours; --verbose shows all of it.
_LONGEST = 300
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

    lines = ["usage: churn-jax COMMAND [options]", "", *listed(COMMANDS), ""]
    lines += [
        "-h after a command lists its options; --verbose shows tracebacks of errors.",
        "",
        "exit codes:",
        *listed(EXIT_CODES),
    ]
    return "\n".join(lines)


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
    """Errors come as exceptions; libraries print pages about them, too."""
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


def _fail(sentence: str, program: str = "churn-jax") -> int:
    print(f"{program}: {printable(sentence)}", file=sys.stderr)
    return 2


def _sentence(error: Exception) -> str:
    """What went wrong; errors that are not ours are cut, with a way to see the rest."""
    said = str(error)
    if isinstance(error, (ValueError, TypeError)):
        return said
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        if error.errno in _NO_SPACE:
            return (
                f"no space left on the disk{where}; what was finished before is kept, "
                "and the same command goes on once there is room"
            )
        return f"{error.strerror or said}{where}"
    platforms = os.environ.get("JAX_PLATFORMS")
    if platforms and (said == "" or "Unable to initialize backend" in said):
        if isinstance(error, (AssertionError, RuntimeError)):
            return (
                f"JAX finds no device for JAX_PLATFORMS={platforms}; unset it, or "
                "install the JAX of that platform and see that its devices are visible"
            )
    if isinstance(error, MemoryError):
        said = f"not enough memory ({said})" if said else "not enough memory"
    else:
        said = f"unexpected {type(error).__name__}: {said}"
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]} ..."
    return f"{said}; --verbose shows where"


def compare(argv: Sequence[str] | None = None) -> int:
    """Runs `churn-compare`: `churn-jax compare`, where nothing else is installed."""
    argv, verbose = _words(argv)
    if argv == ["--version"]:
        return main(argv)

    def run() -> int:
        from churn_jax.command.compare import compare as run_compare

        return run_compare(argv, program="churn-compare")

    return _run(run, "churn-compare", verbose)


def _words(argv: Sequence[str] | None) -> tuple[list[str], bool]:
    """The words of the command without --verbose, and whether it was there."""
    if argv is None:  # this process is the command; JAX takes seconds to import
        end_at_a_signal()
        _complete_streams()
        # Modules of the user's in the current folder are found, but hide no others.
        sys.path.append("")
    argv = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in argv
    # Whether an error shows its traceback and progress its details.
    logging.getLogger("churn_jax").setLevel(logging.DEBUG if verbose else logging.INFO)
    return [word for word in argv if word != "--verbose"], verbose


def _complete_streams() -> None:
    """Gives a process streams that take any text, also where they were closed."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, open(os.devnull, "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # of an encoding without Greek letters


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
    argv, verbose = _words(argv)

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
            return _fail(f"unknown command {name!r}{hint} (churn-jax -h lists them)")
        if name not in ("equations", "compare", "completion"):  # they compile nothing
            _check_environment(argv)
            if not verbose:
                _quiet_libraries()
            _enable_compilation_cache()
        return _command(name)(rest)

    return _run(run, "churn-jax", verbose)


def _run(command: Callable[[], int], program: str, verbose: bool) -> int:
    """The exit code of a command, whatever it raises."""
    try:
        code = command()
        sys.stdout.flush()  # a disk that is full or a reader that is gone counts
        return code
    except KeyboardInterrupt:  # before a study was there to be saved
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `churn-jax ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # 1, Python's own code, would mean that a gate failed
        if verbose:
            traceback.print_exc()
        return _fail(_sentence(error), program)


if __name__ == "__main__":
    sys.exit(main())
