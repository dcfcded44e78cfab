"""Numbers of examples and runs that a decision needs, from variance components."""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import special

from churn_compare.comparison import read_either
from churn_compare.display import Display
from churn_compare.documents import Document, Section, Table
from churn_compare.estimates import PerExample, Uncertainty, all_examples, uncertainty
from churn_compare.example_ids import PredictionsError
from churn_compare.example_numbers import Numbers
from churn_compare.gates import (
    Gate,
    GateError,
    Gating,
    as_gates,
    check_share,
    limit_of,
    limit_text,
    waivers_of,
)
from churn_compare.number_text import count_text, remark, share_text, size_text
from churn_compare.quantities import QUANTITIES
from churn_compare.report import composed
from churn_compare.result import Waiver

_MOST_EXAMPLES, _MOST_RUNS = 10**9, 64
_FEW = 8  # runs below which the estimate of their variance is poor
_DRAWS = 2000  # simulated variances between runs
_RUNS = (2, 3, 5, 10)  # numbers of runs of the options
_LEAST = 10  # examples; with fewer, what a pilot's mean and variance say is too rough


@dataclasses.dataclass(frozen=True)
class Components:
    """Variance components of a number of one example and one pair of runs."""

    # Variance between examples; with one run on a side, it includes the variance of
    # that run on each example.
    examples: float
    old: float = 0.0  # old runs on each example; 0 with one old run
    new: float = 0.0  # new runs on each example; 0 with one new run
    both: float = 0.0  # pairs of runs on each example, beyond these
    old_run: float = 0.0  # an old run on all examples alike
    new_run: float = 0.0  # a new run on all examples alike
    # True if a run is the same on all examples, as a trained network is; False for
    # independent samples of each example.
    shared: bool = True
    units: float = 0.0  # clusters per example, 1 for means; 0 for normal quantiles

    def known(self, examples: int, old: int, new: int) -> tuple[float, Uncertainty]:
        """Variance of the mean, and simulated estimates of it."""
        variance = self.examples + self.old / old + self.new / new
        variance = (variance + self.both / (old * new)) / examples
        drawn, parts, total = np.random.default_rng(0), [], variance
        for runs, others, own, whole in (
            (old, new, self.old, self.old_run),
            (new, old, self.new, self.new_run),
        ):
            if runs > 1 and self.shared:
                total += whole / runs
                noise = np.array((own + self.both / others) / (runs * examples))
                found = drawn.chisquare(runs - 1, _DRAWS) / (runs - 1)
                parts.append((found * (whole / runs + noise), noise, runs - 1))
        clusters, estimates = examples * self.units, np.full(_DRAWS, variance)
        if (freedom := max(clusters - 1, 1 if clusters else 0)) > 0:
            tails = (np.arange(_DRAWS) + 0.5) / _DRAWS
            estimates *= special.chdtri(freedom, tails) / freedom
        return total, uncertainty(estimates, *parts, clusters=clusters)


def components(
    values: Iterable[np.ndarray], old: int, new: int, every: Any, shared: bool
) -> tuple[Components, float]:
    """Variance components by the method of moments, and the mean.

    `values` are the numbers `[N]` of each pair of runs, sorted by the old run.
    """
    N = len(every.group)
    rows, columns, squares = np.zeros((old, N)), np.zeros((new, N)), np.zeros(N)
    for (a, b), x in zip(itertools.product(range(old), range(new)), values):
        rows[a] += x
        columns[b] += x
        squares += np.square(x)
    mean = rows.sum(axis=0) / (old * new)
    of_side, whole = [], []
    for sums, count, others in ((rows, old, new), (columns, new, old)):
        of_runs = sums / others
        each = float(of_runs.var(axis=0, ddof=1).mean()) if count > 1 else 0.0
        run = of_runs.mean(axis=1).var(ddof=1) - each / N if count > 1 else 0.0
        whole.append(max(float(run), 0.0) if shared else 0.0)
        of_side.append(max(each - whole[-1], 0.0))
    both = 0.0
    if old > 1 and new > 1:
        left = float(np.mean(squares / (old * new) - np.square(mean)))
        rests = 1 - 1 / old, 1 - 1 / new
        of_sides = sum((of_side[k] + whole[k]) * rests[k] for k in (0, 1))
        both = max((left - of_sides) / (rests[0] * rests[1]), 0.0)
    parts = [max(of_side[0] - both / new, 0.0), max(of_side[1] - both / old, 0.0)]
    total = float(every.known(PerExample(mean), mean=True).examples[0]) * N
    added = parts[0] / old + parts[1] / new + both / (old * new)
    (a, b), (r, s) = parts, whole
    found = Components(max(total - added, 0.0), a, b, both, r, s, shared)
    return found, float(mean.mean())


@dataclasses.dataclass(frozen=True)
class Option:
    """Numbers of examples and runs, with the expected interval and power."""

    examples: int  # number of examples
    old: int  # number of old runs
    new: int  # number of new runs
    half_width: float  # half of the expected width of the interval
    # Smallest change whose interval leaves zero out with the power asked for.
    detectable: float
    power: float  # probability that the interval leaves the limit out


@dataclasses.dataclass(frozen=True)
class Design:
    """Expected intervals and power for numbers of examples and runs."""

    parts: Components
    expected: float
    limit: float
    of_share: bool
    level: float
    power: float

    def option(self, examples: int, old: int, new: int) -> Option:
        """The option of these numbers of examples and runs."""
        total, known = self.parts.known(examples, old, new)
        half = known.quantile(self.level) * np.sqrt(known.total)
        error, stretch, some = np.sqrt(total), 1.0, 1.0
        binomial = self.expected * (1 - self.expected)
        if self.of_share and binomial > 0:
            # Wilson's interval uses the variance at its end, and begins at 0 unless
            # there is an event (ends at 1 unless there is none).
            stretch = np.sqrt(self.limit * (1 - self.limit) / binomial)
            none = self.expected if self.expected < self.limit else 1 - self.expected
            some = 1 - none ** (binomial / total)

        def power(away: float, stretch: float) -> float:
            return float(special.ndtr((away - half * stretch) / error).mean())

        low, high = 0.0, float(half.max() + 9 * error)
        for _ in range(40):
            middle = (low + high) / 2
            enough = power(middle, 1.0) >= self.power
            low, high = (low, middle) if enough else (middle, high)
        reached = min(power(abs(self.expected - self.limit), stretch), some)
        return Option(examples, old, new, float(np.median(half)), high, reached)

    def least(self, of: Callable[[int], Option], low: int, most: int) -> Option | None:
        """The option with the smallest number that has the power; None without any."""
        numbers = range(low, most + 1)
        found = bisect.bisect_left(numbers, self.power, key=lambda n: of(n).power)
        return of(numbers[found]) if found < len(numbers) else None

    def options(self, N: int, old: int, new: int) -> tuple[Option, ...]:
        """The given predictions, then more examples, more runs, or both."""

        def runs(count: int) -> tuple[int, int]:  # only if their variance is known
            return max(count, old) if old > 1 else 1, max(count, new) if new > 1 else 1

        def examples(runs: tuple[int, int], low: int, most: int) -> Option | None:
            return self.least(lambda n: self.option(n, *runs), low, most)

        now = self.option(N, old, new)
        if now.power >= self.power:
            fewer = examples((old, new), _LEAST, N)
            return (now, *([fewer] if fewer and fewer.examples < N else []))
        found = [examples((old, new), N, _MOST_EXAMPLES)]
        most = max(old, new)
        if most > 1:
            more = self.least(lambda r: self.option(N, *runs(r)), most, _MOST_RUNS)
            least = max(more.old, more.new) if more else np.inf
            several = [r for r in _RUNS if runs(r) != (old, new) and r < least]
            found += [more, *(examples(runs(r), N, _MOST_EXAMPLES) for r in several)]
        return (now, *filter(None, found))


_PARTS = (  # in the order of `Components`
    "Examples",
    "Old runs, on each example",
    "New runs, on each example",
    "Both together, on each example",
    "Old runs, on all examples alike",
    "New runs, on all examples alike",
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SizeResult(Display):
    """The result of `size`; a notebook and a terminal show it as a report."""

    old: str  # name of the version in use
    new: str  # name of the version that is to replace it
    quantity: str  # name of the quantity, as in `QUANTITIES`
    value: float  # value of the quantity with these predictions
    limit: float  # number that the interval is to leave out: the gate's limit, or 0
    gate: Gate | None  # the condition; None without one
    power: float  # power asked for
    level: float  # confidence level of the intervals
    components: Components  # variance components
    # These predictions first, then the options that suffice.
    options: tuple[Option, ...]
    notes: tuple[str, ...] = ()  # sentences about what was read and joined
    gates: tuple = ()
    paired: bool = False  # True if `Option.old` counts pairs of an old and a new run

    @property
    def title(self) -> str:
        """Names of both versions."""
        return f"{self.old} → {self.new}, size"

    def verdict(self) -> list[str]:
        """Sentences on the power and on what would suffice."""
        first, *more = self.options
        unit = QUANTITIES[self.quantity].unit
        what = "distinguish the given change from zero"
        if self.gate is not None:
            most = {"max": "at most", "min": "at least"}[self.gate.bound]
            what = f"decide whether it is {most} {limit_text(self.limit, unit)}"
        value = limit_text(float(f"{self.value:.3g}"), unit)
        said = [
            f"The {self.quantity.replace('_', ' ')} is {value}. "
            f"{count_text(first.examples)} examples with {self._runs(first)} {what} in "
            f"{share_text(first.power)} of cases."
        ]
        wanted = share_text(self.power)
        if more:
            options = "; or ".join(map(self._beyond, more))
            said.append(f"For {wanted}: {options}.")
        elif first.power < self.power:
            said.append(
                f"No number of examples or runs that was tried has {wanted} power."
            )
        if min(first.old, first.new) == 1 and not self.paired:
            which = "either side" if first.old == first.new else "one side"
            said.append(
                f"With one run of {which}, the variance of its runs is unknown and "
                "counts as that of the examples; files of several runs show it."
            )
        elif self.components.shared and max(first.old, first.new) < _FEW:
            said.append(
                "So few runs give a poor estimate of what a run adds to all examples "
                "alike."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; a size neither passes nor fails."""
        found = super().to_dict()
        del found["passed"], found["state"]
        return found

    def _runs(self, of: Option, runs: str = "runs") -> str:
        if self.paired:
            return f"{of.old} pairs of runs"
        runs = "run" if of.old == of.new == 1 else runs
        return f"{of.old} old and {of.new} new {runs}"

    def _beyond(self, option: Option) -> str:
        """Words for what an option needs beyond the given predictions."""
        first, said = self.options[0], []
        more = option.examples - first.examples
        if more:
            fewer = f"{count_text(option.examples)} examples would do"
            said.append(fewer if more < 0 else f"{count_text(more)} more examples")
        if (option.old, option.new) != (first.old, first.new):
            runs = "runs" if self.components.shared else "samples of each example"
            equal = option.old == option.new
            each = f"{option.old} {runs} a side"
            said.append(each if equal else self._runs(option, runs))
        return " and ".join(said)

    def document(self, command: str = "") -> Document:
        """The report, with the command under its title."""
        N, old, new = (first := self.options[0]).examples, first.old, first.new
        counts = (N, old * N, new * N, old * new * N, old, new)
        variances = dataclasses.astuple(self.components)[: len(counts)]
        shares = np.divide(variances, counts)
        shares = shares / (shares.sum() or 1.0)
        split = [*zip(_PARTS, map(share_text, shares.tolist()), strict=True)]
        if self.paired:
            split = [
                (name.replace("Old", "Pairs of"), share)
                for name, share in split
                if name.startswith(("Examples", "Old"))
            ]
        unit = QUANTITIES[self.quantity].unit
        unit = "points" if unit == "share" else unit
        options = [
            (
                count_text(of.examples),
                f"{of.old} pairs" if self.paired else f"{of.old} and {of.new}",
                size_text(of.half_width, unit),
                size_text(of.detectable, unit),
                share_text(of.power),
            )
            for of in self.options
        ]
        heads = ("Examples", "Runs", "Interval ±", "Detectable", "Power")
        what = (
            "Interval ±: half of its expected width. Detectable: the change whose "
            f"interval leaves zero out in {share_text(self.power)} of cases."
        )
        table = Table(heads, options, caption=what, kind="compare")
        split = Table(("Part of the variance", "Share"), split, kind="compare")
        notes = [remark(note) for note in dict.fromkeys(self.notes)]
        parts = [
            Section("What would decide", [table]),
            Section("Where the variance comes from", [split]),
        ]
        return composed(self, parts, notes, {}, command)


def size(
    old: Any,
    new: Any,
    *,
    gates: Gating = (),
    waivers: Sequence[Waiver] = (),
    change: float | str | None = None,
    power: float = 0.8,
    level: float = 0.95,
    clusters: Any = None,
    **reading: Any,
) -> SizeResult:
    """Number of examples, runs or samples of each example that a decision needs.

    The given predictions are a pilot: their variance is split into the parts due to
    examples and runs (see `components`), which give the variance for other numbers.

    Args:
        old: predictions or outcomes of the version in use, as in `compare`.
        new: predictions or outcomes of the version that is to replace it.
        gates: one limit on churn, flips or the change of the mean, as in `compare`; the
            interval is to lie on one side of it. Without a limit, the interval of a
            change of the mean is to leave zero out.
        waivers: refused; a size is found for all flips.
        change: the change to detect; None for the one that is measured.
        power: probability that the interval excludes the limit, or zero.
        level: confidence level of the interval.
        clusters: as in `compare`; their number grows with that of the examples.
        **reading: arguments of `compare` or `compare_outcomes` about reading.

    Raises:
        PredictionsError: if predictions cannot be read or joined.
        GateError: if the gate is on another quantity, or its limit is the value itself.
        ValueError: if the power or the level is invalid.
    """
    if not 0 < level < 1 or not 0.5 <= power < 1:
        raise ValueError("level must lie between 0 and 1, power between 0.5 and 1")
    wanted = as_gates(gates)
    if waivers_of(gates, waivers):
        raise GateError("a size is found for all flips; leave the waivers out")
    if len(wanted) > 1 or (wanted and wanted[0].grouping):
        raise GateError("a size is found for one limit, on all examples")
    gate = wanted[0] if wanted else None
    pair, numbers = read_either(old, new, clusters=clusters, **reading)
    if pair.partial:
        raise PredictionsError(
            "a size needs labels of all examples, or of none: leave --labels out, or "
            "label those that do not change, too"
        )
    known = events(numbers)
    changes = [name for name in known if QUANTITIES[name].is_change]
    name = gate.quantity if gate else "".join(changes)
    if name not in known:
        what = f"of {name.replace('_', ' ')}" if name else "without labels or a limit"
        raise GateError(
            f"a size {what} is not known here; there are limits on {', '.join(known)}"
        )
    every = all_examples(numbers.of.examples, pair.clusters, level)
    values = (known[name](r, s).astype(float) for _, r, s in numbers.pairs())
    parts, mean = components(values, *numbers.shape, every, numbers.shared)
    if every.cell is not None or (name in changes and not numbers.decided):
        parts = dataclasses.replace(parts, units=len(every.owner) / len(every.group))
    spread = sum(dataclasses.astuple(parts)[: len(_PARTS)])
    if spread <= np.square(1e-9 * mean):  # but for rounding
        raise GateError(
            f"{name.replace('_', ' ')} is the same in every example of these "
            "predictions, so its variance is unknown; take a larger pilot"
        )
    limit, expected = gate.limit if gate else 0.0, mean
    if change is not None:
        expected = limit_of(change, "change", name)
        if QUANTITIES[name].unit in ("share", "points"):
            check_share(expected, "change", -1)
        if gate:
            raise GateError("a size is found for a limit or for a change, not for both")
        if numbers.decided:  # a change of so many right answers has this variance
            lacks = abs(expected) * (1 - abs(expected)) - spread
            parts = dataclasses.replace(parts, examples=parts.examples + max(lacks, 0))
    if math.isclose(expected, limit, rel_tol=1e-12):
        raise GateError(
            f"{name.replace('_', ' ')} is {limit_text(limit, QUANTITIES[name].unit)}, "
            "the limit itself: no number of examples decides on it"
        )
    design = Design(parts, expected, limit, name not in changes, level, power)
    options = design.options(numbers.of.examples, *numbers.shape)
    return SizeResult(
        pair.old.name,
        pair.new.name,
        *(name, mean, limit, gate, power, level, parts, options),
        notes=(*pair.old.notes, *pair.new.notes, *pair.notes),
        paired=numbers.paired,
    )


def events(numbers: Numbers) -> dict[str, Callable[..., np.ndarray]]:
    """By quantity, the numbers `[N]` of an old and a new run."""
    churn = numbers.decided or numbers.shared
    found = {"churn" if churn else "share_changed": numbers.differ}
    if numbers.judged:
        worth, (change, worse, better) = numbers.worth, numbers.names
        found[worse] = numbers.falls
        found[better] = lambda r, s: numbers.falls(s, r)
        found[change] = lambda r, s: numbers.sign * (worth[s].astype(float) - worth[r])
    return found
