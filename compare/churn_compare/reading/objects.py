"""Objects in JSON, one in each line of a file, as a table."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from churn_compare.example_ids import PredictionsError


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one in each line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line.decode("utf-8-sig"))
            except UnicodeDecodeError as error:
                raise PredictionsError(f"line {number} is not in UTF-8") from error
            except (ValueError, RecursionError) as error:
                raise PredictionsError(f"line {number} is no JSON") from error
            if not isinstance(found, dict):
                raise PredictionsError(f"line {number} is no JSON object")
            yield found


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
