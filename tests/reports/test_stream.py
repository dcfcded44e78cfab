import csv
import io

import numpy as np
import pytest
from rich.console import Console

from churn_compare.documents import Cell, csv_text, html_page
from churn_jax.reports import is_stream, print_stream, write_stream
from churn_jax.reports.cells import interval
from churn_jax.reports.stream import collect_stream, number_or_nan
from churn_jax.reports.stream_numbers import StreamNumbers, compare_streams
from churn_jax.reports.stream_report import (
    stream_document,
    stream_paper_section,
    verdict,
)
from tests.reports.fake_stream import (
    method,
    totals,
    write_demo,
    write_record,
    write_row,
)
from tests.reports.fake_study import write_study

BASE = totals([0.5, 0.4, 0.5], 0.06, [0.06, 0.07, 0.05])
# Log losses +10 %, +20 %, +30 %; half the difference, run by run.
ROW = totals([0.55, 0.48, 0.65], 0.03, [0.03, 0.035, 0.025], auc=[0.7, 0.75, 0.8])


@pytest.fixture
def folder(tmp_path):
    write_row(tmp_path, "baseline", BASE)
    write_row(tmp_path, "ad", ROW)
    entries = {"baseline": {"method": {"class": "ERM"}}, "ad": method("correlation", 1)}
    write_record(tmp_path, entries)
    return tmp_path


def test_losses_change_by_the_mean_of_the_runs_own_ratios(folder):
    base, row = collect_stream(folder).rows
    change = row.changes["stream"].changes["log_loss"]
    assert change.relative.difference == pytest.approx(0.2)
    assert change.relative.stderr == pytest.approx(0.1 / np.sqrt(3))
    assert change.absolute.difference == pytest.approx((0.05 + 0.08 + 0.15) / 3)
    # Rank loss is one minus the AUC.
    assert base.numbers["stream"].estimate("rank_loss").mean == pytest.approx(0.25)
    change = row.changes["stream"].changes["rank_loss"]
    assert change.relative.difference == pytest.approx((0.2 + 0.0 - 0.2) / 3)


def test_jackknife_of_a_prediction_difference_by_hand(folder):
    base, row = collect_stream(folder).rows
    estimate = base.numbers["stream"].estimate("relative_pd")
    # sqrt(2/3 * (0 + 0.01^2 + 0.01^2))
    assert estimate.mean == 0.06
    assert estimate.stderr == pytest.approx(np.sqrt(2 / 3 * 2e-4))
    change = row.changes["stream"].changes["relative_pd"]
    assert change.absolute.difference == pytest.approx(-0.03)
    assert change.absolute.stderr == pytest.approx(np.sqrt(2 / 3 * 2 * 0.005**2))
    # Every leave-one-out value is halved, so the ratio has no spread.
    assert change.relative.difference == pytest.approx(-0.5)
    assert change.relative.stderr == 0.0
    # The test is of the ratio, as the interval next to it is.
    assert change.p == change.relative.p == 0.0 < change.absolute.p
    low, high = interval(change.absolute)
    half = 4.302652729911275 * change.absolute.stderr  # t of 2 degrees at 97.5 %
    assert (low, high) == (pytest.approx(-0.03 - half), pytest.approx(-0.03 + half))


def test_pairing_by_run_finds_what_the_spread_over_runs_hides():
    spread = np.array([0.30, 0.45, 0.60, 0.75])
    noise = np.array([1e-4, -1e-4, 2e-4, -2e-4])
    numbers = {
        "baseline": StreamNumbers.of(totals(spread, 0.05)),
        "ad": StreamNumbers.of(totals(1.01 * spread + noise, 0.04)),
    }
    change = compare_streams(numbers, "baseline")["ad"].changes["log_loss"].relative
    assert change.stderr < 1e-3 and change.p < 0.01


def test_a_stopped_replica_counts_nowhere_and_is_told(folder):
    broken = totals([0.55, np.nan, 0.65], 0.03, [0.03, np.nan, 0.03])
    write_row(folder, "ad", broken)
    stop = {"replica": 1, "term": "correlation", "step": 7}
    ad = method("correlation", 1) | {"stopped": [stop]}
    write_record(folder, {"baseline": {}, "ad": ad})
    report = collect_stream(folder)
    row = report.rows[1]
    assert row.numbers["stream"].runs == (0, 2)
    change = row.changes["stream"].changes
    assert change["log_loss"].relative.difference == pytest.approx(0.2)
    assert change["log_loss"].relative.runs == 2
    # Sets of other runs: a change, but no error of it and no test.
    assert change["relative_pd"].relative.difference == pytest.approx(-0.5)
    assert np.isnan(change["relative_pd"].relative.stderr)
    assert "too few runs to test Δʳ₁ (2 in common)" in verdict(row)
    (said,) = report.remarks
    assert "replica 1 stopped at update 7, correlation was not finite" in said

    # The same of three runs and more in common: sets of other runs are not tested.
    write_row(folder, "baseline", totals([0.5] * 4, 0.06, [0.06] * 4))
    broken = totals([0.55, np.nan, 0.6, 0.7], 0.03, [0.03, np.nan, 0.03, 0.03])
    write_row(folder, "ad", broken)
    stopped = method("correlation", 1) | {"stopped": [{"replica": 1}]}
    write_record(folder, {"baseline": {}, "ad": stopped})
    assert "of other runs than the base" in verdict(collect_stream(folder).rows[1])


def test_no_difference_at_all_is_zero_and_not_a_division_by_zero(folder):
    write_row(folder, "baseline", totals([0.5] * 3, 0.0))
    write_row(folder, "ad", totals([0.5] * 3, 0.0))
    row = collect_stream(folder).rows[1]
    change = row.changes["stream"].changes["relative_pd"]
    assert change.absolute.difference == 0.0 and change.absolute.p == 1.0
    assert np.isnan(change.relative.difference) and change.p == 1.0
    write_stream(folder)
    assert "nan" not in (folder / "table.md").read_text()


def test_the_csv_has_full_precision_and_empty_cells(folder):
    text = csv_text(stream_document(collect_stream(folder)).data)
    lines = list(csv.DictReader(text.splitlines()))
    base, row = lines
    assert (base["row"], row["row"]) == ("baseline", "ad")
    assert float(row["log_loss_relative_change"]) == pytest.approx(0.2)
    assert float(row["relative_pd"]) == 0.03 and row["penalty"] == "correlation"
    assert base["relative_pd_change"] == "" and base["penalty"] == "No AD"


def test_rows_without_a_usable_result_are_named_with_the_reason(folder):
    entries = {"baseline": {}, "ad": {}, "gone": {}, "cut": {}}
    write_record(folder, entries, planned=("later",))
    path = folder / "methods" / "cut"
    path.mkdir()
    (path / "result.json").write_text('{"totals": {"log_loss": [0.1]}}')
    report = collect_stream(folder)
    reasons = {m.info.name: m.reason for m in report.missing}
    assert reasons["gone"].endswith("gone/result.json cannot be used (it is not there)")
    assert {m.info.name for m in report.missing if m.damaged} == {"gone", "cut"}
    assert "the totals lack calibration" in reasons["cut"]
    assert reasons["later"] == "it has not finished"
    assert [row.info.name for row in report.rows] == ["baseline", "ad"]


def test_a_number_of_several_runs_is_the_mean_of_those_known():
    assert number_or_nan([1.0, None, 3.0]) == 2.0 and number_or_nan(4) == 4.0
    assert np.isnan([number_or_nan("x"), number_or_nan(True), number_or_nan([])]).all()


def test_without_the_baseline_nothing_is_compared(folder):
    (folder / "methods" / "baseline" / "result.json").unlink()
    report = write_stream(folder)
    assert report.rows[0].changes == {} and verdict(report.rows[0]) == ""
    assert any("nothing is compared" in remark for remark in report.remarks)


def test_the_whole_report_of_table_3_next_to_the_papers_numbers(tmp_path, rng):
    write_demo(tmp_path, rng)
    report = write_stream(tmp_path)
    page = report.files["report.html"].read_text()
    # Nothing in it depends on when it is drawn.
    assert page == html_page(stream_document(report))
    assert page.count("<figure>") == 2 and "<script" not in page
    assert "Not finished: unfinished" in page
    for part in report.parts:
        assert page.count('class="main"') == len(report.parts) == 2, part
    text = report.files["table.md"].read_text()
    for row in report.rows:
        assert row.info.label in text
    good = verdict(report.rows[3])
    assert good.startswith("Reduces Δʳ₁ by ") and "log loss +4." in good

    table, notes = stream_paper_section(report).blocks
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["No AD"][:4] == ["+0.000"] * 4
    assert cells["No AD"][4] == "0.0650"
    assert cells["covariance 1 s1"][0] == Cell(
        "-0.018", mark="doubtful [1]", tone="doubt"
    )
    last = next(r for r in report.rows if r.info.label == "correlation 5 s10")
    change = last.changes["stream"].changes["log_loss"].relative.difference
    assert cells["correlation 5 s10"][:2] == ["+4.660", f"{100 * change:+.3f}"]
    assert "sign" in notes.items[0].text


def test_only_stream_folders_are_streams(folder, tmp_path_factory):
    assert is_stream(folder)
    other = tmp_path_factory.mktemp("other")
    write_study(other, {}, [])
    assert not is_stream(other)


def test_a_narrow_terminal_gets_fewer_columns(folder):
    report = collect_stream(folder)
    assert stream_paper_section(report) is None  # it names no published numbers
    out = io.StringIO()
    print_stream(report, Console(width=200, file=out))
    assert "Calibration" in out.getvalue()
    out = io.StringIO()
    print_stream(report, Console(width=80, file=out))
    assert "Calibration" not in out.getvalue() and "Δʳ₁" in out.getvalue()
