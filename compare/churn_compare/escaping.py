r"""Text from outside (ids, names, file names, errors), made safe to show.

Every writer of text for people passes it through one of these functions, for a
terminal, a CI log, Markdown or HTML. Files for programs keep names exactly: JSON
escapes them itself, and CSV holds them as they are, so a spreadsheet may take a name
that starts with `=` for a formula.
"""

import html
import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def printable(text: str) -> str:
    r"""Text on one line, without control sequences of terminals and CI runners."""
    text = without_controls(text, keep="").strip()
    return re.sub(r"#(?=#\w*\[)", "# ", re.sub(":(?=:)", ": ", text))


def with_ends(text: str, escaped: Callable[[str], str] = printable) -> str:
    """A part of a line, escaped; spaces at either end are kept."""
    words = text.strip(" ")
    start = text[: len(text) - len(text.lstrip(" "))]
    return start + escaped(words) + (text[len(start) + len(words) :])


def terminal_text(text: str, style: str = "") -> "Text":
    """Printable text for a console of Rich, not read as markup."""
    from rich.text import Text

    return Text(printable(text), style)


def markdown_text(text: str) -> str:
    r"""Printable text without Markdown, links or mentions of people on GitHub."""
    text = re.sub(r"([\\`*_{}\[\]<>|~&$])", r"\\\1", printable(text))
    text = re.sub(r"^(\d*)(#+|[+.)-])(?=\s)", r"\1\\\2", text)  # a heading or a list
    # Mentions of people, issues and requests, and bare links.
    live = r"(?i)([@#!](?=\w)|\bgh-(?=\d)|\bwww\.|:(?=//))"
    return re.sub(live, "\\1\N{ZERO WIDTH SPACE}", text)


def escape(text: str) -> str:
    r"""Text for HTML, without control characters or direction overrides."""
    return html.escape(without_controls(text, keep="\n\t"))


def without_controls(text: str, *, keep: str) -> str:
    """Text with spaces for control characters and direction overrides."""
    # Spaces of all kinds are kept, as are the characters in `keep`.
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else " "
        for c in text
    )
