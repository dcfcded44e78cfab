"""Options of a command, declared by a dataclass and read by tyro."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import io
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import docstring_parser
import tyro

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Option:
    """One option: the field `train.batch_size` has the `word` `--train.batch-size`."""

    path: str
    word: str
    kind: Any
    default: Any
    help: str
    metavar: str = ""
    positional: bool = False
    repeats: bool = False  # True if it may be given several times


def options_of(cls: type, positional: bool = False) -> dict[str, Option]:
    """Options of a dataclass by path, or its positional arguments if `positional`."""
    every = _options(cls, None, "", "--")
    return {o.path: o for o in every if o.positional == positional}


def _options(cls: type, instance: Any, above: str, prefix: str) -> Iterator[Option]:
    hints, helps = typing.get_type_hints(cls, include_extras=True), helps_of(cls)
    for field in dataclasses.fields(cls):
        default, made = field.default, field.default_factory
        if instance is not None:
            default = getattr(instance, field.name)
        elif made is not dataclasses.MISSING:
            default = made()
        kind, markers = hints[field.name], ()
        if typing.get_origin(kind) is Annotated:
            kind, *markers = typing.get_args(kind)
        if tyro.conf.Suppress in markers:
            continue
        path, word = above + field.name, prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(default):
            inside = prefix if tyro.conf.OmitArgPrefixes in markers else f"{word}."
            yield from _options(type(default), default, f"{path}.", inside)
        # A nested dataclass that is None by default is not an option.
        elif default is not None or not any(
            map(dataclasses.is_dataclass, typing.get_args(kind))
        ):
            named = [m.metavar for m in markers if getattr(m, "metavar", None)]
            metavar, positional = "".join(named[-1:]), tyro.conf.Positional in markers
            text = helps.get(field.name, "")
            repeats = kind is bool or tyro.conf.UseAppendAction in markers
            yield Option(path, word, kind, default, text, metavar, positional, repeats)


@functools.cache
def helps_of(cls: type) -> dict[str, str]:
    """Help of fields, from docstrings of a class and its bases or from comments."""
    found = {}
    for part in reversed(cls.__mro__[:-1]):
        source = inspect.getsource(part)
        found |= dict(re.findall(r"^    (\w+): .*  # (.+)$", source, re.M))
        for attribute in docstring_parser.google.parse(part.__doc__ or "").params:
            found[attribute.arg_name] = " ".join((attribute.description or "").split())
    return found


def _check_once(cls: type, argv: Sequence[str]) -> None:
    """Refuses an option that is given twice, since tyro takes the last in silence."""
    given = [word.partition("=")[0].replace("_", "-") for word in argv]
    for option in options_of(cls).values():
        word, once = option.word, "give it once"
        if given.count(word) < 2 or option.repeats:
            continue
        if isinstance(option.default, tuple):
            once = f"write all values after one {word}"
        elif word == "--gates":
            once = "put all limits into one file"
        raise ValueError(f"{word} is given twice; {once}")


def read_options(
    cls: type[T], argv: Sequence[str], *, prog: str, description: str | None = None
) -> T:
    """An instance of `cls`, whose fields are options; `-h` prints its docstring."""
    _check_once(cls, argv)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(cls, args=list(argv), prog=prog, description=description)
    except SystemExit as stopped:
        if not stopped.code:
            raise
    # The text under the title of tyro's box, down to its next rule. Borders are lines,
    # or dashes and spaces where the terminal has no Unicode.
    box, sections = said.getvalue(), [[]]
    for line in box.splitlines():
        text = line.strip(" │|╰╯")
        if text.startswith("╭") or not text.strip("─-"):
            sections.append([])
        else:
            sections[-1] += text.split()
    found = [" ".join(words) for words in sections if words] or ["unreadable options"]
    sentence = found["╭" not in box and len(found) > 1]
    if choices := re.search(r"one of \(([^()]+)\)", sentence):  # in a set's order
        ordered = ", ".join(sorted(choices[1].split(", ")))
        sentence = sentence.replace(choices[1], ordered)
    if unknown := re.match(r"Unrecognized options?: (--[\w.-]+)", sentence):
        words = [option.word for option in options_of(cls).values()]
        # The last part of a name is what people remember: --learning-rate.
        known = {f"--{w.rpartition('.')[2].lstrip('-')}": w for w in words[::-1]}
        known |= {word: word for word in words}
        close = difflib.get_close_matches(unknown[1].replace("_", "-"), known, 1, 0.7)
        hint = f"; did you mean {known[close[0]]}?" if close else ""
        sentence = f"unknown option {unknown[1]}{hint}"
    raise ValueError(f"{sentence} ({prog} -h lists the options)")
