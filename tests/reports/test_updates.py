"""Model updates in a report: numbers by hand, and what is left out."""

import dataclasses

import jax
import numpy as np
import pytest

from churn_compare.documents import csv_text, html_fragment, markdown
from churn_compare.store import Predictions, save_predictions
from churn_jax import metrics, reports
from churn_jax.analysis import holm, jackknife_stderr, paired_t_test
from churn_jax.configuration import to_json
from churn_jax.methods import ERM, UNKNOWN_LOGIT
from churn_jax.reports import summarize
from churn_jax.reports.artefacts import VALIDATION
from churn_jax.reports.updates import (
    _gains_table,
    flip_tables,
    updates_document,
    updates_section,
)
from experiments.anti_distillation.calibrated import calibrated_records
from tests.reports.conftest import LABELS, classes_with, two_methods
from tests.reports.fake_study import (
    cells_of,
    csv_rows,
    logits_of,
    next_to_paper,
    noisy_logits,
    printed,
    write_study,
)

IDS = np.arange(100, 110)


def updates_csv(report):
    return csv_text(updates_document(report).data)


def updates_markdown(report):
    return markdown(updates_document(report))


PAPER = "experiments/elodi/published.csv"


def with_stopped(*wrong):
    """Runs that are wrong at the examples given, then one that stopped."""
    logits = logits_of(classes_with(*wrong, {}), 3)
    logits[-1] = np.nan
    return logits


def rows():
    half = logits_of(classes_with({9: 0}, {0: 2}, {}), 3)
    half[..., 1] = UNKNOWN_LOGIT  # knows classes 0 and 2
    return {
        "baseline": with_stopped({9: 0}, {0: 1}),
        "none": with_stopped({0: 1, 1: 1}, {9: 0}),
        "kd": logits_of(classes_with({9: 0}, {0: 1}, {2: 1}), 3),
        "half": half,
    }


def update(old, new, label="", targeted=False):
    return {"old": old, "new": new, "label": label, "targeted": targeted}


PLANNED = [
    update("baseline", "none", "No treatment"),
    update("baseline", "kd", "KD", targeted=True),
    update("none", "kd"),
    update("half", "none", "More classes"),
    update("baseline", "absent", "Never"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Read only; collected once for all tests."""
    facts = {"published": f"{PAPER}:table1/imagenet", "config": {"updates": PLANNED}}
    facts["stopped"] = {name: [{"replica": 2}] for name in ("baseline", "none")}
    folder, methods = tmp_path_factory.mktemp("updates"), rows() | {"absent": None}
    return reports.collect(write_study(folder, methods, LABELS, ids=IDS, **facts))


def means(rates):
    return [estimate.mean for estimate in rates[1:]]


def test_an_update_by_hand(written):
    found = written.updates.results[0]
    # Old runs are wrong at 9 | 0, new ones at 0, 1 | 9. NFR .2, 0 | .1, .1; relative
    # to .9 * .2 and .9 * .1; PFR .1, 0 | 0, .1; churn .3, 0 | .1, .2.
    assert (found.label, found.first.pairs) == ("No treatment", 4)
    expected = [0.1, 0.15, 0.1, 25 / 36, 0.05, 0.15]
    np.testing.assert_allclose(means(found.first), expected, rtol=1e-6)
    # Deviations of rows 0, 0; of columns .05, -.05; of pairs .05 in size.
    # V_new = .005 / 2, V_pair = .01 / 4 = .0025: half of the sum is left, .00125.
    flips = found.first.negative_flip_rate
    np.testing.assert_allclose(flips.stderr, np.sqrt(0.00125), rtol=1e-5)
    np.testing.assert_allclose(found.first.new_error.stderr, 0.05, rtol=1e-6)
    assert [*found.rates] == ["all"]


@pytest.mark.slow
def test_likelihoods_and_temperatures_are_of_known_classes(tmp_path):
    half = rows()["half"]
    half[:, 2] = half[:, 2, [2, 1, 0]]  # all are wrong somewhere
    half[..., [0, 2]] /= 2  # and not sure: the temperature is inside
    predictions = Predictions(IDS, LABELS, half)
    found = summarize(predictions, validation=predictions)
    keep = LABELS != 1
    narrow, labels = half[:, keep][..., [0, 2]], LABELS[keep] // 2
    own = Predictions(IDS[keep], labels, narrow)
    expected = summarize(own, validation=own)
    for name in ("nll", "calibrated_nll", "temperature"):
        values = found.run_values[name]
        np.testing.assert_allclose(values, expected.run_values[name], rtol=1e-4)
    assert found.accuracy.mean < expected.accuracy.mean  # of all examples
    folder = write_study(tmp_path, {"baseline": half}, LABELS, ids=IDS)
    save_predictions(folder / "methods/baseline" / VALIDATION, predictions)
    (row,) = calibrated_records(folder).rows
    assert row["temperature"] == pytest.approx(found.temperature.mean, rel=1e-5)
    assert row["calibrated_nll"] == pytest.approx(found.calibrated_nll.mean, rel=1e-4)


def test_a_targeted_update_shows_its_own_pairs_first(written):
    found = written.updates.results[1]
    # Run 2 stopped on the old side, so pairs 0 and 1 are left; both are equal.
    own, every = found.rates["own"], found.rates["all"]
    assert (own.pairs, every.pairs) == (2, 6) and found.first is own
    np.testing.assert_allclose(means(found.first), [0.1, 0.1, 0, 0, 0, 0], atol=1e-7)
    # Flips .1 wherever the numbers differ: 4 of 6 pairs.
    assert every.negative_flip_rate.mean == pytest.approx(0.4 / 6)


def test_the_numbers_are_those_of_cross_pairs(written):
    result, known = [r for r in written.updates.results if r.label == "More classes"]
    assert (result.examples, known.examples) == ("all", "known")
    assert (result.flips.examples, known.flips.examples) == (10, 5)
    old, new = rows()["half"], rows()["none"][:2]
    summarize = jax.jit(metrics.summarize_cross)
    for found in (result, known):
        rates = metrics.cross_pairs(
            metrics.flip_rates, old, new, LABELS, examples=found.examples
        )
        for name in metrics.FlipRates._fields[:3]:
            ours, theirs = getattr(found.first, name), getattr(rates, name)
            summary = summarize(theirs)
            if found is known and name.startswith("relative"):
                # On these new run 1 is never wrong, so it has none.
                assert ours.mean == theirs[:, 0].mean() and np.isnan(ours.stderr)
                continue
            np.testing.assert_allclose(ours.mean, summary.mean, rtol=1e-6)
            np.testing.assert_allclose(ours.stderr, summary.stderr, rtol=1e-5)
    assert result.first.old_error.mean == pytest.approx((6 + 5 + 5) / 30)
    assert known.first.old_error.mean == pytest.approx(1 / 15)


def test_every_model_against_every_other(written):
    updates = written.updates
    assert updates.labels == ("Baseline", "None", "Kd", "Half")
    flips = updates.matrices.negative_flip_rate
    np.testing.assert_allclose(flips[0, :2], [0.1, 0.1])
    np.testing.assert_allclose(flips[1, 0], 0.05)
    # Known classes are half of the examples, and flips are on these alone.
    np.testing.assert_allclose(updates.known_flips[3], 2 * flips[3])
    np.testing.assert_array_equal(updates.known_flips[:3], flips[:3])
    churn, whole, relative, known = flip_tables(updates)
    assert whole.columns == ("Old, new", "Baseline", "None", "Kd", "Half")
    assert [cell.text for cell in whole.cells[0][:3]] == ["Baseline", "10.00", "10.00"]
    assert [cells[0] for cells in known.rows] == ["Baseline", "None", "Kd", "Half"]
    assert churn.cells[0][2].text == "15.00" and relative.cells[0][2].text == "0.694"


def test_the_section_on_the_page_in_markdown_and_in_the_terminal(written, undrawn):
    (remark,) = written.updates.remarks
    assert remark == (
        "The update Never is not in the table. Absent: it has no predictions yet."
    )
    text, page = (updates_markdown(written), html_fragment([updates_section(written)]))
    assert remark in text and remark in page
    assert "<h2>Updates</h2>" in page and "No treatment" in page
    assert "Error rate against negative flips" in page
    shown = printed(written, 80)
    assert "More classes" in shown and "Never" in shown

    lines = cells_of(text)
    plain, targeted = lines[2:4]
    assert plain[:3] == ["No treatment", "4", "10 all"]
    assert plain[3:6] == ["10.00 ± 0.00", "15.00 ± 5.00", "10.00 ± 3.54"]
    assert targeted[1] == "2 own" and targeted[5] == "0.00 ± 0.00"
    assert targeted[-2].startswith("6.67 ± ")
    assert "None → Kd" in lines[4]
    assert {len(line) for line in lines[:7]} == {len(lines[0])}
    assert "## Compared with the paper" in text


def test_the_csv_has_both_pairings(written):
    lines = csv_rows(updates_csv(written))
    told = [(r["label"], r["examples"], r["pairing"], r["first"]) for r in lines]
    assert told[:3] == [
        ("No treatment", "all", "all", "1"),
        ("KD", "all", "own", "1"),
        ("KD", "all", "all", "0"),
    ]
    assert told[-2:] == [
        ("More classes", "all", "all", "1"),
        ("More classes", "known", "all", "1"),
    ]
    assert float(lines[0]["negative_flip_rate"]) == pytest.approx(0.1)
    assert lines[0]["paper_negative_flip_rate"] == "0.043"
    assert lines[1]["paper_new_error"] == "0.2838"
    assert lines[2]["paper_new_error"] == ""


def test_the_papers_numbers_stand_next_to_ours(written):
    section, cells = next_to_paper(updates_document(written))
    assert cells["No treatment", "NFR %, paper"] == "4.30"
    assert cells["No treatment", "NFR %, measured"] == "10.00 ± 3.54"
    assert cells["KD", "ER old %, paper"] == "30.24"
    names = {row for row, _ in cells}
    assert {"bct (paper only)", "elodi top10 (paper only)"} <= names
    assert "kd (paper only)" not in names
    bct = cells["bct (paper only)", "Rel. NFR %, paper"]
    assert bct == "24.66 doubtful [2]" and "24.89" in section.blocks[1].items[1].text


def of_paper(folder, table, *planned):
    """The report of updates of models that are all alike, and the paper's table."""
    names = {row[side] for row in planned for side in ("old", "new")}
    logits = dict.fromkeys(["baseline", *(names - {"baseline"})], rows()["kd"])
    facts = {"published": f"{PAPER}:{table}/imagenet", "config": {"updates": planned}}
    return reports.collect(write_study(folder, logits, LABELS, **facts))


def test_a_pair_of_rows_comes_before_the_new_row_alone(tmp_path):
    planned = update("v1", "fd_v2"), update("fd_v2", "fd_chain_v3")
    _, cells = next_to_paper(updates_document(of_paper(tmp_path, "table5", *planned)))
    assert cells["V1 → Fd v2", "NFR %, paper"] == "2.90 doubtful [1]"
    assert cells["Fd v2 → Fd chain v3", "NFR %, paper"] == "2.13 doubtful [1]"


def test_a_published_number_is_that_of_the_targeted_update_in_any_order(tmp_path):
    planned = [update("none", "kd"), update("baseline", "kd", targeted=True)]
    planned += [update("baseline", "none"), update("kd", "bct"), update("kd", "half")]
    lines = csv_rows(updates_csv(of_paper(tmp_path, "table1", *planned)))
    numbers = {r["label"]: r["paper_new_error"] for r in lines if r["first"] == "1"}
    assert numbers["None → Kd"] == "" and numbers["Baseline → Kd"] == "0.2838"
    assert numbers["Baseline → None"] and numbers["Kd → Bct"]


def test_updates_are_compared_over_the_runs_that_all_models_have(tmp_path):
    rng, labels = np.random.default_rng(0), np.arange(60) % 3
    names = ("old", "baseline", "kd", "half", "other")
    logits = {name: noisy_logits(rng, labels, 5, 3) for name in names}
    logits["half"][..., 1] = UNKNOWN_LOGIT
    logits["kd"][0] = logits_of(labels, 3)  # never wrong
    planned = [update("old", "baseline"), update("old", "kd", targeted=True)]
    planned += [update(old, "kd") for old in ("half", "other")]

    def report(name, rows, planned=planned, stopped=()):
        lost = {"kd": [{"replica": run} for run in stopped]}
        facts = {"config": {"updates": planned}, "stopped": lost}
        return reports.collect(write_study(tmp_path / name, rows, labels, **facts))

    stopped = report("a", logits, stopped=[1])
    fewer = report("b", {k: np.delete(z, 1, axis=0) for k, z in logits.items()})
    for one, other in zip(stopped.updates.whole, fewer.updates.whole, strict=True):
        gains = one.label in ("Old → Kd", "Other → Kd")
        assert len(one.changes) == len(other.changes) == 2 * gains
        for ours, theirs in zip(one.changes, other.changes, strict=True):
            assert ours.fields == pytest.approx(theirs.fields)
    (table,) = _gains_table(stopped.updates, "baseline")
    assert table.caption.endswith("over the updates. Of another old model: Other → Kd.")
    assert table.columns[-1] == "p"
    # Of a run that is never wrong there is no relative NFR.
    kd = stopped.updates.whole[1].rates["all"].relative_negative_flip_rate
    matrix = stopped.updates.matrices.relative_negative_flip_rate
    assert kd.mean == pytest.approx(matrix[0, 2], rel=1e-6) and np.isnan(kd.stderr)
    for name, plan, gone in (
        ("c", planned, (0, 1, 2)),
        ("d", [*planned, update("other", "baseline")], ()),
    ):
        found = report(name, logits, plan, gone)
        (remark,) = found.updates.remarks
        assert remark.startswith("Updates are not compared with each other, which ne")
        assert csv_rows(updates_csv(found))[0]["delta_negative_flip_rate"] == ""


def test_write_adds_two_files_with_labels_escaped(tmp_path, undrawn):
    evil = '<script>alert("x")</script>|$a_b$'
    planned = {"updates": [update("baseline", "steady", evil)]}
    report = reports.write(write_study(tmp_path, two_methods(), LABELS, config=planned))
    assert sorted(report.files) == [
        *("report.html", "table.csv", "table.md", "updates.csv", "updates.md")
    ]
    page, text = (report.files[f].read_text() for f in ("report.html", "updates.md"))
    assert "<h2>Updates</h2>" in page and "<script" not in page
    assert text == updates_markdown(report) and r"\<script\>alert" in text
    assert report.files["updates.csv"].read_text() == updates_csv(report)
    # They go when the study has no updates any more.
    reports.write(write_study(tmp_path, two_methods(), LABELS))
    assert not report.files["updates.csv"].exists()
    assert not report.files["updates.md"].exists()


def test_updates_are_compared_with_the_one_to_the_baseline(tmp_path):
    wrong = {
        "baseline": ({0: 1, 1: 2, 2: 1}, {0: 1, 3: 1}, {0: 1, 1: 2, 4: 1}),
        "old": ({}, {5: 0}, {6: 0}),
        "kd": ({5: 0}, {5: 0, 7: 0}, {6: 0, 5: 2}),
        "big": ({8: 0}, {8: 0}, {8: 0}),
        "bigger": ({8: 0}, {8: 0, 0: 1}, {8: 0}),
    }
    logits = {name: logits_of(classes_with(*runs), 3) for name, runs in wrong.items()}
    ensemble = {"method": to_json(ERM(members=4, deploy="mean_logits"))}
    planned = [
        update("old", "baseline", "No treatment"),
        update("big", "bigger", "Paragon"),
        update("old", "kd", "KD", targeted=True),
    ]
    folder = write_study(
        tmp_path,
        logits,
        LABELS,
        ids=IDS,
        entries=dict.fromkeys(("big", "bigger"), ensemble),
        config={"updates": planned},
    )
    report = reports.collect(folder)
    base, paragon, kd = report.updates.results

    def flips(old, new, runs, own=False):
        pairs = [(a, b) for a in runs for b in runs if a == b or not own]
        lost = [set(wrong[new][b]) - set(wrong[old][a]) for a, b in pairs]
        return np.mean([len(one) for one in lost]) / 10

    sets = [(0, 1, 2), (1, 2), (0, 2), (0, 1)]
    none = np.array([flips("old", "baseline", runs) for runs in sets])
    ens = np.array([flips("big", "bigger", runs) for runs in sets])
    own = np.array([flips("old", "kd", runs, own=True) for runs in sets])
    (_, change, change_p, _), (_, error, *_) = kd.changes
    assert change.difference == pytest.approx(own[0] - none[0])
    assert change.stderr == pytest.approx(jackknife_stderr((own - none)[1:]))
    errors = paired_t_test([0.1, 0.2, 0.2], [0.3, 0.2, 0.3])
    assert dataclasses.astuple(error) == pytest.approx(dataclasses.astuple(errors))
    every = [paragon.changes[0].difference.p, change.p]
    assert change_p == pytest.approx(holm(every)[1])
    closed = (none - own) / (none - ens)
    assert kd.closed.mean == pytest.approx(closed[0])
    assert kd.closed.stderr == pytest.approx(jackknife_stderr(closed[1:]))
    assert not base.changes and paragon.closed.mean == 1
    first, *others = csv_rows(updates_csv(report))
    assert first["gap_closed"] == "" == others[2]["gap_closed"]  # all pairs of KD
    assert float(others[1]["gap_closed"]) == pytest.approx(closed[0])
    text = updates_markdown(report)
    assert "from No treatment to Paragon" in text and "| 100.00 ± 0.00 |" in text
    equal = dataclasses.replace(kd, closed=paragon.closed)
    tied = dataclasses.replace(report.updates, results=(base, equal, paragon))
    (table,) = _gains_table(tied, "baseline")
    assert table.caption.endswith("from No treatment to Paragon.")
    assert "Of another old model: Paragon. Gap closed" in table.caption
