"""One process's shard of predictions, written batch by batch."""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.example_ids import as_ids, as_labels
from churn_compare.prediction_shards.folder import (
    INDEX,
    ORDER,
    shard_path,
    stored_dtype,
)
from churn_compare.predictions import PredictionsError, replace_file

__all__ = ["ShardWriter"]


class ShardWriter:
    """Writes one shard batch by batch; memory holds one batch.

    The rows go to a temporary file that takes its name in `close`, so a writer that is
    killed leaves no half shard. An index and an order of earlier shards are removed
    first. Used as a context manager, it closes itself, and
    after an error leaves nothing.

    Args:
        folder: of all shards; made if it is not there.
        shard: number of this shard, from 0.
        shards: how many there are.
        ids: `[n]` integers or strings of the shard's examples, in the order of `write`.
        labels: `[n]` their class ids.
        runs: R.
        classes: C.
        dtype: how logits are stored: float32, float16 or bfloat16.

    Raises:
        PredictionsError: sizes, ids or labels do not fit.

    Example:
        >>> import tempfile
        >>> from churn_compare.prediction_shards import read_shards, write_index
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ShardWriter(folder, 0, 1, [7, 5], [0, 1], 1, 2) as writer:
        ...         writer.write(np.array([[[0.0, 1.0]]]))
        ...         writer.write(np.array([[[2.0, 3.0]]]))
        ...     _ = write_index(folder, 1)
        ...     read_shards(folder).values[0, [1, 0]].tolist()
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
        if not 0 <= shard < shards:
            raise PredictionsError(
                "shards are numbered from 0 to their number less one; got shard "
                f"{shard} of {shards}"
            )
        self._ids, self._labels = as_ids(ids), as_labels(labels)
        if len(self._ids) != len(self._labels):
            raise PredictionsError(
                "ids and labels must have the same number of examples; got "
                f"{len(self._ids)} and {len(self._labels)}"
            )
        if runs < 1 or classes < 2:
            raise PredictionsError(
                f"logits are of one run and two classes at least; got {runs} runs and "
                f"{classes} classes"
            )
        self._shape = runs, len(self._ids), classes
        self._dtype = stored_dtype(dtype)
        self._folder, self._number = Path(folder), (shard, shards)
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in (INDEX, ORDER):
            (self._folder / name).unlink(missing_ok=True)
        self._done = 0
        self._open = contextlib.ExitStack()
        path = shard_path(self._folder, "logits", *self._number)
        self._file = self._open.enter_context(replace_file(path))
        header = {
            "descr": _descr(self._dtype),
            "fortran_order": False,
            "shape": self._shape,
        }
        np.lib.format.write_array_header_1_0(self._file, header)
        self._start = self._file.tell()

    def write(self, logits: Any) -> None:
        """Appends the next rows.

        Args:
            logits: `[R, b, C]`, of the next b ids.

        Raises:
            PredictionsError: shapes do not fit, there are more rows than ids, or a
                number is too large for the type that is stored.
            OSError: the disk is full.
        """
        logits = np.asarray(logits)
        if logits.dtype.kind in "USOMmc":
            raise PredictionsError(f"logits must be real numbers; got {logits.dtype}")
        runs, total, classes = self._shape
        if logits.ndim != 3 or (logits.shape[0], logits.shape[2]) != (runs, classes):
            raise PredictionsError(
                f"logits must have shape [{runs}, b, {classes}]; got {logits.shape}"
            )
        stop = self._done + logits.shape[1]
        if stop > total:
            raise PredictionsError(f"{stop} rows were written of {total} examples")
        for run, rows in enumerate(logits):
            stored = np.ascontiguousarray(self._stored(rows))
            place = (run * total + self._done) * classes * self._dtype.itemsize
            self._file.seek(self._start + place)
            self._file.write(stored.view(np.uint8).data)
        self._done = stop

    def _stored(self, rows: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(over="raise"):
                return rows.astype(self._dtype, copy=False)
        except FloatingPointError as error:
            largest = float(np.abs(rows[np.isfinite(rows)]).max())
            raise PredictionsError(
                f"a logit of {largest:.6g} does not fit into {self._dtype.name}"
            ) from error

    def close(self) -> None:
        """Moves the shard to its final names once every row is written.

        Raises:
            PredictionsError: rows are missing; the shard is not kept.
        """
        if self._done < self._shape[1]:
            self.discard()
            raise PredictionsError(
                f"shard {self._number[0]} of {self._number[1]} has {self._shape[1]} "
                f"examples, but only {self._done} rows were written"
            )
        self._open.close()
        for part, values in (("ids", self._ids), ("labels", self._labels)):
            with replace_file(shard_path(self._folder, part, *self._number)) as file:
                np.save(file, values, allow_pickle=False)

    def discard(self) -> None:
        """Removes a shard that could not be written."""
        error = PredictionsError("discarded")
        self._open.__exit__(PredictionsError, error, None)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def _descr(dtype: np.dtype) -> str:
    """The type in the header; bfloat16 as `numpy.save` has it, two untyped bytes."""
    return "<V2" if dtype.name == "bfloat16" else dtype.newbyteorder("<").str
