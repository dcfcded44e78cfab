"""Sweeps: a grid of coefficients x seeds, trained as replicas of one program."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

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
from churn_jax.methods.base import Ramp
from churn_jax.reports.report import Report
from churn_jax.reports.sweep import CRITERIA, SPLITS, collect_sweep
from churn_jax.studies.finished import row_run
from churn_jax.studies.folder import (
    continued,
    data_record,
    importable,
    launch_record,
)
from churn_jax.studies.grid import (
    Axis,
    baseline_point,
    grid_points,
    is_baseline,
    programs,
    stacked,
)
from churn_jax.studies.inputs import StudyError, StudyInputs
from churn_jax.studies.predictions import split_logits
from churn_jax.studies.processes import (
    check_agreement,
    check_shared_folder,
    wait_for_all,
)
from churn_jax.studies.teachers import row_teachers
from churn_jax.training.folder_lock import check_lock, lock_folder
from churn_jax.training.loggers import Logger, as_loggers
from churn_jax.training.loop import train
from churn_jax.training.partition import fetch
from churn_jax.training.program import over_cores
from churn_jax.training.progress import Work
from churn_jax.training.run import Interrupted, Progress, Trained


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
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_plan: Callable[[Sequence[Any]], None] = lambda plan: None,
    on_start: Callable[[Any, bool], None] = lambda program, finished: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> Report:
    """Trains every value of the axes with the same seeds; finished points are kept.

    All points that differ by numbers alone are replicas of one program. The same folder
    goes on where it was left, and takes more values or axes in.

    Args:
        config: the study whose data, network, training and methods are used.
        axes: coefficients to sweep, each on its own (no products).
        out: folder of the sweep.
        seeds: runs per point; every point has the same ones.
        baseline: train the baseline too, as the value 0 where that is the baseline.
        criterion: one of `churn_jax.reports.sweep.CRITERIA`.
        points_per_program: at most so many points are trained together, to save
            memory; 0 trains all together.
        command: recorded in `sweep.json`.
        loggers: where the metrics of every program go in addition, as for `train`.
        on_plan: called with all programs before the first.
        on_start: called with each program and whether it is finished already.
        on_progress: called after every evaluation.
        on_work: called about once a second with what is finished of a program.
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
    if points_per_program < 0:
        raise StudyError(
            f"points_per_program must be at least 0; got {points_per_program}"
        )
    config, logging = importable(config), as_loggers(loggers)
    axes = [axis.checked(config) for axis in axes]
    names = [axis.name for axis in axes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise StudyError(f"{twice[0]} is named twice; give all its values at once")
    inputs = StudyInputs(config)
    config = inputs.described()
    dataset = inputs.dataset
    rows = [axis.method for axis in axes] + ([config.baseline] if baseline else [])
    inputs.check([config.spec(name) for name in rows], "a sweep")
    with lock_folder(out):
        check_shared_folder(out)
        check_agreement(
            {
                "config": to_json(config),
                "axes": [str(axis) for axis in axes],
                "seeds": seeds,
                "baseline": baseline,
                "points_per_program": points_per_program,
                "data": dataset.fingerprint,
            }
        )
        points = [point for axis in axes for point in grid_points(config, axis)]
        reference = None
        if baseline:
            found = baseline_point(config, points, axes)
            if found.name not in [point.name for point in points]:
                points.insert(0, found)
            reference = found.name
        told = {"on_work": on_work, "on_note": on_note, "stop": stop}
        told |= {"loggers": logging, "group": config.name}
        sweep = _Sweep(inputs, out, seeds, criterion, command, told)
        sweep.add(axes, points, reference)
        plan = sweep.plan(programs(config, points, points_per_program))
        sweep.write()
        on_plan(plan)
        for note in config.notes:
            on_note(note)
        for program in plan:
            # Several processes agree to stop inside the training loop, at its updates.
            if jax.process_count() == 1 and stop is not None and stop.is_set():
                raise Interrupted(f"stopped before {program.name}")
            finished = all(sweep.finished(point) for point in program.points)
            on_start(program, finished)
            if not finished:
                sweep.train(program, on_progress)
        wait_for_all("the sweep's predictions are written")
        return collect_sweep(out)


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """Points that are trained together, in the order of the replicas."""

    name: str
    label: str
    points: tuple[PointRecord, ...]
    replicas: int
    networks: int


class _Sweep:
    """State that all programs share, and the folder of `sweep.json`."""

    # Files that say that something was trained.
    LEFT = ("programs/*/checkpoints/*", "teachers/*/checkpoints/*", "points/*/*.npz")

    def __init__(self, inputs: StudyInputs, out: Path, seeds, criterion, command, told):
        self.inputs, self.config, self.dataset = inputs, inputs.config, inputs.dataset
        self.out, self.path, self.told = out, out / "sweep.json", told
        given = self.config.train.seed_numbers
        self.seeds = given[:seeds] if len(given) >= seeds else tuple(range(seeds))
        self.teachers: dict[str, Trained] = {}
        self.record = SweepRecord(
            self.config,
            seeds,
            criterion,
            data_record(self.dataset),
            launch_record(command),
        )
        # Points of other methods, too: one report compares them all. A sweep has seeds
        # and points instead of replicas.
        old = continued(self.path, self.record, self.LEFT, ("methods", "replicas"))
        if old is None:
            return
        if old.seeds != seeds:
            raise StudyError(
                f"{out} holds a sweep with other settings (seeds: {old.seeds} there, "
                f"{seeds} here); use another --out or --fresh"
            )
        kept = ("baseline", "axes", "points", "programs")
        self._set(**{name: getattr(old, name) for name in kept})

    def _set(self, **changes: Any) -> None:
        self.record = dataclasses.replace(self.record, **changes)

    def add(
        self, axes: Sequence[Axis], points: Sequence[PointRecord], baseline: str | None
    ) -> None:
        """Takes axes and points in; those that are there must have equal settings."""
        known = {point.name: point for point in self.record.points}
        for point in points:
            spec = point.spec
            groups = spec.groups(self.config.model, self.dataset.num_classes)
            new = dataclasses.replace(
                point,
                is_baseline=is_baseline(self.config, spec),
                dependencies=self.config.dependencies(spec),
                data=self.inputs.of(spec).dataset.fingerprint,
                networks=tuple(group.network.name for group in groups),
            )
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

    def file(self, point: PointRecord, split: str) -> Path:
        """Where a point's predictions are."""
        return self.out / "points" / point.name / f"{split}.npz"

    def finished(self, point: PointRecord) -> bool:
        """True if both splits' predictions are there and can be read."""
        paths = [self.file(point, split) for split in SPLITS]
        if not all(path.exists() for path in paths):
            return False
        for path in paths:
            load_predictions(path)  # damage is an error, not a reason to train again
        return True

    def plan(self, parts: Sequence[Sequence[PointRecord]]) -> list[GridProgram]:
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
                planned.append(self._program(program.name, own))
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
            planned.append(self._program(name, rest))
            programs.append(ProgramRecord(name, tuple(point.name for point in rest)))
        self._set(programs=tuple(programs))
        return planned

    def _program(self, name: str, points: Sequence[PointRecord]) -> GridProgram:
        spec = points[0].spec
        replicas = len(points) * len(self.seeds)
        label = name if points[0].axis else spec.label
        try:  # before the first program trains
            stacked(self.config, points, self.seeds)
        except ValueError as error:
            raise StudyError(f"{name}: {error}") from error
        networks = replicas * spec.method.members
        return GridProgram(name, label, tuple(points), replicas, networks)

    def train(self, program: GridProgram, on_progress) -> None:
        """Trains a program and keeps what its points predict."""
        folder = self.out / "programs" / program.name
        self.save(program, self._train(folder, program.points, on_progress))

    def _before(self, name: str) -> Trained:
        """The row that teaches, trained once with the sweep's seeds."""
        if name not in self.teachers:
            spec = self.config.spec(name)
            for other in spec.dependencies:
                self._before(other)
            self.told["on_note"](f"{spec.label} is the teacher and is trained first")
            point, folder = PointRecord(name, "", None, spec), self.out / "teachers"
            self.teachers[name] = self._train(folder / name, (point,), lambda _: None)
        return self.teachers[name]

    def _train(self, folder: Path, points, on_progress) -> Trained:
        method, settings = stacked(self.config, points, self.seeds)
        spec, classes = points[0].spec, self.dataset.num_classes
        own = self.inputs.of(spec)
        for name in spec.dependencies:
            self._before(name)
        teacher = row_teachers(self.config, spec, self._before, own.dataset, classes)
        # Every point has the same teachers, and starts from the same weights.
        if teacher is not None:
            teacher = dataclasses.replace(teacher, repeats=len(points))
        start = _tiled(self._before(spec.start), len(points)) if spec.start else None
        run = dataclasses.replace(
            row_run(self.config, spec, classes),
            name=folder.name,
            method=method,
            config=settings,
        )
        return train(
            over_cores(run),
            own.dataset,
            directory=folder,
            teacher=teacher,
            start=start,
            mean=own.mean,
            std=own.std,
            on_progress=on_progress,
            show_progress=False,
            **self.told,
        )

    def save(self, program: GridProgram, trained: Trained) -> None:
        """Writes the predictions of a finished program, point by point."""
        parts = {split: getattr(self.dataset, split) for split in SPLITS}
        logits = {k: split_logits(trained, self.dataset, k) for k in SPLITS}
        if jax.process_index() != 0:
            return
        check_lock(self.out)
        for i, point in enumerate(program.points):
            first = i * len(self.seeds)
            stopped = [
                {**dataclasses.asdict(s), "replica": s.replica - first}
                for s in trained.stopped
                if first <= s.replica < first + len(self.seeds)
            ]
            for split, part in parts.items():
                meta = {
                    "sweep": self.config.name,
                    "point": point.name,
                    "fingerprint": self.dataset.fingerprint,
                    "split": split,
                    "seeds": list(self.seeds),
                    "stopped": stopped,
                }
                runs = logits[split][first : first + len(self.seeds)]
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


def _tiled(trained: Trained, points: int) -> Trained:
    """The same replicas at every point; its weights are on the host."""

    def tile(leaf):
        leaf = np.asarray(leaf)
        return np.tile(leaf, (points,) + (1,) * (leaf.ndim - 1))

    params, state = fetch((trained.params, trained.model_state))
    return dataclasses.replace(
        trained,
        params=jax.tree.map(tile, params),
        model_state=jax.tree.map(tile, state),
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
) -> Report:
    """The paper's selection: beta first, then alpha at the best beta.

    A method with one of the two gets one stage. For the combined objective the first
    stage is the same method with alpha 0, which is the study's Co-distill SKL where
    that has the same structure.

    Args:
        config: the study.
        method: name of a row with a coefficient `beta` or `alpha`.
        out: folder of the sweep; both stages live in it.
        betas: values of beta; empty takes 1/4 to 4 times the preset's.
        alphas: values of alpha; empty takes the same multiples.
        criterion: see `run_sweep`; of both stages.
        **options: as for `run_sweep`.

    Returns:
        The `Report` of all stages.

    Raises:
        StudyError: the method has neither coefficient, or no beta could be chosen.
    """
    spec = config.spec(method)
    own: Any = spec.method
    fields = [f for f in ("beta", "alpha") if hasattr(own, f)]
    combined = len(fields) == 2 and own.alpha != 0
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
    assert first.sweep is not None
    choice = first.sweep.choices[axis.name]
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
    changes: dict[str, Any] = {"alpha": 0.0, "beta": 0.0}
    if hasattr(spec.method, "alpha_ramp"):
        changes["alpha_ramp"] = Ramp()
    plain = dataclasses.replace(spec.method, **changes)
    for row in config.methods:
        if type(row.method) is not type(plain):
            continue
        uncoupled: dict[str, Any] = {"beta": 0.0}
        same = dataclasses.replace(row.method, **uncoupled) == plain
        if same and dataclasses.replace(row, **_what_it_is(spec)) == spec:
            return Axis(row.name, "beta", tuple(betas))
    return Axis(spec.name, "beta", tuple(betas), (("alpha", 0.0),))


def _what_it_is(spec: MethodSpec) -> dict[str, Any]:
    """The fields in which two rows of equal training may differ."""
    return {
        field: getattr(spec, field) for field in ("name", "label", "equation", "method")
    }
