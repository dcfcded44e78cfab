"""Runs comparisons in this process; makes a text of what each says and writes."""

import contextlib
import dataclasses
import datetime
import functools
import gc
import gzip
import inspect
import io
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_VARYING = {
    r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+": "<image>",
    r"<style>.*?</style>": "<style>",
    r'timestamp="[^"]*"': 'timestamp="<date>"',
    r'time="[\d.]+"': 'time="<time>"',
    r'hostname="[^"]*"': 'hostname="<host>"',
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?": "<date>",
    r"\b[\d.,]+ GiB of memory that are free": "<free>",
    r"churn[-_](?:jax|compare) \d+\.\d+\.\d+\S*": "<version>",
    r"numpy \d[^<\n]*, Python \d+\.\d+\.\d+ *": "<software>",
    r"\bchurn_compare\.[a-z_.]+\.(?=\w+Error: )": "",
    r" at 0x[0-9a-f]+": " at <address>",
    rf"\b{datetime.date.today().isoformat()}\b": "<today>",
}
inspect.getsource = functools.cache(inspect.getsource)  # a third of a command's time
os.fsync = lambda file: None


_CHOICES = re.compile(r"Expected one of \(([^()]*)\)")  # in the order of a set


def _sorted_choices(match: re.Match) -> str:
    return f"Expected one of ({', '.join(sorted(match[1].split(', ')))})"


def remember_parsers() -> None:
    """Makes tyro build the parser of the command once; that is half of its time."""
    from tyro import _parsers

    build = _parsers.ParserSpecification.from_callable_or_type
    built: dict[Any, Any] = {}

    def from_callable_or_type(f: Any, *given: Any, **named: Any) -> Any:
        place = (f, named.get("intern_prefix"), named.get("extern_prefix"))
        if given or named.get("extern_prefix") or not isinstance(f, type):
            return build(f, *given, **named)
        if place not in built:
            built[place] = build(f, *given, **named)
        return built[place]

    _parsers.ParserSpecification.from_callable_or_type = from_callable_or_type


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison: files, and what is done with them in their folder."""

    files: Mapping[str, Any]
    act: Callable[["Kept"], None]


class Kept:
    """What a comparison has said so far."""

    def __init__(self):
        self._parts: list[str] = []

    def add(self, what: str, text: Any) -> None:
        """Keeps a text, with what it is."""
        self._parts.append(f"=== {what}\n{text}\n")

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)


def produce(
    cases: Mapping[str, Case], *, slow: bool = False, jobs: int = 1
) -> dict[str, str]:
    """What each comparison says."""
    if jobs > 1:
        names = [[*cases][i::jobs] for i in range(jobs)]
        parts = [{name: cases[name] for name in of} for of in names]
        _PARTS[:] = parts
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            found = pool.map(_produce_part, range(jobs))
        return {name: text for of in found for name, text in of.items()}
    remember_parsers()
    above = Path(tempfile.mkdtemp(prefix="freeze-")).resolve()
    said, took = {}, {}
    home = os.getcwd()
    gc.disable()  # a tenth of the time
    try:
        for name, case in cases.items():
            folder = above / "w"
            folder.mkdir()
            if len(said) % 100 == 99:
                gc.collect()
            began = time.perf_counter()
            said[name] = _one(case, folder)
            took[name] = time.perf_counter() - began
            os.chdir(home)
            shutil.rmtree(folder)
    finally:
        gc.enable()
        os.chdir(home)
        shutil.rmtree(above, ignore_errors=True)
    if slow:
        of_area: dict[str, float] = {}
        for name, seconds in took.items():
            area = name.partition(".")[0]
            of_area[area] = of_area.get(area, 0.0) + seconds
        print(", ".join(f"{area} {s:.1f} s" for area, s in of_area.items()))
        for name in sorted(took, key=took.__getitem__)[-25:]:
            print(f"{took[name]:.2f} s  {name}")
    return said


_PARTS: list[dict[str, Case]] = []


def _produce_part(number: int) -> dict[str, str]:
    return produce(_PARTS[number])


def _one(case: Case, folder: Path) -> str:
    kept = Kept()
    os.chdir(folder)
    try:
        for name, content in case.files.items():
            write(folder / name, content)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            case.act(kept)
        told = {f"{w.category.__name__}: {w.message}" for w in warned}
        told = {line for line in told if not line.startswith("ResourceWarning")}
        if told:
            kept.add("warnings", "\n".join(sorted(told)))
    except Exception:
        kept.add("broken", traceback.format_exc())
        print(f"broken: {traceback.format_exc()}", file=sys.stderr)
    text = kept.text().replace(str(folder), "<work>")
    text = _CHOICES.sub(_sorted_choices, text)
    for pattern, word in _VARYING.items():
        text = re.sub(pattern, word, text, flags=re.DOTALL)
    return text


def run(kept: Kept, words: list[str], *, written: tuple[str, ...] = ()) -> None:
    """Runs the command; keeps its words, exit code, output and what it writes."""
    from churn_compare.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(words)
        except SystemExit as stopped:
            code = f"SystemExit {stopped.code}"
    kept.add("command", " ".join(words))
    kept.add("exit code", code)
    kept.add("stdout", out.getvalue())
    kept.add("stderr", err.getvalue())
    for name in written:
        path = Path(name)
        kept.add(name, read(path) if path.exists() else "(not written)")


def read(path: Path) -> str:
    """A written file as text, JSON with an entry in each line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return flat(json.loads(text))
    return text.replace("><", ">\n<") if path.suffix == ".html" else text


def flat(value: Any) -> str:
    """JSON with the path and the value in each line, in the order of the names."""
    lines = ["{json}"]

    def add(path: str, of: Any) -> None:
        if isinstance(of, dict) and of:
            for key in sorted(of):
                add(f"{path}.{key}", of[key])
        elif isinstance(of, list) and any(isinstance(x, (dict, list)) for x in of):
            for i, item in enumerate(of):
                add(f"{path}[{i}]", item)
        elif isinstance(of, list) and any(isinstance(x, str) for x in of):
            for i, item in enumerate(of):
                add(f"{path}[{i}]", item)
        else:
            lines.append(f"{path} = {json.dumps(of, ensure_ascii=False)}")

    add("", value)
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.ndarray):
        if value.dtype.name == "bfloat16":
            value = value.astype(np.float32)
        head = f"{value.dtype.str} {list(value.shape)}"
        return [head, *plain(value.ravel()[:200].tolist())]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [plain(of) for of in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if hasattr(value, "to_pylist"):
        return plain(value.to_pylist())
    return str(value)


def keep(kept: Kept, what: str, value: Any) -> None:
    """Keeps a result, or any other value."""
    if isinstance(value, str):
        kept.add(what, value)
        return
    if hasattr(value, "to_dict") and hasattr(value, "terminal"):
        kept.add(f"{what}: dict", _json(value.to_dict()))
        kept.add(f"{what}: str", str(value))
        kept.add(f"{what}: repr", repr(value))
        return
    kept.add(what, _json(value))


def _json(value: Any) -> str:
    return flat(plain(value))


def calling(function: Callable[[], Any], kept: Kept, what: str = "result") -> None:
    """Keeps what a function returns, or the error that it raises."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            value = function()
    except Exception as error:
        kept.add(what, f"{type(error).__name__}: {error}")
        return
    finally:
        if out.getvalue():
            kept.add(f"{what}: stdout", out.getvalue())
    keep(kept, what, value)


# Files


def columns_of(content: Any) -> dict[str, list]:
    """Columns by name of columns or of records."""
    if isinstance(content, Mapping):
        return {
            name: of.tolist() if isinstance(of, np.ndarray) else list(of)
            for name, of in content.items()
        }
    names = dict.fromkeys(name for row in content for name in row)
    return {name: [row.get(name) for row in content] for name in names}


def records_of(content: Any) -> list[dict[str, Any]]:
    """Records of columns, or as they are."""
    if not isinstance(content, Mapping):
        return list(content)
    columns = columns_of(content)
    return [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]


def delimited(content: Any, mark: str) -> str:
    """A table of delimited text."""
    columns = columns_of(content)
    rows = [columns, *zip(*columns.values(), strict=True)]
    return "".join(mark.join(map(str, row)) + "\n" for row in rows)


def write(path: Path, content: Any) -> None:
    """Writes a file as its ending says, or as the content does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.lower()
    if callable(content):
        content(path)
        return
    if content is None:
        path.mkdir(exist_ok=True)
        return
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    packed = name.endswith(".gz")
    name = name.removesuffix(".gz")
    if isinstance(content, str):
        text = content
    elif name.endswith(".npy"):
        np.save(path, np.asarray(content))
        return
    elif name.endswith(".npz"):
        np.savez(path, **content)
        return
    elif name.endswith((".parquet", ".feather", ".arrow")):
        _write_arrow(path, content)
        return
    elif name.endswith((".csv", ".txt")):
        text = delimited(content, ",")
    elif name.endswith(".tsv"):
        text = delimited(content, "\t")
    elif name.endswith((".jsonl", ".ndjson")):
        text = "".join(f"{json.dumps(row)}\n" for row in records_of(content))
    elif name.endswith((".json", ".toml")):
        text = json.dumps(content)
    else:
        raise ValueError(f"{path} {type(content)}")
    data = text.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(data) if packed else data)


def _write_arrow(path: Path, content: Any) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    table = content
    if not isinstance(content, pa.Table):
        table = pa.table(
            {
                name: list(of) if isinstance(of, np.ndarray) and of.ndim > 1 else of
                for name, of in content.items()
            }
            if isinstance(content, Mapping)
            else columns_of(content)
        )
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=50)
    elif path.suffix == ".feather":
        feather.write_feather(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file:
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
