"""One comparison as a page, in a terminal, a notebook, Markdown and a record."""

import dataclasses
import datetime
import io
import json
import math
import re
import types
from importlib import resources
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from churn_compare import CompareResult, compare, report, tables
from churn_compare.comparison import compare_pair
from churn_compare.documents import (
    Document,
    Text,
    html_fragment,
    html_page,
    plain_text,
    print_document,
)
from churn_compare.escaping import markdown_text, printable
from churn_compare.number_text import value_text
from churn_compare.quantities import QUANTITIES
from churn_compare.report import reliability
from churn_compare.result import Flow, GateOutcome, Interval, Regression
from churn_compare.tables import changes_table, flow_map, group_blocks, singles_table
from churn_compare.verdict import gate_sentence, sentences
from tests.cases import NAN, pair_of, result_of
from tests.html_page import Page

COMMAND = "churn-jax compare a.npz b.npz --html c.html"
HEADINGS = (
    "Both versions,The update,Where changed predictions go,"
    "Probabilities,Classes,Slices by region,Largest regressions,What was run"
).split(",")


@pytest.fixture(scope="module")
def whole():
    """Several runs, labels, logits, slices and gates."""
    return result_of(runs=3)


@pytest.fixture(scope="module")
def text(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = whole.save_html(folder / "deep" / "page.html", command=COMMAND)
    return path.read_text(encoding="utf-8")


def test_the_page_is_whole_and_needs_nothing_else(text):
    page = Page(text)
    assert len(text) < 600_000
    unwanted = {"script", "link", "iframe", "object", "base", "img", "form"}
    assert not unwanted & set(page.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    for link in (*page.of("src"), *page.of("href"), *page.of("xlink:href")):
        assert link.startswith("#")
    for address in re.findall(r"https?://[^\s\"'<]*", text):
        assert address.startswith("http://www.w3.org/"), address  # names of SVG
    ids = page.of("id")
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]*)\)", text))
    used |= {link[1:] for link in page.of("xlink:href")}
    assert used and used <= set(ids)
    assert len(page.tables) >= 8
    assert all(len(set(rows)) == 1 for rows in page.tables)


def test_every_part_of_a_whole_comparison_is_on_the_page(whole, text):
    page = Page(text)
    assert page.headings == [*HEADINGS[1:], "Glossary"]
    shown = " ".join(page.text).replace("\u00a0", " ")
    for fact in (
        "old → new",
        "2,000 examples; each: logits, 10 classes, 3 runs",
        COMMAND,
        "FAILED: 1 of 2 gates does not hold.",
        *(outcome.line.removeprefix("PASS").strip() for outcome in whole.gates[1:]),
        *sentences(whole),
        "✗ worse",
        "✓ better",
        "not detectable",
        "Adjusted p (Holm)",
        whole.regressions[0].id,
        "numpy 2",
    ):
        assert fact in shown, fact
    # The verdict comes before every table, the gates next to it.
    first = text.index("FAILED"), text.index("The update changes")
    assert first[0] < first[1] < text.index("<table")
    assert text.index('<strong class="bad">FAIL</strong>') < text.index("<table")


def test_hundreds_of_classes_are_listed_in_a_small_page(rng, monkeypatch):
    labels = np.arange(3600) % 300
    old, new = (np.where(rng.random(3600) < 0.8, labels, 7) for _ in range(2))
    result = compare_pair(pair_of(old[None], new[None], labels)[0], resamples=100)
    listed = Regression("x" * 300, "a" * 300, "b", "c", 0.5, 0.5, 0.1, 1.0)
    some = {"regressions": (listed,) * 500, "regressions_total": 3000}
    monkeypatch.setattr(tables, "LISTED", 450)
    text = html_page(dataclasses.replace(result, **some).document())
    assert len(text.encode()) < 700_000
    assert "<details><summary>270 more</summary>" in text
    assert 1 + 270 in map(len, Page(text).tables)
    openly = text[text.index("<h2>Classes") : text.index("<summary>270 more")]
    assert openly.count("<tr>") == 1 + 30
    assert "3,000 in all" in text and "400 more" in text
    one = compare_pair(pair_of([[0, 1, 1]], [[0, 1, 0]], [0, 1, 1])[0], resamples=100)
    assert "1 example changes its class, from" in plain_text(one.terminal(full=True))


def test_the_groups_that_changed_most_surely_come_first(monkeypatch):
    group = result_of().groups[0]
    adjusted = np.random.default_rng(0).permutation(np.linspace(0.001, 0.199, 100))
    groups = [
        dataclasses.replace(group, name=f"class {i}", p=p / 100, adjusted_p=p)
        for i, p in enumerate(adjusted)
    ]
    section = html_fragment(group_blocks(result_of(), "class", groups))
    openly = section[: section.index("<summary>70 more<")]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", openly, re.DOTALL)
    p = [float(re.findall(r"<td>([^<]*)</td>", row)[-1]) for row in rows]
    assert p == pytest.approx(np.linspace(0.001, 0.199, 100)[:30], abs=6e-4)
    word = "worse" if group["accuracy_gain"].value < 0 else "better"
    assert [word in row for row in rows] == [True] * 25 + [False] * 5  # below 0.05
    assert f"<strong>25 {word}</strong>" in section
    one = compare([0, 1], [0, 0], slices={"a": ["x", "x"]})
    section = html_fragment(group_blocks(one, "a", one.groupings["a"]))
    assert "1 group, the most changed first." in section
    monkeypatch.setattr(tables, "_ROWS", 40)
    many = group_blocks(result_of(), "class", groups)[-1]
    assert many.summary == "10 more of 100; --json writes all"
    assert "\n10 more of" in plain_text(Document("", blocks=[Text("."), many]))


def test_figures_are_small_and_in_the_colour_of_the_page_or_tables(whole, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(report, "has_matplotlib", lambda: False)
        page = html_page(whole.document())
    assert "<svg" not in page
    assert "Reliability" in page and "Where changed predictions go" in page
    pytest.importorskip("matplotlib")
    drawn = reliability(**whole.curves)
    assert ElementTree.fromstring(drawn).get("aria-label")
    assert "currentColor" in drawn and len(drawn) < 600_000


def test_changes_between_classes_are_a_heat_map():
    flow = Flow(("cat", "dog"), ("dog", "cat"), (6.0, 3.0), (5.0, 0.0), (1.0, 3.0))
    page = html_fragment([flow_map(flow)])
    assert "6<small>5 worse</small>" in page
    assert page.count("70%") == 1 and page.count("35%") == 1  # 6 and 3 of 6
    names = [f"c{i:02}" for i in range(20)]
    table = flow_map(Flow(names, names[::-1], (1.0,) * 20, (0.0,) * 20, (0.0,) * 20))
    assert table.heads[-1].heading == table.cells[-1][0].text == "9 others"
    counted = sum(int(c.text or 0) for row in table.cells for c in row[1:])
    assert counted == 20 and len(table.rows) == 12


def test_numbers_that_are_infinite_or_undefined_are_said_to_be(whole):
    odd = {
        **whole.quantities,
        "nll_old": Interval(math.inf, NAN, NAN),
        "relative_negative_flip_rate": Interval(NAN, NAN, NAN),
    }
    for name in ("ece_old", "ece_change"):  # of a version without scores
        del odd[name]
    result = dataclasses.replace(whole, quantities=odd)
    changes = html_fragment(changes_table(result))
    assert "<td>inf</td>" in changes and changes.count("<td>–</td>") == 2
    single = html_fragment([singles_table(result)])
    assert re.search(r"<td>–</td>\s*<td>undefined</td>", single)


def test_a_notebook_shows_verdict_gates_and_numbers_in_its_own_style(whole):
    html = whole._repr_html_()
    page = Page(html)
    shown = " ".join(page.text)
    for fact in ("FAILED", "FAIL", "PASS", "Accuracy", "Relative NFR"):
        assert fact in shown, fact
    assert "svg" not in page.tags and len(html) < 20_000
    assert "mathjax_ignore" in html  # $x$ in a name is not a formula
    style = resources.files("churn_compare.documents") / "templates" / "fragment.css"
    rules = re.sub(r"/\*.*?\*/", "", style.read_text())  # without comments
    for rule in re.findall(r"([^{}]+)\{", rules):
        assert all(s.strip().startswith(".churn-jax") for s in rule.strip().split(","))
    assert not re.search(r"[{;](color|background):(?!inherit|none)", rules)


def test_every_part_of_a_full_comparison_is_printed(whole):
    result = dataclasses.replace(whole, notes=("3 rows were left out",))
    text = plain_text(result.terminal(full=True), 120)
    assert all(f"\n{heading}" in text for heading in HEADINGS)
    flowing = " ".join(text.split())
    assert all(sentence in flowing for sentence in sentences(result))
    assert "Note: 3 rows were left out" in text
    for name, interval in result.quantities.items():
        assert value_text(interval, QUANTITIES[name].unit) in text, name
    assert f"worst first; {result.regressions_total} in all." in flowing
    for regression in result.regressions[:10]:
        assert regression.id in text
    assert all(printable(outcome.line) in text for outcome in result.gates)
    brief = str(result)
    assert brief.index(gate_sentence(result.gates)) < brief.index("The update changes")
    assert len(brief.splitlines()) < 45 and "Slices" not in brief


@pytest.mark.parametrize(
    ("width", "names"), [(60, tuple(f"kind-{i} " * 6 for i in range(10))), (120, None)]
)
def test_printed_lines_fit_and_numbers_are_whole(width, names):
    result = result_of(runs=2, names=names)
    text = plain_text(result.terminal(full=True), width)
    assert width - 20 < max(map(len, text.splitlines())) <= width
    assert value_text(result["accuracy_gain"], "points") in text
    group = next(g for g in result.groups if g.grouping == "region")
    assert f"{group.examples} " in text
    explained = QUANTITIES["negative_flip_rate"].formula in text
    assert explained == (width >= 100)


def test_a_terminal_gets_colours_and_a_file_none(whole):
    printed = {}
    for terminal, c in ((True, "standard"), (False, "auto")):
        file = io.StringIO()
        console = Console(file=file, width=80, force_terminal=terminal, color_system=c)
        print_document(whole.terminal(), console)
        printed[terminal] = file.getvalue()
    assert "\x1b[" in printed[True] and "\x1b[" not in printed[False]
    assert re.sub(r"\x1b\[[\d;]*m", "", printed[True]) == printed[False]


@pytest.mark.parametrize("labelled", [True, False])
def test_markdown_has_gates_then_sentences_then_every_number(labelled):
    result = result_of(runs=2, labelled=labelled)
    text = result.markdown()
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    split = r"(?<!\\)\|"  # pipes that are not escaped
    tables = [[re.split(split, x)[1:-1] for x in b.splitlines()] for b in blocks]
    groupings = len(result.groupings)  # a table each
    assert groupings and len(tables) == groupings + (3 if labelled else 1)
    for head, line, *rows in tables:
        assert rows and all(len(row) == len(head) for row in (line, *rows))
        assert all(re.fullmatch(":--|--:", cell) for cell in line)
    assert ("| Accuracy (" in text) == labelled
    churn = f"| Churn (lower is better) | {value_text(result['churn'], 'share')} | "
    assert churn in text
    said = [f"{markdown_text(sentence)}\n" for sentence in sentences(result)]
    assert "**FAILED: 1 of 2 gates does not hold.**" in text
    lines = (outcome.line.split("  ", 1)[1] for outcome in result.gates)
    places = [text.index(markdown_text(line)) for line in lines]
    places += map(text.index, said)
    assert places == sorted(places)
    assert "FAIL" not in dataclasses.replace(result, gates=()).markdown()
    cut = dataclasses.replace(result, notes=("x" * 99 for _ in range(999))).markdown()
    assert len(cut) <= 65_536 and cut.endswith("--html has all of it.\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\|b", r"a\\\|b"),
        ("1. first", r"1\. first"),
        ("# head", r"\# head"),
        ("## head", r"\## head"),
        ("- item", r"\- item"),
        ("-0.5 to 1", "-0.5 to 1"),
        ("a@b", "a@\u200bb"),
        ("&lt;", r"\&lt;"),
        ("95 % (3.9)", "95 % (3.9)"),
    ],
)
def test_what_is_escaped_in_markdown(text, expected):
    assert markdown_text(text) == expected


def test_a_record_has_every_field_and_is_json(whole):
    result = dataclasses.replace(whole, quantities={**whole.quantities})
    result.quantities["nll_old"] = Interval(math.inf, NAN, -math.inf)
    record = result.to_dict()
    fields = [field.name for field in dataclasses.fields(result)]
    assert list(record) == ["format", "passed", "state", "verdict", *fields]
    assert (record["format"], record["passed"]) == (1, False)
    assert record["verdict"] == list(sentences(result))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert list(record["quantities"]) == list(result.quantities)
    assert record["quantities"]["churn"] == dataclasses.asdict(result["churn"])
    assert set(record["quantities"]["nll_old"].values()) == {None}
    of_group = record["groups"][0]["quantities"]["churn"]
    assert of_group == dataclasses.asdict(result.groups[0]["churn"])
    assert len(record["regressions"]) == len(result.regressions)
    assert list(record["curves"]) == ["old", "new"]
    unlabelled = result_of(labelled=False).to_dict()
    assert list(unlabelled["groups"][0]["quantities"]) == ["churn"]
    assert set(unlabelled["flow"]["negative"]) == {None}


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
    assert first.get("package") == "churn_compare"
    counts = ("tests", "failures", "errors", "skipped", "name", "id")
    assert [first.get(n) for n in counts] == ["3", "1", "0", "1", "old -> new", "0"]
    cases = first.findall("testcase")
    assert [case.get("name") for case in cases] == ["a < b", "b & c", "d"]
    tags = [[child.tag for child in case] for case in cases]
    assert tags == [[], ["failure"], ["skipped"]]
    strict = CompareResult.junit(versions, "failure")
    assert (strict.count("</failure>"), strict.count("<skipped")) == (2, 0)
    assert cases[1][0].get("message") == cases[1][0].text == 'FAIL  b & c: "x" [2J ]]>'
    assert second.find("testcase").get("name") == "compared, without conditions"
    for suite in (first, second):  # in the order of the Ant task's schema
        tags = list(dict.fromkeys(child.tag for child in suite))
        assert tags == ["properties", "testcase", "system-out", "system-err"]
        datetime.datetime.strptime(suite.get("timestamp"), "%Y-%m-%dT%H:%M:%S")
