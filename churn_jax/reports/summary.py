"""One row's numbers over all its runs, in one pass over blocks of examples."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from churn_compare.class_sets import known_classes
from churn_compare.example_ids import PredictionsError, some
from churn_compare.store import WHOLE_BYTES, Predictions, TooLargeError, fits_whole
from churn_jax import metrics
from churn_jax.metrics.pairs import pair_sums, streaming, sum_blocks
from churn_jax.reports.estimates import (
    UNKNOWN,
    Estimate,
    of_set_sums,
    over_pairs,
    over_runs,
    over_set,
    set_sums,
)
from churn_jax.reports.quantities import QUANTITIES, Quantity

BLOCK_NUMBERS = 2**22  # logits held at once; what is computed takes ten times that
PAIR_BYTES = 4 * 2**20  # of scores that pairs of runs are compared on at once
# Metrics of two runs; `by_correctness` gives two numbers.
_PAIRS: dict[str, Any] = {
    "churn": streaming(metrics.churn),
    "surrogate_churn": streaming(metrics.surrogate_churn),
    "l1": streaming(metrics.l1_distance),
    "by_correctness": streaming(metrics.churn_by_correctness),
    "nfr": streaming(metrics.negative_flip_rate),
}
# Numbers of each run; scores need labels.
_ALONE: Mapping[str, Callable[[], Any]] = {
    "confidence": metrics.ConfidenceState.empty,
    "entropy": metrics.EntropyState.empty,
}
_SCORES: Mapping[str, Callable[[], Any]] = {
    "accuracy": metrics.AccuracyState.empty,
    "nll": metrics.NLLState.empty,
    "brier": metrics.BrierState.empty,
    "ece": metrics.ECEState.empty,
}


class NotMeasuredError(PredictionsError):
    """No run finished, or one is right on all validation examples; no file is bad."""


@dataclasses.dataclass(frozen=True)
class MethodSummary:
    """All numbers of one method; stopped runs are in none of them.

    Every name of `QUANTITIES` is an attribute, an `Estimate` that is NaN where it was
    not measured: calibrated numbers without validation predictions, numbers of members
    without theirs, a user's column that the study does not name. NLL, calibrated NLL
    and temperature of runs that do not know all classes are on the examples whose class
    they know. Churn on right and on wrong examples, and NFR, are means over both
    directions of a pair. Prediction differences, but Δᴴ, which is the churn, are of the
    set of all runs; their `stderr` is the jackknife's and `std = stderr * sqrt(R)`.
    """

    runs: tuple[int, ...]  # indices of the runs counted
    stopped: tuple[int, ...]  # indices of the runs left out because they did not finish
    examples: int  # `N`
    num_classes: int  # `C`
    estimates: Mapping[str, Estimate]  # the attributes that were measured, by name
    run_values: Mapping[str, np.ndarray]  # run-level names to `[R]`
    pair_values: Mapping[str, np.ndarray]  # pair-level names to `[R, R]`, symmetric
    # set-level names to `[R]`, the number without run r; NaN with fewer than three
    # runs
    set_values: Mapping[str, np.ndarray]
    classes: np.ndarray  # `[R, N]` predicted class per run
    # `[N]` share of pairs of runs that differ on the example; NaN with one run
    ambiguity: np.ndarray
    # `[C]` the classes that some run knows, as `known_classes` says it
    known: np.ndarray

    @property
    def classes_known(self) -> tuple[int, ...]:
        """The classes of `known`, which other summaries may have too."""
        return tuple(np.flatnonzero(self.known))

    def __getattr__(self, name: str) -> Estimate:
        """A quantity; NaN where it was not measured."""
        if name.startswith("__") or name not in QUANTITIES:
            raise AttributeError(f"a MethodSummary has no {name!r}")
        return vars(self).get("estimates", {}).get(name, UNKNOWN)

    def having(self, **estimates: Estimate) -> "MethodSummary":
        """The summary with other estimates, or more of them."""
        return dataclasses.replace(self, estimates={**self.estimates, **estimates})

    def with_runs(self, values: Mapping[str, np.ndarray]) -> "MethodSummary":
        """The summary with more numbers of every run, each `[R]`."""
        found = self.having(**{name: over_runs(of) for name, of in values.items()})
        return dataclasses.replace(found, run_values={**self.run_values, **values})


def summarize(
    predictions: Predictions,
    *,
    stopped: Sequence[int] = (),
    validation: Predictions | None = None,
) -> MethodSummary:
    """Every number of one method's runs, in bounded memory.

    Args:
        predictions: logits `[R, N, C]` of `R` runs on one evaluation set.
        stopped: runs to leave out in addition to those `predictions.meta` marks.
        validation: validation of the same runs on the split that temperatures are
            fitted on; the calibrated numbers are NaN without.

    Returns:
        A `MethodSummary`; it says which runs it left out.

    Raises:
        PredictionsError: no run is left, a label is not among the classes, logits are
            not finite, or the validation predictions are of other runs or classes.

    Example:
        >>> logits = 9.0 * np.eye(2)[[[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]]]
        >>> p = Predictions(np.arange(4), np.array([0, 1, 1, 1]), logits)
        >>> s = summarize(p)
        >>> round(s.accuracy.mean, 4), round(s.churn.mean, 4)
        (0.75, 0.5)

    Notes:
        The first paper reports "mean and standard deviation over 10 independent runs"
        without naming the pairs; these are all unordered pairs. Churn on right and on
        wrong examples depends on which run is asked to be right, so both directions are
        averaged.
    """
    labels, (total, examples, classes) = predictions.labels, predictions.shape
    left_out = sorted({int(r) for r in stopped} | set(predictions.stopped))
    runs = [r for r in range(total) if r not in left_out]
    if not runs:
        raise NotMeasuredError(f"all {total} runs were stopped; nothing to summarize")
    if labels.max() >= classes:
        raise PredictionsError(
            f"labels go up to {labels.max()}, but the logits have only {classes} "
            "classes"
        )
    values, matrices, sets, of_examples = _pass(predictions, runs)
    known = of_examples["known"]
    if not known.all():
        # Infinite elsewhere, and not 10,000.
        values |= _scored(predictions, runs, {"nll": known[labels]})
    of_sets, without = of_set_sums(sets, len(runs), examples)
    found = {name: over_runs(value) for name, value in values.items()} | of_sets
    found |= over_pairs(matrices)
    found["hamming_prediction_difference"] = found["churn"]
    summary = MethodSummary(
        runs=tuple(runs),
        stopped=tuple(left_out),
        examples=examples,
        num_classes=classes,
        estimates=found,
        run_values=values,
        pair_values=matrices,
        set_values=without,
        **of_examples,
    )
    if validation is None:
        return summary
    return with_calibration(summary, predictions, validation)


class _Block(NamedTuple):
    """Examples of all runs; the last block is filled up, so one program serves all."""

    part: slice
    logits: np.ndarray  # `[R, b, C]`
    filled: np.ndarray  # `[R, B, C]`, the last example again and again
    valid: np.ndarray  # `[B]`, which of them are examples

    def of(self, values: np.ndarray) -> np.ndarray:
        """`[N]` to `[B]`, filled up."""
        held = values[self.part]
        return np.pad(held, (0, len(self.valid) - len(held)), mode="edge")


def _blocks(predictions: Predictions, runs: Sequence[int]) -> Iterator[_Block]:
    """All blocks; refuses at the end logits that are NaN or infinite, as a file is."""
    size, bad = 0, {run: [] for run in runs}
    for start, logits in predictions.blocks(runs, BLOCK_NUMBERS):
        size = size or logits.shape[1]
        for run, top in zip(runs, logits.max(axis=-1), strict=True):
            if (found := np.flatnonzero(~np.isfinite(top))).size:
                bad[run].append(start + found)
        if not any(bad.values()):  # else only to count what is not finite
            own = logits.shape[1]
            more = ((0, 0), (0, size - own), (0, 0))
            filled = np.pad(logits, more, mode="edge") if own < size else logits
            yield _Block(
                slice(start, start + own), logits, filled, np.arange(size) < own
            )
    for run, parts in bad.items():
        if parts:
            ids = predictions.ids[np.concatenate(parts)]
            raise PredictionsError(
                f"logits of run {run} are NaN or infinite for {ids.size} of "
                f"{predictions.ids.size} examples, for example ids {some(ids)}"
            )


def _pass(predictions: Predictions, runs: Sequence[int]):
    """Numbers of runs `[R]`, of pairs `[R, R]`, sums of sets by block, and the rest."""
    labels = predictions.labels.astype(np.int32)
    states = _empty({**_ALONE, **_SCORES}, len(runs))
    known = np.zeros(predictions.shape[2], bool)
    pairs, examples = None, 0
    classes, ambiguity, sets = [], [], []
    for block in _blocks(predictions, runs):
        own = block.logits
        known |= known_classes(own).any(axis=(0, 1))
        if len(runs) > 1:
            sets.append(set_sums(own, labels[block.part]))
            differing = np.asarray(_ambiguity(block.filled), np.float64)
            ambiguity.append(differing[: own.shape[1]])
        filled = block.filled, block.of(labels), block.valid
        states, found = _of_runs(states, *filled)
        classes.append(jax.device_get(found)[:, : own.shape[1]])
        sums, counted = jax.device_get(_of_pairs(*filled))
        sums = jax.tree.map(_wide, sums)
        pairs = sums if pairs is None else jax.tree.map(np.add, pairs, sums)
        examples += int(counted)
    of_examples = {
        "classes": np.concatenate(classes, axis=1),
        "ambiguity": np.concatenate(ambiguity or [np.full(len(labels), np.nan)]),
        "known": known,
    }
    return _computed(states), _matrices(pairs, examples), sets, of_examples


def _scored(
    predictions: Predictions,
    runs: Sequence[int],
    counted: Mapping[str, np.ndarray],
    temperatures: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Scores of every run in another pass, on the examples `counted`."""
    labels = predictions.labels.astype(np.int32)
    states = _empty({name: _SCORES[name] for name in counted}, len(runs))
    if temperatures is None:
        temperatures = np.ones(len(runs), np.float32)
    for block in _blocks(predictions, runs):
        masks = {name: block.of(keep) & block.valid for name, keep in counted.items()}
        held = block.of(labels)
        states = _of_scores(states, block.filled, held, masks, temperatures)
    return _computed(states)


_ambiguity = jax.jit(metrics.ambiguity)
_fit = jax.jit(metrics.fit_temperature)


def _empty(kinds: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, Any]:
    """Empty States with a leading axis of runs."""
    states = {name: make() for name, make in kinds.items()}
    return jax.tree.map(lambda x: np.broadcast_to(x, (runs, *x.shape)), states)


def _computed(states: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The numbers of States with a leading axis of runs, `[R]` each."""
    found = jax.device_get(_compute(states))
    return {name: value.astype(np.float64) for name, value in found.items()}


@jax.jit
def _compute(states):
    return {k: jax.vmap(lambda one: one.compute())(s) for k, s in states.items()}


@jax.jit
def _of_runs(states, logits, labels, valid):
    """The states with a block, and predicted classes `[R, B]`."""

    def one(run):
        states, z = run
        new = {
            name: state.update(z, *(() if name in _ALONE else (labels,)), mask=valid)
            for name, state in states.items()
        }
        return new, z.argmax(axis=-1)

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


@jax.jit
def _of_pairs(logits, labels, valid):
    """The sums of a block for every pair of runs, and its number of examples."""

    def block(cut, inside):
        z, y = cut(logits, 1), cut(labels, 0)
        sums = {n: pair_sums(m, z, z, y, inside) for n, m in _PAIRS.items()}
        return sums, inside

    runs, examples, classes = logits.shape
    size = max(1, min(examples, PAIR_BYTES // (4 * runs * classes)))
    return sum_blocks(block, size, examples, valid)


def _wide(x):
    """Sums on the host: whole numbers in int64, others in float64."""
    return np.asarray(x, np.int64 if x.dtype.kind == "i" else np.float64)


def _matrices(sums, examples: int) -> dict[str, np.ndarray]:
    """The mean of both directions of every pair, `[R, R]` float64, of all metrics."""
    found = jax.device_get(_finish(sums, np.int32(examples)))
    correct, incorrect = found.pop("by_correctness")
    found |= {"churn_correct": correct, "churn_incorrect": incorrect}
    wide = {name: np.asarray(m, np.float64) for name, m in found.items()}
    return {name: (matrix + matrix.T) / 2 for name, matrix in wide.items()}


@jax.jit
def _finish(sums, examples):
    return {n: m.finish(sums[n], examples) for n, m in _PAIRS.items()}


def with_calibration(
    summary: MethodSummary, predictions: Predictions, validation: Predictions
) -> MethodSummary:
    """The summary with scores at the temperature of each run's own `validation`.

    Refuses predictions of other runs or classes, runs too large for memory, and those
    that no temperature fits.
    """
    ours, theirs = predictions.shape, validation.shape
    if (ours[0], ours[2]) != (theirs[0], theirs[2]):
        raise PredictionsError(
            f"validation logits {theirs} and test logits {ours} must be of the same "
            "runs and classes"
        )
    _, examples, classes = theirs
    if validation.labels.max() >= classes:
        raise PredictionsError(
            f"validation labels go up to {validation.labels.max()}, but the logits "
            f"have only {classes} classes"
        )
    if not validation.in_memory and not fits_whole(examples * classes):
        raise TooLargeError(
            "a temperature is fitted on one run in memory, and one has "
            f"{4 * examples * classes / 2**30:.1f} GiB of validation logits; hold out "
            "fewer examples (--validation)"
        )
    runs, known = summary.runs, summary.known
    # No temperature makes an unknown class likelier, so its examples fit none.
    kept = np.flatnonzero(known[validation.labels])
    if not kept.size:
        return summary
    held_out = validation.labels[kept].astype(np.int32)
    fitted = np.asarray([_fit(validation.logits[run, kept], held_out) for run in runs])
    if bad := [run for run, found in zip(runs, fitted) if np.isnan(found)]:
        raise PredictionsError(
            f"no temperature fits the validation logits of runs {some(bad)}, which are "
            "NaN, or -inf at an example's label; leave such examples out"
        )
    predicted = (validation.logits[run, kept].argmax(axis=-1) for run in runs)
    if right := [r for r, found in zip(runs, predicted) if (found == held_out).all()]:
        raise NotMeasuredError(
            f"no temperature fits the validation logits of runs {some(right)}, which "
            f"are right on all {len(kept)} examples; hold out more (--validation)"
        )
    every = np.ones(len(predictions.labels), bool)
    counted = {"nll": known[predictions.labels], "brier": every, "ece": every}
    scores = _scored(predictions, runs, counted, fitted)
    named = {f"calibrated_{kind}": values for kind, values in scores.items()}
    return summary.with_runs({**named, "temperature": fitted.astype(np.float64)})


class ColumnError(ValueError):
    """A column's function failed, or returned anything but a number per run."""


def with_columns(
    summary: MethodSummary, predictions: Predictions, columns: Iterable[str]
) -> tuple[MethodSummary, tuple[ColumnError, ...]]:
    """The summary with the measured columns, and the errors of those left out."""
    errors = []
    for column in columns:
        try:
            quantity = QUANTITIES.find(column)
            if quantity.measure is not None:
                summary = _with_column(summary, predictions, quantity)
        except ValueError as error:  # a column that is not known, or a ColumnError
            errors.append(ColumnError(str(error)))
    return summary, tuple(errors)


def _with_column(
    summary: MethodSummary, predictions: Predictions, quantity: Quantity
) -> MethodSummary:
    runs, labels, name = summary.runs, predictions.labels, quantity.name
    if not quantity.of_runs:
        each = [_called(quantity, predictions.logits[run], labels) for run in runs]
        return summary.with_runs({name: _finite(quantity, np.array(each), runs)})
    _, examples, classes = predictions.shape
    numbers = len(runs) * examples * classes
    if not predictions.in_memory and not fits_whole(numbers):
        raise ColumnError(
            f"column {name} needs the logits of all runs at once, "
            f"{4 * numbers / 2**30:.1f} GiB, and at most {WHOLE_BYTES / 2**30:.3g} GiB "
            "are read whole; write it as a function of one run (without runs=True)"
        )
    logits = np.stack([predictions.logits[run] for run in runs])
    found = _finite(quantity, _called(quantity, logits, labels, (len(runs),)), runs)
    if found.ndim:
        return summary.with_runs({name: found})
    without = np.full(len(runs), np.nan)
    if len(runs) > 2:  # two runs without one are not a pair any more
        parts = (np.delete(logits, i, axis=0) for i in range(len(runs)))
        left = np.array([_called(quantity, z, labels) for z in parts])
        without = _finite(quantity, left, runs, "without run")
    summary = summary.having(**{name: over_set(found, without)})
    sets = {**summary.set_values, name: without}
    return dataclasses.replace(summary, set_values=sets)


def _called(
    quantity: Quantity, logits: np.ndarray, labels: np.ndarray, runs: tuple = ()
) -> np.ndarray:
    """The function's value: one number, or one for each of the `runs`."""
    measure = cast(Callable, quantity.measure)
    for array in (logits := logits.view(), labels := labels.view()):
        array.setflags(write=False)  # the next columns read them, too
    try:
        found = np.asarray(measure(logits, labels), np.float64)
    except Exception as error:
        raise ColumnError(
            f"column {quantity.name} failed on logits {logits.shape} "
            f"({type(error).__name__}: {error})"
        ) from error
    if found.shape not in ((), runs):
        each = f" or {runs[0]}, one for each run," if runs else ""
        all_ = "" if quantity.of_runs else "; with column(..., runs=True) it is given "
        raise ColumnError(
            f"column {quantity.name} must return one number{each} for logits "
            f"{logits.shape}; got shape {found.shape}"
            f"{all_ and all_ + 'the logits of all runs'}"
        )
    return found


def _finite(
    quantity: Quantity, found: np.ndarray, runs: tuple[int, ...], where: str = "for run"
) -> np.ndarray:
    if np.isfinite(found).all():
        return found
    bad = [str(run) for run, ok in zip(runs, np.isfinite(found).ravel()) if not ok]
    which = f" {where} {', '.join(bad)}" if found.ndim else ""
    raise ColumnError(f"column {quantity.name} is not a finite number{which}")
