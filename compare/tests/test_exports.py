"""JUnit XML and rows."""

import dataclasses
import datetime
import types
from xml.etree import ElementTree

from churn_compare import CompareResult, compare_outcomes
from churn_compare.result import GateOutcome
from tests.results import result_of

OUTCOMES = [
    GateOutcome("a < b", "", 1.0, 1.0, True, "PASS  a < b"),
    GateOutcome("b & c", "", 1.0, 1.0, False, 'FAIL  b & c: "x"\x1b[2J ]]>'),
    GateOutcome("d", "", 1.0, 1.0, False, "INCONCLUSIVE  d", "inconclusive"),
]


def test_every_gate_is_a_test_case():
    result = dataclasses.replace(result_of(labelled=False, scored=False), gates=())
    steps = (dataclasses.replace(result, gates=tuple(OUTCOMES)), result)
    versions = types.SimpleNamespace(suites=lambda: [s.suites()[0] for s in steps])
    first, second = ElementTree.fromstring(CompareResult.junit(versions))
    counts = ("tests", "failures", "errors", "skipped", "name", "id")
    assert [first.get(n) for n in counts] == ["3", "1", "0", "1", "old -> new", "0"]
    cases = first.findall("testcase")
    assert [case.get("name") for case in cases] == ["a < b", "b & c", "d"]
    assert [[child.tag for child in case] for case in cases] == [
        [],
        ["failure"],
        ["skipped"],
    ]
    assert cases[1][0].get("message") == cases[1][0].text == 'FAIL  b & c: "x" [2J ]]>'
    assert second.find("testcase").get("name") == "compared, without conditions"
    for suite in (first, second):  # in the order of the Ant task's schema
        tags = list(dict.fromkeys(child.tag for child in suite))
        assert tags == ["properties", "testcase", "system-out", "system-err"]
        datetime.datetime.strptime(suite.get("timestamp"), "%Y-%m-%dT%H:%M:%S")


def test_rows_have_every_number_once():
    result = result_of()
    rows = result.rows()
    assert list(rows[0]) == [
        *("old", "new", "grouping", "group", "examples"),
        *("quantity", "value", "low", "high"),
    ]
    whole = {row["quantity"]: row for row in rows if not row["grouping"]}
    assert list(whole) == list(result.quantities)
    assert whole["churn"]["high"] == result["churn"].high
    keys = [(row["grouping"], row["group"], row["quantity"]) for row in rows]
    assert len(set(keys)) == len(keys) == len(whole) + 6 * len(result.groups)
    (row,) = (r for r in rows if r["group"] == "class 3" and r["quantity"] == "churn")
    group = next(g for g in result.groups if g.name == "class 3")
    assert (row["value"], row["examples"]) == (group["churn"].value, group.examples)


def test_rows_of_outcomes_name_their_measure():
    sides = ({"score": [1, 2, 3, 4], "part": ["a", "a", "b", "b"]} for _ in range(2))
    rows = compare_outcomes(*sides, by=["part"]).rows()
    assert {row["measure"] for row in rows} == {"score"}
    assert {row["group"] for row in rows} == {"", "a", "b"}
