"""Sections `jacobians` and `matching`: do students move as their teachers do?"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.rows import MethodSpec
from churn_jax.methods import Method
from churn_jax.typing import Array
from experiments.diversity.jacobian_matching import (
    GradientMoments,
    jacobian_matching_gradient,
)
from experiments.diversity.jacobians import jacobian_similarity
from experiments.diversity.networks import Structure, over_chunks, to_pixels
from experiments.diversity.spread import (
    Step,
    example_keys,
    moved_pixels,
    steps_of,
)
from experiments.diversity.study import AnalysedStudy, Part, spaced

CHUNK = 50  # examples whose Jacobians are in memory at once
SHARES = (5, 25, 50, 75, 95)  # percent
DRAWN = ("gaussian", "ods")


def _teacher(analysed: AnalysedStudy, student: MethodSpec) -> MethodSpec:
    found = analysed.teacher_of(student)
    if found is None:
        raise ValueError(f"{student.name} has no teacher to be compared with")
    return found


def jacobian_parts(analysed: AnalysedStudy) -> list[Part]:
    """One part per student row and replica: similarities `[M, N]` on test images."""
    rows = [(spec, _teacher(analysed, spec)) for spec in analysed.students()]
    return analysed.parts(_similarities, rows)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _similarity(
    teacher: Structure,
    student: Structure,
    teacher_variables: PyTree,
    variables: PyTree,
    member: Array,
    pixels: Array,
) -> Array:
    of_teacher = teacher.predict(teacher_variables)
    of_student = student.predict(variables)
    return jacobian_similarity(
        lambda x: of_teacher(x, member),
        lambda x: of_student(x, member),
        pixels,
        chunk_size=pixels.shape[0],
    )


def _similarities(
    analysed: AnalysedStudy, spec: MethodSpec, taught_by: MethodSpec, run: int
) -> tuple[Any, np.ndarray]:
    teacher, student = analysed.networks(taught_by.name), analysed.networks(spec.name)
    pixels = to_pixels(analysed.test(analysed.options.jacobian_examples).images)
    theirs, own = teacher.replica(run), student.replica(run)
    found = []
    for member in range(student.members):
        compare = functools.partial(
            _similarity, teacher.structure, student.structure, theirs, own
        )
        one = functools.partial(compare, np.int32(member))
        found.append(over_chunks(one, (pixels,), CHUNK, axis=0))
    similarity = np.stack(found)
    value = {
        "teacher": taught_by.name,
        "mean": similarity.mean(axis=1),
        "box": np.percentile(similarity, SHARES),
    }
    return value, similarity


def matching_parts(analysed: AnalysedStudy) -> list[Part]:
    """One part per replica of the rows that are distilled without a perturbation."""

    def plain(method: Method) -> bool:
        return method.one_to_one and method.perturbation == "none"

    def steps(teacher: MethodSpec, run: int) -> list[Step]:
        return [steps_of(analysed, teacher, kind, run) for kind in DRAWN]

    rows = [
        (spec, _teacher(analysed, spec))
        for spec in analysed.students()
        if plain(spec.method)
    ]
    return analysed.parts(_matching, rows, steps)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _add(
    teacher: Structure,
    student: Structure,
    moments: GradientMoments,
    theirs: PyTree,
    own: tuple[PyTree, ...],
    pixels: Array,
    moved: Array,
) -> GradientMoments:
    """One more draw; rows of the batch are (member, example), as in the loss."""
    members = student.method.members

    def rows(logits):
        return logits[:members].reshape(-1, logits.shape[-1])

    def with_params(params, x):
        pairs = zip(own, params, strict=True)
        return rows(student.predict([{**v, "params": p} for v, p in pairs])(x))

    return moments.update(
        jacobian_matching_gradient(
            lambda x: rows(teacher.predict(theirs)(x)),
            with_params,
            tuple(v["params"] for v in own),
            pixels,
            moved - pixels,
        )
    )


def _matching(
    analysed: AnalysedStudy, spec: MethodSpec, taught_by: MethodSpec, run: int
) -> tuple[Any, None]:
    """Signal-to-noise ratios on one batch of training images."""
    teacher, student = analysed.networks(taught_by.name), analysed.networks(spec.name)
    options = analysed.options
    batch = spaced(analysed.train(spec), options.batch)
    pixels = to_pixels(batch.images)
    theirs, own = teacher.replica(run), student.replica(run)
    found = {}
    for kind in DRAWN:
        step = steps_of(analysed, taught_by, kind, run)
        moments = GradientMoments.empty(tuple(v["params"] for v in own))
        for draw in range(options.draws):
            moved = moved_pixels(
                teacher.structure,
                kind,
                step.pixel_range,
                theirs,
                np.int32(draw % student.members),
                pixels,
                batch.labels,
                example_keys(options.seed, run, len(batch), 1 + draw),
                np.float32(step.size),
                np.float32(1.0),
            )
            moments = _add(
                teacher.structure,
                student.structure,
                moments,
                theirs,
                own,
                pixels,
                moved,
            )
        ratio = float(moments.signal_to_noise())
        found[kind] = {"signal_to_noise": ratio, "size": step.size}
    return found, None
