"""Sweeps: a grid of coefficients x seeds, trained as replicas of one program."""

import dataclasses
import datetime
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax import data
from churn_jax.data import channel_statistics
from churn_jax.methods import Codistillation
from churn_jax.predictions import (
    Predictions,
    load_predictions,
    replace_file,
    save_predictions,
)
from churn_jax.reports.selection import CRITERIA
from churn_jax.reports.sweep import SPLITS, SweepResult, collect_sweep
from churn_jax.studies.config import MethodSpec, StudyConfig, resolved
from churn_jax.studies.grid import (
    Axis,
    Point,
    baseline_point,
    grid_points,
    programs,
    stacked,
)
from churn_jax.studies.study import StudyError, hardware, versions
from churn_jax.training.loop import train
from churn_jax.training.run import Interrupted, Progress, Run, Trained, identity_of

__all__ = ["GridProgram", "run_selection", "run_sweep"]


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


class _Folder:
    """`sweep.json`, the programs' checkpoints and the points' predictions."""

    def __init__(self, out: Path, config: StudyConfig, dataset, **facts):
        self.out, self.path, self.dataset = out, out / "sweep.json", dataset
        self.config = config
        self.record: dict[str, Any] = {
            "kind": "sweep",
            "name": config.name,
            "title": f"{config.title}: sweep",
            "config": resolved(config),
            "versions": versions(),
            "devices": [str(d) for d in jax.devices()],
            "hardware": hardware(),
            "data": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "num_classes": dataset.num_classes,
                "train": len(dataset.train),
                "validation": len(dataset.validation),
                "test": len(dataset.test),
            },
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
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
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StudyError(
                f"{self.path} is not a sweep's record ({error}); use another --out or "
                "--fresh"
            ) from error
        left = ("programs/*/checkpoints/*", "teachers/*/checkpoints/*")
        if kept["programs"] or any(any(self.out.glob(p)) for p in left):
            self.record |= kept

    def add(self, axes: Sequence[Axis], points: Sequence[Point], seeds) -> None:
        """Takes axes and points in; those that are there must be the same.

        Raises:
            StudyError: a point was trained with other settings.
        """
        known = {point["name"]: point for point in self.record["points"]}
        for point in points:
            entry = self._entry(point, seeds)
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

    def _entry(self, point: Point, seeds) -> dict[str, Any]:
        method, trained = stacked(self.config, [point], seeds)
        del method
        spec = dataclasses.replace(point.spec)
        run = Run(
            point.name,
            spec.method,
            spec.groups(self.config.model, self.dataset.num_classes),
            trained,
        )
        settings = json.loads(identity_of(run, self.dataset.fingerprint, None))
        settings["model"] = repr(self.config.model)
        settings["teacher"] = repr(_teachers(self.config, spec))
        return {
            "name": point.name,
            "axis": point.axis,
            "value": point.value,
            "method": spec.name,
            "label": spec.label,
            "coefficients": resolved(spec.method),
            "settings": settings,
        }

    def file(self, point: Point, split: str) -> Path:
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
        splits = {
            split: (part, trained.predict(part.images))
            for split in SPLITS
            for part in [getattr(self.dataset, split)]
        }
        if jax.process_index() != 0:
            return
        for i, point in enumerate(program.points):
            first = i * len(seeds)
            stopped = [
                {**dataclasses.asdict(s), "replica": s.replica - first}
                for s in trained.stopped
                if first <= s.replica < first + len(seeds)
            ]
            for split, (part, logits) in splits.items():
                meta = {
                    "sweep": self.config.name,
                    "point": point.name,
                    "fingerprint": self.dataset.fingerprint,
                    "split": split,
                    "seeds": list(seeds),
                    "stopped": stopped,
                }
                runs = logits[first : first + len(seeds)]
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
        if jax.process_index() == 0:
            with replace_file(self.path) as file:
                file.write((json.dumps(self.record, indent=2) + "\n").encode())


def run_sweep(
    config: StudyConfig,
    axes: Sequence[Axis],
    out: Path,
    *,
    seeds: int = 5,
    baseline: bool = True,
    criterion: str = "churn",
    points_per_program: int = 0,
    command: str = "",
    on_plan: Callable[[Sequence[GridProgram]], None] = lambda plan: None,
    on_start: Callable[[GridProgram, bool], None] = lambda program, finished: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> SweepResult:
    """Trains every value of the axes with the same seeds; finished points are kept.

    All points that differ by numbers alone are replicas of one program. The same folder
    goes on where it was left, and takes more values or axes in.

    Args:
        config: the study whose data, network, training and methods are used.
        axes: what to sweep, each on its own (no products).
        out: folder of the sweep.
        seeds: runs per point; every point has the same ones.
        baseline: train the baseline too, as the value 0 where that is the baseline.
        criterion: one of `churn_jax.reports.selection.CRITERIA`.
        points_per_program: at most so many points are trained together, to save
            memory; 0 trains all together.
        command: recorded in `sweep.json`.
        on_plan: called with all programs before the first.
        on_start: called with each program and whether it is finished already.
        on_progress: called after every evaluation.
        on_note: called with sentences for the user.
        stop: when set, a checkpoint is written and `Interrupted` raised.

    Returns:
        Numbers of every point on both splits, and what the criterion picks.

    Raises:
        StudyError: `out` holds something else, or there is nothing to train.
        ValueError: an axis does not fit the study.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    if not axes:
        raise StudyError("a sweep needs at least one METHOD.COEFFICIENT")
    if seeds < 2:
        raise StudyError(f"churn needs at least 2 seeds; got {seeds}")
    if criterion not in CRITERIA:
        raise StudyError(
            f"criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}"
        )
    axes = [axis.checked(config) for axis in axes]
    dataset = data.load(
        config.data.name,
        data_dir=config.data.data_dir,
        manual_dir=config.data.manual_dir,
        train_size=config.data.train_size,
        validation=config.data.validation,
    )
    if len(dataset.validation) == 0:
        raise StudyError("a sweep needs a validation split; set --data.validation")
    out.mkdir(parents=True, exist_ok=True)
    facts = {"criterion": criterion, "seeds": seeds, "command": command}
    folder = _Folder(out, config, dataset, **facts)
    points = [point for axis in axes for point in grid_points(config, axis)]
    if baseline:
        reference = baseline_point(config, points, axes)
        if reference.name not in [point.name for point in points]:
            points.insert(0, reference)
        folder.record["baseline"] = reference.name
    session = _Session(config, dataset, folder, _numbers(config, seeds), stop)
    folder.add(axes, points, session.seeds)
    plan = [
        session.program(name, part)
        for name, part in folder.plan(programs(config, points, points_per_program))
    ]
    folder.write()
    on_plan(plan)
    for program in plan:
        if stop is not None and stop.is_set():
            raise Interrupted(f"stopped before {program.name}")
        finished = all(folder.finished(point) for point in program.points)
        on_start(program, finished)
        if not finished:
            session.train(program, on_progress, on_note)
    _together()
    return collect_sweep(out)


class _Session:
    """Data and settings that all programs of a sweep share."""

    def __init__(self, config, dataset, folder: _Folder, seeds, stop):
        self.config, self.dataset, self.folder = config, dataset, folder
        self.seeds, self.stop = seeds, stop
        moments = channel_statistics(dataset.train.images)
        self.mean = tuple(float(x) for x in np.ravel(moments.mean))
        self.std = tuple(float(x) for x in np.ravel(moments.std))
        self.teachers: dict[str, Trained] = {}

    def program(self, name: str, points: Sequence[Point]) -> GridProgram:
        spec = points[0].spec
        replicas = len(points) * len(self.seeds)
        networks = replicas * spec.method.members
        label = name if points[0].axis else spec.label
        return GridProgram(name, label, tuple(points), replicas, networks)

    def train(self, program: GridProgram, on_progress, on_note) -> None:
        spec = program.points[0].spec
        teacher = None
        if spec.teacher is not None:
            taught_by = self._teacher(self.config.spec(spec.teacher), on_note)
            teacher = _tiled(taught_by, len(program.points))
        trained = self._train(
            self.folder.out / "programs" / program.name,
            program.name,
            program.points,
            teacher,
            on_progress,
            on_note,
        )
        self.folder.save(program, trained, self.seeds)

    def _teacher(self, spec: MethodSpec, on_note) -> Trained:
        """The method that teaches, trained once with the sweep's seeds."""
        if spec.name not in self.teachers:
            teacher = None
            if spec.teacher is not None:
                teacher = self._teacher(self.config.spec(spec.teacher), on_note)
            on_note(f"{spec.label} is the teacher and is trained first")
            self.teachers[spec.name] = self._train(
                self.folder.out / "teachers" / spec.name,
                spec.name,
                (Point(spec.name, "", None, spec),),
                teacher,
                lambda progress: None,
                on_note,
            )
        return self.teachers[spec.name]

    def _train(self, directory, name, points, teacher, on_progress, on_note) -> Trained:
        method, settings = stacked(self.config, points, self.seeds)
        spec = points[0].spec
        run = Run(
            name=name,
            method=method,
            groups=spec.groups(self.config.model, self.dataset.num_classes),
            config=settings,
            stream=0 if teacher is None else 1,
        )
        return train(
            run,
            self.dataset,
            directory=directory,
            teacher=teacher,
            mean=self.mean,
            std=self.std,
            on_progress=on_progress,
            on_note=on_note,
            stop=self.stop,
        )


def run_selection(
    config: StudyConfig,
    method: str,
    out: Path,
    *,
    betas: Sequence[float] = (),
    alphas: Sequence[float] = (),
    criterion: str = "churn",
    **options,
) -> SweepResult:
    """The paper's selection: beta first, then alpha at the best beta.

    A method with one of the two gets one stage. For the combined objective the first
    stage is the same method with alpha 0, which is the study's Co-distill SKL where
    that has the same structure.

    Args:
        config: the study.
        method: name of a row with a coefficient `beta` or `alpha`.
        out: folder of the sweep; both stages live in it.
        betas: values of beta; empty takes 1/4 to 4 times the preset's.
        alphas: values of alpha, likewise.
        criterion: see `run_sweep`; of both stages.
        **options: as for `run_sweep`.

    Returns:
        The `SweepResult` of all stages.

    Raises:
        StudyError: the method has neither coefficient, or no beta could be chosen.
    """
    spec = config.spec(method)
    fields = [f for f in ("beta", "alpha") if hasattr(spec.method, f)]
    combined = isinstance(spec.method, Codistillation) and spec.method.alpha != 0
    options["criterion"] = criterion
    if not fields:
        raise StudyError(
            f"{method} has neither beta nor alpha; name what to sweep instead, "
            f"{method}.COEFFICIENT"
        )
    if not combined:
        values = betas if fields[0] == "beta" else alphas
        return run_sweep(
            config, [Axis(method, fields[0], tuple(values))], out, **options
        )
    axis = _without_alpha(config, spec, betas).checked(config)
    first = run_sweep(config, [axis], out, **options)
    choice = first.choice(axis.name)
    if choice.value is None:
        raise StudyError(
            f"no value of {axis.path} could be chosen ({choice.reason}), so there is "
            "none at which to sweep alpha"
        )
    fixed = (("beta", choice.value),)
    second = Axis(method, "alpha", tuple(alphas), fixed)
    options["baseline"] = False  # the first stage has it
    return run_sweep(config, [second], out, **options)


def _without_alpha(config: StudyConfig, spec: MethodSpec, betas) -> Axis:
    """Beta of the row that is `spec` without alpha, else of `spec` with alpha at 0."""
    plain = dataclasses.replace(
        spec.method, alpha=0.0, alpha_ramp=type(spec.method)().alpha_ramp
    )
    for other in config.methods:
        if (other.teacher, other.models, other.train, other.train_size) != (
            spec.teacher,
            spec.models,
            spec.train,
            spec.train_size,
        ):
            continue
        if type(other.method) is type(plain) and (
            dataclasses.replace(other.method, beta=plain.beta) == plain
        ):
            return Axis(other.name, "beta", tuple(betas))
    return Axis(spec.name, "beta", tuple(betas), (("alpha", 0.0),))


def _numbers(config: StudyConfig, seeds: int) -> tuple[int, ...]:
    given = config.train.seed_numbers
    return given[:seeds] if len(given) >= seeds else tuple(range(seeds))


def _teachers(config: StudyConfig, spec: MethodSpec) -> list[Any]:
    """Who teaches a row, with its coefficients, and who teaches that."""
    if spec.teacher is None:
        return []
    teacher = config.spec(spec.teacher)
    own = [teacher.name, resolved(teacher.method), resolved(teacher.train)]
    return [*own, *_teachers(config, teacher)]


def _tiled(teacher: Trained, points: int) -> Trained:
    """The same teachers at every point: replica r of a point learns from teacher r."""

    def tile(leaf):
        leaf = np.asarray(leaf)
        return np.tile(leaf, (points,) + (1,) * (leaf.ndim - 1))

    from churn_jax.training.partition import fetch

    params, state = fetch((teacher.params, teacher.model_state))
    return dataclasses.replace(
        teacher,
        params=jax.tree.map(tile, params),
        model_state=jax.tree.map(tile, state),
    )


def _together() -> None:
    """Returns when every process has come here: the files of process 0 are there."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("the sweep's predictions are written")
