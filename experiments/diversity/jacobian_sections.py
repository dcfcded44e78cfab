"""Sections `jacobians` and `matching`: do students move as their teachers do?"""

import functools

import jax
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.rows import MethodSpec
from churn_jax.typing import Array
from experiments.diversity.jacobian_matching import (
    GradientMoments,
    jacobian_matching_gradient,
)
from experiments.diversity.jacobians import jacobian_similarity
from experiments.diversity.networks import (
    RowNetworks,
    Structure,
    over_chunks,
    to_pixels,
)
from experiments.diversity.spread import example_keys, moved_pixels, steps_of
from experiments.diversity.study import AnalysedStudy, spaced

CHUNK = 50  # examples whose Jacobians are in memory at once
DRAWN = ("gaussian", "ods")


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


def similarities(analysed: AnalysedStudy) -> dict[str, np.ndarray]:
    """By student row: cosines of teachers' and members' Jacobians, `[R, M, N]`."""
    pixels = to_pixels(analysed.test(analysed.options.jacobian_examples).images)
    found = {}
    for spec, taught_by in analysed.students().items():
        teacher = analysed.networks(taught_by.name)
        student = analysed.networks(spec.name)
        found[spec.name] = np.stack(
            [_similarities(teacher, student, run, pixels) for run in analysed.runs]
        )
    return found


def _similarities(teacher: RowNetworks, student: RowNetworks, run: int, pixels):
    variables = teacher.replica(run), student.replica(run)
    compare = functools.partial(
        _similarity, teacher.structure, student.structure, *variables
    )
    members = [functools.partial(compare, np.int32(m)) for m in range(student.members)]
    return np.stack([over_chunks(one, (pixels,), CHUNK, axis=0) for one in members])


def matching(analysed: AnalysedStudy) -> dict[str, dict[str, np.ndarray]]:
    """By row distilled on clean images and kind of step: signal to noise, `[R]`."""
    return {
        spec.name: {
            kind: np.array(
                [_matching(analysed, spec, taught_by, kind, r) for r in analysed.runs]
            )
            for kind in DRAWN
        }
        for spec, taught_by in analysed.students().items()
        if spec.method.one_to_one and spec.method.perturbation == "none"
    }


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
    analysed: AnalysedStudy,
    spec: MethodSpec,
    taught_by: MethodSpec,
    kind: str,
    run: int,
) -> float:
    """Signal-to-noise ratio on one batch of training images."""
    teacher, student = analysed.networks(taught_by.name), analysed.networks(spec.name)
    options = analysed.options
    batch = spaced(analysed.train(spec), options.batch)
    pixels = to_pixels(batch.images)
    theirs, own = teacher.replica(run), student.replica(run)
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
            teacher.structure, student.structure, moments, theirs, own, pixels, moved
        )
    return float(moments.signal_to_noise())
