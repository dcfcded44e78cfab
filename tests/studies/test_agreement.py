"""What processes that train together compare before they begin."""

import json

import pytest

from churn_jax.studies.agreement import (
    check_agreement,
    check_shared_folder,
    differences,
)


def test_equal_work_has_no_differences():
    work = {"a": [1, {"name": "x", "b": None}], "c": "d"}
    assert differences(work, {**work}) == []


@pytest.mark.parametrize(
    ("there", "here", "lines"),
    [
        ({"a": 1}, {"a": 2}, ["a: 1 there, 2 here"]),
        ({"a": 1}, {}, ["a: 1 there, nothing here"]),
        ({}, {"a": None}, ["a: nothing there, null here"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1 there, 1.0 here"]),
        ({"a": [True]}, {"a": [1]}, ["a.0: true there, 1 here"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a.b.1: 2 there, 3 here"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1] there, [1, 2] here"]),
        (
            {"methods": [{"name": "ad", "x": 1}]},
            {"methods": [{"name": "ad", "x": 2}]},
            ["methods.ad.x: 1 there, 2 here"],
        ),
    ],
)
def test_a_difference_is_named_by_its_path(there, here, lines):
    assert differences(there, here) == lines


def test_texts_that_differ_differ_in_something():
    """Else the sentence would name nothing."""
    given = [{}, {"a": None}, {"a": 0}, {"a": False}, {"a": 0.0}, {"a": []}, {"a": {}}]
    for one in given:
        for other in given:
            assert bool(differences(one, other)) == (
                json.dumps(one) != json.dumps(other)
            )


def test_a_long_value_is_cut():
    (line,) = differences({"a": "x" * 500}, {"a": ""})
    assert len(line) < 100


def test_one_process_always_agrees(tmp_path):
    check_agreement({"a": object()})  # not even read
    check_shared_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
