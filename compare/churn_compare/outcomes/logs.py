"""Logs of evaluation tools as tables: lm-evaluation-harness and Inspect."""

import itertools
import json
import os
import struct
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from churn_compare.array_files import ArrayFileError, check_memory
from churn_compare.example_ids import PredictionsError
from churn_compare.reading.objects import json_lines, table_of

_ZSTANDARD = 93  # compression method of an archive
_GRADES = {"C": 1.0, "P": 0.5, "N": 0.0, "I": 0.0}  # Inspect's value_to_float


class Log(NamedTuple):
    """What a tool has written."""

    table: Any  # a `pyarrow.Table`
    scores: tuple[str, ...]  # columns that its metrics or scorers made


def read_log(path: Path) -> Log | None:
    """The log of an evaluation tool; None for any other file.

    lm-evaluation-harness's `samples_*.jsonl` have a row per document and filter: id
    `doc_id`, `answer` (the filtered response, or the number of the most likely choice),
    the metrics by their names, an `input_hash`. Of several filters the first is taken.
    Inspect's `.eval` and `.json` logs have a row per sample and epoch: `id`, `epoch`,
    `input`, `answer` and a column per scorer; grades C, P, N and I are 1, 0.5, 0 and 0.
    Whether an answer is right is for the tool to say: its target is not read.
    """
    try:
        return _read_log(path)
    except (PredictionsError, ArrayFileError):
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise PredictionsError("is no log of an evaluation tool") from error
    except Exception as error:  # a damaged file may raise anything in a parser
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        if isinstance(error, UnicodeDecodeError):
            why = "it is not in UTF-8"
        raise PredictionsError(f"cannot be read, {str(why)[:200]}") from error


def _read_log(path: Path) -> Log | None:
    name = path.name.lower()
    if name.endswith(".eval"):
        return _log(_inspect_archive(path))
    if name.endswith(".json") and path.is_file():
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if isinstance(found, dict) and "samples" in found and "eval" in found:
            return _log(map(_inspect_row, found["samples"] or ()))
        raise PredictionsError("is no log of Inspect")
    if name.endswith(".jsonl"):
        lines = json_lines(path)
        first = next(lines, None)
        if isinstance(first, dict) and {"doc_id", "filtered_resps"} <= first.keys():
            return _log(_harness_rows(itertools.chain([first], lines)))
    return None


def _log(rows: Iterable[tuple[dict[str, Any], dict[str, float]]]) -> Log:
    found = list(rows)
    scores = tuple(dict.fromkeys(name for _, of in found for name in of))
    return Log(table_of(facts | of for facts, of in found), scores)


_HARNESS = (
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash "
    "prompt_hash target_hash"
).split()


def _harness_rows(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict, dict]]:
    chosen = None
    for row in rows:
        chosen = row.get("filter", "none") if chosen is None else chosen
        if row.get("filter", "none") != chosen:
            continue
        said = row["filtered_resps"]
        said = said[0] if isinstance(said, list) and len(said) == 1 else said
        found = {"id": row["doc_id"]}
        if isinstance(said, str):
            found["answer"] = said
        elif (choice := _choice(said)) is not None:
            found["answer"] = choice
        if "prompt_hash" in row or "doc_hash" in row:
            found["input_hash"] = row.get("prompt_hash", row.get("doc_hash"))
        metrics = row.get("metrics") or [n for n in row if n not in _HARNESS]
        yield found, _numbers({metric: row.get(metric) for metric in metrics})


def _choice(answers: Any) -> str | None:
    """The number of the most likely choice, of pairs of log-likelihood and greedy."""
    try:
        likely = [float(one[0]) for one in answers if isinstance(one, list | tuple)]
    except (TypeError, ValueError, IndexError):
        return None
    return str(likely.index(max(likely))) if len(likely) > 1 else None


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    """Those that are numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, bool | int | float)
    }


def _inspect_row(sample: dict[str, Any]) -> tuple[dict, dict]:
    found = {
        "id": str(sample["id"]),
        "epoch": sample.get("epoch", 1),
        "input": json.dumps(sample.get("input"), sort_keys=True),
    }
    values: dict[str, Any] = {}
    for scorer, score in (sample.get("scores") or {}).items():
        value = score.get("value") if isinstance(score, dict) else score
        values[scorer] = _GRADES.get(value) if isinstance(value, str) else value
        if isinstance(score, dict) and isinstance(score.get("answer"), str):
            found.setdefault("answer", score["answer"])
    return found, _numbers(values)


def _inspect_archive(path: Path) -> Iterator[tuple[dict, dict]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith("samples/"):
                check_memory(entry.file_size)
                yield _inspect_row(json.loads(_content(path, archive, entry)))


def _content(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """An entry's bytes, also of Zstandard, which `zipfile` does not read."""
    if entry.compress_type != _ZSTANDARD:
        return archive.read(entry)
    import pyarrow as pa

    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        names, extra = struct.unpack("<26xHH", file.read(30))
        file.seek(names + extra, os.SEEK_CUR)
        packed = pa.BufferReader(file.read(entry.compress_size))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        return stream.read(entry.file_size)
