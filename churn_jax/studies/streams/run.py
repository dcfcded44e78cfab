"""Trains every row of a stream study and leaves its artefacts in one folder."""

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.streams import StreamSpec, StreamStudyConfig
from churn_jax.studies.inputs import StudyError
from churn_jax.studies.processes import check_agreement, check_shared_folder
from churn_jax.studies.streams.folder import StreamFolder, stream_row
from churn_jax.studies.streams.inputs import open_stream
from churn_jax.training.folder_lock import lock_folder
from churn_jax.training.loggers import Logger, as_loggers
from churn_jax.training.progress import Work
from churn_jax.training.progressive import StreamRun, run_stream
from churn_jax.training.run import Interrupted


def run_stream_study(
    config: StreamStudyConfig,
    out: Path,
    *,
    only: tuple[str, ...] = (),
    command: str = "",
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_start: Callable[[StreamSpec, bool], None] = lambda spec, finished: None,
    on_progress: Callable[[Any], None] = lambda progress: None,
    on_work: Callable[[Work], None] = lambda work: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> Path:
    """Trains the rows of a stream study, one pass each; finished ones are kept.

    Args:
        config: the study.
        out: its folder; the same folder continues where it was left, in the middle of
            the stream.
        only: names of rows; default all.
        command: recorded in `study.json`.
        loggers: where the metrics of every row go in addition, as for `train`.
        on_start: called with each row and whether it is finished already.
        on_progress: called after every stretch of the stream.
        on_work: called after every window of it.
        on_note: called with sentences for the user.
        stop: when set, a checkpoint is written and `Interrupted` raised.

    Returns:
        `out`.

    Raises:
        StudyError: `out` holds another study, or there is no data.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    selected, logging = config.select(only), as_loggers(loggers)
    stream = open_stream(config.data)
    config = _with_warm_start(config, stream, on_note)
    sizes, numeric = stream.schema.sizes, len(stream.schema.numeric)
    # Before the first row trains.
    runs = {spec.name: stream_run(config, spec, sizes, numeric) for spec in selected}
    primary = jax.process_index() == 0
    with lock_folder(out):
        check_shared_folder(out)
        folder = StreamFolder(out, config, stream, command)
        folder.select(tuple(spec.name for spec in selected))
        check_agreement(
            {
                "config": to_json(config),
                "only": [spec.name for spec in selected],
                "data": stream.fingerprint,
            }
        )
        if primary:
            folder.write()

        for spec in selected:
            if jax.process_count() == 1 and stop is not None and stop.is_set():
                raise Interrupted(f"stopped before {spec.name}")
            finished = folder.finished(spec)
            on_start(spec, finished)
            if finished:
                continue
            launch = functools.partial(
                run_stream,
                runs[spec.name],
                stream,
                folder.method_dir(spec.name),
                loggers=logging,
                group=config.name,
                on_progress=on_progress,
                on_work=on_work,
                on_note=on_note,
                stop=stop,
            )
            result = folder.trained(spec, launch, on_note)
            if primary:
                folder.write(stream_row(spec, result))
        return out


def stream_run(
    config: StreamStudyConfig, spec: StreamSpec, sizes: tuple[int, ...], numeric: int
) -> StreamRun:
    """What is trained for one row, on tables of `sizes` and numeric features."""
    towers = spec.model or config.model
    model = towers.build(sizes, numeric, spec.method.members)
    return StreamRun(spec.name, spec.method, model, spec.config(config.train))


def _with_warm_start(config: StreamStudyConfig, stream, on_note) -> StreamStudyConfig:
    """The study with `warm_share` as a number of examples, if that is more."""
    if not config.warm_share:
        return config
    on_note("counting the examples, for the share that is the warm start")
    count, train = stream.count(), config.train
    warm = max(int(config.warm_share * count), train.warm_examples)
    train = dataclasses.replace(train, warm_examples=warm)
    if train.warm_windows * train.window >= count:
        raise StudyError(
            f"a warm start of {train.warm_windows} windows of {train.window} leaves "
            f"none of the stream's {count} examples to compare; use a smaller "
            "--window"
        )
    return dataclasses.replace(config, train=train)
