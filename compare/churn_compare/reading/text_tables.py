"""Tables in text files: delimited values, and JSON in its forms."""

import contextlib
import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from churn_compare.array_files import UnpackedFile, check_memory
from churn_compare.example_ids import PredictionsError, some, twice
from churn_compare.reading import arrow
from churn_compare.reading.columns import ID, has_role, plain

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SAMPLE_ROWS, _SAMPLE_CHARACTERS = 1000, 1 << 20
_BLOCK_BYTES = 1 << 20  # that pyarrow reads at once; a row must fit
_CELL_BYTES = 32  # room for a number
_NOT_UTF8 = "it is not in UTF-8; in Excel, save it as CSV UTF-8"
_LONG = "a row has more than a million characters; a quote may lack its end"
_REFUSED = {"invalid UTF8": _NOT_UTF8, "straddl": _LONG}  # in errors of pyarrow
_TEXTS = {"answer", "set", "ranking"}  # outcomes in which a comma is no decimal mark
_NUMBERS = {"score", "value"}
_PLAIN = {*ID, "input", "prompt", "question"}  # kept as they are written
_NUMBER = re.compile(
    r"[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE
)
_EITHER = r"^([^,]*|[+-]?[1-9]\d{0,2},\d{3})$"  # no comma, or one of two meanings
_WHOLE = re.compile(r"[+-]?\d+([.]0*)?")
_NONE = {None, ""}
_SPACE: Any = re.compile(r"\s*")
_ROWS = (
    "write a row per example as .jsonl or .csv, with id and correct, score, answer or "
    "prediction (of lm-eval give samples_*.jsonl)"
)


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


@contextlib.contextmanager
def opened_text(path: Path) -> Iterator[tuple[Any, str]]:
    """The bytes of a text file, unpacked if it is packed, and their encoding."""
    raw = UnpackedFile(path) if is_packed(path) else open(path, "rb", buffering=0)
    with io.BufferedReader(raw) as file:
        marked = file.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
        yield file, "utf-16" if marked else "utf-8-sig"


def layout_of(path: Path) -> Layout:
    """Finds out how a file is written."""
    with opened_text(path) as (file, encoding):
        text = io.TextIOWrapper(file, encoding, newline="")
        try:
            first, skipped = text.readline(), 0
            told = re.fullmatch(r'"?sep=(.)"?\r?\n', first)  # written by Excel
            if told:
                first, skipped = text.readline(), 1
            more = text.read(_SAMPLE_CHARACTERS)
        except UnicodeDecodeError as error:
            raise PredictionsError(_NOT_UTF8) from error
    while more and (first.isspace() or (not told and _is_comment(first, more))):
        first, _, more = more.partition("\n")
        first, skipped = first + "\n", skipped + 1
    if first.strip() and not more.strip():
        said = "its only line has the names of columns; add a row per example under it"
        raise PredictionsError(f"it has no rows: {said}")
    quote = "'" if first.startswith("'") else '"'
    tables = {}
    for mark in [told[1]] if told else _DELIMITERS:
        if mark in first or mark == "," or told:
            lines = io.StringIO(first + more, newline="")
            tables[mark] = rows = []
            with contextlib.suppress(csv.Error):  # a long text, which is read anyway
                read = csv.reader(lines, delimiter=mark, quotechar=quote)
                rows += filter(None, itertools.islice(read, _SAMPLE_ROWS))
    delimiter = _delimiter(tables, path)
    names, *rows = tables[delimiter] or [[]]
    if names:
        _check_header(names, rows, skipped)
    row_bytes = max(len(first.encode()), _CELL_BYTES * len(names))
    return Layout(names, delimiter, encoding, skipped, row_bytes, quote)


def _is_comment(line: str, more: str) -> bool:
    """True if a line with # has other columns than the next, unlike savetxt's names."""
    lines = (line for line in more.splitlines() if not line.startswith("#"))
    following = next(lines, "")
    other = any(line.count(mark) != following.count(mark) for mark in _DELIMITERS)
    return line.startswith("#") and other


def _delimiter(tables: dict[str, list[list[str]]], path: Path) -> str:
    several = [mark for mark, rows in tables.items() if rows and len(rows[0]) > 1]
    fits = [
        mark
        for mark in several
        if {len(row) for row in tables[mark][:-1]} == {len(tables[mark][0])}
    ]
    if len(several) > 1 and len(fits) > 1 and ".tsv" not in path.name.lower():
        marks = " or ".join(_DELIMITERS[mark] for mark in fits)
        raise PredictionsError(
            f"it is not clear whether {marks} separate the values; leave them out of "
            "the names of columns"
        )
    if len(fits) != 1 and "\t" in several and ".tsv" in path.name.lower():
        return "\t"
    return (fits or several or [*tables])[0]


def _check_header(names: list[str], rows: list[list[str]], skipped: int) -> None:
    """Refuses a first line that is an example and not the names of columns."""
    if len(names) > 1 and names in rows:
        line = skipped + rows.index(names) + 2
        raise PredictionsError(
            f"the first line ({some(names)}) stands in line {line} again; names of "
            "columns must stand in the first line only"
        )
    # An example hardly is 0, 1, 2, 3, ...
    counted = [name.strip().removesuffix(".0") for name in names]
    counts = len(names) > 3 and counted == [str(i) for i in range(len(names))]
    if names[0] == "" or counts or any(map(has_role, names)):
        return  # pandas names no index
    numbers = [name for name in names if _NUMBER.fullmatch(name.strip())]
    whole = all(_WHOLE.fullmatch(of) for of in itertools.chain(numbers, *rows) if of)
    if numbers and (whole or not all(map(_WHOLE.fullmatch, numbers))):
        raise PredictionsError(
            "the first line must be names of columns, such as id,label,prediction; "
            f"here it has the number {numbers[0]}"
        )


def read_text(
    path: Path, numeric: Callable[[list[str]], Collection[str]]
) -> tuple[Any, tuple[str, ...]]:
    """A table of delimited text, and what is unusual about how it is written."""
    # Columns are read as float64 or text, so that "007" stays different from 7.
    layout = layout_of(path)
    names, decimals = layout.names, "." if layout.delimiter == "," else ".,"
    check_columns(names)
    clean = [names[0].lstrip("# "), *names[1:]]  # numpy.savetxt writes "# id"
    scores, number, text = {*numeric(clean)}, arrow.float64(), arrow.string()
    types = {name: number if new in scores else text for name, new in zip(names, clean)}
    reading = arrow.csv.ReadOptions(
        block_size=max(_BLOCK_BYTES, 4 * layout.row_bytes),
        skip_rows=layout.skipped,
        encoding="utf16" if layout.encoding == "utf-16" else "utf8",
    )
    table: Any = None
    unusual = []
    if layout.delimiter not in (",", "\t"):
        unusual = [f"separated by {_DELIMITERS.get(layout.delimiter, 'marks')}"]
    # Without newlines in values it is a third faster, but blocks end at any newline.
    tries = [(lines, mark) for lines in (False, True) for mark in decimals]

    def read(newlines: bool, mark: str, types: dict[str, Any]) -> Any:
        marks = {"delimiter": layout.delimiter, "quote_char": layout.quote}
        parsed = arrow.csv.ParseOptions(newlines_in_values=newlines, **marks)
        converted = arrow.csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, decimal_point=mark
        )
        packed = arrow.PythonFile(UnpackedFile(path), "r") if is_packed(path) else None
        with packed or arrow.OSFile(str(path)) as file:
            return arrow.csv.read_csv(file, reading, parsed, converted)

    for newlines, mark in tries:
        try:
            table = read(newlines, mark, types)
            break
        except arrow.ArrowInvalid as error:
            if (newlines, mark) != tries[-1]:
                continue
            found = [why for sign, why in _REFUSED.items() if sign in str(error)]
            if odd := re.search(r"column #(\d+): .* to double: (.*)", str(error)):
                name = clean[int(odd[1])]
                hint = "" if has_role(name) else "; leave --kind out if it is no score"
                found = [f"column {name} must hold numbers; it has an {odd[2]}{hint}"]
            if not found:
                raise
            raise PredictionsError(found[0]) from error
    if layout.delimiter != ",":
        if mark == ",":  # a number no longer tells how it was written
            _with_points(read(newlines, mark, dict.fromkeys(names, text)), scores)
        table, found = _with_points(table, scores)
        unusual += ["with decimal commas"] * (found or mark == ",")
    while (n := len(table)) and {*table.slice(n - 1).to_pylist()[0].values()} <= _NONE:
        table = table.slice(0, n - 1)  # an empty row of a spreadsheet
    return table if clean == names else table.rename_columns(clean), tuple(unusual)


def _with_points(table: Any, scores: set[str]) -> tuple[Any, bool]:
    """Replaces decimal commas where a whole column has numbers only."""
    found, names = False, {plain(name) for name in table.column_names}
    # A target is written like the texts that it is compared with, whatever its name.
    sure = {*_NUMBERS, *map(plain, scores)}
    chosen = sure if names & _TEXTS else names - _PLAIN
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if not arrow.is_text(column.type) or plain(name) not in chosen:
            continue
        text = arrow.utf8_trim_whitespace(column)
        number = r"^([+-]?\d*(,\d+)?([eE][+-]?\d+)?)?$"
        commas = arrow.match_substring(text, ",")
        numbers = arrow.match_substring_regex(text, number)
        if arrow.any(commas).as_py() and arrow.all(numbers).as_py():
            if not arrow.all(arrow.match_substring_regex(text, _EITHER)).as_py():
                points = arrow.replace_substring(text, ",", ".")
                table, found = table.set_column(place, name, points), True
            elif plain(name) in sure:  # any other may be a text
                one = text.filter(commas)[0]
                said = f"the comma of {one} in column {name} may mean thousands or"
                raise PredictionsError(f"{said} decimals: write none")
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


# JSON: a list of records, columns by name, or an object in each line


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose keys differ, for `json.loads`."""
    if len(found := dict(pairs)) < len(pairs):
        raise LookupError(f"it has the key {twice(n for n, _ in pairs)[0]!r} twice")
    return found


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one in each line."""
    first = True
    with opened_text(path) as (file, encoding):
        lines = io.TextIOWrapper(file, encoding) if encoding == "utf-16" else file
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                text = line if isinstance(line, str) else line.decode("utf-8-sig")
                found = json.loads(text, object_pairs_hook=unique)
                if first and isinstance(found, list):
                    raise ValueError
            except UnicodeDecodeError as error:
                raise PredictionsError(f"line {number} is not in UTF-8") from error
            except (ValueError, RecursionError) as error:
                if first and (rows := _whole(path)):
                    yield from rows
                    return
                raise PredictionsError(f"line {number} is not JSON") from error
            if not isinstance(found, dict):
                raise PredictionsError(f"line {number} is not a JSON object")
            first = False
            yield found


def _whole(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with an array of them, or with one over several lines."""
    check_memory(path.stat().st_size)
    found, at, decoder = [], 0, json.JSONDecoder(object_pairs_hook=unique)
    with opened_text(path) as (file, encoding):
        content = file.read()
    try:
        text = content.decode(encoding).strip()
        while at < len(text):
            one, at = decoder.raw_decode(text, at)
            at = _SPACE.match(text, at).end()
            found += one if isinstance(one, list) else [one]
    except (ValueError, RecursionError):
        return []
    return found if all(isinstance(one, dict) for one in found) else []


def read_json(path: Path) -> Any:
    """Content of a `.json` file: rows or columns as a table, else a list."""
    with opened_text(path) as (file, _):
        content = file.read()
    try:
        found = json.loads(content, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise PredictionsError("it is not in UTF-8") from error
    except ValueError as error:
        if "Extra data" not in str(error):
            raise PredictionsError(f"it is not JSON ({error})") from error
        return table_of(json_lines(path))  # lines, as Spark and BigQuery write them
    if isinstance(found, list):
        objects = [isinstance(row, dict) for row in found]
        if not any(objects):
            return found
        if all(objects):
            return table_of(found)
    if isinstance(found, dict):
        names, rows = found.get("columns"), found.get("data", found.get("rows"))
        if isinstance(names, list) and isinstance(rows, list):  # pandas, MLflow, W&B
            check_columns([*map(str, names)])
            if isinstance(index := found.get("index"), list):
                names = [*names, "__index_level_0__"]  # as pandas does in Parquet
                rows = [[*row, of] for row, of in zip(rows, index, strict=True)]
            return table_of(dict(zip(names, row, strict=True)) for row in rows)
        if "schema" in found and isinstance(rows, list):
            return table_of(rows)
        columns = {name: _column(values) for name, values in found.items()}
        lengths = {None if of is None else len(of) for of in columns.values()}
        if columns and len(lengths) == 1 and None not in lengths:
            return table_of(dict(zip(columns, row)) for row in zip(*columns.values()))
    raise PredictionsError(f"is JSON, but not a table: {_ROWS}")


def _column(values: Any) -> list | None:
    """A column as a list, or as an object with the keys "0", "1", ..."""
    if isinstance(values, dict) and [*values] == [*map(str, range(len(values)))]:
        return list(values.values())
    return values if isinstance(values, list) else None


def table_of(objects: Iterable[Mapping[str, Any]]) -> Any:
    """Objects as an Arrow table; a column that some rows lack has nulls there."""
    rows = list(objects)
    if not rows:
        raise PredictionsError("there are no examples")
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = arrow.array(values, from_pandas=True)
        except (arrow.ArrowException, ValueError, TypeError, OverflowError):
            texts = [
                of if of is None or (isinstance(of, float) and of != of) else str(of)
                for of in values
            ]
            columns[name] = arrow.array(texts, from_pandas=True)
    return arrow.table(columns)
