"""Several processes that train together must have been given the same work."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax.studies.folder import StudyError

__all__ = ["check_agreement", "check_shared_folder", "differences"]

_SHOWN = 3
_ABSENT = object()


def check_agreement(work: Mapping[str, Any]) -> None:
    """Refuses, on all processes alike, work that is not the same everywhere.

    Called before anything is trained: processes with other settings would wait for
    each other for ever, or average what does not belong together.

    Args:
        work: JSON-ready; everything that decides which programs are run.

    Raises:
        StudyError: some process has other work than process 0; names the first
            differences.
    """
    if jax.process_count() == 1:
        return
    texts = _gathered(json.dumps(work, sort_keys=True))
    for process, text in enumerate(texts):
        if text != texts[0]:
            found = differences(json.loads(texts[0]), json.loads(text))
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise StudyError(
                f"process {process} was started for other work than process 0 "
                f"({'; '.join(found[:_SHOWN])}{more}); start the same command on all"
            )


def check_shared_folder(out: Path) -> None:
    """Refuses an output folder that not every process sees.

    Args:
        out: exists on every process.

    Raises:
        StudyError: some process does not see what process 0 writes there.
    """
    if jax.process_count() == 1:
        return
    first = jax.process_index() == 0
    token = _gathered(secrets.token_hex(8))[0]
    path = out / f".launch-{token}"
    if first:
        path.touch()
    _gathered("written")
    seen = _gathered("yes" if path.exists() else "no")
    if first:
        path.unlink()
    if "no" in seen:
        raise StudyError(
            f"process {seen.index('no')} does not see what process 0 writes into "
            f"{out}; all processes need one folder on a shared file system (--out), "
            "and studies at the same time a port each (--launch.coordinator)"
        )


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """What two JSON values differ in, as `path: value there, value here`.

    Args:
        there: of process 0.
        here: of another.
        path: of both, so far.

    Example:
        >>> differences({"epochs": 1, "only": ["a"]}, {"epochs": 2, "only": ["a"]})
        ['epochs: 1 there, 2 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        keys = list(dict.fromkeys([*there, *here]))
        parts = [(str(k), there.get(k, _ABSENT), here.get(k, _ABSENT)) for k in keys]
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        parts = [
            (_name(a, i), a, b)
            for i, (a, b) in enumerate(zip(there, here, strict=True))
        ]
    else:
        # As JSON, in which 1 and 1.0, or true, are not the same.
        a, b = _text(there), _text(here)
        return [] if a == b else [f"{path}: {_short(a)} there, {_short(b)} here"]
    return [
        line
        for name, a, b in parts
        for line in differences(a, b, f"{path}.{name}".lstrip("."))
    ]


def _name(value: Any, place: int) -> str:
    return (
        str(value["name"])
        if isinstance(value, dict) and "name" in value
        else str(place)
    )


def _text(value: Any) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, sort_keys=True)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _gathered(text: str) -> list[str]:
    """The text of every process, on every process."""
    from jax.experimental import multihost_utils

    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(data.size, np.int32))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: data.size] = data
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(r[:n]).decode() for r, n in zip(rows, sizes.ravel(), strict=True)]
