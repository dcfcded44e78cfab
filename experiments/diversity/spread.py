"""Sections `teachers` and `students`: how much the members of a row differ, and where.

Teachers see training images, clean and perturbed as their students' methods perturb
them, without augmentation; teachers and students see clean test images.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_jax import metrics, perturbations
from churn_jax.configuration.rows import MethodSpec
from churn_jax.data import Split
from churn_jax.ensembles import average_probs
from churn_jax.methods.perturbing import Perturbing
from churn_jax.typing import Array, Logits
from experiments.diversity.networks import (
    RowNetworks,
    Structure,
    chunks,
    member_logits,
    over_chunks,
    to_pixels,
)
from experiments.diversity.study import AnalysedStudy, DiversityOptions, spaced

# As reports show them; `transfer` follows a network that teaches nobody here.
KINDS = ("clean", "gaussian", "ods", "conf_ods", "transfer", "adversarial", "test")
LARGEST = 250  # examples per call
SHARES = (5, 25, 50, 75, 95)  # percent, of a box over all examples


class Step(NamedTuple):
    """How far a perturbation moves an image."""

    size: float  # eta, RMS change per pixel
    temperature: float  # tau, of the teacher's probabilities
    pixel_range: tuple[float, float] | None  # to which pixels are clipped


class Spread(NamedTuple):
    """How much the members of a row differ on one kind of images, R runs."""

    edges: np.ndarray  # `[bins + 1]` of the least confidence among members
    counts: np.ndarray  # `[R, bins]`, examples
    bin_mean_kl: np.ndarray  # `[R, bins]`, nats; nan in an empty bin
    quartiles: np.ndarray  # `[R, 5, bins]`, nats
    mean_kl: np.ndarray  # `[R]`, nats
    box: np.ndarray  # `[R, 5]`, the 5th, 25th, 50th, 75th and 95th percentile, nats
    accuracy: np.ndarray  # `[R]`, of the mean of the members' probabilities

    @classmethod
    def of(cls, runs: Sequence[dict[str, np.ndarray]]) -> Self:
        """The runs together."""
        fields = {name: np.stack([run[name] for run in runs]) for name in cls._fields}
        return cls(**fields | {"edges": fields["edges"][0]})

    @property
    def by_bin(self) -> np.ndarray:
        """`[bins]`, mean KL of the examples of all runs; nan where there are none."""
        total = self.counts.sum(axis=0)
        summed = np.nansum(self.counts * np.nan_to_num(self.bin_mean_kl), axis=0)
        return summed / np.where(total, total, np.nan)

    @property
    def shares(self) -> np.ndarray:
        """`[bins]`, share of the examples of all runs."""
        return self.counts.sum(axis=0) / self.counts.sum()


def steps_of(analysed: AnalysedStudy, teacher: MethodSpec, kind: str, run: int) -> Step:
    """The step of a row that learns from the teacher with this perturbation.

    Where no row does, of the first that perturbs at all; where none does, the default
    step with the first student's temperature.
    """
    taught = [
        spec.method
        for spec in analysed.study.config.methods
        if spec.teacher == teacher.name and isinstance(spec.method, Perturbing)
    ]
    wanted = "ods" if kind == "transfer" else kind
    same = [m for m in taught if m.perturbation == wanted]
    moving = [m for m in taught if m.perturbation != "none"]
    method: Any = next(iter([*same, *moving, *taught]), Perturbing())

    def number(value) -> float:
        numbers = np.ravel(np.asarray(value, np.float64))
        return float(numbers[run if len(numbers) > 1 else 0])

    return Step(
        number(method.step_size),
        number(getattr(method, "temperature", 1.0)),
        method.pixel_range,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def moved_pixels(
    structure: Structure,
    kind: str,
    pixel_range: tuple[float, float] | None,
    variables: PyTree,
    pick: Array,
    pixels: Array,
    labels: Array,
    keys: Array,
    step_size: Array,
    temperature: Array,
) -> Array:
    """Pixels after a perturbation along a direction of the picked network."""
    predict = structure.predict(variables)

    def drawn(x):
        return predict(x, pick)

    options: dict[str, Any] = {"step_size": step_size, "pixel_range": pixel_range}
    if kind == "gaussian":
        return perturbations.gaussian(pixels, keys, **options)
    options["temperature"] = temperature
    if kind == "adversarial":
        return perturbations.adversarial(drawn, pixels, labels, **options)
    move = perturbations.conf_ods if kind == "conf_ods" else perturbations.ods
    return move(drawn, pixels, keys, **options)


def example_keys(seed: int, run: int, count: int, draw: int = 0) -> Array:
    """`[count]` keys, one per example."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), run), draw)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))


@functools.partial(jax.jit, static_argnums=2)
def _measure(logits: Logits, labels: Array, bins: int, temperature: Array):
    tempered = logits / temperature
    kl = metrics.pairwise_kl(tempered)
    return {
        "accuracy": metrics.accuracy(average_probs(logits), labels),
        "box": jnp.percentile(kl, jnp.array(SHARES, jnp.float32)),
        **metrics.diversity_by_confidence(tempered, bins)._asdict(),
    }


def _measured(
    logits: np.ndarray, labels: np.ndarray, options: DiversityOptions
) -> dict[str, Any]:
    """Numbers of `diversity_by_confidence`, a box over all examples, the accuracy."""
    tau = np.float32(options.temperature)
    return jax.device_get(_measure(logits, labels.astype(np.int32), options.bins, tau))


def _size(count: int, members: int) -> int:
    """Examples per call, so that each network leads in as many as the others."""
    share = -(-count // members)
    return -(-share // -(-share // LARGEST))


def teachers(analysed: AnalysedStudy) -> dict[str, dict[str, Spread]]:
    """By ensemble of teachers: training images, clean and moved, and test images."""
    found = {}
    for spec in analysed.teachers():
        runs = [_teachers(analysed, spec, run) for run in analysed.runs]
        kinds = {kind: [run[kind] for run in runs] for kind in runs[0]}
        found[spec.name] = {kind: Spread.of(of) for kind, of in kinds.items()}
    return found


def students(analysed: AnalysedStudy) -> dict[str, Spread]:
    """By row with several members: clean test images."""
    test, options = analysed.test(), analysed.options
    found = {}
    for spec in analysed.several():
        row = analysed.networks(spec.name)
        runs = [_clean(row, row.replica(r), test, options) for r in analysed.runs]
        found[spec.name] = Spread.of(runs)
    return found


def _teachers(analysed: AnalysedStudy, spec: MethodSpec, run: int):
    """Clean and perturbed training images and clean test images of one replica."""
    # Every network leads a direction for an equal share of the images, where training
    # draws one network per batch.
    row, options = analysed.networks(spec.name), analysed.options
    train = spaced(analysed.train(spec), options.examples)
    variables = row.replica(run)
    found = {"clean": _clean(row, variables, train, options)}
    # Replicas are independent, so the next one's networks teach none of these students.
    runs = analysed.runs
    other = runs[(runs.index(run) + 1) % len(runs)]
    for kind in KINDS[1:-1]:
        if kind == "transfer" and other == run:
            continue
        guides = row.replica(other) if kind == "transfer" else variables
        step = steps_of(analysed, spec, kind, run)
        pixels = _moved(row, guides, kind, step, train, options.seed, run)
        found[kind] = _clean(row, variables, train, options, pixels)
    found["test"] = _clean(row, variables, analysed.test(), options)
    return found


def _clean(
    row: RowNetworks,
    variables: PyTree,
    split: Split,
    options: DiversityOptions,
    pixels: np.ndarray | None = None,
) -> dict[str, Any]:
    """The measures of a split, or of other pixels with its labels."""
    shown = to_pixels(split.images) if pixels is None else pixels
    ask = functools.partial(member_logits, row.structure, variables)
    size = _size(len(shown), row.members)
    return _measured(over_chunks(ask, (shown,), size, axis=1), split.labels, options)


def _moved(
    row: RowNetworks,
    guides: PyTree,
    kind: str,
    step: Step,
    split: Split,
    seed: int,
    run: int,
) -> np.ndarray:
    """All images after their step; every network leads in an equal share of them."""
    pixels = to_pixels(split.images)
    keys = example_keys(seed, run, len(split))
    move: Callable = functools.partial(
        moved_pixels, row.structure, "ods" if kind == "transfer" else kind
    )
    pieces = []
    size = _size(len(split), row.members)
    for number, (rows, kept) in enumerate(chunks(len(split), size)):
        moved = move(
            step.pixel_range,
            guides,
            np.int32(number % row.members),
            pixels[rows],
            split.labels[rows],
            keys[rows],
            np.float32(step.size),
            np.float32(step.temperature),
        )
        pieces.append(np.asarray(moved)[:kept])
    return np.concatenate(pieces)
