"""A finished row's networks as functions of pixels, replica by replica."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.rows import MethodSpec
from churn_jax.data.augment import normalize
from churn_jax.data.splits import is_tokens
from churn_jax.ensembles import Group, Outputs, apply_committee
from churn_jax.methods import Method, deploy
from churn_jax.training.run import Trained
from churn_jax.training.teachers import Teacher, TeacherProgram
from churn_jax.typing import Array, Logits


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """Compiled functions of a row; rows with equal networks share them."""

    groups: tuple[Group, ...]
    mapping: str  # of its networks, vmap or unroll
    mean: float | tuple[float, ...]  # of pixels in [0, 1]
    std: float | tuple[float, ...]
    method: Method  # says what is deployed

    def predict(self, variables: PyTree) -> Callable[..., Logits]:
        """`(pixels, pick=None)` to logits of all members, or of the picked one.

        `variables` are of one replica, leaves `[S, ...]`; pixels `[B, ...]` uint8 or in
        [0, 1], or token ids; logits `[M, B, C]`, or `[B, C]` with `pick`, in eval mode.
        Gradients flow to the pixels.
        """
        program = TeacherProgram(self.groups, False, self.mapping)
        network = Teacher(program, tuple(variables), 1)

        def predict(pixels, pick=None):
            return network(normalize(pixels, self.mean, self.std), pick)

        return predict

    def outputs(self, variables: PyTree, pixels: Array) -> Outputs:
        """Everything that all members return for pixels or token ids, in eval mode."""
        return apply_committee(
            self.groups,
            list(variables),
            normalize(pixels, self.mean, self.std),
            mapping=self.mapping,
            train=False,
        )[0]


@dataclasses.dataclass(frozen=True, eq=False)
class RowNetworks:
    """A trained row; its variables are on the host, leaves `[R, S, ...]`."""

    spec: MethodSpec
    structure: Structure
    variables: tuple[PyTree, ...]

    @classmethod
    def of(
        cls, spec: MethodSpec, trained: Trained, known: dict[str, Structure]
    ) -> "RowNetworks":
        """The networks of a restored row; a new structure is added to `known`."""
        program, method = trained.program, spec.method
        groups = [(g.network.name, g.size, g.gate) for g in program.groups]
        shapes = jax.tree.map(lambda x: x.shape, trained.params)
        settings = (program.mean, program.std, program.member_mapping)
        settings += (method.deploy, method.deployed_member, spec.model, spec.models)
        key = repr((groups, shapes, *settings))
        if key not in known:
            known[key] = Structure(
                program.groups,
                program.member_mapping,
                program.mean,
                program.std,
                method,
            )
        return cls(spec, known[key], trained.teacher_variables())

    @property
    def members(self) -> int:
        """M."""
        return self.spec.method.members

    def replica(self, number: int) -> tuple[PyTree, ...]:
        """One replica's variables on the device, leaves `[S, ...]`."""
        return jax.device_put(jax.tree.map(lambda x: x[number], self.variables))


@functools.partial(jax.jit, static_argnums=0)
def member_logits(structure: Structure, variables: PyTree, pixels: Array) -> Logits:
    """Every member's logits `[M, B, C]`, float32."""
    return structure.predict(variables)(pixels).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def deployed_logits(structure: Structure, variables: PyTree, pixels: Array) -> Logits:
    """Deployed logits of the row, `[B, C]`."""
    outputs = structure.outputs(variables, pixels)
    return deploy(structure.method, outputs.logits, outputs.gate)


def to_pixels(images: np.ndarray) -> np.ndarray:
    """Images on the scale on which perturbations step, float32; not token ids."""
    if is_tokens(images):
        return images
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32)


def chunks(total: int, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows of every chunk, all of one length, and how many of them are not padding."""
    size = min(size, total)
    for start in range(0, total, size):
        rows = np.arange(start, start + size)
        yield np.where(rows < total, rows, 0), min(size, total - start)


def over_chunks(
    compute: Callable[..., Array], arrays: tuple[np.ndarray, ...], size: int, axis: int
) -> np.ndarray:
    """Calls `compute` with rows of the arrays and joins its results along `axis`."""
    pieces = []
    for rows, kept in chunks(len(arrays[0]), size):
        piece = np.asarray(compute(*(array[rows] for array in arrays)))
        pieces.append(piece.take(range(kept), axis=axis))
    return np.concatenate(pieces, axis=axis)
