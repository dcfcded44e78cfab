"""Links of a page or a notebook as GitHub reads them, made to work on the site.

A page that shows a file from elsewhere in the repository is a heading and the line
`<!-- shows: ../../CHANGELOG.md -->`; tutorials are the notebooks of `colabs/`. Links
between files then lead to their pages; links to other files lead to the repository,
once its address is set.
"""

import functools
import json
import os
import re
from pathlib import Path

SHOWS = re.compile(r"<!-- shows: (\S+) -->")
IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s:]+)\)")
LINK = re.compile(
    r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)"
)

REFERENCE = re.compile(r"\[([^\[\]]*)\]\[([^\[\]]+)\]")
DEFINITION = re.compile(r"^\[([^\[\]]+)\]: (\S+)\n", re.M)


@functools.cache
def shown_files(docs: Path) -> dict[Path, Path]:
    """From a file elsewhere in the repository to the page that shows it."""
    pages = {
        (page.parent / found[1]).resolve(): page
        for page in docs.rglob("*.md")
        if not {"_build", "api"} & set(page.parts)
        and (found := SHOWS.search(page.read_text()))
    }
    notebooks = (docs.parent / "colabs").glob("*.ipynb")
    return pages | {path: docs / "tutorials" / path.name for path in notebooks}


def relink(text: str, home: Path, page: Path, shown: dict[Path, Path], repository: str):
    """`text` of the file `home` with links as they must be on `page`."""
    docs = next(p for p in page.parents if p.name == "docs")
    places = dict(DEFINITION.findall(text))
    text = DEFINITION.sub("", text)
    text = REFERENCE.sub(
        lambda m: f"[{m[1]}]({places[m[2]]})" if m[2] in places else m[0], text
    )

    def link(match):
        label, target = match.groups()
        path, mark, anchor = target.partition("#")
        inside = f"{repository}/blob/main/"
        if repository and path.startswith(inside):
            path = os.path.relpath(docs.parent / path.removeprefix(inside), home.parent)
        elif "://" in target or target.startswith(("mailto:", "{")) or not path:
            return match[0]
        file = Path(os.path.normpath(home.parent / path))
        if not file.exists():
            return match[0]
        if (file / "README.md").is_file():
            file = file / "README.md"
        file = shown.get(file, file)
        if file.is_relative_to(docs):
            return f"[{label}]({os.path.relpath(file, page.parent)}{mark}{anchor})"
        if not repository:
            return label
        kind = "tree" if file.is_dir() else "blob"
        place = file.relative_to(docs.parent).as_posix()
        return f"[{label}]({repository}/{kind}/main/{place}{mark}{anchor})"

    def image(match):
        file = os.path.normpath(home.parent / match[2])
        return f"{match[1]}{os.path.relpath(file, page.parent)})"

    return IMAGE.sub(image, LINK.sub(link, text))


def _read(app, docname, content):
    page = Path(app.env.doc2path(docname))
    shown, repository = shown_files(Path(app.srcdir)), app.config.churn_repository
    if page.suffix == ".ipynb":
        home = page.parents[2] / "colabs" / page.name
        notebook = json.loads(content[0])
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                text = "".join(cell["source"])
                cell["source"] = relink(text, home, page, shown, repository)
        content[0] = json.dumps(notebook)
    elif page.suffix == ".md":
        text, home = content[0], page
        if shows := SHOWS.search(text):
            home = (page.parent / shows[1]).resolve()
            app.env.note_dependency(str(home))
            text = home.read_text()
        content[0] = relink(text, home, page, shown, repository)


def setup(app):
    """Rewrites every page when it is read."""
    app.add_config_value("churn_repository", "", "env")
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
