"""`sweep.json`, the checkpoints of a sweep's programs and its points' predictions."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from churn_jax.predictions import (
    Predictions,
    load_predictions,
    replace_file,
    save_predictions,
)
from churn_jax.reports.sweep import SPLITS
from churn_jax.studies.config import MethodSpec, StudyConfig, Teaching, resolved
from churn_jax.studies.folder import (
    StudyError,
    changed_settings,
    surroundings,
)
from churn_jax.studies.grid import Axis, Point, is_baseline, stacked
from churn_jax.studies.inputs import deployed_logits
from churn_jax.training.identity import described, identity_of
from churn_jax.training.partition import MeshShape
from churn_jax.training.run import Run, Trained

__all__ = ["GridProgram", "SweepFolder"]

_FREE = ("train.replicas",)  # a sweep has seeds and points instead


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """Points that are trained together.

    Attributes:
        name: folder under `programs/`.
        label: for people.
        points: in the order of the replicas.
        replicas: points x seeds.
        networks: trained side by side, over all replicas.
    """

    name: str
    label: str
    points: tuple[Point, ...]
    replicas: int
    networks: int


class SweepFolder:
    """`sweep.json`, the programs' checkpoints and the points' predictions."""

    def __init__(self, out: Path, config: StudyConfig, dataset, **facts):
        self.out, self.path, self.dataset = out, out / "sweep.json", dataset
        self.config = config
        self.record: dict[str, Any] = {
            "kind": "sweep",
            "name": config.name,
            "title": f"{config.title}: sweep",
            "config": resolved(config),
            **surroundings(dataset),
            "baseline": None,
            "axes": [],
            "points": [],
            "programs": [],
            **facts,
        }
        if self.path.exists():
            self._continue()

    def _continue(self) -> None:
        try:
            old = json.loads(self.path.read_text())
            kept = {k: old[k] for k in ("baseline", "axes", "points", "programs")}
            there, seeds = old["config"], old["seeds"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StudyError(
                f"{self.path} is not a sweep's record ({error}); use another --out or "
                "--fresh"
            ) from error
        left = (
            "programs/*/checkpoints/*",
            "teachers/*/checkpoints/*",
            "points/*/*.npz",
        )
        if not any(any(self.out.glob(pattern)) for pattern in left):
            return  # a launch that failed at once: its mistakes bind nobody
        # Points of other methods, too: one report compares them all.
        changed = changed_settings(there, self.record["config"], _FREE)
        if seeds != self.record["seeds"]:
            changed.insert(0, f"seeds: {seeds} there, {self.record['seeds']} here")
        if changed:
            raise StudyError(
                f"{self.out} holds a sweep with other settings ("
                f"{'; '.join(changed[:3])}); use another --out or --fresh"
            )
        self.record |= kept

    def add(
        self,
        axes: Sequence[Axis],
        points: Sequence[Point],
        seeds: Sequence[int],
        fingerprint_of: Callable[[MethodSpec], str],
    ) -> None:
        """Takes axes and points in; those that are there must be the same.

        Args:
            axes: to take in.
            points: likewise.
            seeds: seed numbers.
            fingerprint_of: of the data that a row is trained on.

        Raises:
            StudyError: a point was trained with other settings.
        """
        known = {point["name"]: point for point in self.record["points"]}
        for point in points:
            entry = self._entry(point, seeds, fingerprint_of(point.spec))
            if old := known.get(point.name):
                a, b = old["settings"], entry["settings"]
                changed = [
                    f"{k}: {a.get(k)} there, {b.get(k)} here"
                    for k in sorted({*a, *b})
                    if a.get(k) != b.get(k)
                ]
                if changed:
                    raise StudyError(
                        f"{self.out} holds {point.name} with other settings ("
                        f"{'; '.join(changed[:3])}); use another --out or --fresh"
                    )
            else:
                self.record["points"].append(entry)
        names = [axis["name"] for axis in self.record["axes"]]
        for axis in axes:
            if axis.name not in names:
                self.record["axes"].append(
                    {
                        "name": axis.name,
                        "method": axis.method,
                        "label": self.config.spec(axis.method).label,
                        "field": axis.field,
                        "fixed": dict(axis.fixed),
                    }
                )

    def _entry(self, point: Point, seeds, fingerprint: str) -> dict[str, Any]:
        """A point as `sweep.json` holds it; `settings` decide its numbers."""
        spec = point.spec
        # The mesh is of a whole program, whose replicas it must divide.
        alone = dataclasses.replace(self.config.train, mesh=MeshShape())
        config = dataclasses.replace(self.config, train=alone)
        _, trained = stacked(config, [point], seeds)
        groups = spec.groups(self.config.model, self.dataset.num_classes)
        run = Run(point.name, spec.method, groups, trained)
        settings = json.loads(identity_of(run, fingerprint, None))
        settings.pop("method")  # coefficient by coefficient, so that a message is short
        for name, value in resolved(spec.method).items():
            settings[f"{spec.name}.{name}"] = value
        settings["model"] = described(spec.model or self.config.model)
        settings["teacher"] = repr(_teachers(self.config, spec))
        return {
            "name": point.name,
            "axis": point.axis,
            "value": point.value,
            "is_baseline": is_baseline(self.config, spec),
            "method": spec.name,
            "label": spec.label,
            "coefficients": resolved(spec.method),
            "settings": settings,
        }

    def file(self, point: Point, split: str) -> Path:
        """Where a point's predictions are."""
        return self.out / "points" / point.name / f"{split}.npz"

    def finished(self, point: Point) -> bool:
        """Whether both splits' predictions are there and can be read."""
        paths = [self.file(point, split) for split in SPLITS]
        if not all(path.exists() for path in paths):
            return False
        for path in paths:
            load_predictions(path)  # damage is an error, not a reason to train again
        return True

    def plan(self, parts: Sequence[Sequence[Point]]) -> list[tuple[str, list[Point]]]:
        """Names the programs; unfinished ones of an earlier launch keep their points.

        A checkpoint holds the points it was begun with, so such a program goes on as
        it is, and only points that are in none make new ones.
        """
        wanted = {point.name: point for part in parts for point in part}
        planned, taken = [], set()
        for entry in self.record["programs"]:
            if set(entry["points"]) <= set(wanted):
                planned.append(
                    (entry["name"], [wanted[name] for name in entry["points"]])
                )
                taken |= set(entry["points"])
        names = {entry["name"] for entry in self.record["programs"]}
        for part in parts:
            rest = [point for point in part if point.name not in taken]
            rest = [point for point in rest if not self.finished(point)]
            if not rest:
                continue
            base = rest[0].axis or rest[0].name
            name, number = base, 1
            while name in names:
                number += 1
                name = f"{base}-{number}"
            names.add(name)
            planned.append((name, rest))
            self.record["programs"].append(
                {"name": name, "points": [point.name for point in rest]}
            )
        return planned

    def save(
        self, program: GridProgram, trained: Trained, seeds: Sequence[int]
    ) -> None:
        """Writes the predictions of a finished program, point by point."""
        parts = {split: getattr(self.dataset, split) for split in SPLITS}
        logits = {k: deployed_logits(trained, self.dataset, k) for k in SPLITS}
        if jax.process_index() != 0:
            return
        for i, point in enumerate(program.points):
            first = i * len(seeds)
            stopped = [
                {**dataclasses.asdict(s), "replica": s.replica - first}
                for s in trained.stopped
                if first <= s.replica < first + len(seeds)
            ]
            for split, part in parts.items():
                meta = {
                    "sweep": self.config.name,
                    "point": point.name,
                    "fingerprint": self.dataset.fingerprint,
                    "split": split,
                    "seeds": list(seeds),
                    "stopped": stopped,
                }
                runs = logits[split][first : first + len(seeds)]
                save_predictions(
                    self.file(point, split),
                    Predictions(part.ids, part.labels, runs, meta),
                )
        entry = next(p for p in self.record["programs"] if p["name"] == program.name)
        entry |= {
            "replicas": trained.run.config.replicas,
            "networks": program.networks,
            "seconds": round(trained.seconds, 3),
            "compile_seconds": round(trained.compile_seconds, 3),
            "parameters": trained.parameters,
            "mapping": trained.program.mapping,
        }
        self.write()

    def write(self) -> None:
        """Writes `sweep.json`."""
        if jax.process_index() == 0:
            with replace_file(self.path) as file:
                file.write((json.dumps(self.record, indent=2) + "\n").encode())


def _teachers(config: StudyConfig, spec: MethodSpec) -> list[Any]:
    """Who teaches a row, with its coefficients, and who teaches that."""
    found: list[Any] = []
    for name in spec.tutors:
        row = config.spec(name)
        own = [row.name, resolved(row.method), resolved(row.train)]
        own += [resolved(part) for part in (row.model, row.models) if part]
        if row.classes or row.class_share != 1.0:
            own += [list(row.classes), row.class_share]
        found += [*own, *_teachers(config, row)]
    if spec.teaching != Teaching():
        found.append(resolved(spec.teaching))
    return found
