"""Tables in JSON: a list of records, columns by name, or an object in each line."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from churn_compare.array_files import check_memory
from churn_compare.example_ids import PredictionsError
from churn_compare.reading import arrow
from churn_compare.reading.text_tables import opened_text

_SPACE: Any = re.compile(r"\s*")
_ROWS = (
    "write a row per example as .jsonl or .csv, with id and correct, score, answer or "
    "prediction (of lm-eval give samples_*.jsonl)"
)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one in each line."""
    first = True
    with opened_text(path) as (file, encoding):
        lines = io.TextIOWrapper(file, encoding) if encoding == "utf-16" else file
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(
                    line if isinstance(line, str) else line.decode("utf-8-sig")
                )
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
    found, at, decoder = [], 0, json.JSONDecoder()
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
        found = json.loads(content)
    except UnicodeDecodeError as error:
        raise PredictionsError("it is not in UTF-8") from error
    except RecursionError as error:
        raise PredictionsError("it is nested too deep") from error
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
            columns[name] = arrow.array(values)
        except (arrow.ArrowException, ValueError, TypeError, OverflowError):
            columns[name] = arrow.array(
                [None if value is None else str(value) for value in values]
            )
    return arrow.table(columns)
