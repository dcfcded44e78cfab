"""Numbers as text, and the tables they stand in."""

import math

import pytest

from churn_compare.number_text import (
    count_text,
    level_text,
    p_text,
    range_text,
    share_text,
    size_text,
    value_text,
    with_range,
)
from churn_compare.result import Interval
from tests.cases import NAN


@pytest.mark.parametrize(
    ("interval", "unit", "value", "ends"),
    [
        ((0.0421, 0.039, 0.0453), "share", "4.2 %", "3.9 to 4.5 %"),
        ((0.0421, 0.0411, 0.0431), "share", "4.21 %", "4.11 to 4.31 %"),
        ((0.42, 0.36, 0.48), "share", "42 %", "36 to 48 %"),
        ((0.0, 0.0, 0.004), "share", "0.00 %", "0.00 to 0.40 %"),
        ((1.0, 1.0, 1.0), "share", "100.00 %", "100.00 to 100.00 %"),
        ((0.0421, NAN, NAN), "share", "4.21 %", ""),
        ((NAN, NAN, NAN), "share", "–", ""),
        ((0.006, 0.0021, 0.0099), "points", "+0.6 points", "+0.2 to +1.0"),
        ((-0.006, -0.011, 0.0), "points", "-0.6 points", "-1.1 to 0.0"),
        ((0.613, 0.59, 0.636), "number", "0.613", "0.590 to 0.636"),
        ((-0.02, -0.03, -0.01), "change", "-0.020", "-0.030 to -0.010"),
        ((math.inf, NAN, NAN), "number", "inf", ""),
        ((math.inf, NAN, NAN), "change", "+inf", ""),
        # An end that is not zero does not look like zero.
        ((0.03, 0.0004, 0.06), "points", "+3.00 points", "+0.04 to +6.00"),
        ((0.03, 1e-9, 0.06), "points", "+3.0 points", "0.0 to +6.0"),
        ((0.004, 0.0, 0.12), "share", "0.4 %", "0.0 to 12.0 %"),
        ((0.0005, -0.04, 0.04), "change", "0.00", "-0.04 to +0.04"),
    ],
)
def test_an_interval_says_how_many_digits_count(interval, unit, value, ends):
    interval = Interval(*interval)
    assert value_text(interval, unit) == value
    assert range_text(interval, unit) == ends
    assert with_range(interval, unit) == (f"{value} ({ends})" if ends else value)
    if ends:
        said = with_range(interval, unit, 0.975)
        assert said == f"{value} (97.5 % interval {ends})"


def test_p_values_counts_and_shares():
    said = {0.0: "< 0.001", 0.001: "0.001", 0.046: "0.046", 0.996: "1", NAN: "–"}
    said |= {0.0496: "0.0496", 0.05: "0.05", 0.05004: "0.05004", 0.104: "0.1"}
    assert [p_text(p) for p in said] == list(said.values())
    assert count_text(1234567) == "1,234,567"
    assert count_text(1234.5) == "1,234.5"
    assert count_text(NAN) == share_text(NAN) == "–"
    assert (share_text(0.0005), level_text(0.9)) == ("0.1 %", "90 %")
    said = {0.22: "22 points", 0.0028: "0.28 points", 5.5e-7: "0.0001 points"}
    assert [size_text(size, "points") for size in said] == list(said.values())
