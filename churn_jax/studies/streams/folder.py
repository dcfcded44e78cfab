"""`study.json` and the folders of a stream study's rows: what is there, does it fit."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from churn_jax.configuration.record import (
    DataRecord,
    RowRecord,
    StreamRecord,
    StreamRowRecord,
)
from churn_jax.configuration.streams import StreamSpec, StreamStudyConfig
from churn_jax.studies.folder import StudyFolder, launch_record
from churn_jax.training.progressive import StreamResult

RESULT = "result.json"


class StreamFolder(StudyFolder):
    """`study.json` and the folders of the rows of a stream study.

    Reading, continuing and setting aside are those of every study.
    """

    LEFT: tuple[str, ...] = (RESULT, "checkpoints/*")

    def __init__(self, out: Path, config: StreamStudyConfig, stream, command: str):
        """Reads what is in `out`."""
        source, schema = Path(config.data.source).name, Path(config.data.schema).stem
        # Where the file lies is no part of what is computed.
        data = dataclasses.replace(config.data, source=source, schema=schema)
        config = dataclasses.replace(config, data=data)
        known = DataRecord(name=source, fingerprint=stream.fingerprint)
        self._open(out, StreamRecord(config, known, launch_record(command)))
        self._count(*self.record.methods)

    def finished(self, spec: Any) -> bool:
        """Whether the row was trained as it is now and its result is there."""
        if self.row(spec.name) is None or self.outdated(spec):
            return False
        try:
            json.loads((self.method_dir(spec.name) / RESULT).read_text())
        except (OSError, ValueError):
            return False
        return True

    def write(self, *rows: RowRecord) -> None:
        """Writes `study.json`, with the records of finished rows."""
        self._count(*rows)
        super().write(*rows)

    def _count(self, *rows: Any) -> None:
        """A stream's length is known when it has been read."""
        for row in rows:
            data = dataclasses.replace(self.record.data, examples=row.examples)
            self.record = dataclasses.replace(self.record, data=data)


def stream_row(spec: StreamSpec, result: StreamResult) -> StreamRowRecord:
    """The record of a trained row."""
    return StreamRowRecord(
        name=spec.name,
        label=spec.label,
        spec=spec,
        training_cost=float(spec.method.members),
        seconds=round(result.seconds, 3),
        parameters=result.parameters,
        stopped=result.stopped,
        examples=result.examples,
    )
