"""A finished row's networks as functions of pixels, replica by replica."""

import dataclasses
from collections.abc import Callable
from typing import Self

import jax
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.rows import MethodSpec
from churn_jax.data.augment import normalize
from churn_jax.data.splits import is_tokens
from churn_jax.training.run import Trained
from churn_jax.training.teachers import Teacher, TeacherProgram
from churn_jax.typing import Array, Logits


@dataclasses.dataclass(frozen=True)
class RowNetworks:
    """A trained row; rows of equal networks share what is compiled for them."""

    key: str  # of the networks, their shapes and what is done to pixels
    spec: MethodSpec = dataclasses.field(compare=False)
    trained: Trained = dataclasses.field(compare=False)
    # on the host, leaves `[R, S, ...]`
    variables: PyTree = dataclasses.field(compare=False)

    @classmethod
    def of(cls, spec: MethodSpec, trained: Trained) -> Self:
        """The networks that a study has restored."""
        program = trained.program
        groups = [(g.network.name, g.size, g.gate) for g in program.groups]
        shapes = jax.tree.map(lambda x: x.shape, trained.params)
        pixels = (program.mean, program.std, program.member_mapping)
        key = repr((groups, shapes, *pixels, spec.model, spec.models))
        return cls(key, spec, trained, trained.teacher_variables())

    def replica(self, number: int) -> tuple[PyTree, ...]:
        """One replica's variables on the device, leaves `[S, ...]`."""
        return jax.device_put(jax.tree.map(lambda x: x[number], self.variables))

    def predict(self, variables: PyTree) -> Callable[..., Logits]:
        """`(pixels, pick=None)` to logits of all members, or of the picked one.

        `variables` are of one replica, leaves `[S, ...]`; pixels `[B, ...]` uint8 or in
        [0, 1], or token ids; logits `[M, B, C]`, or `[B, C]` with `pick`, in eval mode.
        Gradients flow to the pixels.
        """
        program = self.trained.program
        own = TeacherProgram(program.groups, False, program.member_mapping)
        network = Teacher(own, tuple(variables), 1)

        def ask(pixels: Array, pick: Array | None = None) -> Logits:
            return network(normalize(pixels, program.mean, program.std), pick)

        return ask


def to_pixels(images: np.ndarray) -> np.ndarray:
    """Images on the scale on which perturbations step, float32; not token ids."""
    if is_tokens(images):
        return images
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32)


def over_chunks(
    compute: Callable[..., Array], arrays: tuple, size: int, axis: int = 0
) -> np.ndarray:
    """Calls `compute` with rows of the arrays and joins its results along `axis`.

    All chunks have one length, so that one compilation serves them; the last is padded
    with row 0.
    """
    total = len(arrays[0])
    size, pieces = min(size, total), []
    for start in range(0, total, size):
        rows = np.arange(start, start + size)
        rows = np.where(rows < total, rows, 0)
        piece = np.asarray(compute(*(array[rows] for array in arrays)))
        pieces.append(piece.take(range(min(size, total - start)), axis=axis))
    return np.concatenate(pieces, axis=axis)
