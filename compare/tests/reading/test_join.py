"""Two versions joined: always the same example with the same label and slice."""

import dataclasses
import decimal
import functools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from churn_compare import compare, join, read_side
from churn_compare.example_ids import as_ids, match_ids
from churn_compare.gates import Gate
from churn_compare.outcomes import read_outcomes
from tests.cases import NAN, fails, jsonl
from tests.reading.sides import Frame, N, classes_of, old_and_new, refused, scores_of


def test_golden_case():
    """Three examples in other orders, one class map, one grouping."""
    pair = join(
        classes_of("old", ["tabby", "dog", "fox"], ids=["b", "a", "c"]),
        classes_of("new", ["dog", "cat", "cat"], ids=["a", "c", "b"]),
        labels={"a": "dog", "b": "cat", "c": "fox"},
        slices={"id": ["c", "b", "a"], "day": ["Mon", "Tue", None]},
        class_map={"tabby": "cat"},
    )
    assert pair.ids.tolist() == ["a", "b", "c"]
    assert pair.class_names == ("cat", "dog", "fox")
    assert old_and_new(pair) == [["dog", "cat", "fox"], ["dog", "cat", "cat"]]
    assert pair.labels.tolist() == [1, 0, 2]
    assert pair.slices["day"].tolist() == ["", "Tue", "Mon"]
    assert pair.old_rows.tolist() == [1, 0, 2]
    assert pair.new_rows.tolist() == [0, 2, 1]
    assert pair.notes == ()


def test_an_id_is_what_it_is_written_as():
    found = match_ids(as_ids([7, 10, 12]), as_ids(["7", "10", "012"]))
    assert found.ids.tolist() == ["10", "7"]
    assert found.rows_a.tolist() == found.rows_b.tolist() == [1, 0]
    assert (found.only_a.tolist(), found.only_b.tolist()) == (["12"], ["012"])
    signed, unsigned = np.array([-1, 2**53 + 1]), np.array([2**63 + 1, 2**53], "u8")
    days = np.array(["2026-01-31", "2026-02-01T10:30"], "M8[ns]")
    assert as_ids(days).tolist() == ["2026-01-31 00:00:00", "2026-02-01 10:30:00"]
    for unit in ("M8[D]", "M8[ms]"):  # pandas leaves a midnight out if all are
        found = as_ids(days.astype("M8[D]").astype(unit))
        assert found.tolist() == ["2026-01-31", "2026-02-01"]
    numbers = pa.array([decimal.Decimal(i) for i in (3, 7)], pa.decimal128(4, 0))
    assert as_ids(numbers).tolist() == [3, 7]
    assert not match_ids(as_ids(signed), as_ids(unsigned)).ids.size


def _frame(form, folder, index, columns):
    """A data frame as pandas keeps or writes it."""
    if form == "frame":
        return Frame(columns, index)
    if form == "split":
        rows = [*zip(*(of.tolist() for of in columns.values()))]
        given = {"columns": [*columns], "index": [*map(str, index)], "data": rows}
        path = folder / "split.json"
        path.write_text(json.dumps(given))
        return path
    path = folder / f"{form}.{'csv' if form == 'csv' else 'parquet'}"
    if form == "csv":
        csv.write_csv(pa.table({"": index, **columns}), path)
        return path
    heads = {"unnamed": "Unnamed: 0", "level": "__index_level_0__", "named": "image"}
    table = pa.table(columns).append_column(heads[form], pa.array(index))
    if form == "named":
        facts = json.dumps({"index_columns": ["image"]})
        table = table.replace_schema_metadata({"pandas": facts})
    pq.write_table(table, path)
    return path


FORMS = ("frame", "csv", "split", "unnamed", "level", "named")
INDEXES = {
    "split": np.arange(N) * 7 % 60 + 3,
    "permuted": np.arange(N)[::-1],
    "text": np.array([f"im{i}" for i in range(N)]),
    "days": np.datetime64("2020-01-01", "s") + 86400 * np.arange(N),
}
SHARES = {"p_0": np.arange(N) / N, "p_1": 1 - np.arange(N) / N}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("form", FORMS)
def test_an_index_of_a_frame_that_may_be_ids_is_refused(form, index, tmp_path):
    frame, index = functools.partial(_frame, form, tmp_path), INDEXES[index]
    message = "an index that does not just count the rows: (give|call) it"
    counts = read_side(frame(np.arange(N) + 1, SHARES), "a", kind="probabilities")
    assert counts.ids is None and counts.class_names is None and counts.classes == 2
    of = np.arange(N) % 2
    fails(message, read_side, frame(index, SHARES))
    fails(message, read_outcomes, frame(index, {"correct": of}))
    for more in ("labels", "slices", "clusters"):
        refused(message, counts, counts, **{more: frame(index, {"y": of})})
        join(counts, counts, **{more: frame(np.arange(N), {"y": of})})
    given = read_side(frame(index, SHARES), ids=np.arange(N) + 5)
    assert given.ids.tolist() == [*range(5, N + 5)]
    ids = {"id": np.arange(N)[::-1]}
    assert read_side(frame(index, SHARES | ids)).ids.tolist() == ids["id"].tolist()
    if form == "named" and index.dtype.kind != "M":
        path = frame(index, SHARES)
        assert read_side(path, id_column="image").ids.tolist() == as_ids(index).tolist()


class Series:
    """What is used of a pandas series."""

    def __init__(self, values, index, name=None):
        self._values, self.index, self.name = np.asarray(values), index, name

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __len__(self):
        return len(self._values)

    def to_frame(self):
        return Frame({self.name: self._values}, self.index)


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_of_series_that_may_be_ids_is_refused(index):
    odd, counts = (Series(np.arange(N), of, "y") for of in (INDEXES[index], range(N)))
    for given in (odd, {"prediction": odd, "id": np.arange(N)}):
        fails("an index that does not just count .*reset_index", read_side, given)
    side = read_side({"prediction": counts, "label": counts})
    message = "^{}: .*has an index that does not just count"
    for more in ("labels", "slices", "clusters"):
        for given in (odd, {"y": odd}):
            refused(message.format(more), side, side, **{more: given})
    join(side, side, labels=counts, slices=counts, clusters=counts)


def test_masked_entries_are_refused():
    full = np.ma.masked_array(np.arange(N))
    part = np.ma.masked_equal(np.arange(N), 3)
    side = read_side({"prediction": full, "id": full})
    np.testing.assert_array_equal(side.values, [np.arange(N)])
    for given in (part, {"prediction": part}, {"prediction": full, "id": part}):
        fails("1 of 9 entries are masked; leave", read_side, given)
    fails("2 of 18 entries are masked", read_side, [part, part])
    for more in ("labels", "clusters"):
        for given in (part, {"value": part}):
            said = f"{more}: .* 1 of 9 entries are masked"
            refused(said, side, side, **{more: given})
    refused("slices: a: 1 of 9 entries", side, side, slices={"a": part})


def test_missing_ids_are_counted_and_may_be_left_out():
    old = classes_of("old", np.arange(6), ids=[5, 4, 3, 2, 1, 0])
    new = classes_of("new", np.arange(4), ids=[9, 8, 4, 5])
    only_old = r"4 of 6 ids are only in old \(for example 0, 1, 2, ...\)"
    refused(only_old + r".*2 of 4 ids are only in new \(for example 8, 9\)", old, new)
    pair = join(old, new, on_missing="intersect")
    assert pair.ids.tolist() == [4, 5]
    assert old_and_new(pair) == [["1", "0"], ["2", "3"]]
    assert pair.notes[0].endswith(": 2 examples are compared.")
    other = classes_of("new", [1, 2], ids=[70, 80])
    refused("is left to compare; write the ids", old, other, on_missing="intersect")
    refused("must be one of error, intersect", old, new, on_missing="ignore")


def test_sides_must_match_without_ids():
    labelled = read_side({**SHARES, "label": np.arange(N) % 2})
    note = join(labelled, labelled).notes[0]
    assert note.endswith("by their rows, in which the labels of both agree.")
    ids = scores_of("a", ids=np.arange(N))
    refused("a has ids and b has none; give the ids", ids, scores_of("b"))
    few = scores_of("b", N=8)
    refused("a has 9 examples and b 8; without ids", scores_of("a"), few)


OTHERS = {  # columns of 40 examples without ids to what is said of another order
    "image_id": "image_id names the examples, and .*: add --id-column image_id. If",
    "text image_id": "add --id-column image_id",
    "doc": "doc has the same values in another order .*: give ids.*--confirm row-order",
    "few": "",
    "drawn": "",
}


@pytest.mark.parametrize("form", ["csv", "parquet", "arrays"])
@pytest.mark.parametrize("names", OTHERS)
def test_rows_in_another_order_are_refused(names, form, rng, tmp_path):
    i, order = np.arange(40), rng.permutation(40)
    known = {"image_id": i * 3, "text": i.astype("U2"), "doc": i // 4}
    known |= {"few": i % 2, "drawn": rng.random(40)}
    columns = {name: known[name] for name in names.split()} | {"label": i % 3}
    moved = {name: of[order] for name, of in columns.items()}
    if not OTHERS[names]:  # of two classes, or another for each file
        other = known["few"][order] if names == "few" else rng.random(40)
        moved = {"label": i % 3, names: other}
    sides = [of | {"prediction": rng.integers(0, 3, 40)} for of in (columns, moved)]
    sides[0]["mine"] = i % 5  # a column of one side says nothing
    if write := {"csv": csv.write_csv, "parquet": pq.write_table}.get(form):
        paths = [tmp_path / f"{name}.{form}" for name in "ab"]
        sides = [write(pa.table(of), path) or path for of, path in zip(sides, paths)]
    old, new = map(read_side, sides)
    join(old, old, labels=columns)
    if not OTHERS[names]:
        join(old, new)
        return
    refused(OTHERS[names], old, new)
    refused("labels of .* differ", old, new, confirm=["row-order"])
    if names == "image_id":
        few = {name: of[3:] for name, of in columns.items()}
        refused("names the examples", old, read_side(few | {"prediction": i[3:] % 3}))
        refused("its order differs in the labels: add --id", old, old, labels=moved)


def _of_hugging_face(path, columns, **named):
    of = {n: {"names": [*names], "_type": "ClassLabel"} for n, names in named.items()}
    facts = {b"huggingface": json.dumps({"info": {"features": of}}).encode()}
    pq.write_table(pa.table(columns).replace_schema_metadata(facts), path)
    return read_side(path)


def test_names_of_numbers_that_hugging_face_records_decide(tmp_path):
    file = functools.partial(_of_hugging_face, tmp_path / "a.parquet")
    rows = {"id": [1, 2, 3], "label": [0, 1, 2], "prediction": [0, 1, 1]}
    one = file(rows, label="abc", prediction="abc")
    assert join(one, file(rows, label="abc")).class_names == ("a", "b", "c")
    turned = rows | {"label": [2, 1, 0], "prediction": [2, 1, 1]}
    scores = {"id": [1, 2, 3], "label": [2, 1, 0], "logits": [*np.eye(3)[[2, 1, 1]]]}
    for other in (
        file(turned, label="cba", prediction="cba"),
        file(turned | {"label": [0, 1, 2]}, label="abc", prediction="cba"),
        file(turned | {"label": [*"abc"]}, prediction="cba"),
        file(rows | {"prediction": [*"abb"]}, label="abc"),
        file(scores, label="cba"),
    ):
        pair = join(one, other)
        assert [pair.class_name(c) for c in pair.labels] == [*"abc"]
        assert old_and_new(pair) == [[*"abb"], [*"abb"]]
    side = file(rows | {"label": [-1, 1, 2]}, label="abc", prediction="cba")
    assert side.labels.tolist() == [-1, 0, 1] and side.label_names == ("b", "c")


def test_labels_of_a_file_are_joined_by_id(tmp_path):
    ids = np.arange(N) + 100
    old, new = scores_of("old", ids=ids), scores_of("new", ids=ids)
    many = np.arange(200)[::-1]
    labels = many % 3
    np.savez(tmp_path / "l.npz", ids=many, labels=labels)
    table = pa.table({"id": many, "y_true": labels})
    pq.write_table(table, tmp_path / "l.parquet")
    csv.write_csv(table, tmp_path / "l.csv")
    by_id = dict(zip(many.tolist(), labels.tolist(), strict=True))
    files = (tmp_path / f"l.{ending}" for ending in ("npz", "parquet", "csv"))
    for given in (by_id, *files):
        pair = join(old, new, labels=given)
        np.testing.assert_array_equal(pair.labels, ids % 3)
        assert "further ids" in pair.notes[0]
    few = {i: i % 3 for i in range(103, 200)}
    said = "6 of 9 examples have a label: those that change"
    for on_missing in ("error", "intersect"):  # is about the sides alone
        pair = join(old, new, labels=few, on_missing=on_missing)
        assert pair.some_labels.tolist() == [-1] * 3 + (ids[3:] % 3).tolist()
        assert pair.notes[-1].startswith(said)
        refused("labels lack 9 of 9 ids .*; their ids must", old, new, labels={1: 2})
    for given in (pa.array([0, None, 1.0]), pa.array([0, np.nan, 1]), [0, np.nan, 1]):
        table = pa.table({"prediction": [0, 1, 1], "label": given})
        assert read_side(table).labels.tolist() == [0, -1, 1]


def test_values_without_ids_need_one_order_of_rows():
    ids = np.arange(N)[::-1]
    old, new = scores_of("old", ids=ids), scores_of("new", ids=ids)
    values = np.arange(N) % 3
    pair = join(old, new, labels=values, slices={"a": values})
    np.testing.assert_array_equal(pair.labels, values[::-1])  # in the order of the ids
    assert pair.notes[0] == "The labels have no ids: they are matched by rows."
    assert pair.slices["a"].tolist() == [str(v) for v in values[::-1]]
    table = {"uid": ids, "label": values}
    pair = join(old, new, labels=table)
    assert pair.notes[0] == "Warning: the labels have no ids: they are matched by rows."
    table = {"uid": np.roll(ids, 1), "label": values}
    for what, few in (("labels", table), ("slices", {"uid": ids[1:]})):
        said = f"column uid of the {what} has the ids of .* in another order: call it"
        refused(f"{said} id. .*--confirm row-order$", old, new, **{what: few})
    assert "uid" in join(old, new, labels=table, confirm=["row-order"]).notes[0]
    turned = scores_of("new", ids=ids[::-1])
    few = scores_of("new", N=N - 1, ids=ids[1:])
    for more in ({"labels": values}, {"slices": {"a": values}}):
        refused("have no ids, but the two sides", old, turned, **more)
        refused("are of 9 examples, the predictions of 8", few, few, **more)
    few_values = {"labels": values[1:], "on_missing": "intersect"}
    refused("have no ids, but the two sides", old, few, **few_values)
    bare, by_id = scores_of("a"), dict(enumerate(values))
    refused("the labels have ids, but the predictions", bare, bare, labels=by_id)


def test_labels_of_several_places_must_agree():
    labels = np.arange(N) % 3
    other = labels.copy()
    other[[2, 5]] = 0
    ids = np.arange(N) + 10
    a, b = (scores_of(n, ids=ids, labels=y) for n, y in (("a", labels), ("b", other)))
    differ = "labels of 2 of 9 examples differ between a and "
    refused(differ + "b, for example ids 12", a, b)
    refused(differ, a, scores_of("b", ids=ids), labels=other)
    refused("labels of 2 of 9", a, dataclasses.replace(b, name="a"))  # of one name


def test_slices_are_text_and_few(tmp_path):
    old, new = scores_of("old"), scores_of("new")
    table = {
        "prob_0": np.linspace(0, 1, N),
        "prob_1": np.linspace(1, 0, N),
        "floor": np.array([1, 2, np.nan] * 3),
        "share": np.array([0.5, 1, 1] * 3, np.float32),
        "open": np.array([True, False, True] * 3),
        "zone": ["ä ", None, "\t"] * 3,
    }
    pq.write_table(pa.table(table), tmp_path / "s.parquet")
    for given in (table, tmp_path / "s.parquet", pa.table(table)):
        slices = join(old, new, slices=given).slices
        assert {name: values.tolist() for name, values in slices.items()} == {
            "floor": ["1", "2", ""] * 3,
            "share": ["0.5", "1", "1"] * 3,
            "open": ["true", "false", "true"] * 3,
            "zone": ["ä", "", ""] * 3,
        }
    dates = ["2024-01-01", "2024-02-01T10:00:00.5", "2024-03-01"]
    times = [dates[0], "2024-02-01 10:00:00.500", dates[2] + " 00:00:00"]
    forms = {
        "value": ([1.0, 2.5, 1e10], ["1.0", "2.5", "10000000000.00"]),
        "open": ([True, False, True], ["True", "FALSE", "true"]),
        "day": (np.array(dates, "datetime64[ns]"), times),
        "zone": (["é", "b", "c"], ["e\u0301", " b", "c\t"]),
    }
    typed, text = ({n: np.tile(of[i], 3) for n, of in forms.items()} for i in (0, 1))
    a, b = (join(old, new, slices=of).slices for of in (typed, text))
    assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)
    assert {*a["value"], *a["open"]} == {"1", "2.5", "10000000000", "true", "false"}
    clusters = [join(old, new, clusters=of["open"]).clusters for of in (typed, text)]
    np.testing.assert_array_equal(*clusters)
    assert Gate("churn", 0.1, grouping="open", group="True").group == "true"
    big = [scores_of(name, N=300) for name in ("old", "new")]
    many = {"x": np.linspace(0, 1, 300)}
    refused("column x has 300 different values; at mo", *big, slices=many)
    for slices, message in (
        ({"prob_0": [1], "prob_1": [0]}, "there is no column to group by"),
        ({"a": [1], "b": [0, 1]}, "different lengths"),
        ([0] * N, "slices must be columns with names"),
        ({"a": ["x" * 10_001] * N}, "column a must be names of at most 10,000 char"),
    ):
        refused(message, old, new, slices=slices)


def test_nan_among_texts_is_missing(tmp_path):
    texts = [*"ababaab", NAN, NAN]
    rows = [{"id": i, "label": of, "mixed": of} for i, of in enumerate(texts)]
    path = jsonl(tmp_path / "labels.jsonl", [*rows[:-1], rows[-1] | {"mixed": 1}])
    old, new = (classes_of(n, [*"abb"] * 3, ids=range(N)) for n in ("old", "new"))
    for given in (texts, dict(enumerate(texts)), rows, {"label": texts}, path):
        pair = join(old, new, labels=given)
        assert pair.some_labels.tolist() == [0, 1, 0, 1, 0, 0, 1, -1, -1]
    pair = join(old, new, slices={"of": texts}, clusters=texts)
    assert pair.slices["of"].tolist() == [*texts[:7], "", ""]
    assert pair.clusters.tolist() == [0, 1, 0, 1, 0, 0, 1, 2, 3]
    assert "2 of 9 examples have no cluster: each is one of its own." in pair.notes
    mixed = join(old, new, slices=path).slices["mixed"]
    assert mixed.tolist() == [*texts[:7], "", "1"]
    fails("ids are missing for 2 of 9", as_ids, texts)
    fails("missing for 2 of 9", read_side, texts)


def test_slices_that_lack_examples_or_are_no_groupings():
    ids = np.arange(N)
    old, new = scores_of("old", ids=ids), scores_of("new", ids=ids)
    few = {"id": ids[1:], "a": ids[1:] % 2}
    says = r"slices lack 1 of 9 ids \(for example 0\); .* compares these examples, too"
    refused(says, old, new, slices=few)
    pair = join(old, new, slices=few, on_missing="intersect")
    assert pair.examples == N  # they are compared, only in no slice
    assert pair.slices["a"].tolist() == ["", *(str(i % 2) for i in ids[1:])]
    assert pair.notes[-1].endswith("0), which are compared without a value.")
    pair = join(old, new, slices={"id": ids, "class": ["car"] * N, "day": ["Mon"] * N})
    assert list(pair.slices) == ["day"]
    assert "called like predictions and are not groupings here: class." in pair.notes[0]


def test_columns_of_other_names_are_used_everywhere(tmp_path):
    rows = np.arange(N)
    table = pa.table({"key": rows, "truth": rows % 3, "p": rows % 3})
    pq.write_table(table, tmp_path / "p.parquet")
    columns = {"id_column": "key", "label_column": "truth"}
    side = read_side(tmp_path / "p.parquet", prediction_column="p", **columns)
    slices = {"key": rows[::-1], "third": rows[::-1] % 3}
    files = {"labels": tmp_path / "p.parquet", "slices": slices}
    pair = join(side, side, **files, **columns)
    np.testing.assert_array_equal(pair.labels, rows % 3)
    np.testing.assert_array_equal(pair.slices["third"], (rows % 3).astype(str))
    (read,) = pair.read
    assert read.endswith("p.parquet: read: id, label (column truth); left out: p.")
    split = {"id": rows, "split": rows % 2}
    said = "no label column; it has split; --label-column names it"
    refused(said, side, side, labels=split)
    path = tmp_path / "p.parquet"
    fails("no id column 'no'; it has key", read_side, path, id_column="no")
    columns["label_column"] = "x"
    for labels, message in (
        ({"key": rows, "label": rows, "y": rows}, "no label column 'x'; it has label"),
        (dict(enumerate(rows % 3)), "no label column 'x'; it has label"),
        (rows, "so there is no column 'x'; leave it out"),
    ):
        refused(message, side, side, labels=labels, **columns)
    for role in ("id", "label", "prediction"):
        named = {f"{role}_column": "x"}
        fails("there is no column 'x': the v", compare, rows, rows, **named)
