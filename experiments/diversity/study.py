"""A finished study prepared for the analyses: its rows, its networks, its examples."""

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import jax
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.rows import MethodSpec
from churn_jax.data import Dataset, Split
from churn_jax.data.augment import normalize
from churn_jax.data.splits import is_tokens
from churn_jax.setting_checks import check_least
from churn_jax.studies.inputs import StudyError
from churn_jax.studies.study import FinishedStudy
from churn_jax.training.run import Trained
from churn_jax.training.teachers import Teacher, TeacherProgram
from churn_jax.typing import Array, Logits


@dataclasses.dataclass(frozen=True)
class DiversityOptions:
    """An analysis of a finished study.

    The paper's counts of examples and draws are lost in our copy of its text; these are
    ours.

    Attributes:
        rows: names of rows; empty is all that have finished.
        examples: number of examples of the training split, the test split, a foreign or
            a corrupted set, evenly spaced; all if there are fewer.
        jacobian_examples: the same for the Jacobians.
        bins: bins of confidence.
        temperature: temperature of the softmax before the KL of teachers and of
            students; a loss at tau = 4 sees that at 4, and the paper's figures have 1.
        draws: S, number of perturbations for a signal-to-noise ratio.
        batch: number of examples in the batch whose gradient that is.
        ood: a data set whose test images are foreign; empty for none.
        types: kinds of corruption; empty for all.
        severities: severities of corruptions; empty for all.
        seed: seed of guides and noise.
    """

    rows: tuple[str, ...] = ()
    examples: int = 2000
    jacobian_examples: int = 500
    bins: int = 10
    temperature: float = 1.0
    draws: int = 50
    batch: int = 64
    ood: str = ""
    types: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self):
        """Checks the counts."""
        for name in ("examples", "jacobian_examples", "bins", "batch"):
            check_least(name, getattr(self, name), 1)
        check_least("draws", self.draws, 2)
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature must be positive and finite; got {self.temperature}"
            )


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


class AnalysedStudy:
    """The study, and what has been restored of it.

    Attributes:
        runs: replicas that stopped in none of the rows, and in no teacher of theirs.
    """

    def __init__(self, study: FinishedStudy, options: DiversityOptions):
        """Finds the rows."""
        if not isinstance(study.dataset, Dataset):
            raise StudyError(
                f"{study.config.data.name} is a stream; these analyses take data sets "
                "that lie in memory"
            )
        self.study, self.options = study, options
        self.dataset: Dataset = study.dataset
        names = options.rows or tuple(
            spec.name for spec in study.config.methods if study.folder.finished(spec)
        )
        self.rows = tuple(study.spec(name) for name in dict.fromkeys(names))
        if not self.rows:
            raise StudyError(f"no row of {study.out} has been trained yet")
        taught = (spec.teacher for spec in self.students())
        stopped = {
            replica
            for name in {*(spec.name for spec in self.rows), *filter(None, taught)}
            for replica in study.folder.record.row(name).stopped_replicas
        }
        self.runs = sorted(set(range(study.config.train.replicas)) - stopped)
        if not self.runs:
            raise StudyError(f"every run of {study.out} stopped in one of its rows")
        self._networks: dict[str, RowNetworks] = {}

    def networks(self, name: str) -> RowNetworks:
        """A row's networks, restored once."""
        if name not in self._networks:
            spec = self.study.spec(name)
            self._networks[name] = RowNetworks.of(spec, self.study.restore(spec))
        return self._networks[name]

    def logits(self, spec: MethodSpec, images, *, every_member=False) -> np.ndarray:
        """Deployed logits `[R, N, C]` of the runs, or every member's `[R, M, N, C]`."""
        trained = self.networks(spec.name).trained
        return trained.predict(images, every_member=every_member)[self.runs]

    def several(self) -> list[MethodSpec]:
        """The rows with several members."""
        return [spec for spec in self.rows if spec.method.members > 1]

    def teacher_of(self, spec: MethodSpec) -> MethodSpec | None:
        """The ensemble whose m-th network member m of a row is compared with.

        The row's own teacher, or for a row without one the first ensemble that
        teaches another as many members; None where there is none.
        """
        config = self.study.config
        if spec.teacher is not None:
            return config.spec(spec.teacher)
        for other in config.methods:
            if other.teacher is None or other.teacher == spec.name:
                continue
            pairs = other.method.one_to_one
            if pairs and other.method.members == spec.method.members:
                return config.spec(other.teacher)
        return None

    def teachers(self) -> list[MethodSpec]:
        """The selected rows that teach another and have several members."""
        taught_by = {spec.teacher for spec in self.study.config.methods}
        return [spec for spec in self.several() if spec.name in taught_by]

    def students(self) -> dict[MethodSpec, MethodSpec]:
        """Selected rows whose members can be compared with a teacher each, and it."""
        found = {}
        for spec in self.several():
            teacher = self.teacher_of(spec)
            if teacher is None or not self.study.folder.finished(teacher):
                continue
            if spec.method.members <= teacher.method.members:
                if spec.name != teacher.name and spec not in self.teachers():
                    found[spec] = teacher
        return found

    def train(self, spec: MethodSpec, count: int) -> Split:
        """Evenly spaced examples of those that a row was trained on."""
        train = self.study.inputs.of(spec).dataset.train
        if not isinstance(train, Split):
            raise StudyError(f"{spec.name} was trained on a stream")
        return spaced(train, count)

    def test(self, count: int | None = None) -> Split:
        """Evenly spaced test examples."""
        return spaced(self.dataset.test, count or self.options.examples)


def spaced(split: Split, count: int) -> Split:
    """At most so many examples, evenly spaced from the first to the last."""
    return split.take(evenly(len(split), count)) if count < len(split) else split


def evenly(total: int, count: int) -> np.ndarray:
    """Rows of at most `count` of so many examples, from the first to the last."""
    if count >= total:
        return np.arange(total)
    return np.linspace(0, total - 1, count).astype(int)


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
