"""What runs share and differ in, in words, from the study's and the row's settings."""

import pytest

from churn_jax.configuration import to_json
from churn_jax.reports import collect
from churn_jax.reports.factors import factors_of, training_section
from churn_jax.studies import ModelConfig
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
        "small": {"train_size": 1500, "class_share": 0.5, "start": "init"},
        "taught": {
            "method": {"class": "EnsembleDistillation"},
            "teacher": "init",
            "teaching": {"offline": True},
        },
        "mixed": {"models": [["lenet5", 1], [to_json(ModelConfig("mlp", (8,))), 1]]},
        "wide": {"model": to_json(ModelConfig("mlp", (64,), dropout=0.2))},
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
    shown = ("Baseline", "Wd0", "Small", "Taught", "Mixed", "Wide")
    assert [cells[name][2] for name in shown] == [
        *("–", "optimizer.weight_decay = 0.0"),
        "train_size = 1500, class_share = 0.5, start = init",
        "teaching.offline = True",
        "models = ['1 x lenet5', '1 x mlp 8']",
        "model.features = [64], model.dropout = 0.2",
    ]
    for text in (render(report), markdown_table(report)):
        assert "Runs share" in text and "no augmentation" in text


BOOTSTRAP = [["seeds.sample", "varied"], ["sample", "bootstrap"]]
RESAMPLED = VARIED | {"sample": "varied"}
BAGGING = {"train": [["sample", "all"]]}
BAGGING["method"] = {"class": "ERM", "member_sample": "bootstrap"}
OFF, INIT = ["seeds.augment", "off"], ["seeds.init", "fixed"]
FIXED = [OFF, INIT, ["seeds.order", "fixed"]]
ALL = "The runs of all rows differ in their resampled training set"


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        (
            {"other": {"train": BOOTSTRAP}},
            {},
            ["runs of Other differ in their resampled training set"],
        ),
        ({"bagging": {}}, {"seeds": RESAMPLED, "sample": "bootstrap"}, [ALL]),
        ({"bagging": BAGGING}, {"seeds": RESAMPLED, "sample": "bootstrap"}, [ALL]),
        ({}, {"sample": "bootstrap"}, ["The runs of Baseline share one bootstrap"]),
        (
            {"twin": {"label": "Baseline", "train": [INIT]}},
            {"sample": "bootstrap"},
            ["The runs of Baseline; Baseline share one b", "of Baseline share a seed"],
        ),
        # Else the zero of a row without any seed, and its p-value, look like findings.
        (
            {"off": {"train": [OFF]}, "init": {"train": [INIT]}},
            {},
            ["The runs of Init share a seed: "],
        ),
        (
            {"init": {"train": [INIT]}, "same": {"train": FIXED}},
            {},
            ["The runs of Init share a seed: ", "The runs of Same differ in nothing: "],
        ),
        (
            {"drawn": {"train": FIXED + BOOTSTRAP}},
            {},
            ["differ in their resampled", "The runs of Drawn share a seed: "],
        ),
    ],
)
def test_what_kind_of_churn_it_is_is_said_in_every_form(tmp_path, rows, settings, said):
    report = study(tmp_path, {"baseline": {}} | rows, **settings)
    found = [one for one in report.context if "several networks" not in one]
    assert len(found) == len(said)
    for sentence, part in zip(found, said, strict=True):
        assert part in sentence
    for text in (render(report), markdown_table(report)):
        assert "cross-sample churn" in text or "seed" in text
    if "same" in rows:
        assert "churn-jax doctor" in found[1] and "a single run's" in found[1]


def test_an_ordinary_study_says_only_what_pairs_serve(report):
    said = "Rows of several networks that serve one of them: Steady; Halting."
    assert report.context == (said,)
    methods = [row.info for row in report.rows]
    assert training_section(report.study, methods).blocks == []
    assert factors_of(report.study, methods[0]).shared == ()
