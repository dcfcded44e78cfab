import dataclasses
import json
import math

import numpy as np
import pytest

from churn_jax.comparison import CompareResult, Interval
from churn_jax.comparison.verdict import sentences
from tests.comparison.results import fake_result


def test_a_record_has_every_field_and_is_json():
    result = fake_result(runs=2)
    record = result.to_dict()
    assert list(record)[:3] == ["format", "passed", "verdict"]
    assert record["format"] == 1
    assert record["passed"] is False
    assert record["verdict"] == list(sentences(result))
    fields = [field.name for field in dataclasses.fields(CompareResult)]
    assert list(record)[3:] == fields
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["quantities"]["churn"] == dataclasses.asdict(result["churn"])
    assert list(record["quantities"]) == list(result.quantities)
    assert record["groups"][0]["churn"] == dataclasses.asdict(result.groups[0].churn)
    assert len(record["regressions"]) == len(result.regressions)
    np.testing.assert_array_equal(
        record["points"]["confidence"], result.points.confidence
    )
    assert list(record["curves"]) == ["old", "new"]
    assert record["old"]["name"] == result.old.name


def test_undefined_and_infinite_numbers_are_none():
    infinite = {"nll_old": Interval(math.inf, math.nan, -math.inf)}
    result = dataclasses.replace(
        fake_result(labelled=False),
        quantities={**fake_result(labelled=False).quantities, **infinite},
    )
    record = result.to_dict()
    nothing = {"value": None, "low": None, "high": None}
    assert record["quantities"]["nll_old"] == nothing
    assert record["groups"][0]["accuracy_old"] is None
    assert record["groups"][0]["accuracy_gain"] == nothing
    assert record["curves"] is record["mcnemar"] is record["noise"] is None
    assert set(record["flow"]["negative"]) == {None}


def test_numpy_numbers_are_plain():
    result = dataclasses.replace(
        fake_result(), examples=np.int64(5), level=np.float32(0.5)
    )
    record = result.to_dict()
    assert (record["examples"], record["level"]) == (5, 0.5)
    assert type(record["examples"]) is int


def test_equal_comparisons_give_equal_files(tmp_path):
    result = fake_result(names=["猫", *(f"c{i}" for i in range(9))])
    first = result.save_json(tmp_path / "a" / "first.json")
    second = result.save_json(tmp_path / "second.json")
    assert first.read_bytes() == second.read_bytes()
    record = json.loads(first.read_text(encoding="utf-8"))
    assert record == result.to_dict()
    assert "猫" in first.read_text(encoding="utf-8")


def test_a_folder_in_the_way_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        fake_result().save_json(tmp_path / "file" / "x.json")
