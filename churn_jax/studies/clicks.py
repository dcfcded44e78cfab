"""A study of clicks: rows are trained in one pass, their scores kept as logits."""

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_compare.store import Predictions, save_predictions
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.data.clicks import Clicks, load_clicks
from churn_jax.reports.artefacts import TEST, VALIDATION
from churn_jax.studies.folder import StudyFolder
from churn_jax.studies.processes import check_agreement, check_shared_folder
from churn_jax.training.click_feed import ClickScores
from churn_jax.training.clicks import click_run
from churn_jax.training.folder_lock import check_lock, lock_folder
from churn_jax.training.loggers import Logger
from churn_jax.training.loop import train
from churn_jax.training.progress import Work
from churn_jax.training.run import Interrupted, Progress, Run, Trained


def row_clicks(config: StudyConfig, spec: MethodSpec, data: Clicks) -> Run:
    """The training of one row.

    Raises:
        ValueError: the row needs what one pass does not have, or the click model
            cannot be built.
    """
    for name in ("models", "train_size", "separate", "classes", "start", "taught"):
        if getattr(spec, name):
            raise ValueError(f"{spec.name}: a row of a study of clicks has no {name}")
    model = (spec.model or config.model).click_model(
        data.sizes, data.train.numeric.shape[1], spec.method
    )
    return click_run(spec.name, spec.method, model, spec.config(config.train))


def run_click_study(
    config: StudyConfig,
    out: Path,
    *,
    only: tuple[str, ...],
    command: str,
    loggers: Sequence[str | Logger],
    on_start: Callable[[MethodSpec, bool], None],
    on_progress: Callable[[Progress], None],
    on_work: Callable[[Work], None],
    on_note: Callable[[str], None],
    stop: threading.Event | None,
) -> Path:
    """`run_study` of rows that learn in one pass."""
    own, selected = config.data, config.select(only)
    data = load_clicks(
        own.name, train_size=own.train_size, validation=_share(own.validation)
    )
    # Before the first row trains.
    runs = {spec.name: row_clicks(config, spec, data) for spec in selected}
    primary = jax.process_index() == 0
    with lock_folder(out):
        check_shared_folder(out)
        folder = StudyFolder(out, config, data, command)
        folder.select(tuple(spec.name for spec in selected))
        check_agreement(
            {
                "config": to_json(config),
                "only": [spec.name for spec in selected],
                "data": data.fingerprint,
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
                train,
                runs[spec.name],
                data,
                directory=folder.method_dir(spec.name),
                loggers=loggers,
                group=config.name,
                on_progress=on_progress,
                on_work=on_work,
                on_note=on_note,
                stop=stop,
                show_progress=False,
            )
            result = folder.trained(spec, launch, on_note)
            if primary:
                check_lock(out)
                meta = {
                    "method": spec.name,
                    "study": config.name,
                    "fingerprint": data.fingerprint,
                    "stopped": to_json(result.stopped),
                }
                _keep(folder.method_dir(spec.name), result.scores, data, meta)
                folder.write(_record(spec, result))
    return out


def _share(validation: int | float | None) -> float | None:
    return None if validation is None else float(validation)


def _keep(
    folder: Path, scores: ClickScores, data: Clicks, meta: dict[str, Any]
) -> None:
    """Leaves the scores as predictions of two classes, the stream's as the test's."""
    for path, part, found in (
        (VALIDATION, data.validation, scores.held_out),
        (TEST, data.train.take(slice(scores.first, None)), scores.stream),
    ):
        if len(part):
            logits = np.stack([np.zeros_like(found), found], axis=-1)
            save_predictions(
                folder / path, Predictions(part.keys, part.labels, logits, meta)
            )


def _record(spec: MethodSpec, trained: Trained) -> RowRecord:
    return RowRecord(
        name=spec.name,
        label=spec.label,
        spec=spec,
        training_cost=float(spec.method.members),
        seconds=round(trained.seconds, 3),
        parameters=trained.parameters,
        stopped=trained.stopped,
    )
