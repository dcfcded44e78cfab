"""Sweeps: a grid of coefficients x seeds, trained as replicas of one program."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.methods.base import Ramp
from churn_jax.reports.sweep import CRITERIA, SweepResult, collect_sweep
from churn_jax.studies.finished import row_run
from churn_jax.studies.folder import importable
from churn_jax.studies.grid import (
    Axis,
    Point,
    baseline_point,
    grid_points,
    programs,
    stacked,
)
from churn_jax.studies.inputs import StudyError, StudyInputs
from churn_jax.studies.processes import (
    check_agreement,
    check_shared_folder,
    wait_for_all,
)
from churn_jax.studies.sweep_folder import GridProgram, SweepFolder
from churn_jax.studies.teachers import row_teachers
from churn_jax.training.folder_lock import lock_folder
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
    on_plan: Callable[[Sequence[GridProgram]], None] = lambda plan: None,
    on_start: Callable[[GridProgram, bool], None] = lambda program, finished: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
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
        facts = {"criterion": criterion, "seeds": seeds, "command": command}
        folder = SweepFolder(out, config, dataset, **facts)
        points = [point for axis in axes for point in grid_points(config, axis)]
        reference = None
        if baseline:
            found = baseline_point(config, points, axes)
            if found.name not in [point.name for point in points]:
                points.insert(0, found)
            reference = found.name
        session = _Session(
            inputs, folder, _numbers(config, seeds), logging, on_work, stop
        )
        folder.add(
            axes,
            points,
            reference,
            lambda spec: inputs.of(spec).dataset.fingerprint,
        )
        plan = [
            session.program(name, part)
            for name, part in folder.plan(programs(config, points, points_per_program))
        ]
        folder.write()
        on_plan(plan)
        for note in config.notes:
            on_note(note)
        for program in plan:
            # Several processes agree to stop inside the training loop, at its updates.
            if jax.process_count() == 1 and stop is not None and stop.is_set():
                raise Interrupted(f"stopped before {program.name}")
            finished = all(folder.finished(point) for point in program.points)
            on_start(program, finished)
            if not finished:
                session.train(program, on_progress, on_note)
        wait_for_all("the sweep's predictions are written")
        return collect_sweep(out)


class _Session:
    """Data and settings that all programs of a sweep share."""

    def __init__(
        self, inputs: StudyInputs, folder: SweepFolder, seeds, loggers, on_work, stop
    ):
        self.config, self.inputs, self.folder = inputs.config, inputs, folder
        self.seeds, self.loggers = seeds, loggers
        self.on_work, self.stop = on_work, stop
        self.teachers: dict[str, Trained] = {}

    def program(self, name: str, points: Sequence[Point]) -> GridProgram:
        spec = points[0].spec
        replicas = len(points) * len(self.seeds)
        networks = replicas * spec.method.members
        label = name if points[0].axis else spec.label
        try:  # before the first program trains
            stacked(self.config, points, self.seeds)
        except ValueError as error:
            raise StudyError(f"{name}: {error}") from error
        return GridProgram(name, label, tuple(points), replicas, networks)

    def train(self, program: GridProgram, on_progress, on_note) -> None:
        spec = program.points[0].spec
        trained = self._train(
            self.folder.out / "programs" / program.name,
            program.name,
            program.points,
            self._before(spec, on_note),
            on_progress,
            on_note,
        )
        self.folder.save(program, trained, self.seeds)

    def _before(self, spec: MethodSpec, on_note) -> dict[str, Trained]:
        """The rows that must be trained before this one, by name."""
        names = spec.dependencies
        return {name: self._teacher(self.config.spec(name), on_note) for name in names}

    def _teacher(self, spec: MethodSpec, on_note) -> Trained:
        """The method that teaches, trained once with the sweep's seeds."""
        if spec.name not in self.teachers:
            before = self._before(spec, on_note)
            on_note(f"{spec.label} is the teacher and is trained first")
            self.teachers[spec.name] = self._train(
                self.folder.out / "teachers" / spec.name,
                spec.name,
                (Point(spec.name, "", None, spec),),
                before,
                lambda progress: None,
                on_note,
            )
        return self.teachers[spec.name]

    def _train(self, directory, name, points, before, on_progress, on_note) -> Trained:
        method, settings = stacked(self.config, points, self.seeds)
        spec, classes = points[0].spec, self.inputs.dataset.num_classes
        own = self.inputs.of(spec)
        teacher = row_teachers(
            self.config, spec, before.__getitem__, own.dataset, classes
        )
        start = before.get(spec.start)
        # Every point has the same teachers, and starts from the same weights.
        if teacher is not None:
            teacher = dataclasses.replace(teacher, repeats=len(points))
        if start is not None:
            start = _tiled(start, len(points))
        run = dataclasses.replace(
            row_run(self.config, spec, classes),
            name=name,
            method=method,
            config=settings,
        )
        return train(
            over_cores(run),
            own.dataset,
            directory=directory,
            teacher=teacher,
            start=start,
            mean=own.mean,
            std=own.std,
            loggers=self.loggers,
            group=self.config.name,
            on_progress=on_progress,
            on_work=self.on_work,
            on_note=on_note,
            stop=self.stop,
            show_progress=False,
        )


def _numbers(config: StudyConfig, seeds: int) -> tuple[int, ...]:
    given = config.train.seed_numbers
    return given[:seeds] if len(given) >= seeds else tuple(range(seeds))


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
        alphas: values of alpha; empty takes the same multiples.
        criterion: see `run_sweep`; of both stages.
        **options: as for `run_sweep`.

    Returns:
        The `SweepResult` of all stages.

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
