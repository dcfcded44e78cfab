"""Files become windows: values, time order, held-out parts, resumption, bad input."""

import gzip
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from churn_jax.data.splits import DataError
from churn_jax.data.tables import (
    Categorical,
    Numeric,
    TableSchema,
    open_table,
    sources,
)
from churn_jax.data.tables.encoding import stable_hash

SCHEMA = TableSchema(
    label="clicked",
    positive=("1", "yes"),
    categorical=(
        Categorical("site", 1000),
        Categorical("colour", vocabulary=("red", "blue")),
    ),
    numeric=(Numeric("age", mean=30.0, std=10.0), Numeric("price", "log1p")),
    time="at",
    group="user",
)
HEADER = "at,site,colour,age,price,user,clicked,unused\n"


def row(i, **change):
    cells = {
        "at": i // 2,
        "site": f"s{i % 7}",
        "colour": ("red", "blue", "green", "?")[i % 4],
        "age": ("20", "?", "45.5")[i % 3],
        "price": i,
        "user": f"u{i // 3}",
        "clicked": ("0", "1", "no", "yes")[i % 4],
        "unused": "x",
    }
    return ",".join(str(v) for v in (cells | change).values()) + "\n"


def rows(count, start=0):
    return "".join(row(i) for i in range(start, start + count))


def save(folder, text, name="t.csv"):
    path = folder / name
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def examples(stream, size=10, **arguments):
    """All real examples of a stream, by field of `Window`."""
    windows = list(stream.windows(size, **arguments))
    masks = np.concatenate([w.mask for w in windows]) > 0
    return {
        name: np.concatenate([getattr(w, name) for w in windows])[masks]
        for name in ("ids", "numeric", "labels", "keys")
    }


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(params=["csv", "csv.gz", "parquet", "folder", "no header"])
def table(request, tmp_path, monkeypatch):
    """A table of 100 rows in several forms, read in blocks of a few rows."""
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(sources, "_BLOCK_ROWS", 7)
    text, schema = HEADER + rows(100), SCHEMA
    if request.param == "folder":
        path = tmp_path / "parts"
        path.mkdir()
        save(path, HEADER + rows(40), "2024-01.csv")
        save(path, HEADER + rows(60, 40), "2024-02.csv.gz")
        save(path, "not a table", "README.txt")
    elif request.param == "parquet":
        columns = [line.split(",") for line in rows(100).splitlines()]
        values = dict(zip(HEADER.strip().split(","), zip(*columns, strict=True)))
        arrays = {name: pa.array(v) for name, v in values.items()}
        arrays["at"] = pa.array(
            [pa.scalar(int(v), pa.timestamp("s")) for v in values["at"]]
        )
        arrays["age"] = pa.array(
            [None if v == "?" else float(v) for v in values["age"]]
        )
        arrays["price"] = pa.array([int(v) for v in values["price"]])
        arrays["site"] = arrays["site"].dictionary_encode()
        path = tmp_path / "t.parquet"
        pa.parquet.write_table(pa.table(arrays), path, row_group_size=30)
    elif request.param == "no header":
        columns = tuple(HEADER.strip().split(","))
        schema = TableSchema(**{**vars(SCHEMA), "columns": columns})
        path = save(tmp_path, rows(100))
    else:
        path = save(tmp_path, text, f"t.{request.param}")
    return path, schema


def test_every_value_is_where_it_belongs(table):
    found = examples(open_table(*table))
    i = np.arange(100)
    sites = np.array([stable_hash("site", f"s{k}") % 1000 for k in range(7)])
    assert np.array_equal(found["ids"][:, 0], sites[i % 7])
    assert np.array_equal(found["ids"][:, 1], np.array([1, 2, 0, 0])[i % 4])
    ages = np.array([-1.0, 0.0, 1.55])[i % 3]
    np.testing.assert_allclose(found["numeric"][:, 0], ages, rtol=1e-6)
    np.testing.assert_allclose(found["numeric"][:, 1], np.log1p(i), rtol=1e-6)
    assert np.array_equal(found["labels"], i % 2)
    assert np.array_equal(found["keys"], i)
    dtypes = [found[n].dtype.name for n in ("ids", "numeric", "labels", "keys")]
    assert dtypes == ["int32", "float32", "int32", "int64"]


def test_windows_have_one_shape_and_the_last_is_padded(table):
    windows = list(open_table(*table).windows(32))
    assert [w.first for w in windows] == [0, 32, 64, 96]
    assert {(w.ids.shape, w.numeric.shape) for w in windows} == {((32, 2), (32, 2))}
    assert windows[-1].mask.tolist() == [1.0] * 4 + [0.0] * 28
    assert not windows[-1].ids[4:].any() and not windows[-1].labels[4:].any()


@pytest.mark.parametrize("holdout", [0.0, 0.4])
def test_a_stream_resumes_with_the_windows_that_would_have_followed(table, holdout):
    stream = open_table(*table, holdout=holdout)
    whole = list(stream.windows(9))
    for at in (1, len(whole) // 2, len(whole) - 1):
        again = list(stream.windows(9, start=whole[at].first))
        assert len(again) == len(whole) - at
        for a, b in zip(whole[at:], again, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    everything = examples(stream)
    for start in (5, len(everything["keys"]) - 1):
        rest = examples(stream, start=start)
        assert same(rest, {k: v[start:] for k, v in everything.items()})
    assert list(stream.windows(9, start=1000)) == []


def test_held_out_groups_are_never_trained_on(table):
    stream = open_table(*table, holdout=0.4)
    train, held = examples(stream), examples(stream, part="holdout")
    assert set(train["keys"] // 3).isdisjoint(held["keys"] // 3)  # whole users
    assert sorted([*train["keys"], *held["keys"]]) == list(range(100))
    assert 20 < len(held["keys"]) < 60
    assert (stream.count(), stream.count("holdout")) == (
        len(train["keys"]),
        len(held["keys"]),
    )


def test_without_a_group_rows_are_held_out(tmp_path):
    schema = TableSchema(**{**vars(SCHEMA), "group": None})
    stream = open_table(save(tmp_path, HEADER + rows(2000)), schema, holdout=0.1)
    held = examples(stream, part="holdout")["keys"]
    assert abs(len(held) - 200) < 50
    assert len(set(held // 3)) > 0.8 * len(held)  # users are parted
    text = HEADER + "".join(row(i, user="?") for i in range(300))
    stream = open_table(save(tmp_path, text), SCHEMA, holdout=0.5)
    assert 110 < stream.count("holdout") < 190


def test_a_larger_share_holds_out_more_and_the_same(table):
    some, more = (
        set(examples(open_table(*table, holdout=share), part="holdout")["keys"])
        for share in (0.3, 0.6)
    )
    assert some < more


def test_the_fingerprint_covers_contents_schema_and_holdout(tmp_path):
    path = save(tmp_path, HEADER + rows(50))
    first = open_table(path, SCHEMA).fingerprint
    copy = save(tmp_path, HEADER + rows(50), "elsewhere.csv")
    assert open_table(copy, SCHEMA).fingerprint == first
    other = TableSchema(**{**vars(SCHEMA), "positive": ("1",)})
    changed = save(tmp_path, HEADER + rows(49) + row(49, site="new"), "u.csv")
    assert first not in {
        open_table(path, SCHEMA, holdout=0.1).fingerprint,
        open_table(path, other).fingerprint,
        open_table(changed, SCHEMA).fingerprint,
    }


def test_memory_does_not_grow_with_the_stream(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 2**12)
    peaks = []
    for count in (4000, 16_000):
        stream = open_table(save(tmp_path, HEADER + rows(count)), SCHEMA)
        allocated = pa.total_allocated_bytes()
        tracemalloc.start()
        seen = arrow = 0
        for window in stream.windows(256):
            seen += int(window.mask.sum())
            arrow = max(arrow, pa.total_allocated_bytes() - allocated)
        peaks.append(tracemalloc.get_traced_memory()[1] + arrow)
        tracemalloc.stop()
        assert seen == count
    # Arrow reads some blocks ahead, and Python keeps up to 2,000 freed tuples.
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        (HEADER, "there are no rows"),
        (HEADER.replace("site", "sight") + rows(3), "there is no column 'site'; did"),
        (HEADER.replace("unused", "site") + rows(3), "two columns are called 'site'"),
        (HEADER + row(0) + row(1, age="old"), "row 3: column 'age': 'old' is not a n"),
        (HEADER + row(0) + row(1, price="1e999"), "row 3: column 'price': inf is not"),
        (HEADER + row(0) + row(1, age="1e300"), "row 3: column 'age': 1e+300 is too l"),
        (HEADER + row(0) + row(1, price=-2), "row 3: column 'price': -2 has no log1p"),
        (HEADER + row(0) + "0,a\n", "row 3 has 2 fields instead of 8"),
        (HEADER + row(0) + row(1, clicked="?"), "row 3 has no label in column 'clic"),
        (HEADER + row(0) + row(2), "holds '0', 'no', but the schema says '1', 'yes'"),
        (HEADER + row(9) + row(3), "row 3: the stream must be in time order, but col"),
        (HEADER + row(9) + row(3), "column 'at' goes back from 4 to 1"),
        (HEADER + row(0) + row(1, at=""), "row 3 has no time in column 'at'"),
        (HEADER.encode() + b"0,\xff\xfe,red,1,1,u,1,x\n", "row 2: column 'site'"),
    ],
)
def test_bad_input_is_one_sentence_with_the_place(tmp_path, text, said):
    with pytest.raises(DataError) as error:
        open_table(save(tmp_path, text), SCHEMA)
    assert said in str(error.value)
    assert str(error.value).startswith("t.csv: ") and "\n" not in str(error.value)


def test_what_opening_did_not_read_is_checked_later(tmp_path, monkeypatch):
    monkeypatch.setattr("churn_jax.data.tables.stream._TRIED", 1)
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 300)
    text = HEADER + rows(50) + row(51, price=-2)
    windows = open_table(save(tmp_path, text), SCHEMA).windows(8)
    assert next(windows).first == 0
    with pytest.raises(DataError, match="row 52: column 'price': -2 has no log1p"):
        list(windows)
    wrong = "".join(row(4 * i) for i in range(50))
    windows = open_table(save(tmp_path, HEADER + wrong), SCHEMA).windows(8)
    with pytest.raises(DataError, match="no row has a positive label"):
        list(windows)


def test_time_must_not_go_back_from_one_file_to_the_next(tmp_path):
    save(tmp_path, HEADER + rows(10, 10), "a.csv")
    save(tmp_path, HEADER + rows(10), "b.csv")
    with pytest.raises(DataError, match=r"b\.csv: row 2: .* goes back from 9 to 0"):
        open_table(tmp_path, SCHEMA)


@pytest.mark.parametrize(
    ("times", "fine"),
    [
        (("9", "10"), True),  # as numbers, not as text
        (("9.5", "10"), True),
        (("2024-03-01T12:00", "2024-03-02"), True),
        (("2024-03-02", "2024-03-01T12:00"), False),
        (("10", "9.5"), False),
        (("1", "1"), True),
    ],
)
def test_times_are_numbers_or_text_that_sorts(tmp_path, times, fine):
    path = save(tmp_path, HEADER + row(0, at=times[0]) + row(1, at=times[1]))
    if fine:
        assert open_table(path, SCHEMA).count() == 2
    else:
        with pytest.raises(DataError, match=f"from {times[0]} to {times[1]}"):
            open_table(path, SCHEMA)


def test_times_that_are_numbers_and_then_text_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 100)
    text = HEADER + row(0) + row(1) + "".join(row(i, at="later") for i in range(9))
    with pytest.raises(DataError, match="'at' holds numbers in some rows and text in"):
        open_table(save(tmp_path, text), SCHEMA)


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain"])
def test_a_damaged_gzip_file_is_refused(tmp_path, damage):
    raw = gzip.compress((HEADER + rows(5000)).encode())
    raw = {
        "cut": raw[: len(raw) // 2],
        "flipped": raw[:400] + bytes(200) + raw[600:],
        "plain": (HEADER + rows(5)).encode(),
    }[damage]
    path = tmp_path / "t.csv.gz"
    path.write_bytes(raw)
    said = {
        "cut": "the compressed file ends too early",
        "flipped": "(not gzip, or is damaged|header cannot be read)",
        "plain": "the header cannot be read",
    }[damage]
    with pytest.raises(DataError, match=said):
        open_table(path, SCHEMA)


def test_parquet_columns_of_other_kinds(tmp_path):
    schema = TableSchema(
        "y",
        ("true",),
        (Categorical("code", vocabulary=("1", "2")),),
        (Numeric("flag"), Numeric("amount"), Numeric("text")),
    )
    columns = {
        "y": pa.array([True, False, True]),
        "code": pa.array([1.0, 2.0, None]),
        "flag": pa.array([True, None, False]),
        "amount": pa.array([1, 2, 3], pa.decimal128(5, 1)),
        "text": pa.array(["1.5", "?", None]),
    }
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    found = examples(open_table(path, schema))
    assert found["labels"].tolist() == [1, 0, 1]
    assert found["ids"].tolist() == [[1], [2], [0]]
    assert found["numeric"].tolist() == [[1, 1, 1.5], [0, 2, 0], [0, 3, 0]]
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"t\.parquet: this is no Parquet file, or it"):
        open_table(path, schema)


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ([[1.0, 2.0], [3.0]], Numeric("x"), "holds list.*, not numbers"),
        *(
            (values, Categorical("x", 5), "holds .* as words")
            for values in ([["a"], ["b"]], [b"\xff", b"a"], [{"a": 1}] * 2)
        ),
    ],
)
def test_parquet_columns_of_no_use_are_refused(tmp_path, values, field, said):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"y": ["1", "0"], "x": values}), path)
    fields = ((field,), ()) if isinstance(field, Categorical) else ((), (field,))
    with pytest.raises(DataError, match=rf"t\.parquet: column 'x' {said}"):
        open_table(path, TableSchema("y", ("1",), *fields))


def test_blanks_after_the_delimiter_change_nothing(tmp_path):
    text = HEADER + rows(20)
    plain = examples(open_table(save(tmp_path, text), SCHEMA))
    header, _, body = text.partition("\n")
    spaced = header + "\n" + body.replace(",", ", ")
    assert same(plain, examples(open_table(save(tmp_path, spaced), SCHEMA)))


def test_sources_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        open_table(tmp_path / "nothing.csv", SCHEMA)
    with pytest.raises(DataError, match="the folder holds no file that ends in"):
        open_table(tmp_path, SCHEMA)
    with pytest.raises(DataError, match="the name must end in"):
        open_table(save(tmp_path, "x", "t.txt"), SCHEMA)
    with pytest.raises(DataError, match="pass tfds:NAME/SPLIT"):
        open_table("tfds:titanic", SCHEMA)


def test_arguments_out_of_range_are_refused(tmp_path):
    path = save(tmp_path, HEADER + rows(4))
    with pytest.raises(DataError, match="holdout must be a share"):
        open_table(path, SCHEMA, holdout=1.0)
    with pytest.raises(DataError, match="every row is held out"):
        open_table(path, SCHEMA, holdout=0.999999)
    stream = open_table(path, SCHEMA)
    with pytest.raises(ValueError, match="got size 0"):
        stream.windows(0)
    with pytest.raises(ValueError, match="train and holdout; got 'test'"):
        stream.windows(1, part="test")  # type: ignore[arg-type]
    assert list(stream.windows(1, part="holdout")) == []
