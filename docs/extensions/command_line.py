"""The options and exit codes of `churn-jax` as Markdown, from the commands' classes."""

import dataclasses
import importlib
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from churn_compare import cli as comparison
from churn_compare.option_list import Option, options_of
from churn_jax.cli import EXIT_CODES


def arguments(command: str) -> type:
    """The class of a command's options, also of `compare label` and its like."""
    if command.startswith("compare"):
        return getattr(comparison, f"{command[8:].title()}Arguments")
    home, name = ("study", "Report") if command == "report" else (command, "Arguments")
    return getattr(importlib.import_module(f"churn_jax.command.{home}"), name)


def options(command: str) -> str:
    """A list of a command's options, in the order of `--help-all`."""
    cls = arguments(command)
    lines = [f":::{{program}} churn-jax {command}\n:::\n"]
    for option in options_of(cls, positional=True).values():
        lines.append(f"`{option.metavar}`\n: {_sentence(option.help)}\n")
    for option in options_of(cls).values():
        signature = ", ".join(
            f"{w} {_metavar(option)}".rstrip() for w in _words(option)
        )
        text = _sentence(option.help) + _default(option)
        lines.append(f":::{{option}} {signature}\n{text}\n:::\n")
    return "\n".join(lines) + "\n"


def exit_codes(_: str) -> str:
    """The table of exit codes."""
    cells = {code: text.replace("|", "\\|") for code, text in EXIT_CODES.items()}
    rows = [f"| {code} | {text} |" for code, text in cells.items()]
    return "\n".join(["| Exit code | Meaning |", "|---|---|", *rows])


def words(command: str) -> list[str]:
    """Every word that the command takes as an option."""
    every = options_of(arguments(command)).values()
    return [word for option in every for word in _words(option)]


def _words(option: Option) -> Iterator[str]:
    """The option's word, and for a flag the one that switches it off."""
    yield option.word
    if option.kind is bool:
        table, dot, name = option.word.rpartition(".")
        yield f"{table}.no-{name}" if dot else f"--no-{name.removeprefix('--')}"


def _sentence(text: str) -> str:
    text = text.strip()
    text += "." * (text != "" and not text.endswith((".", "`")))
    parts = text.split("`")  # every second one is code
    parts[::2] = [re.sub(r"(--[a-z][\w.-]*\w)", r"`\1`", part) for part in parts[::2]]
    text = "`".join(parts)
    return text[:1].upper() + text[1:]


def _default(option: Option) -> str:
    """The default, in a sentence; nothing where it is empty."""
    value: Any = option.default
    if value is dataclasses.MISSING:
        return " Required."
    if isinstance(value, bool):
        value = "on" if value else None
    elif isinstance(value, tuple):
        value = " ".join(map(str, value))
    return f" Default: `{value}`." if value not in (None, "") else ""


def _metavar(option: Option) -> str:
    """Placeholder of the value, as in `--help`."""
    if option.kind is bool:
        return ""
    return option.metavar or _kind(option.kind)


def _kind(kind: Any) -> str:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"{{{','.join(map(str, inside))}}}"
    if origin is tuple:
        return f"{_kind(inside[0])} ...".replace("... ...", "...")
    if origin in (typing.Union, types.UnionType):
        return [_kind(a) for a in inside if a is not type(None)][-1]
    return {Path: "PATH"}.get(kind, kind.__name__.upper())
