"""One page that needs nothing else, holds what there is to say and trusts no file."""

import base64
import dataclasses
import hashlib
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_jax.comparison.figures import (
    churn_bars,
    confidence_and_displacement,
    reliability,
)
from churn_jax.comparison.group_tables import group_blocks
from churn_jax.comparison.result import GateOutcome, Interval, Regression
from churn_jax.comparison.tables import changes_table, singles_table
from churn_jax.documents import html_fragment, html_page
from tests.comparison.results import NAN, fake_result

STYLE, SCRIPT = (
    resources.files("churn_jax.documents").joinpath("templates", name).read_text()
    for name in ("fragment.css", "page.js")
)
STYLE = re.sub(r"/\*.*?\*/", "", STYLE)  # without comments
VOID = {"meta", "br", "link", "img", "input", "hr"}
EVIL = '<script>alert("x")</script>&$a_b$\' 日本語'


class Page(HTMLParser):
    """Checks nesting; collects tags, attributes, text and the rows of tables."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.headings, self.rows = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "table":
            self.rows.append([])
        elif tag == "tr":
            self.rows[-1].append(0)
        elif tag in ("td", "th"):
            self.rows[-1][-1] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture(scope="module")
def whole():
    """Several runs, labels, logits, slices and gates."""
    return fake_result(runs=3)


@pytest.fixture(scope="module")
def text(whole):
    return html_page(whole.page("churn-jax compare a.npz b.npz --html c.html"))


def test_the_page_needs_no_network_and_runs_one_known_script(text):
    page = Page(text)
    assert not {"link", "iframe", "object", "base", "img", "form"} & set(page.tags)
    assert page.tags.count("script") == 1
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#"), value
    for url in re.findall(r"url\(([^)]*)\)", text):
        assert url.startswith("#"), url
    for address in re.findall(r"https?://[^\s\"'<]*", text):
        assert address.startswith("http://www.w3.org/"), address  # names of SVG
    assert "@import" not in text
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"<script>{SCRIPT}</script>" in text
    assert f"script-src 'sha256-{digest}'" in text


def test_ids_are_unique_and_references_resolve(text):
    page = Page(text)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]*)\)", text))
    used |= {v[1:] for n, v in page.attributes if n == "xlink:href" and v[0] == "#"}
    assert used and used <= set(ids)


def test_every_part_of_a_whole_comparison_is_there(text):
    page = Page(text)
    assert page.headings == [
        "Numbers",
        "More than retraining?",
        "Where changed predictions go",
        "Probabilities",
        "Classes",
        "Slices by region",
        "Largest regressions",
        "What was run",
        "Glossary",
    ]
    shown = " ".join(page.text).replace("\u00a0", " ")
    for fact in (
        "model-2026-03.npz → model-2026-11.npz",
        "2,000 examples · each: logits, 10 classes, 3 runs",
        "churn-jax compare a.npz b.npz",
        "FAILED: 1 of 2 gates does not hold.",
        "churn at most 5 %: 6.3 %",
        "The update changes 6.3 % of predictions (95 % interval",
        "Retraining the same version alone",
        "✗ worse",
        "✓ better",
        "not detectable",
        "Adjusted p (Holm)",
        "image-00048",
        "right before, wrong now (82)",
        "numpy 2",
    ):
        assert fact in shown, fact
    # The verdict comes before every table, the gates beside it.
    assert (
        text.index("FAILED") < text.index("The update changes") < text.index("<table")
    )
    assert text.index('<strong class="bad">FAIL</strong>') < text.index("<table")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (
            {"labelled": False},
            {"Classes", "Largest regressions", "More than retraining?"},
        ),
        ({"scored": False}, {"Probabilities", "More than retraining?"}),
        ({"scored": False, "labelled": False}, {"Probabilities", "Classes"}),
        ({"groupings": ()}, {"Slices by region", "More than retraining?"}),
    ],
)
def test_a_page_leaves_out_what_the_predictions_cannot_say(whole, kind, missing):
    text = html_page(fake_result(gates=False, **kind).page())
    page = Page(text)
    assert not missing & set(page.headings)
    assert {"Numbers", "Where changed predictions go", "Glossary"} <= set(page.headings)
    assert "PASSED" not in text and "FAILED" not in text
    assert "nan" not in " ".join(page.text).lower().split()


def test_rows_of_a_table_are_as_long_as_its_head(text):
    tables = Page(text).rows
    assert len(tables) >= 8
    for rows in tables:
        assert len(set(rows)) == 1, rows


def test_whatever_comes_from_a_file_is_escaped():
    result = fake_result(classes=3, names=[f"{EVIL}{c}" for c in range(3)])
    spoiled = dataclasses.replace(
        result,
        old=dataclasses.replace(result.old, name=EVIL),
        new=dataclasses.replace(result.new, name=EVIL),
        groups=tuple(
            dataclasses.replace(group, grouping=EVIL, name=EVIL)
            for group in result.groups
        ),
        regressions=tuple(
            dataclasses.replace(regression, id=EVIL)
            for regression in result.regressions
        ),
        gates=(GateOutcome(EVIL, EVIL, 0.1, 0.2, True, f"PASS  {EVIL}"),),
        notes=(EVIL,),
        curves=None,  # there is no text from a file in these
        points=None,
    )
    page = Page(html_page(spoiled.page(EVIL)))
    assert page.tags.count("script") == 1
    assert "".join(page.text).count('alert("x")') > 20
    page = Page(spoiled._repr_html_())
    assert "script" not in page.tags
    assert "".join(page.text).count('alert("x")') >= 4


def test_a_thousand_classes_are_listed_in_a_small_page():
    result = fake_result(classes=1000, examples=15_000)
    listed = Regression("x" * 300, "a" * 300, "b", "c", 0.5, 0.5, 0.1, 1.0, 1.0)
    text = html_page(dataclasses.replace(result, regressions=(listed,) * 500).page())
    assert len(text.encode()) < 2_000_000
    assert "<details><summary>All 1,000</summary>" in text
    page = Page(text)
    assert max(map(len, page.rows)) == 1 + 1000
    openly = text[text.index("<h2>Classes") : text.index("<summary>All 1,000")]
    assert openly.count("<tr>") == 1 + 30
    assert "450 more" in text


def test_the_groups_that_changed_most_surely_come_first():
    group = fake_result(groupings=()).groups[0]
    adjusted = np.random.default_rng(0).permutation(np.linspace(0.001, 0.199, 100))
    groups = [
        dataclasses.replace(group, name=f"class {i}", p=p / 100, adjusted_p=p)
        for i, p in enumerate(adjusted)
    ]
    section = html_fragment(group_blocks("class", groups, 0.95, True))
    openly = section[: section.index("<summary>All 100<")]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", openly, re.DOTALL)
    p = [float(re.findall(r'data-value="([^"]*)"', row)[-1]) for row in rows]
    assert p == pytest.approx(np.linspace(0.001, 0.199, 100)[:30])
    worse = "worse" if group.accuracy_gain.value < 0 else "better"
    marked = [worse in row for row in rows]
    assert marked == [True] * 25 + [False] * 5  # those below 0.05
    assert f"<strong>25 {worse}</strong>" in section


def test_the_same_comparison_gives_the_same_page(whole, text, tmp_path):
    command = "churn-jax compare a.npz b.npz --html c.html"
    path = whole.save_html(tmp_path / "deep" / "page.html", command=command)
    assert path == tmp_path / "deep" / "page.html"
    assert path.read_text(encoding="utf-8") == text
    assert len(text) < 600_000


def test_figures_are_small_take_the_colour_of_the_page_and_say_what_they_are(whole):
    many = fake_result(examples=40_000, scored=True)
    assert len(many.points.outcome) == 3000
    drawn = [
        confidence_and_displacement(many.points),
        reliability(*whole.curves),
        churn_bars(whole.noise, whole["churn"]),
    ]
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label")
        assert "currentColor" in svg
        assert len(svg) < 400_000
    assert drawn[0].count("<path") < 60  # one for each outcome, and the axes
    assert "1,500 of " in drawn[0]


def test_points_that_are_infinite_are_not_drawn(whole):
    points = whole.points
    empty = dataclasses.replace(points, displacement=points.displacement * math.inf)
    assert confidence_and_displacement(empty) == ""


def test_numbers_that_are_infinite_or_undefined_are_said_to_be(whole):
    odd = {
        **whole.quantities,
        "nll_old": Interval(math.inf, NAN, NAN),
        "nll_change": Interval(-math.inf, NAN, NAN),
        "relative_negative_flip_rate": Interval(NAN, NAN, NAN),
    }
    figures = {"noise": None, "curves": None, "points": None}  # take long to draw
    result = dataclasses.replace(whole, quantities=odd, **figures)
    assert "<td>inf</td>" in html_fragment(changes_table(result))
    assert re.search(
        r"<td>–</td>\s*<td>undefined</td>", html_fragment([singles_table(result)])
    )
    Page(html_page(result.page()))


def test_a_version_without_scores_leaves_a_dash(whole):
    found = {
        k: v for k, v in whole.quantities.items() if k not in ("nll_old", "ece_old")
    }
    del found["nll_change"], found["ece_change"]
    table = html_fragment(changes_table(dataclasses.replace(whole, quantities=found)))
    assert table.count("<td>–</td>") == 4  # old and change, of two quantities


def test_a_notebook_shows_verdict_gates_and_numbers_in_its_own_colours(whole):
    html = whole._repr_html_()
    page = Page(html)
    shown = " ".join(page.text).replace("\u00a0", " ")
    for fact in ("FAILED", "FAIL", "PASS", "6.3 %", "Accuracy", "Relative NFR"):
        assert fact in shown, fact
    assert "svg" not in page.tags and len(html) < 20_000
    for rule in re.findall(r"([^{}]+)\{", STYLE):
        for selector in rule.strip().split(","):
            assert selector.strip().startswith(".churn-jax"), selector
    assert not re.search(r"[{;](color|background):(?!inherit|none)", STYLE)


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("clicks", [1, 2])
def test_a_browser_sorts_numbers_as_numbers(tmp_path, text, clicks):
    click = (
        '<script>const head = [...document.querySelectorAll("th")].find('
        '(th) => th.textContent === "Churn" && th.dataset.first);'
        f"for (let i = 0; i < {clicks}; i++) head.firstChild.click();</script></body>"
    )
    # The page would refuse a second script.
    page = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", click)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    dom = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--user-data-dir={tmp_path}/profile", "--dump-dom"),
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    section = dom[dom.index("<h2>Classes") : dom.index("<h2>Slices")]
    heads = re.findall(r"<th scope=\"col\"([^>]*)>", section)
    (place,) = (i for i, head in enumerate(heads) if "aria-sort" in head)
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", section, re.DOTALL)
    cells = [re.findall(r"<t[hd]([^>]*)>", row)[place] for row in rows]
    values = [float(re.search(r'data-value="([^"]*)"', c).group(1)) for c in cells]
    assert len(set(values)) > 3
    assert values == sorted(values, reverse=clicks == 1)
