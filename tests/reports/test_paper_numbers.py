"""Paper and measured side by side, in all three files; doubt is told, not compared."""

import pytest

from churn_jax import reports
from churn_jax.reports.study_report import study_document
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import (
    csv_rows,
    markdown_table,
    next_to_paper,
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


def test_a_coefficient_is_not_compared_with_a_measured_temperature(tmp_path):
    columns = {"columns": ["churn", "temperature"]}
    folder = study(tmp_path, f"{PAPER}:table2/cifar10", "distillation", config=columns)
    line = csv_rows(reports.collect(folder))[1]
    assert line["paper_churn"] and "paper_temperature" not in line


def test_rows_are_matched_by_name_and_doubts_noted_once_in_every_form(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table1/cifar10", "off", "mine")
    seeds = reports.write(folder)
    section, cells = next_to_paper(study_document(seeds))
    names = [*dict.fromkeys(row for row, _ in cells)]
    assert names[:3] == ["Baseline", "Off", "Mine"]
    heads = [head for row, head in cells if row == "Mine"]
    assert heads == [
        f"{head}, {side}"
        for head in ("Accuracy %", "Churn %", "SChurn ×100")
        for side in ("paper", "measured")
    ]
    assert cells["Baseline", "Churn %, paper"] == "5.81 ± 0.08"
    assert cells["Baseline", "Accuracy %, measured"] == "83.33 ± 5.77"
    assert cells["Off", "Churn %, paper"] == "11.08 ± 0.10 doubtful [1]"
    assert cells["Off", "Accuracy %, paper"] == "89.24 ± 0.06"
    assert cells["Mine", "Churn %, paper"] == "–"
    assert {"init (paper only)", "off init (paper only)"} <= {*names[3:]}
    assert cells["init (paper only)", "Churn %, measured"] == "–"
    (note,) = (text.text for text in section.blocks[1].items)
    assert note.startswith("Doubtful: ")
    note = note.removeprefix("Doubtful: ").removesuffix(".")

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
    section, cells = next_to_paper(study_document(report))
    assert cells["Kd", "DEE, paper"] == "1.48 derived [1]"
    assert cells["Kd", "ECE %, paper"] == "7.20"
    assert cells["Kd", "DEE, measured"] == "–"  # there is no ensemble to compare with
    line = csv_rows(report)[1]
    assert line["paper_dee_doubtful"] == "" != line["paper_dee_derived"]
    (explained,) = (text.text for text in section.blocks[1].items)
    assert explained.startswith("Derived: from the calibrated NLL of the row")
    page = report.files["report.html"].read_text()
    assert '1.48<span class="mark">derived [1]</span>' in page
    assert "over runs it does not count. Measured" in section.blocks[0].caption
    assert explained in report.files["table.md"].read_text()


def test_a_table_2_is_completed_and_says_from_where(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table2/cifar10", "codistill_skl")
    section, cells = next_to_paper(study_document(reports.collect(folder)))
    assert cells["Baseline", "ECE %, paper"] == "4.04 ± 0.13"
    assert cells["Codistill skl", "Churn incorrect %, paper"] == "36.78 ± 4.14"
    caption = section.blocks[0].caption
    assert caption.startswith("Settings may differ; see What was run. Paper: Bhoj")
    assert "Table 2, Table 4, Table 7, CIFAR-10, ResNet-56" in caption
    assert "over 10 runs. Measured: this study, on cifar10." in caption
    assert section.blocks[1].items == []


@pytest.mark.parametrize(
    ("data", "shown"), [("digits", False), ("sets/cifar10.npz", True)]
)
def test_numbers_are_shown_on_the_papers_data_alone(tmp_path, data, shown):
    place = f"{PAPER}:table2/cifar10"
    report = reports.collect(study(tmp_path, place, "mine", data={"name": data}))
    assert ("Compared with the paper" in markdown_table(report)) == shown
    assert ("paper_churn" in csv_rows(report)[0]) == shown


def test_columns_nobody_can_assign_stay_apart(tmp_path):
    folder = study(tmp_path, f"{PAPER}:table6/cifar10", "init", "data")
    _, cells = next_to_paper(study_document(reports.collect(folder)))
    assert cells["Init", "Churn %, paper"] == cells["Data", "Churn %, paper"] == "–"
    assert "doubtful" in cells["column2 (paper only)", "Churn %, paper"]
    assert cells["column2 (paper only)", "Churn %, measured"] == "–"


def test_an_unknown_key_is_told_and_the_rest_reported(tmp_path):
    report = reports.collect(study(tmp_path, f"{PAPER}:table9/x"))
    (remark,) = report.remarks
    assert "published.csv:table9/x' of this study were not" in remark
    assert "Compared with the paper" not in render(report)
