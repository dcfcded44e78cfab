"""Schemas: what is refused, what a TOML file says, those that come with the package."""

import math

import pytest

from churn_jax.data.splits import DataError
from churn_jax.data.tables import Categorical, Numeric, TableSchema, packaged_schemas

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
