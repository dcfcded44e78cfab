"""Predictions of independent runs on one evaluation set, and the file they live in.

The file is a NumPy `.npz` archive any framework can write: `ids [N]`, `labels [N]`,
`logits [R, N, C]` and, optionally, `meta` (a JSON object as text). Only NumPy is
needed here, so a comparison never has to import a trainer.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import ArrayFileError, NpzArrays, replace_file
from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    as_labels,
    check_unique,
    errors_of,
    match_ids,
    some,
)

__all__ = [
    "Predictions",
    "PredictionsError",
    "check_comparable",
    "load_predictions",
    "replace_file",
    "save_predictions",
    "some",
    "stopped_runs",
]

_REQUIRED = ("ids", "labels", "logits")


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of `R` runs of one method on `N` examples.

    Attributes:
        ids: `[N]` integers or strings, unique; they identify the examples.
        labels: `[N]` class ids, at least 0. They may exceed `C - 1`: an old model need
            not know every class of a new one.
        logits: `[R, N, C]` float32. `-inf` (probability zero) is allowed as long as
            each row has a finite entry. Only the runs in `stopped` may hold NaN.
        meta: JSON-ready facts about where the predictions come from. Its entry
            `"stopped"` lists runs that did not finish, either as integers or as
            objects with a `"replica"` entry.

    Raises:
        PredictionsError: shapes, dtypes or values do not fit; the message says which.

    Example:
        >>> import numpy as np
        >>> p = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None], {})
        >>> p.logits.shape, p.logits.dtype.name
        ((1, 2, 2), 'float32')
    """

    ids: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, value in (
            ("ids", as_ids(self.ids)),
            ("labels", as_labels(self.labels)),
            ("logits", _as_logits(self.logits)),
            ("meta", _as_meta(self.meta)),
        ):
            object.__setattr__(self, name, value)
        check_unique(self.ids)
        examples = self.logits.shape[1]
        for name in ("ids", "labels"):
            if getattr(self, name).shape[0] != examples:
                raise PredictionsError(
                    f"{name} and logits must have the same number of examples; got "
                    f"{name} {getattr(self, name).shape} and logits "
                    f"{self.logits.shape}"
                )
        _check_finite(self.logits, self.ids, self.stopped)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(R, N, C)` of the logits."""
        runs, examples, classes = self.logits.shape
        return runs, examples, classes

    @property
    def stopped(self) -> tuple[int, ...]:
        """Runs that `meta` marks as stopped before the end, in ascending order."""
        return stopped_runs(self.meta, self.logits.shape[0])


def stopped_runs(meta: Mapping[str, Any], runs: int) -> tuple[int, ...]:
    """Runs that the facts of a predictions file mark as stopped, in ascending order.

    Args:
        meta: facts as in `Predictions`.
        runs: how many runs the file has.

    Raises:
        PredictionsError: the entry lists no runs, or others than there are.

    Example:
        >>> stopped_runs({"stopped": [2, {"replica": 0}]}, 3)
        (0, 2)
    """
    entries = meta.get("stopped") or []
    try:
        stopped = {int(e["replica"] if isinstance(e, Mapping) else e) for e in entries}
    except (KeyError, TypeError, ValueError) as error:
        raise PredictionsError(
            f"meta['stopped'] must list run numbers; got {entries!r}"
        ) from error
    if bad := sorted(r for r in stopped if not 0 <= r < runs):
        raise PredictionsError(
            f"meta['stopped'] names runs {bad}, but there are only {runs} runs"
        )
    return tuple(sorted(stopped))


def _as_logits(logits) -> np.ndarray:
    logits = np.asarray(logits)
    if logits.ndim != 3 or logits.shape[2] < 2 or 0 in logits.shape:
        raise PredictionsError(
            "logits must have shape [R, N, C] with at least one run, one example and "
            f"two classes; got {logits.shape}"
        )
    if logits.dtype.kind in "ObSUcmM":
        raise PredictionsError(f"logits must be real numbers; got {logits.dtype}")
    with np.errstate(over="ignore"):  # float64 log-probabilities below -3e38
        return logits.astype(np.float32, copy=False)


def _as_meta(meta) -> dict[str, Any]:
    if not isinstance(meta, Mapping):
        raise PredictionsError(f"meta must be a dict; got {type(meta).__name__}")
    return dict(meta)


def _check_finite(logits, ids, stopped) -> None:
    for run in range(logits.shape[0]):
        if run in stopped:
            continue
        top = logits[run].max(axis=-1)  # NaN wins, so one pass sees every NaN
        if bad := int(np.sum(~np.isfinite(top))):
            raise PredictionsError(
                f"logits of run {run} are NaN or infinite for {bad} of {top.size} "
                f"examples, for example ids {some(ids[~np.isfinite(top)])}"
            )


def save_predictions(path: str | os.PathLike, predictions: Predictions) -> Path:
    """Write `predictions` to a `.npz` file, whole or not at all (`replace_file`).

    Args:
        path: the file to write.
        predictions: what to write; `meta` must be JSON-ready.

    Returns:
        The path written.

    Raises:
        PredictionsError: `meta` is not JSON-ready.
        OSError: the file could not be written; an earlier file is left as it was.

    Example:
        >>> import tempfile
        >>> p = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None], {"m": 1})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     load_predictions(save_predictions(Path(folder) / "p.npz", p)).meta
        {'m': 1}
    """
    path = Path(path)
    try:
        meta = json.dumps(predictions.meta)
    except (TypeError, ValueError) as error:
        raise PredictionsError(f"meta must be JSON-ready; {error}") from error
    arrays = {name: getattr(predictions, name) for name in _REQUIRED}
    try:
        with replace_file(path) as file:
            np.savez(file, **arrays, meta=np.asarray(meta))
    except OSError as error:
        raise OSError(
            error.errno,
            f"could not write the predictions ({error.strerror}); an earlier file is "
            "left as it was",
            str(path),
        ) from error
    return path


def load_predictions(path: str | os.PathLike) -> Predictions:
    """Read a predictions file of any framework.

    `logits [N, C]` are accepted as one run, any real dtype is cast to float32, and a
    missing `meta` is empty.

    Args:
        path: a `.npz` file with `ids [N]`, `labels [N]`, `logits [R, N, C]`.

    Returns:
        The checked `Predictions`.

    Raises:
        PredictionsError: the file is missing, truncated, not such a file, or holds
            arrays that do not fit; the message begins with the path.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise PredictionsError(f"{path}: the predictions file {what}")
    with errors_of(path):
        try:
            archive = NpzArrays(path)
            lacking = [name for name in _REQUIRED if name not in archive]
            if lacking:
                raise PredictionsError(
                    f"not a predictions file, {', '.join(lacking)} missing; it holds "
                    f"{', '.join(sorted(archive)) or 'nothing'}"
                )
            arrays = {name: archive[name] for name in _REQUIRED}
            meta = str(archive["meta"]) if "meta" in archive else "{}"
        except (OSError, ArrayFileError) as error:
            raise PredictionsError(f"cannot read predictions, {error}") from error
        try:
            facts = json.loads(meta)
        except (ValueError, RecursionError) as error:
            raise PredictionsError(
                f"cannot read predictions, meta is damaged ({error})"
            ) from error
        if arrays["logits"].ndim == 2:
            arrays["logits"] = arrays["logits"][None]
        return Predictions(**arrays, meta=facts)


def check_comparable(a: Predictions, b: Predictions) -> None:
    """Refuse to compare predictions of different examples, orders or labels.

    Args:
        a: predictions of one set of runs.
        b: predictions of another; the number of runs and classes may differ.

    Raises:
        PredictionsError: ids or labels differ; says how many, with examples.

    Example:
        >>> import numpy as np
        >>> a = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None])
        >>> check_comparable(a, a)
    """
    if not np.array_equal(a.ids, b.ids):
        if a.ids.dtype.kind != b.ids.dtype.kind and "U" in (
            a.ids.dtype.kind + b.ids.dtype.kind
        ):
            raise PredictionsError(
                f"ids are {a.ids.dtype.name} on one side and {b.ids.dtype.name} on "
                "the other, so the examples cannot be matched"
            )
        found = match_ids(a.ids, b.ids)
        if not found.only_a.size and not found.only_b.size:
            moved = a.ids != b.ids
            raise PredictionsError(
                f"both sides hold the same {a.ids.size} ids, but {int(moved.sum())} "
                f"are in another place, for example {some(a.ids[moved])}; sort both "
                "by id"
            )
        parts = [
            f"{only.size} of {total} ids only on the {side} side (for example "
            f"{some(only)})"
            for only, total, side in (
                (found.only_a, a.ids.size, "first"),
                (found.only_b, b.ids.size, "second"),
            )
            if only.size
        ]
        raise PredictionsError("the examples differ: " + " and ".join(parts))
    differ = a.labels != b.labels
    if differ.any():
        raise PredictionsError(
            f"labels differ for {int(differ.sum())} of {differ.size} examples, for "
            f"example ids {some(a.ids[differ])}"
        )
