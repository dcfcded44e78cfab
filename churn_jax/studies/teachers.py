"""The teachers of a study's row, made of the rows that are trained."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.class_sets import known_classes
from churn_compare.example_ids import PredictionsError, rows_of, some
from churn_compare.store import load_predictions
from churn_jax import metrics
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.ensembles import Group, average_logits
from churn_jax.methods import neighbour_targets
from churn_jax.studies.predictions import split_logits
from churn_jax.training.run import Trained
from churn_jax.training.teachers import Teachers

_LEAST_SHARE = 1e-30  # of a class without neighbours: logits that teach are finite


def row_teachers(
    config: StudyConfig,
    spec: MethodSpec,
    trained: Callable[[str], Trained],
    dataset,
    num_classes: int,
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
        replicas = spec.config(config.train).replicas
        cached = logits_of(spec, dataset, replicas, num_classes)
        return Teachers(None, old, cached=cached)
    if spec.teacher is None:
        return Teachers(None, old)
    teacher, groups = trained(spec.teacher), ()
    predictor = teacher
    if teaching.dtype:
        row = config.spec(spec.teacher).computing_in(teaching.dtype, config.model)
        # A checkpoint knows the teacher by its networks' names.
        for of in row.groups(config.model, num_classes):
            name = f"{of.network.name} in {teaching.dtype}"
            groups += (Group(dataclasses.replace(of.network, name=name), of.size),)
        program = dataclasses.replace(teacher.program, groups=groups)
        predictor = dataclasses.replace(teacher, program=program)
    temperatures, first = None, teaching.members or None
    if teaching.calibrated:
        every = split_logits(predictor, dataset, "validation", every_member=True)
        temperatures = _temperatures(every[:, :first], dataset.validation.labels)
    teachers = Teachers(teacher, old, teaching.members, groups, temperatures)
    if not teaching.offline:
        return teachers
    members = split_logits(predictor, dataset, "train", every_member=True)[:, :first]
    if temperatures is not None:
        cooled = members / temperatures[:, :, None, None]
        members = np.where(known_classes(members), cooled, members)
    labels, near = jnp.asarray(dataset.train.labels), teaching.neighbours
    average = jax.jit(average_logits)

    def answers(run):
        logits = average(jnp.asarray(run))
        if not near:
            return np.asarray(logits)[None]
        shares = neighbour_targets(logits, labels, near, uniform=teaching.uniform)
        return np.log(np.maximum(shares, _LEAST_SHARE))[None]

    cached = np.stack([answers(run) for run in members])
    targets = f"{near} neighbours, uniform {teaching.uniform:g}" if near else ""
    return dataclasses.replace(teachers, cached=cached, targets=targets)


def logits_of(spec: MethodSpec, dataset, replicas: int, num_classes: int) -> np.ndarray:
    """`[R, 1, N, C]` of the row's training examples, from its file of predictions."""
    path, ids = spec.teaching.logits, dataset.train.ids
    found = load_predictions(path)
    runs, _, classes = found.shape
    if runs not in (1, replicas) or classes != num_classes:
        raise PredictionsError(
            f"{path}: {spec.name} needs logits of one run or of {replicas}, with "
            f"{num_classes} classes; got {runs} runs and {classes} classes"
        )
    rows = rows_of(ids, found.ids)
    missing = ids[rows < 0]
    if len(missing):
        raise PredictionsError(
            f"{path}: {len(missing)} of {len(ids)} training examples of {spec.name} "
            f"have no logits, for example {some(missing)}"
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
