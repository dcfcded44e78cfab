import math

import pytest

from churn_jax.comparison.number_text import (
    count_text,
    judgement,
    level_text,
    p_text,
    range_text,
    share_text,
    value_text,
    with_range,
)
from churn_jax.comparison.result import Interval

NAN = math.nan


@pytest.mark.parametrize(
    ("interval", "unit", "value", "ends"),
    [
        (Interval(0.0421, 0.039, 0.0453), "share", "4.2 %", "3.9 to 4.5 %"),
        (Interval(0.0421, 0.0411, 0.0431), "share", "4.21 %", "4.11 to 4.31 %"),
        (Interval(0.42, 0.36, 0.48), "share", "42 %", "36 to 48 %"),
        (Interval(0.0, 0.0, 0.004), "share", "0.00 %", "0.00 to 0.40 %"),
        (Interval(1.0, 1.0, 1.0), "share", "100.00 %", "100.00 to 100.00 %"),
        (Interval(0.0421, NAN, NAN), "share", "4.21 %", ""),
        (Interval(NAN, NAN, NAN), "share", "–", ""),
        (Interval(0.006, 0.0021, 0.0099), "points", "+0.6 points", "+0.2 to +1.0"),
        (Interval(-0.006, -0.011, 0.0), "points", "-0.6 points", "-1.1 to 0.0"),
        (Interval(0.613, 0.59, 0.636), "number", "0.613", "0.590 to 0.636"),
        (Interval(-0.02, -0.03, -0.01), "change", "-0.020", "-0.030 to -0.010"),
        (Interval(math.inf, NAN, NAN), "number", "inf", ""),
        (Interval(math.inf, NAN, NAN), "change", "+inf", ""),
        (Interval(-math.inf, NAN, NAN), "change", "-inf", ""),
    ],
)
def test_an_interval_says_how_many_digits_count(interval, unit, value, ends):
    assert value_text(interval, unit) == value
    assert range_text(interval, unit) == ends
    assert with_range(interval, unit) == (f"{value} ({ends})" if ends else value)


def test_an_end_that_is_not_zero_does_not_look_like_zero():
    close = Interval(0.03, 0.0004, 0.06)  # without zero, but only just
    assert range_text(close, "points") == "+0.04 to +6.00"
    assert value_text(Interval(0.004, 0.0, 0.12), "share") == "0.4 %"
    assert value_text(Interval(0.0005, -0.04, 0.04), "change") == "0.00"
    assert range_text(Interval(0.03, 1e-9, 0.06), "points") == "0.0 to +6.0"


def test_the_level_is_said_where_it_is_asked_for():
    text = with_range(Interval(0.042, 0.039, 0.045), "share", 0.9)
    assert text == "4.2 % (90 % interval 3.9 to 4.5 %)"
    assert level_text(0.975) == "97.5 %"


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "< 0.001"), (0.001, "0.001"), (0.046, "0.046"), (0.996, "1"), (NAN, "–")],
)
def test_p_values_have_two_digits(p, text):
    assert p_text(p) == text


def test_counts_and_shares():
    assert count_text(1234567) == "1,234,567"
    assert count_text(1234.5) == "1,234.5"
    assert count_text(NAN) == share_text(NAN) == "–"
    assert share_text(0.0005) == "0.1 %"


@pytest.mark.parametrize(
    ("name", "low", "high", "word"),
    [
        ("accuracy_gain", 0.01, 0.02, "better"),
        ("accuracy_gain", -0.02, -0.01, "worse"),
        ("accuracy_gain", -0.01, 0.01, "unclear"),
        ("accuracy_gain", 0.0, 0.01, "unclear"),
        ("accuracy_gain", NAN, NAN, "unclear"),
        ("nll_change", 0.01, 0.02, "worse"),
        ("ece_change", -0.02, -0.01, "better"),
    ],
)
def test_a_change_counts_where_its_interval_leaves_zero_out(name, low, high, word):
    assert judgement(name, Interval((low + high) / 2, low, high)) == word
