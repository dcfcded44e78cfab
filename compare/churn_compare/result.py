"""Results of comparisons, as plain values that can be printed and saved."""

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Literal

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
ROUNDING = 1e-9  # errors of sums and differences of shares, which fail no condition


def rounding(quantity: str, interval: Interval, limit: float) -> float:
    """Rounding errors of a condition; of scores and values a share of their size."""
    about = QUANTITIES.get(quantity)
    if about is None or not about.outcomes or about.unit in ("share", "points"):
        return ROUNDING
    sizes = np.abs([limit, *dataclasses.astuple(interval)])
    return ROUNDING * float(np.max(sizes[np.isfinite(sizes)]))


@dataclasses.dataclass(frozen=True)
class Version:
    """One side of the comparison."""

    name: str  # name of the file, or the name given
    kind: str  # "logits", "probabilities" or "classes"
    runs: int  # number of runs compared
    classes: int  # number of classes it knows
    examples: int  # number of its examples, joined or not


@dataclasses.dataclass(frozen=True)
class Clusters:
    """Clusters of examples, such as those of one document, user or conversation."""

    count: int  # number of clusters
    largest: int  # examples in the largest cluster
    # Variance of the accuracy gain (without labels, of churn) divided by that with
    # independent examples; NaN if all clusters contribute equally.
    design_effect: float
    wider: float  # width of its interval, relative to independent examples
    column: str = ""  # column with the clusters; "" if they were given as an array


@dataclasses.dataclass(frozen=True)
class Noise:
    """Churn of the update compared with that of retraining the same model."""

    # Mean churn between two runs of the old version; NaN with one run.
    within_old: Interval
    within_new: Interval  # the same for the new version
    # Churn that retraining alone explains: the mean of the two that exist.
    expected: Interval
    # Churn between the versions minus `expected`. Where a side has one run, the
    # interval is for that run.
    excess: Interval
    # p-value of "retraining explains all churn", one-sided if both sides have several
    # runs, see `noise_of`; NaN with too few runs or examples. It is at least 0.01,
    # or 0.05 with one run on a side, because so few runs do not support a smaller one.
    p: float
    of_runs: float = 0.0  # share of the variance of churn that is due to runs
    one_run: bool = False  # True if p is NaN because one run would decide it


@dataclasses.dataclass(frozen=True)
class Stratum:
    """Changed examples of which some are labelled."""

    name: str  # value of the slice; "" where all are one stratum
    changed: int  # number of changed examples
    labelled: int  # number of these with a label
    # Share of the labelled that get worse, mean over pairs of runs; NaN without any.
    worse: float
    better: float  # share of the labelled that get better
    # Mean squares of what gets worse, of what gets better, and of the difference.
    squares: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Flips estimated from the labels of a part of the changed examples."""

    examples: int  # N, changed or not
    strata: tuple[Stratum, ...]  # strata that were sampled separately
    level: float  # confidence level of the intervals
    any_time: bool = False  # True if the intervals hold at every number of labels
    # True if some examples have a preferred answer instead of a label.
    preferred: bool = False
    # NFR, PFR and gain of these examples; `Measured.quantities` has intervals for the
    # population that they come from.
    these: Mapping[str, Interval] = dataclasses.field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Number of examples that change."""
        return sum(stratum.changed for stratum in self.strata)

    @property
    def labelled(self) -> int:
        """Number of changed examples that have a label."""
        return sum(stratum.labelled for stratum in self.strata)


@dataclasses.dataclass(frozen=True)
class Group:
    """A class or a slice, compared separately."""

    grouping: str  # "class", or the column of the slices
    name: str  # name of the class, or value of the column
    examples: int  # number of examples
    # Numbers with intervals by name, as for all examples; for predicted classes churn
    # and, with labels, flips and accuracy (without an interval for each version).
    quantities: Mapping[str, Interval]
    p: float  # p-value of "no change on average"; NaN if no outcome is better or worse
    adjusted_p: float  # p-value adjusted by Holm over the groups of this grouping
    # Share that gets worse and is not waived; None without waivers.
    waived_rate: Interval | None = None
    # Flips estimated from a part of the labels; None if all are known.
    sampled: Sampled | None = None

    def __getitem__(self, name: str) -> Interval:
        """The number called `name`, with its interval; NaN where it is undefined."""
        return self.quantities.get(name, NONE)


@dataclasses.dataclass(frozen=True)
class Regression:
    """An example that the old version got right and the new one gets wrong.

    With several runs, classes are the most frequent ones and numbers are means.
    """

    id: str  # id of the example
    label: str  # name of its class
    old: str  # name of the old prediction
    new: str  # name of the new prediction
    # Top probability before; NaN without scores, or if the prediction is not the most
    # probable class.
    old_confidence: float
    new_confidence: float  # top probability now
    label_drop: float  # fall of the label's probability; NaN without scores
    share: float  # share of the pairs of runs in which it is a negative flip


@dataclasses.dataclass(frozen=True)
class Flow:
    """Numbers of changed predictions from class to class, means over pairs of runs."""

    # Class names predicted before, one per entry, largest count first.
    old: tuple[str, ...]
    new: tuple[str, ...]  # class names predicted now
    examples: tuple[float, ...]  # number of examples that changed this way
    # Number of them right before and wrong now; NaN without labels.
    negative: tuple[float, ...]
    # Number of them wrong before and right now; NaN without labels.
    positive: tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Reliability of one version, all runs pooled."""

    confidence: np.ndarray  # mean top probability of each bin; NaN in empty bins
    accuracy: np.ndarray  # share of right predictions in each bin
    examples: np.ndarray  # number of examples in each bin


@dataclasses.dataclass(frozen=True)
class Pooled:
    """The change over several benchmarks."""

    column: str  # column with the names of the benchmarks
    benchmarks: int  # number of benchmarks
    gain: Interval  # mean of their changes, each with the same weight
    p: float  # p-value of no mean change, two-sided
    left_out: int = 0  # number of examples without a value of `column`


@dataclasses.dataclass(frozen=True)
class Waiver:
    """A regression that is accepted until a date.

    Attributes:
        id: id of the example.
        reason: reason for accepting it.
        until: last day on which it is accepted, such as 2026-12-31.

    Raises:
        ValueError: if `until` is not a date.
    """

    id: str
    reason: str
    until: str

    def __post_init__(self):
        until: Any = self.until
        if isinstance(until, datetime.datetime):
            until = until.date()
        try:
            until = datetime.date.fromisoformat(str(until))
        except ValueError:
            said = f"until must be a date such as 2026-12-31; got {until!r}"
            raise ValueError(said) from None
        object.__setattr__(self, "id", str(self.id))
        object.__setattr__(self, "until", until.isoformat())


@dataclasses.dataclass(frozen=True)
class Waived:
    """Negative flips that gates on their rate leave out."""

    waivers: tuple[Waiver, ...]  # those that have an effect here
    flips: float  # waived negative flips, mean over pairs of runs
    all_flips: float  # all negative flips
    rate: Interval  # rate of the negative flips that are not waived


State = Literal["pass", "fail", "inconclusive"]


@dataclasses.dataclass(frozen=True)
class GateOutcome:
    """The outcome of one condition."""

    gate: str  # text of the condition, such as "churn at most 5 %"
    where: str  # group that the outcome is about; "" for all examples
    measured: float  # number that was compared with the limit
    limit: float  # limit of the condition
    passed: bool  # True if the condition holds; False if it is inconclusive
    line: str  # the outcome in one line
    state: State | Literal[""] = ""  # "inconclusive" if the interval has the limit

    def __post_init__(self):
        if not self.state:
            object.__setattr__(self, "state", "pass" if self.passed else "fail")


def state_of(states: Iterable[str]) -> State:
    """The worst of several states; "pass" without any."""
    found = set(states)
    if "fail" in found:
        return "fail"
    return "inconclusive" if "inconclusive" in found else "pass"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """Numbers of one kind of outcome in two versions, and of groups of its examples.

    Attributes:
        level: confidence level of all intervals, 0.95 for 95 %.
        quantities: numbers with intervals by name, in the order of `QUANTITIES`; only
            those that these outcomes allow.
        groups: classes, then the values of every column of the slices.
        p: two-sided p-value of "no change on average"; NaN if no outcome is better or
            worse. With several runs that all examples share, it is below 1 - `level`
            only where the interval of the change leaves out 0.
        within: interval of the change at level `2 level - 1`: 90 % for 95 %. It lies
            within plus and minus a margin if two one-sided tests at 5 % both find the
            change smaller than the margin. None if no outcome is better or worse.
        detectable: smallest change of the mean whose interval leaves zero out in 80 %
            of cases; NaN if no outcome is better or worse.
        equivalent: margin of equivalence; None without one.
        waived: negative flips that the gates leave out; None without waivers.
        pooled: change over several benchmarks; None unless asked for.
        runs: numbers of runs of the old and the new version.
        paired: True if run r is compared with run r only, see `run_by_run`.
        clusters: number of clusters and their effect on an interval; None without.
        noise: churn of retraining; None without several runs that all examples share.
        kind: "class", or "correct", "score", "answer", "value", "set" or "ranking".
        lower_is_better: True if a lower score is better.
        sampled: flips estimated from a part of the labels; None if all are known.
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
            KeyError: the comparison has no such quantity.
        """
        if name not in self.quantities:
            known = ", ".join(self.quantities)
            raise KeyError(f"no quantity {name!r} in this comparison; it has {known}")
        return self.quantities[name]

    @property
    def groupings(self) -> dict[str, list[Group]]:
        """The groups by grouping: the classes and the columns of the slices."""
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
        """Name of the change of the mean; "" if no outcome is better or worse."""
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
        """Number of pairs of runs that were compared."""
        return self.runs[0] if self.paired else self.runs[0] * self.runs[1]

    @property
    def test(self) -> str:
        """Name of the test that `p` is from, if outcomes are right or wrong."""
        if self.clusters is not None:
            return "clusters' sign-flip"
        return "exact McNemar" if self.run_pairs == 1 else "sign-flip"

    @property
    def mean(self) -> str:
        """Prefix of the names of both versions' means, such as "accuracy"."""
        return self.change.rpartition("_")[0]

    @property
    def changed(self) -> str:
        """Name of the share of examples that change."""
        return "churn" if "churn" in self.quantities else "share_changed"

    @property
    def groups_judged(self) -> bool:
        """True if groups can get better or worse."""
        return self.judged and self.sampled is None

    @property
    def worse(self) -> str:
        """Name of the share of examples that get worse."""
        return "negative_flip_rate" if self.decided else "share_worse"

    @property
    def better(self) -> str:
        """Name of the share of examples that get better."""
        return "positive_flip_rate" if self.decided else "share_better"

    @property
    def turn(self) -> str:
        """Noun for a score that gets worse: "rise" or "fall"."""
        return "rise" if self.lower_is_better else "fall"

    @property
    def higher_is_better(self) -> bool:
        """True if a higher mean is better."""
        return QUANTITIES[self.change].better == "higher" and not self.lower_is_better

    def finding(self, group: Group) -> Literal["better", "worse", ""]:
        """Direction of a group's significant change; "" if it is not significant."""
        if not group.adjusted_p < 1 - self.level:
            return ""
        rises = group[self.change].value > 0
        return "better" if rises == self.higher_is_better else "worse"

    @property
    def is_equivalent(self) -> bool:
        """True if the change is shown to be smaller than the margin asked for."""
        if self.within is None or self.equivalent is None:
            return False
        end = max(-self.within.low, self.within.high)
        slack = rounding(self.change, self.within, self.equivalent)
        return end <= self.equivalent + slack


@dataclasses.dataclass(frozen=True)
class Change:
    """An example whose outcome changed."""

    id: str  # id of the example
    old: str  # outcome before, as text
    new: str  # outcome now, as text
    target: str  # right outcome; "" if it is not known
    # Fall of the score, or the distance if neither is better; mean over runs.
    fall: float


@dataclasses.dataclass(frozen=True, eq=False)
class MeasureFindings(Measured):
    """One measure of two versions."""

    name: str  # name of its column
    of_runs: tuple[float, ...] = ()  # mean score of each run of a noise floor
    changes: tuple[Change, ...] = ()  # largest falls, worst first
    changes_total: int = 0  # examples that fall, or change if neither is better
