"""The options and exit codes of `churn-jax` as Markdown, from the parser's classes."""

import contextlib
import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from preset_list import ROOT, built_in, of_paper

from churn_compare.option_list import Option, fields_of, helps_of, options_of
from churn_jax.cli import EXIT_CODES
from churn_jax.command.candidates import arguments_of, short_forms_of
from churn_jax.configuration.streams import StreamStudyConfig

# Presets whose options together are all that a command has; the first gives defaults.
PRESETS = {
    "study": ("digits", "dm-digits"),
    "sweep": ("digits", "dm-digits"),
    "stream": ("clicks",),
    "plan": ("digits", "dm-digits"),
}
MESH = "train.mesh"
SHARED = ("study", "stream")  # whose groups of options others repeat


def options(command: str) -> str:
    """A list of a command's options, in the groups and the order of `--help`."""
    return "\n".join(_lines(command)) + "\n"


def exit_codes(_: str) -> str:
    """The table of exit codes."""
    cells = {code: text.replace("|", "\\|") for code, text in EXIT_CODES.items()}
    rows = [f"| {code} | {text} |" for code, text in cells.items()]
    return "\n".join(["| Exit code | Meaning |", "|---|---|", *rows])


def words(command: str) -> list[str]:
    """Every word that the command takes as an option."""
    found = _options(command).values()
    every = [word for option in found for word in _words(option)]
    return (
        every
        + list(_short(command).values())
        + ["--mesh"] * any(o.path.startswith(MESH) for o in found)
    )


@functools.cache
def _options(command: str) -> dict[str, Option]:
    """A command's options by path; defaults are those of its first preset."""
    found: dict[str, Option] = {}
    for name in PRESETS.get(command, ("",)):
        if (cls := arguments_of(command, *filter(None, [name]))) is None:
            continue
        found |= {k: v for k, v in options_of(cls).items() if k not in found}
    return found


@functools.cache
def _groups(command: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PRESETS.get(command, ("",)):
        if (cls := arguments_of(command, *filter(None, [name]))) is None:
            continue
        found |= {k: v for k, v in _tables(cls) if k not in found}
    return found


def _tables(
    cls: type, instance: Any = None, above: str = ""
) -> Iterator[tuple[str, str]]:
    """Paths of the tables of options, and what is said about each."""
    for field, default in fields_of(cls, instance):
        if dataclasses.is_dataclass(default):
            text = helps_of(cls).get(field.name) or type(default).__doc__ or ""
            yield above + field.name, text
            yield from _tables(type(default), default, f"{above}{field.name}.")


@functools.cache
def _varied(command: str) -> frozenset[str]:
    """Paths of options whose default depends on the preset."""
    if command not in PRESETS:
        return frozenset()
    every = (built_in() | of_paper("")).items()
    seen: dict[str, set[str]] = {}
    with contextlib.chdir(ROOT):
        for name, config in every:
            if isinstance(config, StreamStudyConfig) != (command == "stream"):
                continue
            cls = arguments_of(command, name)
            for path, option in options_of(cls).items() if cls else ():
                seen.setdefault(path, set()).add(repr(option.default))
    return frozenset(path for path, defaults in seen.items() if len(defaults) > 1)


def _of_streams(command: str) -> frozenset[str]:
    """Paths of the options that a plan has for streams alone."""
    if command != "plan":
        return frozenset()
    of_study = options_of(typing.cast(type, arguments_of(command, PRESETS[command][0])))
    return frozenset(_options(command)) - frozenset(of_study) - _sharing()


def _sharing() -> frozenset[str]:
    return frozenset(p for p in _options("study") if p.startswith("model.sharing."))


def _lines(command: str) -> Iterator[str]:
    cls = arguments_of(command, *PRESETS.get(command, ())[:1])
    for option in options_of(cls, positional=True).values() if cls else ():
        yield f"`{option.metavar}`\n: {_sentence(option.help)}\n"
    streams = _of_streams(command)
    grouped: dict[tuple[str, bool], list[Option]] = {("", False): []}
    for option in _options(command).values():
        group = option.path.rpartition(".")[0], option.path in streams
        grouped.setdefault(group, []).append(option)
    yield f":::{{program}} churn-jax {command}\n:::\n"
    short = _short(command)
    for (group, of_stream), found in sorted(grouped.items(), key=lambda g: g[0][1]):
        if found and group:
            about = _groups("stream" if of_stream else command).get(group, "")
            which = f"{group} options" + " of a stream" * of_stream
            yield f":::{{rubric}} {which}\n:::\n{_sentence(about)}\n"
        if group == MESH:
            yield from _described(
                "--mesh SHAPE",
                "all axes at once, such as `replica=4,data=2`; what is left out is 1.",
            )
        if home := _home(command, group, found):
            yield f"As for [`{home}`](#{home}): {', '.join(_brief(found, short))}.\n"
            continue
        for option in found:
            yield from _entry(command, option, short.get(option.word, ""))


def _home(command: str, group: str, found: list[Option]) -> str:
    """The command whose section describes the same options, or ""."""
    for other in SHARED[: SHARED.index(command) if command in SHARED else None]:
        there = _options(other)
        if group and all(_same(option, there.get(option.path)) for option in found):
            return other
    return ""


def _same(option: Option, other: Option | None) -> bool:
    return other is not None and (option.kind, option.help, option.default) == (
        other.kind,
        other.help,
        other.default,
    )


def _short(command: str) -> dict[str, str]:
    """From long words to short forms."""
    found: dict[str, str] = {}
    for name in PRESETS.get(command, ("",)):
        if cls := arguments_of(command, *filter(None, [name])):
            long = {option.word for option in options_of(cls).values()}
            found |= {form: word for word, form in short_forms_of(long).items()}
    return found


def _brief(found: list[Option], short: Mapping[str, str]) -> Iterator[str]:
    for option in found:
        also = f" (short: `{short[option.word]}`)" if option.word in short else ""
        yield " ".join(f"`{word}`" for word in _words(option)) + also


def _words(option: Option) -> list[str]:
    """The option's word, and for a flag the one that switches it off."""
    if option.kind is not bool:
        return [option.word]
    table, dot, name = option.word.rpartition(".")
    off = f"{table}.no-{name}" if dot else f"--no-{name.removeprefix('--')}"
    return [option.word, off]


def _entry(command: str, option: Option, short: str) -> Iterator[str]:
    value = _metavar(option)
    words = [*_words(option), *filter(None, [short])]
    signature = ", ".join(f"{word} {value}".rstrip() for word in words)
    text = f"{option.help.rstrip('.')}.{_default(command, option)}"
    yield from _described(signature, text)


def _described(signature: str, text: str) -> Iterator[str]:
    yield f":::{{option}} {signature}\n{_sentence(text)}\n:::\n"


def _sentence(text: str) -> str:
    text = text.strip()
    text += "." * (text != "" and not text.endswith((".", "`")))
    parts = text.split("`")  # every second one is code
    parts[::2] = [re.sub(r"(--[a-z][\w.-]*\w)", r"`\1`", part) for part in parts[::2]]
    text = "`".join(parts)
    return text[:1].upper() + text[1:]


def _default(command: str, option: Option) -> str:
    """The default, in a sentence; nothing where it is empty."""
    value: Any = option.default
    if isinstance(value, bool):
        value = "on" if value else None
    elif isinstance(value, tuple):
        value = " ".join(map(str, value))
    elif isinstance(value, Path):
        value = value.as_posix()
    if value is dataclasses.MISSING:
        return " Required."
    shown = f"`{value}`" if value not in (None, "") else ""
    if option.path in _varied(command):
        first = PRESETS[command][0]
        shown = shown or ("off" if option.kind is bool else "none")
        return f" Default: the preset's; {shown} in `{first}`."
    return f" Default: {shown}." if shown else ""


def _metavar(option: Option) -> str:
    """What stands for the value, as in `--help`."""
    if option.kind is bool:
        return ""
    return option.metavar or _kind(option.kind)


def _kind(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"{{{','.join(map(str, arguments))}}}"
    if origin is tuple:
        inner = next(a for a in arguments if a is not Ellipsis)
        return f"{_kind(inner)} ...".replace("... ...", "...")
    if origin in (typing.Union, types.UnionType):
        found = [_kind(a) for a in arguments if a is not type(None)]
        return "FLOAT ..." if "FLOAT ..." in found else found[-1]
    return {Path: "PATH"}.get(kind, kind.__name__.upper())
