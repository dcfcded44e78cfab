"""What runs share and differ in, in words, from the study's and the row's settings."""

import pytest

from churn_jax.reports import collect
from churn_jax.reports.factors import factors_of, training_section
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import markdown_table, render, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

VARIED = {"init": "varied", "order": "varied", "augment": "varied", "sample": "fixed"}


def study(folder, rows, seeds=VARIED, **train):
    """A study with `rows`: name to extra facts of its entry; the first is baseline."""
    config = {"train": {"seeds": dict(seeds), "sample": "all"} | train}
    methods = dict.fromkeys(rows, three_methods()["steady"])
    facts = {"config": config, "entries": dict(rows)}
    return collect(write_study(folder, methods, LABELS, **facts))


def infos(report):
    return {row.info.name: row.info for row in report.rows}


def test_what_rows_share_differ_in_and_change(tmp_path):
    rows = {
        "baseline": {},
        "init": {"train": [["seeds.init", "fixed"]]},
        "off_order": {"train": [["seeds.augment", "off"], ["seeds.order", "fixed"]]},
        "wd0": {"train": [["optimizer.weight_decay", 0.0], ["seeds.init", "fixed"]]},
        "small": {"train_size": 1500},
    }
    report = study(tmp_path, rows)
    found = infos(report)
    everything = ("initial weights", "mini-batch order", "augmentation")
    assert factors_of(report.study, found["baseline"]) == ((), everything)
    assert factors_of(report.study, found["init"]).shared == ("initial weights",)
    off = factors_of(report.study, found["off_order"])
    assert off.shared == ("mini-batch order", "no augmentation")
    assert off.differing == ("initial weights",)
    (table,) = training_section(report.study, list(found.values())).blocks
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["Init"] == ("initial weights", "mini-batch order, augmentation", "–")
    assert [cells[name][2] for name in ("Baseline", "Wd0", "Small")] == [
        *("–", "optimizer.weight_decay = 0.0", "1,500 training examples")
    ]
    for text in (render(report), markdown_table(report)):
        assert "Runs share" in text and "no augmentation" in text


BOOTSTRAP = [["seeds.sample", "varied"], ["sample", "bootstrap"]]


def test_cross_sample_rows_are_named(tmp_path):
    report = study(tmp_path, {"baseline": {}, "other": {"train": BOOTSTRAP}})
    sentence, *_ = report.context
    assert "runs of Other differ in their resampled training set" in sentence
    for text in (render(report), markdown_table(report)):
        assert "cross-sample churn" in text


@pytest.mark.parametrize(
    "member", [{}, {"method": {"class": "ERM", "member_sample": "bootstrap"}}]
)
def test_a_whole_study_of_resampled_runs(tmp_path, member):
    seeds = VARIED | {"sample": "varied"}
    per_member = {"train": [["sample", "all"]], **member} if member else {}
    rows = {"baseline": {}, "bagging": per_member}
    report = study(tmp_path, rows, seeds, sample="bootstrap")
    sentence, *_ = report.context
    assert "The runs of all rows differ in their resampled training set" in sentence


def test_one_bootstrap_for_all_runs_is_not_cross_sample(tmp_path):
    report = study(tmp_path, {"baseline": {}}, sample="bootstrap")
    sentence, *_ = report.context
    assert "share one bootstrap" in sentence
    info = infos(report)["baseline"]
    shared, _ = factors_of(report.study, info)
    assert shared == ("one bootstrap of the training set",)


def test_runs_that_share_seeds_are_evidence_for_those_seeds(tmp_path):
    """Else the zero of an everything-fixed row, and its p-value, look like findings."""
    order, init = ["seeds.order", "fixed"], ["seeds.init", "fixed"]
    fixed = [["seeds.augment", "off"], init, order]
    rows = {
        "baseline": {},
        "off": {"train": [["seeds.augment", "off"]]},
        "init": {"train": [init]},
        "off_init_order": {"train": fixed},
    }
    report = study(tmp_path, rows)
    some, one, *_ = report.context
    assert some.startswith("The runs of Init share a seed: ")
    assert one.startswith("The runs of Off init order differ in nothing: ")
    assert "churn-jax doctor" in one and "a single run's" in one
    for text in (render(report), markdown_table(report)):
        assert "differ in nothing" in text
    resampled = study(tmp_path / "drawn", {"baseline": {"train": fixed + BOOTSTRAP}})
    assert not any("differ in nothing" in text for text in resampled.context)


def test_an_ordinary_study_says_only_what_pairs_serve(report):
    said = "Rows of several networks that serve one of them: Steady; Halting."
    assert report.context == (said,)
    methods = [row.info for row in report.rows]
    assert training_section(report.study, methods).blocks == []
    assert factors_of(report.study, methods[0]).shared == ()
