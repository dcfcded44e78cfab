"""Outcomes of the conditions of an update, each with a line of text."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from churn_compare.gates import (
    ALL_SLICES,
    CLASSES,
    EQUIVALENT,
    Gate,
    GateError,
    exactly,
    past_margin,
)
from churn_compare.labelling import more_labels
from churn_compare.number_text import count_text, listed, with_range
from churn_compare.result import (
    NONE,
    GateOutcome,
    Group,
    Interval,
    Measured,
    MeasureFindings,
    State,
    rounding,
    state_of,
)

_NAMED = 3  # groups named in a line
_OF_SCORES = ("score_old", "score_new", "score_change")

Judged = tuple[Interval, State, str]  # the number, the state and a text


def judge(
    gates: Sequence[Gate], found: Measured, among: Sequence[Gate] = ()
) -> tuple[GateOutcome, ...]:
    """Outcomes of `gates`, some of `among` if given; waived flips do not count."""
    if found.waived is not None:

        def without(of: Any, rate: Interval | None) -> Any:
            of_rate = {**of.quantities, found.worse: rate}
            return dataclasses.replace(of, quantities=of_rate)

        groups = tuple(without(group, group.waived_rate) for group in found.groups)
        found = without(dataclasses.replace(found, groups=groups), found.waived.rate)
    return tuple(
        _judge_groups(gate, among or gates, found)
        if gate.grouping
        else _outcome(gate, "", *_judge_all(gate, found))
        for gate in gates
    )


def judge_measures(
    gates: Sequence[Gate], measures: Sequence[MeasureFindings]
) -> tuple[GateOutcome, ...]:
    """Every gate on every measure that has its number."""
    outcomes = []
    for gate in gates:
        about = [m for m in measures if _has(m, gate)]
        if not about:
            raise GateError(_why_not(gate, measures))
        for measure in about:
            (outcome,) = judge([gate], measure, gates)
            if len(measures) > 1:
                text = f"{gate.text} of {measure.name}"
                where = f"{measure.name} {outcome.where}".strip()
                line = outcome.line.replace(gate.text, text, 1)
                outcome = dataclasses.replace(
                    outcome, gate=text, where=where, line=line
                )
            outcomes.append(outcome)
    return tuple(outcomes)


def _has(measure: MeasureFindings, gate: Gate) -> bool:
    if gate.quantity == EQUIVALENT:
        return measure.decided and measure.within is not None
    # A limit on the good end of a score would not stop a worse one.
    bound = "max" if measure.lower_is_better else "min"
    if gate.quantity in _OF_SCORES and gate.bound != bound:
        return False
    if not gate.grouping:
        return gate.quantity in measure.quantities
    about = (group for group in measure.groups if _covers(gate, group))
    return any(gate.quantity in group.quantities for group in about)


def _why_not(gate: Gate, measures: Sequence[MeasureFindings]) -> str:
    bound: Literal["max", "min"] = "min" if gate.bound == "max" else "max"
    turned, of_score = dataclasses.replace(gate, bound=bound), gate.quantity
    if of_score in _OF_SCORES and (other := [m for m in measures if _has(m, turned)]):
        better, instead = "less", ""
        if not other[0].lower_is_better:
            better, instead = "more", ", or --lower-is-better if less is better"
        return (
            f"the gate {gate.text!r} does not stop a worse score: {better} is better "
            f"in {other[0].name}; write {bound}-{of_score.replace('_', '-')}{instead}"
        )
    slices = [of for m in measures for of in m.groups if _covers(gate, of)]
    each = slices if gate.grouping else measures
    there = dict.fromkeys(name for of in each for name in of.quantities)
    what = f"number here, only {', '.join(there)}" if there else "slices here"
    return f"the gate {gate.text!r} cannot be judged: no such {what}"


def _judge_all(gate: Gate, found: Measured) -> Judged:
    within = found.within
    if gate.quantity == EQUIVALENT and within is not None:
        # The interval of two one-sided tests has to lie within the margin.
        size = max(-within.low, within.high)  # NaN without an interval
        sizes = Interval(size, max(within.low, -within.high), size)
        line = with_range(within, gate.unit, 2 * found.level - 1)
        return sizes, _state(gate, sizes), line + past_margin(within, gate.limit)
    if gate.quantity not in found.quantities:
        raise GateError(f"the gate {gate.text!r} cannot be judged: no such number here")
    return _judged(gate, found, found.level)


def _judged(gate: Gate, of: Measured | Group, level: float) -> Judged:
    """What the gate finds of all examples or of a group."""
    sampled = of.sampled
    if sampled is None or gate.on != "estimate" or gate.quantity not in sampled.these:
        interval = of.quantities.get(gate.quantity, NONE)
        return interval, _state(gate, interval), _measured_text(gate, interval, level)
    # The gate is on these examples, of which only a part has labels.
    interval = sampled.these[gate.quantity]
    known = dataclasses.replace(interval, value=0.0)  # NaN without a label
    state = _state(dataclasses.replace(gate, on="interval"), known)
    line = f"{with_range(interval, gate.unit, level)} of these examples"
    if state == "inconclusive":
        more = more_labels(sampled, gate.quantity, gate.limit)
        labels = "label" if more == 1 else "labels"
        line += f"; about {count_text(more)} more {labels} would decide"
    return interval, state, line


def _judge_groups(gate: Gate, gates: Sequence[Gate], found: Measured) -> GateOutcome:
    covered = [g for g in found.groups if _covers(gate, g)]
    about = [g for g in covered if not _overridden(gate, gates, g)]
    if covered and not about:
        return _outcome(gate, "", NONE, "pass", "each has a gate of its own")
    groups = [g for g in about if gate.group or g.examples >= gate.min_examples]
    note, count = "", count_text(len(groups))
    if small := len(about) - len(groups):
        note = (
            f"; {count_text(small)} of {count_text(len(about))} not judged, fewer than "
            f"{count_text(gate.min_examples)} examples"
        )
    if not groups:
        return _outcome(gate, "", NONE, "fail", f"no group to judge{note}")
    judged = [
        (f"{group.grouping} {group.name}", *_judged(gate, group, found.level))
        for group in groups
    ]
    judged.sort(key=lambda of: _margin(gate, of[1]))
    state = state_of(of[2] for of in judged)
    # The groups that fail or are inconclusive are named.
    failing = [of for of in judged if of[2] == state != "pass"]
    name, interval, _, line = (failing or judged)[0]
    if not gate.group:
        if failing:
            word = "not" if state == "fail" else "open"
            named = listed([f"{of[0]} {of[3]}" for of in failing], _NAMED)
            line = f"{word} in {count_text(len(failing))} of {count}: {named}{note}"
        else:
            line = f"at worst {line}, in {name}{note}"
    return _outcome(gate, name, interval, state, line)


def _covers(gate: Gate, group: Group) -> bool:
    if gate.grouping == ALL_SLICES:
        return group.grouping != CLASSES
    return gate.grouping == group.grouping and gate.group in ("", group.name)


def _overridden(gate: Gate, gates: Sequence[Gate], group: Group) -> bool:
    """True if a more specific gate applies to this group."""

    def breadth(of: Gate) -> int:
        return 0 if of.group else 1 if of.grouping != ALL_SLICES else 2

    return any(
        (other.quantity, other.bound) == (gate.quantity, gate.bound)
        and other.grouping
        and breadth(other) < breadth(gate)
        and _covers(other, group)
        for other in gates
    )


def _compared(gate: Gate, interval: Interval) -> float:
    """The number to compare with the limit; NaN if undefined."""
    if gate.on == "estimate" or math.isnan(interval.value):
        return interval.value
    return interval.high if gate.bound == "max" else interval.low


def _best(gate: Gate, interval: Interval) -> float:
    """The end of the interval that is farthest within the limit."""
    return interval.low if gate.bound == "max" else interval.high


def _left(gate: Gate, number: float) -> float:
    """Distance of a number from the limit, below 0 if it violates the limit."""
    return gate.limit - number if gate.bound == "max" else number - gate.limit


def _margin(gate: Gate, interval: Interval) -> float:
    """Distance from the limit; undefined numbers are the worst."""
    compared = _compared(gate, interval)
    return -math.inf if math.isnan(compared) else _left(gate, compared)


def _state(gate: Gate, interval: Interval) -> State:
    """State of the gate; an undefined number fails."""
    slack = rounding(gate.quantity, interval, gate.limit)
    if _margin(gate, interval) >= -slack:
        return "pass"
    best = _best(gate, interval)
    open_ = gate.on == "interval" and math.isfinite(interval.value)
    beyond = _left(gate, best) < -slack  # False without an interval
    return "inconclusive" if open_ and not beyond else "fail"


def _measured_text(gate: Gate, interval: Interval, level: float) -> str:
    if math.isnan(interval.value):
        return "not defined for these predictions"
    said = with_range(interval, gate.unit, level)
    compared = _compared(gate, interval)
    if math.isnan(compared):
        return f"{said}, which has no interval here"
    said += exactly(interval, compared, gate.limit, gate.unit)
    if gate.on == "interval":  # fails only if its other end is beyond the limit, too
        said += exactly(interval, _best(gate, interval), gate.limit, gate.unit)
    return said


def _outcome(
    gate: Gate, where: str, interval: Interval, state: State, line: str
) -> GateOutcome:
    return GateOutcome(
        gate=gate.text,
        where=where,
        measured=_compared(gate, interval),
        limit=gate.limit,
        passed=state == "pass",
        line=f"{state.upper()}  {gate.text}: {line}",
        state=state,
    )
