"""`sweep.json`, the checkpoints of a sweep's programs and its points' predictions."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from churn_compare.store import Predictions, load_predictions, save_predictions
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.difference import differences, in_words, without
from churn_jax.configuration.record import (
    AxisRecord,
    PointRecord,
    ProgramRecord,
    SweepRecord,
    write_record,
)
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.reports.sweep import SPLITS
from churn_jax.studies.folder import continued, data_record, launch_record
from churn_jax.studies.grid import Axis, Point, is_baseline
from churn_jax.studies.inputs import StudyError
from churn_jax.studies.predictions import split_logits
from churn_jax.training.folder_lock import check_lock
from churn_jax.training.run import Trained


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """Points that are trained together, in the order of the replicas."""

    name: str
    label: str
    points: tuple[Point, ...]
    replicas: int
    networks: int


class SweepFolder:
    """`sweep.json`, the programs' checkpoints and the points' predictions."""

    # Files that say that something was trained.
    LEFT = ("programs/*/checkpoints/*", "teachers/*/checkpoints/*", "points/*/*.npz")

    def __init__(
        self,
        out: Path,
        config: StudyConfig,
        dataset,
        *,
        seeds: int,
        criterion: str,
        command: str,
    ):
        self.out, self.path, self.dataset = out, out / "sweep.json", dataset
        self.config = config
        self.record = SweepRecord(
            config, seeds, criterion, data_record(dataset), launch_record(command)
        )
        # Points of other methods, too: one report compares them all. A sweep has seeds
        # and points instead of replicas.
        free = ("methods", "replicas")
        old = continued(self.path, self.record, self.LEFT, free)
        if old is None:
            return
        if old.seeds != seeds:
            raise StudyError(
                f"{out} holds a sweep with other settings (seeds: {old.seeds} there, "
                f"{seeds} here); use another --out or --fresh"
            )
        names = ("baseline", "axes", "points", "programs")
        self._set(**{name: getattr(old, name) for name in names})

    def _set(self, **changes: Any) -> None:
        self.record = dataclasses.replace(self.record, **changes)

    def add(
        self,
        axes: Sequence[Axis],
        points: Sequence[Point],
        baseline: str | None,
        fingerprint_of: Callable[[MethodSpec], str],
    ) -> None:
        """Takes axes and points in; those that are there must have equal settings."""
        known = {point.name: point for point in self.record.points}
        for point in points:
            new = self._point(point, fingerprint_of(point.spec))
            there = known.setdefault(point.name, new)
            if changed := differences(without(to_json(there)), without(to_json(new))):
                raise StudyError(
                    f"{self.out} holds {point.name} with other settings "
                    f"({in_words(changed)}); use another --out or --fresh"
                )
        found = {axis.name: axis for axis in self.record.axes}
        for axis in axes:
            label, fixed = self.config.spec(axis.method).label, dict(axis.fixed)
            new = AxisRecord(axis.name, axis.method, label, axis.field, fixed)
            found.setdefault(axis.name, new)
        self._set(
            axes=tuple(found.values()),
            points=tuple(known.values()),
            baseline=baseline or self.record.baseline,
        )

    def _point(self, point: Point, fingerprint: str) -> PointRecord:
        spec = point.spec
        groups = spec.groups(self.config.model, self.dataset.num_classes)
        return PointRecord(
            name=point.name,
            axis=point.axis,
            value=point.value,
            spec=spec,
            is_baseline=is_baseline(self.config, spec),
            dependencies=self.config.dependencies(spec),
            data=fingerprint,
            networks=tuple(group.network.name for group in groups),
        )

    def file(self, point: Point, split: str) -> Path:
        """Where a point's predictions are."""
        return self.out / "points" / point.name / f"{split}.npz"

    def finished(self, point: Point) -> bool:
        """True if both splits' predictions are there and can be read."""
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
        programs = list(self.record.programs)
        for program in programs:
            if set(program.points) <= set(wanted):
                own = [wanted[name] for name in program.points]
                planned.append((program.name, own))
                taken |= set(program.points)
        names = {program.name for program in programs}
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
            programs.append(ProgramRecord(name, tuple(point.name for point in rest)))
        self._set(programs=tuple(programs))
        return planned

    def save(
        self, program: GridProgram, trained: Trained, seeds: Sequence[int]
    ) -> None:
        """Writes the predictions of a finished program, point by point."""
        parts = {split: getattr(self.dataset, split) for split in SPLITS}
        logits = {k: split_logits(trained, self.dataset, k) for k in SPLITS}
        if jax.process_index() != 0:
            return
        check_lock(self.out)
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
        done = ProgramRecord(
            name=program.name,
            points=tuple(point.name for point in program.points),
            replicas=trained.run.config.replicas,
            networks=program.networks,
            seconds=round(trained.seconds, 3),
            compile_seconds=round(trained.compile_seconds, 3),
            parameters=trained.parameters,
            mapping=trained.program.mapping,
        )
        programs = self.record.programs
        self._set(programs=tuple(done if p.name == done.name else p for p in programs))
        self.write()

    def write(self) -> None:
        """Writes `sweep.json`."""
        if jax.process_index() == 0:
            check_lock(self.out)
            write_record(self.path, self.record)
