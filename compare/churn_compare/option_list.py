"""The options that a command's dataclass declares, and how tyro reads them."""

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import docstring_parser
import tyro

__all__ = [
    "ASK",
    "Asked",
    "Option",
    "groups_of",
    "options_of",
    "positionals_of",
    "read_options",
]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        path: of the field, such as `train.batch_size`.
        word: on the command line, `--train.batch-size`.
        kind: its type.
        default: the value without the option.
        help: what the class says about it, in one line.
        metavar: what stands for its value in the help, if its class says so.
        positional: True if the value stands on the command line without the word.
    """

    path: str
    word: str
    kind: Any
    default: Any
    help: str
    metavar: str = ""
    positional: bool = False


def options_of(cls: type) -> dict[str, Option]:
    """The options of a dataclass by path, in the order of its fields."""
    every = _options(cls, None, "", "--")
    return {option.path: option for option in every if not option.positional}


def positionals_of(cls: type) -> list[Option]:
    """What stands on the command line without a word of its own."""
    return [option for option in _options(cls, None, "", "--") if option.positional]


def groups_of(cls: type) -> dict[str, str]:
    """What the class says about each table of options, by path, as `--help` does."""
    return dict(_groups(cls, None, ""))


def _groups(cls: type, instance: Any, above: str) -> Iterator[tuple[str, str]]:
    helps = _helps(cls)
    for field in dataclasses.fields(cls):
        default = _default(field) if instance is None else getattr(instance, field.name)
        if dataclasses.is_dataclass(default):
            yield above + field.name, helps.get(field.name, "")
            yield from _groups(type(default), default, f"{above}{field.name}.")


def _options(cls: type, instance: Any, above: str, prefix: str) -> Iterator[Option]:
    hints, helps = typing.get_type_hints(cls, include_extras=True), _helps(cls)
    for field in dataclasses.fields(cls):
        kind, markers = hints[field.name], ()
        if typing.get_origin(kind) is Annotated:
            kind, *markers = typing.get_args(kind)
        if tyro.conf.Suppress in markers:
            continue
        path = above + field.name
        word = prefix + field.name.replace("_", "-")
        default = _default(field) if instance is None else getattr(instance, field.name)
        if dataclasses.is_dataclass(default):
            inside = prefix if tyro.conf.OmitArgPrefixes in markers else f"{word}."
            yield from _options(type(default), default, f"{path}.", inside)
        elif default is not None or not _is_settings(kind):
            metavars = [m.metavar for m in markers if hasattr(m, "metavar")]
            yield Option(
                path,
                word,
                kind,
                default,
                helps.get(field.name, ""),
                metavar=(metavars or [""])[0] or "",
                positional=tyro.conf.Positional in markers,
            )


def _is_settings(kind: Any) -> bool:
    """Whether values are None or have options of their own; None then is no option."""
    return any(dataclasses.is_dataclass(part) for part in typing.get_args(kind))


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _helps(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say about their fields."""
    return {
        attribute.arg_name: " ".join((attribute.description or "").split())
        for part in reversed(cls.__mro__)
        for attribute in docstring_parser.google.parse(part.__doc__ or "").params
    }


# In the place of options, it asks `read_options` which there are.
ASK = "-all-options"


class Asked(Exception):  # noqa: N818
    """The answer, which is no error: the dataclass of the options."""

    def __init__(self, cls: type):
        """`cls` has the options."""
        super().__init__(cls)
        self.cls = cls


def read_options(
    cls: type[T],
    argv: Sequence[str],
    *,
    prog: str,
    description: str | None = None,
    short_forms: Mapping[str, str] | None = None,
) -> T:
    """An instance of `cls`, whose fields are options; `-h` prints its docstring."""
    if ASK in argv:
        raise Asked(cls)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(cls, args=list(argv), prog=prog, description=description)
    except SystemExit as stopped:
        if not stopped.code:
            raise
        sentence = _with_hint(_first_sentence(said.getvalue()), cls, short_forms or {})
        raise ValueError(f"{sentence} ({prog} -h lists the options)") from None


def _with_hint(sentence: str, cls: type, short_forms: Mapping[str, str]) -> str:
    """The sentence, or one on an unknown option and the one it may mean."""
    if not (found := re.match(r"Unrecognized options?: (--[\w.-]+)", sentence)):
        return sentence
    words = [option.word for option in options_of(cls).values()]
    # The last part of a name is what people remember: --learning-rate.
    known = {f"--{word.rpartition('.')[2].lstrip('-')}": word for word in words[::-1]}
    known |= {name: name for name, long in short_forms.items() if long in words}
    known |= {word: word for word in words}
    close = difflib.get_close_matches(found[1].replace("_", "-"), known, 1, 0.7)
    hint = f"; did you mean {known[close[0]]}?" if close else ""
    return f"unknown option {found[1]}{hint}"


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
