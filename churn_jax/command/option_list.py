"""The options that a command's dataclass declares, without parsing anything."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import docstring_parser
import tyro

__all__ = ["Option", "options_of"]

_NO_OPTION = (tyro.conf.Suppress, tyro.conf.Positional)


@dataclasses.dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        path: of the field, such as `train.batch_size`.
        word: on the command line, `--train.batch-size`.
        kind: its type.
        default: the value without the option.
        help: what the class says about it, in one line.
    """

    path: str
    word: str
    kind: Any
    default: Any
    help: str


def options_of(cls: type) -> dict[str, Option]:
    """The options of a dataclass by path, in the order of its fields.

    Example:
        >>> from churn_jax.configuration import Seeds
        >>> options_of(Seeds)["order"].help
        'mini-batch order.'
    """
    return {option.path: option for option in _options(cls, None, "", "--")}


def _options(cls: type, instance: Any, above: str, prefix: str) -> Iterator[Option]:
    hints, helps = typing.get_type_hints(cls, include_extras=True), _helps(cls)
    for field in dataclasses.fields(cls):
        kind, markers = hints[field.name], ()
        if typing.get_origin(kind) is Annotated:
            kind, *markers = typing.get_args(kind)
        if any(marker in _NO_OPTION for marker in markers):
            continue
        path = above + field.name
        word = prefix + field.name.replace("_", "-")
        default = _default(field) if instance is None else getattr(instance, field.name)
        if dataclasses.is_dataclass(default):
            inside = prefix if tyro.conf.OmitArgPrefixes in markers else f"{word}."
            yield from _options(type(default), default, f"{path}.", inside)
        else:
            yield Option(path, word, kind, default, helps.get(field.name, ""))


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
