"""Sections of the analyses: a function from the study to numbers by row."""

import functools
import itertools
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from scipy import special, stats

from churn_jax import data, metrics, perturbations
from churn_jax.configuration.rows import MethodSpec
from churn_jax.data import DataError, Split, is_tokens
from churn_jax.methods.perturbing import Perturbing
from churn_jax.typing import Array, Logits
from experiments.diversity.corrupted_images import corrupted_sets
from experiments.diversity.jacobians import (
    GradientMoments,
    jacobian_matching_gradient,
    jacobian_similarity,
)
from experiments.diversity.study import (
    AnalysedStudy,
    RowNetworks,
    evenly,
    over_chunks,
    spaced,
    to_pixels,
)

# As reports show them; `transfer` follows a network that teaches nobody here.
KINDS = ("clean", "gaussian", "ods", "conf_ods", "transfer", "adversarial", "test")
LARGEST = 250  # examples per call that are moved
CHUNK = 50  # examples whose Jacobians are in memory at once
SHARES = (5, 25, 50, 75, 95)  # percent, of a box over all examples

# ---- teachers, students: how much the members of a row differ, and where -------------


class Spread(NamedTuple):
    """How much the members of a row differ on one kind of images, R runs."""

    edges: np.ndarray  # `[bins + 1]` of the least confidence among members
    counts: np.ndarray  # `[R, bins]`, examples
    bin_mean_kl: np.ndarray  # `[R, bins]`, nats; nan in an empty bin
    mean_kl: np.ndarray  # `[R]`, nats
    box: np.ndarray  # `[R, 5]`, the percentiles `SHARES`, nats

    @classmethod
    def of(cls, logits: np.ndarray, bins: int, temperature: float) -> Self:
        """Numbers of members' logits `[R, M, N, C]`."""
        tau = np.float32(temperature)
        runs = [jax.device_get(_spread(run, bins, tau)) for run in logits]
        found = {name: np.stack([run[name] for run in runs]) for name in cls._fields}
        return cls(**found | {"edges": found["edges"][0]})

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


@functools.partial(jax.jit, static_argnums=1)
def _spread(logits: Logits, bins: int, temperature: Array) -> dict[str, Array]:
    tempered = logits / temperature
    box = jnp.percentile(metrics.pairwise_kl(tempered), jnp.array(SHARES, jnp.float32))
    return {"box": box, **metrics.diversity_by_confidence(tempered, bins)._asdict()}


def teachers(analysed: AnalysedStudy) -> dict[str, dict[str, Spread]]:
    """By ensemble of teachers: training images, clean and moved, and test images.

    Training images are moved as the students' methods move them, without augmentation.
    """
    options, runs = analysed.options, analysed.runs
    found = {}
    for spec in analysed.teachers():
        row = analysed.networks(spec.name)
        train = analysed.train(spec, options.examples)
        logits = {"clean": analysed.logits(spec, train.images, every_member=True)}
        for kind in KINDS[1:-1]:
            if kind != "transfer" or len(runs) > 1:
                moved = [_logits_of_moved(analysed, row, kind, train, r) for r in runs]
                logits[kind] = np.stack(moved)
        test = analysed.test().images
        logits["test"] = analysed.logits(spec, test, every_member=True)
        found[spec.name] = {
            kind: Spread.of(of, options.bins, options.temperature)
            for kind, of in logits.items()
        }
    return found


def students(analysed: AnalysedStudy) -> dict[str, Spread]:
    """By row with several members: clean test images."""
    images, options = analysed.test().images, analysed.options
    return {
        spec.name: Spread.of(
            analysed.logits(spec, images, every_member=True),
            options.bins,
            options.temperature,
        )
        for spec in analysed.several()
    }


class Step(NamedTuple):
    """How far a perturbation moves an image."""

    size: np.float32  # eta, RMS change per pixel
    temperature: np.float32  # tau, of the teacher's probabilities
    pixel_range: tuple[float, float] | None  # to which pixels are clipped


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

    def number(value) -> np.float32:
        numbers = np.ravel(np.asarray(value, np.float32))
        return numbers[run if len(numbers) > 1 else 0]

    tau = getattr(method, "temperature", 1.0)
    return Step(number(method.step_size), number(tau), method.pixel_range)


@functools.partial(jax.jit, static_argnames=("row", "kind", "pixel_range"))
def moved_pixels(
    row: RowNetworks,
    kind: str,
    variables: PyTree,
    pick: Array,
    pixels: Array,
    labels: Array,
    keys: Array,
    *,
    size: Array,
    temperature: Array,
    pixel_range: tuple[float, float] | None,
) -> Array:
    """Pixels after a `Step` along a direction of the network of this number."""
    predict = row.predict(variables)

    def drawn(x):
        return predict(x, pick)

    options: dict[str, Any] = {"step_size": size, "pixel_range": pixel_range}
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


@functools.partial(jax.jit, static_argnums=0)
def _member_logits(row: RowNetworks, variables: PyTree, pixels: Array) -> Logits:
    return row.predict(variables)(pixels).astype(jnp.float32)


def _logits_of_moved(
    analysed: AnalysedStudy, row: RowNetworks, kind: str, split: Split, run: int
) -> np.ndarray:
    """`[M, N, C]` on all images after their step.

    Every network leads a direction for an equal share of the images, where training
    draws one network per batch.
    """
    members = row.spec.method.members
    share = -(-len(split) // members)
    size = -(-share // -(-share // LARGEST))
    leads = np.arange(len(split), dtype=np.int32) // size % members
    guide = run
    if kind == "transfer":
        # Replicas are independent: the next one's networks teach none of these.
        runs = analysed.runs
        guide = runs[(runs.index(run) + 1) % len(runs)]
    step = steps_of(analysed, row.spec, kind, run)
    own, teacher = "ods" if kind == "transfer" else kind, row.replica(guide)

    def move(lead, *rest):
        return moved_pixels(row, own, teacher, lead[0], *rest, **step._asdict())

    keys = example_keys(analysed.options.seed, run, len(split))
    arrays = leads, to_pixels(split.images), split.labels, keys
    pixels = over_chunks(move, arrays, size)
    ask = functools.partial(_member_logits, row, row.replica(run))
    return over_chunks(ask, (pixels,), size, axis=1)


# ---- jacobians, matching: do students move as their teachers do? ---------------------


@functools.partial(jax.jit, static_argnums=(0, 1))
def _similarity(
    teacher: RowNetworks,
    student: RowNetworks,
    variables: tuple[PyTree, PyTree],
    member: Array,
    pixels: Array,
) -> Array:
    of_teacher, of_student = map(RowNetworks.predict, (teacher, student), variables)
    return jacobian_similarity(
        lambda x: of_teacher(x, member), lambda x: of_student(x, member), pixels
    )


def similarities(analysed: AnalysedStudy) -> dict[str, np.ndarray]:
    """By student row: cosines of teachers' and members' Jacobians, `[R, M, N]`."""
    pixels = to_pixels(analysed.test(analysed.options.jacobian_examples).images)
    found = {}
    for spec, taught_by in analysed.students().items():
        pair = [analysed.networks(of.name) for of in (taught_by, spec)]
        runs = []
        for run in analysed.runs:
            replicas = tuple(row.replica(run) for row in pair)
            compare = functools.partial(_similarity, *pair, replicas)
            runs.append(
                [
                    over_chunks(functools.partial(compare, m), (pixels,), CHUNK)
                    for m in np.arange(spec.method.members, dtype=np.int32)
                ]
            )
        found[spec.name] = np.array(runs)
    return found


def matching(analysed: AnalysedStudy) -> dict[str, dict[str, np.ndarray]]:
    """By row distilled on clean images and kind of step: signal to noise, `[R]`."""
    return {
        spec.name: {
            kind: np.array(
                [_matching(analysed, spec, taught_by, kind, r) for r in analysed.runs]
            )
            for kind in ("gaussian", "ods")
        }
        for spec, taught_by in analysed.students().items()
        if spec.method.one_to_one and spec.method.perturbation == "none"
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def _add(
    teacher: RowNetworks,
    student: RowNetworks,
    moments: GradientMoments,
    theirs: PyTree,
    own: tuple[PyTree, ...],
    pixels: Array,
    moved: Array,
) -> GradientMoments:
    """One more draw; rows of the batch are (member, example), as in the loss."""
    members = student.spec.method.members

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
    batch = analysed.train(spec, options.batch)
    pixels = to_pixels(batch.images)
    theirs, own = teacher.replica(run), student.replica(run)
    step = steps_of(analysed, taught_by, kind, run)._asdict()
    step["temperature"] = np.float32(1.0)
    moments = GradientMoments.empty(tuple(v["params"] for v in own))
    for draw in range(options.draws):
        lead = np.int32(draw % spec.method.members)
        keys = example_keys(options.seed, run, len(batch), 1 + draw)
        example = lead, pixels, batch.labels, keys
        moved = moved_pixels(teacher, kind, theirs, *example, **step)
        moments = _add(teacher, student, moments, theirs, own, pixels, moved)
    return float(moments.signal_to_noise())


# ---- ood: are predictions on foreign images less sure? -------------------------------


class OutOfDistribution(NamedTuple):
    """Entropies of R runs on images of the data set and on foreign ones, in nats.

    Attributes:
        inside: `[R, N]` float64.
        outside: `[R, N2]`, on the foreign images.
        highest: log C.

    References:
        [diversity] Fig. 8
    """

    inside: np.ndarray
    outside: np.ndarray
    highest: float

    @property
    def auroc(self) -> np.ndarray:
        """`[R]`, probability that a foreign image has the higher entropy, ties half."""
        pairs = self.inside.shape[-1] * self.outside.shape[-1]
        test = stats.mannwhitneyu(self.outside, self.inside, axis=-1)
        return test.statistic / pairs


def out_of_distribution(own: np.ndarray, foreign: np.ndarray) -> OutOfDistribution:
    """Entropies of logits `[R, N, C]` and `[R, N2, C]`; the paper has histograms only.

    References:
        [diversity] Fig. 8
    """
    entropies = (
        stats.entropy(special.softmax(np.asarray(x, np.float64), axis=-1), axis=-1)
        for x in (own, foreign)
    )
    return OutOfDistribution(*entropies, highest=float(np.log(own.shape[-1])))


def foreign_images(analysed: AnalysedStudy) -> np.ndarray:
    """The test images of the data set that `--ood` names."""
    config = analysed.study.config.data
    name = analysed.options.ood
    if name == config.name:
        raise DataError(f"--ood {name}: the study's own data set is not foreign to it")
    if data.is_streaming(name, data_dir=config.data_dir):
        raise DataError(f"{name} is a stream; name a data set that lies in memory")
    found = data.load(
        name, data_dir=config.data_dir, manual_dir=config.manual_dir, text=config.text()
    ).test
    _check_images(analysed, name, found.images)
    return spaced(found, analysed.options.examples).images


def _check_images(analysed: AnalysedStudy, name: str, images: np.ndarray) -> None:
    own = analysed.dataset.test.images
    tokens = is_tokens(images) != is_tokens(own)
    if images.shape[1:] != own.shape[1:] or tokens:
        raise DataError(
            f"{name} has images {images.shape[1:]} of {images.dtype}, but the networks "
            f"of this study take {own.shape[1:]} of {own.dtype}"
        )


def foreign(analysed: AnalysedStudy) -> dict[str, OutOfDistribution]:
    """By row: entropies on own and on foreign test images."""
    sets = analysed.test().images, foreign_images(analysed)
    return {
        spec.name: out_of_distribution(*(analysed.logits(spec, x) for x in sets))
        for spec in analysed.rows
    }


# ---- corruptions: quality on corrupted test images -----------------------------------

QUANTITIES = ("accuracy", "nll", "ece")


class CorruptionSummary(NamedTuple):
    """Three quantities of R runs on K kinds of corruption at S severities.

    Accuracy in [0, 1], NLL in nats, ECE of 15 bins.

    Attributes:
        severities: the S severities, rising.
        values: `[K, S, 3, R]`, in the order of `QUANTITIES`.

    References:
        [diversity] Table 3
        [diversity] Fig. 9
    """

    severities: tuple[int, ...]
    values: np.ndarray

    def mean(self, quantity: str) -> np.ndarray:
        """`[R]`, mean over kinds and severities: a cell of Table 3."""
        return self.values[:, :, QUANTITIES.index(quantity)].mean(axis=(0, 1))

    def quartiles(self, quantity: str) -> np.ndarray:
        """`[S, 5]`: smallest value, quartiles and largest of a box of Figure 9.

        A box is over the kinds, of each kind's mean over runs.
        """
        kinds = self.values[:, :, QUANTITIES.index(quantity)].mean(axis=-1)
        return np.quantile(kinds, [0, 0.25, 0.5, 0.75, 1], axis=0).T


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None), out_axes=-1)
def measure(logits: Logits, labels: Array) -> Array:
    """`[3, R]`, the `QUANTITIES` of logits `[R, N, C]` and labels `[N]`."""
    return jnp.stack(
        [
            metrics.accuracy(logits, labels),
            metrics.negative_log_likelihood(logits, labels),
            metrics.expected_calibration_error(logits, labels),
        ]
    )


def corruptions(analysed: AnalysedStudy) -> dict[str, CorruptionSummary]:
    """By row: every quantity on every corrupted test set, which is made once."""
    config, options = analysed.study.config.data, analysed.options
    sets = corrupted_sets(
        config.name,
        analysed.test(),
        manual_dir=config.manual_dir,
        kinds=options.types,
        severities=options.severities,
    )
    severities = tuple(sorted(set(sets.severities)))
    found: dict[str, list] = {spec.name: [] for spec in analysed.rows}
    for kind, severity in itertools.product(sets.corruptions, severities):
        images, labels = sets.read(kind, severity)
        # A published set is whole; one that was made is of these examples already.
        kept = evenly(len(labels), options.examples)
        images, labels = images[kept], np.asarray(labels)[kept]
        _check_images(analysed, sets.source, images)
        for spec in analysed.rows:
            values = measure(analysed.logits(spec, images), labels)
            found[spec.name].append(np.asarray(values, np.float64))
    size = len(sets.corruptions), len(severities)
    return {
        row: CorruptionSummary(severities, np.stack(cells).reshape(*size, 3, -1))
        for row, cells in found.items()
    }
