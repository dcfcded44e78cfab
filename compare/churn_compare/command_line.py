"""Exit codes of commands, and one sentence for an error."""

import codecs
import errno
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from churn_compare.escaping import printable

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Longest message of an error of another library; --verbose shows all of it.
_LONGEST = 300


# Written where a terminal lacks a character; "?" for all others.
_INSTEAD = {"→": "->", "✓": "+", "✗": "-"}
_PLAIN = "churn_compare.plain"


def _plain(error: Any) -> tuple[str, int]:
    text = error.object[error.start : error.end]
    return "".join(_INSTEAD.get(letter, "?") for letter in text), error.end


codecs.register_error(_PLAIN, _plain)


def name_of_signal(number: int) -> str:
    """Word for the end by a signal, in messages."""
    return "interrupted" if number == signal.SIGINT else "ended by SIGTERM"


def fail(sentence: str, program: str) -> int:
    """Prints an error and returns its exit code."""
    print(f"{program}: {printable(sentence)}", file=sys.stderr)
    return 2


def sentence_of(error: Exception) -> str:
    """The message of an error; long ones of other libraries are shortened."""
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
    if isinstance(error, MemoryError):
        said = f"not enough memory ({said})" if said else "not enough memory"
    else:
        said = f"unexpected {type(error).__name__}: {said}"
    said = f"{said[:_LONGEST]} ..." if len(said) > _LONGEST else said
    return f"{said}; --verbose shows where"


def words_of(argv: Sequence[str] | None, program: str) -> tuple[list[str], bool]:
    """Words of the command without --verbose, and True if it was given."""
    if argv is None:  # this process is the command
        # Either signal ends it with a sentence instead of an exception, which the
        # import of an extension (JAX takes seconds) would turn into another one.
        def end(number: int, _: object) -> None:
            os.write(2, f"{program}: {name_of_signal(number)}\n".encode())
            os._exit(128 + number)

        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, end)
        for name in ("stdout", "stderr"):  # they take any text, or were closed
            if (stream := getattr(sys, name)) is None:
                setattr(sys, name, open(os.devnull, "w"))
            elif isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=_PLAIN)
        # The current folder is last in the path: its modules do not hide others.
        sys.path.append("")
        argv = sys.argv[1:]
    verbose = "--verbose" in argv
    # With it, errors show a traceback and progress shows details.
    logging.getLogger(program.replace("-", "_")).setLevel(
        logging.DEBUG if verbose else logging.INFO
    )
    return [word for word in argv if word != "--verbose"], verbose


def run(
    command: Callable[[], int],
    program: str,
    verbose: bool,
    sentence: Callable[[Exception], str] = sentence_of,
) -> int:
    """Runs a command; returns its exit code for any exception."""
    try:
        code = command()
        sys.stdout.flush()  # raises if the disk is full or the reader has gone
        return code
    except KeyboardInterrupt:  # before a study can be saved
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `churn-jax ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # 1, Python's own code, would mean that a gate failed
        if verbose:
            traceback.print_exc()
        return fail(sentence(error), program)
