"""llms.txt: the pages by section, each with its first sentence.

sphinx_llm writes the Markdown of every page; its own list is flat and escapes code.
"""

import re
from pathlib import Path

from docutils import nodes


def first_sentence(doctree) -> str:
    """The first sentence of a page that says something."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if len(text) < 25 or isinstance(paragraph.parent, nodes.entry):
            continue
        sentence = re.split(r"(?<=[.?!]) (?=[A-Z])", text)[0]
        return sentence if len(sentence) <= 200 else f"{sentence[:197]}..."
    return ""


def entry(env, docname: str) -> str:
    """One page of the list."""
    title = " ".join(env.titles[docname].astext().split())
    said = first_sentence(env.get_doctree(docname))
    return f"- [{title}]({docname}.html.md)" + (f": {said}" if said else "")


def listing(env, docname: str, deepest: int) -> list[str]:
    """A page and the pages below it, down to a depth."""
    out = [entry(env, docname)]
    if docname.count("/") < deepest:
        for below in env.toctree_includes.get(docname, []):
            if below.endswith("/index") or docname.count("/") < deepest - 1:
                out += listing(env, below, deepest)
    return out


def write(app, exception) -> None:
    """Writes llms.txt of the site."""
    if exception or app.builder.name != "html":
        return
    env = app.env
    root = app.config.root_doc
    out = [f"# {app.config.project}", "", f"> {app.config.llms_txt_description}", ""]
    for section in env.toctree_includes[root]:
        out += [f"## {env.titles[section].astext()}", "", *listing(env, section, 3), ""]
    Path(app.outdir, "llms.txt").write_text("\n".join(out), encoding="utf-8")


def setup(app):
    """Runs after sphinx_llm."""
    app.connect("build-finished", write, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
