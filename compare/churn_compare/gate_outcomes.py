"""Outcomes of the conditions of an update, each with a line of text."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from churn_compare.gates import (
    ALL_SLICES,
    CLASSES,
    EQUIVALENT,
    Gate,
    GateError,
    limit_text,
)
from churn_compare.labelling import more_labels
from churn_compare.number_text import count_text, listed, value_text, with_range
from churn_compare.result import (
    NONE,
    GateOutcome,
    Group,
    Interval,
    Measured,
    Sampled,
    State,
    state_of,
)

# Rounding errors of sums and differences of shares fail no gate.
_ROUNDING = 1e-9
_NAMED = 3  # groups named in a line


def judge(gates: Sequence[Gate], found: Measured) -> tuple[GateOutcome, ...]:
    """Judges each gate. A gate on an undefined number fails.

    Args:
        gates: conditions.
        found: numbers of all examples and of groups; waived flips are left out.

    Returns:
        One outcome per gate, in the order of the gates. For a gate on several groups
        `measured` is that of the worst group; `where` names it if the gate fails.

    Raises:
        GateError: if there is no such number or group.

    Example:
        >>> churn = {"churn": Interval(0.042, 0.039, 0.045)}
        >>> gates = [Gate("churn", 0.05), Gate("churn", 0.04, on="bound")]
        >>> for outcome in judge(gates, Measured(level=0.95, quantities=churn)):
        ...     print(outcome.line)
        PASS  churn at most 5 %: 4.2 % (95 % interval 3.9 to 4.5 %)
        FAIL  upper end of churn at most 4 %: 4.2 % (95 % interval 3.9 to 4.5 %)
    """
    quantities, groups = found.quantities, found.groups
    if found.waived is not None:
        worse = found.worse
        quantities = {**quantities, worse: found.waived.rate}
        groups = [
            dataclasses.replace(of, quantities={**of.quantities, worse: of.waived_rate})
            for of in groups
            if of.waived_rate is not None
        ]
    return tuple(
        _judge_groups(gate, gates, groups, found.level)
        if gate.grouping
        else _judge_whole(gate, found, quantities)
        for gate in gates
    )


def _judge_whole(
    gate: Gate, found: Measured, quantities: Mapping[str, Interval]
) -> GateOutcome:
    within, sampled = found.within, found.sampled
    if gate.quantity == EQUIVALENT and within is not None:
        # The interval of two one-sided tests has to lie within the margin.
        size = max(-within.low, within.high)  # NaN without an interval
        touching = within.low <= gate.limit and within.high >= -gate.limit
        state: State = "inconclusive" if gate.on == "interval" and touching else "fail"
        state = "pass" if size < gate.limit else state
        line = with_range(within, gate.unit, 2 * found.level - 1)
        outcome = _outcome(gate, "", within, state, line)
        return dataclasses.replace(outcome, measured=size)
    if gate.quantity not in quantities:
        raise GateError(f"the gate {gate.text!r} cannot be judged: no such number here")
    interval, state, line = _judged(gate, quantities, sampled, found.level)
    return _outcome(gate, "", interval, state, line)


def _judged(
    gate: Gate,
    quantities: Mapping[str, Interval],
    sampled: Sampled | None,
    level: float,
) -> tuple[Interval, State, str]:
    """The number, the state of the gate, and a text, of all examples or a group."""
    if sampled is None or gate.on != "estimate" or gate.quantity not in sampled.these:
        interval = quantities.get(gate.quantity, NONE)
        return interval, _state(gate, interval), _measured_text(gate, interval, level)
    # The gate is on these examples, of which only a part has labels.
    interval = sampled.these[gate.quantity]
    known = dataclasses.replace(interval, value=0.0)  # NaN without a label
    state = _state(dataclasses.replace(gate, on="interval"), known)
    line = f"{with_range(interval, gate.unit, level)} of these examples"
    if state == "inconclusive":
        more = more_labels(sampled, gate.quantity, gate.limit)
        line += f"; about {count_text(more)} more labels would decide"
    return interval, state, line


def _judge_groups(
    gate: Gate, gates: Sequence[Gate], groups: Sequence[Group], level: float
) -> GateOutcome:
    covered = [g for g in groups if _covers(gate, g)]
    about = [g for g in covered if not _overridden(gate, gates, g)]
    if covered and not about:
        return _outcome(gate, "", NONE, "pass", "each has a gate of its own")
    judged = [g for g in about if gate.group or g.examples >= gate.min_examples]
    note = ""
    if small := len(about) - len(judged):
        note = (
            f"; {count_text(small)} of {count_text(len(about))} not judged, fewer than "
            f"{count_text(gate.min_examples)} examples"
        )
    if not judged:
        return _outcome(gate, "", NONE, "fail", f"no group to judge{note}")
    found = [(g, *_judged(gate, g.quantities, g.sampled, level)) for g in judged]
    found.sort(key=lambda of: _margin(gate, of[1]))
    state = state_of(of[2] for of in found)
    # The groups that fail or are inconclusive are named.
    failing = [of for of in found if of[2] == state != "pass"]
    worst, interval, _, line = (failing or found)[0]
    where = _name(worst) if failing or gate.group else ""
    if not failing and not gate.group:
        line = f"at worst {line}, in {_name(worst)}{note}"
    elif not gate.group:
        named = [f"{_name(of[0])} {of[3]}" for of in failing]
        line = (
            f"{'not' if state == 'fail' else 'open'} in {count_text(len(failing))} of "
            f"{count_text(len(judged))}: {listed(named, _NAMED)}{note}"
        )
    return _outcome(gate, where, interval, state, line)


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


def _margin(gate: Gate, interval: Interval) -> float:
    """Distance of the number from the limit; undefined numbers are the worst."""
    compared = _compared(gate, interval)
    if math.isnan(compared):
        return -math.inf
    return gate.limit - compared if gate.bound == "max" else compared - gate.limit


def _state(gate: Gate, interval: Interval) -> State:
    """State of the gate; an undefined number fails."""
    if _margin(gate, interval) >= -_ROUNDING:
        return "pass"
    best = interval.low if gate.bound == "max" else interval.high
    beyond = best - gate.limit if gate.bound == "max" else gate.limit - best
    if gate.on == "interval" and beyond <= _ROUNDING and not math.isnan(interval.value):
        return "inconclusive"
    return "fail"


def _measured_text(gate: Gate, interval: Interval, level: float) -> str:
    if math.isnan(interval.value):
        return "not defined for these predictions"
    said = with_range(interval, gate.unit, level)
    compared = _compared(gate, interval)
    if math.isnan(compared):
        return f"{said}, which has no interval here"
    if abs(compared - gate.limit) > _ROUNDING:
        shown, limit = (
            value_text(dataclasses.replace(interval, value=value), gate.unit)
            for value in (compared, gate.limit)
        )
        if shown == limit:
            said += f", exactly {limit_text(compared, gate.unit)}"
    return said


def _name(group: Group) -> str:
    return f"{group.grouping} {group.name}"


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
