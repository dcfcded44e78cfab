"""`study.json` and the folders of a stream study's rows: what is there, does it fit."""

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

import jax

from churn_jax.studies.config import resolved
from churn_jax.studies.folder import StudyFolder, hardware, versions
from churn_jax.studies.streams.config import (
    StreamSpec,
    StreamStudyConfig,
    TowerConfig,
    differs,
)
from churn_jax.training.progressive import StreamResult

__all__ = ["RESULT", "StreamFolder", "stream_entry"]

RESULT = "result.json"


class StreamFolder(StudyFolder):
    """`study.json` and the folders of the rows of a stream study.

    Reading, continuing and setting aside are those of every study.
    """

    config: Any  # a StreamStudyConfig, as `spec`s are StreamSpecs

    def __init__(self, out: Path, config: StreamStudyConfig, stream, command: str):
        """Reads what is in `out`.

        Args:
            out: folder of the study.
            config: the study.
            stream: has `schema` and `fingerprint`.
            command: recorded.

        Raises:
            StudyError: `out` holds another study.
        """
        self.out, self.path, self.config = out, out / "study.json", config
        schema = stream.schema
        self.record: dict[str, Any] = {
            "kind": "stream",
            "name": config.name,
            "title": config.title,
            "config": _settings(config),
            "versions": versions(),
            "devices": [str(d) for d in jax.devices()],
            "hardware": hardware(),
            "data": {
                "name": Path(config.data.source).name,
                "source": config.data.source,
                "fingerprint": stream.fingerprint,
                "holdout": config.data.holdout,
                "categorical": len(schema.sizes),
                "numeric": len(schema.numeric),
                "table_rows": sum(schema.sizes),
            },
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": command,
            "baseline": config.baseline,
            "published": config.published,
            "replicas": config.train.replicas,
            "differs": differs(config.train),
            "methods": [],
        }
        if self.path.exists():
            self._continue(self.record["config"])
        for entry in self.record["methods"]:
            self.record["data"]["examples"] = entry["examples"]

    def _anything_trained(self, record: dict[str, Any]) -> bool:
        if record.get("methods"):
            return True
        left = (f"*/{RESULT}", "*/checkpoints/*")
        return any(any((self.out / "methods").glob(pattern)) for pattern in left)

    def outdated(self, spec: Any) -> bool:
        """Whether the row was trained before, but otherwise than it would be now."""
        return super().outdated(spec)

    def finished(self, spec: Any) -> bool:
        """Whether the row was trained as it is now and its result is there."""
        if not self.entry(spec.name) or self.outdated(spec):
            return False
        try:
            json.loads((self.method_dir(spec.name) / RESULT).read_text())
        except (OSError, ValueError):
            return False
        return True

    def write(self, entry: dict[str, Any] | None = None) -> None:
        """Writes `study.json`, with a row's new entry where one is given."""
        if entry is not None:  # a stream's length is known when it has been read
            self.record["data"]["examples"] = entry["examples"]
        super().write(entry)

    def settings(self, spec: Any) -> dict[str, Any]:
        """What decides a row's results: it is trained again when that changes."""
        return {
            "method": resolved(spec.method),
            "train": resolved(spec.train),
            "model": resolved(spec.model),
        }


def _settings(config: StreamStudyConfig) -> dict[str, Any]:
    """The study as JSON; where the file lies is no part of what is computed."""
    found = resolved(config)
    found["data"]["source"] = Path(config.data.source).name
    found["data"]["schema"] = Path(config.data.schema).stem
    return found


def stream_entry(
    spec: StreamSpec,
    model: TowerConfig,
    result: StreamResult,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """A trained row as `study.json` holds it; `settings` are the folder's."""
    return {
        "name": spec.name,
        "label": spec.label,
        "equation": spec.equation,
        "members": spec.method.members,
        "training_cost": float(spec.method.members),
        "inference_cost": spec.method.inference_cost,
        "towers": dataclasses.asdict(model),
        **settings,
        "seconds": round(result.seconds, 3),
        "parameters": result.parameters,
        "examples": result.examples,
        "stopped": [dataclasses.asdict(s) for s in result.stopped],
    }
