"""Outcomes from files to a verdict, by the command and in Python."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from churn_compare import compare_outcomes
from churn_compare.cli import main
from churn_compare.example_ids import PredictionsError
from churn_compare.gates import Gate, GateError, gates_by_name, read_gates
from churn_compare.outcomes import noise_floor, read_outcomes
from churn_compare.store import ShardWriter, write_index
from tests.cases import csv_file, fails, harness, jsonl

FLIPS = "negative_flip_rate"


def answers(right, **more):
    return [{"id": f"q{i}", "correct": bool(r), **more} for i, r in enumerate(right)]


def test_the_command_reads_lines_judges_gates_and_writes_pages(tmp_path, capsys):
    old = jsonl(tmp_path / "old.jsonl", answers([1] * 30 + [0] * 10))
    new = jsonl(tmp_path / "new.jsonl", answers([0] * 5 + [1] * 30 + [0] * 5))
    written = [tmp_path / f"page.{kind}" for kind in ("html", "json", "md")]
    words = [str(old), str(new), "--max-nfr", "5%", "--min-accuracy-gain", "-1%"]
    words += ["--html", str(written[0]), "--json", str(written[1])]
    assert main([*words, "--markdown", str(written[2])]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "12 % (5 to 26 %) of all examples were right and are wrong now" in said
    assert "FAIL negative flip rate at most 5 %" in said
    assert "PASS accuracy gain at least -1 points" in said
    assert all(path.stat().st_size > 500 for path in written)
    (measure,) = json.loads(written[1].read_text())["measures"]
    assert measure["quantities"]["negative_flip_rate"]["value"] == 0.125
    assert main([str(old), str(new), "--max-nfr", "30%"]) == 0


def test_answers_are_compared_without_capitals_and_spaces():
    old = {"answer": [" The  Paris", "4", "-4"], "target": ["the paris", "4", "4"]}
    new = {"answer": ["4", "four", "the paris"], "target": ["4", "4", "The Paris"]}
    old, new = old | {"id": [1, 2, 3]}, new | {"id": [3, 2, 1]}
    found = compare_outcomes(old, new)["answer"]
    assert found["accuracy_old"].value == pytest.approx(2 / 3)
    assert found["churn"].value == pytest.approx(2 / 3)
    assert found["share_reworded"].value == 1.0
    (fall,) = found.changes
    assert (fall.id, fall.old, fall.new, fall.target) == ("2", "4", "four", "4")


@pytest.mark.parametrize("names", ["answer target", "set target", "ranking gold"])
def test_commas_of_texts_are_no_decimal_marks(names, tmp_path):
    rows = f"id {names}|1 1,234 1,234|2 2,500 2,500|3 17 17|4 3,000 3,000|"
    sides = tmp_path / "old.tsv", tmp_path / "new.tsv"
    for path, text in zip(sides, (rows, rows.replace("4 3,000", "4 unknown"))):
        path.write_text(text.replace(" ", "\t").replace("|", "\n"))
    (found,) = compare_outcomes(*sides, target_column=names.split()[1]).measures
    assert [fall.id for fall in found.changes] == ["4"]


def test_changes_are_those_between_any_two_runs():
    def runs(*answers, name="answer"):
        ids = {"id": [1, 2] * len(answers), "run": np.arange(2 * len(answers)) // 2}
        return ids | {name: [of for answer in answers for of in answer]}

    new = runs("aa", "ab", "bb")
    for old, changes in (
        (runs("aa", "aa"), [("2", "a", "b", 2 / 3), ("1", "a", "b", 1 / 3)]),
        (runs("ba", "ba"), [("1", "b", "a", 2 / 3), ("2", "a", "b", 2 / 3)]),
    ):
        found = compare_outcomes(old, new)["answer"]
        share = np.mean([change[3] for change in changes])
        assert found["share_changed"].value == pytest.approx(share)
        assert found.changes_total == 2
        listed = [(c.id, c.old, c.new, pytest.approx(c.fall)) for c in found.changes]
        assert listed == changes
    # A tolerance is a share of the means of the runs, and not of the first ones.
    scores = runs((100, 1), (1, 1), name="score"), runs((98, 1), (1, 1), name="score")
    options = {"tolerance": 0.015, "relative": True}
    (fall,) = compare_outcomes(*scores, **options)["score"].changes
    assert (fall.id, fall.fall) == ("1", 1.0)


APART = "A: A:the .5:5 -.5:.5 (-3):3 -x:x 2*3:2/3 [0,1):(0,1] n/a:n {}:[] 3!:3 C#:C"
EQUAL = "0.0:0 -2:-2.00 \u00e9:e\u0301 IV:iv a~b:~a~~b~ \u212b:\u00e5"
OF_SQUAD = "The~cat!:cat it's:its 10\\%:10 Yes.:yes \u662f\u3002:\u662f"
OF_SQUAD += " A.:a (The):the .A~the:a~the"
NOT_OF_SQUAD = "A:the -.5:.5 .5:5 {}:[] (-3):3"


def flipped(pairs, **options):
    """Pairs of answers of which one counts as another than the other."""
    old, new = zip(*(of.replace("~", " ").split(":") for of in [*pairs.split(), "q:q"]))
    sides = ({"answer": [*of], "target": [*old]} for of in (old, new))
    found = compare_outcomes(*sides, **options)["answer"]
    changed = {int(change.id) for change in found.changes}
    return " ".join(of for i, of in enumerate(pairs.split()) if i in changed)


def test_answers_that_differ_are_equal_only_by_an_option(tmp_path, capsys):
    assert flipped(APART) == APART
    assert flipped(EQUAL) == "" and flipped(EQUAL, normalize="none") == EQUAL
    assert flipped(OF_SQUAD) == OF_SQUAD and flipped(OF_SQUAD, normalize="squad") == ""
    assert flipped(NOT_OF_SQUAD, normalize="squad") == NOT_OF_SQUAD
    said = "normalize must be one of text, squad"
    fails(said, flipped, "a:b", normalize="all", of=ValueError)
    rows = [{"id": 1, "answer": text, "target": "cat"} for text in ("cat", "A cat.")]
    paths = [jsonl(tmp_path / f"{i}.jsonl", [row]) for i, row in enumerate(rows)]
    words = [*map(str, paths), "--max-nfr", "0"]
    assert main(words) == 1 and main([*words, "--normalize", "squad"]) == 0
    rows = [{"id": i, "answer": f"{i}.", "target": str(i)} for i in range(10)]
    path = str(jsonl(tmp_path / "never.jsonl", rows))
    words = [path, path, "--max-nfr", "0", "--confirm", "same-file"]
    assert main(words) == 2 and main([*words, "--normalize", "squad"]) == 0
    said = "never.jsonl (old) is like its target, for example '0.' and '0'; --norm"
    assert said in capsys.readouterr().err
    assert main([*words, "never-right"]) == 0
    both = [{"set": [["\u00e9"]]}, {"set": [["e\u0301"]]}]
    assert compare_outcomes(*both)["set"]["share_changed"].value == 0


def test_less_of_a_score_is_better_by_its_name_or_by_the_option(tmp_path, capsys):
    old = {"wer": [0.1, 0.2, 0.3, 0.1], "points": [1.0, 2, 3, 5], "part": list("aabb")}
    new = old | {"wer": [0.2, 0.3, 0.5, 0.1], "points": [3.0, 3, 3, 5]}
    names = ["wer", "points"]
    found = compare_outcomes(old, new, score_columns=names, by=["part"], pool="part")
    wer, points = found["wer"], found["points"]
    assert wer.lower_is_better and not points.lower_is_better
    assert wer["score_old"].value == pytest.approx(0.175)
    assert wer["score_change"].value == pytest.approx(0.1)
    assert (wer["share_worse"].value, wer["share_better"].value) == (0.75, 0.0)
    assert wer.pooled.gain.value == pytest.approx(0.1)
    assert [change.id for change in wer.changes] == ["2", "0", "1"]
    assert wer.within.low <= 0.1 <= wer.within.high
    says = "less is better in wer; more is better in points (--lower-is-better NAME"
    assert says in found.read[-1]
    one = {"score_columns": ["points"]}
    turned = compare_outcomes(old, new, lower_is_better=["points"], **one)["points"]
    assert turned["share_worse"].value == 0.5
    minus = ({"points": [-x for x in side["points"]]} for side in (old, new))
    same = compare_outcomes(*minus, **one)["points"]
    assert same.p == pytest.approx(turned.p)
    assert same["score_change"].low == pytest.approx(-turned["score_change"].high)
    wrong = {"score_columns": names, "lower_is_better": ["wre"]}
    fails("--lower-is-better wre is not a score", compare_outcomes, old, new, **wrong)
    rows = [[dict(zip(of, row)) for row in zip(*of.values())] for of in (old, new)]
    paths = [jsonl(tmp_path / f"{i}.jsonl", of) for i, of in enumerate(rows)]
    words = [*map(str, paths), "--score-column", "wer"]
    gates = tmp_path / "wer.toml"
    gates.write_text("max-score-change = 0.01")
    assert main([*words, "--gates", str(gates)]) == 1
    assert main([*words, "--min-score-change", "-1"]) == 2
    assert "less is better in wer; write max-score-change" in capsys.readouterr().err
    full = ["--min-score-change", "0.1", "--full"]
    assert main([*words, "points", *full]) == 0  # of points only
    said = capsys.readouterr().out
    assert "PASS  score change at least +0.1 of points" in said
    assert "largest rises" in said and "of wer" not in said


def test_sets_and_rankings_of_lists_and_texts():
    old = {"id": [1, 2], "ranking": ["a;b;c", "a;b;c"], "set": ["[1, 2]", "[]"]}
    new = {"id": [1, 2], "ranking": ["a;c;b", "a;b;c"], "set": ["[2, 1]", "[3]"]}
    alone = {"score_columns": "part", "lower_is_better": "part", "by": "group"}
    side = {"part": [1, 2], "group": [3, 3]}
    (part,) = compare_outcomes(side, side, **alone).measures
    assert part.lower_is_better and [of.grouping for of in part.groups] == ["group"]
    found = compare_outcomes(old, new, top=2)
    assert found["ranking"]["mean_distance"].value == pytest.approx(1 / 3)
    assert found["set"]["mean_distance"].value == 0.5
    assert found["ranking, first 2"]["mean_distance"].value == pytest.approx(1 / 3)
    assert not found["set"].judged and "1 in all, largest first" in found.markdown()
    other = compare_outcomes(old, {**new, "ranking": ["a;b;d", "a;b;c"]})["ranking"]
    assert other["mean_distance"].value == 0 and other["share_changed"].value == 0.5
    printed = "['a',_'b'] {'b','a'} ('a','b') set(['b','a']) ['a'_'b'] ['a',_\"b\"] "
    printed += "[a,b] array(['a',_'b'],_dtype=object) frozenset({'a','b'}) a;b"
    for text in printed.split():
        new = {"set": [text.replace("_", " "), "set()", "[1 2]"]}
        found = compare_outcomes({"set": ["a,b", "", "1,2"]}, new)
        assert found["set"]["mean_distance"].value == 0


@pytest.mark.parametrize(
    ("old", "options", "says"),
    [
        ({"ranking": ["a;b", "a;b"]}, {"top": 0}, "top must be at least 1"),
        ({"ranking": ["a;b", "a;b;a"]}, {}, "with an item twice, for example a; keep"),
        ({"score": [1, 2]}, {"top": 3}, "top is for rankings, and"),
        ({"score": [1, 2]}, {"any_time": True}, "any_time is for .*leave it out"),
        ({"score": [1, 2]}, {"normalize": "squad"}, "normalize is for .*leave it out"),
    ],
)
def test_options_that_have_no_use_are_refused(old, options, says):
    fails(says, compare_outcomes, old, old, **options, of=ValueError)


@pytest.mark.parametrize("kind", ["set", "ranking"])
def test_a_list_of_one_item_is_not_read_as_a_text(kind):
    old = [{kind: of, "target": of} for of in (["Smith, John"], [], ["[1, 2]"])]
    new = [{kind: of} for of in (["Smith", "John"], ["[]"], ["1", "2"])]
    (found,) = compare_outcomes(old, new).measures
    assert found["score_old"].value == 1
    assert {of.old for of in found.changes} == {"Smith, John", "(none)", "[1, 2]"}
    assert "[]" in {of.new for of in found.changes}


@pytest.mark.parametrize("kind", ["set", "ranking"])
@pytest.mark.parametrize("items", [[1.0, 2.5], [True, False], ["a b", "c"]])
def test_lists_are_equal_in_every_form_of_files(kind, items, tmp_path):
    other = [*items[::-1], items[0]] if kind == "set" else items
    lines = jsonl(tmp_path / "a.jsonl", [{"id": "q", kind: other, "target": other}])
    table, text = tmp_path / "a.csv", json.dumps(items).replace('"', '""')
    table.write_text(f'id,{kind},target\nq,"{text}","{text}"\n')
    (found,) = compare_outcomes(table, lines).measures
    assert found["share_changed"].value == 0 and found["score_new"].value == 1
    assert noise_floor(table, lines)[kind]["runs_differ"].value == 0


@pytest.mark.parametrize("what", ["input", "target"])
def test_changed_inputs_and_targets_are_named_and_not_compared(what):
    old = {"id": [1, 2, 3], "correct": [1, 1, 0], what: ["a", "b", "1"]}
    new = old | {what: ["a", "c", "1"], "correct": [1, 0, 0]}
    result = compare_outcomes(old, new)
    assert result.examples == 2 and result["correct"]["churn"].value == 0
    assert f"1 of 3 examples have another {what}" in "".join(result.notes)
    assert compare_outcomes(old, new, confirm=[f"{what}s"]).examples == 3
    fails(f"1 of 3 examples have another {what}", noise_floor, old, new, old)
    other = new | {what: ["a", "y", "z"]}
    said = f"2 of 3 examples have another {what} under the same id; .* --confirm {what}"
    fails(said, compare_outcomes, old, other)


def test_targets_of_judged_outcomes_are_compared_as_numbers_and_texts(tmp_path):
    for a, b in ((["The  cat", "2", ""], ["the cat", "2", None]), ([1, 2, 3], "123")):
        old, new = ({"id": "pqr", "correct": "110", "target": of} for of in (a, b))
        old, new = ({name: [*of] for name, of in side.items()} for side in (old, new))
        assert compare_outcomes(old, new, target_column="target").examples == 3
    old, new = (of | {"actual": of.pop("target")} for of in (old, new))
    assert "left out: actual" in compare_outcomes(old, old).read[0]
    facts = {"id": 1, "input": "?", "scores": {"m": {"value": "C"}}}
    logs = [tmp_path / f"{side}.json" for side in ("old", "new")]
    for path, target in zip(logs, "AB"):
        log = {"version": 2, "eval": {}, "samples": [facts | {"target": target}]}
        path.write_text(json.dumps(log))
    fails("have another target .* --confirm targets", compare_outcomes, *logs)
    for path, target in zip(logs, "AB"):
        jsonl(path, harness([1, 0], target=target))
    fails("have another target .* --confirm targets", compare_outcomes, *logs)


def test_a_measure_of_some_examples_leaves_out_none_that_another_has():
    ids = {"id": [*"abcd"], "correct": [1, 0, 1, 1]}
    part, errored = {"score": [0.5, None, 0.5, None]}, "--score-column correct comp"
    found = compare_outcomes(ids, ids | part)
    assert found.examples == 4 and "Only one side has score" in found.notes[0]
    fails(errored, compare_outcomes, ids | part, ids | part, confirm=["same-file"])


def test_equivalence_is_another_sentence_than_no_difference(rng):
    base = rng.normal(size=400)
    old, new = ({"score": base + 0.1 * rng.normal(size=400)} for _ in range(2))
    shown = compare_outcomes(old, new, equivalent=0.05)
    assert shown["score"].is_equivalent
    assert "is shown to change the mean by less than 0.05" in str(shown)
    short = [{"score": side["score"][:10]} for side in (old, new)]
    assert "The update is not shown" in str(compare_outcomes(*short, equivalent=0.05))


def test_a_column_that_differs_between_the_sides_is_named():
    old = {"id": [1, 2, 3], "correct": [1, 0, 1], "topic (2)": ["a", "b", "b"]}
    new = {"id": [3, 2, 1], "correct": [1, 1, 1], "topic (2)": ["b", "a", " a"]}
    found = compare_outcomes(old, new, by=["topic (2)"])
    assert found.read[0].endswith("correct, slices (column topic (2)).")
    assert [of.examples for of in found["correct"].groups] == [1, 2]  # as in old
    assert "topic (2) differs between the two sides for 1 of 3 ex" in found.notes[-1]
    old = {"id": [1, 2], "answer": [*"ab"], "target": [*"ab"]}
    new = old | {"target": [*"ac"]}
    message = "targets of 1 of 2 examples differ between old and new, for example 2"
    fails(message, compare_outcomes, old, new)
    fails("targets of 1 of 2 examples differ", noise_floor, old, new)
    runs = ({"id": [1], "answer": ["a"], "input": [text]} for text in "pq")
    fails("1 of 1 examples have another input", noise_floor, *runs)
    old = {"id": [1, 2], "value": [1, 2], "target": [1, 2]}
    assert compare_outcomes(old, old | {"target": ["1.0", "2"]})["value"].judged
    old = {"id": [1, 2, 3], "answer": ["1", "", "nan"], "target": ["1", "", "nan"]}
    new, other = (old | {"target": of} for of in (["1.0", "", "nan"], ["1", "", ""]))
    assert compare_outcomes(old, new)["answer"]["accuracy_new"].value == 1
    assert "old has 1 empty answer in column ans" in str(compare_outcomes(old, new))
    fails("targets of 1 of 3 examples differ", compare_outcomes, old, other)


def test_a_gate_on_slices_names_the_worst():
    ids = np.arange(40)
    task = np.where(ids < 20, "facts", "sums")
    old = {"id": ids, "correct": np.ones(40), "task": task, "class": task}
    new = old | {"correct": np.where(ids < 4, 0, 1), "epoch": task}
    gates = {"max_slice_nfr": 0.15, "max_nfr": 0.15}
    result = compare_outcomes(old, new, by=["task", "epoch"], gates=gates)
    assert [gate.passed for gate in result.gates] == [False, True]
    assert "task facts 20 %" in result.gates[0].line
    gates = [*gates_by_name(gates), Gate(FLIPS, 0.2, grouping="task")]
    assert compare_outcomes(old, new, by=["task"], gates=gates).passed
    for by, more, says in (
        (["task"], {"group": "fact"}, "did you mean facts"),
        (["task", "class"], {}, 'column of the slices is called "class"'),
    ):
        gates = [Gate(FLIPS, 0.5, grouping="task", **more)]
        fails(says, compare_outcomes, old, new, by=by, gates=gates, of=GateError)
    both = [of | {"f1": of["correct"], "em": of["correct"]} for of in (old, new)]
    options = {"by": ["task"], "gates": {"max_slice_share_worse": "100%"}}
    found = compare_outcomes(*both, score_columns=["f1", "em"], **options)
    what = "share worse at most 100 % in each slice of"
    assert [gate.gate for gate in found.gates] == [f"{what} f1", f"{what} em"]
    said = "such number here, only churn, accuracy_old"
    options = {"by": ["task"], "gates": {"max_slice_error_change": 1.0}}
    fails(said, compare_outcomes, old, new, **options, of=GateError)


ROWS = {"task": [*"abcdefghijk"] * 3, "correct": [1, 0, 1] * 11}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ({"x": [1]}, {"x": [1]}, "no column of outcomes"),
        ({"correct": [1, 2]}, {"correct": [1, 0]}, "must be 0 or 1"),
        ({"score": ["a"]}, {"score": [1]}, "score has grades without a number, a"),
        ({"score": ["٣"]}, {"score": [1]}, "score has grades without a number, ٣"),
        ({"score": list("abcdefghijklm")}, {"score": [1]}, "must hold numbers"),
        ({"score": ["1", "1_0"]}, {"score": [1, 2]}, "number, 1_0; add --grades 1_0="),
        ({"score": [np.nan]}, {"score": [1.0]}, "lack an outcome"),
        ({"score": [np.inf]}, {"score": [1.0]}, "infinite"),
        ({"score": [1]}, {"correct": [1]}, "no outcome is on both sides"),
        ({"id": [1], "score": [1]}, {"id": [2], "score": [1]}, "only in old"),
        ({"id": [1], "score": [1]}, {"score": [1]}, "new has none; give the ids"),
        ({"score": [1, 2]}, {"score": [1]}, "cannot be matched"),
        (ROWS, {name: of[::-1] for name, of in ROWS.items()}, "add --id-column task"),
        ({"id": [1, 1, 2], "score": [1, 2, 3]}, {}, "runs; 2 has 1, .*fini"),
        ({"score": [1, 2], "seed": [[1], [2]]}, {}, "column seed needs ids"),
        ({"score": [1], "input": [b"\xff"]}, {}, "column input cannot be made text"),
        ({"Score": [1], "score ": [2]}, {}, "Score and score  could .*be the score c"),
        ({"Pass": [1], "pass": [0]}, {}, "Pass and pass could .*be the pass column"),
        ([{"score": 1}, 2], {}, "outcomes must be columns with names"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(old, new, says):
    fails(says, compare_outcomes, old, new)


def test_options_of_the_other_kind_are_refused(tmp_path, capsys):
    old = jsonl(tmp_path / "old.jsonl", answers([1, 0]))
    classes = tmp_path / "a.csv"
    classes.write_text("id,prediction\n1,0\n2,1\n")
    for words, says in (
        ([old, old, "--labels", old], "correct is judged already; no queue is needed"),
        ([classes, classes, "--tolerance", "1"], "--tolerance is for outcomes"),
        ([old, old, "--max-share-worse", "0.5"], "such number here, only accuracy_o"),
        ([old, old, "--equivalent", "1"], "equivalent 1 may mean 1 % or 100 %"),
        ([old, old, "--max-share-worse", "1", "--full"], "may mean 1 % or 100 %"),
        ([old, old, "--min-score-change", "-2%"], "is not a share; write it as a numb"),
        ([old, old, "--equivalent", "0"], "the margin of equivalence must be above 0"),
    ):
        assert main([*map(str, words), "--confirm", "same-file"]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("label,score\ncat,0.9\ndog,0.8\ncat,0.7", "prediction (column label)"),
        ("output,target,correct\nCat,cat,1\nDog,cat,0\nA,a,1", "3 examples; correct"),
        ("target,score\nParis,0.5\nRome,0.8\nBern,1.0", "3 examples; score"),
        ("class,correct\ncat,1\ndog,0\ncat,1", "3 examples; correct"),
        ("resolved\nTrue\nFalse", "correct (column resolved)"),
        ("status,success\nok,1\nfailed,0", "correct (column success)"),
        ("status\nPASSED\nfailed", "correct (column status)"),
        ("score,status\n1,done\n2,done", "score; left out: status"),
        ("p_value,p_adj,correct\n0.1,0.3,1\n0.2,0.9,0\n0.1,0.1,1", "; correct"),
        ("p_cat,p_dog,score\n0.1,0.9,1\n0.2,0.8,0\n0.1,0.9,1", "2 classes"),
    ],
)
def test_columns_say_what_is_compared(columns, says, tmp_path, capsys):
    lines = columns.split("\n")
    rows = [f"id,{lines[0]}", *(f"{i},{row}" for i, row in enumerate(lines[1:]))]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(rows) + "\n")
    assert main([str(path), str(path), "--confirm", "same-file"]) == 0
    assert says in " ".join(capsys.readouterr().out.split())


def test_filters_of_the_harness_are_measures_in_any_order(tmp_path):
    old = jsonl(tmp_path / "samples_a.jsonl", harness([1, 1, 0]))
    new = jsonl(tmp_path / "b.jsonl", harness([1, 0, 0], ("flexible", "strict")))
    found = compare_outcomes(old, new)
    assert found["em,strict"].runs == (1, 1)
    assert found["em,strict"]["negative_flip_rate"].value == pytest.approx(1 / 3)
    assert found["em,flexible"]["churn"].value == 0
    assert found["answer,strict"]["share_changed"].value == pytest.approx(1 / 3)
    assert "log of lm-evaluation-harness, id, target, input, answer,fl" in found.read[0]
    one = jsonl(tmp_path / "c.jsonl", harness([1, 0, 0], ["flexible"]))
    said = "no column 'em', it has em,strict, em,flexible"
    fails(said, read_outcomes, old, score_columns=["em"])
    plain = jsonl(tmp_path / "d.jsonl", harness([1, 0, 0], ["strict"]))
    fails("no outcome is on both sides", compare_outcomes, one, plain)
    twice = jsonl(tmp_path / "e.jsonl", [*harness([1, 0]), *harness([0, 0])])
    assert read_outcomes(twice).columns["em,strict"].tolist() == [[1, 0], [0, 0]]


def test_rows_of_the_harness_that_are_not_runs_are_refused(tmp_path):
    rows = list(harness([1, 0]))
    old = [{n: of for n, of in row.items() if n != "filter"} for row in rows]
    path = jsonl(tmp_path / "old.jsonl", old)
    fails("two filters, which this old log does", read_outcomes, path)
    tasks = [*rows, *harness([1, 0], prompt_hash="other")]
    path = jsonl(tmp_path / "tasks.jsonl", tasks)
    fails("doc_id 0 stands for two prompts", read_outcomes, path)
    for row in (*old, *tasks):  # older still: the prompt itself tells
        del row["prompt_hash"]
    asked = [row | {"arguments": [[f"{i}", {}]]} for i, row in enumerate(old)]
    path = jsonl(tmp_path / "older.jsonl", asked)
    fails("doc_id 0 stands for two prompts", read_outcomes, path)
    for column in ("task", "prompt", "target"):
        table = {"id": [0, 1, 0, 1], "correct": [1, 0, 1, 1], column: list("aabb")}
        fails(f"same id differ in {column}", read_outcomes, table)


def test_metrics_of_the_harness_that_are_no_numbers(tmp_path):
    def rows(shift):
        for i in range(4):
            row = {"doc_id": i, "filtered_resps": ["x"], "filter": "none", "doc": i}
            row |= {"word_perplexity": [-100.0 - i + shift, 40], "perplexity": -2.0 - i}
            row |= {"bits_per_byte": [-100.0 - i + shift, 200], "inst": [True, i > 1]}
            row |= {"f1": [1, 0], "bleu": ["a", "b"], "parts": {"a": i, "b": [1, 2]}}
            others = ("doc_id", "filter", "filtered_resps", "doc")
            yield row | {"metrics": [n for n in row if n not in others]}

    old, new = (jsonl(tmp_path / f"{s}.jsonl", rows(s)) for s in (0, 1))
    found = compare_outcomes(old, new)
    likely = found["log_likelihood_per_word"]
    assert likely["score_change"].value == pytest.approx(1 / 40)
    assert likely["share_better"].value == 1.0
    per_byte = found["log_likelihood_per_byte"]["score_change"].value
    assert per_byte == pytest.approx(1 / 200)
    assert found["log_likelihood"]["score_old"].value == -3.5
    assert not found["log_likelihood"].lower_is_better
    assert found["inst"]["score_old"].value == 0.75
    assert found["parts.a"]["score_old"].value == 1.5
    assert "left out: f1, bleu, parts.b" in found.read[0]


def results(folder, tasks, day=2):
    """A folder as lm-evaluation-harness writes it: task to the metrics of its rows."""
    date = f"2026-01-0{day}T00-00-00.000000"
    inner = folder / "model"
    inner.mkdir(parents=True, exist_ok=True)
    for task, metrics in tasks.items():
        more = metrics | {"metrics": list(metrics)}
        rows = [row | more for row in harness([1] * 4, ["none"])]
        for row in rows:
            row["prompt_hash"] += task
        jsonl(inner / f"samples_{task}_{date}.jsonl", rows)
    return folder, inner / f"results_{date}.json"


def test_a_folder_of_the_harness_is_its_latest_files(tmp_path, capsys):
    results(tmp_path / "one", {"a": {"em": 1.0}}, day=1)
    one, _ = results(tmp_path / "one", {"a": {"em": 0.5}})
    two, logged = results(tmp_path / "two", {"a": {"em": 0.7}})
    logged.write_text(json.dumps({"higher_is_better": {"a": {"em": False}}}))
    found = compare_outcomes(one, two)["em"]
    assert found["score_change"].value == pytest.approx(0.2)
    assert found.lower_is_better and found["share_worse"].value == 1.0
    logged.unlink()
    for folder, worth in ((one, 1.0), (two, 0.0)):
        results(folder, {"b": {"em": worth, "only": 1.0}})
    found = compare_outcomes(one, two, by=["task"])
    assert found.examples == 8
    changes = [of.quantities["score_change"].value for of in found["em"].groups]
    assert changes == pytest.approx([0.2, -1.0])
    assert "the latest of 3 files" in found.read[0]
    assert "only (not of every task)" in found.read[0]
    assert main([str(one)]) == 2
    assert "NEW is missing" in capsys.readouterr().err
    results(one, {"b": {"only": 1.0}})
    said = r"no metric in common .*suite OLD NEW.*samples_a_2026"
    fails(said, compare_outcomes, one, two)
    (two / "model").rename(one / "other")
    assert main([str(one)]) == 2
    assert "results of several models, model, other; name" in capsys.readouterr().err


def test_a_folder_has_several_tasks_and_filters(tmp_path):
    rows = {"a": [*harness([1, 0])], "b": [*harness([1, 1, 0])]}
    for row in rows["b"][3:]:  # without an answer of the filter `flexible`
        row["filtered_resps"] = []
    for task, of in rows.items():
        jsonl(tmp_path / f"samples_{task}.jsonl", of)
    logged = {"higher_is_better": {"a": {"f1": True}, "b": {"em,flexible": False}}}
    (tmp_path / "results_1.json").write_text(json.dumps(logged))
    found = read_outcomes(tmp_path)
    assert found.columns["em,strict"].tolist() == [[1, 0, 1, 1, 0]]
    assert found.columns["em,flexible"].tolist() == [[1] * 5]
    assert {*found.measures} == {"em,strict", "em,flexible", "answer,strict"}
    assert found.less["em,flexible"] and not found.less.get("em,strict")
    assert [*found.ids] == ["a/0", "a/1", "b/0", "b/1", "b/2"]
    logged["higher_is_better"]["b"]["f1"] = False
    (tmp_path / "results_1.json").write_text(json.dumps(logged))
    said = "more of f1 is better in one task and less in b; .* suite`"
    fails(said, read_outcomes, tmp_path)


def test_noise_is_that_of_all_pairs_of_runs_of_any_kind(rng, tmp_path, capsys):
    ids, labels = np.arange(40) + 7, np.arange(40) % 3
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(3, 40, 3))
    paths = [tmp_path / f"{r}.npz" for r in range(3)]
    for path, run in zip(paths, logits):
        order = rng.permutation(40)
        np.savez(path, ids=ids[order], labels=labels[order], logits=run[order])
    classes = logits.argmax(-1)
    pairs = ((0, 1), (0, 2), (1, 2))
    differ = np.mean([np.mean(classes[a] != classes[b]) for a, b in pairs])
    found = noise_floor(*paths)["prediction"]
    assert found["runs_differ"].value == pytest.approx(differ)
    assert found["runs_agree"].value == np.mean((classes == classes[0]).all(axis=0))
    np.testing.assert_allclose(found.of_runs, (classes == labels).mean(axis=1))
    for shard in range(2):
        at = slice(20 * shard, 20 * (shard + 1))
        facts = ids[at], labels[at], 3, 3
        with ShardWriter(tmp_path / "store", shard, 2, *facts) as writer:
            writer.write(logits[:, at])
    write_index(tmp_path / "store", 2)
    of_store = noise_floor(tmp_path / "store")["prediction"]
    assert of_store["runs_differ"] == found["runs_differ"]
    few = {"id": ids[:30], "logits": logits[0, :30]}
    fails("10 of 40 ids are only in .*--on-missing intersect", noise_floor, *paths, few)
    assert noise_floor(*paths, few, on_missing="intersect").examples == 30
    page = tmp_path / "noise.html"
    words = ["--noise", *map(str, paths), "--html", str(page)]
    assert main(words) == 0 and "<h2>The runs</h2>" in page.read_text()
    names = re.findall(r"<t[hd][^>]*>(Old|Runs)<", page.read_text())
    assert names == ["Runs"]
    said = " ".join(capsys.readouterr().out.split())
    ends = [f"{100 * end:.2f}" for end in (min(found.of_runs), max(found.of_runs))]
    assert f"from {ends[0]} to {ends[1]} % over runs (standard deviation" in said
    assert "Two of 3 runs differ on" in said and "All: read: id, label" in said
    assert main(["--noise", str(paths[0])]) == 2
    assert "at least two runs" in capsys.readouterr().err
    assert main(["--noise", *map(str, paths), "--by", "x"]) == 2
    assert "--by is for OLD and NEW, not for --noise" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["prediction", "correct"])
def test_the_command_lists_more_regressions_than_a_call(tmp_path, kind):
    sides = [
        csv_file(tmp_path / name, id=range(70), label=[1] * 70, **{kind: [right] * 70})
        for name, right in (("old.csv", 1), ("new.csv", 0))
    ]
    files = {ending: tmp_path / f"a.{ending}" for ending in ("json", "html")}
    words = [f"--{name}={path}" for name, path in files.items()]
    assert main([*sides, *words, "--confirm", "below-chance"]) == 0
    found = json.loads(files["json"].read_text())
    of_kind = found if kind == "prediction" else found["measures"][0]
    listed = "regressions" if kind == "prediction" else "changes"
    assert len(of_kind[listed]) == 70
    assert "<summary>20 more<" in files["html"].read_text()


def test_runs_within_a_tolerance_of_the_first_may_differ_from_each_other():
    scores = [[0.5, 0.5], [0.509, 0.5001], [0.491, 3.0]]
    found = noise_floor(*({"score": run} for run in scores), tolerance=0.01)["score"]
    assert found["runs_agree"].value == 0
    assert [(c.old, c.new) for c in found.changes] == [("0.5", "3"), ("0.509", "0.491")]
    runs = {"id": [1, 2] * 3, "run": [0, 0, 1, 1, 2, 2], "score": np.ravel(scores)}
    both = compare_outcomes(runs, runs, tolerance=0.01, confirm=["same-file"])["score"]
    assert both["stability_old"].value == 0


LOGS = Path(__file__).parent / "logs"  # experiments/compare/evaluation_logs.py


def test_logs_that_the_tools_wrote(tmp_path):
    found = compare_outcomes(*(LOGS / f"samples_sums_{i}.jsonl" for i in (1, 2)))
    assert [measure.name for measure in found.measures] == ["acc", "answer"]
    assert found["acc"]["accuracy_old"].value == 0.625  # what lm_eval printed
    assert found["acc"]["accuracy_new"].value == 0.375
    assert found["answer"]["share_changed"].value == 0.625  # the choices' numbers
    assert not found.notes  # hashes of prompts vouch for ids that count
    free = [LOGS / "samples_free_1.jsonl"] * 2
    fails("--confirm same-file", compare_outcomes, *free)
    same = {"confirm": ["same-file"]}
    assert compare_outcomes(*free, **same)["exact_match"]["churn"].value == 0.0
    sides = [LOGS / f"inspect_{side}.eval" for side in ("old", "new")]
    said = "holds 2 Inspect logs, inspect_new"
    fails(said, compare_outcomes, LOGS, LOGS, **same)
    (tmp_path / "old").mkdir()
    shutil.copy(sides[0], tmp_path / "old")
    found = compare_outcomes(tmp_path / "old", sides[1])
    assert found["match"].runs == (2, 2) and found.examples == 6
    rates = {name: i.value for name, i in found["match"].quantities.items()}
    assert rates["negative_flip_rate"] == pytest.approx(1 / 6)  # s2
    assert rates["positive_flip_rate"] == pytest.approx(2 / 6)  # s1, s4
    assert rates["stability_old"] == rates["stability_new"] == 1.0


def inspect_log(path, scores, **more):
    """A log with the scores of each sample."""
    asked = [{"id": str(path), "role": "user", "content": "?"}]
    failed = {"error": {"message": "no"}}
    samples = [
        {"id": i, "epoch": 1, "input": asked} | ({"scores": of} if of else failed)
        for i, of in enumerate(scores)
    ]
    log = {"version": 2, "status": "success", "eval": {}, "samples": samples}
    path.write_text(json.dumps(log | more))
    return path


def test_logs_of_inspect_of_every_kind(tmp_path, capsys):
    def logs(old, new, **more):
        sides = (("old", old), ("new", new))
        return [inspect_log(tmp_path / f"{n}.json", of, **more) for n, of in sides]

    grid = [{"grid": {"value": {"a": a, "b": 1.0, "c": [1]}}} for a in "CIC"]
    sides = logs(grid, [*grid[::-1], None], status="error")
    found = compare_outcomes(*sides, on_missing="intersect")
    assert [m.name for m in found.measures] == ["grid.a", "grid.b"]
    assert "4 samples, 1 with an error" in found.read[1]
    assert "status error" in found.read[0] and "left out: grid.c" in found.read[0]
    for name in ("answer", "error", "id", "input_hash", "label"):  # taken
        right, wrong = ({name: {"value": v, "answer": "x"}} for v in "CI")
        found = compare_outcomes(*logs([right, right], [right, wrong]))
        means = [of.value for of in found[f"{name},score"].quantities.values()][:2]
        assert means == [1, 0.5]  # of old and new
        assert found["answer"]["share_changed"].value == 0 and found.examples == 2
    one = [{"m": {"value": "C", "answer": "x"}, "n": {"value": "C", "answer": "y"}}]
    found = compare_outcomes(*logs(one, [dict(reversed(one[0].items()))]))
    assert found["answer,m"]["share_changed"].value == 0  # in any order of scorers

    letters = [[{"match": {"value": grade}} for grade in of] for of in ("ABC", "BBF")]
    paths = logs(*letters)
    words = [*map(str, paths)]
    assert main(words) == 2
    assert "A, B; add --grades A=... B=... C=... with" in capsys.readouterr().err
    for last in ("F=x", "A=0.5"):  # no number, and twice
        assert main([*words, "--grades", "A=1", "B=.5", last]) == 2
        assert f"each grade once, A=1 B=0.5; got '{last}'" in capsys.readouterr().err
    grades = {"A": 1.0, "B": 0.5, "C": 0.25, "F": 0.0}
    found = compare_outcomes(*paths, grades=grades)["match"]
    assert found["score_change"].value == pytest.approx(-0.25)
    given = [f"{n}={x}" for n, x in grades.items()]
    assert main([*words, "--grades", *given, "--min-score-change", "0"]) == 1
    few = {"grades": {"A": 1, "B": 0, "F": 0}}  # without Inspect's C
    fails("grades without a number, C", compare_outcomes, *paths, **few)
    table = {"score": ["A", "F"]}
    assert compare_outcomes(table, table, grades=grades)["score"].judged
    path = inspect_log(tmp_path / "none.json", [], samples=None)
    fails("has no samples; evaluate again", read_outcomes, path)
    first = {"results": {"scorer": {"name": "match"}}, "version": 1}
    first["samples"] = [{"id": 1, "input": "?", "score": {"value": "C"}}]
    found = read_outcomes(inspect_log(tmp_path / "v1.json", [], **first))
    assert found.columns["match"].tolist() == [[1.0]]
    epochs = [
        {"id": i, "epoch": e, "scores": {"match": {"value": "CIP"[(i + e) % 3]}}}
        for i, e in ((0, 1), (0, 2), (1, 1), (1, 2))
    ]
    found = read_outcomes(inspect_log(tmp_path / "epochs.json", [], samples=epochs))
    assert found.columns["match"].tolist() == [[0.0, 0.5], [0.5, 1.0]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_logs_and_gates_may_begin_with_a_byte_order_mark(encoding, tmp_path):
    path = inspect_log(tmp_path / "a.json", [{"m": {"value": "C"}}])
    path.write_text(path.read_text(), encoding=encoding)
    assert read_outcomes(path).columns["m"].tolist() == [[1.0]]
    gates = tmp_path / "gates.toml"
    gates.write_text("max-nfr = 0.1", encoding="utf-8-sig")
    assert read_gates(gates)[0].limit == 0.1


def test_an_archive_of_inspect_is_checked_and_rows_are_bounded(tmp_path, monkeypatch):
    whole, path = read_outcomes(LOGS / "inspect_old.eval"), tmp_path / "a.eval"
    content = (LOGS / "inspect_old.eval").read_bytes()
    end = content.index(b"PK", content.index(b"samples/s5_epoch_2.json"))
    for place in range(end - 60, end):  # bits of the last sample, packed by Zstandard
        path.write_bytes(content[:place] + b"?" + content[place + 1 :])
        try:
            found = read_outcomes(path)
        except PredictionsError:
            continue  # nearly all
        assert found.columns["answer"].equals(whole.columns["answer"])
    path = jsonl(tmp_path / "a.jsonl", harness([1], ["none"]))  # its row counts as more
    monkeypatch.setattr("churn_compare.array_files._free_memory", lambda: 700)
    fails("unpacking it would take", read_outcomes, path)
