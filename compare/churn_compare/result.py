"""Results of comparisons: plain values, which can all be printed or saved."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from churn_compare.quantities import QUANTITIES


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number with its confidence interval.

    Attributes:
        value: the point estimate; NaN where it is undefined.
        low: lower end; NaN where there is no interval.
        high: upper end.
    """

    value: float
    low: float
    high: float


NONE = Interval(float("nan"), float("nan"), float("nan"))


@dataclasses.dataclass(frozen=True)
class Version:
    """One side of the comparison."""

    name: str  # of the file or as given
    kind: str  # "logits", "probabilities" or "classes"
    runs: int  # how many runs were compared
    classes: int  # how many classes it knows
    examples: int  # how many it has, joined or not


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Examples that belong together: of one document, user or conversation."""

    count: int  # how many clusters
    largest: int  # examples of the largest
    # Variance over examples of the accuracy gain (of churn without labels) over
    # that of independent examples; NaN where nothing flips.
    design_effect: float
    wider: float  # how many times as wide its interval is
    # That names each example's cluster; "" where they were given as values.
    column: str = ""


@dataclasses.dataclass(frozen=True)
class Noise:
    """Is the update's churn more than retraining the same model would give?"""

    # Mean churn between two runs of the old version; NaN with one run.
    within_old: Interval
    within_new: Interval  # the same for the new version
    # Churn that retraining alone explains: the mean of the two that exist.
    expected: Interval
    # Churn between the versions minus `expected`. Where a side has one run, the
    # interval is for that run.
    excess: Interval
    # Of "retraining explains it all", one-sided where both sides have several
    # runs, see `noise_test`; NaN with too few runs or examples. At least 0.01,
    # with one run on a side 0.05: so few runs support no smaller one.
    p: float
    # Share of the variance of churn that runs add to that of examples.
    of_runs: float = 0.0
    one_run: bool = False  # True if there is no p because one run would decide it


@dataclasses.dataclass(frozen=True)
class Group:
    """A class or a slice, compared separately.

    Attributes:
        grouping: "class", or the column of the slices.
        name: the class or the value of the column.
        examples: how many.
        quantities: name to number and interval, as of all examples; of predicted
            classes churn and, with labels, accuracy (of each version without an
            interval) and flips.
        p: of "no change on average", as of all examples; NaN where nothing is judged.
        adjusted_p: by Holm over the groups of this grouping.
        waived_rate: share that gets worse without what is waived; None without waivers.
    """

    grouping: str
    name: str
    examples: int
    quantities: Mapping[str, Interval]
    p: float
    adjusted_p: float
    waived_rate: Interval | None = None

    def __getitem__(self, name: str) -> Interval:
        """The number called `name`, with its interval; NaN where it is undefined."""
        return self.quantities.get(name, NONE)


@dataclasses.dataclass(frozen=True)
class Regression:
    """An example that the old version got right and the new one gets wrong.

    With several runs, classes are the most frequent ones, shares and means over runs.

    Attributes:
        id: of the example.
        label: name of its class.
        old: name of the old prediction.
        new: name of the new prediction.
        old_confidence: top probability before; NaN without scores, or where a decision
            is not the most probable class.
        new_confidence: the same now.
        label_drop: fall of the label's probability; NaN without scores.
        displacement: displacement of the logits; NaN without scores.
        share: share of the pairs of runs in which it is a negative flip.
    """

    id: str
    label: str
    old: str
    new: str
    old_confidence: float
    new_confidence: float
    label_drop: float
    displacement: float
    share: float


@dataclasses.dataclass(frozen=True)
class Flow:
    """Changed predictions from class to class, mean over pairs of runs."""

    # Class names predicted before, one per entry, largest count first.
    old: tuple[str, ...]
    new: tuple[str, ...]  # class names predicted now
    examples: tuple[float, ...]  # how many examples went this way
    # How many of them were right before and are wrong now; NaN without labels.
    negative: tuple[float, ...]
    # How many were wrong before and are right now; NaN without labels.
    positive: tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Reliability of one version, all runs pooled."""

    confidence: np.ndarray  # mean top probability of each bin; NaN in empty bins
    accuracy: np.ndarray  # share of right predictions in each bin
    examples: np.ndarray  # in each bin


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """A sample of examples for the scatter; negative flips come first.

    Negative flips are drawn more often than the rest: of each outcome, compare the
    number of points with `totals`. With several runs an outcome is what happens in most
    pairs of runs.
    """

    confidence: np.ndarray  # `[P]` old top probability, mean over runs
    displacement: np.ndarray  # `[P]` of the logits
    # `[P]` of "same", "negative", "positive", "other"; without labels "same" and
    # "other".
    outcome: np.ndarray
    sampled_from: int  # how many examples there are
    # Outcome to how many of all examples have it.
    totals: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pooled:
    """The change over several benchmarks."""

    column: str  # column with the names of the benchmarks
    benchmarks: int  # number of benchmarks
    gain: Interval  # mean of their changes, each with the same weight
    p: float  # p-value of no mean change, two-sided


@dataclasses.dataclass(frozen=True)
class Waiver:
    """A regression that is accepted until a date.

    Attributes:
        id: of the example.
        reason: why.
        until: the last day, as 2026-12-31.
    """

    id: str
    reason: str
    until: str


@dataclasses.dataclass(frozen=True)
class Waived:
    """Negative flips that gates on their rate do not count."""

    waivers: tuple[Waiver, ...]  # those that have an effect here
    flips: float  # waived negative flips, mean over pairs of runs
    all_flips: float  # negative flips with them
    rate: Interval  # the rate without them, of all examples


@dataclasses.dataclass(frozen=True)
class Stratum:
    """Changed examples of which some are labelled."""

    name: str  # value of the slice; "" where all are one stratum
    changed: int  # how many there are
    labelled: int  # how many have a label
    worse: float  # share of the labelled that get worse, mean over pairs of runs
    better: float  # share that get better
    # Means of the squares of what gets worse, better, and of the difference.
    squares: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Flips that are known from the labels of a part of the changed examples."""

    examples: int  # N, changed or not
    strata: tuple[Stratum, ...]  # what was drawn from apart
    level: float  # of the intervals
    any_time: bool = False  # whether they hold at every number of labels
    # Whether some are known by which answer is better, not by a label.
    preferred: bool = False
    # NFR, PFR and gain of these very examples; `quantities` has the intervals for
    # the population that they come from.
    these: Mapping[str, Interval] = dataclasses.field(default_factory=dict)

    @property
    def changed(self) -> int:
        """How many examples change."""
        return sum(stratum.changed for stratum in self.strata)

    @property
    def labelled(self) -> int:
        """How many of them are labelled."""
        return sum(stratum.labelled for stratum in self.strata)


State = Literal["pass", "fail", "inconclusive"]


@dataclasses.dataclass(frozen=True)
class GateOutcome:
    """One condition and whether it holds.

    Attributes:
        gate: the condition, as a sentence part: "churn at most 5 %".
        where: "", or the group it is about.
        measured: the number compared with the limit.
        limit: what it was compared with.
        passed: whether it holds; False where that is open.
        line: the whole outcome in one line.
        state: "pass", "fail", or "inconclusive" where a gate is on the whole interval
            and one part of it keeps the limit, another does not.
    """

    gate: str
    where: str
    measured: float
    limit: float
    passed: bool
    line: str
    state: State | Literal[""] = ""

    def __post_init__(self):
        if not self.state:
            object.__setattr__(self, "state", "pass" if self.passed else "fail")


def state_of(states: Iterable[str]) -> State:
    """The state of several conditions: the worst of them; "pass" without any."""
    found = set(states)
    if "fail" in found:
        return "fail"
    return "inconclusive" if "inconclusive" in found else "pass"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """Numbers of one kind of outcome in two versions, and of groups of its examples.

    Attributes:
        level: level of all confidence intervals, 0.95 for 95 %.
        quantities: name to number and interval, in the order of `QUANTITIES`; only
            those that these outcomes allow.
        groups: classes, then the values of every grouping.
        p: of "no change on average", two-sided; of several pairs of runs that share
            the examples' labels the median; NaN where nothing is judged.
        within: interval of the change at level `2 level - 1`: 90 % for 95 %. It lies
            within plus and minus a margin where two one-sided tests at 5 % both find
            the change smaller than that. None where nothing is judged.
        detectable: the smallest change of the mean that the interval leaves zero out
            for in 80 % of cases; NaN where nothing is judged.
        equivalent: the margin asked for; None without one.
        waived: what gets worse and the gates do not count; None without waivers.
        pooled: the change over several benchmarks; None unless asked for.
        runs: runs of the old and the new version.
        paired: whether run r is compared with run r alone, see `run_by_run`.
        clusters: how many there are, and what they do to an interval; None without.
        noise: None unless a side has several runs that all examples share.
        kind: "class", or "correct", "score", "answer", "value", "set" or "ranking".
        lower_is_better: whether less of a score is better.
        sampled: what is known of flips where some changed examples have no label.
    """

    level: float
    quantities: Mapping[str, Interval]
    groups: tuple[Group, ...] = ()
    p: float = float("nan")
    within: Interval | None = None
    detectable: float = float("nan")
    equivalent: float | None = None
    waived: Waived | None = None
    pooled: Pooled | None = None
    runs: tuple[int, int] = (1, 1)
    paired: bool = False
    clusters: Clusters | None = None
    noise: Noise | None = None
    kind: str = "class"
    lower_is_better: bool = False
    sampled: Sampled | None = None

    def __getitem__(self, name: str) -> Interval:
        """The number called `name`, with its interval.

        Raises:
            KeyError: these outcomes do not allow it, or there is no such quantity.
        """
        if name not in self.quantities:
            known = ", ".join(self.quantities)
            raise KeyError(f"no quantity {name!r} in this comparison; it has {known}")
        return self.quantities[name]

    @property
    def groupings(self) -> dict[str, list[Group]]:
        """The groups of the classes and of every column of the slices."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.grouping, []).append(group)
        return found

    @property
    def decided(self) -> bool:
        """True if outcomes are right or wrong."""
        return "negative_flip_rate" in self.quantities

    @property
    def change(self) -> str:
        """The name of the change of the mean; "" where nothing is judged."""
        names = ("accuracy_gain", "score_change", "error_change")
        return next((name for name in names if name in self.quantities), "")

    @property
    def judged(self) -> bool:
        """True if one outcome can be better than another."""
        return self.change != ""

    @property
    def of_classes(self) -> bool:
        """True if these are predicted classes."""
        return self.kind == "class"

    @property
    def run_pairs(self) -> int:
        """How many pairs of runs were compared."""
        return self.runs[0] if self.paired else self.runs[0] * self.runs[1]

    @property
    def mean(self) -> str:
        """What the names of the mean of each version begin with."""
        return self.change.rpartition("_")[0]

    @property
    def changed(self) -> str:
        """The name of the share of examples that change."""
        return "churn" if "churn" in self.quantities else "share_changed"

    @property
    def groups_judged(self) -> bool:
        """True if it is known which groups get worse."""
        return self.judged and self.sampled is None

    @property
    def worse(self) -> str:
        """The name of the share of examples that get worse."""
        return "negative_flip_rate" if self.decided else "share_worse"

    @property
    def better(self) -> str:
        """The name of the share of examples that get better."""
        return "positive_flip_rate" if self.decided else "share_better"

    @property
    def turn(self) -> str:
        """How a score gets worse."""
        return "rise" if self.lower_is_better else "fall"

    @property
    def higher_is_better(self) -> bool:
        """True if more of the mean is better."""
        return QUANTITIES[self.change].better == "higher" and not self.lower_is_better

    def finding(self, group: Group) -> Literal["better", "worse", ""]:
        """The significant change of a group, better or worse."""
        if not group.adjusted_p < 1 - self.level:
            return ""
        rises = group[self.change].value > 0
        return "better" if rises == self.higher_is_better else "worse"

    @property
    def is_equivalent(self) -> bool:
        """True if the change is shown to be smaller than the margin asked for."""
        if self.within is None or self.equivalent is None:
            return False
        return max(-self.within.low, self.within.high) < self.equivalent


@dataclasses.dataclass(frozen=True)
class Change:
    """An example whose outcome changed.

    Attributes:
        id: of the example.
        old: its outcome before, as text.
        new: its outcome now.
        target: what is right; "" where nothing says.
        fall: fall of its worth, mean over runs; how far apart where nothing is judged.
    """

    id: str
    old: str
    new: str
    target: str
    fall: float


@dataclasses.dataclass(frozen=True, eq=False)
class MeasureFindings(Measured):
    """One measure of two versions.

    Attributes, next to those of `Measured`:
        name: name of its column.
        quantiles: share to quantile of the change of a number, mean over runs.
        of_runs: mean worth of each run of a noise floor; empty otherwise.
        changes: the largest falls, worst first.
        changes_total: how many examples fall, or change where nothing is judged.
    """

    name: str
    quantiles: Mapping[float, float] = dataclasses.field(default_factory=dict)
    of_runs: tuple[float, ...] = ()
    changes: tuple[Change, ...] = ()
    changes_total: int = 0
