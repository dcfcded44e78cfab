"""Predictions on disk: one `.npz` file, or a folder of shards larger than memory.

`predictions.npz` has `ids [N]`, `labels [N]`, `logits [R, N, C]` and, optionally,
`meta` (a JSON object as text). The folder `predictions` has shards instead, each
written batch by batch by its own process, and an index, which is written when all
shards are complete. Both need only NumPy, so any framework can write them:

    index.json                      format, shards, examples, runs, classes, dtype, meta
    ids-00000-of-00002.npy          [n], each id in one shard only
    labels-00000-of-00002.npy       [n]
    logits-00000-of-00002.npy       [R, n, C]
    order.npy                       [N], row of each example of the split; optional
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare import array_files
from churn_compare.example_ids import (
    PredictionsError,
    as_ids,
    as_labels,
    check_unique,
    errors_of,
    match_ids,
    repeated,
    rows_of,
    some,
)
from churn_compare.stored_logits import StoredLogits

__all__ = [
    "Predictions",
    "PredictionsError",
    "ShardWriter",
    "load_predictions",
    "read_shards",
    "save_predictions",
    "write_index",
]

INDEX = "index.json"  # describes the shards of a folder
WHOLE_BYTES = 2 * 2**30  # most bytes of logits in shards that are read whole
_ORDER, _FORMAT, _VERSION = "order.npy", "churn_jax prediction shards", 1
_PARTS, _DTYPES = ("ids", "labels", "logits"), ("float32", "float16", "bfloat16")


class TooLargeError(PredictionsError):
    """Raised for predictions that are too large to be read whole."""


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of `R` runs of one method on `N` examples.

    Attributes:
        ids: `[N]` unique integers or strings that identify the examples; strings that
            are all numbers become integers, and integers above 2^63 strings.
        labels: `[N]` class ids, at least 0. They may exceed `C - 1`, since an old model
            may not know every class of a new one.
        logits: `[R, N, C]` float32. `-inf` (probability zero) is allowed if each row
            has a finite entry. Only the runs in `stopped` may contain NaN.
            `StoredLogits` are read from the disk when they are used, and not checked.
        meta: JSON-ready facts about the origin of the predictions. Its entry
            `"stopped"` lists runs that did not finish, as integers or as objects with
            a `"replica"` entry.

    Raises:
        PredictionsError: if shapes, dtypes or values are invalid.

    Example:
        >>> p = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None], {})
        >>> p.logits.shape, p.logits.dtype.name
        ((1, 2, 2), 'float32')
    """

    ids: np.ndarray
    labels: np.ndarray
    logits: Any
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not self.in_memory:
            return
        if not isinstance(self.meta, Mapping):
            kind = type(self.meta).__name__
            raise PredictionsError(f"meta must be a dict; got {kind}")
        ids, labels = as_ids(self.ids), as_labels(self.labels)
        logits = np.asarray(self.logits)
        if logits.ndim != 3 or logits.shape[2] < 2 or 0 in logits.shape:
            raise PredictionsError(
                "logits must have shape [R, N, C] with at least one run, one example "
                f"and two classes; got {logits.shape}"
            )
        _check_real(logits)
        with np.errstate(over="ignore"):  # float64 log-probabilities below -3e38
            logits = logits.astype(np.float32, copy=False)
        vars(self).update(ids=ids, labels=labels, logits=logits, meta=dict(self.meta))
        check_unique(ids)
        if not len(ids) == len(labels) == self.shape[1]:
            raise PredictionsError(
                "ids, labels and logits must have the same number of examples; got ids "
                f"{ids.shape}, labels {labels.shape} and logits {self.shape}"
            )
        for run in sorted({*range(self.shape[0])} - {*self.stopped}):
            top = self.logits[run].max(axis=-1)  # NaN if any entry is NaN
            if (bad := ~np.isfinite(top)).any():
                raise PredictionsError(
                    f"logits of run {run} are NaN or infinite for {bad.sum()} of "
                    f"{top.size} examples, for example ids {some(self.ids[bad])}"
                )

    @property
    def in_memory(self) -> bool:
        """True if the logits are an array, False if they are files."""
        return not isinstance(self.logits, StoredLogits)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(R, N, C)` of the logits."""
        return self.logits.shape

    @property
    def stopped(self) -> tuple[int, ...]:
        """Runs that stopped early according to `meta`, in ascending order."""
        return stopped_runs(self.meta, self.shape[0])

    def blocks(
        self, runs: Sequence[int], numbers: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields start and logits `[r, b, C]` of blocks of at most `numbers` logits."""
        size = max(1, numbers // (len(runs) * self.shape[2]))
        for start in range(0, self.shape[1], size):
            part = slice(start, start + size)
            logits = np.stack([self.logits[run, part] for run in runs])  # a copy
            if not self.in_memory:
                self.logits.give_back()
            yield start, logits


def stopped_runs(meta: Mapping[str, Any], runs: int) -> tuple[int, ...]:
    """Runs that stopped early according to a file's facts, in ascending order."""
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


def _check_real(logits: np.ndarray) -> None:
    if logits.dtype.kind in "ObSUcmM":
        raise PredictionsError(f"logits must be real numbers; got {logits.dtype}")


def save_predictions(path: str | os.PathLike, predictions: Predictions) -> Path:
    """Writes `predictions` to a `.npz` file.

    Raises:
        PredictionsError: if `meta` is not JSON-ready.
        OSError: if the file could not be written; an earlier file is left as it was.

    Example:
        >>> import tempfile
        >>> p = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None], {"m": 1})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     load_predictions(save_predictions(Path(folder) / "p.npz", p)).meta
        {'m': 1}
    """
    path, meta = Path(path), np.asarray(_json(predictions.meta))
    arrays = {name: getattr(predictions, name) for name in _PARTS}
    try:
        with array_files.replace_file(path) as file:
            np.savez(file, **arrays, meta=meta)
    except OSError as error:
        said = f"could not write the predictions ({error.strerror}); an earlier file is"
        raise OSError(error.errno, f"{said} left as it was", str(path)) from error
    return path


def _json(facts: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(facts, indent=indent)
    except (TypeError, ValueError) as error:
        raise PredictionsError(f"meta must be JSON-ready; {error}") from error


def load_predictions(path: str | os.PathLike, whole: bool = False) -> Predictions:
    """Reads predictions of any framework from a file or from shards.

    In a file, `logits [N, C]` are accepted as one run, any real dtype is cast to
    float32, and a missing `meta` is empty.

    Args:
        path: path of a `.npz` file with `ids [N]`, `labels [N]`, `logits [R, N, C]`,
            or of the shards: their folder, or the file that they replace.
        whole: True to refuse logits that are not read whole.

    Returns:
        The checked `Predictions`; for shards in the order of the split, and with
        `StoredLogits` if these have more than `WHOLE_BYTES` in float32.

    Raises:
        TooLargeError: if `whole` is True and the logits have more than that.
        PredictionsError: if there are none, or they are truncated or invalid.
    """
    path, folder = Path(path), shard_folder(path)
    if path.is_file() or not (folder / INDEX).is_file():
        with errors_of(path):
            return _read_file(path)
    ids, labels, logits, meta = vars(read_shards(folder)).values()
    fits = fits_whole(logits.size)
    if whole and not fits:
        runs, examples, classes = logits.shape
        raise TooLargeError(
            f"{folder}: this needs all logits in memory, at most "
            f"{WHOLE_BYTES / 2**30:.3g} GiB, and {runs} runs, {examples:,} examples "
            f"and {classes:,} classes make {4 * logits.size / 2**30:.3g} GiB; "
            "churn-jax compare and report read shards of any size"
        )
    if fits:
        logits.check()
    with errors_of(folder):
        if (folder / _ORDER).is_file():
            order, N = _read_array(folder / _ORDER), len(ids)
            if not np.array_equal(np.sort(order), np.arange(N)):
                raise PredictionsError(f"{_ORDER} is not an order of {N} examples")
            ids, labels, logits = ids[order], labels[order], logits.of(logits, order)
        return Predictions(ids, labels, np.asarray(logits) if fits else logits, meta)


def _read_file(path: Path) -> Predictions:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise PredictionsError(f"the predictions file {what}")
    try:
        archive = array_files.NpzArrays(path)
        lacking = [name for name in _PARTS if name not in archive]
        facts = json.loads(str(archive["meta"]) if "meta" in archive else "{}")
        arrays = [archive[name] for name in _PARTS if name in archive]
    except (OSError, ValueError, RecursionError) as error:
        raise PredictionsError(f"cannot read predictions, {error}") from error
    if lacking:
        raise PredictionsError(
            f"not a predictions file, {', '.join(lacking)} missing; it holds "
            f"{', '.join(sorted(archive)) or 'nothing'}"
        )
    ids, labels, logits = arrays
    return Predictions(ids, labels, logits[None] if logits.ndim == 2 else logits, facts)


def fits_whole(numbers: int) -> bool:
    """True if this many float32 logits take at most `WHOLE_BYTES`."""
    return 4 * numbers <= WHOLE_BYTES


def shard_folder(path: str | os.PathLike) -> Path:
    """The folder of shards that may replace a file of predictions."""
    path = Path(path)
    return path.with_suffix("") if path.suffix == ".npz" else path


def is_stored(path: str | os.PathLike) -> bool:
    """True if there is a file of predictions, or finished shards instead."""
    return Path(path).is_file() or (shard_folder(path) / INDEX).is_file()


def check_comparable(a: Predictions, b: Predictions) -> None:
    """Raises if predictions have different examples, orders or labels."""
    if not np.array_equal(a.ids, b.ids):
        found = match_ids(a.ids, b.ids)
        apart = ("first", found.only_a, a), ("second", found.only_b, b)
        said = [
            f"{only.size} of {of.ids.size} ids only on the {side} side (for example "
            f"{some(only)})"
            for side, only, of in apart
            if only.size
        ]
        if not np.array_equal(found.rows_a, found.rows_b):
            said = said or ["the same ids are in another order; sort both by id"]
        if said:
            raise PredictionsError("the examples differ: " + " and ".join(said))
    if (differ := a.labels != b.labels).any():
        raise PredictionsError(
            f"labels differ for {differ.sum()} of {differ.size} examples, for example "
            f"ids {some(a.ids[differ])}"
        )


class ShardWriter:
    """Writes one shard batch by batch, with one batch in memory.

    The rows go to a temporary file, which `close` renames, so a killed writer leaves no
    partial shard. An index and an order of earlier shards are removed first. As a
    context manager, the writer is closed at the end, and an error discards the shard.

    Args:
        folder: folder of all shards; created if it does not exist.
        shard: number of this shard, from 0.
        shards: number of shards.
        ids: `[n]` integers or strings of the shard's examples, in the order of `write`.
        labels: `[n]` class ids of these examples.
        runs: R, number of runs.
        classes: C, number of classes.
        dtype: type of the stored logits: float32, float16 or bfloat16.

    Raises:
        PredictionsError: if sizes, ids or labels are invalid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ShardWriter(folder, 0, 1, [7, 5], [0, 1], 1, 2) as writer:
        ...         writer.write(np.array([[[0.0, 1.0]]]))
        ...         writer.write(np.array([[[2.0, 3.0]]]))
        ...     _ = write_index(folder, 1)
        ...     read_shards(folder).logits[0, [1, 0]].tolist()
        [[2.0, 3.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        shard: int,
        shards: int,
        ids: Any,
        labels: Any,
        runs: int,
        classes: int,
        dtype: str = "float32",
    ):
        self._ids, self._labels = as_ids(ids), as_labels(labels)
        sizes = len(self._ids) == len(self._labels) and runs > 0 and classes > 1
        if not (0 <= shard < shards and sizes and dtype in _DTYPES):
            raise PredictionsError(
                "a shard has a number below that of shards, as many ids as labels, one "
                f"run and two classes at least, in {', '.join(_DTYPES)}; got shard "
                f"{shard} of {shards}, {len(self._ids)} ids, {len(self._labels)} "
                f"labels, {runs} runs and {classes} classes in {dtype}"
            )
        import ml_dtypes  # noqa: F401  so that NumPy knows bfloat16

        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._shape = runs, len(self._ids), classes
        folder, self._name = Path(folder), f"shard {shard} of {shards}"
        self._paths = _shard_paths(folder, shard, shards)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (INDEX, _ORDER):
            (folder / name).unlink(missing_ok=True)
        self._done = 0
        self._open = contextlib.ExitStack()
        self._file = self._open.enter_context(array_files.replace_file(self._paths[-1]))
        # As in `numpy.save`, bfloat16 is two bytes without a type.
        head = {"descr": self._dtype.str, "fortran_order": False, "shape": self._shape}
        np.lib.format.write_array_header_1_0(self._file, head)
        self._start = self._file.tell()

    def write(self, logits: Any) -> None:
        """Appends logits `[R, b, C]` of the next b ids.

        Raises:
            PredictionsError: if shapes are invalid, there are more rows than ids, or a
                number is too large for the stored type.
            OSError: if the disk is full.
        """
        logits = np.asarray(logits)
        _check_real(logits)
        runs, total, classes = self._shape
        if logits.ndim != 3 or (logits.shape[0], logits.shape[2]) != (runs, classes):
            raise PredictionsError(
                f"logits must have shape [{runs}, b, {classes}]; got {logits.shape}"
            )
        stop = self._done + logits.shape[1]
        if stop > total:
            raise PredictionsError(f"{stop} rows were written of {total} examples")
        for run, rows in enumerate(logits):
            with np.errstate(over="ignore"):  # bfloat16 does not say so
                stored = np.ascontiguousarray(rows.astype(self._dtype, copy=False))
            narrowed = stored.dtype != rows.dtype
            if narrowed and (lost := np.isinf(stored) & np.isfinite(rows)).any():
                largest = float(np.abs(rows[lost]).max())
                raise PredictionsError(
                    f"a logit of {largest:.6g} does not fit into {self._dtype.name}"
                )
            place = (run * total + self._done) * classes * self._dtype.itemsize
            self._file.seek(self._start + place)
            self._file.write(stored.view(np.uint8).data)
        self._done = stop

    def close(self) -> None:
        """Gives the shard its final names, or discards it if rows are missing."""
        if self._done < self._shape[1]:
            self.discard()
            raise PredictionsError(
                f"{self._name} has {self._shape[1]} examples, but only {self._done} "
                "rows were written"
            )
        self._open.close()
        for path, values in zip(self._paths, (self._ids, self._labels)):
            _save(path, values)

    def discard(self) -> None:
        """Removes the unfinished shard."""
        self._open.__exit__(PredictionsError, PredictionsError("discarded"), None)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close() if kind is None else self.discard()


def _shard_paths(folder: Path, shard: int, shards: int) -> list[Path]:
    return [folder / f"{part}-{shard:05d}-of-{shards:05d}.npy" for part in _PARTS]


def _save(path: Path, values: np.ndarray) -> Path:
    with array_files.replace_file(path) as file:
        np.save(file, values, allow_pickle=False)
    return path


def write_index(
    folder: str | os.PathLike, shards: int, meta: Mapping[str, Any] | None = None
) -> Path:
    """Writes the index of complete shards, in one process after all are closed.

    Args:
        folder: folder of the shards.
        shards: number of shards.
        meta: JSON-ready facts, as in `Predictions`.

    Raises:
        PredictionsError: if a shard is missing, damaged or inconsistent with the
            others, an id is repeated, or `meta` is not JSON-ready.
    """
    folder = Path(folder)
    with errors_of(folder):
        _, _, logits = _read_all(folder, shards)
        names, crc32 = _file_names(folder, shards), array_files.file_crc32
        index = {
            "format": _FORMAT,
            "version": _VERSION,
            "shards": shards,
            **_facts(logits),
            "checksums": {name: crc32(folder / name) for name in names},
            "meta": dict(meta or {}),
        }
        return array_files.write_file(folder / INDEX, _json(index, indent=1))


def write_order(folder: str | os.PathLike, shards: int, ids: Any) -> Path:
    """Writes the order `[N]` that examples had before they were divided into shards.

    It is called before `write_index`, for folders that are compared row by row.
    """
    folder, ids = Path(folder), as_ids(ids)
    there = _read_all(folder, shards)[0]
    order = rows_of(ids, there)
    if len(there) != len(ids) or np.any(order < 0):
        raise PredictionsError(
            f"{folder}: the shards have {len(there)} examples, which are not the "
            f"{len(ids)} that were shared"
        )
    return _save(folder / _ORDER, order)


def read_shards(folder: str | os.PathLike) -> Predictions:
    """Opens a finished folder of shards, with the examples in the stored order.

    Raises:
        PredictionsError: if the index or a shard is missing, damaged or inconsistent.
            The CRC-32 of many logits is computed in the background, so reading them
            may raise it.
    """
    folder = Path(folder)
    with errors_of(folder):
        index = _read_index(folder / INDEX)
        ids, labels, logits = _read_all(folder, index["shards"])
        for name, value in _facts(logits).items():
            if index.get(name) != value:
                raise PredictionsError(
                    f"{INDEX} says {name} {index.get(name)}, the shards have {value}; "
                    "they were not written together"
                )
        there, sums = _file_names(folder, index["shards"]), index["checksums"]
        crc32 = array_files.file_crc32

        def check(large: bool) -> None:
            names = sorted({*there, *sums})
            for name in (n for n in names if n.startswith("logits") == large):
                if name not in there or crc32(folder / name) != sums.get(name):
                    raise PredictionsError(
                        f"{name} is damaged or of another writing: its CRC-32 is not "
                        f"the one in {INDEX}"
                    )

        check(large=False)
        done = array_files.start_check(lambda: check(large=True), logits.nbytes)
        logits = StoredLogits(logits.parts, check=errors_of(folder)(done))
    return Predictions(ids, labels, logits, index["meta"])


def _read_index(path: Path) -> dict[str, Any]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PredictionsError(
            f"there is no {INDEX}, so these predictions are not there or not finished"
        ) from error
    except ValueError as error:
        raise PredictionsError(f"{INDEX} is damaged ({error})") from error
    wanted = {"shards": int, "checksums": dict, "meta": dict}
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise PredictionsError(f"{INDEX} is not one of prediction shards")
    typed = all(isinstance(index.get(name), kind) for name, kind in wanted.items())
    if index.get("version") != _VERSION or not typed:
        raise PredictionsError(
            f"{INDEX} must have version {_VERSION} and {', '.join(wanted)}; its "
            f"version is {index.get('version')!r}"
        )
    return index


def _facts(logits: StoredLogits) -> dict[str, Any]:
    facts = *logits.shape, logits.dtype.name
    return dict(zip(("runs", "examples", "classes", "dtype"), facts))


def _file_names(folder: Path, shards: int) -> list[str]:
    """Names of all files with a CRC-32 in the index."""
    paths = [path for i in range(shards) for path in _shard_paths(folder, i, shards)]
    order = [_ORDER] if (folder / _ORDER).is_file() else []
    return [path.name for path in paths] + order


def _read_array(path: Path, mapped: bool = False) -> np.ndarray:
    try:
        array = array_files.read_npy(path)
    except array_files.ArrayFileError as error:
        raise PredictionsError(f"{path.name} is damaged ({error})") from error
    return array if mapped else np.array(array)


def _read_all(folder: Path, shards: int) -> tuple[np.ndarray, np.ndarray, StoredLogits]:
    """Ids, labels and logits of all shards, checked for consistency."""
    if shards < 1:
        raise PredictionsError(f"there must be one shard at least; got {shards}")
    ids, labels, logits = [], [], []
    for shard in range(shards):
        with errors_of(f"shard {shard} of {shards}"):
            paths = _shard_paths(folder, shard, shards)
            if missing := [path.name for path in paths if not path.is_file()]:
                raise PredictionsError(f"is missing ({', '.join(missing)})")
            ids.append(as_ids(_read_array(paths[0])))
            labels.append(as_labels(_read_array(paths[1])))
            logits.append(_read_array(paths[2], mapped=True))
            of, first = logits[-1], logits[0]
            alike = of.dtype == first.dtype and of.shape[::2] == first.shape[::2]
            sizes = len(ids[-1]) == len(labels[-1]) and of.shape[1:2] == (len(ids[-1]),)
            if not (of.ndim == 3 and of.dtype.name in _DTYPES and alike and sizes):
                raise PredictionsError(
                    f"it has {len(ids[-1])} ids, {len(labels[-1])} labels and logits "
                    f"{of.shape} in {of.dtype}; logits must be [R, n, C] in "
                    f"{', '.join(_DTYPES)}, those of shard 0 are {first.shape} in "
                    f"{first.dtype}"
                )
    joined = np.concatenate(ids)
    if (twice := repeated(joined)).size:
        having = [i for i, of in enumerate(ids) if rows_of(twice[:1], of)[0] >= 0]
        where = " and ".join(map(str, having))
        raise PredictionsError(
            f"{twice.size} ids occur more than once, for example {some(twice)}; the "
            f"first of them in shard {where}"
        )
    return joined, np.concatenate(labels), StoredLogits(logits)
