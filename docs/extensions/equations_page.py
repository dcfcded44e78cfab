"""The page of equations: the index of `churn_jax.equations` with the papers' formulas.

    python docs/extensions/equations_page.py docs/reference/equations.md  # refreshes it

Formulas are in the file `formulas.toml` next to the page.
"""

import dataclasses
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from churn_jax.equations import ROOT, Equation, equation_index, place_order

BEGIN = "<!-- equations:begin -->"
END = "<!-- equations:end -->"


@dataclasses.dataclass(frozen=True)
class Formula:
    """An equation of a paper, in LaTeX."""

    paper: str
    label: str
    name: str  # what it says, such as `surrogate churn`
    tex: str

    @property
    def heading(self) -> str:
        """Its title on the page of equations."""
        return f"{self.label} ({self.paper}): {self.name}"

    @property
    def anchor(self) -> str:
        """The anchor of that title, on GitHub and on the site."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


Formulas = Mapping[tuple[str, str], Formula]


def places(label: str) -> list[str]:
    """The single places of a label: `Eqs. 2, 5` are `Eq. 2` and `Eq. 5`.

    Example:
        >>> places("Eqs. 2, 5"), places("Sec. 3")
        (['Eq. 2', 'Eq. 5'], ['Sec. 3'])
    """
    if label.startswith("Eqs. "):
        return [f"Eq. {number}" for number in label[5:].split(", ")]
    return [label]


def read_formulas(path: Path) -> dict[tuple[str, str], Formula]:
    """The formulas of a file by paper and label."""
    papers = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        (paper, label): Formula(paper, label, name, tex.strip())
        for paper, of in papers.items()
        if paper != "notes"
        for label, (name, tex) in of.items()
    }


def markdown_page(
    entries: Sequence[Equation],
    *,
    formulas: Formulas,
    notes: Mapping[str, str],
    root: str = "",
) -> str:
    """The index as a page: a section per paper, a heading per equation, its functions.

    Args:
        entries: entries of `equation_index`.
        formulas: formulas of `read_formulas`. What has none is in a table after the
            others.
        notes: a sentence below the title of a paper, by paper.
        root: put before links to files.
    """
    papers: dict[str, dict[str, list[Equation]]] = {}
    for entry in entries:
        places_here = papers.setdefault(entry.paper, {})
        for place in places(entry.label):
            places_here.setdefault(place, []).append(entry)
    out: list[str] = []
    for paper, found in papers.items():
        first = next(e for e in entries if e.paper == paper)
        out += [f"## {paper}", "", f"[{first.citation}]({first.url})", ""]
        if paper in notes:
            out += [notes[paper], ""]
        known = [place for place in found if (paper, place) in formulas]
        for place in sorted(known, key=place_order):
            formula = formulas[paper, place]
            out += [f"### {formula.heading}", "", "$$", formula.tex, "$$", ""]
            unique = {e.name: e.file for e in found[place]}
            out += [f"* `{n}`, [{f}]({root}{f})" for n, f in unique.items()] + [""]
        rest = [e for place, es in found.items() if place not in known for e in es]
        if rest:
            title = [f"### Elsewhere in {paper}", ""] if known else []
            out += [*title, "| Where | Function | File |", "|---|---|---|"]
            rows = [
                f"| {e.label} | `{e.name}` | [{e.file}]({root}{e.file}) |" for e in rest
            ]
            out += [*dict.fromkeys(rows), ""]
    return "\n".join(out)


def page_text(path: Path) -> str:
    """The text of a page with the index between its markers."""
    text, file = path.read_text(encoding="utf-8"), path.parent / "formulas.toml"
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} must have the lines {BEGIN} and, after it, {END}")
    index = markdown_page(
        equation_index(),
        formulas=read_formulas(file),
        notes=tomllib.loads(file.read_text("utf-8"))["notes"],
        root="../" * len(path.resolve().parent.relative_to(ROOT).parts),
    )
    return f"{head}{BEGIN}\n{index}{END}{tail}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(page_text(page), encoding="utf-8")
