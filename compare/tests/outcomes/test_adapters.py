"""Results of evaluation tools, written as the tools write them, and what errored."""

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from churn_compare import compare_outcomes
from churn_compare.cli import main
from churn_compare.outcomes import Table, noise_floor
from churn_compare.reading.outcomes import read_outcomes
from tests.cases import fails, jsonl

RIGHT = [True, False, True, True, False, True]


def promptfoo(path, right, errors=()):
    """The JSON of `promptfoo eval --output`."""
    rows = [
        {
            "id": f"row-{i}",
            "promptIdx": 0,
            "testIdx": i,
            "testCase": {"vars": {"city": f"c{i}"}, "assert": [{"type": "equals"}]},
            "promptId": "p",
            "provider": {"id": "openai:chat:a", "label": ""},
            "prompt": {"raw": f"Where is c{i}?", "label": "Where is {{city}}?"},
            "vars": {"city": f"c{i}"},
            "response": None if i in errors else {"output": "here", "cached": False},
            "error": "API error: 500" if i in errors else None if ok else "Expected x",
            "success": ok and i not in errors,
            "score": float(ok and i not in errors),
            "namedScores": {} if i in errors else {"tone": 0.25 * (i % 4)},
            "gradingResult": None if i in errors else {"pass": ok, "score": float(ok)},
        }
        for i, ok in enumerate(right)
    ]
    results = {"version": 3, "timestamp": "2026-01-31T12:00:00Z", "prompts": []}
    found = {"evalId": "eval-1", "results": results | {"results": rows, "stats": {}}}
    path.write_text(json.dumps(found | {"config": {}, "shareableUrl": None}))
    return path


def mlflow(path, right):
    """`eval_results_table.json`, as pandas writes a table in two parts."""
    columns = ["inputs", "targets", "outputs", "exact_match/v1/score", "latency"]
    data = [[f"q{i}", "Paris", "Rome", float(ok), 0.1] for i, ok in enumerate(right)]
    path.write_text(json.dumps({"columns": columns, "data": data}))
    return path


def every_eval(path, right, errors=()):
    """Lines of the instance-level schema 0.2.1."""
    same = {"schema_version": "instance_level_eval_0.2.1", "model_id": "a/m"}
    same |= {"evaluation_id": "gsm8k/m/1", "evaluation_name": "gsm8k"}
    same |= {"interaction_type": "single_turn", "messages": None}
    same |= {"output": {"raw": ["it is 4"]}}
    part = {"source": "output.raw", "extraction_method": "regex"}
    lines = []
    for i, ok in enumerate(right):
        said = enumerate(("perhaps", "4" if ok else "5", "done"))
        parts = [
            part | {"turn_idx": turn, "extracted_value": of, "is_terminal": turn == 1}
            for turn, of in said
        ]
        row = {"sample_id": f"gsm8k_{i}", "sample_hash": f"h{i}"}
        row |= {"input": {"raw": f"q{i}", "reference": ["4"]}}
        row |= {"evaluation": {"score": float(ok), "is_correct": ok}}
        row |= {"error": "timeout" if i in errors else None}
        lines.append(same | row | {"answer_attribution": parts})
    return jsonl(path, lines)


def gym(path, right):
    """Rollouts of NeMo Gym."""
    facts = ("_ng_task_index", "_ng_rollout_index", "reward")
    rows = ((i, rollout, ok) for i, ok in enumerate(right) for rollout in range(2))
    return jsonl(path, (dict(zip(facts, row)) for row in rows))


def openai(path, right):
    """Events of OpenAI's evals."""
    lines = [{"spec": {"eval_name": "e"}}]
    for i, ok in enumerate(right):
        event = {"sample_id": f"e.{i}", "type": "sampling", "data": {"prompt": "?"}}
        judged = {"type": "match", "data": {"correct": ok, "picked": "x"}}
        lines += event, event | judged
    return jsonl(path, [*lines, {"type": "report", "data": {"accuracy": 1}}])


def lighteval(path, right):
    """Details of Lighteval."""
    rows = [
        {"doc": {"id": str(i), "query": "?"}, "metric": {"em": float(ok)}}
        | {"model_response": {"text": ["x"]}}
        for i, ok in enumerate(right)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


TOOLS = {  # file, a measure, the kinds of all, answers of six that change
    promptfoo: ("out.json", "success", "success:correct score:correct tone:score", 0),
    mlflow: ("eval_results_table.json", "exact_match", "exact_match:correct", 0),
    every_eval: ("m.jsonl", "is_correct", "is_correct:correct score:correct", 2),
    gym: ("g.jsonl", "reward", "reward:correct", None),
    openai: ("o.jsonl", "correct", "correct:correct", 0),
    lighteval: ("l.parquet", "em", "em:correct", 0),
}


@pytest.mark.parametrize("write", TOOLS)
def test_a_tool_is_read(write, tmp_path):
    name, measure, kinds, flips = TOOLS[write]
    old = write(tmp_path / f"old-{name}", RIGHT)
    new = write(tmp_path / name, [*RIGHT[:3], False, True, True])
    read = read_outcomes(old)
    found = [f"{k}:{v}" for k, v in read.measures.items() if v != "answer"]
    assert sorted(found) == sorted(kinds.split())
    for run in read.columns[measure].tolist():
        assert run == [float(of) for of in RIGHT]
    result = compare_outcomes(old, new)
    if flips is not None:
        assert result["answer"]["share_changed"].value == pytest.approx(flips / 6)
    for way in ("negative", "positive"):
        assert result[measure][f"{way}_flip_rate"].value == pytest.approx(1 / 6)
    if write is mlflow:
        assert "examples are matched by their rows" in str(result.notes)
        for path in (old, new):
            path.write_text(path.read_text().replace('"inputs"', '"asked"'))
        table = json.loads(new.read_text())
        new.write_text(json.dumps(table | {"data": table["data"][::-1]}))
        said = "asked names the examples, and its order differs .* --id-column asked"
        fails(said, compare_outcomes, old, new)
        found = compare_outcomes(old, new, id_column="asked")
        assert found[measure]["churn"].value == pytest.approx(2 / 6)


def test_results_of_several_providers_or_metrics_are_refused(tmp_path):
    path = promptfoo(tmp_path / "a.json", RIGHT)
    path.write_text(path.read_text().replace("openai:chat:a", "b", 1))
    fails("2 pairs of a prompt and a provider", read_outcomes, path)
    table = mlflow(tmp_path / "table.json", RIGHT)
    table.write_text(table.read_text().replace("latency", "exact_match/v2/score"))
    fails("there are several versions of exact_match", read_outcomes, table)


@pytest.mark.parametrize("write", [promptfoo, every_eval])
def test_errors_are_counted_and_treated_by_one_policy(write, tmp_path, capsys):
    ending = "json" if write is promptfoo else "jsonl"
    name = "success" if write is promptfoo else "is_correct"
    old = write(tmp_path / f"old.{ending}", RIGHT)
    new = write(tmp_path / f"new.{ending}", RIGHT, errors=[0, 1])
    said = "0 examples errored in old.*, 2 in new.*; --errors wrong counts them"
    fails(said, compare_outcomes, old, new)
    wrong = compare_outcomes(old, new, errors="wrong")
    assert wrong[name]["negative_flip_rate"].value == pytest.approx(1 / 6)
    assert any("count as wrong" in note for note in wrong.notes)
    dropped = compare_outcomes(old, new, errors="drop")
    assert dropped.examples == 4 and dropped[name]["negative_flip_rate"].value == 0
    same = write(tmp_path / f"same.{ending}", RIGHT, errors=[2, 3])
    one = write(tmp_path / f"one.{ending}", RIGHT, errors=[2])
    fails("^1 example errored in one.*, 2 in new", compare_outcomes, one, new)
    equal = compare_outcomes(new, same)  # as many on both sides: wrong
    assert equal.examples == 6 and equal[name]["accuracy_gain"].value < 0
    fails("2 examples errored in new", compare_outcomes, new, same, errors="refuse")
    for call in (compare_outcomes, noise_floor):
        fails("errors must be one of wrong, drop, ref", call, old, new, errors="droped")
    runs = noise_floor(old, new)  # of one version: an error counts as in one file
    errored = "Warning: 2 examples errored, and count as wrong"
    assert runs.examples == 6 and any(re.match(errored, note) for note in runs.notes)
    assert noise_floor(old, new, errors="drop").examples == 4
    twice = "two runs are the same file, .* add --confirm same-file"
    fails(twice, noise_floor, old, new, old)
    assert noise_floor(old, new, old, confirm="same-file").examples == 6
    assert main([str(old), str(new)]) == 2
    assert "--errors drop leaves them out" in capsys.readouterr().err
    assert main([str(old), str(new), "--errors", "drop"]) == 0


def test_an_error_of_one_run_leaves_a_hole_in_another_one():
    columns = {"s": np.array([[1.0, np.nan], [1.0, np.nan]])}
    given = {"measures": {"s": "score"}, "columns": columns, "runs": (0, 1)}
    sides = [
        Table(name, errored=np.array([[False, True], [False, both]]), **given)
        for name, both in (("old", False), ("new", True))
    ]
    fails("1 of 2 examples lack an outcome", compare_outcomes, *sides, errors="wrong")
    whole = dict(given, columns={"s": np.ones((2, 2))}, less={"s": True})
    sides = [dataclasses.replace(of, **whole) for of in sides]
    fails("s has no value that stands for wrong", noise_floor, *sides)


def test_a_score_without_a_worst_value_is_not_made_wrong(tmp_path):
    old = promptfoo(tmp_path / "old.json", RIGHT)
    new = promptfoo(tmp_path / "new.json", RIGHT, errors=[0])
    for path in (old, new):
        path.write_text(path.read_text().replace('"tone": ', '"tone": -1'))
    fails("tone has no value that", compare_outcomes, old, new, errors="wrong")
    found = compare_outcomes(old, new, errors="drop")["tone"]
    assert (found["score_change"].value == 0 and np.isnan(found.p)) or found.p == 1
    old.write_text(old.read_text().replace('"tone": ', '"score": '))
    measures = read_outcomes(old).measures
    assert {"score": "correct", "score,named": "score"}.items() <= measures.items()
