"""A study's report as data: which methods finished, with which numbers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from churn_compare.example_ids import PredictionsError, rows_of
from churn_compare.store import Predictions, check_comparable, is_stored
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import NO_HISTORY, History, Study, read_history
from churn_jax.reports.estimates import (
    COMPARED,
    ENOUGH_RUNS,
    FEWEST_RUNS,
    UNTESTED,
    Change,
    Estimate,
    compare_with_baseline,
    over_runs,
    with_changes,
)
from churn_jax.reports.factors import factors_of, kind_of_churn
from churn_jax.reports.members import (
    MEMBERS,
    Agreement,
    Members,
    ReferenceCurve,
    agreement_of,
    equivalents,
    load_members,
    reference_curve,
)
from churn_jax.reports.published import published
from churn_jax.reports.quantities import (
    ABSENT,
    CALIBRATED,
    DEFAULT_COLUMNS,
    QUANTITIES,
    Quantity,
    times,
)
from churn_jax.reports.summary import (
    MethodSummary,
    NotMeasuredError,
    summarize,
    with_calibration,
    with_columns,
)
from churn_jax.reports.updates import Updates, collect_updates

if TYPE_CHECKING:
    from churn_jax.reports.sweep import Sweep


@dataclasses.dataclass(frozen=True)
class Row:
    """One finished method."""

    info: RowRecord  # what `study.json` says about it
    summary: MethodSummary  # its numbers
    # against the baseline, by quantity; empty for the baseline or without one
    changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    history: History = NO_HISTORY  # its training curves
    headline: str = "churn"  # name of the quantity compared first
    quality: str = "accuracy"  # name of the second one
    # how much its members differ; None for single networks
    agreement: Agreement | None = None

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.info.label

    @property
    def change(self) -> Change:
        """Change of the headline; `UNTESTED` for the baseline itself."""
        return self.changes.get(self.headline, UNTESTED)

    @property
    def stopped(self) -> str:
        """Its runs that stopped, when and why: `run 2 stopped at step 120`."""
        told, parts = {stop.replica: stop for stop in self.info.stopped}, []
        for run in self.summary.stopped:
            stop = told.get(run)
            step = f" at step {stop.step}" if stop and stop.step is not None else ""
            term = f" (non-finite {stop.term})" if stop and stop.term else ""
            parts.append(f"run {run} stopped{step}{term}")
        return ", ".join(parts)

    @property
    def clause(self) -> str:
        """The effects on headline and quality, in words; empty for the baseline."""
        named = (self.headline, self.quality) if self.changes else ()
        return "; ".join(self.changes[name].verdict for name in named)

    @property
    def verdict(self) -> str:
        """The same as one sentence."""
        return f"{self.clause[0].upper()}{self.clause[1:]}." if self.clause else ""

    @property
    def gain(self) -> int | None:
        """1 for a detectably better headline, -1 for worse, else 0; None: untested."""
        effect = self.change.effect
        return None if effect is None else -effect

    @property
    def quality_gain(self) -> int | None:
        """The same for the quality."""
        effect = self.changes.get(self.quality, UNTESTED).effect
        return effect if self.quality == "accuracy" or effect is None else -effect

    @property
    def tone(self) -> str:
        """`good`, `bad`, `mixed` (one better, the other worse) or `even`."""
        found = {self.gain, self.quality_gain}
        if found >= {1, -1}:
            return "mixed"
        return "good" if 1 in found else "bad" if -1 in found else "even"


@dataclasses.dataclass(frozen=True)
class Missing:
    """A method of the study that is not in the tables, and why."""

    info: RowRecord  # what `study.json` says about it
    reason: str  # a clause; it names the file that is damaged
    # whether the method was trained and its file cannot be used
    damaged: bool = False


@dataclasses.dataclass(frozen=True)
class Report:
    """A study's finished methods, in the order of the study."""

    study: Study  # what was run
    rows: tuple[Row, ...] = ()  # the methods with usable predictions
    missing: tuple[Missing, ...] = ()  # the others
    # `[N]` of the examples all rows were evaluated on
    ids: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    # `[N]` their class ids
    labels: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    # what `write` wrote: name (`"table.md"`) to path
    files: dict = dataclasses.field(default_factory=dict)
    # the curve that gives deep-ensemble equivalents; None where the study does not ask
    # for it or has none
    reference: ReferenceCurve | None = None
    # sentences about files next to the predictions that cannot be used, and whether the
    # file is damaged
    unreadable: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    # rows that replace others, with what effect; None in studies without
    updates: Updates | None = None
    # what was chosen on the validation split; None for a study
    sweep: Sweep | None = None
    # report of a click study on the held-out examples; None otherwise
    held_out: Report | None = None

    @property
    def baseline(self) -> Row | None:
        """The row that the others are compared with; None while it has no numbers."""
        named = (r for r in self.rows if r.info.name == self.study.config.baseline)
        return next(named, None)

    @property
    def baseline_label(self) -> str:
        """Label of the baseline, also when it has not finished."""
        name = self.study.config.baseline
        labels = {method.name: method.label for method in self.study.methods}
        return labels.get(name) or self.study.unselected.get(name, name)

    @property
    def columns(self) -> tuple[Quantity, ...]:
        """Columns of the tables, without names that are unknown here."""
        named = [name for name in self.study.config.columns if name in QUANTITIES]
        return tuple(QUANTITIES[name] for name in named or DEFAULT_COLUMNS)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """All quantities that are reported of a row, in the order of the CSV.

        Those on request only where one of them is among the columns, calibrated ones
        only where one of these is, and of a user's own columns only those that are.
        """
        shown = self.columns
        asked = {q.name for q in shown if q.on_request and not (q.measure or q.of)}
        unasked = CALIBRATED if CALIBRATED.isdisjoint(asked) else ()
        return tuple(
            q
            for name, q in QUANTITIES.items()
            if (q in shown if q.measure or q.of else asked or not q.on_request)
            and name not in unasked
        )

    @property
    def headline(self) -> Quantity:
        """The quantity that rows are compared in."""
        # Delta_1 if it is a column, or else the calibrated NLL; churn otherwise.
        known = ("prediction_difference", "calibrated_nll")
        found = (name for name in known if QUANTITIES[name] in self.columns)
        return QUANTITIES[next(found, "churn")]

    @property
    def quality(self) -> str:
        """Second quantity of the comparison: accuracy, or the log loss of clicks."""
        return "nll" if self.study.one_pass else "accuracy"

    @property
    def compared(self) -> tuple[str, ...]:
        """The quantities whose differences from the baseline are reported."""
        return tuple(name for name in COMPARED if name != "nll" or name == self.quality)

    @property
    def best(self) -> str:
        """The conclusion: of the rows detectably better than the baseline, the lowest.

        A row that lowers accuracy, or raises the log loss of clicks, is chosen only if
        all others do so too. Rows whose runs share other seeds than the baseline's,
        that have other training examples, or fewer than `ENOUGH_RUNS` runs in common
        with it, are not candidates. A study of updates has no such sentence, nor has a
        sweep, in which nothing is chosen on the test split.
        """
        base = self.baseline
        if base is None or self.updates is not None or self.sweep is not None:
            return ""
        rows = [r for r in self.rows if r.changes and self._exchangeable(r, base)]
        tested = [row for row in rows if row.gain is not None]
        if not tested:
            said = {row.change.verdict: None for row in rows if row.change.why}
            few = f"differences are tested with {FEWEST_RUNS} runs or more"
            return f"Best: not decided; {'; '.join(said) or few}." if rows else ""

        def value(row: Row) -> float:
            return getattr(row.summary, self.headline.name).mean

        what, holm = self.headline.what.replace("Churn", "churn"), self._holm
        better = [row for row in tested if row.gain == 1]
        many = [r for r in tested if r.change.difference.runs >= ENOUGH_RUNS]
        sure = [row for row in many if row.gain == 1]
        good = [row for row in sure if row.quality_gain != -1]
        found = min(good or sure or better or [base, *tested], key=value)
        lower = [row for row in self.rows if value(row) < value(found)]
        of = " of the comparable rows" if lower and not better else ""
        least = f"{found.label} has the lowest {what}{of}"
        if sure:
            said = f"Best: {found.label}. It {found.clause}{_cost(found, base)}.{holm}"
        elif better:
            least += f" of those that differ: it {found.clause}"
            said = f"Best: not decided by so few runs. {least}.{holm}"
        elif found is not base:
            least += f", but {found.clause}"
            said = f"Best: no row is detectably better. {least}.{holm}"
        elif many:
            other = "comparable" if lower else "other"
            said = f"Best: {base.label}. No {other} row has a lower {what}."
        else:
            said = f"Best: not decided by so few runs. {least}."
        worse = "raises log loss" if self.study.one_pass else "lowers accuracy"
        apart = "is not comparable (seeds, training examples) or has too few runs"
        for row in lower:
            if row.gain == 1 or all(row is not one for one in (base, *tested)):
                why = worse if any(row is one for one in sure) else apart
                said += f" {row.label} has a lower {what}, but {why}."
        if sure and len(better) > 1:
            how = f"tested against {base.label}, not against each other"
            said += f" {len(better)} rows reduce {what}: they are {how}."
        return said

    def _exchangeable(self, row: Row, base: Row) -> bool:
        """True if both have the same seeds in common and the same training examples."""
        a, b = row.info, base.info
        ours, theirs = (factors_of(self.study, info).shared for info in (a, b))
        return ours == theirs and all(
            getattr(a.spec, name) == getattr(b.spec, name)
            for name in ("train_size", "class_share", "classes")
        )

    @property
    def _holm(self) -> str:
        """A sentence where several rows are tested."""
        tests = sum(bool(np.isfinite(row.change.p)) for row in self.rows)
        said = f" p and intervals are Holm-adjusted over {tests} methods."
        return said if tests > 1 else ""

    @property
    def caption(self) -> str:
        """The meaning of the table's numbers."""
        counts = sorted({len(row.summary.runs) for row in self.rows})
        runs = " to ".join(str(c) for c in dict.fromkeys([*counts[:1], *counts[-1:]]))
        names, about = {quantity.name for quantity in self.columns}, self.headline
        errors = [q.heading for q in self.columns if getattr(q.write, "error", False)]
        notes = f"{', '.join(errors)}: ± standard error over runs. " if errors else ""
        if names & CALIBRATED:
            notes += (
                "Cal. (calibrated): logits divided by a temperature fitted to each "
                "run's validation predictions. "
            )
        soft = [row.summary.surrogate_churn.mean for row in self.rows]
        if "surrogate_churn" in names and any(mean > 1 for mean in soft):
            most = max(row.summary.num_classes for row in self.rows) / 2
            notes += (
                f"SChurn is not a share: it lies between 0 and {most:g}, half the "
                "number of classes (×100 in the table), and is large where "
                "probabilities are nearly uniform. "
            )
        if "dee" in names and self.reference is not None:
            notes += (
                "DEE: size of the deep ensemble with the same calibrated NLL, by "
                f"linear interpolation on the curve of {self.reference.label} "
                f"({len(self.reference.mean)} members, mean over runs), of rows that "
                "know the same classes. "
            )
        what, unit = f"of {about.heading}", "difference"
        if about.name == "churn":
            what, unit = "churn", "percentage points"
        if len({row.summary.runs for row in self.rows}) > 1:
            of_set = about.name == "prediction_difference"
            same = ", where the rows have the same runs,"
            unit += same if of_set else " over the runs that both rows have,"
        jackknife = "" if about.name == "calibrated_nll" else " and a jackknife"
        return (
            f"Mean ± standard deviation over {runs or 0} runs (accuracy, ECE, NLL) or "
            f"over all pairs of runs (churn). {notes}Δ {what}: {unit} against "
            f"{self.baseline_label}, with a 95 % interval by Student's t{jackknife} "
            f"over runs. p: two-sided, of the same test.{self._holm} "
            "Costs: networks trained, and passes per prediction, of any size."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about stopped runs, equal and missing rows, unusable files."""
        out = []
        for i, row in enumerate(self.rows):
            found, runs = row.summary, len(row.summary.runs)
            knows, nll = found.known[self.labels], found.run_values["nll"]
            if row.stopped:
                rest = f"the other {runs} of {runs + len(found.stopped)} runs"
                out.append(f"{row.label}: {row.stopped}; its numbers are over {rest}.")
            if not knows.all():
                of = f"{knows.sum()} of {knows.size} examples whose class it knows"
                out.append(f"{row.label}: NLL, also calibrated, is of the {of}.")
            if np.isinf(nll).any():
                why = f"a label has logit -inf in run {found.runs[nll.argmax()]}"
                out.append(f"{row.label}: NLL is infinite, since {why}.")
            same = (r.label for r in self.rows[:i] if _equal(r.summary, found))
            if (twin := next(same, None)) is not None:
                what = f"the same predictions as {twin}, bit for bit"
                out.append(f"{row.label} has {what}.")
            if self.study.record.outdated(row.info):
                what = "results of earlier settings and is to be trained again"
                out.append(f"{row.label} has {what}.")
        for lost in self.missing:
            out.append(f"{lost.info.label} is not in the table: {lost.reason}.")
        config = self.study.config
        others = any(row.info.name != config.baseline for row in self.rows)
        if others and not any(row.changes for row in self.rows):
            none = "there are no differences to test"
            out.append(f"Without the baseline {self.baseline_label} {none}.")
        place = config.published
        if place and not published(place):
            out.append(f"The published numbers {place!r} of this study were not found.")
        unknown = (name for name in config.columns if name not in QUANTITIES)
        out += [f"The study names an unknown column {name!r}." for name in unknown]
        return (*out, *self.unreadable)

    @property
    def few(self) -> str:
        """A sentence about too few runs; empty where there are enough, or only one."""
        most = max((len(row.summary.runs) for row in self.rows), default=0)
        if not 1 < most < ENOUGH_RUNS:
            return ""
        option = "--replicas" if self.sweep is None else "--seeds"
        said = "intervals are wide, and a single unusual run may decide a test"
        if most < FEWEST_RUNS:
            said = "there are no intervals and no tests"
        more = f"Take {ENOUGH_RUNS} or more ({option})."
        return f"{most} runs per row are few: {said}. {more}"

    @property
    def context(self) -> tuple[str, ...]:
        """Sentences about what kind of churn it is; mostly none."""
        return kind_of_churn(self.study, [row.info for row in self.rows])


def _cost(row: Row, base: Row) -> str:
    """The cost of a row next to the baseline's, as the end of a sentence."""
    parts = []
    for what in ("training", "inference"):
        ours, theirs = (times(getattr(r.info, f"{what}_cost")) for r in (row, base))
        if ours not in (ABSENT, theirs):
            parts.append(f"{what} {ours} ({base.label} {theirs})")
    return f"; cost: {', '.join(parts)}" if parts else ""


def _equal(a: MethodSummary, b: MethodSummary) -> bool:
    """True if the predictions of all runs are the same, by classes and scores."""
    if a.runs != b.runs or not np.array_equal(a.classes, b.classes):
        return False
    names = ("nll", "brier", "entropy", "confidence")
    pairs = ((a.run_values[name], b.run_values[name]) for name in names)
    return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)


def collected(study: Study, split: str = "test") -> Report:
    """The numbers of a study's rows on one split, one row in memory at a time."""
    # All must have the baseline's examples or, without it, those of the first row.
    plain, baseline = Report(study), study.config.baseline
    changing = [quantity.of for quantity in plain.columns if quantity.of]
    columns = tuple(dict.fromkeys([q.name for q in plain.columns] + changing))
    calibrated = split != "validation" and not CALIBRATED.isdisjoint(columns)
    examples: Predictions | None = None
    summaries: dict[str, MethodSummary] = {}
    agreements: dict[str, Agreement] = {}
    missing: dict[str, Missing] = {}
    said: dict[str, bool] = {}

    @contextlib.contextmanager
    def noting(what: str, damaged: bool) -> Iterator[None]:
        """Notes a file that cannot be used, so that the rest is reported."""
        try:
            yield
        except PredictionsError as error:
            damaged = damaged and not isinstance(error, NotMeasuredError)
            said[f"{what}: {_sentence(error)}."] = damaged

    for info in sorted(study.methods, key=lambda info: info.name != baseline):
        path = study.file(info.name, split)
        if not is_stored(path):
            lost = f"{path} does not exist"
            reason = lost if info.trained else "it has no predictions yet"
            missing[info.name] = Missing(info, reason, info.trained)
            continue
        try:
            predictions = study.predictions(info.name, split)
            nothing = np.zeros((1, len(predictions.ids), 2), np.float32)
            own = Predictions(predictions.ids, predictions.labels, nothing)
            if examples is not None:
                check_comparable(examples, own)
            found = summarize(predictions, stopped=info.stopped_replicas)
            if calibrated and is_stored(study.file(info.name, "validation")):
                with noting(f"{info.label} has no calibrated numbers", True):
                    validation = study.predictions(info.name, "validation")
                    found = with_calibration(found, predictions, validation)
            found, wrong = with_columns(found, predictions, columns)
        except PredictionsError as error:
            reason, dead = _sentence(error), isinstance(error, NotMeasuredError)
            named = dead or reason.startswith(str(path.parent))
            reason = reason if named else f"{path}: {reason}"
            missing[info.name] = Missing(info, reason, damaged=not dead)
            continue
        examples = examples or own
        said |= {f"{info.label}: {_sentence(error)}.": False for error in wrong}
        if info.parameters is not None:
            found = found.having(parameters=Estimate(float(info.parameters)))
        if (kept := path.parent / MEMBERS[split]).exists():
            with noting(f"The members of {info.label} cannot be described", True):
                members = _members(kept, examples)
                agreement = agreement_of(members, info.method, found.runs)
                agreements[info.name], of = agreement, agreement.of_runs
                kl, differ = over_runs(of.mean_kl), over_runs(of.disagreement)
                found = found.having(member_kl=kl, member_disagreement=differ)
        summaries[info.name] = found
    curve = None
    if "dee" in columns and summaries:
        with noting("There are no deep-ensemble equivalents", False):
            if (curve := reference_curve(study, summaries)) is None:
                said[
                    "No row has calibrated numbers and a deep ensemble's members on "
                    "both splits, so there are no deep-ensemble equivalents."
                ] = False
    if curve is not None:
        own = summaries[curve.name]
        summaries = {k: equivalents(curve, of, own) for k, of in summaries.items()}
    summaries = with_changes(summaries, baseline, columns)
    compared = compare_with_baseline(summaries, baseline)
    reasons = {name: one.reason for name, one in missing.items()}
    return dataclasses.replace(
        plain,
        ids=plain.ids if examples is None else examples.ids,
        labels=plain.labels if examples is None else examples.labels,
        rows=tuple(
            Row(
                info,
                summaries[info.name],
                compared.get(info.name, {}),
                read_history(study.method_folder(info.name) / "metrics.jsonl")
                if split == "test"
                else NO_HISTORY,
                plain.headline.name,
                plain.quality,
                agreements.get(info.name),
            )
            for info in study.methods
            if info.name in summaries
        ),
        missing=tuple(missing[i.name] for i in study.methods if i.name in missing),
        reference=curve,
        unreadable=said,
        updates=collect_updates(study, summaries, reasons, examples),
    )


def _members(path: Path, examples: Predictions) -> Members:
    """The members' predictions of a row, for these examples."""
    members = load_members(path)
    rows = rows_of(members.ids, examples.ids)
    lost = int((rows < 0).sum())
    if lost or np.any(examples.labels[rows] != members.labels):
        raise PredictionsError(
            f"{path}: {lost or 'the labels'} of {len(rows)} examples are not those of "
            "the predictions"
        )
    return members


def _sentence(error: ValueError) -> str:
    return " ".join(str(error).split())
