"""The `churn-jax` command; `churn-jax -h` lists sub-commands and exit codes."""

import difflib
import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["main"]

_COMMANDS = {
    "study": "train the methods of a preset on some data and report",
    "sweep": "train a grid of coefficients, draw it and pick the best value",
    "stream": "train click models in one pass over a stream and report",
    "plan": "what a study would take on a TPU slice, by the compiler, without a TPU",
    "report": "write table and report of a study's folder again",
    "compare": "decide on an update by two versions' predictions, of any framework",
    "diversity": "how much a finished study's ensembles differ, and where",
    "displacement": "how far logits move between networks and between ensembles",
    "data": "prepare a TFDS data set for reading without TensorFlow",
    "equations": "list equation -> function -> file:line",
    "doctor": "versions, devices, mesh, and whether this machine repeats a run",
}

_EXIT_CODES = {
    "0": "fine",
    "1": "a gate failed (compare); a study does not fit (plan); a run was not repeated "
    "bit by bit (doctor)",
    "2": "bad input, or another process was lost; said in one sentence",
    "3": "not finished: the time of --minutes is over; the same command goes on",
    "130": "stopped by Ctrl-C (143: by SIGTERM); the same command goes on",
    "134": "another process was lost or never started; JAX ends this one with its own "
    "lines",
}

# What a user may have done wrong, and what a machine may refuse. Anything else is a
# defect of ours and shows its traceback.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _usage() -> str:
    width = max(map(len, _COMMANDS))

    def listed(entries: dict[str, str]) -> list[str]:
        return [f"  {name:<{width}}  {text}" for name, text in entries.items()]

    lines = ["usage: churn-jax COMMAND [options]", "", *listed(_COMMANDS), ""]
    lines += ["-h after a command.", "", "exit codes:", *listed(_EXIT_CODES)]
    return "\n".join(lines)


def _enable_compilation_cache() -> None:
    """Compiled programs outlive the process, so that a second run starts at once."""
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    jax.config.update("jax_compilation_cache_dir", str(base / "churn_jax" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _quiet_libraries() -> None:
    """Errors come as exceptions; Orbax and asyncio print pages about each besides."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name == "study":
        from churn_jax.command.study import study

        return study
    if name == "sweep":
        from churn_jax.command.sweep import sweep

        return sweep
    if name == "stream":
        from churn_jax.command.stream import stream

        return stream
    if name == "plan":
        from churn_jax.command.plan import plan

        return plan
    if name == "report":
        from churn_jax.command.study import report

        return report
    if name == "compare":
        from churn_jax.command.compare import compare

        return compare
    if name == "diversity":
        from churn_jax.command.diversity import diversity

        return diversity
    if name == "displacement":
        from churn_jax.command.displacement import displacement

        return displacement
    if name == "data":
        from churn_jax.command.data import data

        return data
    if name == "doctor":
        from churn_jax.command.doctor import doctor

        return doctor
    from churn_jax.equations import print_equations

    return lambda argv: print_equations() or 0


def _fail(sentence: str) -> int:
    print(f"churn-jax: {sentence}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if argv[0] == "--version":
        from churn_jax import __version__

        print(__version__)
        return 0
    name, rest = argv[0], argv[1:]
    if name not in _COMMANDS:
        close = difflib.get_close_matches(name, _COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return _fail(f"unknown command {name!r}{hint} (churn-jax -h lists them)")
    if name not in ("equations", "compare"):  # which compile nothing
        _enable_compilation_cache()
    if not os.environ.get("CHURN_JAX_TRACEBACK"):
        _quiet_libraries()
    try:
        return _command(name)(rest)
    except (ValueError, TypeError) as error:
        if os.environ.get("CHURN_JAX_TRACEBACK"):
            raise
        return _fail(" ".join(str(error).split()))
    except KeyboardInterrupt:  # before a study was there to be saved
        print("churn-jax: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `churn-jax ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        if error.errno in _NO_SPACE:
            return _fail(
                f"no space left on the disk{where}; what was finished before is kept, "
                "and the same command goes on once there is room"
            )
        if os.environ.get("CHURN_JAX_TRACEBACK"):
            raise
        return _fail(f"{error.strerror or error}{where}")


if __name__ == "__main__":
    sys.exit(main())
