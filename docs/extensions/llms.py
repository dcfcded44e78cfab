"""llms.txt: the pages by section.

sphinx_llm writes the Markdown of every page; its own list is flat and takes minutes.
"""

from pathlib import Path


def listing(env, docname: str) -> list[str]:
    """A page and those below it; of the API its overviews alone."""
    title = " ".join(env.titles[docname].astext().split())
    found = [f"- [{title}]({docname}.html.md)"]
    if docname.count("/") < 3:
        for below in env.toctree_includes.get(docname, []):
            if below.endswith("/index") or docname.count("/") < 2:
                found += listing(env, below)
    return found


def write(app, exception) -> None:
    """Writes llms.txt of the site."""
    if exception or app.builder.name != "html":
        return
    env, config = app.env, app.config
    out = [f"# {config.project}", "", f"> {config.llms_txt_description}", ""]
    for section in env.toctree_includes[config.root_doc]:
        out += [f"## {env.titles[section].astext()}", "", *listing(env, section), ""]
    Path(app.outdir, "llms.txt").write_text("\n".join(out), encoding="utf-8")


def setup(app):
    """Runs after sphinx_llm."""
    app.connect("build-finished", write, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
