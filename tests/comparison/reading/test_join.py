"""Two versions joined: always the same example, the same class, the same label."""

import dataclasses
import functools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from churn_jax.comparison.pair import Pair, Side
from churn_jax.comparison.reading.class_alignment import read_class_map
from churn_jax.comparison.reading.ids import as_ids
from churn_jax.comparison.reading.join import join
from churn_jax.comparison.reading.sides import read_side
from churn_jax.comparison.scanning.scan import scan
from churn_jax.example_ids import match_ids
from churn_jax.predictions import PredictionsError

N = 9


def _classes(name, values, **more):
    """A side of predicted classes."""
    return read_side({"predictions": np.asarray(values), **more}, name)


def _scores(name, C=3, N=N, **more):
    """A side of logits; row `i` is highest in class `i mod C`."""
    logits = np.eye(C, dtype=np.float32)[np.arange(N) % C]
    return read_side({"logits": logits, **more}, name)


def _old_and_new(pair: Pair):
    """Names of the predicted classes of each example, the way a reader sees them."""
    scanned = scan(pair)
    return [
        [pair.class_name(c) for c in side.predicted[0]]
        for side in (scanned.old, scanned.new)
    ]


def test_golden_case():
    """Three examples in other orders, one class map, one grouping."""
    old = _classes("old", ["tabby", "dog", "fox"], ids=["b", "a", "c"])
    new = _classes("new", ["dog", "cat", "cat"], ids=["a", "c", "b"])
    pair = join(
        old,
        new,
        labels={"a": "dog", "b": "cat", "c": "fox"},
        slices={"id": ["c", "b", "a"], "day": ["Mon", "Tue", None]},
        class_map={"tabby": "cat"},
    )
    assert pair.ids.tolist() == ["a", "b", "c"]
    assert pair.class_names == ("cat", "dog", "fox")
    assert _old_and_new(pair) == [["dog", "cat", "fox"], ["dog", "cat", "cat"]]
    assert pair.labels.tolist() == [1, 0, 2]
    assert pair.slices["day"].tolist() == ["", "Tue", "Mon"]
    assert pair.old_rows.tolist() == [1, 0, 2]
    assert pair.new_rows.tolist() == [0, 2, 1]
    assert pair.notes == ()


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(N) * 5 - 7,
        np.array([f"é/{i}" for i in range(N)]),
        np.arange(N).astype(np.uint64) + 2**63,
        (np.arange(N) + 2**53).astype(np.int64),  # floats cannot tell these apart
    ],
    ids=["integers", "strings", "uint64", "int64"],
)
def test_order_of_rows_changes_nothing(ids, rng):
    values = np.arange(N) % 4
    want = join(
        _classes("old", values, ids=ids, labels=values),
        _classes("new", values[::-1], ids=ids),
    )
    for _ in range(3):
        a, b, c = (rng.permutation(N) for _ in range(3))
        pair = join(
            _classes("old", values[a], ids=ids[a], labels=values[a]),
            _classes("new", values[::-1][b], ids=ids[b]),
            labels={"ids": ids[c], "labels": values[c]},
            slices={"ids": ids[c], "half": np.arange(N)[c] % 2},
        )
        np.testing.assert_array_equal(pair.ids, want.ids)
        np.testing.assert_array_equal(pair.labels, want.labels)
        assert _old_and_new(pair) == _old_and_new(want)
        np.testing.assert_array_equal(
            pair.slices["half"], np.array(["0", "1"])[np.argsort(as_ids(ids)) % 2]
        )


def test_rows_that_are_all_in_order_are_not_picked():
    ids = np.arange(N) * 2
    a, b = _scores("old", ids=ids), _scores("new", ids=ids)
    pair = join(a, b)
    assert pair.old_rows is None
    assert pair.new_rows is None
    assert pair.old_columns is None
    assert pair.new_columns is None
    pair = join(a, _scores("new", ids=ids[::-1]))
    assert pair.old_rows is None
    assert pair.new_rows.tolist() == list(range(N))[::-1]
    pair = join(_scores("old"), _scores("new"))
    assert pair.old_rows is None
    assert "matched by their rows" in pair.notes[0]
    np.testing.assert_array_equal(pair.ids, np.arange(N))


def test_an_id_is_what_it_is_written_as():
    numbers, text = as_ids([7, 10, 12]), as_ids(["7", "10", "012"])
    found = match_ids(numbers, text)
    assert found.ids.tolist() == ["10", "7"]
    assert found.rows_a.tolist() == [1, 0]
    assert found.rows_b.tolist() == [1, 0]
    assert found.only_a.tolist() == ["12"]
    assert found.only_b.tolist() == ["012"]
    signed, unsigned = np.array([-1, 2**53 + 1]), np.array([2**63 + 1, 2**53], "u8")
    assert not match_ids(as_ids(signed), as_ids(unsigned)).ids.size


class Frame:
    """What is used of a pandas data frame."""

    def __init__(self, columns, index):
        self.columns, self._columns = list(columns), columns
        self.index = np.asarray(index)

    def __getitem__(self, name):
        return self._columns[name]


def _frame(form, folder, name, index, columns, order=slice(None)):
    """A data frame of some rows of `columns`, as pandas keeps or writes it."""
    columns = {key: np.asarray(values)[order] for key, values in columns.items()}
    picked = np.asarray(index)[order]
    if form == "frame":
        return Frame(columns, picked)
    heads = {"csv": "", "unnamed": "Unnamed: 0", "level": "__index_level_0__"}
    head = heads.get(form, "image")
    table = pa.table({head: picked, **columns} if form == "csv" else columns)
    if form == "csv":
        csv.write_csv(table, folder / f"{name}.csv")
        return folder / f"{name}.csv"
    facts = head
    steps = np.unique(np.diff(picked)) if picked.dtype.kind == "i" else []
    if form == "range" and len(steps) == 1:
        start, step = int(picked[0]), int(steps[0])
        facts = {"kind": "range", "start": start, "step": step}
        facts["stop"] = start + step * len(picked)
    else:
        table = table.append_column(head, pa.array(picked))
    if form in ("range", "named"):
        facts = json.dumps({"index_columns": [facts]})
        table = table.replace_schema_metadata({"pandas": facts})
    pq.write_table(table, folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


FORMS = ("frame", "csv", "unnamed", "level", "range", "named")
INDEXES = {
    "default": np.arange(N),
    "split": np.arange(N) * 7 % 60 + 3,
    "text": np.array([f"im{i}" for i in range(N)]),
    "days": np.datetime64("2020-01-01", "s") + 86400 * np.arange(N),
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("form", FORMS)
def test_the_index_of_a_data_frame_is_ids(form, index, rng, tmp_path):
    """Old in order, new in another: the same example has the same class."""
    index, order = INDEXES[index], rng.permutation(N)[::-1]
    if form == "csv":
        index = index.astype(str)
    columns = {"p_0": np.arange(N) / N, "p_1": 1 - np.arange(N) / N}
    frame = functools.partial(_frame, form, tmp_path, index=index, columns=columns)
    for how in (order, np.arange(N)[::-1]):
        old, new = read_side(frame("old"), "old"), read_side(frame("new", order=how))
        assert old.class_names is None and old.classes == 2
        labels = _frame(form, tmp_path, "y", index, {"y": np.arange(N) % 2}, how)
        slices = _frame(form, tmp_path, "s", index, {"s": np.arange(N)}, how)
        pair = join(old, new, labels=labels, slices=slices)
        found = _rows(pair)
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(pair.labels, found[0] % 2)
        np.testing.assert_array_equal(pair.slices["s"], found[0].astype(str))
        assert pair.notes[0] == "old has no column of ids: its index is taken for them."


def _rows(pair):
    """Rows of both sides before they were moved, by their scores."""
    sides = (pair.old, pair.old_rows), (pair.new, pair.new_rows)
    return [
        np.round(
            N * (s.values[0, :, 0] if rows is None else s.values[0, rows, 0])
        ).astype(int)
        for s, rows in sides
    ]


@pytest.mark.parametrize("form", FORMS)
def test_an_index_that_counts_rows_is_no_ids(form, tmp_path):
    index = np.arange(N)
    columns = {"p_0": np.arange(N) / N, "p_1": 1 - np.arange(N) / N}
    old = read_side(_frame(form, tmp_path, "old", index, columns), "old")
    bare = {"p_0": columns["p_0"], "p_1": columns["p_1"]}
    for new in (bare, Frame(bare, index + 1), _frame(form, tmp_path, "n", index, bare)):
        new = read_side(new, "new")
        pair = join(old, new, labels=Frame({"y": index % 2}, index * 50 + 9))
        assert "Warning: there are no ids, so" in pair.notes[0]
        np.testing.assert_array_equal(*_rows(pair))
        np.testing.assert_array_equal(pair.labels, index % 2)
        with pytest.raises(
            PredictionsError, match=r"new has only numbers|new has none"
        ):
            join(read_side({"id": index[::-1], **bare}, "old"), new)
        with pytest.raises(PredictionsError, match="old has an index and new has"):
            join(read_side(Frame(bare, index + 4), "old"), new, on_missing="intersect")
    labelled = {**bare, "label": index % 2}
    pair = join(read_side(labelled), read_side(labelled))
    assert pair.notes[0].endswith("by their rows, in which the labels of both agree.")


def test_a_column_of_ids_comes_before_an_index(tmp_path):
    columns = {"id": np.arange(N)[::-1], "y_pred": np.arange(N)}
    for form in FORMS:
        side = read_side(_frame(form, tmp_path, "a", INDEXES["text"], columns))
        np.testing.assert_array_equal(side.ids, columns["id"])
        assert not side.index
    path = _frame("named", tmp_path, "b", INDEXES["text"], {"y_pred": np.arange(N)})
    assert not read_side(path, id_column="image").index
    given = read_side(path, ids=np.arange(N))
    np.testing.assert_array_equal(given.ids, np.arange(N))
    doubled = Frame({"y_pred": np.arange(N)}, np.arange(N) // 2)
    assert read_side(doubled).ids is None


def test_missing_ids_are_counted_and_may_be_left_out():
    old = _classes("old", np.arange(6), ids=[5, 4, 3, 2, 1, 0])
    new = _classes("new", np.arange(4), ids=[9, 8, 4, 5])
    with pytest.raises(PredictionsError) as caught:
        join(old, new)
    assert "4 of 6 ids are only in old (for example 0, 1, 2, ...)" in str(caught.value)
    assert "2 of 4 ids are only in new (for example 8, 9)" in str(caught.value)
    pair = join(old, new, on_missing="intersect")
    assert pair.ids.tolist() == [4, 5]
    assert _old_and_new(pair) == [["1", "0"], ["2", "3"]]
    assert pair.notes[0].endswith(": 2 examples are compared.")
    other = _classes("new", [1, 2], ids=[70, 80])
    with pytest.raises(PredictionsError, match="no example is left to compare"):
        join(old, other, on_missing="intersect")
    with pytest.raises(PredictionsError, match="must be 'error' or 'intersect'"):
        join(old, new, on_missing="ignore")


def test_labels_beside_are_joined_by_id(tmp_path):
    ids = np.arange(N) + 100
    old, new = _scores("old", ids=ids), _scores("new", ids=ids)
    many = np.arange(200)[::-1]
    labels = many % 3
    np.savez(tmp_path / "labels.npz", ids=many, labels=labels)
    pq.write_table(pa.table({"id": many, "y_true": labels}), tmp_path / "l.parquet")
    lines = [f"{i:},{y}" for i, y in zip(many, labels, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *lines, ""]))
    by_id = dict(zip(many.tolist(), labels.tolist(), strict=True))
    for given in (
        by_id,
        *map(tmp_path.joinpath, ("labels.npz", "l.parquet", "labels.csv")),
    ):
        pair = join(old, new, labels=given)
        np.testing.assert_array_equal(pair.labels, ids % 3)
        assert "further ids" in pair.notes[0]
    few = {i: i % 3 for i in range(103, 200)}
    with pytest.raises(
        PredictionsError, match=r"labels lack 3 of 9 ids .*100, 101, 102"
    ):
        join(old, new, labels=few)
    pair = join(old, new, labels=few, on_missing="intersect")
    np.testing.assert_array_equal(pair.ids, ids[3:])
    np.testing.assert_array_equal(pair.labels, ids[3:] % 3)
    assert _old_and_new(pair)[0] == [str(i % 3) for i in range(3, N)]


def test_values_without_ids_need_one_order_of_rows():
    ids = np.arange(N)[::-1]
    old = _scores("old", ids=ids)
    values = np.arange(N) % 3
    pair = join(old, _scores("new", ids=ids), labels=values, slices={"a": values})
    np.testing.assert_array_equal(pair.labels, values[::-1])  # in the order of the ids
    assert pair.notes[0] == "The labels have no ids: they are matched by their rows."
    assert pair.slices["a"].tolist() == [str(v) for v in values[::-1]]
    for more in ({"labels": values}, {"slices": {"a": values}}):
        with pytest.raises(PredictionsError, match="have no ids, but the two sides"):
            join(old, _scores("new", ids=ids[::-1]), **more)
        with pytest.raises(
            PredictionsError, match="are of 9 examples, the predictions of 8"
        ):
            join(_scores("a", N=8), _scores("b", N=8), **more)
    with pytest.raises(
        PredictionsError, match="the labels have ids, but the predictions"
    ):
        join(_scores("a"), _scores("b"), labels=dict(enumerate(values)))


def test_labels_without_ids_are_not_dealt_out_to_what_is_left():
    ids = np.arange(N)
    sides = _scores("old", ids=ids), _scores("new", N=N - 1, ids=ids[:-1])
    with pytest.raises(PredictionsError, match="have no ids, but the two sides"):
        join(*sides, labels=ids[:-1] % 3, on_missing="intersect")


def test_labels_in_a_file_of_predictions_are_numbers_of_its_own_classes(tmp_path):
    ids = np.arange(N)
    sides = [
        _scores(name, ids=ids, class_names=["b", "c", "a"]) for name in ("old", "new")
    ]
    own = {"ids": ids, "labels": ids % 3, "logits": np.zeros((N, 3))}
    np.savez(tmp_path / "third.npz", **own, class_names=["a", "b", "c"])
    pair = join(*sides, labels=tmp_path / "third.npz")
    assert [pair.class_name(c) for c in pair.labels[:3]] == ["a", "b", "c"]


def test_labels_of_classes_whose_names_are_numbers_are_these_names(tmp_path):
    ids = np.arange(N)
    own = {"ids": ids, "logits": np.zeros((N, 2)), "class_names": ["1", "0"]}
    np.savez(tmp_path / "labels.npz", **own, labels=ids % 2)
    bare = [read_side(own, name) for name in ("old", "new")]
    beside = join(*bare, labels=tmp_path / "labels.npz")
    inside = join(read_side(tmp_path / "labels.npz"), bare[1])
    for pair in (beside, inside):
        assert [pair.class_name(c) for c in pair.labels[:3]] == ["0", "1", "0"]


def test_labels_of_several_places_must_agree():
    labels = np.arange(N) % 3
    other = labels.copy()
    other[[2, 5]] = 0
    ids = np.arange(N) + 10
    a, b = _scores("a", ids=ids, labels=labels), _scores("b", ids=ids, labels=other)
    with pytest.raises(
        PredictionsError,
        match="labels of 2 of 9 examples differ between a and b, for example ids 12",
    ):
        join(a, b)
    with pytest.raises(PredictionsError, match="between a and the labels beside"):
        join(a, _scores("b", ids=ids), labels=other)
    same = dataclasses.replace(b, name="a")  # files of one name
    with pytest.raises(PredictionsError, match="labels of 2 of 9"):
        join(a, same)


def test_labels_may_be_of_classes_that_one_side_does_not_know():
    labels = np.arange(N) % 4
    pair = join(
        _scores("old", C=2, labels=labels), _scores("new", C=4), class_map="identity"
    )
    assert pair.classes == 4
    np.testing.assert_array_equal(pair.labels, labels)
    with pytest.raises(
        PredictionsError, match=r"labels of 2 of 9 .* of no class.* 3; the"
    ):
        join(_scores("old", labels=labels), _scores("new"))
    pair = join(_classes("old", labels % 2), _scores("new", C=2), labels=labels)
    assert pair.classes == 4  # predicted classes do not say how many classes there are
    with pytest.raises(
        PredictionsError, match=r"labels must have shape \[N\]; got \(9, 2"
    ):
        join(_scores("old"), _scores("new"), labels=np.zeros((N, 2)))
    with pytest.raises(PredictionsError, match=r"labels are names .* class numbers"):
        join(_scores("old"), _scores("new"), labels=np.full(N, "cat"))


def test_other_numbers_of_classes_need_a_class_map():
    with pytest.raises(
        PredictionsError, match="old has 3 classes and new 4; give a class map"
    ):
        join(_scores("old"), _scores("new", C=4))
    pair = join(_scores("old"), _scores("new", C=4), class_map="identity")
    assert (pair.classes, pair.class_names, pair.old_columns) == (4, None, None)
    assert pair.notes[1:] == ("1 of 4 classes are only in new: 3.",)
    pair = join(_scores("old"), _scores("new", C=2), class_map={0: 1, 2: 0})
    assert pair.class_names == ("0", "1", "1 (old)")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.notes[1:] == ("1 of 3 classes are only in old: 1 (old).",)
    before, now = _old_and_new(pair)
    assert before == ["1", "1 (old)", "0"] * 3
    assert now == (["0", "1"] * 5)[:N]
    # Labels of a side are in its own classes, labels beside in those of the new side.
    old = _scores("old", labels=np.arange(N) % 3)
    pair = join(old, _scores("new", C=2), class_map={0: 1, 2: 0})
    assert pair.labels.tolist() == [1, 2, 0] * 3
    pair = join(
        _scores("old"), _scores("new", C=2), labels=[1] * N, class_map={0: 1, 2: 0}
    )
    assert pair.labels.tolist() == [1] * N


def test_classes_with_names_are_joined_by_name():
    names = ["cat", "dog", "fox"]
    old = _scores("old", class_names=names, labels=["dog"] * N)
    new = _scores("new", class_names=["fox", "cat", "dog"], labels=[2] * N)
    pair = join(old, new, labels=np.full(N, "dog"))
    assert pair.class_names == ("fox", "cat", "dog")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.new_columns is None
    assert pair.labels.tolist() == [2] * N
    before, now = _old_and_new(pair)
    assert before == names * 3
    assert now == ["fox", "cat", "dog"] * 3
    with pytest.raises(PredictionsError, match="of which class names; give labels as"):
        join(old, new, labels=[2] * N)
    with pytest.raises(PredictionsError, match="3 classes have different names at one"):
        join(old, new, class_map="identity")
    pair = join(old, dataclasses.replace(old, name="new"), labels=[1] * N)
    assert pair.labels.tolist() == [1] * N
    assert pair.old_columns is None


def test_false_and_true_are_0_and_1_where_they_meet_numbers():
    truth, numbers = [True, False, True], [1, 0, 1]
    labels = np.array(numbers)
    for other in (numbers, ["true", "false", "true"], ["TRUE", "FALSE", "TRUE"]):
        sides = [read_side({"prediction": p}) for p in (truth, other)]
        for pair in (join(*sides, labels=labels), join(*sides[::-1], labels=labels)):
            assert pair.class_names is None
            scanned = scan(pair)
            np.testing.assert_array_equal(scanned.old.predicted, [numbers])
            np.testing.assert_array_equal(scanned.new.predicted, [numbers])
            np.testing.assert_array_equal(pair.labels, labels)
    scores = {"p_True": [0.9, 0.2, 0.8], "p_False": [0.1, 0.8, 0.2], "label": truth}
    pair = join(read_side(scores, "scores"), read_side({"prediction": truth}, "truth"))
    scanned = scan(pair)
    np.testing.assert_array_equal(scanned.old.predicted, scanned.new.predicted)
    np.testing.assert_array_equal(pair.labels, scanned.new.predicted[0])


def test_names_that_differ_in_capitals_or_spaces_only_are_told_of():
    old = read_side({"predictions": ["cat", "dog"], "labels": ["cat", "dog "]}, "old")
    new = read_side({"predictions": ["Cat", "dog"]}, "new")
    pair = join(old, new)
    assert pair.notes[1:] == (
        "2 classes differ from another in capitals or spaces only: 'cat' and 'Cat', "
        "'dog ' and 'dog'.",
    )
    assert join(new, new).notes == pair.notes[:1]


def test_predicted_names_meet_columns_of_scores():
    old = _classes("old", ["fox", "cat", "emu"] * 3)
    new = _scores("new", class_names=["dog", "cat", "fox"])
    pair = join(old, new, labels=["fox", "cat", "owl"] * 3)
    assert pair.class_names == ("dog", "cat", "fox", "emu", "owl")
    assert _old_and_new(pair) == [["fox", "cat", "emu"] * 3, ["dog", "cat", "fox"] * 3]
    assert pair.labels.tolist() == [2, 1, 4] * 3
    with pytest.raises(PredictionsError, match=r"3 of 9 examples are of no .* owl"):
        join(new, new, labels=["fox", "cat", "owl"] * 3)


def test_numbers_say_nothing_about_predicted_names():
    old, new = (_classes(name, ["fox", "cat", "emu"] * 3) for name in ("old", "new"))
    with pytest.raises(PredictionsError, match="not clear of which class names"):
        join(old, new, labels=[0, 1, 2] * 3)
    with pytest.raises(
        PredictionsError, match=r"classes are names .*, but labels are num"
    ):
        _classes("old", ["fox", "cat", "emu"] * 3, labels=[0, 1, 2] * 3)
    numbers = _classes(
        "old", [0, 1, 2] * 3, class_names=["x", "y", "z"], labels=[2] * N
    )
    pair = join(numbers, dataclasses.replace(numbers, name="new"))
    assert pair.labels.tolist() == [2] * N
    assert _old_and_new(pair)[0] == ["x", "y", "z"] * 3


def test_labels_may_be_called_as_the_old_side_does():
    old = _classes("old", ["tabby", "dog", "dog"] * 3, labels=["tabby"] * N)
    new = _classes("new", ["cat", "dog", "cat"] * 3)
    pair = join(old, new, labels=["tabby"] * N, class_map={"tabby": "cat"})
    assert pair.class_names == ("cat", "dog")
    assert pair.labels.tolist() == [0] * N


def test_numbers_as_names_are_names():
    old = _scores("old", class_names=["3", "7", "1"], labels=[7] * N)
    new = _scores("new", class_names=[1, 3, 7], labels=[7] * N)
    pair = join(old, new, labels=["7"] * N)
    assert pair.class_names == ("1", "3", "7")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.labels.tolist() == [2] * N


def test_names_on_one_side_need_a_class_map():
    old, new = _scores("old", class_names=["a", "b", "c"]), _scores("new")
    for pair in ((old, new), (new, old)):
        with pytest.raises(
            PredictionsError, match=r"old has class names .* new class num"
        ):
            join(*pair)
        found = join(*pair, class_map="identity", labels=["b"] * N)
        assert found.class_names == ("a", "b", "c")
        assert found.labels.tolist() == [1] * N
    with pytest.raises(PredictionsError, match="their numbers must agree"):
        join(old, _scores("new", C=4), class_map="identity")
    with pytest.raises(
        PredictionsError, match="give a class map with names and numbers"
    ):
        join(_classes("old", ["a"] * N), new, class_map="identity")
    pair = join(old, new, class_map={"a": 2, "c": 0})
    assert pair.old_columns.tolist() == [2, 3, 0]
    assert pair.class_names == ("0", "1", "2", "b (old)")


def test_maps_that_make_no_sense(tmp_path):
    old, new = _scores("old", class_names=["a", "b", "c"]), _scores("new", C=2)
    for bad, message in (
        ({"a": 5}, "leads to '5', which is no class of new"),
        ({"x": 0}, "names 'x', which is no class of old"),
        ({"a": 1, "b": 1}, "two old classes to one new class: a and b to 1"),
        ({}, "the class map is empty"),
        ({"a": 1.5}, "of numbers or names; got 1.5"),
        (7, "a class map is 'identity', a mapping or a file; got int"),
        ("no.json", "no.json: there is no such file"),
        ("identiti", r"no such file \(a map may also be 'identity'\)"),
    ):
        with pytest.raises(PredictionsError, match=message):
            join(old, new, class_map=bad)
    same = _scores("new", class_names=["b", "c", "d"])
    with pytest.raises(
        PredictionsError, match="leads to 'b', but old has a class of that"
    ):
        join(old, same, class_map={"a": "b"})
    pair = join(old, same, class_map={"a": "b", "b": "d"})
    assert pair.old_columns.tolist() == [0, 2, 1]
    for name, text, message in (
        ("m.json", "[1, 2]", "must be one object"),
        ("m.json", '{"a": 1, "a": 0}', "maps old classes a twice"),
        ("m.json", "{", "cannot be read"),
        ("m.csv", "a,b\n1,2\n", "must have the columns old and new"),
        ("m.csv", "old,new\n1\n", "lines 2 do not have two values"),
        ("m.txt", "old,new\n1\n", "must be a .json or a .csv"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(PredictionsError, match=f"^{tmp_path / name}: .*{message}"):
            join(old, new, class_map=tmp_path / name)
    (tmp_path / "m.csv").write_text("old,new\n1,2\ncat,3\n")
    (tmp_path / "m.json").write_text(json.dumps({"1": 2, "cat": "3"}))
    want = {"1": "2", "cat": "3"}
    assert read_class_map(tmp_path / "m.csv") == want
    assert read_class_map(tmp_path / "m.json") == want


def test_slices_are_text_and_few(tmp_path):
    old, new = _scores("old"), _scores("new")
    table = {
        "prob_0": np.linspace(0, 1, N),
        "prob_1": np.linspace(1, 0, N),
        "floor": np.array([1, 2, np.nan] * 3),
        "share": np.array([0.5, 1, 1] * 3),
        "open": np.array([True, False, True] * 3),
        "zone": ["ä", None, ""] * 3,
    }
    pq.write_table(pa.table(table), tmp_path / "s.parquet")
    for given in (table, tmp_path / "s.parquet", pa.table(table)):
        slices = join(old, new, slices=given).slices
        assert list(slices) == ["floor", "share", "open", "zone"]
        assert slices["floor"].tolist() == ["1", "2", ""] * 3
        assert slices["share"].tolist() == ["0.5", "1", "1"] * 3
        assert slices["open"].tolist() == ["true", "false", "true"] * 3
        assert slices["zone"].tolist() == ["ä", "", ""] * 3
    big = [_scores(name, N=300) for name in ("old", "new")]
    with pytest.raises(
        PredictionsError, match="column x has 300 different values; at mo"
    ):
        join(*big, slices={"x": np.linspace(0, 1, 300)})
    with pytest.raises(PredictionsError, match="there is no column to group by"):
        join(old, new, slices={"prob_0": [1], "prob_1": [0]})
    with pytest.raises(PredictionsError, match="different lengths"):
        join(old, new, slices={"a": [1], "b": [0, 1]})
    with pytest.raises(PredictionsError, match="slices must be columns with names"):
        join(old, new, slices=[0] * N)


def test_columns_that_are_no_slices_are_told_of():
    slices = {"id": np.arange(N), "class": ["car"] * N, "day": ["Mon"] * N}
    sides = [_scores(name, ids=np.arange(N)) for name in ("old", "new")]
    pair = join(*sides, slices=slices)
    assert list(pair.slices) == ["day"]
    assert pair.notes == (
        "1 of the slices' columns are called like predictions and are no groupings "
        "here: class.",
    )


def test_slices_that_lack_examples():
    ids = np.arange(N)
    old, new = _scores("old", ids=ids), _scores("new", ids=ids)
    few = {"id": ids[1:], "a": ids[1:] % 2}
    with pytest.raises(
        PredictionsError, match=r"slices lack 1 of 9 ids \(for example 0"
    ):
        join(old, new, slices=few)
    pair = join(old, new, slices=few, on_missing="intersect")
    assert pair.examples == N  # they are compared, only in no slice
    assert pair.slices["a"].tolist() == ["", *(str(i % 2) for i in ids[1:])]


def test_sides_must_match_without_ids():
    with pytest.raises(
        PredictionsError, match="a has ids and b has none; give the ids"
    ):
        join(_scores("a", ids=np.arange(N)), _scores("b"))
    with pytest.raises(PredictionsError, match="a has 9 examples and b 8; without ids"):
        join(_scores("a"), _scores("b", N=8))


def test_columns_of_other_names_are_used_everywhere(tmp_path):
    table = pa.table(
        {"key": np.arange(N), "truth": np.arange(N) % 3, "p": np.arange(N) % 3}
    )
    pq.write_table(table, tmp_path / "p.parquet")
    columns = {"id_column": "key", "label_column": "truth"}
    side = read_side(tmp_path / "p.parquet", prediction_column="p", **columns)
    pair = join(side, side, labels=tmp_path / "p.parquet", **columns)
    np.testing.assert_array_equal(pair.labels, np.arange(N) % 3)
    with pytest.raises(
        PredictionsError, match="there is no id column 'no'; it has key"
    ):
        read_side(tmp_path / "p.parquet", id_column="no")


def test_many_examples_join_quickly():
    """A million ids of either kind take seconds at most, not minutes."""
    count = 200_000
    order = np.random.default_rng(0).permutation(count)
    text = np.char.add("image_", np.arange(count).astype(str))
    for ids in (np.arange(count), text):
        sides = [
            Side("old", "classes", np.zeros((1, count), np.int32), ids=ids),
            Side("new", "classes", np.zeros((1, count), np.int32), ids=ids[order]),
        ]
        pair = join(*sides)
        np.testing.assert_array_equal(
            order[pair.new_rows],
            pair.old_rows if pair.old_rows is not None else np.arange(count),
        )
