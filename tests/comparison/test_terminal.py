import dataclasses
import io
import re

import pytest
from rich.console import Console

from churn_jax.comparison.number_text import value_text
from churn_jax.comparison.quantities import QUANTITIES
from churn_jax.comparison.verdict import gate_sentence, sentences
from churn_jax.documents import plain_text, print_document
from churn_jax.escaping import printable
from tests.comparison.results import fake_result

HEADINGS = (
    "Both versions",
    "Update",
    "Retraining alone",
    "Classes, worst first: 5 of 10",
    "Slices by region, worst first: 5",
    "Largest regressions: 10 of",
    "Most frequent changes: 5 of",
)


def test_every_part_of_a_full_comparison_is_printed():
    result = dataclasses.replace(fake_result(runs=3), notes=("3 rows were left out",))
    text = str(result)
    assert all(f"\n{heading}" in text for heading in HEADINGS)
    flowing = " ".join(text.split())
    assert all(sentence in flowing for sentence in sentences(result))
    assert "Note: 3 rows were left out" in text
    for name, interval in result.quantities.items():
        assert value_text(interval, QUANTITIES[name].unit) in text, name
    for regression in result.regressions[:10]:
        assert regression.id in text
    assert all(printable(outcome.line) in text for outcome in result.gates)
    assert text.endswith(gate_sentence(result) + "\n")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("names", [None, [f"kind-{i} " * 6 for i in range(10)]])
def test_lines_fit_and_numbers_are_whole(width, names):
    result = fake_result(runs=2, names=names)
    text = plain_text(result.terminal(), width)
    assert max(map(len, text.splitlines())) <= width
    assert max(len(line) for line in text.splitlines()) > width - 20
    change = result["accuracy_gain"]
    assert value_text(change, "points") in text
    group = next(g for g in result.groups if g.grouping == "region")
    assert f"{group.examples} " in text
    assert str(result) == plain_text(result.terminal())


def test_explanations_need_a_wide_terminal():
    result = fake_result()
    formula = QUANTITIES["negative_flip_rate"].formula
    assert formula in plain_text(result.terminal(), 120)
    assert formula not in plain_text(result.terminal(), 80)


def test_parts_that_are_not_there_leave_no_heading():
    text = str(fake_result(labelled=False, scored=False, groupings=()))
    assert "Update" in text
    assert "Most frequent changes" in text
    for heading in (*HEADINGS[:1], *HEADINGS[2:6], "Now wrong"):
        assert heading.split(",")[0] not in text
    text = str(fake_result(scored=False, gates=False))
    assert "Fall of p" not in text
    assert not re.search("PASS|FAIL", text)


def test_names_from_files_are_neither_markup_nor_control_characters():
    names = ["[red]\x1b[2Jcat[/red]", "[/bold]", *(f"c{i}" for i in range(8))]
    result = fake_result(names=names)
    result = dataclasses.replace(
        result, old=dataclasses.replace(result.old, name="[b]x\x07.npz")
    )
    text = plain_text(result.terminal(), 120)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[b]x .npz" in text
    assert "[red] [2Jcat[/red]" in text


def test_a_terminal_gets_colours_and_a_file_none():
    result = fake_result(gates=True)
    printed = {}
    for terminal in (True, False):
        file = io.StringIO()
        console = Console(
            file=file,
            width=80,
            force_terminal=terminal,
            color_system="standard" if terminal else "auto",
        )
        print_document(result.terminal(), console)
        printed[terminal] = file.getvalue()
    assert "\x1b[" in printed[True]
    assert "\x1b[" not in printed[False]
    colourless = re.sub(r"\x1b\[[\d;]*m", "", printed[True])
    assert colourless == printed[False]


def test_an_update_that_changes_nothing_is_printed():
    result = fake_result(seed=1)
    nothing = dataclasses.replace(
        result,
        quantities={"churn": dataclasses.replace(result["churn"], value=0.0, low=0.0)},
        flow=type(result.flow)((), (), (), (), ()),
        groups=(),
        regressions=(),
    )
    text = str(nothing)
    assert "changes no prediction" in text
    assert "Most frequent" not in text
    assert "Largest" not in text
