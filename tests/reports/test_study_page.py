"""One page that needs nothing else, holds every section and trusts no file."""

import dataclasses
import re

import numpy as np
import pytest

from churn_compare.documents import Document, html_page
from churn_jax import reports
from churn_jax.reports import sections
from churn_jax.reports.report import Missing
from tests.html_page import Page
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import logits_of, noisy_logits, render, write_study

# The first, and three under their heading.
EVERY_STUDY = 1 + 3


@pytest.fixture(scope="module")
def page(report):
    return Page(report.files["report.html"].read_text())


def test_the_page_needs_no_network_and_runs_nothing(page, report):
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,")), value[:60]
    text = report.files["report.html"].read_text()
    assert "@import" not in text
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", text))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {v[1:] for n, v in page.attributes if n == "xlink:href" and v[0] == "#"}
    assert used and used <= set(ids)


def test_every_section_and_figure_is_there(page):
    text = " ".join(page.text)
    assert "What the rows differ in" not in text
    assert page.tags.count("svg") == EVERY_STUDY
    for fact in (
        *("Results", "Figures", "Which inputs churn", "What was run", "Glossary"),
        "churn-jax study fake",
        "2 cores",
        "2026-11-20",
        "jax 0.10.2",
        "sha256:0123456789abcdef",
        "697 train",
        '"beta": 0.1',
        "run 2 stopped at step 120",
        "83.33 ± 5.77",
        "No detectable effect on churn (-23.3 points, -80.7 to +34.0; p = 0.222)",
        '"learning_rate": 0.1',
    ):
        assert fact in text, fact


EVIL = '<script>alert("x")</script>&$a_b$'


def test_whatever_comes_from_a_file_is_escaped(tmp_path, undrawn):
    folder = write_study(
        tmp_path,
        {"baseline": three_methods()["baseline"]},
        LABELS,
        title=EVIL,
        command=EVIL,
        hardware=EVIL,
        date=EVIL,
        versions={EVIL: EVIL},
        devices=[EVIL],
        data={"name": EVIL, "title": EVIL, "fingerprint": EVIL},
        config={"notes": [EVIL], "data": {"name": EVIL}},
        published=EVIL,
    )
    report = reports.collect(folder)
    (row,) = report.rows
    spec = dataclasses.replace(row.info.spec, label=EVIL, equation=EVIL)
    info = dataclasses.replace(row.info, label=EVIL, spec=spec)
    row, missing = dataclasses.replace(row, info=info), Missing(info, EVIL)
    report = dataclasses.replace(report, rows=(row,), missing=(missing,))
    page = Page(render(report))
    assert "script" not in page.tags
    assert "".join(page.text).count('alert("x")') > 10


def test_one_run_and_no_curves_still_make_a_page(tmp_path):
    labels = np.arange(40) % 5
    logits = noisy_logits(np.random.default_rng(0), labels, 1, 5)
    folder = write_study(tmp_path, {"baseline": logits, "other": logits}, labels)
    for history in folder.glob("methods/*/metrics.jsonl"):
        history.unlink()
    report = reports.collect(folder)
    page = Page(render(report))
    # No training curves; nothing about pairs of runs.
    assert page.tags.count("svg") == EVERY_STUDY - 3
    assert "Too few runs to test churn (1 in common)" in " ".join(page.text)
    assert sections.ambiguous_section(report).blocks == []


def inputs_page(report):
    return html_page(Document("", blocks=[sections.ambiguous_section(report)]))


def test_the_most_ambiguous_come_first_with_their_votes(report, undrawn):
    # Runs vote wrong on 9 (1 of 3), 0 (2 of 3, two classes) and 1 (1 of 3).
    assert sections.ambiguous_section(report).blocks[1].rows == [
        ("0", "0", "0 (1), 1 (1), 2 (1)", "100 % → 0 %"),
        ("1", "0", "0 (2), 2 (1)", "67 % → 0 %"),
        ("9", "1", "0 (2), 1 (1)", "67 % → 0 %"),
    ]
    for row in report.rows:
        mean = row.summary.ambiguity.mean()
        assert mean == pytest.approx(row.summary.churn.mean, abs=1e-7)
    page = inputs_page(report)
    assert "All 3 runs of Baseline agree on 70.0\u00a0% of 10 test examples" in page
    assert "(→ under Steady, the other row that churns least)" in page
    assert '<th scope="row">9</th><td>1</td><td>0 (2), 1 (1)</td>' in page


def test_runs_that_agree_leave_nothing_to_show(tmp_path, undrawn):
    same = logits_of(np.tile(LABELS, (3, 1)), 3)
    report = reports.collect(write_study(tmp_path, {"baseline": same}, LABELS))
    page = inputs_page(report)
    assert "agree on 100.0\u00a0%" in page and "<table" not in page
