"""Names from files reach a terminal, a CI log, Markdown and HTML without effect."""

import errno
import types

from churn_compare.cli import main
from churn_compare.command_line import _PLAIN
from churn_compare.escaping import markdown_text, printable
from tests.cases import csv_file

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


def test_names_cannot_steer_a_terminal_or_a_workflow():
    assert printable("a\x1b[31mb\r\n\tc\u202ed\u200be") == "a [31mb   c d e"
    assert printable("naïve 猫 🐈\u00a0%") == "naïve 猫 🐈\u00a0%"
    assert printable("\ud800\x9b0m") == "0m"
    names = "::set-env::", ":::a", "##[group]", "##vso[x]", "##teamcity[x]", "###["
    for name in names:
        for said in (printable(name), markdown_text(name)):
            commands = ("::", "##[", "##vso[", "##teamcity[")
            assert not any(part in said for part in commands), name


def test_what_cannot_be_printed_is_one_sentence(capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", types.SimpleNamespace(write=full))
        assert main(["--version"]) == 2
    assert "no space left on the disk" in capsys.readouterr().err
    assert "a → b ✓ ✗ \u2500 é".encode("cp1252", _PLAIN) == b"a -> b + - ? \xe9"


def test_every_output_of_compare_is_clean(tmp_path, capsys):
    classes = ("::notice::c", "\x1b[2Jd", "[red]e<script>alert(2)</script>")
    ids = [f"{name}{i}" for i, name in enumerate(NAMES * 3)]
    label, moved = ([classes[(i + s * (i % 2)) % 3] for i in range(30)] for s in (0, 1))
    sides = {"old<img src=x onerror=alert(3)>": label, "::add-mask::new": moved}
    sides = [
        csv_file(tmp_path / f"{side}.csv", id=ids, label=label, prediction=of)
        for side, of in sides.items()
    ]
    slices = {"id": ids, "::stop-commands::x\x1b[1m<img src=x>": NAMES * 3}
    page, comment = tmp_path / "page.html", tmp_path / "comment.md"
    options = ["--slices", csv_file(tmp_path / "slices.csv", **slices)]
    options += ["--html", page, "--markdown", comment]
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
    assert main([sides[0], "no\n::error::such\x1b[1m.csv"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "::" not in said and "\x1b" not in said
