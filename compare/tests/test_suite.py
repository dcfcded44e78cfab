"""Releases of many benchmarks: matched, judged and shown together."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_compare import compare_suite, read_suite
from churn_compare.cli import main
from churn_compare.gates import GateError
from churn_compare.store import ShardWriter, write_index
from churn_compare.suite import Rules, Suite
from tests.cases import csv_file, fails, harness, jsonl

SIDES = ("old", "new")
RULES = """
[benchmark.mmlu]
score = "em"
gates = {max-nfr = "5%", min-accuracy-gain = "-20%"}
[benchmark.latency]
tier = "advisory"
file = "speed.csv"
score = "seconds"
lower-is-better = true
gates = {max-score-change = 0.01}
"""


def release(folder, version, without=(), worse=0.0, timed=True):
    """A folder as lm-eval writes it, with a file of predictions and one of a score."""
    inside = folder / "model"
    inside.mkdir(parents=True)
    for name, examples in (("mmlu", 800), ("arc", 400)):
        if name in without:
            continue
        rng = np.random.default_rng(len(name))
        right = rng.random(examples) < 0.7
        flips = np.random.default_rng(9).random(examples) < worse * (name == "mmlu")
        path = inside / f"samples_{name}_2026-01-0{version}T10-00-00.{version}.jsonl"
        jsonl(path, harness(right & ~flips, ["none"]))
    (inside / "results_2026-01-01T10-00-00.1.json").write_text("{}")
    i = np.arange(60)
    csv_file(folder / "digits.csv", id=i, label=i % 3, prediction=i % 2)
    if timed:
        csv_file(folder / "speed.csv", id=i, seconds=1 + 0.1 * version + i % 7)
    return folder


def folders(path):
    """An empty folder for each side."""
    for side in SIDES:
        (path / side).mkdir()
    return [path / side for side in SIDES]


def test_a_release_with_one_worse_and_one_missing(tmp_path, capsys):
    old = release(tmp_path / "old", 1)
    new = release(tmp_path / "new", 2, without=["arc"], worse=0.12)
    rules = tmp_path / "suite.toml"
    rules.write_text(RULES)
    found = compare_suite(old, new, suite=rules)
    states = {of.name: [g.state for g in of.gates] for of in found.benchmarks}
    assert states == {
        "mmlu": ["fail", "pass", "fail"],  # NFR, gain, that it falls detectably
        "arc": ["fail"],
        "digits": ["pass"],
        "latency": ["fail", "fail"],
    }
    assert [of.name for of in found.benchmarks][-1] == "latency"  # advisory ones last
    assert found.state == "fail" and len(found.gates) == 5
    alone = compare_suite(old, new).benchmarks
    p = {name: m.p for of in alone for name, m in of.measures.items() if m.change}
    assert p["mmlu: em"] < 0.001 and p["digits"] == 1
    (latency,) = (of for of in found.benchmarks if of.name == "latency")
    assert next(iter(latency.measures.values())).lower_is_better
    text = str(found)
    assert "arc: it is missing in new" in text
    assert "Advisory, not counted: latency: score change" in text.replace("\n", " ")
    cases = ElementTree.fromstring(found.junit()).findall(".//testcase")
    assert len(cases) == 5
    words = ["suite", str(old), str(new), "--suite", str(rules)]
    page = tmp_path / "release.html"
    assert main([*words, "--html", str(page)]) == 1
    assert "arc" in page.read_text() and "Written" in capsys.readouterr().out


@pytest.mark.parametrize("lower", [None, False, True])
def test_a_rule_says_which_way_a_score_is_better_whatever_its_name(lower, tmp_path):
    sides = folders(tmp_path)
    for side, shift in zip(sides, (0.0, 1.0)):
        score = np.sin(np.arange(40)) + shift
        csv_file(side / "a.csv", id=range(40), loss=score)
    rules = Rules(score="loss", lower_is_better=lower)
    found = compare_suite(*sides, suite=Suite({"a": rules}))
    (measure,) = found.benchmarks[0].measures.values()
    assert measure.lower_is_better == (lower is not False) != found.passed


def test_errors_and_waivers_are_those_of_the_benchmark(tmp_path):
    sides = folders(tmp_path)
    for side, wrong, errored in zip(sides, (9, 5), (9, 3)):
        samples = [
            {"id": i, "scores": {"m": {"value": "I" if i == wrong else "C"}}}
            | {"error": "timeout" if i == errored else None}
            for i in range(9)
        ]
        day = 2 + (side == sides[0])
        inspect = f"2026-01-0{day}T10-00-00+00-00_b_t_{'x' * day}29MvAbC.json"
        for name in ("a.json", inspect):
            (side / name).write_text(json.dumps({"eval": {}, "samples": samples}))
        csv_file(side / "c.csv", id=range(9), prediction=range(9))
    rules = tmp_path / "suite.toml"
    rules.write_text("""
        [benchmark.a.gates]
        max-nfr = "5%"
        [[benchmark.a.gates.waive]]
        id = "5"
        reason = "wrong label"
        until = 2999-01-01
        [benchmark.b_t]
        errors = "refuse"
        [benchmark.c]
        lower-is-better = true
    """)
    found = compare_suite(*sides, suite=rules, errors="drop")
    a, b, c = found.benchmarks
    assert a.result.examples == 8 and a.gates[0].passed
    assert "--errors wrong counts them" in b.missing
    assert c.missing == "lower-is-better is for a score; name it"
    words = ["suite", *map(str, sides), "--suite", str(rules), "--errors", "drop"]
    assert main(words) == 1


def test_a_benchmark_without_labels_or_gates_is_not_judged(tmp_path):
    sides = folders(tmp_path)
    for side in sides:
        csv_file(side / "a.csv", id=range(3), prediction=[side.name, "b", "b"])
        csv_file(side / "c.csv", id=range(3), correct=[1, 0, 1])
    text = str(compare_suite(*sides))
    assert "Not judged, without labels or gates: a." in text
    assert text.count("PASS") == 3  # of all, of the gate of c, and in its row


def test_one_file_may_serve_several_benchmarks(tmp_path):
    sides = folders(tmp_path)
    for side in sides:
        csv_file(side / "a.csv", id=range(9), acc=np.arange(9.0), seconds=np.ones(9))
    names = {"acc": "a.csv", "seconds": "a.csv", "a": None}
    rules = {name: Rules(file=file, score="acc") for name, file in names.items()}
    found = compare_suite(*sides, suite=Suite(rules))
    assert {of.name: of.missing for of in found.benchmarks} == dict.fromkeys(names, "")


def test_a_benchmark_with_a_file_has_no_other(tmp_path):
    sides = folders(tmp_path)
    for side, right in zip(sides, (1, 0)):
        (side / "sub").mkdir()
        csv_file(side / "mmlu.csv", id=range(30), correct=[1] * 30)
        for name in ("sub/mmlu.csv", "mmlu_5.csv"):
            csv_file(side / name, id=range(30), correct=[right] * 30)
    for file, p, left in (
        ("mmlu_5.csv", 2**-29, ["mmlu.csv", "sub/mmlu.csv"]),
        ("./sub/mmlu.csv", 2**-29, ["mmlu.csv"]),
        ("mmlu_6.csv", None, ["mmlu.csv", "sub/mmlu.csv"]),
    ):
        found = compare_suite(*sides, suite=Suite({"mmlu": Rules(file=file)}))
        first = found.benchmarks[0]
        assert first.name == "mmlu" and not found.passed
        assert [m.p for m in first.measures.values()] == [p] * (p is not None)
        assert found.left_out == tuple(f"{s.name}/{of}" for s in sides for of in left)
        if p is None:
            assert first.missing == "mmlu_6.csv is missing in old and in new"
    two = Suite({"arc": Rules(file="mmlu.csv")})  # in the folder itself
    assert compare_suite(*sides, suite=two).benchmarks[0].adjusted_p == (1,)
    for side in sides:
        (side / "more").mkdir()
        (side / "mmlu.csv").rename(side / "more" / "mmlu.csv")
    fails("both called 'arc'; .* with its folders", compare_suite, *sides, suite=two)


def test_equal_releases_pass(tmp_path, monkeypatch):
    old, new = (release(tmp_path / name, 1, timed=False) for name in SIDES)
    log = {"eval": {}, "samples": [{"id": 1, "scores": {"m": {"value": "C"}}}]}
    for side in (old, new):
        csv_file(side / "summary_cnn.csv", id=[1, 2], label=[0, 1], prediction=[0, 1])
        (side / "bias.json").write_text(json.dumps(log))
        (side / "setting.json").write_text("{}")
        (side / "summary.xlsx").touch()
        deep = side.joinpath(*"12345")
        deep.mkdir(parents=True)
        (side / "digits.csv").rename(deep / "digits.csv")
    found = compare_suite(old, new)
    names = [of.name for of in found.benchmarks]
    assert found.passed and names == ["arc", "bias", "digits", "mmlu", "summary_cnn"]
    assert "Files left out: old/model/results_2026" in str(found)
    assert found.left_out[1::3] == ("old/setting.json", "new/setting.json")
    assert found.left_out[2::3] == ("old/summary.xlsx", "new/summary.xlsx")
    assert main(["suite", str(old), str(new)]) == 0
    labels = np.arange(40) % 2
    for side, factor in ((old, 4.0), (new, 0.0)):
        store = side / "model" / "store"
        with ShardWriter(store, 0, 1, np.arange(40), labels, 1, 2) as writer:
            writer.write(factor * np.eye(2)[labels][None])
        write_index(store, 1)
        (side / "parts").mkdir()
        csv_file(side / "parts" / "part-00000.csv", id=[1], correct=[1])
    found = compare_suite(old, new)
    of_store, of_parts = (found.benchmarks[i] for i in (5, 4))
    assert (of_store.name, of_store.gates[0].passed) == ("store", False)
    assert (of_parts.name, len(found.benchmarks)) == ("parts", 7)
    assert "folder of 1 parts of one table" in of_parts.missing
    fails("not a folder of results; .* without suite", compare_suite, store, store)
    for side in SIDES:
        (tmp_path / f"run-{side}").mkdir()
        (tmp_path / side).rename(tmp_path / f"run-{side}" / "results")
    monkeypatch.chdir(tmp_path / "run-new" / "results")
    found = compare_suite("../../run-old/results", ".")
    assert found.title == "run-old/results → run-new/results"


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ('tier = "needed"', 'tier must be "required" or "advisory"'),
        ('errors = "no"', 'errors must be "wrong" or "drop" or "refuse"'),
        ("[benchmark.a]\ngates = {waive = [{}]}", "waiver 1: a waiver needs id and"),
        ("[benchmark.a]\nscor = 1", "unknown key 'scor'; did you mean score"),
        ("[benchmark.a]\nscore = 1", "score must be a str"),
        ("[benchmark.a]\ngates = {max-nfx = 1}", "benchmark.a: max-nfx: unknown key"),
        ("[benchmark.a]\ngates = 3", "gates must be a table"),
        ("[benchmark.a.gates]\n", "benchmark.a: there is no gate in it, such"),
        ("benchmark = 3", "benchmarks are tables"),
        ("a b", "not a TOML file"),
    ],
)
def test_wrong_rules_are_refused(rules, error, tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(rules)
    fails(r"suite\.toml: .*" + error, read_suite, path, of=GateError)


def test_wrong_folders_are_refused(tmp_path):
    old, new = (release(tmp_path / name, 1, timed=False) for name in SIDES)
    (new / "more").mkdir()
    (new / "more" / "samples_mmlu.jsonl").write_text("{}")
    fails("are both called 'mmlu'; keep one", compare_suite, old, new, suite=Suite())
    fails("this is not a folder of results", compare_suite, old, tmp_path / "none")
    (tmp_path / "empty").mkdir()
    fails("no files of results", compare_suite, old, tmp_path / "empty")


def test_of_many_benchmarks_one_may_look_worse_by_chance(tmp_path):
    sides = folders(tmp_path)
    for side, flips in zip(sides, ((3, 4), range(10, 20))):
        for name in "abcd":
            right = ~np.isin(np.arange(60), flips if name == "a" else ())
            columns = {"id": range(60), "label": [1] * 60, "prediction": right * 1}
            csv_file(side / f"{name}.csv", **columns)
    found = compare_suite(*sides)
    p = found.benchmarks[0].adjusted_p[0]  # by Holm; 10 and 2 flips have p 0.0386
    assert p == pytest.approx(4 * 0.0386, abs=4e-4) and found.passed
