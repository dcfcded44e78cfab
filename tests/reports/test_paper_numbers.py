"""Paper and measured side by side, in all three files; doubt is told, not compared."""

import pytest

from churn_jax import reports
from churn_jax.reports import QUANTITIES
from churn_jax.reports.paper_numbers import paper_numbers
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import (
    csv_rows,
    markdown_table,
    paper_cell,
    render,
    write_study,
)

PAPER = "experiments/reproducibility/published.csv"

pytestmark = pytest.mark.usefixtures("undrawn")


def study(folder, published, *names, **facts):
    """The three methods under other names."""
    logits = three_methods()
    methods = {"baseline": logits["baseline"]}
    methods |= dict.fromkeys(names, logits["steady"])
    return write_study(folder, methods, LABELS, published=published, **facts)


def test_rows_are_matched_by_name_and_doubts_noted_once_in_every_form(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table1/cifar10", "off", "mine")
    seeds = reports.write(folder)
    found = paper_numbers(seeds)
    assert [row.name for row in found.rows[:3]] == ["baseline", "off", "mine"]
    assert [m.name for m in found.metrics] == ["accuracy", "churn", "surrogate_churn"]
    base, off, mine = found.rows[:3]
    assert paper_cell(found, base, "churn") == "5.81 ± 0.08"
    assert found.measured_cell(base, QUANTITIES["accuracy"]) == "83.33 ± 5.77"
    assert paper_cell(found, off, "churn") == "11.08 ± 0.10 doubtful [1]"
    assert paper_cell(found, off, "accuracy") == "89.24 ± 0.06"
    assert paper_cell(found, mine, "churn") == "–"
    only_paper = {row.name: row for row in found.rows[3:]}
    assert set(only_paper) >= {"init", "off_init"} and not only_paper["init"].measured
    assert found.measured_cell(only_paper["init"], QUANTITIES["churn"]) == "–"

    (note,) = found.notes
    page = seeds.files["report.html"].read_text()
    assert page.count(note) == 1
    assert page.count('<span class="mark doubt">doubtful [1]</span>') == 2
    markdown = seeds.files["table.md"].read_text()
    assert markdown.count(note) == 1
    assert "11.08 ± 0.10 doubtful \\[1\\]" in markdown
    assert "Published numbers are context, not targets." in markdown
    rows = csv_rows(seeds.files["table.csv"].read_text())
    by_name = {row["method"]: row for row in rows}
    assert by_name["off"]["paper_churn"] == "0.1108"
    assert by_name["off"]["paper_churn_doubtful"] == note
    assert by_name["baseline"]["paper_churn_std"] == "0.0008"
    assert by_name["baseline"]["paper_churn_doubtful"] == ""
    assert by_name["mine"]["paper_accuracy"] == ""


def test_a_derived_number_is_no_doubtful_one(tmp_path):
    columns = {"columns": ["ece", "dee"]}
    folder = study(
        tmp_path,
        "experiments/diversity/published.csv:table1/cifar100",
        "kd",
        config=columns,
    )
    report = reports.write(folder)
    found = paper_numbers(report)
    kd = {row.name: row for row in found.rows}["kd"]
    assert paper_cell(found, kd, "dee") == "1.48 derived [1]"
    assert paper_cell(found, kd, "ece") == "7.20"
    assert (
        found.measured_cell(kd, QUANTITIES["dee"]) == "–"
    )  # there is no ensemble to compare with
    ((note, mark),) = found.notes.items()
    explained = f"{mark.capitalize()}: {note}."
    assert explained.startswith("Derived: from the calibrated NLL of the row")
    page = report.files["report.html"].read_text()
    assert '1.48<span class="mark">derived [1]</span>' in page
    assert "over runs it does not count. Measured" in found.caption
    assert explained in report.files["table.md"].read_text()


def test_a_table_2_is_completed_and_says_from_where(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table2/cifar10", "codistill_skl")
    found = paper_numbers(reports.collect(folder))
    base, ours = found.rows[:2]
    assert paper_cell(found, base, "ece") == "4.04 ± 0.13"
    assert paper_cell(found, ours, "churn_incorrect") == "36.78 ± 4.14"
    assert "Table 2, Table 4, Table 7, CIFAR-10, ResNet-56" in found.caption
    assert "over 10 runs. Measured: this study, on cifar10." in found.caption
    assert not found.notes


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    [
        ({"name": "digits"}, {}, None),
        ({"name": "cifar10", "train": 50_000, "test": 10_000}, {}, ""),
        (
            {"name": "sets/cifar10.npz", "train": 192, "test": 10_000},
            {"model": {"name": "mlp", "features": [64]}, "train": {"epochs": 3}},
            "Not the paper's setting: mlp 64 instead of resnet56; 3 epochs instead of "
            "450; 192 training examples instead of 50,000. ",
        ),
    ],
)
def test_numbers_of_another_setting_are_told_apart(tmp_path, data, settings, said):
    settings = {"model": {"name": "resnet56"}, "train": {"epochs": 450}} | settings
    folder = study(
        tmp_path,
        f"{PAPER}:table2/cifar10",
        "mine",
        data=data,
        config=settings,
        entries={"mine": {"model": {"name": "lenet5"}}},  # not in the paper's table
    )
    report = reports.collect(folder)
    found = paper_numbers(report)
    if said is None:
        assert found is None
        assert "Compared with the paper" not in markdown_table(report)
    else:
        assert found.caption.startswith(f"{said}Paper: Bhojanapalli")


def test_columns_nobody_can_assign_stay_apart(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table6/cifar10", "init", "data")
    found = paper_numbers(reports.collect(folder))
    rows = {row.name: row for row in found.rows}
    assert not rows["init"].paper and not rows["data"].paper
    second = rows["column2"]
    assert "doubtful" in paper_cell(found, second, "churn")
    assert second.label == "column2 (paper only)" and not second.measured


def test_an_unknown_key_is_told_and_the_rest_reported(tmp_path):
    report = reports.collect(study(tmp_path, f"{PAPER}:table9/x"))
    assert paper_numbers(report) is None
    (remark,) = report.remarks
    assert "published.csv:table9/x', not found here" in remark
    assert "Compared with the paper" not in render(report)
