"""Logs of evaluation tools as tables: lm-evaluation-harness, Inspect and others."""

import hashlib
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from churn_compare.array_files import check_memory
from churn_compare.example_ids import PredictionsError, some
from churn_compare.reading import arrow
from churn_compare.reading.columns import ID, INPUT, LABEL, PREDICTION, RUNS, plain
from churn_compare.reading.contents import column_names, parsing
from churn_compare.reading.text_tables import json_lines, read_json, table_of, unique

ERROR = "error"  # column of the rows that a tool could not evaluate
KEY = "target_hash"
_TAKEN = {*ID, *LABEL, *RUNS, *INPUT, KEY, ERROR, "answer"}  # read by their names
_SCORED = "/score"  # at the end of MLflow's columns
_PROMPTFOO, _INSTANCES = "results of promptfoo", "instances of Every Eval Ever"
_ZSTANDARD = 93  # compression method of an archive


class Log(NamedTuple):
    """The log of an evaluation tool."""

    table: Any  # a `pyarrow.Table`
    scores: tuple[str, ...]  # columns that its metrics or scorers made
    answers: tuple[str, ...]
    read: tuple[str, ...]  # lines of the report: the tool, and remarks
    left_out: tuple[str, ...] = ()  # metrics that are neither numbers nor grades
    less: Mapping[str, bool] = {}  # metric to whether less is better, if it says so


class _Row(NamedTuple):
    """A row of a log."""

    facts: dict[str, Any]  # id, run, hash of the input, whether it errored, ...
    scores: dict[str, Any]  # numbers and grades; None for what is neither
    answers: dict[str, str]


def read_log(path: Path) -> Log | None:
    """The log of an evaluation tool; None for any other file."""
    with parsing():
        try:
            read = reader_of(path)
            return None if read is None else read(path)
        except (AttributeError, KeyError, TypeError) as error:
            raise PredictionsError("is not a log of an evaluation tool") from error


def reader_of(path: Path) -> Callable[[Path], Log] | None:
    """The function that reads this file as the log of a tool, or None."""
    name, head = path.name.lower(), ""
    if path.is_dir():
        if any(path.glob("*.eval")):
            return _inspect_folder
        return _harness_folder if any(_samples(path)) else None
    if not path.is_file():
        return None
    if name.endswith(".eval"):
        return _inspect_archive
    if name.endswith(".json"):
        with open(path, "rb") as file:
            start = file.read(1 << 16)
        head = start.decode(json.detect_encoding(start), "ignore")
    first = re.match(r'\s*{\s*"(version|status|eval|samples)"', head)
    if first and re.search(r'"eval"\s*:\s*{', head):
        return _inspect_json
    if re.match(r'\s*{\s*"evalId"\s*:.*?"results"\s*:\s*{', head, re.S):
        return lambda path: _log(_promptfoo(path), [_PROMPTFOO])
    keys = {*column_names(path)}
    if {"doc_id", "filtered_resps"} <= keys:
        return lambda path: _harness(_task(path))
    for wanted, what, rows in _TOOLS:
        if {*wanted.split()} <= keys:
            return lambda path: _log(rows(path), [what])
    if ".json" in name and any(key.endswith(_SCORED) for key in keys):
        return lambda path: _log(_mlflow(path), ["evaluation table of MLflow"])
    return None


def _log(
    rows: Iterable[_Row], read: Iterable[str], less: Mapping[str, bool] | None = None
) -> Log:
    found, size = [], 0
    for row in rows:
        # About 100 bytes an entry, and the texts: an archive's rows are all kept.
        size += 100 * sum(map(len, row)) + sum(map(len, row.answers.values()))
        if not len(found) % 1000 or size > 2**26:
            check_memory(size)
        found.append(row)
    if not found:
        raise PredictionsError("there are no examples")
    names = {name: None for row in found for name in row.scores}
    scores = [n for n in names if any(row.scores.get(n) is not None for row in found)]
    answers = dict.fromkeys(name for row in found for name in row.answers)
    taken = {*_TAKEN, *answers, *(name for row in found for name in row.facts)}
    called = {n: f"{n},score" if {n, plain(n)} & taken else n for n in scores}
    table = table_of(
        row.facts | row.answers | {called[n]: row.scores.get(n) for n in scores}
        for row in found
    )
    left = tuple(name for name in names if name not in scores)
    return Log(table, (*called.values(),), (*answers,), (*read,), left, less or {})


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A metric as numbers and grades, part by part; None for anything else."""
    if isinstance(value, Mapping) and value:
        for part, of in value.items():
            yield from _flat(f"{name}.{part}", of)
    elif isinstance(value, list) and value and {*map(type, value)} == {bool}:
        yield name, sum(value) / len(value)  # IFEval's instructions of a prompt
    elif isinstance(value, bool | int | float):
        yield name, float(value)
    else:
        yield name, value if isinstance(value, str) else None


def _scores(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(pair for name, of in values.items() for pair in _flat(name, of))


def _hash(given: Any) -> str:
    text = given if isinstance(given, str) else json.dumps(given, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _key(target: Any) -> dict[str, str]:
    """The hash of a right answer, if the log has it: by it the tool has judged."""
    return {} if target is None else {KEY: _hash(target)}


# lm-evaluation-harness

_HARNESS = (
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash "
    "prompt_hash target_hash"
).split()
_FILE = re.compile(r"samples_(.+?)(?:_(\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl(?:\.gz)?")
# What it logs of a document is the log-likelihood, perhaps with a count of units; of
# all documents together it makes a perplexity, of which less is better.
_LIKELIHOODS = {
    "perplexity": "log_likelihood",
    "word_perplexity": "log_likelihood_per_word",
    "byte_perplexity": "log_likelihood_per_byte",
    "bits_per_byte": "log_likelihood_per_byte",
}


def _samples(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Task, date and path of the samples in a model's folder, or of the only one."""
    if any((folder / name).is_file() for name in ("predictions.npz", "index.json")):
        return
    paths = [path for of in ("", "*/") for path in folder.glob(f"{of}samples_*")]
    found = [of for of in map(_task, paths) if of[0]]
    here = [of for of in found if of[2].parent == folder]
    inner = sorted({path.parent.name for *_, path in found})
    if not here and len(inner) > 1:
        names = some(inner)
        raise PredictionsError(f"holds results of several models, {names}; name one")
    yield from here or found


def _task(path: Path) -> tuple[str, str, Path]:
    """Task and date by the name of a file of samples."""
    match = _FILE.fullmatch(path.name)
    return (match[1], match[2] or "", path) if match else ("", "", path)


def _harness_folder(folder: Path) -> Log:
    """The latest file of each task."""
    files = sorted(_samples(folder))
    latest = {task: (task, date, path) for task, date, path in files}
    more = [files[-1][2].name]
    if len(latest) > 1:
        more = [f"{len(latest)} tasks (column task, for --by)"]
        more += [f"the latest of {len(files)} files"] * (len(files) > len(latest))
    log = _harness(*latest.values())
    return log._replace(read=(*log.read, *more))


def _harness(*files: tuple[str, str, Path]) -> Log:
    """Samples of tasks: what all of them measure, told apart by a column `task`."""
    parts: dict[str, list[_Row]] = {}
    less: dict[str, bool] = {}
    for task, date, path in files:
        parts[task] = list(_harness_rows(json_lines(path)))
        for name, low in _logged_directions(path.parent, date, task).items():
            if less.setdefault(name, low) != low:
                said = f"more of {name} is better in one task and less in {task}"
                raise PredictionsError(f"{said}; compare them by `churn-compare suite`")
        for row in parts[task] if len(files) > 1 else ():
            row.facts.update(id=f"{task}/{row.facts['id']}", task=task)
    names = [{n for row in rows for n in row.scores} for rows in parts.values()]
    said = [{n for row in rows for n in row.answers} for rows in parts.values()]
    common, answers = set.intersection(*names), set.intersection(*said)
    if len(files) > 1 and not common:
        of = [f"{task} has {some(sorted(n))}" for task, n in zip(parts, names)][:3]
        raise PredictionsError(
            f"the {len(files)} tasks have no metric in common ({'; '.join(of)}): "
            "`churn-compare suite OLD NEW` compares each by its own; or name one "
            f"file, such as {files[0][2]}"
        )
    rows = [row for part in parts.values() for row in part]
    for row in rows:
        for kept, of in ((common, row.scores), (answers, row.answers)):
            for name in of.keys() - kept:
                del of[name]
    likely = [f"{old} as {new}" for old, new in _LIKELIHOODS.items() if new in common]
    log = _log(rows, ["log of lm-evaluation-harness", *likely], less)
    lone = [f"{n} (not of every task)" for n in sorted(set.union(*names) - common)]
    return log._replace(left_out=(*log.left_out, *lone))


def _harness_rows(rows: Iterable[dict[str, Any]]) -> Iterator[_Row]:
    """A row per document and run, with the metrics and the answer of each filter."""
    found: dict[Any, list[_Row]] = {}
    seen: dict[tuple[Any, str], list[Any]] = {}
    for row in rows:
        which, name = row["doc_id"], row.get("filter", "none")
        runs = found.setdefault(which, [])
        facts = {"id": which, "input_hash": _prompt_hash(row)}
        facts |= _key(row.get("target"))
        if runs and runs[0].facts != facts:
            raise PredictionsError(
                f"doc_id {which} stands for two prompts: the file has rows of several "
                "tasks; compare the samples_*.jsonl of one task"
            )
        earlier = seen.setdefault((which, name), [])
        if "filter" not in row and row.get("resps") in earlier:
            raise PredictionsError(
                f"doc_id {which} has two rows with the same responses: they are of two "
                "filters, which this old log does not name; keep the rows of one "
                "filter, or evaluate again with a newer lm_eval"
            )
        if len(earlier) == len(runs):
            runs.append(_Row(facts, {}, {}))
        run = runs[len(earlier)]
        earlier.append(None if "filter" in row else row.get("resps"))
        ending = "" if name == "none" else f",{name}"
        said = row["filtered_resps"]
        said = said[0] if isinstance(said, list) and len(said) == 1 else said
        said = said if isinstance(said, str) else _choice(said)
        if said is not None:
            run.answers[f"answer{ending}"] = said
        metrics = row.get("metrics") or [n for n in row if n not in _HARNESS]
        values = dict(_likelihood(metric, row.get(metric)) for metric in metrics)
        run.scores.update({f"{n}{ending}": of for n, of in _scores(values).items()})
    for runs in found.values():
        yield from runs


def _prompt_hash(row: Mapping[str, Any]) -> str:
    """SHA-256 of the prompt, which old logs do not hold."""
    if known := row.get("prompt_hash", row.get("doc_hash")):
        return known
    first = row.get("arguments")
    while isinstance(first, list | dict) and first:
        first = next(iter(first.values() if isinstance(first, dict) else first))
    return _hash(first if isinstance(first, str) else row.get("doc"))


def _likelihood(metric: str, value: Any) -> tuple[str, Any]:
    """The log-likelihood that a perplexity is made of, by its name."""
    total, units = value if isinstance(value, list) and len(value) == 2 else (value, 1)
    numbers = all(type(of) in (int, float) for of in (total, units))
    if metric in _LIKELIHOODS and numbers and total <= 0 < units:
        return _LIKELIHOODS[metric], total / units
    return metric, value


def _choice(answers: Any) -> str | None:
    """The number of the most likely choice, of pairs of log-likelihood and greedy."""
    try:
        likely = [float(one[0]) for one in answers if isinstance(one, list | tuple)]
    except (TypeError, ValueError, IndexError):
        return None
    return str(likely.index(max(likely))) if len(likely) > 1 else None


def _logged_directions(folder: Path, date: str, task: str) -> dict[str, bool]:
    """Metric to whether less is better, by the results next to the samples."""
    files = [folder / f"results_{date}.json"] if date else []
    for path in [*files, *sorted(folder.glob("results_*.json"), reverse=True)]:
        try:
            found = json.loads(path.read_bytes())["higher_is_better"][task]
            return {
                name: not higher
                for name, higher in found.items()
                if isinstance(higher, bool) and name not in _LIKELIHOODS
            }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # its names may still tell
    return {}


# Inspect


def _json(path: Path) -> Any:
    check_memory(path.stat().st_size)
    return json.loads(path.read_bytes(), object_pairs_hook=unique)


def _inspect_json(path: Path) -> Log:
    found = _json(path)
    if not (isinstance(found, dict) and "eval" in found):
        raise PredictionsError("is not an Inspect log")
    return _inspect(found, found.get("samples") or ())


def _inspect(header: Mapping[str, Any], samples: Iterable[dict[str, Any]]) -> Log:
    scorer = ((header.get("results") or {}).get("scorer") or {}).get("name", "score")
    failed: list[bool] = []

    def rows() -> Iterator[_Row]:
        for sample in samples:
            failed.append(bool(sample.get("error")))
            yield _inspect_row(sample, scorer)

    try:
        log = _log(rows(), ())
    except PredictionsError:
        if failed:
            raise
        raise PredictionsError(
            "this Inspect log has no samples; evaluate again without --no-log-samples"
        ) from None
    status = header.get("status", "success")
    read = ["log of Inspect"] + [f"status {status}"] * (status != "success")
    said = f", {sum(failed):,} with an error" * any(failed)
    return log._replace(read=(*read, f"{len(failed):,} samples{said}"))


def _inspect_row(sample: dict[str, Any], scorer: str) -> _Row:
    asked = sample.get("input")
    if isinstance(asked, list):  # messages, whose own ids are drawn anew
        asked = [[of.get("role"), of.get("content")] for of in asked]
    facts = {"id": str(sample["id"]), "epoch": sample.get("epoch", 1)}
    facts |= {"input_hash": _hash(asked), ERROR: bool(sample.get("error"))}
    facts |= _key(sample.get("target"))
    scores = sample.get("scores") or {}
    if sample.get("score"):  # of version 1
        scores = {scorer: sample["score"]}
    values, answers = {}, {}
    for name, score in scores.items():
        values[name] = score.get("value") if isinstance(score, dict) else score
        if isinstance(score, dict) and isinstance(score.get("answer"), str):
            which = "answer" if len(scores) == 1 else f"answer,{name}"
            answers[which] = score["answer"]
    return _Row(facts, _scores(values), answers)


def _inspect_folder(folder: Path) -> Log:
    paths = sorted(folder.glob("*.eval"))
    if len(paths) > 1:
        names = some([path.name for path in paths])
        raise PredictionsError(f"holds {len(paths)} Inspect logs, {names}; name one")
    log = _inspect_archive(paths[0])
    return log._replace(read=(*log.read, paths[0].name))


def _inspect_archive(path: Path) -> Log:
    with zipfile.ZipFile(path) as archive:

        def read(entry: zipfile.ZipInfo) -> dict[str, Any]:
            check_memory(entry.file_size)
            return json.loads(_content(path, archive, entry), object_pairs_hook=unique)

        header = {"status": "not finished"}
        if "header.json" in archive.namelist():
            header = read(archive.getinfo("header.json"))
        of = [e for e in archive.infolist() if e.filename.startswith("samples/")]
        return _inspect(header, map(read, of))


def _content(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """An entry's bytes, also of Zstandard, which `zipfile` does not read."""
    if entry.compress_type != _ZSTANDARD:
        return archive.read(entry)
    with open(path, "rb") as file:
        file.seek(entry.header_offset)
        names, extra = struct.unpack("<26xHH", file.read(30))
        file.seek(names + extra, os.SEEK_CUR)
        packed = arrow.BufferReader(file.read(entry.compress_size))
    with arrow.CompressedInputStream(packed, "zstd") as stream:
        found = stream.read(entry.file_size)
    if len(found) != entry.file_size or zlib.crc32(found) != entry.CRC:
        raise PredictionsError(f"{entry.filename} is damaged: its checksum differs")
    return found


# Other tools: a generator of rows each


def _row(facts: dict[str, Any], asked: Any, scores: Mapping, said: Any = None) -> _Row:
    answers = {"answer": said} if isinstance(said, str) else {}
    facts = facts | {"input_hash": _hash(asked)} if asked else facts
    return _Row(facts, _scores(scores), answers)


def _gym(path: Path) -> Iterator[_Row]:
    """NVIDIA NeMo Gym: a reward per task and rollout."""
    for row in json_lines(path):
        asked = (row.get("responses_create_params") or {}).get("input")
        facts = {"id": row["_ng_task_index"], "run": row["_ng_rollout_index"]}
        yield _row(facts, asked, {"reward": row["reward"]})


def _openai(path: Path) -> Iterator[_Row]:
    """OpenAI evals: events, of which the scored ones of a sample become its row."""
    found: dict[str, _Row] = {}
    for event in json_lines(path):
        data = event.get("data")
        if "sample_id" not in event or not isinstance(data, dict):
            continue
        name = event["sample_id"]
        row = found.setdefault(name, _Row({"id": name}, {}, {}))
        if event.get("type") == "sampling":
            row.facts.setdefault("input_hash", _hash(data.get("prompt")))
            continue
        numbers = {n: x for n, x in data.items() if isinstance(x, bool | int | float)}
        if twice := {*numbers} & {*row.scores}:
            raise PredictionsError(
                f"sample {name} has several numbers {some(sorted(twice))}"
            )
        row.scores.update(numbers)
        if isinstance(picked := data.get("picked"), str):
            row.answers["answer"] = picked
    yield from found.values()


def _lighteval(path: Path) -> Iterator[_Row]:
    """Details of lighteval: the metrics of a row are a structure."""
    for number, row in enumerate(arrow.parquet.read_table(path).to_pylist()):
        doc, metrics, response = (
            row.get(name, row.get(f"__{name}__")) or {}
            for name in ("doc", "metric", "model_response")
        )
        texts = response.get("text") or []
        said = texts[0] if len(texts) == 1 else None
        facts = {"id": str(doc.get("id", number))} | _key(doc.get("gold_index"))
        yield _row(facts, doc.get("query"), metrics, said)


def _promptfoo(path: Path) -> Iterator[_Row]:
    """Results of promptfoo: a row per test, prompt and provider."""
    lines = not path.name.lower().endswith(".json")
    found = list(json_lines(path)) if lines else _json(path)["results"]["results"]
    systems = {
        json.dumps([(row.get("provider") or {}).get("id"), row.get("promptIdx")])
        for row in found
    }
    if len(systems) > 1:
        raise PredictionsError(
            f"holds {len(systems)} pairs of a prompt and a provider; write the results "
            "of one, by --filter-providers and --filter-prompts"
        )
    for row in found:
        # A failed assertion is told in `error` as well; then there is a grade.
        failed = bool(row.get("error")) and not row.get("gradingResult")
        scores = {"success": row["success"], "score": row.get("score")}
        named = row.get("namedScores") or {}
        scores |= {n + ",named" * (n in scores): of for n, of in named.items()}
        said = (row.get("response") or {}).get("output")
        facts = {"id": row["testIdx"], ERROR: failed}
        yield _row(facts, row.get("vars") or {}, scores, said)


def _mlflow(path: Path) -> Iterator[_Row]:
    """Evaluation table of MLflow: columns METRIC/VERSION/score, perhaps inputs."""
    for row in read_json(path).to_pylist():
        scores: dict[str, Any] = {}
        for name in (name for name in row if name.endswith(_SCORED)):
            metric = name.removesuffix(_SCORED).rpartition("/")[0] or name
            if metric in scores:
                raise PredictionsError(f"there are several versions of {metric}")
            scores[metric] = row[name]
        said = row.get("outputs", row.get("prediction"))
        right = [of for name, of in row.items() if plain(name) in LABEL]
        facts = {"id": row["request_id"]} if "request_id" in row else {}
        for name in (name for name in row if "/" not in name):
            if plain(name) not in (*LABEL, *PREDICTION, ERROR):
                facts[name] = row[name]
        facts |= _key(right or None)
        yield _row(facts, row.get("inputs", row.get("request")), scores, said)


def _every_eval(path: Path) -> Iterator[_Row]:
    """Every Eval Ever: a line per sample, with a score and whether it is right."""
    for row in json_lines(path):
        facts = {"id": row["sample_id"], "task": row["evaluation_name"]}
        facts |= {ERROR: bool(row.get("error"))} | _key(row["input"].get("reference"))
        asked = row.get("sample_hash") or row["input"]["raw"]
        scores = {name: row["evaluation"][name] for name in ("is_correct", "score")}
        said = [of for of in row["answer_attribution"] if of["is_terminal"]]
        yield _row(facts, asked, scores, said[-1]["extracted_value"] if said else None)


# Keys of a row or names of columns, what the file is, and its rows.
_TOOLS: tuple[tuple[str, str, Callable[[Path], Iterator[_Row]]], ...] = (
    ("_ng_task_index _ng_rollout_index reward", "rollouts of NeMo Gym", _gym),
    ("spec", "log of OpenAI evals", _openai),
    ("__doc__ __metric__", "details of lighteval", _lighteval),
    ("doc metric model_response", "details of lighteval", _lighteval),
    ("testIdx promptIdx success", _PROMPTFOO, _promptfoo),
    ("sample_id evaluation_name answer_attribution", _INSTANCES, _every_eval),
)
