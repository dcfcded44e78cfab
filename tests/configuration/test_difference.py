"""What two configurations differ in, in words."""

import pytest

from churn_jax.configuration.difference import differences, in_words, without


def test_equal_work_has_no_differences():
    work = {"a": [1, {"name": "x", "b": None}], "c": "d"}
    assert differences(work, {**work}) == []


@pytest.mark.parametrize(
    ("there", "here", "lines"),
    [
        ({"a": 1}, {"a": 2}, ["a: 1 there, 2 here"]),
        ({"a": 1}, {}, ["a: 1 there, nothing here"]),
        ({}, {"a": None}, ["a: nothing there, None here"]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": [True]}, {"a": [1]}, ["a[0]: True there, 1 here"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a.b[1]: 2 there, 3 here"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1] there, [1, 2] here"]),
        # Methods of two classes differ in the class alone.
        (
            {"m": {"class": "ERM", "x": 1}},
            {"m": {"class": "ELODI", "x": 2}},
            ["m: ERM there, ELODI here"],
        ),
        (
            {"methods": [{"name": "ad", "x": 1}]},
            {"methods": [{"name": "ad", "x": 2}]},
            ["methods.ad.x: 1 there, 2 here"],
        ),
    ],
)
def test_a_difference_is_named_by_its_path(there, here, lines):
    assert differences(there, here) == lines


def test_a_long_value_is_cut():
    (line,) = differences({"a": "x" * 500}, {"a": ""})
    assert len(line) < 100


def test_only_the_first_differences_are_told_and_the_others_counted():
    there = {name: 0 for name in "abcde"}
    text = in_words(differences(there, dict.fromkeys(there, 1)))
    assert text.startswith("a: 0 there, 1 here; b: ") and text.endswith("; and 2 more")


def test_settings_that_change_no_results_are_left_out_at_any_depth():
    value = {
        "train": {"mesh": 1, "epochs": 2},
        "methods": [{"label": "A", "name": "a"}],
    }
    assert without(value) == {"train": {"epochs": 2}, "methods": [{"name": "a"}]}
