"""Outcomes from frames and predictions of other libraries, which need not be there.

`make test-sources` runs this with pandas, polars, datasets and PyTorch.
"""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from churn_compare import compare_outcomes
from churn_compare.comparison import read_either
from churn_compare.labelling import answers_of
from churn_compare.outcomes import read_outcomes
from churn_compare.reading.contents import column_names
from tests.cases import fails, jsonl

COLUMNS = {
    "id": ["a", "a", "b", "b"],
    "sample": [0, 1, 0, 1],
    "score": [1.0, 2.0, None, 4.0],
    "correct": [True, False, True, True],
    "answer": ["x", "y", "z", "w"],
    "set": [["p", "q"], ["p"], [], ["q"]],
    "target": ["x", "x", "z", "z"],
    "task": ["t", "t", "u", "u"],
}
RECORDS = [dict(zip(COLUMNS, row)) for row in zip(*COLUMNS.values())]


def check(given):
    """That it is read as the columns above."""
    found = read_outcomes(given)
    assert found.runs == (0, 1) and found.ids.tolist() == ["a", "b"]
    assert found.columns["correct"].tolist() == [[1, 1], [0, 1]]
    assert found.known(["correct"]).all()
    assert found.known(["correct", "score"]).tolist() == [True, False]
    assert found.columns["answer"].to_pylist() == ["x", "z", "y", "w"]
    marked = ["\x1fp\x1fq", "\x1f", "\x1fp", "\x1fq"]
    assert found.columns["set"].to_pylist() == marked
    assert found.others()["task"].to_pylist() == ["t", "u"]
    same = {"confirm": ["same-file"], "on_missing": "intersect"}
    measures = compare_outcomes(given, given, by=["task"], **same)
    assert measures["set"]["mean_distance"].value == 0.25  # a and its samples
    assert measures["answer"].groups[0].name == "t"


def test_lists_records_arrow_and_lines(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", RECORDS)
    for given in (COLUMNS, RECORDS, (*RECORDS,), pa.table(COLUMNS), path):
        check(given)
    assert column_names(jsonl(path, [{"id": 1}, {"id": 2, "doc": 3}])) == ["id", "doc"]
    dates = pa.table({"score": [1], "input": [[datetime.date(2020, 1, 1)]]})
    assert read_outcomes(dates).inputs.to_pylist() == ['["2020-01-01"]']


@pytest.mark.parametrize(
    ("columns", "old"),
    [
        ({"answer": ["a", "b"], "prediction": ["x", "y"]}, ["x", "y"]),
        ({"answer": ["a", "b"], "label": ["a", "a"]}, ["a", "b"]),
        ({"score": [0.5, 2.0], "task": ["x", "y"]}, ["0.5", "2"]),
        ({"score": [0.5, 0.9], "label": ["x", "y"]}, ["x", "y"]),
        ({"correct": [1, 0], "prob_x": [0.1, 0.9], "prob_y": [0.9, 0.1]}, ["y", "x"]),
    ],
)
def test_columns_are_outcomes_or_classes_in_objects_as_in_files(columns, old, tmp_path):
    turned = {name: of[::-1] for name, of in columns.items()}
    rows = [
        [dict(zip(["id", *side], row)) for row in zip([1, 2], *side.values())]
        for side in (columns, turned)
    ]
    paths = [jsonl(tmp_path / f"{i}.jsonl", side) for i, side in enumerate(rows)]
    frames = [pa.Table.from_pylist(side) for side in rows]
    columns = [of.to_pydict() for of in frames]
    for sides in (paths, rows, map(tuple, rows), frames, columns):
        pair, numbers = read_either(*sides)
        assert pair.ids.tolist() == [1, 2]
        assert answers_of(pair, numbers, np.arange(2))[0] == old


def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    check(frame)
    check(frame.convert_dtypes())
    check(frame.convert_dtypes(dtype_backend="pyarrow"))
    check(frame.astype({"task": "category", "answer": "category"}))
    check(frame.set_index("id").reset_index())
    named = pandas.DataFrame({"score": [1.0, 2.0]}, index=["i", "j"])
    fails("has an index .*frame.reset_index", read_outcomes, named)
    assert read_outcomes(named.reset_index(names="id")).ids.tolist() == ["i", "j"]
    assert read_outcomes(named.reset_index(drop=True)).ids is None


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(COLUMNS)
    check(frame)
    check(frame.lazy())
    words = polars.Enum(["x", "y", "z", "w"])
    kinds = {"answer": words, "task": polars.Categorical}
    check(frame.with_columns(polars.col(n).cast(kind) for n, kind in kinds.items()))


def test_data_sets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    found = datasets.Dataset.from_dict(COLUMNS)
    check(found)
    check(found.select([3, 1, 0, 2]))
    check(found.with_format("numpy"))
    several = datasets.DatasetDict({"test": found})
    fails("holds tables, test: give one of them", read_outcomes, several)
    fails("is read as a stream", read_outcomes, found.to_iterable_dataset())


def test_values_of_a_network_with_one_output():
    side = {"value": np.linspace(0, 1, 40), "target": np.ones(40)}
    of_network = side | {"value": side["value"][:, None]}  # one output
    assert not compare_outcomes(side, of_network)["value"].changes
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(side["value"], requires_grad=True)
    of_torch = {"value": tensor, "target": torch.ones(40)}
    assert not compare_outcomes(side, of_torch)["value"].changes
