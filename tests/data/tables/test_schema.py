"""Schemas from TOML and those of the package, what is refused, and rows of words."""

import hashlib
import math

import numpy as np
import pytest

from churn_jax.data.splits import DataError
from churn_jax.data.tables import (
    Categorical,
    Numeric,
    TableSchema,
    encoding,
    packaged_schemas,
)
from churn_jax.data.tables.encoding import WordRows, mix, share_of, stable_hash

SITE = Categorical("site", 50)

TOML = """
label = "clicked"
positive = ["1", "yes"]
time = "at"
group = "user"
missing = ["", "NA"]
delimiter = ";"

[[categorical]]
name = "site"
buckets = 70
[[categorical]]
name = "colour"
vocabulary = ["red", "blue"]
[[numeric]]
name = "price"
transform = "log1p"
mean = 2
std = 0.5
"""


def write(folder, text):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_toml_file_says_what_the_dataclasses_say(tmp_path):
    schema = TableSchema.load(write(tmp_path, TOML))
    assert schema.sizes == (70, 3)  # a vocabulary's table has a row for other words
    assert schema == TableSchema(
        label="clicked",
        positive=("1", "yes"),
        categorical=(
            Categorical("site", 70),
            Categorical("colour", vocabulary=("red", "blue")),
        ),
        numeric=(Numeric("price", "log1p", 2.0, 0.5),),
        time="at",
        group="user",
        missing=("", "NA"),
        delimiter=";",
    )


@pytest.mark.parametrize("name", ["adult", "diabetes130", "kddcup99"])
def test_a_packaged_schema_is_found_by_name(name):
    assert name in packaged_schemas()
    schema = TableSchema.load(name)
    assert len(schema.sizes) == len(schema.categorical) > 5
    assert all(math.isfinite(n.mean) for n in schema.numeric)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("label", "lable"), "has no setting 'lable'; did you mean label"),
        (('label = "clicked"', ""), "lacks 'label'"),
        (('positive = ["1", "yes"]', 'positive = "1"'), "positive must be a list"),
        (("buckets = 70", "buckets = 0"), "'site' needs from 1 to 2^31 - 1 buckets"),
        (("buckets = 70", "buckets = true"), "buckets must be a number; got True"),
        (("buckets = 70", "bucket = 70"), "site has no setting 'bucket'; did you mean"),
        (("log1p", "log"), "transform must be one of none, log1p; got 'log'"),
        (("std = 0.5", "std = 0"), "a std above 0; got mean 2.0 and std 0.0"),
        (('"blue"]', '"red"]'), "'red' is twice in vocabulary"),
        (('"blue"]', '"NA"]'), "'NA' means a missing value"),
        (('"yes"]', '"NA"]'), "both positive and missing"),
        (('"colour"', '"site"'), "'site' is twice in categorical"),
        (('"price"', '"clicked"'), "'clicked' cannot be an input as well"),
        (('delimiter = ";"', 'delimiter = "::"'), "one character; got '::'"),
        (("[[numeric]]", "[numeric]"), "under [[numeric]]"),
        (('"at"', "3"), "time must be text; got 3"),
        (("label =", "label"), "mine.toml: "),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path, change, said):
    path = write(tmp_path, TOML.replace(*change, 1))
    with pytest.raises(DataError) as error:
        TableSchema.load(path)
    assert said in str(error.value)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


def test_names_of_columns_must_hold_those_needed():
    with pytest.raises(DataError, match="no column 'site'; did you mean sitee"):
        TableSchema("y", ("1",), (SITE,), columns=("sitee", "y"))
    with pytest.raises(DataError, match="'y' is twice in columns"):
        TableSchema("y", ("1",), (SITE,), columns=("site", "y", "y"))


def test_a_schema_needs_an_input_and_a_positive_label():
    with pytest.raises(DataError, match="a categorical or a numeric column"):
        TableSchema("y", ("1",), ())
    with pytest.raises(DataError, match="one spelling of the positive label"):
        TableSchema("y", (), (SITE,))


def test_an_unknown_schema_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(DataError, match=r"did you mean adult\? known are adult, "):
        TableSchema.load("adlut")
    with pytest.raises(DataError, match="cannot be read"):
        TableSchema.load(tmp_path / "nothing.toml")


def test_a_word_keeps_its_row_when_the_cache_is_full(monkeypatch):
    monkeypatch.setattr(encoding, "_CACHED", 3)
    table, words = WordRows(Categorical("site", 10**6), ()), [str(i) for i in range(9)]
    once = table.rows(words)
    assert table.rows(words[::-1]).tolist() == once[::-1].tolist()
    assert len(table._known) <= 3


def test_missing_words_share_a_row():
    hashed = WordRows(Categorical("site", 10**6), ("", "?")).rows(["?", None, "", "a"])
    assert len(set(hashed[:3].tolist())) == 1 and hashed[3] != hashed[0]
    known = Categorical("colour", vocabulary=("red", "blue"))
    rows = WordRows(known, ("?",)).rows(["blue", " red ", "?", None, "green"])
    assert rows.tolist() == [2, 1, 0, 0, 0]


def test_hashes_are_splitmix64_and_words_blake2b_of_their_field():
    digest = hashlib.blake2b("größe\0x".encode(), digest_size=8).digest()
    assert stable_hash("größe", "x") == int.from_bytes(digest, "little")
    words = [str(i) for i in range(500)]
    a, b = (WordRows(Categorical(name, 50), ()).rows(words) for name in "ab")
    assert a.dtype == np.int32
    assert 0 < np.mean(a == b) < 0.08  # fields do not collide alike: one fiftieth
    bits = mix(np.arange(100_000))
    for share in (0.0, 0.1, 0.75):
        assert abs(share_of(bits, share).mean() - share) < 0.005
    # The first outputs of the generator seeded with 0, as published with it.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    steps = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(steps).tolist() == known
