"""Tables of delimited text: comma, semicolon, tab or bar; decimal points or commas."""

import contextlib
import csv
import io
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from churn_compare.array_files import UnpackedFile
from churn_compare.example_ids import PredictionsError, some
from churn_compare.reading.class_values import (
    ID,
    LABEL,
    PREDICTION,
    RUN,
    SCORE_PREFIXES,
    SCORES,
    plain,
)
from churn_compare.reading.spelling import arrow_compute, twice

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SAMPLE_ROWS, _SAMPLE_CHARACTERS = 1000, 1 << 20
_BLOCK_BYTES = 1 << 20  # that pyarrow reads at once; a row must fit
_CELL_BYTES = 32  # room for a number
_NOT_UTF8 = "it is not in UTF-8; in Excel, save it as CSV UTF-8"
_KNOWN = {*ID, *LABEL, *PREDICTION, *RUN, *SCORES} - {"y", "actual", "expected"}
_LISTS = ("set", "ranking", *ID)  # columns in which a comma is not a decimal mark
_NUMBER = re.compile(
    r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE
)
_WHOLE = re.compile(r"[+-]?\d+([.]0*)?")


class Layout(NamedTuple):
    """How a text file is written."""

    names: list[str]  # of the columns, as in the file
    delimiter: str
    encoding: str
    skipped: int  # lines before the names
    row_bytes: int  # of a long row, about
    quote: str  # mark around texts


def is_packed(path: Path) -> bool:
    """True if a file is packed by gzip, whatever it is called."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def opened_text(path: Path) -> Any:
    """The bytes of a text file, unpacked if it is packed by gzip."""
    return UnpackedFile(path) if is_packed(path) else open(path, "rb")


def encoding_of(path: Path) -> str:
    """UTF-16 if the file begins with its mark, else UTF-8."""
    with contextlib.closing(opened_text(path)) as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def layout_of(path: Path) -> Layout:
    """Finds out how a file is written."""
    encoding = encoding_of(path)
    with contextlib.closing(opened_text(path)) as file:
        text = io.TextIOWrapper(io.BufferedReader(file), encoding, newline="")
        try:
            first, skipped = text.readline(), 0
            told = re.fullmatch(r'"?sep=(.)"?\r?\n', first)  # written by Excel
            if told:
                first, skipped = text.readline(), 1
            more = text.read(_SAMPLE_CHARACTERS)
            while first.startswith("#") and not told and _is_comment(first, more):
                first, _, more = more.partition("\n")
                first, skipped = first + "\n", skipped + 1
        except UnicodeDecodeError as error:
            raise PredictionsError(_NOT_UTF8) from error
    tables = {
        mark: list(_sample(first + more, mark))
        for mark in ([told[1]] if told else _DELIMITERS)
        if mark in first or mark == "," or told
    }
    delimiter = _delimiter(tables, path)
    names, *rows = tables[delimiter] or [[]]
    if names:
        _check_header(names, rows)
    row_bytes = max(len(first.encode()), _CELL_BYTES * len(names))
    return Layout(names, delimiter, encoding, skipped, row_bytes, _quote(first))


def _is_comment(line: str, more: str) -> bool:
    """True if a line has other columns than the next; savetxt writes "# id,label"."""
    lines = (line for line in more.splitlines() if not line.startswith("#"))
    following = next(lines, "")
    return any(line.count(mark) != following.count(mark) for mark in _DELIMITERS)


def _sample(text: str, delimiter: str) -> Iterator[list[str]]:
    """The first rows; the last may be cut."""
    rows = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, quotechar=_quote(text)
    )
    with contextlib.suppress(csv.Error):  # a long text, which is read all the same
        yield from filter(None, itertools.islice(rows, _SAMPLE_ROWS))


def _quote(text: str) -> str:
    return "'" if text.startswith("'") else '"'


def _delimiter(tables: dict[str, list[list[str]]], path: Path) -> str:
    several = [mark for mark, rows in tables.items() if rows and len(rows[0]) > 1]
    if len(several) < 2:
        return (several or [*tables])[0]
    fits = [
        mark
        for mark in several
        if {len(row) for row in tables[mark][:-1]} == {len(tables[mark][0])}
    ]
    if len(fits) == 1:
        return fits[0]
    if ".tsv" in path.name.lower() and "\t" in several:
        return "\t"
    if len(fits) > 1:
        marks = " or ".join(_DELIMITERS[mark] for mark in fits)
        raise PredictionsError(
            f"it is not clear whether {marks} separate the values; leave them out of "
            "the names of columns"
        )
    return several[0]


def _check_header(names: list[str], rows: list[list[str]]) -> None:
    """Refuses a first line that is an example and not the names of columns."""
    if len(names) > 1 and names in rows:
        raise PredictionsError(
            f"the first line ({some(names)}) stands in line {rows.index(names) + 2} "
            "again; names of columns must stand in the first line only"
        )
    known = any(plain(name).lstrip("#_") in _KNOWN for name in names)
    prefixed = any(plain(name).startswith(SCORE_PREFIXES) for name in names)
    if names[0] == "" or prefixed or known or _counts(names):
        return  # pandas names no index
    numbers = [name for name in names if _NUMBER.fullmatch(name.strip())]
    whole = all(_WHOLE.fullmatch(of) for of in itertools.chain(numbers, *rows) if of)
    if numbers and (whole or not all(map(_WHOLE.fullmatch, numbers))):
        raise PredictionsError(
            "the first line must be names of columns, such as id,label,prediction; "
            f"here it has the number {numbers[0]}"
        )


def _counts(names: list[str]) -> bool:
    """True if names are 0, 1, 2, 3, ..., which an example hardly is."""
    numbers = [name.strip().removesuffix(".0") for name in names]
    return len(names) > 3 and numbers == [str(i) for i in range(len(names))]


def read_text(
    path: Path, numeric: Callable[[list[str]], Collection[str]]
) -> tuple[Any, tuple[str, ...]]:
    """A table of delimited text, and what is unusual about how it is written."""
    # Columns are read as float64 or text, so that "007" stays different from 7.
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    layout = layout_of(path)
    names = layout.names
    check_columns(names)
    clean = [names[0].lstrip("# "), *names[1:]]  # numpy.savetxt writes "# id"
    scores = frozenset(numeric(clean))
    types = {
        name: pa.float64() if new in scores else pa.string()
        for name, new in zip(names, clean)
    }
    reading = arrow_csv.ReadOptions(
        block_size=max(_BLOCK_BYTES, 4 * layout.row_bytes),
        skip_rows=layout.skipped,
        encoding="utf16" if layout.encoding == "utf-16" else "utf8",
    )

    def read(newlines: bool, decimal: str) -> Any:
        parsed = arrow_csv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char=layout.quote,
            newlines_in_values=newlines,
        )
        converted = arrow_csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, decimal_point=decimal
        )
        packed = is_packed(path)
        with (
            pa.PythonFile(UnpackedFile(path), "r") if packed else pa.OSFile(str(path))
        ) as file:
            return arrow_csv.read_csv(file, reading, parsed, converted)

    table: Any = None
    unusual = []
    if layout.delimiter not in (",", "\t"):
        unusual = [f"separated by {_DELIMITERS.get(layout.delimiter, 'marks')}"]
    decimals = "." if layout.delimiter == "," else ".,"
    # Without newlines in values it is a third faster, but blocks end at any newline.
    tries = [(newlines, mark) for newlines in (False, True) for mark in decimals]
    for newlines, mark in tries:
        try:
            table = read(newlines, mark)
        except pa.ArrowInvalid as error:
            if (newlines, mark) != tries[-1]:
                continue
            if "invalid UTF8" in str(error):
                raise PredictionsError(_NOT_UTF8) from error
            if "straddl" not in str(error):
                raise
            raise PredictionsError(
                "a row has more than a million characters; a quote may lack its end"
            ) from error
        unusual += ["with decimal commas"] if mark == "," else []
        break
    if layout.delimiter != ",":
        table, found = _with_points(table)
        unusual += ["with decimal commas"] if found and not unusual[1:] else []
    return table if clean == names else table.rename_columns(clean), tuple(unusual)


def _with_points(table: Any) -> tuple[Any, bool]:
    """Replaces decimal commas where a whole column has numbers only."""
    import pyarrow as pa

    pc = arrow_compute()
    found = False
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if not pa.types.is_string(column.type) or name.strip().lower() in _LISTS:
            continue
        text = pc.utf8_trim_whitespace(column)
        number = r"^([+-]?\d*(,\d+)?([eE][+-]?\d+)?)?$"
        commas = pc.match_substring(text, ",")
        numbers = pc.match_substring_regex(text, number)
        if pc.any(commas).as_py() and pc.all(numbers).as_py():
            points = pc.replace_substring(text, ",", ".")
            table, found = table.set_column(place, name, points), True
    return table, found


def ends_line(path: Path) -> bool:
    """True if the last line of a text file is complete."""
    with open(path, "rb") as file:
        file.seek(-min(4, path.stat().st_size), os.SEEK_END)
        return file.read().rstrip(b"\0")[-1:] in (b"\r", b"\n")


def check_columns(names: list[str]) -> None:
    """Refuses a table without columns or with two of the same name."""
    if not names:
        raise PredictionsError("the file is empty")
    if again := sorted(twice(names)):
        raise PredictionsError(
            f"{len(again)} of {len(set(names))} columns are there more than once, for "
            f"example {some(again)}; names of columns must differ, in one line"
        )
