"""Formulas as MathML, which browsers draw without a script, in STIX Two Math.

Without a font for formulas of its own a device would draw them unstretched.
"""

import importlib.resources
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from fontTools.ttLib import TTFont

# docutils sets an index below an accent, as below a sum; an empty group separates them.
ACCENT = re.compile(r"(\\(?:hat|tilde|bar)\{[^{}]*\})(?=[_^])")


def _mathml(node, *, as_block):
    tex = ACCENT.sub(r"\1{}", node.astext())
    return latex2mathml.tex2mathml(tex, as_block=as_block)


def visit_inline(self, node):
    """`$...$` within a line."""
    self.body.append(_mathml(node, as_block=False))

    raise nodes.SkipNode


def visit_block(self, node):
    """`$$...$$` or a `math` directive."""
    self.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _write_font(app, exception):
    """The font that ziamath has, compressed; its licence is in it."""
    if exception or app.builder.format != "html":
        return
    fonts = importlib.resources.files("ziamath") / "fonts"
    with (fonts / "STIXTwoMath-Regular.ttf").open("rb") as file:
        font = TTFont(file)
        font.flavor = "woff"
        font.save(Path(app.outdir, "_static", "math.woff"))


def setup(app):
    """Registers the renderer `mathml`."""
    app.connect("build-finished", _write_font)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
