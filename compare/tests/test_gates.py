"""Gates: judged on numbers given by hand, and checked before they are judged."""

import dataclasses
import math
import re

import numpy as np
import pytest

from churn_compare.gate_outcomes import judge
from churn_compare.gates import Gate, GateError, check_gates, gates_by_name
from churn_compare.result import Group, Interval, Measured
from tests.cases import NONE, fails, pair_of

FOUND = {
    "churn": Interval(0.042, 0.039, 0.045),
    "accuracy_gain": Interval(0.006, -0.001, 0.013),
    "nll_new": Interval(math.inf, math.nan, math.nan),
    "nll_change": NONE,
    "relative_negative_flip_rate": Interval(0.5, 0.4, 0.6),
}


def group(grouping, name, examples=100, nfr=0.01, gain=0.0, new=0.9):
    """A class or a slice; intervals are a percentage point wide to either side."""
    ends = {"accuracy_gain": gain, "churn": 2 * nfr}
    ends |= {"negative_flip_rate": nfr, "positive_flip_rate": nfr}
    intervals = {n: Interval(x, x - 0.01, x + 0.01) for n, x in ends.items()}
    for side, accuracy in (("old", 0.9), ("new", new)):
        intervals[f"accuracy_{side}"] = Interval(accuracy, math.nan, math.nan)
    return Group(grouping, name, examples, intervals, p=1.0, adjusted_p=1.0)


REGIONS = (
    group("class", "0", nfr=0.5),
    group("region", "north", nfr=0.04),
    group("region", "south", nfr=0.02),
    group("region", "west", examples=5, nfr=0.2),
    group("age", "old", nfr=0.06),
)


def nfr(*limit, **about):
    return Gate("negative_flip_rate", *limit, **about)


def outcome(gate, others=(), groups=REGIONS, quantities=FOUND, **more):
    found = Measured(level=0.95, quantities=quantities, groups=groups, **more)
    return judge([gate, *others], found)[0]


@pytest.mark.parametrize(
    ("gate", "state", "measured"),
    [
        (Gate("churn", 0.042), "pass", 0.042),
        (Gate("churn", 0.0419), "fail", 0.042),
        (Gate("churn", 0.044, on="bound"), "fail", 0.045),
        (Gate("churn", 0.045, on="bound"), "pass", 0.045),
        (Gate("churn", 0.04, "min", "bound"), "fail", 0.039),
        (Gate("accuracy_gain", 0.006, "min"), "pass", 0.006),
        (Gate("accuracy_gain", 0.007, "min"), "fail", 0.006),
        (Gate("accuracy_gain", 0, "min", "bound"), "fail", -0.001),
        (Gate("accuracy_gain", -0.001, "min", "bound"), "pass", -0.001),
        (Gate("relative_negative_flip_rate", 0.55), "pass", 0.5),
        (Gate("nll_new", 5.0), "fail", math.inf),
        (Gate("churn", 0.0451, on="interval"), "pass", 0.045),
        (Gate("churn", 0.044, on="interval"), "inconclusive", 0.045),
        (Gate("churn", 0.041, on="interval"), "inconclusive", 0.045),  # by far
        (Gate("churn", 0.0389, on="interval"), "fail", 0.045),
        (Gate("accuracy_gain", 0.0, "min", "interval"), "inconclusive", -0.001),
        (Gate("accuracy_gain", -0.0011, "min", "interval"), "pass", -0.001),
    ],
)
def test_a_number_is_compared_with_the_limit(gate, state, measured):
    found = outcome(gate)
    assert (found.state, found.passed) == (state, state == "pass")
    assert (found.measured, found.limit) == (measured, gate.limit)
    assert found.gate == gate.text and found.where == ""
    assert found.line.startswith(f"{state.upper()}  {gate.text}: ")


@pytest.mark.parametrize(
    ("low", "high", "on", "state"),
    [
        (-0.004, 0.009, "estimate", "pass"),
        (-0.004, 0.011, "estimate", "fail"),
        (-0.011, 0.004, "estimate", "fail"),
        (-0.01, 0.004, "estimate", "pass"),
        (-0.03, -0.011, "interval", "fail"),
        (-0.004, 0.011, "interval", "inconclusive"),
        (0.011, 0.03, "interval", "fail"),
        (math.nan, math.nan, "interval", "fail"),
    ],
)
def test_equivalence_is_shown_by_two_one_sided_tests(low, high, on, state):
    (gate,) = gates_by_name({"equivalent": "1%"}, on=on)
    found = outcome(gate, within=Interval(0.003, low, high))
    assert (found.state, found.limit) == (state, 0.01)
    fields = {"within": Interval(0.003, low, high), "equivalent": 0.01}
    measured = Measured(level=0.95, quantities=FOUND, **fields)
    assert measured.is_equivalent == found.passed  # as the verdict says
    end = "accuracy shown to change by less than 1 point: +0.3"
    assert found.line.startswith(f"{state.upper()}  {end}")
    assert math.isnan(low) or "90 % interval" in found.line


def test_groups_that_fail_come_before_those_that_are_open():
    def at(low, high):
        rates = {"negative_flip_rate": Interval(low + 0.001, low, high)}
        return dataclasses.replace(REGIONS[1], name=f"{low}", quantities=rates)

    gate = nfr(0.03, on="interval", grouping="region")
    groups = at(0.0, 0.01), at(0.02, 0.5), at(0.04, 0.05)
    found = outcome(gate, groups=groups)
    assert (found.state, found.where) == ("fail", "region 0.04")
    found = outcome(gate, groups=groups[:2])
    assert (found.state, found.where) == ("inconclusive", "region 0.02")
    assert "open in 1 of 2" in found.line
    assert outcome(gate, groups=groups[:1]).state == "pass"


def test_a_sum_that_is_off_by_rounding_fails_no_gate():
    lower = Interval(0.89 - 0.87, math.nan, math.nan)
    assert lower.value != 0.02
    for bound in ("max", "min"):
        gate = Gate("accuracy_gain", 0.02, bound)
        assert outcome(gate, quantities={"accuracy_gain": lower}).passed


@pytest.mark.parametrize("bound", ["max", "min"])
@pytest.mark.parametrize("on", ["estimate", "bound"])
def test_an_undefined_number_holds_no_gate(bound, on):
    found = outcome(Gate("nll_change", 0.5, bound, on))
    assert not found.passed and math.isnan(found.measured)
    assert "not defined for these predictions" in found.line
    fails("no such number here", outcome, Gate("excess_churn", 0.5), of=GateError)
    found = outcome(Gate("nll_new", 5.0, bound, "bound"))
    assert not found.passed and "which has no interval here" in found.line
    alike = {"nll_new": Interval(0.3, math.nan, math.nan)}
    for on, state in (("bound", "fail"), ("interval", "inconclusive")):
        found = outcome(Gate("nll_new", 0.3, bound, on), quantities=alike)
        assert found.state == state and "which has no interval here" in found.line


def test_a_line_shows_why_a_number_that_looks_like_the_limit_fails_or_passes():
    found = {"churn": Interval(0.0404, 0.03, 0.05)}
    line = outcome(Gate("churn", 0.04), quantities=found).line
    assert line == (
        "FAIL  churn at most 4 %: 4.0 % (95 % interval 3.0 to 5.0 %), exactly 4.04 %"
    )
    line = outcome(Gate("churn", 0.02), quantities=found).line
    assert line == "FAIL  churn at most 2 %: 4.0 % (95 % interval 3.0 to 5.0 %)"
    found = {"churn": Interval(0.015, 0.00911, 0.0246)}
    line = outcome(Gate("churn", 0.0091, on="interval"), quantities=found).line
    end = "1.5 % (95 % interval 0.9 to 2.5 %), exactly 0.911 %"
    assert line == f"FAIL  interval of churn at most 0.91 %: {end}"
    (gate,) = gates_by_name({"equivalent": "5%"})
    line = outcome(gate, within=Interval(-0.01, -0.0496, 0.03)).line
    assert line.endswith("(90 % interval -5 to +3), exactly -4.96 points")


def test_each_value_of_a_column_is_judged_and_the_worst_is_measured():
    found = outcome(nfr(0.03, grouping="region"))
    assert not found.passed
    assert (found.measured, found.where) == (0.2, "region west")
    assert "not in 2 of 3: region west 20" in found.line
    assert ", region north 4" in found.line and "south" not in found.line
    found = outcome(nfr(0.2, grouping="region"))
    assert found.passed and found.where == "region west"  # whose number is measured
    assert "in each region: at worst 20" in found.line
    assert ", in region west" in found.line


def test_small_groups_are_said_to_be_not_judged():
    found = outcome(nfr(0.05, grouping="region", min_examples=30))
    assert found.passed and found.measured == 0.04
    assert found.line.endswith("; 1 of 3 not judged, fewer than 30 examples")
    found = outcome(nfr(0.05, grouping="region", min_examples=101))
    assert not found.passed and "no group to judge; 3 of 3 not judged" in found.line
    named = nfr(0.3, grouping="region", group="west", min_examples=30)
    assert outcome(named).passed  # a group that is named is judged


def test_a_narrow_gate_takes_the_place_of_a_broad_one():
    each, column = nfr(0.05, grouping="*"), nfr(0.05, grouping="age")
    west = nfr(0.25, grouping="region", group="west")
    assert outcome(each, [west]).where == "age old"
    assert outcome(each, [west, column]).passed
    assert outcome(west, [each]).passed
    found = outcome(each, [nfr(0.3, grouping=g) for g in ("region", "age")])
    assert found.passed and found.line.endswith(
        "in each slice: each has a gate of its own"
    )
    other_side = nfr(0.0, "min", grouping="region", group="west")
    other_number = Gate("churn", 0.5, grouping="region", group="west")
    assert outcome(each, [other_side, other_number]).where == "region west"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantity": "chrun"}, "no quantity 'chrun' for a gate; did you mean churn?"),
        ({"quantity": "kappa", "grouping": "class"}, "of classes and slices"),
        ({"limit": 5}, 'between 0 and 1, got 5; write 0.05 or "5%" for 5 %'),
        ({"limit": -0.1}, "churn must lie between 0 and 1, got -0.1"),
        ({"quantity": "accuracy_gain", "limit": -5}, "between -1 and 1, got -5"),
        ({"limit": math.nan}, "must be finite"),
        ({"limit": "0.1"}, "must be a number"),
        ({"bound": "most"}, "bound must be 'max' or 'min'; got 'most'"),
        ({"on": "upper"}, "or 'interval'; got 'upper'"),
        ({"group": "north"}, "the group 'north' needs its grouping"),
        ({"quantity": "equivalent", "limit": 0}, "takes a margin above 0"),
        ({"quantity": "equivalent", "bound": "min"}, "takes a margin above 0"),
        ({"min_examples": 0}, "min_examples must be at least 1; got 0"),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(fields, message):
    given = {"quantity": "churn", "limit": 0.1} | fields
    fails(re.escape(message), Gate, **given, of=GateError)


def test_a_limit_is_a_number_of_any_type():
    for limit in (np.float32(0.05), np.float64(0.05), 0.05):
        assert Gate("churn", limit).text == "churn at most 5 %"
    assert Gate("churn", np.int64(0)) == Gate("churn", 0)


def pair(labels=(0, 1, 1, 0), values=np.zeros((1, 4, 3)), **fields):
    return pair_of(values, values, labels, **fields)[0]


def of(grouping, group=""):
    return Gate("churn", 0.1, grouping=grouping, group=group)


NORTH = np.array(["north", "south", "north", ""])
SLICED = pair(values=np.zeros((2, 4, 3)), slices={"region": NORTH})
UNLABELLED = pair(labels=None)
OF_CLASSES = pair(values=np.zeros((1, 4), int))


@pytest.mark.parametrize(
    ("gate", "on", "message"),
    [
        (Gate("accuracy_gain", 0, "min"), UNLABELLED, "there are no labels"),
        (of("class"), UNLABELLED, "no labels"),
        (Gate("nll_new", 1), OF_CLASSES, "new has predicted classes only"),
        (Gate("excess_churn", 0.1), pair(), "both versions have one run"),
        (of("*"), pair(), "there are no slices"),
        (of("regions"), SLICED, "no column of the slices 'regions'; did you mean reg"),
        (of("region", "east"), SLICED, "no value of region 'east'"),
        (of("class", "2"), pair(), "no class with examples '2'; there are 0, 1"),
        (of("class"), pair(slices={"class": NORTH}), 'of the slices is called "class"'),
    ],
)
def test_what_the_predictions_cannot_answer_is_refused_at_once(gate, on, message):
    said = re.escape(f"the gate {gate.text!r} cannot be judged: ")
    said += f".*{re.escape(message)}"
    fails(said, check_gates, [Gate("churn", 0.5), gate], on, of=GateError)
