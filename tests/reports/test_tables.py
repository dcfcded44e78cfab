"""The same numbers in Markdown, CSV and the terminal."""

import csv
import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from churn_jax import reports
from churn_jax.reports.quantities import QUANTITIES


def _printed(report, width):
    out = io.StringIO()
    reports.print_report(report, Console(file=out, width=width))
    return out.getvalue()


def _with_label(report, label):
    row = report.rows[1]
    named = dataclasses.replace(row, info=dataclasses.replace(row.info, label=label))
    return dataclasses.replace(report, rows=(report.rows[0], named))


def test_the_markdown_table_by_hand(report):
    lines = reports.markdown_table(report).splitlines()
    assert lines[0] == "# A study of nothing"
    sizes = "digits: 697 train, 100 validation, 10 test"
    assert lines[2] == f"{sizes}; MLP; 20 epochs; 3 runs per method"
    assert lines[4].startswith(
        "Best: no row is detectably better. Steady has the lowest churn"
    )
    lines = lines[4:]
    cells = [cell.strip() for cell in lines[4].strip("|").split("|")]
    assert cells[:5] == ["Baseline", "1×", "1×", "83.33 ± 5.77", "23.33 ± 9.43"]
    assert cells[7] == "75.00 ± 35.36"  # churn on wrong examples
    assert cells[-2:] == ["–", "–"]
    steady = [cell.strip() for cell in lines[5].strip("|").split("|")]
    assert steady[-2:] == ["-23.33 ± 13.33", "0.222"]
    assert "* **Steady**: No detectable effect on churn" in "\n".join(lines)


def test_every_markdown_row_has_every_column(report):
    lines = reports.markdown_table(report).splitlines()
    lines = [line for line in lines if line.startswith("|")]
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {len(report.columns) + 6}


def test_labels_cannot_break_the_markdown_table(report):
    text = reports.markdown_table(_with_label(report, "a|b\n*c* <script>"))
    row = next(line for line in text.splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a\|b \*c\* \<script\> |")


def test_the_csv_holds_full_precision_fractions(report):
    rows = list(csv.DictReader(io.StringIO(reports.csv_table(report))))
    assert [row["method"] for row in rows] == ["baseline", "steady", "halting"]
    base, steady, halting = rows
    asked = {name for name, quantity in QUANTITIES.items() if quantity.on_request}
    assert not asked & set(base) - {"parameters"}  # that is a fact of the row
    for name in QUANTITIES.keys() - asked:
        estimate = getattr(report.rows[0].summary, name)
        assert float(base[name]) == estimate.mean
        assert float(base[f"{name}_stderr"]) == estimate.stderr
    np.testing.assert_allclose(float(steady["delta_churn"]), -0.7 / 3, rtol=1e-6)
    assert float(steady["delta_churn_p_holm"]) == report.rows[1].comparison.churn_p
    assert halting["delta_churn_p"] == "" and base["delta_churn"] == ""
    assert (halting["runs"], halting["stopped_runs"]) == ("2", "2")
    assert base["status"] == "finished"


def test_the_terminal_shows_all_columns_when_wide_and_the_main_ones_when_narrow(report):
    wide, narrow = _printed(report, 200), _printed(report, 80)
    assert "ECE %" in wide and "75.00 ± 35.36" in wide
    assert "ECE %" not in narrow and "23.33 ± 9.43" in narrow
    for text in (wide, narrow):
        assert "No detectable effect on churn" in text
        assert "run 2 stopped at step 120" in " ".join(text.split())
    assert max(map(len, narrow.splitlines())) <= 80


@pytest.mark.parametrize("label", ["[bold]x[/bold]", "[/oops]"])
def test_labels_are_not_terminal_markup(report, label):
    assert label in _printed(_with_label(report, label), 200)
