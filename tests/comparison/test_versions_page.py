"""The page, the text and the record of a folder of versions."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

from churn_jax.comparison.figures import heat_map
from churn_jax.comparison.gates import Gate
from churn_jax.comparison.versions import compare_versions
from churn_jax.comparison.versions_report import short_labels, versions_sentences
from churn_jax.documents import html_page, plain_text, print_document

SCRIPT = "<script>alert(1)</script>"
VOID = {"meta", "br", "img", "input"}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Four versions, the third with two runs, one with an awkward name."""
    folder = tmp_path_factory.mktemp("versions")
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 80)
    hard = draw.normal(size=(80, 3))
    for v, runs in enumerate((1, 1, 2, 1)):
        noise = 0.6 * draw.normal(size=(runs, 80, 3))
        logits = hard + noise + 0.5 * v * np.eye(3)[labels]
        np.savez(folder / f"v{v}.npz", logits=logits, ids=np.arange(80))
    np.savez(folder / f"v4{SCRIPT.replace('/', '_')}.npz", logits=hard[None])
    np.save(folder / "labels.npy", labels)
    (folder / "ids.csv").write_text("id\n" + "\n".join(map(str, range(80))) + "\n")
    gates = [Gate("churn", 0.3), Gate("negative_flip_rate", 0.0)]
    return compare_versions(folder, gates=gates, resamples=100, regressions=25)


@pytest.fixture(scope="module")
def page(result):
    return html_page(result.page("churn-jax compare versions"))


class Reader(HTMLParser):
    """Checks that tags are closed; collects ids and links."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_links_lead_to_the_section_of_each_update(page):
    read = Reader(page)
    anchors = [*(f"update-{i}" for i in range(1, 5)), "first-to-last"]
    assert read.links == [f"#{anchor}" for anchor in anchors]
    assert [i for i in read.ids if i in anchors] == anchors
    assert len(set(read.ids)) == len(read.ids)


def test_names_are_escaped_and_nothing_is_loaded(page):
    assert "alert(1)" in page
    assert page.count("<script>") == 1  # the one that sorts
    assert not re.search(r'(src|href)="(?!#)', page.replace("xmlns:xlink", ""))
    assert "url(http" not in page


def test_figures_are_drawn_without_images(page):
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) >= 4
    for svg in drawn:
        ElementTree.fromstring(svg)
        assert "<image" not in svg


def test_the_page_has_every_part(page):
    for words in (
        "FAILED: ",
        "Accuracy goes from",
        "Do flips accumulate?",
        "Every version against every other",
        "Relative NFR",
        "Largest regressions, ",
        "What was run",
        "churn-jax compare versions",
    ):
        assert words in page


def test_the_notebook_shows_tables_that_reach_nothing_else(result):
    html = result._repr_html_()
    Reader(html)
    assert html.count("<table") == 4
    assert all(rule.startswith(".churn-jax") for rule in _rules(html))


def _rules(html):
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style
    rules = re.sub(r"/\*.*?\*/", "", style[1])  # without comments
    return [rule.strip() for rule in re.findall(r"([^{}]+)\{", rules)]


def test_the_text_fits_a_narrow_terminal(result):
    lines = str(result).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(("PASS", "FAIL ")) for line in lines) == 8
    assert str(result) == plain_text(result.terminal())


def test_a_prompt_shows_one_line(result):
    assert repr(result).startswith("<VersionsResult of v0, v1, v2, v3, v4")
    churn = f"churn {result.churn[0, 1]:.4g}>"
    assert repr(result.steps[0]) == f"<CompareResult v0 -> v1: 80 examples, {churn}"


def test_a_matrix_that_does_not_fit_is_named(result):
    assert "too wide" in plain_text(result.terminal(), 40)
    assert "too wide" not in plain_text(result.terminal(), 120)


def test_printing_says_what_the_text_says(result, capsys):
    print_document(result.terminal())
    printed = capsys.readouterr().out
    for sentence in versions_sentences(result):
        assert " ".join(sentence.split()) in " ".join(printed.split())


def test_long_names_become_numbers(result):
    assert short_labels(result) == ("1", "2", "3", "4", "5")


def test_files_hold_what_was_found_the_same_every_time(result, page, tmp_path):
    file = result.save_html(tmp_path / "a.html", command="churn-jax compare versions")
    assert file.read_text(encoding="utf-8") == page
    record = json.loads(result.save_json(tmp_path / "a.json").read_text())
    assert record == json.loads(json.dumps(result.to_dict()))
    assert record["versions"][:3] == ["v0", "v1", "v2"]
    assert record["churn"][0][0] is None
    assert record["churn"][2][2] > 0  # two runs of one version
    assert record["churn"][0][1] == result.churn[0, 1]
    assert record["steps"][0]["quantities"]["churn"]["value"] == result.churn[0, 1]
    assert record["first_to_last"]["examples"] == 80
    assert record["passed"] is False


@pytest.mark.parametrize("size", [2, 13])
def test_a_heat_map_has_numbers_while_they_can_be_read(size):
    values = np.full((size, size), 0.1234)
    np.fill_diagonal(values, np.nan)
    svg = heat_map(values, [f"v{i}" for i in range(size)], "churn")
    ElementTree.fromstring(svg)
    assert svg.count(">12.3<") == (2 if size == 2 else 0)


def test_numbers_are_light_on_dark_squares():
    every = heat_map(np.full((2, 2), 0.5), ["a", "b"], "churn")
    assert every.count("fill: #ffffff") == 4  # one value is the darkest colour
    both = heat_map(np.array([[0.1, 0.9], [0.9, 0.1]]), ["a", "b"], "churn")
    assert both.count("fill: #ffffff") == 2


def test_sentences_say_whether_flips_accumulate_or_cancel(result):
    said = " ".join(versions_sentences(result))
    gone = 1 - result.whole["churn"].value / result.step_sum("churn")
    assert gone > 0.05
    assert f"{100 * gone:.1f} % cancel out, in examples that change more" in said
    assert said.endswith("so much changes by training again alone.")
