"""A study's report as data: which methods finished, with which numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from churn_compare.display import CompareResult
from churn_compare.documents import Section
from churn_compare.store import (
    Predictions,
    PredictionsError,
    check_comparable,
    is_stored,
    load_predictions,
)
from churn_jax.analysis.significance import Difference
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import (
    History,
    ReportError,
    Study,
    read_history,
    read_study,
)
from churn_jax.reports.cells import mean_error, times
from churn_jax.reports.compare import (
    ENOUGH_RUNS,
    FEWEST_RUNS,
    Comparison,
    change_of,
    compare_with_baseline,
    effect,
)
from churn_jax.reports.equivalents import (
    ReferenceCurve,
    equivalents,
    reference_curve,
    reference_row,
)
from churn_jax.reports.estimates import Estimate, over_runs
from churn_jax.reports.factors import kind_of_churn, shared
from churn_jax.reports.members import (
    DIAGNOSTICS,
    MEMBERS,
    Agreement,
    Members,
    agreement_of,
    load_agreement,
    load_members,
)
from churn_jax.reports.own_columns import with_columns
from churn_jax.reports.published import published
from churn_jax.reports.quantities import (
    CALIBRATED,
    DEFAULT_COLUMNS,
    QUANTITIES,
    Quantity,
    headline,
    shown_columns,
)
from churn_jax.reports.summary import (
    AllRunsStoppedError,
    MethodSummary,
    check_validation,
    summarize,
)
from churn_jax.reports.updates import Updates, collect_updates

CAPTION = (
    "Mean ± standard deviation over {runs} runs (accuracy, ECE, NLL) or over all pairs "
    "of runs (churn). {sets}Δ {what}: {unit} against {baseline}, with a 95 % interval "
    "by Student's t and a jackknife over runs. p: two-sided, of the same test, "
    "Holm-adjusted over the methods; the interval is as wide as that asks for."
)
ONE_RUN = (
    "One run of each row, so there is no spread over runs. Churn between runs needs "
    "several of them, logits [R, N, C]."
)
SETS = (
    "Prediction differences (Δ₁, Δ₂, ...): of all runs as one set, ± standard error. "
)
AT_TEMPERATURE = (
    "Cal. (calibrated): logits divided by the temperature that each run's own "
    "validation predictions ask for. "
)
SCHURN = (
    "SChurn is not a share: it lies between 0 and {most:g}, half the number of classes "
    "(×100 in the table), and is large where probabilities are nearly uniform. "
)
DEE = (
    "DEE: size of the deep ensemble with the same calibrated NLL, by linear "
    "interpolation on the curve of {label} ({members} members, mean over runs). "
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One finished method."""

    info: RowRecord  # what `study.json` says about it
    summary: MethodSummary  # its numbers
    # against the baseline; None for the baseline or without one
    comparison: Comparison | None
    history: History  # its training curves
    headline: str = "churn"  # what it is compared in next to accuracy
    # how much its members differ; None for single networks
    agreement: Agreement | None = None

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.info.label

    @property
    def change(self) -> Difference | None:
        """Of the headline against the baseline."""
        return getattr(self.comparison, self.headline, None)

    @property
    def change_p(self) -> float | None:
        """The p-value of `change`, Holm-adjusted over the methods."""
        return getattr(self.comparison, f"{self.headline}_p", None)

    @property
    def clause(self) -> str:
        """The effects on headline and accuracy, in words."""
        if self.comparison is None:
            return ""
        first = getattr(self.comparison, f"{self.headline}_verdict")
        return f"{first}; {self.comparison.accuracy_verdict}"

    @property
    def verdict(self) -> str:
        """The same as one sentence; empty for the baseline."""
        return f"{self.clause[0].upper()}{self.clause[1:]}." if self.clause else ""

    @property
    def gain(self) -> int | None:
        """1 if the headline is detectably better, -1 if worse, 0 if neither."""
        if self.change is None or self.change_p is None:
            return None
        sign = effect(self.change, self.change_p)
        return None if sign is None else -sign

    @property
    def accuracy_gain(self) -> int | None:
        """The same for accuracy."""
        if self.comparison is None:
            return None
        return effect(self.comparison.accuracy, self.comparison.accuracy_p)

    @property
    def tone(self) -> str:
        """`good`, `bad`, `mixed` (one better, the other worse) or `even`."""
        found = {self.gain, self.accuracy_gain}
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
    """A study's finished methods, in the order of the study.

    Attributes:
        study: what was run.
        rows: the methods with usable predictions.
        missing: the others.
        ids: `[N]` of the examples all rows were evaluated on.
        labels: `[N]` their class ids.
        files: what `write` wrote: name (`"table.md"`) to path.
        reference: the deep ensembles that rows are measured in; None where the study
            does not ask for it or has none.
        unreadable: sentences about files next to the predictions that cannot be used.
        losses: those of them about files that are damaged.
        updates: rows that replace others, with what effect; None in studies without.
        steps: for logits that no study made, name of a row to its comparison with
            the baseline, as `churn_jax.compare` makes it.
        class_names: `C` names, where they are known.
        held_out: the same of clicks, on the examples that are never learned.
    """

    study: Study
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]
    ids: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    labels: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.int64)
    )
    files: dict = dataclasses.field(default_factory=dict)
    reference: ReferenceCurve | None = None
    unreadable: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    updates: Updates | None = None
    steps: Mapping[str, CompareResult] = dataclasses.field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    held_out: Report | None = None

    @property
    def first_sections(self) -> list[Section]:
        """What a page has before its results; nothing of a study."""
        return []

    def more(self, name: str) -> dict[str, Any]:
        """What the CSV has of a row in addition; nothing of a study."""
        return {}

    def class_name(self, number: int) -> str:
        """The name of a class on the page."""
        return str(number) if self.class_names is None else self.class_names[number]

    @property
    def baseline(self) -> Row | None:
        """The row that the others are compared with; None while it has no numbers."""
        named = (r for r in self.rows if r.info.name == self.study.config.baseline)
        return next(named, None)

    @property
    def baseline_label(self) -> str:
        """Label of the baseline, also when it has not finished."""
        for method in self.study.methods:
            if method.name == self.study.config.baseline:
                return method.label
        return self.study.unselected.get(
            self.study.config.baseline, self.study.config.baseline
        )

    @property
    def columns(self) -> tuple[Quantity, ...]:
        """What the tables show of each row, without names that are unknown here."""
        named = shown_columns(self.study.config.columns)
        return named or tuple(QUANTITIES[name] for name in DEFAULT_COLUMNS)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """All quantities that are reported of a row, in the order of the CSV.

        Those on request only where one of them is among the columns, and of a user's
        own columns only those that are.
        """
        shown = self.columns
        asked = any(q.on_request and not (q.measure or q.of) for q in shown)
        return tuple(
            q
            for q in QUANTITIES.values()
            if (q in shown if q.measure or q.of else asked or not q.on_request)
        )

    @property
    def headline(self) -> Quantity:
        """The quantity that rows are compared in, next to accuracy."""
        return headline(tuple(quantity.name for quantity in self.columns))

    @property
    def best(self) -> str:
        """What to take away: the row that lowers the headline most, if one is shown to.

        A row that lowers accuracy is passed over where another does not. Rows whose
        runs share other seeds than the baseline's, or that have other training
        examples, are not candidates; a study of updates has no such sentence.
        """
        base = self.baseline
        if base is None or self.updates is not None:
            return ""
        rows = [r for r in self.rows if r.comparison and self._exchangeable(r, base)]
        tested = [row for row in rows if row.gain is not None]
        if not tested and self.steps:
            return ""  # what can be said of them is in `steps`
        if not tested:
            few = "Best: not decided; differences are tested with"
            return f"{few} {FEWEST_RUNS} runs or more." if rows else ""

        def value(row: Row) -> float:
            return getattr(row.summary, self.headline.name).mean

        what = self.headline.heading.removesuffix(" %").replace("Churn", "churn")
        adjusted = sum(row.comparison is not None for row in self.rows)
        holm = f" p is Holm-adjusted over {adjusted} methods." if adjusted > 1 else ""
        better = [row for row in tested if row.gain == 1]
        if better and all(r.change.runs < ENOUGH_RUNS for r in better if r.change):
            lowest = min(better, key=value)
            return (
                f"Best: not decided by so few runs. {lowest.info.label} has the lowest "
                f"{what} of those that differ: it {lowest.clause}.{holm}"
            )
        if not better:
            lowest = min([base, *tested], key=value)
            if lowest is base:
                return f"Best: {base.info.label}. No other row has a lower {what}."
            return (
                f"Best: no row is detectably better. {lowest.info.label} has the "
                f"lowest {what}, but {lowest.clause}.{holm}"
            )
        found = min([r for r in better if r.accuracy_gain != -1] or better, key=value)
        said = f"Best: {found.info.label}. It {found.clause}{_cost(found, base)}.{holm}"
        for row in better:
            if value(row) < value(found):
                said += f" {row.info.label} has a lower {what}, but lowers accuracy."
        if len(better) > 1:
            said += (
                f" {len(better)} rows reduce {what}: they are tested against "
                f"{base.info.label}, not against each other."
            )
        return said

    def _exchangeable(self, row: Row, base: Row) -> bool:
        """True if both have the same seeds in common and the same training examples."""
        a, b = row.info, base.info
        if not self.study.trained:
            return True
        same = shared(self.study, a) == shared(self.study, b)
        return same and all(
            getattr(a.spec, name) == getattr(b.spec, name)
            for name in ("train_size", "class_share", "classes")
        )

    @property
    def caption(self) -> str:
        """The meaning of the table's numbers."""
        counts = sorted({len(row.summary.runs) for row in self.rows})
        if counts == [1] and not self.study.trained:
            return ONE_RUN
        runs = " to ".join(str(c) for c in dict.fromkeys([*counts[:1], *counts[-1:]]))
        names, about = {quantity.name for quantity in self.columns}, self.headline
        notes = ""
        if about.name == "prediction_difference":
            notes += SETS
        notes += of_all_runs(self.columns)
        if names & CALIBRATED:
            notes += AT_TEMPERATURE
        if "surrogate_churn" in names and any(
            row.summary.surrogate_churn.mean > 1 for row in self.rows
        ):
            classes = max(row.summary.num_classes for row in self.rows)
            notes += SCHURN.format(most=classes / 2)
        if "dee" in names and self.reference is not None:
            members = len(self.reference.mean)
            notes += DEE.format(label=self.reference.label, members=members)
        churn = about.name == "churn"
        return CAPTION.format(
            runs=runs or "0",
            baseline=self.baseline_label,
            what="churn" if churn else f"of {about.heading}",
            unit="percentage points" if churn else "difference",
            sets=notes,
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about stopped runs, equal and missing rows, unusable files."""
        out = [_stopped_sentence(row) for row in self.rows if row.summary.stopped]
        for i, row in enumerate(self.rows):
            twin = next(
                (r for r in self.rows[:i] if _equal(r.summary, row.summary)), None
            )
            if twin is not None:
                out.append(
                    f"{row.info.label} has the same predictions as {twin.info.label}, "
                    "bit for bit."
                )
        out += [
            f"{m.info.label} is not in the table: {m.reason}." for m in self.missing
        ]
        compared = any(row.comparison for row in self.rows)
        others = any(row.info.name != self.study.config.baseline for row in self.rows)
        if others and not compared:
            out.append(
                f"Without the baseline {self.baseline_label} there are no differences "
                "to test."
            )
        place = self.study.config.published
        if place and not published(place):
            out.append(f"The study names published numbers {place!r}, not found here.")
        out += [
            f"The study names a column {name!r}, unknown here."
            for name in self.study.config.columns
            if name not in QUANTITIES
        ]
        out += self.unreadable
        return tuple(out)

    @property
    def few(self) -> str:
        """A sentence about too few runs; empty where there are enough, or only one."""
        most = max((len(row.summary.runs) for row in self.rows), default=0)
        if not 1 < most < ENOUGH_RUNS:
            return ""
        more = " (--replicas)" if self.study.trained else ""
        return (
            f"{most} runs per row are few: intervals are wide, and a single unusual "
            f"run may decide a test. Take {ENOUGH_RUNS} or more{more}."
        )

    @property
    def context(self) -> tuple[str, ...]:
        """Sentences about what kind of churn it is; mostly none."""
        infos = [row.info for row in self.rows] if self.study.trained else []
        return kind_of_churn(self.study, infos)


def of_all_runs(columns: tuple[Quantity, ...]) -> str:
    """A sentence about columns that are shown with their standard errors."""
    headings = ", ".join(q.heading for q in columns if q.write is mean_error)
    return f"{headings}: ± standard error over runs. " if headings else ""


def _cost(row: Row, base: Row) -> str:
    """What a row costs more or less than the baseline, as the end of a sentence."""
    parts = [
        f"{times(ours)} {what}"
        for what, ours, theirs in (
            ("training", row.info.training_cost, base.info.training_cost),
            ("inference", row.info.inference_cost, base.info.inference_cost),
        )
        if ours is not None and ours != theirs
    ]
    return f"; cost: {', '.join(parts)}" if parts else ""


def check_readable(report) -> None:
    """Refuses a report without a single row where a row's file is damaged."""
    damaged = [missing.reason for missing in report.missing if missing.damaged]
    if damaged and not report.rows:
        raise ReportError(f"{damaged[0]}; there is no other row to report")


def _equal(a: MethodSummary, b: MethodSummary) -> bool:
    """True if the predictions of all runs are the same, by classes and scores."""
    return (
        a.runs == b.runs
        and np.array_equal(a.curves.classes, b.curves.classes)
        and all(
            np.array_equal(a.run_values[name], b.run_values[name], equal_nan=True)
            for name in ("nll", "brier", "entropy", "confidence")
        )
    )


def _stopped_sentence(row: Row) -> str:
    runs, told = row.summary.stopped, {stop.replica: stop for stop in row.info.stopped}
    parts = []
    for run in runs:
        step = term = ""
        if (stop := told.get(run)) is not None:
            step = "" if stop.step is None else f" at step {stop.step}"
            term = f" (non-finite {stop.term})" if stop.term else ""
        parts.append(f"run {run} stopped{step}{term}")
    total = len(runs) + len(row.summary.runs)
    return (
        f"{row.label}: {', '.join(parts)}; its numbers are over the other "
        f"{len(row.summary.runs)} of {total} runs."
    )


def collect(run_dir) -> Report:
    """Read a run folder and compute every finished method's numbers.

    Predictions are read one method at a time and dropped again. The examples of the
    baseline, or else of the first method that has any, are the ones all others must
    have.

    Args:
        run_dir: the folder of a study.

    Returns:
        The `Report`; nothing is written.

    Raises:
        ReportError: there is no usable `study.json`, or an update names a file of
            other examples.

    Example:
        >>> from churn_jax.reports import ReportError
        >>> try:
        ...     collect("no/such/run")
        ... except ReportError as error:
        ...     print(error)
        no/such/run/study.json does not exist; is no/such/run the folder of a study?
    """
    study = read_study(run_dir)
    report = collected(study)
    if getattr(study.config.train, "one_pass", None) and study.record.data.validation:
        return dataclasses.replace(report, held_out=collected(study, "validation"))
    return report


def collected(study: Study, split: str = "test") -> Report:
    """The numbers of a study's rows on one split."""
    plain = Report(study, (), ())
    reading = _Reading(study, {quantity.name for quantity in plain.columns}, split)
    first = sorted(
        study.methods, key=lambda method: method.name != study.config.baseline
    )
    for info in first:  # the baseline first; the order of the study otherwise
        reading.read(info)
    curve = reading.place_on_reference()
    reading.compare_shares()
    summaries, examples = reading.summaries, reading.examples
    comparisons = compare_with_baseline(summaries, study.config.baseline)
    rows, missing = [], []
    for info in study.methods:
        name = info.name
        if (summary := summaries.get(name)) is None:
            damaged = name in reading.damaged
            missing.append(Missing(info, reading.reasons[name], damaged))
            continue
        history = read_history(study.method_folder(name) / "metrics.jsonl")
        numbers = summary, comparisons.get(name), history, plain.headline.name
        rows.append(Row(info, *numbers, reading.agreements.get(name)))
    none = np.zeros(0, np.int64)
    return Report(
        study,
        tuple(rows),
        tuple(missing),
        ids=none if examples is None else examples.ids,
        labels=none if examples is None else examples.labels,
        reference=curve,
        unreadable=tuple(reading.unreadable),
        losses=tuple(reading.losses),
        updates=collect_updates(study, summaries, reading.reasons, examples),
    )


class _Reading:
    """The parts of a study that have been read so far."""

    def __init__(self, study: Study, columns: Collection[str], split: str):
        known = (QUANTITIES[name] for name in columns)
        self.changes = {q.name: q.of for q in known if q.of}
        self.study, self.split = study, split
        self.columns = frozenset((*columns, *self.changes.values()))
        # Who all rows are evaluated on, from the first row that was read.
        self.examples: Predictions | None = None
        self.summaries: dict[str, MethodSummary] = {}  # by row
        self.agreements: dict[str, Agreement] = {}  # by row, where members were kept
        self.reasons: dict[str, str] = {}  # why a row has no summary
        self.damaged: set[str] = set()  # trained rows with unusable predictions
        self.unreadable: list[str] = []  # sentences about other unusable files
        self.losses: list[str] = []  # those about damaged ones

    def read(self, info: RowRecord) -> None:
        """A row's numbers, or the reason why there are none."""
        path = self.study.file(info.name, self.split)
        if not is_stored(path):
            self.reasons[info.name] = "it has no predictions yet"
            if info.trained:
                self.damaged.add(info.name)
                self.reasons[info.name] = f"{path} does not exist"
            return
        try:
            predictions = load_predictions(path)
            examples = _examples_of(predictions)
            if self.examples is not None:
                check_comparable(self.examples, examples)
            summary = summarize(
                predictions,
                stopped=info.stopped_replicas,
                validation=self._validation(info, predictions),
            )
            summary, wrong = with_columns(summary, predictions, self.columns)
        except AllRunsStoppedError as error:
            self.reasons[info.name] = str(error)
            return
        except PredictionsError as error:
            self.damaged.add(info.name)
            said = _sentence(error)
            named = said.startswith(str(path.parent))
            self.reasons[info.name] = said if named else f"{path}: {said}"
            return
        self.examples = self.examples or examples
        self.unreadable += [f"{info.label}: {_sentence(error)}." for error in wrong]
        if info.parameters is not None:
            size = Estimate(float(info.parameters), np.nan, np.nan)
            summary = summary.having(parameters=size)
        self.summaries[info.name] = self._with_members(info, summary)

    def _validation(
        self, info: RowRecord, predictions: Predictions
    ) -> Predictions | None:
        """What temperatures are fitted on, for studies that show what they give."""
        path = self.study.file(info.name, "validation")
        if not self.columns & CALIBRATED or not is_stored(path):
            return None
        try:
            validation = load_predictions(path)
            check_validation(predictions, validation)
        except PredictionsError as error:
            self._damage(f"{info.label} has no calibrated numbers", error)
            return None
        return validation

    def _with_members(self, info: RowRecord, summary: MethodSummary) -> MethodSummary:
        """The summary with what the members' predictions say, if they were kept."""
        folder = self.study.method_folder(info.name)
        try:
            if (folder / MEMBERS).exists():
                members = load_members(folder / MEMBERS)
                _check_examples(self.examples, members)
                agreement = agreement_of(members, info.method)
            elif (folder / DIAGNOSTICS).exists():
                agreement = load_agreement(folder / DIAGNOSTICS)
            else:
                return summary
            agreement = agreement.of_runs(summary.runs)
        except PredictionsError as error:
            self._damage(f"Nothing is known of the members of {info.label}", error)
            return summary
        self.agreements[info.name] = agreement
        return summary.having(
            member_kl=over_runs(agreement.mean_kl),
            member_disagreement=over_runs(agreement.disagreement),
        )

    def place_on_reference(self) -> ReferenceCurve | None:
        """Gives every row its deep-ensemble equivalent, where the study shows it."""
        if "dee" not in self.columns:
            return None
        info = reference_row(self.study, self.summaries)
        if info is None:
            if self.summaries:
                self.unreadable.append(
                    "No row has the predictions of a deep ensemble's members on both "
                    "splits, so there are no deep-ensemble equivalents."
                )
            return None
        try:
            curve = reference_curve(self.study, info, self.summaries[info.name].runs)
        except PredictionsError as error:
            self._complain("There are no deep-ensemble equivalents", error)
            return None
        self.summaries = {
            name: equivalents(curve, summary)
            for name, summary in self.summaries.items()
        }
        return curve

    def compare_shares(self) -> None:
        """Gives every row its changes against the baseline, where the study has any."""
        base = self.summaries.get(self.study.config.baseline)
        for name, summary in self.summaries.items():
            if base is not None:
                of = self.changes.items()
                own = {change: change_of(summary, base, name) for change, name in of}
                self.summaries[name] = summary.having(**own)

    def _damage(self, what: str, error: PredictionsError) -> None:
        self._complain(what, error)
        self.losses.append(self.unreadable[-1])

    def _complain(self, what: str, error: PredictionsError) -> None:
        self.unreadable.append(f"{what}: {_sentence(error)}.")


def _examples_of(predictions: Predictions) -> Predictions:
    """Who is in it, without the logits."""
    nothing = np.zeros((1, predictions.ids.size, 2), np.float32)
    return Predictions(predictions.ids, predictions.labels, nothing)


def _check_examples(examples: Predictions | None, members: Members) -> None:
    """Refuses members' predictions of other examples than the rows'."""
    if examples is not None:
        own = {"ids": members.ids, "labels": members.labels}
        check_comparable(examples, dataclasses.replace(examples, **own))


def _sentence(error: ValueError) -> str:
    return " ".join(str(error).split())
