"""Comparisons by name."""

import shlex
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.freeze.session import Case, Kept, calling, run

CASES: dict[str, Case] = {}
NUMBERS = ("r.json", "r.md")
PAGES = (*NUMBERS, "r.html", "r.xml")
_OPTIONS = {"r.json": "--json", "r.md": "--markdown", "r.html": "--html"}
_OPTIONS |= {"r.xml": "--junit"}


def _add(name: str, files: Mapping[str, Any], act: Callable[[Kept], None]) -> None:
    assert name not in CASES, name
    CASES[name] = Case(files, act)


def cli(
    name: str,
    words: str,
    files: Mapping[str, Any] | None = None,
    *,
    pages: bool = False,
    bare: bool = False,
    before: Callable[[], None] = lambda: None,
    also: tuple[str, ...] = (),
) -> None:
    """A comparison by the command; `pages` writes every file, `bare` none."""
    whole = pages or not zlib.crc32(name.encode()) % 10  # printing takes the most time
    written = () if bare else PAGES if pages else NUMBERS if whole else NUMBERS[:1]
    options = [word for file in written for word in (_OPTIONS[file], file)]
    full = ["--full"] if whole and not (bare or pages) else []

    def act(kept: Kept) -> None:
        before()
        run(kept, [*shlex.split(words), *full, *options], written=(*written, *also))

    _add(name, files or {}, act)


def refused(name: str, words: str, files: Mapping[str, Any] | None = None) -> None:
    """A command that ends with a sentence."""

    def act(kept: Kept) -> None:
        run(kept, shlex.split(words))

    _add(f"refused.{name}", files or {}, act)


def py(
    name: str, function: Callable[[], Any], files: Mapping[str, Any] | None = None
) -> None:
    """A call in Python, of which the value or the error is kept."""
    _add(f"python.{name}", files or {}, lambda kept: calling(function, kept))


def act(
    name: str, function: Callable[[Kept], None], files: Mapping[str, Any] | None = None
) -> None:
    """Anything else, which keeps what it finds."""
    _add(name, files or {}, function)
