"""Predictions of two versions, joined, and the numbers kept of each example."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from churn_compare.example_ids import Runs
from churn_compare.flip_counts import count_flips
from churn_compare.measures import Kind as MeasureKind
from churn_compare.measures import Measure
from churn_compare.reading.account import Account

Kind = Literal["logits", "probabilities", "classes"]


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """One version's predictions of `N` examples in `R` runs: classes or outcomes.

    A classifier has `values`, and `labels` as its truth. Other outcomes have `measures`
    with their `columns`, and `target` as theirs.
    """

    name: str  # name of the version, usually that of the file
    kind: Kind = "classes"  # kind of `values`
    # Scores `[R, N, C]` of any real dtype, perhaps memory-mapped and not yet checked;
    # or predicted classes `[R, N]`, integers below `C`.
    values: Any = None
    class_names: tuple[str, ...] | None = None  # `C` names; None for numbers only
    ids: np.ndarray | None = None  # `[N]` unique integers or strings; None for rows
    labels: np.ndarray | None = None  # `[N]` class numbers, perhaps of unknown classes
    label_names: tuple[str, ...] | None = None  # names that `labels` index, if any
    runs: tuple[int | str, ...] = (0,)  # names of the runs that did not stop early
    notes: tuple[str, ...] = ()  # sentences about how the file was read
    account: Account | None = None  # what was read; None for arrays without names
    decisions: np.ndarray | None = None  # `[R, N]` classes decided next to scores
    # Reads the other columns that have these names, or all: name to `[N]` values.
    others: Callable[..., Mapping[str, Any]] = lambda names=None: {}
    repeats: Runs | None = None  # rows of the file, where it has several of each id
    # Name of each outcome to its kind; empty for a classifier.
    measures: Mapping[str, MeasureKind] = dataclasses.field(default_factory=dict)
    # Name to `[R, N]` float64, or an Arrow array of `R * N` texts, run by run.
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    target: Any = None  # Arrow array `[N]`; None without one
    inputs: Any = None  # Arrow array of texts `[N]`; None without one
    key: Any = None  # the same of right answers by which the file was judged already
    # Score to whether less is better, as far as anything says so.
    less: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    errored: np.ndarray | None = None  # `[R, N]`; None if nothing says what failed

    @property
    def truth(self) -> str:
        """What both versions must share: "targets", "labels" or "" (nothing)."""
        judged = {*self.measures.values()} - {"correct", "score"}
        if judged and self.target is not None:
            return "targets"
        return "" if self.labels is None else "labels"

    @property
    def examples(self) -> int:
        """N."""
        values = next(iter(self.columns.values())) if self.measures else self.values
        several = hasattr(values, "shape")  # not texts
        return values.shape[1] if several else len(values) // len(self.runs)

    def rows_or_none(self, rows: np.ndarray) -> np.ndarray | None:
        """The `rows`, or None if they are all rows of this side in order."""
        return None if np.array_equal(rows, np.arange(self.examples)) else rows

    @property
    def classes(self) -> int:
        """C; for predicted classes, the number of names or the largest class plus 1."""
        if self.kind != "classes":
            return self.values.shape[2]
        if self.class_names is not None:
            return len(self.class_names)
        return int(self.values.max(initial=-1)) + 1

    def known(self, names: Iterable[str]) -> np.ndarray:
        """`[N]`, True where these outcomes are there, in all runs."""
        found = np.ones(self.examples, bool)
        for values in map(self.columns.__getitem__, names):
            numbers = isinstance(values, np.ndarray)
            there = ~np.isnan(values) if numbers else np.asarray(values.is_valid())
            found &= there.reshape(len(self.runs), -1).all(axis=0)
        return found

    def failed(self, rows: np.ndarray) -> np.ndarray:
        """`[R, n]`, True where a tool could not evaluate a run on some examples."""
        if self.errored is None:
            return np.zeros((len(self.runs), len(rows)), bool)
        return self.errored[:, rows]

    def at(self, rows: np.ndarray, column: str) -> Any:
        """A column of outcomes on some examples, run by run."""
        values = self.columns[column]
        if isinstance(values, np.ndarray):
            return values[:, rows]
        places = np.arange(len(self.runs))[:, None] * self.examples + rows
        return values.take(places.reshape(-1))


def class_order(names: Iterable[str]) -> np.ndarray:
    """Indices that sort class names: numbers by value, then other names."""
    keys = [(0, int(n), n) if n.isdecimal() else (1, 0, n) for n in names]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """Changed examples that were drawn to be labelled."""

    place: np.ndarray  # `[N]` place in the queue, from 0; -1 if it is not there
    stratum: np.ndarray  # `[N]` codes of the strata
    names: tuple[str, ...]  # names of the strata, "" for a single one
    changed: np.ndarray  # number of examples that change in each stratum
    better: np.ndarray  # `[N]` better answer: "old", "new", "same", or ""
    rows: int  # number of rows of the queue
    # `[N]` answers of the old and of the new version in the queue; () without columns
    shown: tuple[np.ndarray, ...]

    def at(self, places: np.ndarray) -> "Drawn":
        """The drawn examples at some places."""
        return dataclasses.replace(
            self,
            place=self.place[places],
            stratum=self.stratum[places],
            better=self.better[places],
            shown=tuple(of[places] for of in self.shown),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """An old and a new version, joined example by example and class by class.

    Example `i` of the pair is row `old_rows[i]` of the old side and `new_rows[i]` of
    the new one; class `c` of the old side is class `old_columns[c]` of the pair.
    """

    old: Table  # version in use
    new: Table  # version that is to replace it
    ids: np.ndarray  # `[N]` ids of the examples; row numbers without ids
    classes: int  # C, number of classes that either side or a label has
    old_rows: np.ndarray | None = None  # `[N]`; None if they are all rows in order
    new_rows: np.ndarray | None = None  # the same for the new side
    old_columns: np.ndarray | None = None  # `[C_old]`; None if they are the same
    new_columns: np.ndarray | None = None  # the same for the new side
    labels: np.ndarray | None = None  # `[N]` classes; None unless all have labels
    some_labels: np.ndarray | None = None  # the same if only some have; -1 for others
    drawn: Drawn | None = None  # examples in a queue to label; None without one
    class_names: tuple[str, ...] | None = None  # `C` names, or None
    # `[N]` values of each grouping as strings, by name; "" is a missing value.
    slices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    clusters: np.ndarray | None = None  # `[N]` from 0; None without clusters
    cluster_column: str = ""  # column of the clusters, "" if they are from none
    notes: tuple[str, ...] = ()  # sentences about how the versions were joined
    read: tuple[str, ...] = ()  # a line on what was read of separate labels
    measures: tuple[Measure, ...] = ()  # outcomes of both; none of a classifier

    @property
    def examples(self) -> int:
        """N, the number of joined examples."""
        return len(self.ids)

    @property
    def partial(self) -> bool:
        """True if only some examples have labels."""
        return self.some_labels is not None

    @property
    def scored(self) -> bool:
        """True if both sides have logits or probabilities."""
        return "classes" not in (self.old.kind, self.new.kind)

    def at(self, places: np.ndarray) -> "Pair":
        """The pair on some of its examples, in the order of `places`."""

        def rows(side: Table, before: np.ndarray | None) -> np.ndarray | None:
            return side.rows_or_none(places if before is None else before[places])

        clusters = self.clusters
        if clusters is not None:  # clusters without examples are left out
            clusters = np.unique(clusters[places], return_inverse=True)[1]
        return dataclasses.replace(
            self,
            ids=self.ids[places],
            old_rows=rows(self.old, self.old_rows),
            new_rows=rows(self.new, self.new_rows),
            labels=None if self.labels is None else self.labels[places],
            some_labels=None if self.some_labels is None else self.some_labels[places],
            drawn=self.drawn and self.drawn.at(places),
            slices={name: values[places] for name, values in self.slices.items()},
            clusters=clusters,
        )

    def class_name(self, number: int) -> str:
        """The name of a class in a report."""
        return str(number) if self.class_names is None else self.class_names[number]


_CLOSER = 2.0  # ratio of differences from other runs and from the same run
_BY_CHANCE = 3  # examples by which the ratio may be missed


@dataclasses.dataclass(frozen=True, eq=False)
class ScannedSide:
    """Numbers kept of one version: `R` runs on the `N` examples of the pair."""

    # `[R, N]` int32, classes of the pair: decisions if the side has them, else the most
    # probable classes; ties go to the first class by name or number.
    predicted: np.ndarray
    confidence: np.ndarray | None = None  # `[R, N]` float32 top probability, if known
    # `[R, N]` float32 log-probability of the label, -inf where the side does not know
    # the class; None without scores or labels.
    label_log_prob: np.ndarray | None = None
    brier: np.ndarray | None = None  # `[R, N]` float32 sum over classes; None as above
    most_probable: np.ndarray | None = None  # `[R, N]` int32 if `predicted` are decided
    ties: int = 0  # number of rows in which several classes have the highest score

    @property
    def of_scores(self) -> np.ndarray:
        """`[R, N]` most probable classes, to which the confidence belongs."""
        return self.predicted if self.most_probable is None else self.most_probable


@dataclasses.dataclass(frozen=True, eq=False)
class Scanned:
    """Numbers kept of both versions and of their pairs of runs."""

    old: ScannedSide  # version in use
    new: ScannedSide  # version that is to replace it
    # `[*shape, N]` float32, surrogate churn of each example with alpha 1, `1/2 sum_c
    # |exp(z_c - max z) - exp(z'_c - max z')|`; a class that a side does not know has
    # probability 0. None unless both sides have scores.
    surrogate: np.ndarray | None = None
    # `[*shape, N]` float32 KL(old || new) in nats; None unless both sides have scores
    # and the new side knows all classes of the old one.
    kl: np.ndarray | None = None
    paired: bool = False  # True if run r is compared with run r only

    @property
    def shape(self) -> tuple[int, int]:
        """Shape `[R_old, R_new]` of the pairs of runs; `[R, 1]` if runs are paired."""
        return len(self.old.predicted), 1 if self.paired else len(self.new.predicted)

    def pairs(self) -> list[tuple[tuple[int, int], np.ndarray, np.ndarray]]:
        """Index in `shape`, old and new predictions `[N]` of every pair of runs."""
        rows, columns = self.shape
        return [
            ((a, b), self.old.predicted[a], self.new.predicted[a if self.paired else b])
            for a in range(rows)
            for b in range(columns)
        ]


def run_by_run(scanned: Scanned) -> Scanned:
    """Pairs run r of both sides if the new runs were started from the old ones."""
    # That holds, also for equal runs, if every run differs from the run of its name on
    # less than half as many examples as from any other run of either side, a few
    # examples aside. Independent runs of two versions hardly ever look like that.
    R = len(scanned.old.predicted)
    if R == 1 or scanned.paired:
        return scanned
    runs = np.concatenate([scanned.old.predicted, scanned.new.predicted])
    differ = count_flips(runs, runs).changed
    first = np.arange(2 * R)
    same_name = (first + R) % (2 * R)
    others = differ.astype(float)
    others[first, first] = others[first, same_name] = np.inf
    most = _CLOSER * differ[first, same_name] + _BY_CHANCE
    if np.any(most >= others.min(axis=1)):
        return scanned
    return in_pairs(scanned)


def in_pairs(scanned: Scanned) -> Scanned:
    """Pairs run r of both sides."""
    same = np.arange(len(scanned.old.predicted))
    surrogate, kl = (
        None if of is None else of[same, same][:, None]
        for of in (scanned.surrogate, scanned.kl)
    )
    return dataclasses.replace(scanned, surrogate=surrogate, kl=kl, paired=True)
