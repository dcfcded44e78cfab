"""Trains the rows of a study or the grid of a sweep, and restores what was trained."""

import dataclasses
import functools
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax.configuration.codec import differences, in_words, replaced, to_json
from churn_jax.configuration.record import SweepRecord
from churn_jax.configuration.rows import MethodSpec, averaged_name
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.reports import Report, collect
from churn_jax.reports.sweep import CRITERIA
from churn_jax.setting_checks import check_choice, check_least
from churn_jax.studies.folder import StudyFolder, importable, read_study, row_records
from churn_jax.studies.grid import Axis, Program, stacked, swept, together
from churn_jax.studies.inputs import StudyError, StudyInputs
from churn_jax.studies.predictions import keep_split, logits_of, row_teachers
from churn_jax.training.checkpoint import jax_settings
from churn_jax.training.examples import check_run, check_start, split_example
from churn_jax.training.folder_lock import lock_folder
from churn_jax.training.loggers import Logger, as_loggers
from churn_jax.training.loop import train
from churn_jax.training.partition import any_process, fetch
from churn_jax.training.program import over_cores
from churn_jax.training.progress import Display, Work
from churn_jax.training.run import Interrupted, Progress, Run, Trained
from churn_jax.training.session import restore
from churn_jax.training.teachers import repeated


class StudyDisplay(Display):
    """The programs of a study; time left is counted in epochs of one network."""

    def __init__(self, **shown: bool):
        """`shown` is given to `Display`; programs come with the plan."""
        super().__init__(**shown)
        self._programs: dict[str, Program] = {}

    def plan(self, programs: Sequence[Program]) -> None:
        """Adds planned programs; the two stages of a selection plan in turn."""
        self._programs |= {program.name: program for program in programs}
        every = self._programs.values()
        rows = sum(len(program.rows) for program in every)
        self.expect(sum(p.work for p in every), f"all {rows} methods")

    def start(self, program: Program, finished: bool) -> None:
        """A program begins, or was finished before."""
        self.begin(program.name, program.label, weight=program.work, kept=finished)

    def update(self, progress: Progress) -> None:
        """Shows the last evaluation; of several rows the mean over them."""
        program = self._programs.get(progress.name)
        if program is None or len(program.rows) == 1:
            super().update(progress)
            return
        found = f"mean validation accuracy {100 * progress.accuracy:.2f} %"
        self.evaluated(progress, found)
        for stopped in progress.stopped:
            row, run = divmod(stopped.replica, program.replicas)
            self.note_stopped(program.rows[row].name, "run", run, stopped)


def _equal_starts(config: StudyConfig) -> Iterator[str]:
    """Sentences about updates whose two versions are drawn with equal seeds."""
    # Run r of both would have the same initial weights and, of the same examples, order
    # of data, so fewer predictions flip than between versions trained years apart.

    def drawn(spec: MethodSpec):
        train = spec.config(config.train)
        network = dataclasses.replace(spec.model or config.model, dropout=0.0)
        return network, spec.models, train.seeds, train.numbers, spec.taught

    for update in config.updates:
        old, new = config.spec(update.old), config.spec(update.new)
        if not new.start and drawn(old) == drawn(new):
            yield (
                f"{new.name} replaces {old.name}, and run r of both has the same "
                "seeds; so that flips are not too few, give one of them others: "
                'train=(("seeds.base", 1),)'
            )


def run_study(
    config: StudyConfig,
    out: Path,
    *,
    only: tuple[str, ...] = (),
    sweep: SweepRecord | None = None,
    command: str = "",
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_plan: Callable[[Sequence[Program]], None] = lambda programs: None,
    on_start: Callable[[Program, bool], None] = lambda program, finished: None,
    on_progress: Callable[[Progress], None] | None = None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> Path:
    """Trains the methods of a study, teachers first; finished ones are kept.

    Args:
        config: the study.
        out: its folder; the same folder continues where it was left.
        only: names of methods to train, with their teachers; default all.
        sweep: the grid that the rows are points of; points of one structure are
            replicas of one program. None trains every row by itself.
        command: recorded in `study.json`.
        loggers: where the metrics of every row go in addition, as for `train`.
        on_plan: called with all programs before the first, each of one row or several.
        on_start: called with each program and whether it is finished already.
        on_progress: called after every evaluation.
        on_work: called about once a second with what is finished of a program.
        on_note: called with sentences for the user.
        stop: when set, a checkpoint is written and `Interrupted` raised.

    Returns:
        `out`.

    Raises:
        StudyError: `out` holds another study.
        ValueError: a column is unknown, or a network cannot be built.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    if sweep is None:
        config.spec(config.baseline)  # refuses an unknown name
    config, logging = importable(config), as_loggers(loggers)
    inputs = StudyInputs(config)
    config = inputs.described()
    dataset, selected = inputs.dataset, config.select(only)
    inputs.check(selected, "a study" if sweep is None else "a sweep")
    # Networks that cannot be built are said now and not after hours of other rows.
    alike = [[row] for row in selected] if sweep is None else together(config, selected)
    for row, *_ in alike:
        run = inputs.run(row)
        if run.clicks is None:
            check_run(run, dataset)
        if row.start:
            begun = inputs.run(config.spec(row.start))
            check_start(run, begun, split_example(dataset.train), begun.config.replicas)
    for sentence in (*config.notes, *_equal_starts(config)):
        on_note(sentence)
    for spec in selected:
        if spec.teaching.logits:
            logits_of(config, spec, inputs.of(spec).dataset)
    primary = jax.process_index() == 0
    with lock_folder(out):
        _check_shared_folder(out)
        names = tuple(spec.name for spec in selected)
        folder = StudyFolder(out, config, dataset, command, sweep, names)
        programs = {program.name: program for program in folder.plan(selected)}
        runs = {n: _run(inputs, program, sweep) for n, program in programs.items()}
        finished = {
            name: all(map(folder.finished, program.rows))
            for name, program in programs.items()
        }
        _check_agreement(
            {
                "config": to_json(config),
                "only": names,
                "sweep": to_json(folder.record.sweep),
                "data": dataset.fingerprint,
                "finished": [name for name, done in finished.items() if done],
            }
        )
        if primary:
            folder.write()
        on_plan([*programs.values()])
        trained: dict[str, Trained] = {}

        def trained_program(program: Program) -> Trained:
            """Trains, or restores what was trained before."""
            spec, count = program.rows[0], len(program.rows)
            launch = functools.partial(
                train,
                runs[program.name],
                **_given(inputs, spec, before, count),
                directory=folder.directory(program),
                loggers=logging,
                group=config.name,
                on_progress=on_progress,
                on_work=on_work,
                on_note=on_note,
                stop=stop,
                show_progress=False,
            )
            return folder.trained(spec, launch, on_note) if count == 1 else launch()

        def before(name: str) -> Trained:
            if name not in trained:
                trained[name] = trained_program(programs[name])
            return trained[name]

        todo = [program for name, program in programs.items() if not finished[name]]
        teachers = {n for p in todo for spec in p.rows for n in spec.dependencies}

        # In this thread alone: programs that run at once on several devices can hang.
        for name, program in programs.items():
            # Several processes agree to stop inside the training loop, at its updates.
            if jax.process_count() == 1 and stop is not None and stop.is_set():
                raise Interrupted(f"stopped before {name}")
            on_start(program, finished[name])
            if finished[name]:
                continue
            result = trained.get(name) or trained_program(program)
            if name in teachers:
                trained[name] = result
            records = row_records(config, program, result)
            # The row itself is written last: it says that everything is there.
            for weights in ("ema", "config"):
                rows = [row for row in records if row.weights == weights]
                for split in ("validation", "test") if rows else ():
                    if note := keep_split(result, dataset, split, rows, folder):
                        on_note(f"{rows[0].name if len(rows) == 1 else name}: {note}")
            if primary:
                folder.write(*records)
        return out


def _given(
    inputs: StudyInputs,
    spec: MethodSpec,
    trained: Callable[[str], Trained],
    count: int = 1,
) -> dict[str, Any]:
    """The arguments of `train` that say what `count` rows alike learn from."""
    own = inputs.of(spec)
    teacher = row_teachers(inputs.config, spec, trained, own.dataset)
    start = trained(spec.start) if spec.start else None
    # All rows have the same teachers, and start from the same weights.
    if teacher is not None:
        teacher = dataclasses.replace(teacher, repeats=count)
    if start is not None and count > 1:
        host = fetch((start.params, start.model_state))
        params, state = repeated(host, count)
        start = dataclasses.replace(start, params=params, model_state=state)
    return own._asdict() | {"teacher": teacher, "start": start}


def _run(inputs: StudyInputs, program: Program, sweep: SweepRecord | None) -> Run:
    """The run of a program, with the replicas of all its rows."""
    run = inputs.run(program.rows[0])
    try:
        if len(program.rows) > 1:
            method, train = stacked(inputs.config, program.rows)
            own: Any = {"name": program.name, "method": method, "config": train}
            run = dataclasses.replace(run, **own)
        if sweep is not None:
            run = replaced(run, [("config.mesh", sweep.mesh)])
    except ValueError as error:
        raise StudyError(f"{program.name}: {error}") from error
    return run if run.clicks else over_cores(run)


def _check_agreement(work: Mapping[str, Any]) -> None:
    """Refuses, on all processes, work (JSON values) that is not the same everywhere."""
    # Processes with other settings would wait for each other for ever, or average what
    # does not belong together.
    if jax.process_count() == 1:
        return
    texts = _gathered(json.dumps({**work, "jax": jax_settings()}, sort_keys=True))
    for process, text in enumerate(texts):
        if found := differences(json.loads(texts[0]), json.loads(text)):
            raise StudyError(
                f"process {process} was started for other work than process 0 "
                f"({in_words(found)}); start the same command on all"
            )


def _check_shared_folder(out: Path) -> None:
    """Refuses an output folder that not every process sees."""
    if jax.process_count() == 1:
        return
    first = jax.process_index() == 0
    token = _gathered(secrets.token_hex(8))[0]
    path = out / f".launch-{token}"
    if first:
        path.touch()
    _gathered("written")
    seen = _gathered("yes" if path.exists() else "no")
    if first:
        path.unlink()
    if "no" in seen:
        raise StudyError(
            f"process {seen.index('no')} does not see what process 0 writes into "
            f"{out}; all processes need one folder on a shared file system (--out), "
            "and studies at the same time a port each (--launch.coordinator)"
        )


def _gathered(text: str) -> list[str]:
    """The text of every process, on every process."""
    from jax.experimental import multihost_utils

    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(data.size, np.int32))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: data.size] = data
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(r[:n]).decode() for r, n in zip(rows, sizes.ravel(), strict=True)]


def run_sweep(
    config: StudyConfig,
    axes: Sequence[Axis],
    out: Path,
    *,
    seeds: int = 5,
    baseline: bool = True,
    criterion: str = "churn",
    points_per_program: int = 0,
    **options: Any,
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
        **options: as for `run_study`.

    Returns:
        Numbers of every point on both splits, and what the criterion picks.

    Raises:
        StudyError: `out` holds something else, or there is nothing to train.
        ValueError: an axis does not fit the study.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    axes = [axis.checked(config) for axis in axes]
    names = [axis.path for axis in axes]
    if not axes:
        raise StudyError("a sweep needs at least one METHOD.COEFFICIENT")
    if seeds < 2:
        raise StudyError(f"churn needs at least 2 seeds; got {seeds}")
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise StudyError(f"{twice} is named twice; give all its values at once")
    check_choice("criterion", criterion, CRITERIA)
    check_least("points_per_program", points_per_program, 0)
    study, sweep = swept(
        config,
        axes,
        seeds=seeds,
        baseline=baseline,
        criterion=criterion,
        points_per_program=points_per_program,
    )
    points = tuple(point.name for point in sweep.points)
    run_study(study, out, only=points, sweep=sweep, **options)
    any_process(False)  # a barrier: all predictions are written
    return collect(out)


class FinishedStudy:
    """A study's folder, opened to ask its trained networks something.

    Attributes:
        out: the folder.
        config: settings that the study was launched with, on a mesh of one device.
        inputs: the data set, and what each row was trained on.
        folder: its record.
    """

    def __init__(self, out: Path, data: DataConfig | None = None):
        """Reads the record and loads the data; `data` says where they are now."""
        recorded = read_study(out)
        config, self.out = recorded.config, Path(out)
        changes = {"train.mesh": MeshShape(), "data": data or config.data}
        self.config = replaced(config, changes.items())
        self.inputs = StudyInputs(self.config)
        there, here = recorded.data.fingerprint, self.dataset.fingerprint
        if there != here:
            raise StudyError(
                f"{self.config.data.name} is not what {self.out} was trained on "
                f"(fingerprint {there[:12]} there, {here[:12]} here)"
            )
        # Equal data may have another name by now, so the record's is taken.
        known = dataclasses.replace(self.config, data=config.data)
        self.folder = StudyFolder(self.out, known, self.dataset)

    @property
    def dataset(self) -> Any:
        """The study's data set."""
        return self.inputs.dataset

    def spec(self, name: str) -> MethodSpec:
        """The row called `name`."""
        names = [averaged_name(spec.name) for spec in self.config.methods]
        if name in names:
            raise StudyError(
                f"{name} is the averaged weights of another row; only the weights that "
                "a row deploys can be analysed"
            )
        spec = self.config.spec(name)
        if not self.folder.finished(spec):
            raise StudyError(f"{name} has not been trained yet in {self.out}")
        return spec

    def restore(self, spec: MethodSpec) -> Trained:
        """The row's trained replicas; its teachers are restored with it."""
        spec = self.spec(spec.name)
        run, folder = self.inputs.run(spec), self.folder.method_dir(spec.name)
        given = _given(self.inputs, spec, lambda n: self.restore(self.config.spec(n)))
        return restore(over_cores(run), directory=folder, **given)
