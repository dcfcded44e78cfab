"""What a table's columns mean: label, categorical and numeric fields, time, group.

A schema is written as TOML, so that a table of a user's own needs no Python:

    label = "clicked"
    positive = ["1"]
    time = "shown_at"

    [[categorical]]
    name = "site"
    buckets = 10000

    [[numeric]]
    name = "age"
    mean = 38.6
    std = 13.7
"""

import math
import pathlib
import tomllib
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from churn_compare.suggestions import did_you_mean
from churn_jax.data.splits import DataError

Transform = Literal["none", "log1p"]

# Schemas that come with the package are next to the studies that use them. They are
# found by path: importing that part of the package from here would be upside down.
_PACKAGED = pathlib.Path(__file__).parents[2] / "studies" / "streams" / "schemas"


@dataclass(frozen=True)
class Categorical:
    """A column of words, each a row of an embedding table.

    Without a vocabulary a word is hashed into one of `buckets` rows, and different
    words may share one; a missing value has a hash of its own. With a vocabulary row 0
    stands for every other word and for missing values, row `i + 1` for word `i`.

    Attributes:
        name: of the column.
        buckets: rows of the table where there is no vocabulary.
        vocabulary: words known in advance, without repeats.

    Raises:
        DataError: there is no bucket, too many, or a word repeats.

    Example:
        >>> Categorical("site", buckets=50).size
        50
        >>> Categorical("colour", vocabulary=("red", "blue")).size
        3
    """

    name: str
    buckets: int = 1000
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self):
        if not 1 <= self.buckets < 2**31:
            raise DataError(
                f"column {self.name!r} needs from 1 to 2^31 - 1 buckets; got "
                f"{self.buckets}"
            )
        if len(set(self.vocabulary)) < len(self.vocabulary):
            twice = next(w for w in self.vocabulary if self.vocabulary.count(w) > 1)
            raise DataError(f"column {self.name!r}: {twice!r} is twice in vocabulary")

    @property
    def size(self) -> int:
        """Rows of its table."""
        return len(self.vocabulary) + 1 if self.vocabulary else self.buckets


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, `(transform(x) - mean) / std`; 0 where it is missing.

    Attributes:
        name: of the column.
        transform: `log1p` for counts and amounts of many orders of magnitude; values
            must then be above -1.
        mean: of the transformed values; a constant chosen without looking ahead.
        std: of the transformed values.

    Raises:
        DataError: the transform is unknown, or a moment cannot be used.
    """

    name: str
    transform: Transform = "none"
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self):
        if self.transform not in get_args(Transform):
            raise DataError(
                f"column {self.name!r}: transform must be one of "
                f"{', '.join(get_args(Transform))}; got {self.transform!r}"
            )
        if not (math.isfinite(self.mean) and 0 < self.std < math.inf):
            raise DataError(
                f"column {self.name!r} needs a finite mean and a std above 0; got "
                f"mean {self.mean} and std {self.std}"
            )


@dataclass(frozen=True)
class TableSchema:
    """How the rows of a table become examples with a binary label.

    Attributes:
        label: column of the label.
        positive: spellings of the label of class 1; every other label is class 0.
        categorical: columns of words, in the order of `Window.ids`.
        numeric: columns of numbers, in the order of `Window.numeric`.
        time: column that must not decrease from row to row: numbers, timestamps, or
            text that sorts as time does, such as 2024-03-01T12:00. None takes the
            order of the rows on trust.
        group: column whose values are held out together, such as a patient.
        missing: spellings of a missing value.
        columns: names of all columns of a CSV file without a header.
        delimiter: between the fields of a CSV file.

    Raises:
        DataError: parts contradict each other; one sentence says which.

    Example:
        >>> schema = TableSchema("clicked", ("1",), (Categorical("site", 50),))
        >>> schema.sizes, schema.needed
        ((50,), ('site', 'clicked'))
    """

    label: str
    positive: tuple[str, ...]
    categorical: tuple[Categorical, ...]
    numeric: tuple[Numeric, ...] = ()
    time: str | None = None
    group: str | None = None
    missing: tuple[str, ...] = ("", "?")
    columns: tuple[str, ...] = ()
    delimiter: str = ","

    def __post_init__(self):
        if not self.positive:
            raise DataError(
                "a schema needs at least one spelling of the positive label"
            )
        if set(self.positive) & set(self.missing):
            raise DataError(
                "a label cannot be both positive and missing; got positive "
                f"{list(self.positive)} and missing {list(self.missing)}"
            )
        if not self.categorical and not self.numeric:
            raise DataError("a schema needs a categorical or a numeric column")
        for what, columns in (
            ("categorical", [c.name for c in self.categorical]),
            ("numeric", [n.name for n in self.numeric]),
            ("columns", list(self.columns)),
        ):
            if len(set(columns)) < len(columns):
                twice = next(c for c in columns if columns.count(c) > 1)
                raise DataError(f"{twice!r} is twice in {what} of the schema")
        if self.label in {c.name for c in (*self.categorical, *self.numeric)}:
            raise DataError(f"the label {self.label!r} cannot be an input as well")
        for field in self.categorical:
            if known := set(field.vocabulary) & set(self.missing):
                raise DataError(
                    f"column {field.name!r}: {min(known)!r} means a missing value and "
                    "cannot be in vocabulary"
                )
        if len(self.delimiter) != 1:
            raise DataError(
                f"the delimiter must be one character; got {self.delimiter!r}"
            )
        if self.columns:
            check_columns(self, self.columns, "columns of the schema")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of every categorical field's table."""
        return tuple(field.size for field in self.categorical)

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that are read, each once."""
        inputs = [field.name for field in (*self.categorical, *self.numeric)]
        rest = (self.label, self.time, self.group)
        return tuple(dict.fromkeys([*inputs, *(c for c in rest if c is not None)]))

    @classmethod
    def load(cls, source: str | pathlib.Path) -> "TableSchema":
        """A schema from a TOML file, or one that comes with the package by name.

        Args:
            source: path that ends in `.toml`, or a name of `packaged_schemas()`.

        Returns:
            The schema.

        Raises:
            DataError: there is no such file or name, or it is no schema.

        Example:
            >>> TableSchema.load("adult").positive
            ('>50K',)
        """
        path = pathlib.Path(source)
        if path.suffix != ".toml":
            path = _PACKAGED / f"{source}.toml"
            if "/" in str(source) or not path.is_file():
                known = packaged_schemas()
                hint = did_you_mean(str(source), known, count=1, cutoff=0.6)
                raise DataError(
                    f"no schema is called {str(source)!r}{hint or ';'} known are "
                    f"{', '.join(known) or 'none'}, or pass a .toml file"
                )
        try:
            with path.open("rb") as file:
                return from_table(tomllib.load(file))
        except OSError as error:
            raise DataError(
                f"{path}: the schema cannot be read ({error.strerror})"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, DataError) as error:
            raise DataError(f"{path}: {error}") from error

    def as_table(self) -> dict[str, Any]:
        """The schema as plain values, as a TOML or JSON file holds it."""
        return asdict(self)


def packaged_schemas() -> list[str]:
    """Names of the schemas that come with the package."""
    return sorted(path.stem for path in _PACKAGED.glob("*.toml"))


def from_table(table: dict[str, Any]) -> TableSchema:
    """A schema from plain values, checked."""
    _check_keys("the schema", TableSchema, table)
    values: dict[str, Any] = dict(table)
    for key, kind in (("categorical", Categorical), ("numeric", Numeric)):
        rows = values.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise DataError(f"{key} must be tables, each under [[{key}]]")
        for row in rows:
            _check_keys(f"[[{key}]] {row.get('name', '')}".rstrip(), kind, row)
        values[key] = tuple(
            kind(**{k: _value(k, kind, v) for k, v in row.items()}) for row in rows
        )
    plain = {
        k: v if k in ("categorical", "numeric") else _value(k, TableSchema, v)
        for k, v in values.items()
    }
    return TableSchema(**plain)


def _check_keys(where: str, kind: type, table: dict[str, Any]) -> None:
    known = {field.name for field in fields(kind)}
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known, count=1, cutoff=0.6)
            raise DataError(f"{where} has no setting {key!r}{hint}")
    required = ("label", "positive") if kind is TableSchema else ("name",)
    for key in required:
        if key not in table:
            raise DataError(f"{where} lacks {key!r}")


def _value(key: str, kind: type, value: Any) -> Any:
    """A TOML value converted to the type of the field `key` of `kind`."""
    wanted = next(field.type for field in fields(kind) if field.name == key)
    if wanted == tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise DataError(f"{key} must be a list of texts; got {value!r}")
        return tuple(value)
    if wanted is float or wanted is int:
        allowed = (int,) if wanted is int else (int, float)
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise DataError(f"{key} must be a number; got {value!r}")
        return wanted(value)
    if not isinstance(value, str):
        raise DataError(f"{key} must be text; got {value!r}")
    return value


def check_columns(schema: TableSchema, available, where: str) -> None:
    """Refuses a table that lacks a column of the schema."""
    for column in schema.needed:
        if column not in available:
            hint = did_you_mean(column, available, count=1, cutoff=0.6)
            raise DataError(f"{where}: there is no column {column!r}{hint}")
