"""Formulas as MathML, which every browser draws without a script or a font of ours."""

import re

from docutils import nodes
from docutils.utils.math import latex2mathml

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


def setup(app):
    """Registers the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
