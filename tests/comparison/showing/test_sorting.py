"""Cells carry the number that they are sorted by."""

import math

import pytest

from churn_jax.comparison.showing.sorting import (
    SCRIPT,
    Column,
    number,
    sortable_table,
    word,
)


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (0.25, ' data-value="0.25"'),
        (-3, ' data-value="-3"'),
        (1e-9, ' data-value="1e-09"'),
        (math.inf, ' data-value="Infinity"'),
        (-math.inf, ' data-value="-Infinity"'),
        (math.nan, ' data-value=""'),
    ],
)
def test_every_number_is_written_as_a_script_reads_it(value, attribute):
    table = sortable_table(
        [Column("a"), Column("b")], [[word("x"), number("?", value)]]
    )
    assert f"<td{attribute}>?</td>" in table


def test_text_is_escaped_in_heads_cells_and_caption():
    evil = '<i onclick="x">'
    table = sortable_table(
        [Column(evil, "ascending", words=True), Column(evil)],
        [[word(evil), number(evil, 1.0, evil)]],
        evil,
    )
    assert "<i" not in table
    assert table.count("&lt;i onclick=&quot;x&quot;&gt;") == 6


def test_a_row_that_is_too_short_is_an_error():
    with pytest.raises(ValueError, match="shorter"):
        sortable_table([Column("a"), Column("b")], [[word("x")]])


def test_without_the_script_there_are_no_buttons():
    assert "<button" not in sortable_table([Column("a")], [[word("x")]])
    assert 'createElement("button")' in SCRIPT
    assert "</" not in SCRIPT  # nothing in it can end the element that holds it
