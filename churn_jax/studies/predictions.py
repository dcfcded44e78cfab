"""Predictions of trained rows: kept in their folders, and as teachers of other rows."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.class_sets import known_classes
from churn_compare.example_ids import PredictionsError, rows_of, some
from churn_compare.store import (
    INDEX,
    Predictions,
    load_predictions,
    save_predictions,
    shard_folder,
)
from churn_jax import metrics
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.data import Dataset, StreamingDataset
from churn_jax.ensembles import Group, average_logits, average_probs
from churn_jax.methods import deploy, neighbour_targets
from churn_jax.reports.artefacts import FILES
from churn_jax.reports.members import MEMBERS, MOST_NUMBERS, Members, save_members
from churn_jax.studies.folder import StudyFolder
from churn_jax.training.folder_lock import check_lock
from churn_jax.training.partition import any_process, fetch
from churn_jax.training.predictions import placed, predict_split, write_predictions
from churn_jax.training.run import Trained
from churn_jax.training.teachers import Teachers


def predict_split_of(
    trained: Trained,
    dataset: Dataset | StreamingDataset,
    split: str,
    weights: str = "config",
    *,
    deployed: bool = True,
) -> tuple[np.ndarray | None, Members | None, str]:
    """Deployed logits, if wanted, members' where their mean is deployed, and a note.

    Both come from one pass over the images. Only where the members' logits are more
    than `MOST_NUMBERS` numbers are they predicted separately, of the test split, for as
    many evenly spaced examples as that allows.
    """
    method, part = trained.run.method, getattr(dataset, split)
    per_example = trained.run.config.replicas * method.members * dataset.num_classes
    most = MOST_NUMBERS // per_example
    if method.deploys_a_mean and len(part) <= most:
        every = trained.predict(part, weights, every_member=True)
        members = Members(part.ids, part.labels, every)
        if not deployed:
            return None, members, ""
        mean = jax.jit(lambda logits: deploy(method, logits))
        return np.stack([np.asarray(mean(run)) for run in every]), members, ""
    logits = trained.predict(part, weights) if deployed else None
    if not method.deploys_a_mean:
        return logits, None, ""
    many = f"{len(part) * per_example:,} logits of members on the {split} split"
    if isinstance(dataset, StreamingDataset) or not most or split != "test":
        return logits, None, f"{many} are not kept"
    spaced = part.take(np.linspace(0, len(part) - 1, most).astype(int))
    every = trained.predict(spaced, weights, every_member=True)
    members = Members(spaced.ids, spaced.labels, every)
    note = f"of {many} those of {most:,} examples of {len(part):,} are kept"
    return logits, members, note


def keep_split(
    trained: Trained,
    dataset: Any,
    split: str,
    rows: Sequence[RowRecord],
    folder: StudyFolder,
) -> str:
    """Predicts a split and leaves the predictions in the folders of rows; a note.

    The replicas of rows that were trained together follow each other. All processes
    call it. What was there of the split in the other form is removed first, so that a
    row never has both; a launch that dies on the way leaves nothing that looks
    finished.
    """
    config, weights = folder.config, rows[0].weights
    part, primary = getattr(dataset, split), jax.process_index() == 0
    runs = trained.run.config.replicas // len(rows)
    sharded, members, note = False, None, ""
    if trained.scores is not None:  # of clicks, those of the stream are the test's
        first, held_out = trained.scores.first, split == "validation"
        part = part if held_out else dataset.train.take(slice(first, None))
        if not len(part):
            return ""
        logits = trained.scores.held_out if held_out else trained.scores.stream
        ids = part.keys
    else:
        ids, classes = part.ids, dataset.num_classes
        # Rows of one program are few runs of small networks, so they are kept in files.
        alone = len(rows) == 1
        sharded = alone and config.evaluation.sharded(runs, len(part), classes)
        logits, members, note = predict_split_of(
            trained, dataset, split, weights, deployed=not sharded
        )
    for number, row in enumerate(rows):
        check_lock(own := folder.method_dir(row.name))
        path, these = own / FILES[split], slice(number * runs, (number + 1) * runs)
        meta = {
            "method": row.name,
            "study": config.name,
            "fingerprint": dataset.fingerprint,
            "split": split,
            "stopped": to_json(row.stopped),
        }
        if primary:
            if sharded:
                path.unlink(missing_ok=True)
            if (shards := shard_folder(path)).exists():
                # First, since the index says that all shards are there.
                (shards / INDEX).unlink(missing_ok=True)
                shutil.rmtree(shards)
            if members is not None:
                every = dataclasses.replace(members, logits=members.logits[these])
                save_members(own / MEMBERS[split], every)
        if logits is None:
            any_process(False)  # a barrier: what was there is gone before writing
            write_predictions(
                trained, part, shard_folder(path), weights=weights, meta=meta
            )
        elif primary:
            found = logits[these]
            if trained.scores is not None:
                found = np.stack([np.zeros_like(found), found], axis=-1)
            save_predictions(path, Predictions(ids, part.labels, found, meta))
    return note


_LEAST_SHARE = 1e-30  # of a class without neighbours: logits that teach are finite


def row_teachers(
    config: StudyConfig, spec: MethodSpec, trained: Callable[[str], Trained], dataset
) -> Teachers | None:
    """The teacher and the old models of a row, as its `Teaching` says; None without.

    `trained` gives the trained row of a name; `dataset` is what the row is trained on:
    its training split for cached logits, its validation split for temperatures.
    """
    teaching = spec.teaching
    if not spec.taught:
        return None
    old = tuple(trained(name) for name in teaching.old)
    if teaching.logits:
        return Teachers(None, old, cached=logits_of(config, spec, dataset))
    if spec.teacher is None:
        return Teachers(None, old)
    teacher, groups = trained(spec.teacher), ()
    predictor = teacher
    if teaching.dtype:
        row = config.spec(spec.teacher).computing_in(teaching.dtype, config.model)
        # A checkpoint knows the teacher by its networks' names.
        for of in row.groups(config.model, dataset.num_classes):
            name = f"{of.network.name} in {teaching.dtype}"
            groups += (Group(dataclasses.replace(of.network, name=name), of.size),)
        program = dataclasses.replace(teacher.program, groups=groups)
        predictor = dataclasses.replace(teacher, program=program)
    temperatures, first = None, teaching.members or None
    if teaching.calibrated:
        every = predictor.predict(dataset.validation, every_member=True)
        temperatures = _temperatures(every[:, :first], dataset.validation.labels)
    options = (teaching.members, groups, temperatures)
    teachers = Teachers(teacher, old, *options, targets="True")
    if not teaching.offline:
        return teachers
    train, program, near = dataset.train, predictor.program, teaching.neighbours
    by_probs = spec.method.teacher_average == "probs" and not near
    average = jax.jit(jax.vmap(average_probs if by_probs else average_logits))

    def mean(members):  # [R, M, B, C]: those of all examples may not fit
        members = fetch(members)[:, :first]
        if temperatures is not None:
            cooled = members / temperatures[:, :, None, None]
            members = np.where(known_classes(members), cooled, members)
        return average(members)

    held, rows = predictor.chunks(), placed(train, program)
    found = predict_split(predictor.run, program, held, rows, True, mean)
    cached = np.asarray(fetch(found))
    if near:
        labels, uniform = jnp.asarray(train.labels), teaching.uniform
        shares = [neighbour_targets(z, labels, near, uniform=uniform) for z in cached]
        cached = np.log(np.maximum(np.stack(shares), _LEAST_SHARE))
    cached = cached[:, None]
    targets = f"{near} neighbours, uniform {teaching.uniform:g}" if near else "True"
    return dataclasses.replace(teachers, cached=cached, targets=targets)


def logits_of(config: StudyConfig, spec: MethodSpec, dataset) -> np.ndarray:
    """`[R, 1, N, C]` of the row's training examples, from its file of predictions."""
    path, ids, known = spec.teaching.logits, dataset.train.ids, dataset.num_classes
    found, replicas = load_predictions(path), spec.config(config.train).replicas
    runs, _, classes = found.shape
    if runs not in (1, replicas) or classes != known:
        raise PredictionsError(
            f"{path}: {spec.name} needs logits of one run or of {replicas}, with "
            f"{known} classes; got {runs} runs and {classes} classes"
        )
    rows = rows_of(ids, found.ids)
    other = found.labels[rows] != dataset.train.labels
    for wrong, what in ((rows < 0, "no logits"), (other, "other labels")):
        if wrong.any():
            raise PredictionsError(
                f"{path}: {wrong.sum()} of {len(ids)} training examples of {spec.name} "
                f"have {what} there, for example {some(ids[wrong])}; give logits with "
                "the study's ids, labels and classes"
            )
    logits = np.stack([found.logits[run, rows] for run in range(runs)])
    if not np.all(np.isfinite(logits)):
        raise PredictionsError(f"{path}: logits that teach must be finite")
    return np.broadcast_to(logits, (replicas, *logits.shape[1:]))[:, None]


def _temperatures(every: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`[R, T]`, each fitted on the examples of classes that the member knows."""
    given = jnp.asarray(labels)

    @jax.jit
    def fit(z):
        known = known_classes(jnp.take_along_axis(z, given[:, None], axis=1)[:, 0])
        return metrics.fit_temperature(z, given, known)

    return np.asarray([[fit(z) for z in run] for run in every], np.float32)
