"""Names from files reach a terminal, a CI log, Markdown and HTML without effect."""

import csv

import pytest

from churn_compare.cli import main
from churn_compare.escaping import escape, markdown_text, printable

NAMES = (
    "::error::pwned",
    "##[error]pwned",
    "##teamcity[message text='pwned']",
    "$x^2$ https://pwned.example www.pwned.example GH-12 !34",
    "\x1b[31mred\x1b[0m",
    "a\n::warning::b",
    "\u202eevil",
    "[bold]c[/bold]",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
)


def test_names_cannot_steer_a_terminal():
    assert printable("a\x1b[31mb\r\n\tc\u202ed\u200be") == "a [31mb   c d e"
    assert printable("naïve 猫 🐈\u00a0%") == "naïve 猫 🐈\u00a0%"
    assert printable("\ud800\x9b0m") == "0m"


@pytest.mark.parametrize(
    "name", ["::set-env::", ":::a", "##[group]", "##vso[x]", "##teamcity[x]", "###["]
)
def test_no_part_of_a_name_is_a_workflow_command(name):
    for said in (printable(name), markdown_text(name)):
        assert not any(part in said for part in ("::", "##[", "##vso[", "##teamcity["))


def test_html_keeps_lines_and_loses_controls():
    assert escape("<a>\n\x1b\u202e") == "&lt;a&gt;\n  "


def table(path, *heads, rows):
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", *heads])
        lines.writerows([f"{NAMES[i % len(NAMES)]}{i}", *row] for i, *row in rows)


def test_every_output_of_compare_is_clean(tmp_path, capsys):
    classes = ("::notice::c", "\x1b[2Jd", "[red]e<script>alert(2)</script>")
    sides = []
    for side, shift in (("old<img src=x onerror=alert(3)>", 0), ("::add-mask::new", 1)):
        sides.append(tmp_path / f"{side}.csv")
        rows = (
            (i, classes[i % 3], classes[(i + shift * (i % 2)) % 3]) for i in range(30)
        )
        table(sides[-1], "label", "prediction", rows=rows)
    slices = tmp_path / "slices.csv"
    rows = ((i, NAMES[i % len(NAMES)]) for i in range(30))
    table(slices, "::stop-commands::x\x1b[1m<img src=x>", rows=rows)
    page, comment = tmp_path / "page.html", tmp_path / "comment.md"
    options = ["--slices", slices, "--html", page, "--markdown", comment]
    gates = ["--max-churn", "1%", "--max-slice-nfr", "2%"]
    assert main([*map(str, (*sides, *options, *gates))]) == 1
    terminal = capsys.readouterr().out
    for text in (terminal, comment.read_text()):
        assert "pwned" in text
        live = ("::", "##[", "##teamcity[", "\x1b", "\u202e")
        assert not any(found in text for found in live)
    live = ("://", "www.pwned", "GH-1", "!3", " $x", "^2$")
    assert not any(found in comment.read_text() for found in live)
    text = page.read_text()
    assert "pwned" in text and "\x1b" not in text and "\u202e" not in text
    assert "&lt;script&gt;alert(" in text and "&lt;img src=x" in text
    assert "<script>alert" not in text and "<img" not in text
    assert main([str(sides[0]), "no\n::error::such\x1b[1m.csv"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "::" not in said and "\x1b" not in said
