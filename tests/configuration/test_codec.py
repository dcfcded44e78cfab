"""Configurations as JSON values and back, and what two of them differ in."""

import dataclasses
import json
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.codec import (
    differences,
    from_json,
    in_words,
    replaced,
    to_json,
    without,
)
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.training import Seeds, TrainConfig
from churn_jax.methods import ERM, Codistillation, MinimumEntropy
from tests.experiments.presets import STUDIES, study
from tests.refusals import refusals


def through_text(value):
    return json.loads(json.dumps(to_json(value)))


@pytest.mark.parametrize("name", STUDIES)
def test_every_preset_is_read_back(name):
    config = study(name)
    assert from_json(type(config), through_text(config)) == config


@dataclasses.dataclass(frozen=True)
class Inner:
    numbers: tuple[float, ...] = ()
    pair: tuple[str, int] | None = None
    either: str | ModelConfig = "mlp"
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()
    method: ERM = ERM()
    share: float = 0.0


@pytest.mark.parametrize(
    "value",
    [
        Outer("a"),
        Outer("a", Inner((0.5, 1.0), ("b", 2), ModelConfig("lenet5"), {"c": 0.5})),
        Outer("a", rows=(Inner(), Inner((1.0,)))),
        Outer("a", method=MinimumEntropy(alpha=0.25)),
    ],
)
def test_what_is_written_is_read(value):
    assert from_json(Outer, through_text(value)) == value


def test_absent_fields_have_their_defaults():
    assert from_json(Outer, {"name": "a"}) == Outer("a")


test_what_cannot_be_is_named_by_its_path = refusals(
    ({}, "it lacks 'name'"),
    ([], r"it must be an object; got \[\]"),
    ({"name": 3}, "name must be a text; got 3"),
    ({"name": "a", "more": 1}, "it has no setting 'more'"),
    ({"name": "a", "inner": {"more": 1}}, "inner has no setting 'more'"),
    ({"name": "a", "inner": {"numbers": 1}}, "inner.numbers must be a list; got 1"),
    (
        {"name": "a", "inner": {"numbers": [1.0, True]}},
        r"inner.numbers\[1\] must be a number; got True",
    ),
    ({"name": "a", "share": [0.1, 0.2]}, r"share must be a number; got \[0.1, 0.2\]"),
    ({"name": "a", "inner": {"pair": ["a"]}}, "inner.pair must be 2 values"),
    ({"name": "a", "method": {"class": "Nope"}}, "method: unknown method 'Nope'"),
    ({"name": "a", "method": {"members": 2}}, "unknown method 'None'"),
    ({"name": "a", "method": {"class": "math:pi"}}, "math:pi is not a method"),
    call=lambda value: from_json(Outer, value),
)


def test_arrays_are_written_in_the_fewest_digits_and_read_as_float32():
    method = Codistillation(beta=jnp.array([0.1, 0.3]))
    found = through_text(method)
    assert found["beta"] == [0.1, 0.3]
    beta = from_json(Codistillation, found).beta
    assert beta.dtype == np.float32
    np.testing.assert_array_equal(beta, method.beta)
    assert to_json(np.float32(0.1)) == 0.1 and to_json((1, None)) == [1, None]


def test_settings_are_replaced_by_their_paths():
    changed = replaced(TrainConfig(), [("epochs", 3), ("optimizer.momentum", 0.0)])
    assert (changed.epochs, changed.optimizer.momentum) == (3, 0.0)
    # As a record has it; another one would set what it does not name to its default.
    seeds = to_json(Seeds(init="fixed"))
    assert replaced(changed, [("seeds", seeds)]).seeds.init == "fixed"
    with pytest.raises(ValueError, match=r"one of its settings \(seeds.base\); got"):
        replaced(changed, [("seeds", {"init": "fixed"})])


@pytest.mark.parametrize(
    ("there", "here", "lines"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
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
        "methods": [{"label": "A", "name": "a", "method": {"class": "M", "label": 1}}],
    }
    rows = [{"name": "a", "method": {"class": "M", "label": 1}}]
    assert without(value) == {"train": {"epochs": 2}, "methods": rows}
    own = [["eval_batch_size", 10], ["seeds.init", "fixed"], ["mesh.data", 2]]
    assert without({"name": "a", "train": own}) == {"name": "a", "train": own[1:2]}
