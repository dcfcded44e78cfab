"""The stream that a study reads: a table of the user's, or a synthetic one."""

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from churn_jax.configuration.streams import SYNTHETIC, StreamData
from churn_jax.studies.inputs import StudyError

if TYPE_CHECKING:  # Arrow is loaded when a stream is opened
    from churn_jax.data.tables import TableStream, Window
    from churn_jax.data.tables.stream import Part


@dataclasses.dataclass(frozen=True)
class FirstExamples:
    """The first examples of another stream and of its held-out part (`--examples`)."""

    stream: "TableStream"
    examples: int

    @property
    def schema(self):
        """Of the whole stream."""
        return self.stream.schema

    @property
    def fingerprint(self) -> str:
        """Another one than the whole stream's."""
        text = f"{self.stream.fingerprint} first {self.examples}"
        return hashlib.sha256(text.encode()).hexdigest()

    def count(self, part: "Part" = "train") -> int:
        """Number of examples in a part; the first time, a pass over the stream."""
        return min(self.stream.count(part), self.examples)

    def windows(
        self, size: int, *, start: int = 0, part: "Part" = "train"
    ) -> "Iterator[Window]":
        """As the stream's own, with padding for what comes after the last example."""
        left = self.examples - start
        if left <= 0:
            return
        for window in self.stream.windows(size, start=start, part=part):
            valid = int(window.mask.sum())
            if valid > left:
                mask = np.where(np.arange(size) < left, window.mask, 0.0)
                window = window._replace(mask=mask.astype(window.mask.dtype))
            yield window
            left -= valid
            if left <= 0:  # what comes after is not even read
                return


def open_stream(data: StreamData) -> Any:
    """The stream that `data` names, a `TableStream` or the first examples of one."""
    from churn_jax.data import tables

    if data.source == SYNTHETIC and data.examples is not None:
        return tables.synthetic_clicks(
            data.examples, data.fields, data.buckets, holdout=data.holdout
        )
    if not data.source:
        raise StudyError(f"this study needs --data FILE: {data.hint}".rstrip(": "))
    if not data.schema:
        raise StudyError(
            f"--data {data.source} needs --schema, the name of a schema "
            f"({', '.join(tables.packaged_schemas())}) or a .toml file that says what "
            "the columns mean"
        )
    if not data.source.startswith("tfds:") and not Path(data.source).exists():
        hint = f"; {data.hint}" if data.hint else ""
        raise StudyError(f"{data.source} does not exist{hint}")
    schema = tables.TableSchema.load(data.schema)
    if data.group:
        schema = dataclasses.replace(schema, group=data.group)
    stream = tables.open_table(
        data.source, schema, holdout=data.holdout, data_dir=data.data_dir
    )
    return stream if data.examples is None else FirstExamples(stream, data.examples)
