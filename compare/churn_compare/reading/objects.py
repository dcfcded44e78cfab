"""Tables in JSON: a list of records, columns by name, or an object in each line."""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from churn_compare.array_files import check_memory
from churn_compare.example_ids import PredictionsError
from churn_compare.reading.text_tables import encoding_of, is_packed, opened_text

_SPACE: Any = re.compile(r"\s*")
_ROWS = (
    "write a row per example as .jsonl or .csv, with id and correct, score, answer or "
    "prediction (of lm-eval give samples_*.jsonl)"
)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one in each line."""
    encoding = encoding_of(path)
    first = True
    with contextlib.closing(opened_text(path)) as opened:
        file: Any = opened
        if encoding == "utf-16":
            file = io.TextIOWrapper(io.BufferedReader(opened), encoding)
        elif is_packed(path):
            file = io.BufferedReader(opened)
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = line if isinstance(line, str) else line.decode("utf-8-sig")
                found = json.loads(text)
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
    with contextlib.closing(opened_text(path)) as file:
        content = file.read()
    found, at, decoder = [], 0, json.JSONDecoder()
    try:
        text = content.decode(encoding_of(path)).strip()
        while at < len(text):
            one, at = decoder.raw_decode(text, at)
            at = _SPACE.match(text, at).end()
            found += one if isinstance(one, list) else [one]
    except (ValueError, RecursionError):
        return []
    return found if all(isinstance(one, dict) for one in found) else []


def is_inspect(path: Path) -> bool:
    """Return True if a file begins like a log of Inspect in JSON."""
    head = _head(path)
    first = re.match(rb'\s*{\s*"(version|status|eval|samples)"', head)
    return bool(first and re.search(rb'"eval"\s*:\s*{', head))


def is_promptfoo(path: Path) -> bool:
    """Return True if a file begins like the results of promptfoo in JSON."""
    return bool(
        re.match(rb'\s*{\s*"evalId"\s*:.*?"results"\s*:\s*{', _head(path), re.S)
    )


def _head(path: Path) -> bytes:
    """The start of a JSON file; nothing of any other."""
    if not path.name.lower().endswith(".json") or not path.is_file():
        return b""
    with open(path, "rb") as file:
        return file.read(1 << 16)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table in JSON."""
    table = read_json(path)
    return table if isinstance(table, list) else table.to_pylist()


def read_json(path: Path) -> Any:
    """Content of a `.json` file: rows or columns as a table, else a list."""
    with contextlib.closing(opened_text(path)) as file:
        content = file.read()
    try:
        found = json.loads(content)
    except UnicodeDecodeError as error:
        raise PredictionsError("it is not in UTF-8") from error
    except RecursionError as error:
        raise PredictionsError("it is nested too deep") from error
    except ValueError as error:
        if "Extra data" not in str(error):
            raise PredictionsError(f"it is not JSON ({error})") from error
        return table_of(json_lines(path))  # lines, as Spark and BigQuery write them
    if isinstance(found, list) and not any(isinstance(row, dict) for row in found):
        return found
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return table_of(found)
    if isinstance(found, dict):
        names, rows = found.get("columns"), found.get("data", found.get("rows"))
        if isinstance(names, list) and isinstance(rows, list):  # pandas, MLflow, W&B
            return table_of(dict(zip(names, row, strict=True)) for row in rows)
        if "schema" in found and isinstance(rows, list):
            return table_of(rows)
        columns = _columns(found)
        if columns:
            return table_of(dict(zip(columns, row)) for row in zip(*columns.values()))
    raise PredictionsError(f"is JSON, but not a table: {_ROWS}")


def _columns(found: dict[str, Any]) -> dict[str, list] | None:
    """Columns of equal length: lists, or objects with the keys "0", "1", ..."""
    columns = {}
    for name, values in found.items():
        if isinstance(values, dict) and [*values] == [*map(str, range(len(values)))]:
            values = list(values.values())
        if not isinstance(values, list):
            return None
        columns[name] = values
    return columns if len({*map(len, columns.values())}) == 1 else None


def table_of(objects: Iterable[Mapping[str, Any]]) -> Any:
    """Objects as an Arrow table; a column that some rows lack has nulls there."""
    import pyarrow as pa

    rows = list(objects)
    if not rows:
        raise PredictionsError("there are no examples")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            columns[name] = pa.array(
                [None if value is None else str(value) for value in values]
            )
    return pa.table(columns)
