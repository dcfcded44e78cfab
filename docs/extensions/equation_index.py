"""The search finds the equations page's headings by `Eq. 9` and `elodi Eq. 9`."""

import re

from docutils import nodes
from sphinx import addnodes

PAGE = "reference/equations"
HEADING = re.compile(r"(?P<label>.+?) \((?P<paper>[\w-]+)\): (?P<name>.+)")


def add_entries(app, doctree) -> None:
    """An index entry for every heading of an equation."""
    if app.env.docname != PAGE:
        return
    for section in list(doctree.findall(nodes.section)):
        found = HEADING.fullmatch(section.next_node(nodes.title).astext())
        if found is None:
            continue
        label, paper, name = found.group("label", "paper", "name")
        entries = [
            ("single", text, section["ids"][0], "main", None)
            for text in (label, f"{paper} {label}", name)
        ]
        section.insert(1, addnodes.index(entries=entries))


def setup(app):
    """Adds entries when the page is read, before they are collected."""
    app.connect("doctree-read", add_entries, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
