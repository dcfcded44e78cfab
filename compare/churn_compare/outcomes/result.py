"""What a comparison of outcomes finds: plain values."""

import dataclasses
from collections.abc import Iterable, Mapping

from churn_compare.display import Display
from churn_compare.result import GateOutcome, Measured


@dataclasses.dataclass(frozen=True)
class Change:
    """An example whose outcome changed.

    Attributes:
        id: of the example.
        old: its outcome before, as text.
        new: its outcome now.
        target: what is right; "" where nothing says.
        fall: of its worth, mean over runs; how far apart where nothing is judged.
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
        name: of its column.
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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OutcomesResult(Display):
    """Everything that `compare_outcomes` finds; shows itself as a `CompareResult` does.

    Attributes:
        old: name of the version in use.
        new: name of the one that is to replace it.
        examples: N, those that both have.
        level: of all confidence intervals, 0.95 for 95 %.
        measures: each compared on its own.
        gates: the outcome of each condition.
        notes: sentences about what was read and joined.
        read: what was read of each side and what was left out, a line each.
    """

    old: str
    new: str
    examples: int
    level: float
    measures: tuple[MeasureFindings, ...]
    gates: tuple[GateOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> MeasureFindings:
        """The measure called `name`."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        known = ", ".join(measure.name for measure in self.measures)
        raise KeyError(f"no measure {name!r} in this comparison; it has {known}")

    def __repr__(self) -> str:
        """One line."""
        names = ", ".join(measure.name for measure in self.measures)
        sides = f"{self.old} -> {self.new}"
        return f"<{type(self).__name__} {sides}: {self.examples:,} examples, {names}>"

    def _sides(self) -> tuple[str, str]:
        return self.old, self.new

    def _parts(self) -> Iterable[tuple]:
        for m in self.measures:
            yield {"measure": m.name}, self.examples, m.quantities, m.groups

    def _verdict(self) -> dict[str, list[str]]:
        from churn_compare.verdict import sentences

        return {m.name: list(sentences(m)) for m in self.measures}
