"""Trains every method of a study and leaves its artefacts in one folder."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import jax

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.studies.clicks import run_click_study
from churn_jax.studies.finished import row_run
from churn_jax.studies.folder import (
    StudyFolder,
    importable,
    row_records,
)
from churn_jax.studies.inputs import StudyInputs
from churn_jax.studies.predictions import keep_examples, keep_split
from churn_jax.studies.processes import check_agreement, check_shared_folder
from churn_jax.studies.teachers import logits_of, row_teachers
from churn_jax.training.examples import check_run, check_start, split_example
from churn_jax.training.folder_lock import check_lock, lock_folder
from churn_jax.training.loggers import Logger, as_loggers
from churn_jax.training.loop import compile_run, train
from churn_jax.training.program import over_cores
from churn_jax.training.progress import Work
from churn_jax.training.run import Interrupted, Progress, Run, Trained


def _training_cost(config: StudyConfig, spec: MethodSpec) -> float:
    """Networks trained, with those of its teachers; old models are deployed already."""
    own = float(spec.method.members)
    if spec.teacher is None:
        return own
    teacher = config.spec(spec.teacher)
    cost = _training_cost(config, teacher)
    if spec.teaching.members:
        cost *= spec.teaching.members / teacher.method.members
    return own + cost


def _check_starts(selected, runs: dict[str, Run], dataset) -> None:
    """Refuses rows whose networks are not those of the row that they start from."""
    example = split_example(dataset.train)
    for spec in selected:
        if spec.start:
            check_start(runs[spec.name], runs[spec.start], example)


def _equal_starts(config: StudyConfig) -> tuple[str, ...]:
    """Sentences about updates whose two versions are drawn with equal seeds."""
    # Run r of both would have the same initial weights and order of data, so fewer
    # predictions flip than between versions that are trained years apart.

    def drawn(spec: MethodSpec):
        train = spec.config(config.train)
        network = dataclasses.replace(spec.model or config.model, dropout=0.0)
        return network, spec.models, train.seeds, train.numbers, spec.taught

    sentences = []
    for update in config.updates:
        if update.from_file or config.spec(update.new).start:
            continue
        old, new = config.spec(update.old), config.spec(update.new)
        if drawn(old) == drawn(new):
            sentences.append(
                f"{new.name} replaces {old.name}, and run r of both has the same "
                "initial weights and data order; so that flips are not too few, give "
                'one of them other seeds: train=(("seeds.base", 1),)'
            )
    return tuple(sentences)


# Rows that are compiled before they train; fewer than what `make_step` keeps.
_AHEAD = 4
# Finished rows with which a report is tried, if all runs of a row have so few logits.
_ENOUGH_ROWS = 2
_FEW_LOGITS = 10_000_000


@contextlib.contextmanager
def _compiling_ahead(
    rows: Sequence[MethodSpec],
    compile_row: Callable[[MethodSpec], None],
    compile_report: Callable[[], None],
) -> Iterator[Callable[[MethodSpec, int], None]]:
    """While rows train, a thread compiles the next ones that have no teacher.

    Once two rows are finished it compiles what their report needs. Yields a function to
    be called before each row is trained, with the number of those that are finished. On
    CPU only, where compiling is long and a second copy of the weights does not fill a
    device.
    """
    useful = jax.process_count() == 1 and jax.default_backend() == "cpu"
    waiting = {r.name: r for r in rows if useful and not r.taught and not r.start}
    begun: dict[str, Future] = {}
    report = [compile_report] if useful else []
    thread = ThreadPoolExecutor(1)

    def before(row: MethodSpec, finished: int) -> None:
        waiting.pop(row.name, None)
        own = begun.pop(row.name, None)
        for name in list(waiting)[: _AHEAD - len(begun)]:
            begun[name] = thread.submit(compile_row, waiting.pop(name))
        if finished >= _ENOUGH_ROWS and report:
            thread.submit(report.pop())  # what it raises the report raises again
        if own is not None and not own.cancel():
            wait([own])  # what it raised the training raises again

    try:
        yield before
    finally:
        thread.shutdown(cancel_futures=True)


def run_study(
    config: StudyConfig,
    out: Path,
    *,
    only: tuple[str, ...] = (),
    command: str = "",
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_start: Callable[[MethodSpec, bool], None] = lambda spec, finished: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> Path:
    """Trains the methods of a study, teachers first; finished ones are kept.

    Args:
        config: the study.
        out: its folder; the same folder continues where it was left.
        only: names of methods to train, with their teachers; default all.
        command: recorded in `study.json`.
        loggers: where the metrics of every row go in addition, as for `train`.
        on_start: called with each method and whether it is finished already.
        on_progress: called after every evaluation.
        on_work: called about once a second with what is finished of a method.
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
    config, logging = importable(config), as_loggers(loggers)
    if config.train.one_pass is not None:
        return run_click_study(
            config,
            out,
            only=only,
            command=command,
            loggers=logging,
            on_start=on_start,
            on_progress=on_progress,
            on_work=on_work,
            on_note=on_note,
            stop=stop,
        )
    inputs = StudyInputs(config)
    config = inputs.described()
    dataset, selected = inputs.dataset, config.select(only)
    inputs.check(selected, "a study")
    # Networks that cannot be built are said now and not after hours of other rows.
    runs = {spec.name: row_run(config, spec, dataset.num_classes) for spec in selected}
    for name, run in runs.items():
        check_run(run, dataset)
        runs[name] = over_cores(run)
    _check_starts(selected, runs, dataset)
    for sentence in (*config.notes, *_equal_starts(config)):
        on_note(sentence)
    for spec in selected:
        if spec.teaching.logits:
            own = inputs.of(spec).dataset
            logits_of(spec, own, config.train.replicas, dataset.num_classes)
    primary = jax.process_index() == 0
    with lock_folder(out), contextlib.ExitStack() as opened:
        check_shared_folder(out)
        folder = StudyFolder(out, config, dataset, command)
        folder.select(tuple(spec.name for spec in selected))
        trained: dict[str, Trained] = {}
        finished = {spec.name: folder.finished(spec) for spec in selected}
        check_agreement(
            {
                "config": to_json(config),
                "only": [spec.name for spec in selected],
                "data": dataset.fingerprint,
                "finished": [name for name, done in finished.items() if done],
            }
        )
        if primary:
            folder.write()

        def trained_row(spec: MethodSpec) -> Trained:
            """Trains, or restores what was trained before."""
            own = inputs.of(spec)
            launch = functools.partial(
                train,
                runs[spec.name],
                own.dataset,
                directory=folder.method_dir(spec.name),
                teacher=row_teachers(
                    config, spec, before, own.dataset, dataset.num_classes
                ),
                start=before(spec.start) if spec.start else None,
                mean=own.mean,
                std=own.std,
                loggers=logging,
                group=config.name,
                on_progress=on_progress,
                on_work=on_work,
                on_note=on_note,
                stop=stop,
                show_progress=False,
            )
            return folder.trained(spec, launch, on_note)

        def before(name: str) -> Trained:
            if name not in trained:
                trained[name] = trained_row(config.spec(name))
            return trained[name]

        teachers = {
            n for spec in selected if not finished[spec.name] for n in spec.dependencies
        }

        def compile_row(spec: MethodSpec) -> None:
            own = inputs.of(spec)
            compile_run(runs[spec.name], own.dataset, mean=own.mean, std=own.std)

        def compile_report() -> None:
            logits = config.train.replicas * len(dataset.test) * dataset.num_classes
            if logits <= _FEW_LOGITS:
                # Imports take a while, too, and are of use at the end only.
                import matplotlib.backends.backend_svg  # noqa: F401

                from churn_jax.reports import collect

                collect(out)

        todo = [spec for spec in selected if not finished[spec.name]]
        compile_ahead = opened.enter_context(
            _compiling_ahead(todo, compile_row, compile_report)
        )
        for before_it, spec in enumerate(selected):
            # Several processes agree to stop inside the training loop, at its updates.
            if jax.process_count() == 1 and stop is not None and stop.is_set():
                raise Interrupted(f"stopped before {spec.name}")
            on_start(spec, finished[spec.name])
            if finished[spec.name]:
                continue
            compile_ahead(spec, before_it)
            result = trained.get(spec.name) or trained_row(spec)
            if spec.name in teachers:
                trained[spec.name] = result
            cost = _training_cost(config, spec)
            rows = row_records(config, spec, result, cost)
            # The row itself is written last: it says that everything is there.
            for row in reversed(rows):
                own = folder.method_dir(row.name)
                check_lock(own)
                for split in ("validation", "test"):
                    meta = {
                        "method": row.name,
                        "study": config.name,
                        "fingerprint": dataset.fingerprint,
                        "split": split,
                        "stopped": to_json(row.stopped),
                    }
                    note = keep_split(
                        result,
                        dataset,
                        split,
                        own,
                        config.evaluation,
                        weights=row.weights,
                        meta=meta,
                    )
                    if note:
                        on_note(f"{row.name}: {note}")
                if primary and row.name == config.baseline:
                    keep_examples(out, own, dataset)
            if primary:
                folder.write(*rows)
        return out
