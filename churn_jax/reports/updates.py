"""Model updates of a study: rates of old and new runs, as data and as sections.

`config.updates` of `study.json` says which rows replace which. Predicted classes are
all that it needs. The sections are in `updates.md`, too, the numbers in `updates.csv`.
"""

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from churn_compare import documents as doc
from churn_compare.documents.plotting import COLOURS
from churn_compare.flip_counts import Flips, count_flips, version_matrices
from churn_compare.tables import heat_map, matrix_tables
from churn_jax import metrics
from churn_jax.analysis import significance
from churn_jax.configuration.study import Update
from churn_jax.reports import charts
from churn_jax.reports.artefacts import Study
from churn_jax.reports.charts import Chart, Point
from churn_jax.reports.estimates import (
    FEWEST_RUNS,
    UNKNOWN,
    UNTESTED,
    Change,
    Estimate,
    adjusted,
    by_name,
    over_runs,
    shared_runs,
)
from churn_jax.reports.paper_numbers import next_to_paper
from churn_jax.reports.quantities import ABSENT, WIDE, Quantity, estimate_fields, rate
from churn_jax.reports.summary import MethodSummary

if TYPE_CHECKING:
    from churn_jax.reports.report import Report

_MOST_OPEN = 12  # models; a larger table of all pairs is folded
_SECOND = ("negative_flip_rate", "relative_negative_flip_rate")


class Rates(NamedTuple):
    """Rates of an update over one kind of pairs of runs, and how many these are."""

    pairs: int
    old_error: Estimate
    new_error: Estimate
    negative_flip_rate: Estimate
    relative_negative_flip_rate: Estimate
    positive_flip_rate: Estimate
    churn: Estimate


RATES: tuple[Quantity, ...] = (
    Quantity("old_error", "ER old %", rate),
    Quantity("new_error", "ER new %", rate, narrow=True),
    Quantity("negative_flip_rate", "NFR %", rate, narrow=True),
    Quantity("relative_negative_flip_rate", "Rel. NFR %", rate, narrow=True),
    Quantity("positive_flip_rate", "PFR %", rate),
    Quantity("churn", "Churn %", rate),
)
"""The fields of `Rates` as columns."""


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateResult:
    """One update on one set of examples."""

    old: str  # row of the model in use
    new: str  # row of the model that replaces it
    label: str  # of the update
    targeted: bool  # whether new run r was trained against old run r
    examples: str  # `"all"`, or `"known"` for those whose class the old model knows
    flips: Flips  # of every old run and every new one
    # `"all"`: every old run against every new one; before it, where the update is
    # targeted, `"own"`: old run r against new run r
    rates: Mapping[str, Rates]
    # `negative_flip_rate` (of own pairs where it is targeted) and `new_error` against
    # the update to the study's baseline, p Holm-adjusted over all; none where it is not
    # compared
    changes: Sequence[Change] = ()
    # share of the difference between the baseline's NFR and that of the first update
    # from an ensemble to an ensemble; NaN where there is none
    closed: Estimate = UNKNOWN
    ideal: bool = False  # whether it is that update

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
    labels: tuple[str, ...] = ()  # of the models that appear in an update
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
    """The updates of a study; None where it has none."""
    names = {info.name: info.label for info in study.methods}
    remarks: list[str] = []
    ready: list[tuple[str, Update]] = []
    models: dict[str, MethodSummary] = {}
    for entry in study.config.updates:
        pair = entry.old, entry.new
        if not study.unselected.keys().isdisjoint(pair):
            continue
        label = entry.label or " → ".join(names.get(name, name) for name in pair)
        if lost := [name for name in pair if name not in summaries]:
            why = reasons.get(lost[0], "it is not a finished row of this study")
            said = f"{names.get(lost[0], lost[0])}: {why}"
            remarks.append(f"The update {label} is not in the table. {said}.")
            continue
        ready.append((label, entry))
        models |= {name: summaries[name] for name in pair}
    if not ready:
        return Updates(remarks=tuple(remarks)) if remarks else None
    labels, versions = examples.labels, [*models]
    matrices = version_matrices([m.classes for m in models.values()], labels)
    results: list[UpdateResult] = []
    for label, entry in ready:
        flips = matrices.between(versions.index(entry.old), versions.index(entry.new))
        results += _results(label, entry, models, labels, flips)
    several = {one.name for one in study.methods if (one.inference_cost or 0) > 1}
    compared = _compared(results, models, study.config.baseline, several, remarks)
    known = None
    if len({model.classes_known for model in models.values()}) > 1:
        # An old run is right on classes that it knows alone, so the flips are the same.
        shares = np.array([model.known[labels].mean() for model in models.values()])
        with np.errstate(invalid="ignore"):
            shares = np.where(shares > 0, shares, np.nan)[:, None]
            known = matrices.negative_flip_rate / shares
    shown = tuple(names[name] for name in models)
    return Updates(compared, shown, matrices, known, tuple(remarks))


def _results(
    label: str, entry: Update, models: Mapping[str, MethodSummary], labels, flips: Flips
) -> list[UpdateResult]:
    """Of one update: on all examples and, where class sets differ, on known ones."""
    old, new = models[entry.old], models[entry.new]
    own = shared_runs(old, new) if entry.targeted else ([], [])
    sets = {"all": flips}
    if old.classes_known != new.classes_known:
        keep = old.known[labels]
        parts = old.classes[:, keep], new.classes[:, keep], labels[keep]
        sets["known"] = count_flips(*parts)
    facts = entry.old, entry.new, label, entry.targeted
    return [
        UpdateResult(*facts, name, found, _rates(found, own))
        for name, found in sets.items()
    ]


_over_pairs = jax.jit(jax.vmap(metrics.summarize_cross))
_over_own_pairs = jax.jit(jax.vmap(metrics.summarize_paired))


def _rates(flips: Flips, own) -> dict[str, Rates]:
    """Over the pairs `own` of rows and columns, if there are some, and over all."""
    with np.errstate(invalid="ignore"):  # without examples
        # Relative NFR needs a right old and a wrong new prediction.
        possible = (flips.old_error < 1) & (flips.new_error > 0)
        found = {
            "negative_flip_rate": flips.negative / flips.examples,
            "relative_negative_flip_rate": np.where(possible, flips.relative, np.nan),
            "positive_flip_rate": flips.positive / flips.examples,
            "churn": flips.changed / flips.examples,
        }
        wrong = flips.old_error[:, 0], flips.new_error[0]
    stack = np.stack(list(found.values())).astype(np.float32)

    def rates(relative, old_error, new_error, summary) -> Rates:
        numbers = jax.device_get((summary.mean, summary.std, summary.stderr))
        of = by_name(found, *numbers)
        if (some := relative[~np.isnan(relative)]).size < relative.size:
            rest = Estimate(some.mean()) if some.size else UNKNOWN
            of["relative_negative_flip_rate"] = rest
        return Rates(relative.size, over_runs(old_error), over_runs(new_error), **of)

    every = {"all": rates(stack[1], *wrong, _over_pairs(stack))}
    a, b = own
    if not a or not flips.examples:
        return every
    summary = _over_own_pairs(stack[:, a][:, :, b])
    return {"own": rates(stack[1, a, b], wrong[0][a], wrong[1][b], summary), **every}


def _compared(
    results: Sequence[UpdateResult],
    models: Mapping[str, MethodSummary],
    baseline: str,
    ensembles: Collection[str],
    remarks: list[str],
) -> tuple[UpdateResult, ...]:
    """The results, those on all examples compared with the update to the baseline."""
    # Not where the old model knows other classes, which it cannot lose. `ensembles` are
    # the rows that deploy several networks.
    starts = [r for r in results if r.new == baseline and r.examples == "all"]
    known = {models[r.old].classes_known for r in starts}
    whole = [r for r in results if r.examples == "all"]
    whole = [r for r in whole if models[r.old].classes_known in known]
    every = [{*models[name].runs} for r in whole for name in (r.old, r.new)]
    if len(whole) < 2 or max(map(len, every)) < FEWEST_RUNS:
        return tuple(results)
    shared = sorted(set.intersection(*every))
    if len(starts) > 1 or len(shared) < FEWEST_RUNS:
        need = f"one to the baseline alone, and {FEWEST_RUNS} runs that all models have"
        remarks.append(f"Updates are not compared with each other, which needs {need}.")
        return tuple(results)
    (start,) = starts

    def errors(of: UpdateResult) -> np.ndarray:
        return of.flips.new_error[0][np.isin(models[of.new].runs, shared)]

    # NFR of these runs, then without each in turn, `[R + 1]`.
    flips = {r: _left_out(r, models, shared) for r in whole}
    ideal = next((r for r in whole if {r.old, r.new} <= {*ensembles}), start)
    gap = flips[start] - flips[ideal]
    others = [r for r in whole if r is not start]
    fewer, wronger = [], []
    for one in others:
        means, without = zip(*((x[0], x[1:]) for x in (flips[one], flips[start])))
        fewer.append(significance.paired_leave_one_out_test(*means, *without))
        wronger.append(significance.paired_t_test(errors(one), errors(start)))
    tested = (adjusted("negative_flip_rate", fewer), adjusted("new_error", wronger))
    found = {}
    for one, *changes in zip(others, *tested, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = (flips[start] - flips[one]) / np.where(gap > 0, gap, np.nan)
        error = significance.jackknife_stderr(shares[1:])
        closed = Estimate(float(shares[0]), np.nan, error)
        more = {"changes": changes, "closed": closed, "ideal": one is ideal}
        found[one] = dataclasses.replace(one, **more)
    return tuple(found.get(result, result) for result in results)


def _left_out(result: UpdateResult, models, shared: Sequence[int]) -> np.ndarray:
    flips = result.flips.negative / result.flips.examples
    a, b = np.ix_(models[result.old].runs, models[result.new].runs)
    used = np.isin(a, shared) & np.isin(b, shared)
    used &= (a == b) | ("own" not in result.rates)
    weights = [used, *(used & (a != run) & (b != run) for run in shared)]
    return np.array([np.average(flips, weights=weight) for weight in weights])


def updates_section(report: "Report") -> doc.Section:
    """Tables and figures; nothing for a study without."""
    if (updates := report.updates) is None:
        return doc.Section("", [])
    blocks: list[doc.Block] = [doc.Text(remark, "note") for remark in updates.remarks]
    if updates.results:
        every = (doc.Strong("Every model against every other"),)
        few = len(updates.labels) <= _MOST_OPEN
        blocks += [
            updates_table(updates),
            *_gains_table(updates, report.study.config.baseline),
            doc.Fold(every, flip_tables(updates), open=few),
            doc.Grid([_errors_against_flips(updates.whole)]),
        ]
    return doc.Section("Updates", blocks)


def updates_document(report: "Report") -> doc.Document:
    """Content of `updates.md` and `updates.csv`, fractions at full precision."""
    # One line per update, set of examples and pairing: `all` pairs of an old and a new
    # run, or `own` pairs (r, r) of a targeted update. `first` is 1 on the line that
    # fits the update; it has the published numbers, too.
    section, papers = paper_updates(report)
    results = () if report.updates is None else report.updates.results
    none = [UNTESTED._replace(quantity=n) for n in ("negative_flip_rate", "new_error")]
    rows = []
    for result, paper in zip(results, papers, strict=True):
        for pairing, rates in result.rates.items():
            first = rates is result.first
            row: dict = {
                "label": result.label,
                "old": result.old,
                "new": result.new,
                "targeted": int(result.targeted),
                "examples": result.examples,
                "num_examples": int(result.flips.examples),
                "pairing": pairing,
                "first": int(first),
                "pairs": rates.pairs,
            }
            for quantity in RATES:
                row |= estimate_fields(quantity.name, getattr(rates, quantity.name))
            tested = first and result.changes
            for change in result.changes if tested else none:
                row |= change.fields
            closed = result.closed if tested else UNKNOWN
            row |= {"gap_closed": closed.mean, "gap_closed_stderr": closed.stderr}
            row |= paper if first else dict.fromkeys(paper)
            rows.append(row)
    fields = [*rows[0]] if rows else []
    title = f"{report.study.config.title}: updates"
    blocks = [updates_section(report), section]
    return doc.Document(title, blocks=blocks, data=doc.Records(fields, rows))


def updates_table(updates: Updates) -> doc.Table:
    """The rates, one row per update and set of examples."""
    targeted = any("own" in result.rates for result in updates.results)
    second = [q for q in RATES if targeted and q.name in _SECOND]
    known = any(result.examples == "known" for result in updates.results)
    columns = [doc.Column("Update"), doc.Column("Pairs")]
    columns += [doc.Column("Examples")] if known else []
    columns += [q.column() for q in RATES]
    columns += [doc.Column(f"{q.heading}, all pairs", from_width=WIDE) for q in second]
    rows = []
    for result in updates.results:
        own = " own" if "own" in result.rates else ""
        cells = [result.label, f"{result.first.pairs}{own}"]
        if known:
            cells.append(f"{int(result.flips.examples):,} {result.examples}")
        cells += [q.cell(result.first) for q in RATES]
        cells += [q.cell(result.rates["all"]) if own else ABSENT for q in second]
        rows.append(cells)
    caption = (
        "Mean ± standard error. Over all pairs of an old and a new run, by a jackknife "
        "that leaves out one old run, and one new run, at a time."
    )
    if targeted:
        caption += (
            " Own pairs: new run r was trained against old run r, so the first numbers "
            "of a targeted update are over these pairs alone; the last columns are "
            "over all pairs."
        )
    if known:
        caption += (
            " Known: on the examples whose class the old model knows. On all examples "
            "an old model is wrong wherever it does not know the class."
        )
    return doc.Table(columns, rows, caption=caption)


def _gains_table(updates: Updates, baseline: str) -> list[doc.Table]:
    """How much less updates break than that to the baseline, where it is compared."""
    if not (found := [result for result in updates.results if result.changes]):
        return []
    start = next(r for r in updates.results if r.new == baseline and not r.changes)
    caption = (
        f"Difference from {start.label} with its 95 % interval, as wide as p asks for, "
        "over the runs that all models have. NFR: a jackknife that leaves run r of all "
        "models out at a time; ER: paired by run. p: two-sided (Student's t, R - 1 "
        "degrees of freedom), Holm-adjusted over the updates."
    )
    if others := [r.label for r in found if r.old != start.old]:
        caption += f" Of another old model: {', '.join(others)}."
    heads = ["Update", "NFR, points", "p", "ER new, points", "p"]
    rows = [[r.label, *(x for one in r.changes for x in one.cells)] for r in found]
    if ideal := [result.label for result in found if result.ideal]:
        heads.append("Gap closed %")
        rows = [[*row, rate(r.closed)] for row, r in zip(rows, found)]
        way = f"from {start.label} to {ideal[0]}"
        caption += f" Gap closed: how far NFR is on the way {way}."
    return [doc.Table(heads, rows, f"Against {start.label}", caption)]


def flip_tables(updates: Updates) -> list[doc.Table]:
    """Every two models, on all examples and, if they know other classes, on known."""
    found = matrix_tables(updates.matrices, updates.labels)
    if (known := updates.known_flips) is not None:
        title = "Negative flips (NFR) %, known"
        caption = "NFR on the examples whose class the old model knows."
        found.append(heat_map(updates.labels, 100 * known, title, caption, 2))
    return found


def _errors_against_flips(results: Sequence[UpdateResult]) -> doc.Figure:
    _, new_error, flips, *_ = RATES
    points = []
    for i, result in enumerate(results):
        x, y = new_error.shown(result.first), flips.shown(result.first)
        # A ninth update has the first one's colour, so it needs another shape.
        points.append(Point(i, result.label, x, y, i + i // len(COLOURS)))
    chart = Chart(
        "errors_against_flips",
        "Error rate against negative flips",
        "One point per update, as in Figure 1 of the paper: left and down is better. "
        "Bars: one standard error.",
        "New error rate against negative flip rate of every update",
        (5.4, 3.4 + 0.2 * -(-len(results) // 2)),  # room for the labels below
    )
    x = "Error rate of the new model %   (less is better)"
    return charts.scatter(chart, points, x, "NFR %   (less is better)")


def paper_updates(report: "Report") -> tuple[doc.Section, list[dict[str, Any]]]:
    """A paper's update rates next to those measured; empty where there are none."""
    # A published row is that of an update if it is named `old->new`, or like the new
    # row alone: then it is the targeted update to that row, or one from the usual old
    # model. The paper's old error rates leave out classes that the old model lacks.
    if report.updates is None:
        return doc.Section("", []), []
    results = report.updates.results
    known = {(r.old, r.new) for r in results if r.examples == "known"}
    olds = collections.Counter(r.old for r in report.updates.whole)
    usual = [r for r in results if r.targeted or olds[r.old] == max(olds.values())]
    old_of = {r.new: r.old for r in sorted(usual[::-1], key=lambda r: r.targeted)}
    measured = []
    for result in results:
        pair, of_known = (result.old, result.new), result.examples == "known"
        label = f"{result.label} (known classes)" if of_known else result.label
        names = ["->".join(pair)]
        names += [result.new] if old_of.get(result.new) == result.old else []
        measured.append((names, label, result.first, of_known or pair not in known))
    rates = [quantity for quantity in RATES if quantity.name != "churn"]
    return next_to_paper(report, rates, measured, "Update")
