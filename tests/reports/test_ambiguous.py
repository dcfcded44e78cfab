"""Which inputs churn: order, votes, pictures, and who carries the churn."""

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.documents import Document, html_page
from churn_jax.reports import study_sections as sections
from churn_jax.reports.examples import save_examples
from churn_jax.reports.study_sections import best_row, carried, most_ambiguous
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import logits_of, write_study

# Runs of the baseline vote wrong on 9 (1 of 3), 0 (2 of 3, two classes) and 1 (1 of 3).


def page_of(report):
    return html_page(Document("", blocks=[sections.ambiguous_section(report)]))


def two_methods():
    return {name: three_methods()[name] for name in ("baseline", "steady")}


def test_the_most_ambiguous_come_first_with_their_votes(report):
    inputs = most_ambiguous(report)
    assert [one.identity for one in inputs] == ["0", "1", "9"]
    assert [one.votes for one in inputs] == [
        ((0, 1), (1, 1), (2, 1)),
        ((0, 2), (2, 1)),
        ((0, 2), (1, 1)),
    ]
    assert [one.label for one in inputs] == [0, 0, 1]
    assert [one.ambiguity for one in inputs] == pytest.approx([1, 2 / 3, 2 / 3])
    assert all(one.image is None for one in inputs)
    assert len(most_ambiguous(report, count=2)) == 2


def test_under_the_best_method(report):
    assert best_row(report).info.name == "steady"
    assert [one.best for one in most_ambiguous(report)] == [0, 0, 0]


def test_the_mean_ambiguity_is_the_churn_of_the_table(report):
    for row in report.rows:
        mean = row.summary.curves.ambiguity.mean()
        assert mean == pytest.approx(row.summary.churn.mean, abs=1e-7)


def test_images_are_shown_with_what_was_voted(tmp_path):
    folder = write_study(tmp_path, two_methods(), LABELS)
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 1), np.uint8)
    save_examples(folder, np.arange(10), images)
    report = reports.collect(folder)
    assert (most_ambiguous(report)[0].image == images[0]).all()
    page = page_of(report)
    assert page.count('<img src="data:image/png;base64,') == 3
    assert "votes 0\u00a0(2), 2\u00a0(1)" in page
    assert "67\u00a0% → 0\u00a0%" in page
    assert "All 3 runs of Baseline agree on 70.0\u00a0% of 10 test examples" in page


def test_without_images_there_are_ids(report):
    page = page_of(report)
    assert "<img" not in page
    assert '<th scope="row">9</th><td>1</td><td>0 (2), 1 (1)</td>' in page


def test_an_id_is_escaped(tmp_path):
    ids = np.array([f"<b>{n}" for n in range(10)])
    folder = write_study(tmp_path, two_methods(), LABELS, ids=ids)
    save_examples(folder, ids, np.zeros((10, 8, 8), np.uint8))
    page = page_of(reports.collect(folder))
    assert "<b>" not in page and "&lt;b&gt;0" in page


def test_runs_that_agree_leave_nothing_to_show(tmp_path):
    same = logits_of(np.tile(LABELS, (3, 1)), 3)
    report = reports.collect(write_study(tmp_path, {"baseline": same}, LABELS))
    assert most_ambiguous(report) == () and best_row(report) is None
    page = page_of(report)
    assert "agree on 100.0\u00a0%" in page and "<td>–</td>" in page


def test_one_run_has_no_such_section(tmp_path):
    one = three_methods()["baseline"][:1]
    report = reports.collect(write_study(tmp_path, {"baseline": one}, LABELS))
    assert sections.ambiguous_section(report) is None


@pytest.mark.parametrize(
    ("share", "expected"), [(0.05, 0.5), (0.10, 0.5), (0.101, 0.8), (1.0, 1.0)]
)
def test_churn_carried_by_the_top(share, expected):
    ambiguity = np.array([0.0] * 7 + [0.2, 0.3, 0.5])
    assert carried(ambiguity, share) == pytest.approx(expected)
    assert carried(np.full(60, 0.1), 0.05) == pytest.approx(0.05)
    assert np.isnan(carried(np.zeros(4), share))


def test_bins_are_closed_on_the_right_and_leave_out_unanimity():
    shares = sections._shares(np.array([0.0, 0.1, 0.3, 0.30000001, 0.31, 1.0, 0.05]))
    expected = np.zeros(10)
    expected[[0, 2, 3, 9]] = [2, 2, 1, 1]
    np.testing.assert_allclose(7 * shares, expected)
