"""One page that needs nothing else, holds every section and trusts no file."""

import dataclasses
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.documents import plotting as figure
from churn_jax.reports import study_figures as plots
from churn_jax.reports.study_report import FIGURES, FIRST
from churn_jax.reports.study_sections import ambiguity_histogram, bounds_against_churn
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import noisy_logits, write_study

# All but those about training-set sizes, strengths, ensemble sizes and calibrated NLL,
# and those of the sections on ambiguity and on bounds.
EVERY_STUDY = 1 + len(FIGURES) - 6 + 2
VOID = {"meta", "br", "link", "img", "input", "hr"}


class _Page(HTMLParser):
    """Checks nesting; collects tags, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(report):
    return _Page(report.files["report.html"].read_text())


def test_the_page_needs_no_network_and_runs_nothing(page, report):
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,")), value[:60]
    text = report.files["report.html"].read_text()
    assert "@import" not in text
    for url in re.findall(r"url\(([^)]*)\)", text):
        assert url.startswith("#")
    assert report.files["report.html"].stat().st_size < 1_500_000


def test_every_section_and_figure_is_there(page):
    text = " ".join(page.text)
    for heading in (
        *("Results", "Figures", "Which inputs churn", "Bounds on churn"),
        *("Methods", "What was run", "Glossary"),
    ):
        assert heading in text
    for heading in ("Beside the paper", "What the rows differ in", "Training-set size"):
        assert heading not in text
    assert page.tags.count("svg") == EVERY_STUDY
    for fact in (
        "churn-jax study fake",
        "2 cores",
        "2026-11-20",
        "jax 0.10.2",
        "sha256:0123456789abcdef",
        "697 train",
        "beta = 0.1",
        "12,345",
        "[reproducibility] Eq. 3",
        "run 2 stopped at step 120",
        "83.33 ± 5.77",
        "No detectable effect on churn (-23.3 ± 13.3 points, p = 0.222)",
        '"learning_rate": 0.1',
    ):
        assert fact in text, fact


def test_ids_are_unique_and_references_resolve(page):
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {v[1:] for n, v in page.attributes if n == "xlink:href" and v[0] == "#"}
    assert used and used <= set(ids)


EVIL = '<script>alert("x")</script>&$a_b$'


def test_whatever_comes_from_a_file_is_escaped(tmp_path):
    methods = {"baseline": three_methods()["baseline"]}
    folder = write_study(
        tmp_path,
        methods,
        LABELS,
        title=EVIL,
        command=EVIL,
        hardware=EVIL,
        date=EVIL,
        versions={EVIL: EVIL},
        devices=[EVIL],
        data={"name": EVIL, "title": EVIL, "fingerprint": EVIL},
        config={"notes": [EVIL], "changes": [EVIL], "data": {"name": EVIL}},
        published=EVIL,
    )
    page = _Page(reports.render(_evil_methods(reports.collect(folder))))
    assert "script" not in page.tags
    assert "".join(page.text).count('alert("x")') > 10


def _evil_methods(report):
    def spoil(info):
        spec = dataclasses.replace(info.spec, label=EVIL, equation=EVIL)
        return dataclasses.replace(info, label=EVIL, spec=spec)

    rows = tuple(dataclasses.replace(r, info=spoil(r.info)) for r in report.rows)
    missing = (reports.Missing(spoil(report.rows[0].info), EVIL),)
    return dataclasses.replace(report, rows=rows, missing=missing)


@pytest.mark.parametrize("label", ["_hidden", "$", "日本語", "x" * 80, "a & b"])
@pytest.mark.parametrize("draw", [plots.accuracy_against_churn, plots.pairwise_churn])
def test_any_label_can_be_drawn(report, label, draw):
    row = report.rows[0]
    row = dataclasses.replace(row, info=dataclasses.replace(row.info, label=label))
    svg = draw(dataclasses.replace(report, rows=(row, report.rows[1])))
    drawn = "".join(ElementTree.fromstring(svg).itertext())
    assert label.strip("_")[: figure.LONGEST_LABEL - 1] in drawn


def test_figures_take_the_colour_of_the_page_and_are_reproducible(report):
    drawn = [draw for draw, _, _ in (FIRST, *FIGURES) if draw(report)]
    assert len(drawn) == EVERY_STUDY - 2  # the two of sections are not among them
    for draw in (*drawn, ambiguity_histogram, bounds_against_churn):
        svg = draw(report)
        assert "currentColor" in svg and figure.INK not in svg
        assert svg == draw(report)
        ElementTree.fromstring(svg)


def test_the_map_holds_the_churn_of_runs_of_different_methods(report, monkeypatch):
    shown = {}

    def keep(axes, image, **kwargs):
        shown["image"] = np.asarray(image)
        return original(axes, image, **kwargs)

    from matplotlib.axes import Axes

    original = Axes.imshow
    monkeypatch.setattr(Axes, "imshow", keep)
    plots.pairwise_churn(report)
    image = shown["image"]
    assert image.shape == (8, 8)  # 3 + 3 + 2 runs
    np.testing.assert_allclose(image[0, 1], 30.0)
    np.testing.assert_allclose(image[0, 3], 20.0)  # wrong at 9 against wrong at 0
    np.testing.assert_allclose(image[3, 4], 0.0)
    assert np.isnan(np.diagonal(image)).all()


def test_one_run_and_no_curves_still_make_a_page(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 10)
    logits = noisy_logits(rng, labels, 1, 3)
    folder = write_study(tmp_path, {"baseline": logits, "other": logits}, labels)
    for history in folder.glob("methods/*/metrics.jsonl"):
        history.unlink()
    page = _Page(reports.render(reports.collect(folder)))
    # No training curves; nothing about pairs of runs.
    assert page.tags.count("svg") == EVERY_STUDY - 3
    assert "Too few runs to test churn (1 in common)" in " ".join(page.text)


def test_write_report_writes_the_page_alone(run_dir):
    path = reports.write_report(run_dir)
    assert path == run_dir / "report.html"
    assert path.read_text().startswith("<!doctype html>")
    assert not (run_dir / "table.csv").exists()
