import dataclasses
import re

import pytest

from churn_jax.comparison.verdict import sentences
from churn_jax.escaping import markdown_text
from tests.comparison.results import fake_result


def cells(line):
    """Of a row of a table: what stands between pipes that are not escaped."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def tables(text):
    """Blocks of consecutive lines that begin with a pipe."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return [[cells(line) for line in block.splitlines()] for block in blocks]


@pytest.mark.parametrize("labelled", [True, False])
def test_tables_are_rectangular_and_have_every_number(labelled):
    result = fake_result(runs=2, labelled=labelled)
    text = result.markdown()
    found = tables(text)
    assert len(found) == (3 if labelled else 1)
    for head, line, *rows in found:
        assert rows
        assert all(len(row) == len(head) for row in (line, *rows))
        assert all(re.fullmatch(":--|--:", cell) for cell in line)
    assert ("| Accuracy |" in text) == labelled
    assert "| Churn | 6.3 % | 5.3 to 7.4 % |" in text
    for sentence in sentences(result):
        assert f"* {markdown_text(sentence)}\n" in text


def test_gates_come_first():
    result = fake_result()
    text = result.markdown()
    assert "**FAILED: 1 of 2 gates does not hold.**" in text
    for outcome in result.gates:
        assert text.index(markdown_text(outcome.line)) < text.index(
            "The update changes"
        )
    assert "FAIL" not in dataclasses.replace(result, gates=()).markdown()


def test_names_from_files_are_no_markup():
    names = ["a|b", "<script>", "`x`", "@someone", "#12", "a\n| b", *"efgh"]
    text = fake_result(names=names, seed=2).markdown()
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", text)
    assert "@someone" not in text
    assert "#12" not in text
    assert not re.search(r"(?<!\\)`", text)
    for head, *rows in tables(text):
        assert all(len(row) == len(head) for row in rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\|b", r"a\\\|b"),
        ("1. first", r"1\. first"),
        ("# head", r"\# head"),
        ("- item", r"\- item"),
        ("-0.5 to 1", "-0.5 to 1"),
        ("a@b", "a@\u200bb"),
        ("&lt;", r"\&lt;"),
        ("95 % (3.9)", "95 % (3.9)"),
    ],
)
def test_what_is_escaped(text, expected):
    assert markdown_text(text) == expected
