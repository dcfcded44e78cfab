"""Tables in JSON: a list of records, columns by name, or an object in each line."""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from churn_compare.example_ids import PredictionsError
from churn_compare.reading.text_tables import encoding_of, opened_text

# Files of other tools by some of their keys, and what to give in their place.
_ROWS = (
    "write a row per example as .jsonl or .csv, with id and correct, score, answer or "
    "prediction"
)
_TOOLS: tuple[tuple[str, set[str], str], ...] = (
    ("churn-jax compare --json", {"format", "passed", "verdict"}, "give predictions"),
    ("the shards of predictions", {"format", "shards"}, "give their folder"),
    (
        "lm-evaluation-harness (averages)",
        {"results", "configs", "versions"},
        "give samples_*.jsonl, which --log_samples writes",
    ),
    (
        "lighteval (averages)",
        {"config_general", "results"},
        "give details_*.parquet, which --save-details writes",
    ),
    ("HELM", {"request_states", "adapter_spec"}, _ROWS),
    ("HELM", {"instance_id", "stats"}, _ROWS),
    ("HELM (averages)", {"name", "count", "sum", "sum_squared"}, _ROWS),
    ("promptfoo", {"evalId", "results"}, _ROWS),
    ("promptfoo", {"results", "stats", "version"}, _ROWS),
    ("MLflow (a run)", {"info", "data"}, _ROWS),
    ("Weights & Biases (a summary)", {"_step", "_runtime"}, _ROWS),
    ("Weights & Biases (a summary)", {"_wandb"}, _ROWS),
    ("SWE-bench", {"resolved_ids"}, _ROWS + " (correct: 1 for each of resolved_ids)"),
    ("SWE-bench (patches)", {"instance_id", "model_patch"}, _ROWS),
    ("DeepEval", {"testCases"}, _ROWS),
    ("EvalPlus", {"eval", "hash"}, _ROWS),
    ("MTEB (averages)", {"mteb_version", "scores"}, _ROWS),
    ("Azure AI Evaluation", {"rows", "metrics"}, _ROWS),
    ("Hugging Face's Trainer", {"log_history"}, _ROWS),
    ("pytest-json-report", {"tests", "exitcode"}, _ROWS),
    ("a COCO detector", {"image_id", "category_id", "bbox"}, _ROWS),
)


def _check_tool(found: Any) -> None:
    """Refuses what another tool has written and is not a table."""
    for tool, keys, advice in _TOOLS:
        if isinstance(found, dict) and keys <= found.keys():
            raise PredictionsError(f"is a file of {tool}, not a table; {advice}")


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one in each line."""
    encoding = encoding_of(path)
    first = True
    with contextlib.closing(opened_text(path)) as opened:
        file: Any = opened
        if encoding == "utf-16":
            file = io.TextIOWrapper(io.BufferedReader(opened), encoding)
        elif path.suffix.lower() == ".gz":
            file = io.BufferedReader(opened)
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = line if isinstance(line, str) else line.decode("utf-8-sig")
                found = json.loads(text)
            except UnicodeDecodeError as error:
                raise PredictionsError(f"line {number} is not in UTF-8") from error
            except (ValueError, RecursionError) as error:
                raise PredictionsError(f"line {number} is not JSON") from error
            if not isinstance(found, dict):
                raise PredictionsError(f"line {number} is not a JSON object")
            if first:
                _check_tool(found)
            first = False
            yield found


def is_inspect(path: Path) -> bool:
    """Whether a file begins like a log of Inspect in JSON."""
    if not path.name.lower().endswith(".json") or not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    first = re.match(rb'\s*{\s*"(version|status|eval|samples)"', head)
    return bool(first and re.search(rb'"eval"\s*:\s*{', head))


def read_json(path: Path) -> Any:
    """What is in a `.json` file: rows or columns as a table, else a list."""
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
    if isinstance(found, list) and found and isinstance(found[0], dict):
        _check_tool(found[0])
        if all(isinstance(row, dict) for row in found):
            return table_of(found)
    elif isinstance(found, list):
        return found
    if isinstance(found, dict):
        names, rows = found.get("columns"), found.get("data", found.get("rows"))
        if isinstance(names, list) and isinstance(rows, list):  # pandas, MLflow, W&B
            return table_of(dict(zip(names, row, strict=True)) for row in rows)
        if "schema" in found and isinstance(rows, list):
            return table_of(rows)
        _check_tool(found)
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
