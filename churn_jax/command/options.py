"""Options read by tyro, whose complaints become one sentence."""

import contextlib
import io
from collections.abc import Sequence
from typing import TypeVar

import tyro

__all__ = ["read_options"]

T = TypeVar("T")


def read_options(
    cls: type[T], argv: Sequence[str], *, prog: str, description: str | None = None
) -> T:
    """An instance of `cls`, whose fields are options; `-h` prints its docstring."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(cls, args=list(argv), prog=prog, description=description)
    except SystemExit as stopped:
        if not stopped.code:
            raise
        raise ValueError(
            f"{_first_sentence(said.getvalue())} ({prog} -h lists the options)"
        ) from None


def _first_sentence(box: str) -> str:
    """The text under the title of tyro's box, down to its next rule."""
    # Borders are lines, or dashes and spaces where the terminal has no Unicode.
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip(" │|╰╯")
        if text.startswith("╭") or not text.strip("─-"):
            sections.append([])
        else:
            sections[-1] += text.split()
    found = [" ".join(words) for words in sections if words]
    if not found:
        return "the options cannot be read"
    return found[0] if "╭" in box else found[min(1, len(found) - 1)]
