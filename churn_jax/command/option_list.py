"""The options that a command's dataclass declares, without parsing anything."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import docstring_parser
import tyro

__all__ = ["Option", "groups_of", "options_of", "positionals_of"]


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
    """The options of a dataclass by path, in the order of its fields.

    Example:
        >>> from churn_jax.configuration import Seeds
        >>> options_of(Seeds)["order"].help
        'mini-batch order.'
    """
    every = _options(cls, None, "", "--")
    return {option.path: option for option in every if not option.positional}


def positionals_of(cls: type) -> list[Option]:
    """What stands on the command line without a word of its own."""
    return [option for option in _options(cls, None, "", "--") if option.positional]


def groups_of(cls: type) -> dict[str, str]:
    """What the class says about each table of options, by path, as `--help` does.

    Example:
        >>> from churn_jax.configuration import TrainConfig
        >>> groups_of(TrainConfig)["mesh"]
        'devices along replica, member and data.'
    """
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
