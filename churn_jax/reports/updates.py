"""Model updates of a study as data: error rates, flips and churn of old and new runs.

`config.updates` of `study.json` says which rows replace which. Predicted classes are
all that it needs.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from churn_compare.example_ids import rows_of, some
from churn_compare.flip_counts import Flips, count_flips, version_matrices
from churn_compare.significance import holm
from churn_compare.store import PredictionsError, load_predictions
from churn_jax import metrics
from churn_jax.analysis.significance import (
    jackknife_stderr,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.reports.artefacts import ReportError, Study
from churn_jax.reports.cells import rate
from churn_jax.reports.compare import Change
from churn_jax.reports.estimates import Estimate, over_runs
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

    def knows(self, labels: np.ndarray) -> np.ndarray:
        """Which examples are of a class that the model knows, `[N]`."""
        inside = labels < len(self.known)
        return inside & self.known[np.where(inside, labels, 0)]


def _from_file(study: Study, given: str, examples) -> ModelRuns:
    """A model of another study or framework, joined with the study's examples by id."""
    path, ids = study.folder / given, examples.ids
    try:
        predictions = load_predictions(path)
    except PredictionsError as error:
        raise ReportError(" ".join(str(error).split())) from error
    order = rows_of(ids, predictions.ids)
    if (lacking := order < 0).any():
        raise ReportError(
            f"{path}: {int(lacking.sum())} of the study's {ids.size} examples are not "
            f"in it, for example ids {some(ids[lacking])}; its ids are "
            f"{some(predictions.ids)}"
        )
    if (differ := predictions.labels[order] != examples.labels).any():
        raise ReportError(
            f"{path}: labels differ for {int(differ.sum())} of {differ.size} examples, "
            f"for example ids {some(ids[differ])}"
        )
    total = predictions.shape[0]
    runs = tuple(r for r in range(total) if r not in predictions.stopped)
    if not runs:
        raise ReportError(f"{path}: all {total} runs were stopped")
    classes, known = classes_of(predictions, runs)
    label = path.resolve().parent.name or given
    return ModelRuns(given, label, runs, classes[:, order], known)


@dataclasses.dataclass(frozen=True)
class Rates:
    """Rates of an update, over one kind of pairs of runs."""

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

    # of `negative_flip_rate` (of own pairs where it is targeted) and `new_error`
    changes: tuple[Change, Change]
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
    flips: Flips  # of every old run and every new one
    # `"all"`: every old run against every new one; before it, where the update is
    # targeted, `"own"`: old run r against new run r
    rates: Mapping[str, Rates]
    # against the update to the study's baseline; None where it is not compared
    gain: Gain | None = None

    @property
    def first(self) -> Rates:
        """The rates that fit the update: of its own pairs where it is targeted."""
        return next(iter(self.rates.values()))


@dataclasses.dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a study."""

    # in the study's order; where class sets differ, one for all examples and one for
    # those of known classes
    results: tuple[UpdateResult, ...] = ()
    versions: tuple[str, ...] = ()  # names of the models that appear in an update
    labels: tuple[str, ...] = ()  # theirs
    matrices: Any = None  # `VersionMatrices` of them; None without updates
    # `[V, V]` mean NFR on the examples whose class the old model knows; None where all
    # models know the same classes
    known_flips: np.ndarray | None = None
    remarks: tuple[str, ...] = ()  # sentences about updates that are left out, and why

    @property
    def whole(self) -> tuple[UpdateResult, ...]:
        """One result per update: that on all examples."""
        return tuple(r for r in self.results if r.examples == "all")


def collect_updates(
    study: Study,
    summaries: Mapping[str, MethodSummary],
    reasons: Mapping[str, str],
    examples,
) -> Updates | None:
    """Compute a study's updates."""
    planned = [
        update
        for update in study.config.updates
        if not study.unselected.keys() & {update.old, update.new}
    ]
    if not planned:
        return None
    models: dict[str, ModelRuns] = {}
    remarks, ready = [], []
    names = {info.name: info.label for info in study.methods}
    for entry in planned:
        pair = entry.old, entry.new
        label = entry.label or " → ".join(names.get(name, name) for name in pair)
        absent = ""
        for name in pair:
            if name in models:
                continue
            if (found := summaries.get(name)) is not None:
                of_row = found.runs, found.curves.classes, found.curves.known
                models[name] = ModelRuns(name, names.get(name, name), *of_row)
            elif examples is not None and entry.from_file and name == entry.old:
                models[name] = _from_file(study, name, examples)
            else:
                why = reasons.get(name, "it is not a finished row of this study")
                absent = absent or f"{names.get(name, name)}: {why}"
        if absent:
            remarks.append(f"The update {label} is not in the table. {absent}.")
        else:
            ready.append((label, entry))
    if examples is None or not ready:
        return Updates(remarks=tuple(remarks))
    labels = examples.labels
    used = {name for _, entry in ready for name in (entry.old, entry.new)}
    models = {name: found for name, found in models.items() if name in used}
    versions = [*models]
    matrices = version_matrices([m.classes for m in models.values()], labels)
    ordered: list[UpdateResult] = []
    for label, entry in ready:
        old, new = models[entry.old], models[entry.new]
        flips = matrices.between(versions.index(old.name), versions.index(new.name))
        ordered += _results(label, entry, old, new, labels, flips)
    several = {one.name for one in study.methods if (one.inference_cost or 0) > 1}
    runs = {name: found.runs for name, found in models.items()}
    for i, gain in _gains(ordered, runs, study.config.baseline, several).items():
        ordered[i] = dataclasses.replace(ordered[i], gain=gain)
    known = None
    if not all(_same_classes(models[versions[0]], other) for other in models.values()):
        # An old run is right on classes that it knows alone, so the flips are the same.
        shares = np.array([model.knows(labels).mean() for model in models.values()])
        with np.errstate(invalid="ignore"):
            shares = np.where(shares > 0, shares, np.nan)[:, None]
            known = matrices.negative_flip_rate / shares
    names_shown = tuple(model.label for model in models.values())
    found = tuple(ordered), tuple(versions), names_shown
    return Updates(*found, matrices, known, tuple(remarks))


def _results(
    label, entry, old: ModelRuns, new: ModelRuns, labels, flips: Flips
) -> list[UpdateResult]:
    """Of one update: on all examples and, where class sets differ, on known ones."""
    shared = [r for r in old.runs if r in new.runs] if entry.targeted else []
    own = [old.runs.index(r) for r in shared], [new.runs.index(r) for r in shared]
    sets = {"all": flips}
    if not _same_classes(old, new):
        keep = old.knows(labels)
        parts = old.classes[:, keep], new.classes[:, keep], labels[keep]
        sets["known"] = count_flips(*parts)
    facts = old.name, new.name, label, entry.targeted
    return [
        UpdateResult(*facts, name, found, _rates(found, own))
        for name, found in sets.items()
    ]


def _same_classes(a: ModelRuns, b: ModelRuns) -> bool:
    width = max(len(a.known), len(b.known))
    ours, theirs = (np.pad(x.known, (0, width - len(x.known))) for x in (a, b))
    return np.array_equal(ours, theirs)


_over_pairs = jax.jit(jax.vmap(metrics.summarize_cross))
_over_own_pairs = jax.jit(jax.vmap(metrics.summarize_paired))


def _rates(flips: Flips, own) -> dict[str, Rates]:
    """Over the pairs `own` of rows and columns, if there are some, and over all."""
    with np.errstate(invalid="ignore"):  # without examples
        found = {
            "negative_flip_rate": flips.negative / flips.examples,
            "relative_negative_flip_rate": flips.relative,
            "positive_flip_rate": flips.positive / flips.examples,
            "churn": flips.changed / flips.examples,
        }
        wrong = flips.old_error[:, 0], flips.new_error[0]
    stack = np.stack(list(found.values())).astype(np.float32)

    def rates(pairs: int, old_error, new_error, summary) -> Rates:
        numbers = jax.device_get((summary.mean, summary.std, summary.stderr))
        each = (Estimate(float(m), float(s), float(e)) for m, s, e in zip(*numbers))
        errors = over_runs(old_error), over_runs(new_error)
        return Rates(pairs, *errors, **dict(zip(found, each)))

    every = {"all": rates(stack[0].size, *wrong, _over_pairs(stack))}
    a, b = own
    if not a or not flips.examples:
        return every
    summary = _over_own_pairs(stack[:, a][:, :, b])
    return {"own": rates(len(a), wrong[0][a], wrong[1][b], summary), **every}


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
    both = (i for i, r in whole.items() if {r.old, r.new} <= set(ensembles))
    gap = flips[start] - flips[next(both, start)]
    others = [i for i in whole if i != start]
    changes, errors = [], []
    for i in others:
        means, without = zip(*((x[0], x[1:]) for x in (flips[i], flips[start])))
        changes.append(paired_leave_one_out_test(*means, *without))
        errors.append(paired_t_test(wrong[i], wrong[start]))
    adjusted = (holm([one.p for one in found]) for found in (changes, errors))
    gains = {}
    for i, change, error, *p in zip(others, changes, errors, *adjusted, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = (flips[start] - flips[i]) / np.where(gap > 0, gap, np.nan)
        stderr = jackknife_stderr(shares[1:])
        closed = Estimate(float(shares[0]), np.nan, stderr)
        gains[i] = Gain(
            (
                Change("negative_flip_rate", change, float(p[0])),
                Change("new_error", error, float(p[1])),
            ),
            closed,
        )
    return gains


def _left_out(result: UpdateResult) -> np.ndarray:
    flips = result.flips.negative / result.flips.examples
    own = "own" in result.rates
    used = np.eye(len(flips), dtype=bool) if own else np.ones_like(flips)
    kept = 1.0 - np.eye(len(flips))
    weights = [used, *(used * np.outer(one, one) for one in kept)]
    return np.array([np.average(flips, weights=weight) for weight in weights])
