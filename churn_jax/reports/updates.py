"""Model updates of a study as data: error rates, flips and churn of old and new runs.

`config.updates` of `study.json` says which rows replace which. Predicted classes are
all that most of it needs, so logits are read one model at a time and dropped again.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import jax
import numpy as np

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_compare.example_ids import PredictionsError, rows_of, some
from churn_compare.flip_counts import (
    Flips,
    VersionMatrices,
    count_flips,
    version_matrices,
)
from churn_compare.significance import holm
from churn_compare.store import Predictions, load_predictions
from churn_jax import metrics
from churn_jax.analysis.significance import (
    Difference,
    jackknife_stderr,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.artefacts import TEST, ReportError, Study
from churn_jax.reports.cells import rate
from churn_jax.reports.estimates import BLOCK_NUMBERS, Estimate, over_runs
from churn_jax.reports.quantities import Quantity
from churn_jax.reports.summary import MethodSummary, classes_of


@dataclasses.dataclass(frozen=True, eq=False)
class ModelRuns:
    """The runs of one model, without those that stopped."""

    name: str  # the row, or the path as the update gives it
    label: str  # for people
    runs: tuple[int, ...]  # their numbers, by which a targeted update pairs them
    classes: np.ndarray  # `[R, N]` what each predicts for the study's examples
    known: np.ndarray  # `[C]` the classes that the model knows
    file: Path  # its predictions; where they are in shards, what would be the file
    # `[N]` where the study's examples are in the file; None for a row, whose order is
    # that of the study
    order: np.ndarray | None = None

    def knows(self, labels: np.ndarray) -> np.ndarray:
        """Which examples are of a class that the model knows, `[N]`."""
        inside = labels < len(self.known)
        return inside & self.known[np.where(inside, labels, 0)]

    def open(self) -> Callable[[int, np.ndarray], np.ndarray]:
        """The predictions opened again."""
        found = load_predictions(self.file)

        def rows(i: int, picked: np.ndarray) -> np.ndarray:
            places = picked if self.order is None else self.order[picked]
            return found.logits[self.runs[i], places]

        return rows


def is_file(old: str) -> bool:
    """True if the old model of an update is a file of predictions and not a row."""
    return PurePath(old).suffix == ".npz"


def of_row(study: Study, name: str, summary: MethodSummary) -> ModelRuns:
    """A row of the study, from what was already computed of it."""
    labels = {info.name: info.label for info in study.methods}
    return ModelRuns(
        name,
        labels.get(name, name),
        summary.runs,
        summary.curves.classes,
        summary.curves.known,
        study.method_folder(name) / TEST,
    )


def from_file(
    study: Study, given: str, ids: np.ndarray, labels: np.ndarray
) -> ModelRuns:
    """A model of another study or framework, joined with the study's examples by id."""
    path = study.folder / given
    try:
        predictions = load_predictions(path)
    except PredictionsError as error:
        raise ReportError(" ".join(str(error).split())) from error
    order = _places(path, predictions, ids)
    differ = predictions.labels[order] != labels
    if differ.any():
        raise ReportError(
            f"{path}: labels differ for {int(differ.sum())} of {differ.size} examples, "
            f"for example ids {some(ids[differ])}"
        )
    stopped = predictions.stopped
    runs = tuple(r for r in range(predictions.shape[0]) if r not in stopped)
    if not runs:
        raise ReportError(f"{path}: all {predictions.shape[0]} runs were stopped")
    classes, known = classes_of(predictions, runs)
    label = path.resolve().parent.name or given
    return ModelRuns(given, label, runs, classes[:, order], known, path, order)


def _places(path: Path, predictions: Predictions, ids: np.ndarray) -> np.ndarray:
    """Where each of `ids` is in the file."""
    order = rows_of(ids, predictions.ids)
    lacking = order < 0
    if lacking.any():
        raise ReportError(
            f"{path}: {int(lacking.sum())} of the study's {ids.size} examples are not "
            f"in it, for example ids {some(ids[lacking])}; its ids are "
            f"{some(predictions.ids)}"
        )
    return order


def pair_ranks(
    rows: Callable[[int, np.ndarray], np.ndarray],
    old: ModelRuns,
    new: ModelRuns,
    pair: tuple[int, int],
    labels: np.ndarray,
) -> np.ndarray:
    """`flip_ranks` of an old and a new run; logits are read of the flips alone."""
    before, after = old.classes[pair[0]], new.classes[pair[1]]
    flipped = np.flatnonzero((before == labels) & (after != labels))
    size = max(1, BLOCK_NUMBERS // len(old.known))
    starts = range(0, len(flipped), size)
    parts = [flipped[start : start + size] for start in starts]
    return sum_counts(
        [np.zeros(2, np.int64)]
        + [flip_ranks(rows(pair[0], p), after[p], labels[p]) for p in parts]
    )


def sum_counts(counts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of counts of different length, `[longest]`."""
    width = max(map(len, counts))
    return np.sum([np.pad(c, (0, width - len(c))) for c in counts], axis=0)


def flip_ranks(
    old_logits: np.ndarray, new_classes: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """How often a negative flip's wrong class has each rank in the old model."""
    # As `churn_jax.metrics.flip_rank`, for the flips alone.
    flipped = (old_logits.argmax(axis=-1) == labels) & (new_classes != labels)
    scores, wrong = old_logits[flipped], new_classes[flipped]
    if len(wrong) and (more := int(wrong.max()) + 1 - scores.shape[1]) > 0:
        scores = np.pad(scores, ((0, 0), (0, more)), constant_values=UNKNOWN_LOGIT)
    own = np.take_along_axis(scores, wrong[:, None], axis=1)
    before = np.arange(scores.shape[1]) < wrong[:, None]  # ties: the lower id first
    ranks = 1 + np.sum((scores > own) | ((scores == own) & before), axis=1)
    return np.bincount(ranks, minlength=2)


@dataclasses.dataclass(frozen=True)
class Rates:
    """What an update does, over one kind of pairs of runs."""

    pairs: int  # how many
    old_error: Estimate  # error rate of the old runs
    new_error: Estimate  # error rate of the new runs
    negative_flip_rate: Estimate  # NFR
    relative_negative_flip_rate: Estimate  # NFR over that of independent errors
    positive_flip_rate: Estimate  # PFR
    churn: Estimate  # share of examples that both predict differently


RATES: tuple[Quantity, ...] = (
    Quantity("old_error", "ER old %", rate),
    Quantity("new_error", "ER new %", rate, narrow=True),
    Quantity("negative_flip_rate", "NFR %", rate, narrow=True),
    Quantity("relative_negative_flip_rate", "Rel. NFR %", rate, narrow=True),
    Quantity("positive_flip_rate", "PFR %", rate),
    Quantity("churn", "Churn %", rate),
)
"""The fields of `Rates` as columns."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """An update against the one to the study's baseline, p Holm-adjusted over all."""

    negative_flip_rate: Difference  # of own pairs where it is targeted
    negative_flip_rate_p: float
    new_error: Difference  # of the new model's error rate
    new_error_p: float
    # share of the difference between the baseline's NFR and that of the first update
    # from an ensemble to an ensemble; NaN where there is none
    closed: Estimate


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateResult:
    """One update on one set of examples."""

    old: str  # row, or path, of the model in use
    new: str  # row of the model that replaces it
    label: str  # of the update
    targeted: bool  # whether new run r was trained against old run r
    examples: str  # `"all"`, or `"known"` for those whose class the old model knows
    num_examples: int  # how many these are
    all_pairs: Rates  # every old run against every new one
    own_pairs: Rates | None  # old run r against new run r; None unless targeted
    # `[.]` negative flips of the pairs shown first by the rank, in the old run, of the
    # class that the new run predicts
    ranks: np.ndarray
    flips: Flips  # of every old run and every new one
    # against the update to the study's baseline; None where it is not compared
    gain: Gain | None = None

    @property
    def first(self) -> Rates:
        """The rates that fit the update: of its own pairs where it is targeted."""
        return self.own_pairs or self.all_pairs

    @property
    def second(self) -> Rates | None:
        """Of a targeted update, the rates over all pairs."""
        return self.all_pairs if self.own_pairs else None


@dataclasses.dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a study."""

    # in the study's order; where class sets differ, one for all examples and one for
    # those of known classes
    results: tuple[UpdateResult, ...]
    versions: tuple[str, ...]  # names of the models that appear in an update
    labels: tuple[str, ...]  # theirs
    matrices: Any  # `VersionMatrices` of them; None without updates
    # `[V, V]` mean NFR on the examples whose class the old model knows; None where all
    # models know the same classes
    known_flips: np.ndarray | None
    remarks: tuple[str, ...]  # sentences about updates that are left out, and why

    @property
    def whole(self) -> tuple[UpdateResult, ...]:
        """One result per update: that on all examples."""
        return tuple(r for r in self.results if r.examples == "all")


def collect_updates(
    study: Study,
    summaries: Mapping[str, MethodSummary],
    reasons: Mapping[str, str],
    examples: Predictions | None,
) -> Updates | None:
    """Compute a study's updates."""
    planned = [
        update
        for update in study.config.updates
        if not study.unselected.keys() & {update.old, update.new}
    ]
    if not planned:
        return None
    versions: dict[str, ModelRuns] = {}
    remarks, ready = [], []
    names = {info.name: info.label for info in study.methods}
    for entry in planned:
        label = entry.label or (
            f"{names.get(entry.old, entry.old)} → {names.get(entry.new, entry.new)}"
        )
        absent = ""
        for name in (entry.old, entry.new):
            if name in versions:
                continue
            if name in summaries:
                versions[name] = of_row(study, name, summaries[name])
            elif examples is not None and is_file(name) and name == entry.old:
                versions[name] = from_file(study, name, examples.ids, examples.labels)
            else:
                why = reasons.get(name, "it is not a finished row of this study")
                absent = absent or f"{names.get(name, name)}: {why}"
        if absent:
            remarks.append(f"The update {label} is not in the table. {absent}.")
        else:
            ready.append((label, entry))
    if examples is None or not ready:
        return Updates((), (), (), None, None, tuple(remarks))
    used = {name for _, entry in ready for name in (entry.old, entry.new)}
    versions = {name: found for name, found in versions.items() if name in used}
    models = tuple(versions.values())
    matrices = version_matrices([model.classes for model in models], examples.labels)
    results: dict[int, list[UpdateResult]] = {}
    for name, old in versions.items():  # an old model's logits are read once
        of_old = [(i, *one) for i, one in enumerate(ready) if one[1].old == name]
        rows, labels = None, examples.labels
        if of_old:
            try:
                rows = old.open()
            except PredictionsError as error:
                remarks.append(f"Nothing is known of ranks in {old.label}: {error}.")
        for i, label, entry in of_old:
            results[i] = _results(label, entry, versions, rows, labels, matrices)
    ordered = [result for i in sorted(results) for result in results[i]]
    several = {one.name for one in study.methods if (one.inference_cost or 0) > 1}
    base = study.config.baseline
    runs = {name: found.runs for name, found in versions.items()}
    for i, gain in _gains(ordered, runs, base, several).items():
        ordered[i] = dataclasses.replace(ordered[i], gain=gain)
    return Updates(
        tuple(ordered),
        tuple(versions),
        tuple(model.label for model in models),
        matrices,
        _known_flips(models, examples.labels, matrices.negative_flip_rate),
        tuple(remarks),
    )


def _results(
    label, entry, versions, rows, labels, matrices: VersionMatrices
) -> list[UpdateResult]:
    """Of one update: on all examples and, where class sets differ, on known ones."""
    old, new = versions[entry.old], versions[entry.new]
    shared = [r for r in old.runs if r in new.runs] if entry.targeted else []
    own = [old.runs.index(r) for r in shared], [new.runs.index(r) for r in shared]
    names = list(versions)
    sets = {"all": matrices.between(names.index(old.name), names.index(new.name))}
    if not _same_classes(old, new):
        keep = old.knows(labels)
        parts = (old.classes[:, keep], new.classes[:, keep], labels[keep])
        sets["known"] = count_flips(*parts)
    ranks = np.zeros(2, int)
    if rows is not None:
        pairs = zip(*own) if shared else np.ndindex(len(old.runs), len(new.runs))
        ranks = sum_counts([pair_ranks(rows, old, new, p, labels) for p in pairs])
    out = []
    for name, flips in sets.items():
        all_pairs, own_pairs = _rates(flips, own)
        out.append(
            UpdateResult(
                old=old.name,
                new=new.name,
                label=label,
                targeted=entry.targeted,
                examples=name,
                num_examples=int(flips.examples),
                all_pairs=all_pairs,
                own_pairs=own_pairs,
                ranks=ranks,
                flips=flips,
            )
        )
    return out


def _same_classes(a: ModelRuns, b: ModelRuns) -> bool:
    width = max(len(a.known), len(b.known))
    ours, theirs = (np.pad(x.known, (0, width - len(x.known))) for x in (a, b))
    return np.array_equal(ours, theirs)


_over_pairs = jax.jit(jax.vmap(metrics.summarize_cross))
_over_own_pairs = jax.jit(jax.vmap(metrics.summarize_paired))


def _rates(flips: Flips, own) -> tuple[Rates, Rates | None]:
    """Over all pairs, and over the pairs `own` of rows and columns."""
    with np.errstate(invalid="ignore"):  # without examples
        found = {
            "negative_flip_rate": flips.negative / flips.examples,
            "relative_negative_flip_rate": flips.relative,
            "positive_flip_rate": flips.positive / flips.examples,
            "churn": flips.changed / flips.examples,
        }
        wrong = flips.old_error[:, 0], flips.new_error[0]
    stack = np.stack(list(found.values())).astype(np.float32)
    every = _assembled(found, stack[0].size, wrong, _over_pairs(stack))
    rows, columns = own
    if not rows or not flips.examples:
        return every, None
    pairs = _over_own_pairs(stack[:, rows][:, :, columns])
    wrong = wrong[0][rows], wrong[1][columns]
    return every, _assembled(found, len(rows), wrong, pairs)


def _assembled(names: Iterable[str], pairs: int, wrong, found) -> Rates:
    numbers = jax.device_get((found.mean, found.std, found.stderr))
    estimates = {
        name: Estimate(float(mean), float(std), float(stderr))
        for name, mean, std, stderr in zip(names, *numbers)
    }
    return Rates(pairs, over_runs(wrong[0]), over_runs(wrong[1]), **estimates)


def _known_flips(versions, labels, flips: np.ndarray) -> np.ndarray | None:
    """Mean NFR on classes that the old model knows; None where all know the same."""
    if all(_same_classes(versions[0], version) for version in versions):
        return None
    # An old run is right on classes that it knows alone, so the flips are the same.
    shares = np.array([version.knows(labels).mean() for version in versions])
    with np.errstate(invalid="ignore"):
        return flips / np.where(shares > 0, shares, np.nan)[:, None]


def _gains(
    results: Sequence[UpdateResult],
    runs: Mapping[str, tuple[int, ...]],
    baseline: str,
    ensembles: Collection[str],
) -> dict[int, Gain]:
    """The gains of updates by their place in `results`.

    Empty unless one update is to `baseline` and every model has the same three runs or
    more; `runs` are their numbers. `ensembles` are the rows that deploy several
    networks.
    """
    whole = {i: r for i, r in enumerate(results) if r.examples == "all"}
    starts = [i for i, r in whole.items() if r.new == baseline]
    names = {name for r in whole.values() for name in (r.old, r.new)}
    if len(starts) != 1 or len(whole) < 2:
        return {}
    if len(runs[baseline]) < 3 or len({runs[name] for name in names}) > 1:
        return {}
    (start,) = starts
    # NFR of all runs, then without each in turn, `[R + 1]`.
    flips = {i: _left_out(r) for i, r in whole.items()}
    wrong = {i: r.flips.new_error[0] for i, r in whole.items()}
    paragon = next(
        (i for i, r in whole.items() if {r.old, r.new} <= set(ensembles)), start
    )
    others = [i for i in whole if i != start]
    changes = [
        paired_leave_one_out_test(
            flips[i][0], flips[start][0], flips[i][1:], flips[start][1:]
        )
        for i in others
    ]
    errors = [paired_t_test(wrong[i], wrong[start]) for i in others]
    adjusted = (holm([one.p for one in found]) for found in (changes, errors))
    rows = zip(others, changes, errors, *adjusted, strict=True)
    return {
        i: Gain(
            change,
            float(change_p),
            error,
            float(error_p),
            _closed(flips[start], flips[i], flips[paragon]),
        )
        for i, change, error, change_p, error_p in rows
    }


def _left_out(result: UpdateResult) -> np.ndarray:
    flips = result.flips.negative / result.flips.examples
    used = np.eye(len(flips), dtype=bool) if result.own_pairs else np.ones_like(flips)
    kept = 1.0 - np.eye(len(flips))
    weights = [used, *(used * np.outer(one, one) for one in kept)]
    return np.array([np.average(flips, weights=weight) for weight in weights])


def _closed(base: np.ndarray, here: np.ndarray, paragon: np.ndarray) -> Estimate:
    gap = base - paragon
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (base - here) / np.where(gap > 0, gap, np.nan)
    return Estimate(float(shares[0]), np.nan, jackknife_stderr(shares[1:]))
