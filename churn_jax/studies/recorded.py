"""A study's configuration read back from the record that the study has left.

`resolved` writes a configuration as JSON values; this is its inverse. What a row was
trained as is checked once more when its checkpoint is opened.
"""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

from churn_jax import methods
from churn_jax.methods import Method
from churn_jax.studies.config import StudyConfig
from churn_jax.studies.folder import StudyError

__all__ = ["read_config", "recorded_config"]


def read_config(folder: Path) -> StudyConfig:
    """The configuration of the study in a folder.

    Args:
        folder: `runs/<study>`.

    Returns:
        What the study was launched with last.

    Raises:
        StudyError: there is no usable `study.json`.
    """
    path = Path(folder) / "study.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(
            f"{path} does not exist; is {folder} the folder of a study?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise StudyError(f"{path} cannot be read as JSON ({error})") from error
    config = record.get("config") if isinstance(record, dict) else None
    if not isinstance(config, dict) or "methods" not in config:
        raise StudyError(f"{path} is not the record of a study of images")
    try:
        return recorded_config(config)
    except StudyError as error:
        raise StudyError(f"{path}: {error}") from error


def recorded_config(config: dict[str, Any]) -> StudyConfig:
    """The study whose `resolved` form this is.

    Args:
        config: the entry `config` of `study.json`.

    Raises:
        StudyError: it names what this version does not know.

    Example:
        >>> from churn_jax.studies.config import resolved
        >>> from churn_jax.studies import preset
        >>> recorded_config(resolved(preset("digits"))) == preset("digits")
        True
    """
    try:
        return _read(StudyConfig, config)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise StudyError(
            f"the study was recorded by another version of churn_jax ({error})"
        ) from error


def _read(kind: Any, value: Any) -> Any:
    """A value of the annotated kind from what JSON has made of it."""
    arms = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return _read(_arm(arms, value), value)
    if isinstance(value, dict):
        if isinstance(kind, type) and issubclass(kind, Method):
            value = dict(value)
            kind = getattr(methods, value.pop("class"))
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read(hints[name], v) for name, v in value.items()})
    if isinstance(value, list):
        if kind is float:  # a coefficient with one number per replica
            return np.asarray(value, np.float32)
        if len(arms) == 2 and arms[1] is Ellipsis:
            arms = (arms[0],) * len(value)
        kinds = arms or (Any,) * len(value)
        return tuple(_read(k, v) for k, v in zip(kinds, value, strict=True))
    return value


def _arm(arms: tuple[Any, ...], value: Any) -> Any:
    """Which kind of a union a JSON value is of."""
    if isinstance(value, dict):
        return next(filter(dataclasses.is_dataclass, arms), Any)
    if isinstance(value, list):
        return next((arm for arm in arms if typing.get_origin(arm) is tuple), Any)
    return Any
