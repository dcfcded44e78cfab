"""The numbers of a method whose predictions do not fit into memory, block by block."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from churn_compare.class_sets import known_classes
from churn_compare.example_ids import some
from churn_compare.store import (
    Predictions,
    PredictionsError,
    TooLargeError,
    fits_whole,
)
from churn_jax import metrics
from churn_jax.metrics.pair_metrics import PairMetric, streaming
from churn_jax.metrics.pairs import sum_blocks
from churn_jax.reports.curves import (
    RELIABILITY_BINS,
    Curves,
    confidence_counts,
    curves_of_bins,
    reliability_bins,
)
from churn_jax.reports.estimates import of_set_sums, set_sums
from churn_jax.reports.summary import (
    PAIRS,
    MethodSummary,
    assembled,
    check_same_runs,
    runs_counted,
    symmetric,
)

BLOCK_NUMBERS = 2**22  # logits held at once; what is computed takes ten times that
PAIR_BYTES = 4 * 2**20  # of scores that pairs of runs are compared on at once
# Numbers of each run; scores need labels.
_ALONE: Mapping[str, Callable[[], Any]] = {
    "confidence": metrics.ConfidenceState.empty,
    "entropy": metrics.EntropyState.empty,
}
_SCORES: Mapping[str, Callable[[], Any]] = {
    "accuracy": metrics.AccuracyState.empty,
    "nll": metrics.NLLState.empty,
    "brier": metrics.BrierState.empty,
    "ece": functools.partial(metrics.ECEState.empty, RELIABILITY_BINS),
}


class Pass:
    """What one pass over all examples gives; it refuses logits that are not finite."""

    def __init__(self, predictions: Predictions, runs: Sequence[int]):
        labels = predictions.labels.astype(np.int32)
        states = _empty({**_ALONE, **_SCORES}, len(runs))
        known = np.zeros(predictions.shape[2], bool)
        finite = _Finite(runs, predictions.ids)
        counts, bins, pairs, examples = 0, 0.0, None, 0
        classes, ambiguity = [], []
        self.sets: list[dict[str, np.ndarray]] = []  # by block; empty with one run
        for block in _blocks(predictions, runs):
            if not finite.look(block):
                continue  # only to count what is not
            own, held = block.logits, labels[block.part]
            known |= known_classes(own).any(axis=(0, 1))
            if len(runs) > 1:
                self.sets.append(set_sums(own, held))
                ambiguity.append(_ambiguity(block).astype(np.float64))
            filled = block.filled, block.fill(held), block.valid
            states, *each = _of_runs(states, *filled)
            top, confidence, found = (
                x[:, : own.shape[1]] for x in jax.device_get(each)
            )
            counts = counts + confidence_counts(confidence)
            bins = bins + reliability_bins(top, found == held)
            classes.append(found)
            sums, counted = jax.device_get(_of_pairs(*filled))
            pairs = _added(pairs, sums)
            examples += int(counted)
        finite.check()
        self.values = _computed(states)  # run-level names to `[R]`
        self.matrices = _matrices(pairs, examples)  # pair-level names to `[R, R]`
        self.curves = Curves(
            classes=np.concatenate(classes, axis=1),
            ambiguity=np.concatenate(ambiguity or [np.full(len(labels), np.nan)]),
            confidence_counts=np.asarray(counts),
            **curves_of_bins(np.asarray(bins)),
            known=known,
        )


def scored(
    predictions: Predictions,
    runs: Sequence[int],
    counted: Mapping[str, np.ndarray],
    temperatures: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Scores of every run in another pass."""
    labels = predictions.labels.astype(np.int32)
    states = _empty({name: _SCORES[name] for name in counted}, len(runs))
    if temperatures is None:
        temperatures = np.ones(len(runs), np.float32)
    for block in _blocks(predictions, runs):
        masks = {name: block.fill(keep[block.part]) for name, keep in counted.items()}
        masks = {name: mask & block.valid for name, mask in masks.items()}
        held = block.fill(labels[block.part])
        states = _of_scores(states, block.filled, held, masks, temperatures)
    return _computed(states)


def ambiguity_in_blocks(predictions: Predictions, runs: Sequence[int]) -> np.ndarray:
    """`metrics.ambiguity` of two runs or more, `[N]`."""
    return np.concatenate([_ambiguity(b) for b in _blocks(predictions, runs)])


def classes_in_blocks(
    predictions: Predictions, runs: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Predicted classes `[R, N]`, and the classes that some run knows, `[C]` bool."""
    finite, classes = _Finite(runs, predictions.ids), []
    known = np.zeros(predictions.shape[2], bool)
    for block in _blocks(predictions, runs):
        if finite.look(block):
            classes.append(block.logits.argmax(axis=-1))
            known |= known_classes(block.logits).any(axis=(0, 1))
    finite.check()
    return np.concatenate(classes, axis=1), known


class _Block:
    """Examples of all runs; the last block is filled up, so one program serves all."""

    def __init__(self, start: int, logits: np.ndarray, size: int):
        self.start, self.logits, self._size = start, logits, size
        self.part = slice(start, start + logits.shape[1])

    @property
    def valid(self) -> np.ndarray:
        """`[B]`, which of the filled up block are examples."""
        return np.arange(self._size) < self.logits.shape[1]

    @property
    def filled(self) -> np.ndarray:
        """`[R, B, C]`."""
        return np.swapaxes(self.fill(np.swapaxes(self.logits, 0, 1)), 0, 1)

    def fill(self, values: np.ndarray) -> np.ndarray:
        """`[b, ...]` to `[B, ...]`, the last example again and again."""
        lacking = self._size - len(values)
        last = np.repeat(values[-1:], lacking, axis=0)
        return np.concatenate([values, last]) if lacking else values


def _blocks(predictions: Predictions, runs: Sequence[int]):
    size = 0
    for start, logits in predictions.blocks(runs, BLOCK_NUMBERS):
        size = size or logits.shape[1]
        yield _Block(start, logits, size)


_ambiguity_of = jax.jit(metrics.ambiguity)


def _ambiguity(block: _Block) -> np.ndarray:
    """`[b]` float32."""
    return np.asarray(_ambiguity_of(block.filled))[: block.logits.shape[1]]


class _Finite:
    """Refuses what `Predictions` would, once all blocks have been looked at."""

    def __init__(self, runs: Sequence[int], ids: np.ndarray):
        self._runs, self._ids = runs, ids
        self._bad: list[list[np.ndarray]] = [[] for _ in runs]

    def look(self, block: _Block) -> bool:
        """Whether all logits so far are finite."""
        for bad, top in zip(self._bad, block.logits.max(axis=-1), strict=True):
            if (found := np.flatnonzero(~np.isfinite(top))).size:
                bad.append(block.start + found)
        return not any(self._bad)

    def check(self) -> None:
        for run, parts in zip(self._runs, self._bad, strict=True):
            if parts:
                bad = np.concatenate(parts)
                raise PredictionsError(
                    f"logits of run {run} are NaN or infinite for {bad.size} of "
                    f"{self._ids.size} examples, for example ids {some(self._ids[bad])}"
                )


def _empty(kinds: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, Any]:
    """Empty States with a leading axis of runs."""

    def repeated(x):
        return np.broadcast_to(x, (runs, *x.shape))

    return {name: jax.tree.map(repeated, make()) for name, make in kinds.items()}


def _computed(states: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of States with a leading axis of runs, `[R]` each."""
    found = jax.device_get(_compute(states))
    return {name: value.astype(np.float64) for name, value in found.items()}


@jax.jit
def _compute(states):
    return {k: jax.vmap(lambda one: one.compute())(s) for k, s in states.items()}


@jax.jit
def _of_runs(states, logits, labels, valid):
    """The states with a block; top probability, confidence and class, `[R, B]`."""

    def one(run):
        states, z = run
        new = {
            name: state.update(z, *(() if name in _ALONE else (labels,)), mask=valid)
            for name, state in states.items()
        }
        top = jax.nn.softmax(z, axis=-1).max(axis=-1)
        return new, top, metrics.prediction_confidence(z), z.argmax(axis=-1)

    return jax.lax.map(one, (states, logits))


@jax.jit
def _of_scores(states, logits, labels, masks, temperatures):
    """The states with a block of logits divided by each run's temperature."""

    def one(run):
        states, z, temperature = run
        return {
            name: state.update(z / temperature, labels, masks[name])
            for name, state in states.items()
        }

    return jax.lax.map(one, (states, logits, temperatures))


def _pair_metrics() -> dict[str, PairMetric]:
    found = {name: streaming(metric) for name, metric in PAIRS.items()}
    return {name: metric for name, metric in found.items() if metric is not None}


@jax.jit
def _of_pairs(logits, labels, valid):
    """What a block adds to every pair of runs, and how many examples it has."""

    def block(cut, inside):
        z, y = cut(logits, 1), cut(labels, 0)
        found = _pair_metrics().items()
        return {name: metric.block(z, y, inside) for name, metric in found}, inside

    runs, examples, classes = logits.shape
    size = max(1, min(examples, PAIR_BYTES // (4 * runs * classes)))
    return sum_blocks(block, size, examples, valid)


def _added(total, sums):
    """Sums on the host: whole numbers in int64, others in float64."""

    def wide(x):
        return np.asarray(x, np.int64 if x.dtype.kind == "i" else np.float64)

    sums = jax.tree.map(wide, sums)
    return sums if total is None else jax.tree.map(np.add, total, sums)


def _matrices(sums, examples: int) -> dict[str, np.ndarray]:
    def narrow(x):
        return x.astype(np.int32 if x.dtype.kind == "i" else np.float32)

    sums = jax.tree.map(narrow, sums)
    found = jax.device_get(_finish(sums, np.int32(examples)))
    return symmetric(found)


@jax.jit
def _finish(sums, examples):
    return {n: m.finish(sums[n], examples) for n, m in _pair_metrics().items()}


def summarize_in_blocks(
    predictions: Predictions,
    *,
    stopped: Sequence[int] = (),
    validation: Predictions | None = None,
) -> MethodSummary:
    """Every number of one method's runs, in bounded memory."""
    runs, left_out = runs_counted(predictions, stopped)
    found, shape = Pass(predictions, runs), predictions.shape
    values, known = dict(found.values), found.curves.known
    if not known.all():
        # Infinite elsewhere, and not 10,000.
        values |= scored(predictions, runs, {"nll": known[predictions.labels]})
    if validation is not None:
        check_same_runs(predictions, validation)
        check_fits(validation)
        values |= _calibrated(predictions, validation, runs, known)
    sets = of_set_sums(found.sets, len(runs), shape[1])
    return assembled(runs, left_out, shape, values, found.matrices, sets, found.curves)


def check_fits(validation: Predictions) -> None:
    """Refuses shards of which not even one run can be held in memory."""
    _, examples, classes = validation.shape
    if not validation.in_memory and not fits_whole(examples * classes):
        raise TooLargeError(
            "a temperature is fitted on one run in memory, and one has "
            f"{4 * examples * classes / 2**30:.1f} GiB of validation logits; hold out "
            "fewer examples (--validation)"
        )


_fit = jax.jit(metrics.fit_temperature)


def _calibrated(
    predictions: Predictions,
    validation: Predictions,
    runs: Sequence[int],
    known: np.ndarray,
) -> dict[str, np.ndarray]:
    """Scores at the temperature of each run's own validation predictions, `[R]`."""
    names = {kind: f"calibrated_{kind}" for kind in ("nll", "brier", "ece")}
    # No temperature makes an unknown class likelier, so its examples fit none.
    kept = np.flatnonzero(known[validation.labels])
    if not kept.size:
        return dict.fromkeys(
            (*names.values(), "temperature"), np.full(len(runs), np.nan)
        )
    held_out = validation.labels[kept].astype(np.int32)
    fitted = np.asarray([_fit(validation.logits[run, kept], held_out) for run in runs])
    every = np.ones(len(predictions.labels), bool)
    counted = {"nll": known[predictions.labels], "brier": every, "ece": every}
    scores = scored(predictions, runs, counted, fitted)
    named = {names[kind]: values for kind, values in scores.items()}
    return {**named, "temperature": fitted.astype(np.float64)}
