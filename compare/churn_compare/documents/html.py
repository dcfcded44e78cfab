"""A document as one self-contained HTML page for screens, phones and paper.

The page loads nothing, which its Content-Security-Policy makes the browser enforce. It
has one script, for sortable tables. All text is escaped by Jinja2, unless a template
marks it `safe`, as for drawings, or a value is `Markup`.
"""

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from churn_compare.documents.blocks import (
    Block,
    Document,
    Inline,
    Strong,
    visible_blocks,
)
from churn_compare.escaping import without_controls

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def html_page(document: Document) -> str:
    """A document as a whole HTML page."""
    blocks = visible_blocks(document.blocks, figures=True)
    script = _file("page.js") if _any_sortable(blocks) else ""
    digest = _base64(hashlib.sha256(script.encode()).digest())
    run = f"; script-src 'sha256-{digest}'" if script else ""
    return _render(
        "page",
        blocks,
        title=document.title,
        facts=[fact for fact in document.facts if fact],
        command=document.command,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{run}",
    )


def html_fragment(blocks: Sequence[Block]) -> str:
    """Blocks as a `div` for a notebook, with a style that affects nothing else."""
    return _render("fragment", visible_blocks(blocks, figures=True))


def _render(name: str, blocks: Sequence[Block], **values: Any) -> str:
    template = _templates().get_template(f"{name}.html.j2")
    return template.render(blocks=blocks, style=_file(f"{name}.css"), **values)


def _any_sortable(blocks: Sequence[Block]) -> bool:
    return any(
        getattr(block, "sortable", False) or _any_sortable(getattr(block, "blocks", ()))
        for block in blocks
    )


def _file(name: str) -> str:
    folder = resources.files("churn_compare.documents") / "templates"
    return (folder / name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> "Environment":
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
    )
    found.filters |= {
        "inline": _inline,
        "kind": lambda block: type(block).__name__,
        "base64": _base64,
    }
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _clean(value: Any) -> Any:
    """Text without control characters, yet to be escaped by Jinja2."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return without_controls(value, keep="\n\t")
    return value


def _inline(text: Inline) -> "Markup":
    """Escaped text with emphasis, without line breaks before percent signs."""
    from markupsafe import Markup, escape

    out = Markup("")
    for part in (text,) if isinstance(text, str | Strong) else text:
        words = part.text if isinstance(part, Strong) else part
        lines = _clean(words).replace(" %", "\u00a0%").split("\n")
        shown = Markup("<br>").join(map(escape, lines))
        if isinstance(part, Strong):
            tone = Markup(' class="{}"').format(part.tone) if part.tone else ""
            shown = Markup("<strong{}>{}</strong>").format(tone, shown)
        out += shown
    return out
