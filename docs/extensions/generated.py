"""Parts of a page that are written from the package's own declarations.

A line `<!-- generated: MODULE.FUNCTION ARGUMENT -->` is replaced by the Markdown that
the function of a module in this folder returns.
"""

import importlib
import re

MARK = re.compile(r"^<!-- generated: (\w+)\.(\w+) ?(.*?) -->$", re.M)


def filled_in(text: str) -> str:
    """`text` with what its marks stand for."""

    def written(match: re.Match) -> str:
        module, function, argument = match.groups()
        return getattr(importlib.import_module(module), function)(argument)

    return MARK.sub(written, text)


def _read(app, docname, content):
    if MARK.search(content[0]):
        content[0] = filled_in(content[0])
        app.env.note_reread()  # the declarations may change without the page


def setup(app):
    """Fills pages in before anything else reads them."""
    app.connect("source-read", _read, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
