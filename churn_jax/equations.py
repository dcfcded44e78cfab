"""The index from equations to code, read from the `References:` lines of docstrings.

The source tree is parsed, not imported, so this needs nothing but the standard library:

    python -m churn_jax.equations          # a table, in Markdown
    python -m churn_jax.equations --write docs/reference/equations.md  # refreshes it

The page has the equations themselves too, from the file `formulas.toml` next to it.
"""

import argparse
import ast
import dataclasses
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BEGIN = "<!-- equations:begin -->"
END = "<!-- equations:end -->"

PACKAGES = ("losses", "metrics", "perturbations", "methods", "analysis")
_BASES = ("base.py", "batch.py", "fields.py")  # of methods, without references
PAPERS = ("reproducibility", "anti-distillation", "diversity", "elodi")

_TAG = re.compile(
    r"\[(?P<paper>[a-z0-9][a-z0-9-]*)\] (?P<label>.+?) -- (?P<citation>.+?) "
    r"(?P<url>https?://\S+)"
)
_KINDS = ("Eq", "Def", "Lemma", "Theorem", "Sec", "App", "Alg", "Table", "Fig")


@dataclasses.dataclass(frozen=True)
class Equation:
    """One reference of one public object."""

    paper: str  # its key, such as `reproducibility`
    label: str  # place in the paper, such as `Eq. 9`
    name: str  # such as `churn_jax.losses.symmetric_kl`
    file: str  # from the repository's root, with forward slashes
    line: int  # of the definition
    citation: str
    url: str


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
        """What a link to that title ends in, on GitHub and on the site."""
        return re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-")


Formulas = Mapping[tuple[str, str], Formula]


@dataclasses.dataclass(frozen=True)
class _Public:
    """A public function or class, where it is defined."""

    package: str
    name: str
    path: Path
    node: ast.FunctionDef | ast.ClassDef

    @property
    def qualified(self) -> str:
        top = "" if self.package.startswith("experiments.") else "churn_jax."
        return f"{top}{self.package}.{self.name}"


def _package_root(root: Path | None) -> Path:
    return Path(__file__).resolve().parent if root is None else Path(root)


def _module_path(root: Path, module: str) -> Path:
    top, *rest = module.split(".")
    if top == "churn_compare":
        spec = importlib.util.find_spec(top)  # which finds it, and imports nothing
        places = spec.submodule_search_locations if spec else None
        root = Path(*(places or ()))
    path = root.joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _file(root: Path, path: Path) -> str:
    """The path from the root of the repository."""
    if path.is_relative_to(root.parent / "experiments") or path.is_relative_to(root):
        return path.relative_to(root.parent).as_posix()
    parts = path.parts
    return "/".join(("compare", *parts[parts.index("churn_compare") :]))


def _imported_from(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Local name to (module, name there), also under `if TYPE_CHECKING:`."""
    lazy = [node for of in tree.body if isinstance(of, ast.If) for node in of.body]
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in (*tree.body, *lazy)
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.split(".")[0] in ("churn_jax", "churn_compare")
        for alias in node.names
    }


def _assigned(tree: ast.Module) -> set[str]:
    """Names that a module assigns: constants and aliases."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def _definition(
    root: Path, module: str, name: str
) -> tuple[Path, ast.FunctionDef | ast.ClassDef] | None:
    """Path and node of `module.name`, through re-exports; None for an assignment."""
    path = _module_path(root, module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return path, node
    if name in (imported := _imported_from(tree)):
        module, there = imported[name]
        return _definition(root, module, there)
    if name in _assigned(tree):
        return None
    raise ValueError(
        f"{path.relative_to(root.parent).as_posix()}: {name!r} is exported, but "
        "neither defined nor imported by its absolute name"
    )


def exported_names(path: Path) -> list[str]:
    """`__all__` of a package, which has to be a literal list."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__"
            for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return []


def _public_objects(root: Path) -> Iterator[_Public]:
    for package in PACKAGES:
        init = root / package / "__init__.py"
        if not init.exists():
            continue
        for name in exported_names(init):
            found = _definition(root, f"churn_jax.{package}", name)
            if found is not None:  # aliases and constants have no docstring to read
                path, node = found
                yield _Public(package, name, path, node)
    for path in sorted(root.parent.glob("experiments/*/*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield _Public(".".join(parts), node.name, path, node)


def _references(docstring: str | None) -> list[str]:
    """The tagged entries of a docstring's `References:` block, one line each."""
    entries: list[str] = []
    inside = False
    for line in (docstring or "").splitlines():
        if line.strip() == "References:":
            inside = True
        elif inside and line and not line.startswith(" "):
            inside = False
        elif inside and line.strip().startswith("["):
            entries.append(line.strip())
        elif inside and line.strip() and entries:
            entries[-1] += " " + line.strip()
    return entries


def references(docstring: str | None) -> list[dict[str, str]]:
    """`paper`, `label`, `citation` and `url` of what a docstring refers to."""
    tags = [_TAG.fullmatch(text) for text in _references(docstring)]
    return [tag.groupdict() for tag in tags if tag is not None]


def places(label: str) -> list[str]:
    """The single places of a label: `Eqs. 2, 5` are `Eq. 2` and `Eq. 5`.

    Example:
        >>> places("Eqs. 2, 5"), places("Section 3")
        (['Eq. 2', 'Eq. 5'], ['Sec. 3'])
    """
    if label.startswith("Eqs. "):
        return [f"Eq. {number}" for number in label[5:].split(", ")]
    return [re.sub(r"^Section ", "Sec. ", label)]


def read_formulas(path: Path) -> dict[tuple[str, str], Formula]:
    """The formulas of a file by paper and label; none where there is no file."""
    if not path.exists():
        return {}
    papers = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        (paper, label): Formula(paper, label, name, tex.strip())
        for paper, of in papers.items()
        if paper != "notes"
        for label, (name, tex) in of.items()
    }


def _number(label: str) -> int:
    digits = re.search(r"\d+", label)
    return int(digits.group()) if digits else sys.maxsize


def _kind(label: str) -> int:
    return next(
        (i for i, kind in enumerate(_KINDS) if label.startswith(kind)), len(_KINDS)
    )


def _order(entry: Equation):
    """The four papers first; equations before lemmas, sections and tables."""
    paper = PAPERS.index(entry.paper) if entry.paper in PAPERS else len(PAPERS)
    place = _kind(entry.label), _number(entry.label), entry.label
    return paper, entry.paper, *place, entry.name


def equation_index(root: Path | None = None) -> list[Equation]:
    """Every reference of every public loss, metric, perturbation and method.

    In a clone those of `experiments` are among them.

    Sorted by paper and by number within it.

    Example:
        >>> [e.name for e in equation_index() if e.label == "Eq. 9"][0]
        'churn_jax.losses.symmetric_kl'
    """
    root = _package_root(root)
    entries = []
    for public in _public_objects(root):
        file = _file(root, public.path)
        for text in _references(ast.get_docstring(public.node)):
            tag = _TAG.fullmatch(text)
            if tag is None:
                raise ValueError(
                    f"{file}:{public.node.lineno} {public.name}: a reference must read "
                    "'[key] Eq. N -- Author et al., Title, venue year. https://...'; "
                    f"got {text!r}"
                )
            entries.append(
                Equation(
                    name=public.qualified,
                    file=file,
                    line=public.node.lineno,
                    **tag.groupdict(),
                )
            )
    return sorted(entries, key=_order)


def untagged(root: Path | None = None) -> list[str]:
    """Qualified names of public objects that should have a reference and have none."""
    # Functions of losses, metrics and perturbations, and classes of methods outside
    # `methods/base.py`. States and result types belong to a function with a reference.
    return [
        public.qualified
        for public in _public_objects(_package_root(root))
        # Not our statistics, and not what one analysis of a paper is made of.
        if public.package != "analysis"
        and "." not in public.package
        and (
            isinstance(public.node, ast.ClassDef) and public.path.name not in _BASES
            if public.package == "methods"
            else isinstance(public.node, ast.FunctionDef)
        )
        and not _references(ast.get_docstring(public.node))
    ]


def markdown_table(entries: Sequence[Equation] | None = None, *, root: str = "") -> str:
    """The index as a Markdown table; `root` is put before its links to files."""
    # Without lines, so that the table changes only when an equation does.
    rows = ["| Paper | Where | Function | File |", "|---|---|---|---|"]
    rows += [
        f"| [{e.paper}]({e.url}) | {e.label} | `{e.name}` | "
        f"[{e.file}]({root}{e.file}) |"
        for e in (equation_index() if entries is None else entries)
    ]
    return "\n".join(rows) + "\n"


def markdown_page(
    entries: Sequence[Equation] | None = None,
    *,
    formulas: Formulas | None = None,
    notes: Mapping[str, str] | None = None,
    root: str = "",
) -> str:
    """The index as a page: a section per paper, a heading per equation, its functions.

    Args:
        entries: of `equation_index`, which is read if they are not given.
        formulas: of `read_formulas`. What has none is in a table after the others.
        notes: a sentence below the title of a paper, by paper.
        root: put before links to files.
    """
    entries = equation_index() if entries is None else entries
    formulas, notes = formulas or {}, notes or {}
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
        for place in sorted(known, key=lambda p: (_kind(p), _number(p), p)):
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


def _page_in(folder: Path) -> str:
    """The index as a page of a folder, with the formulas that stand there."""
    repository, file = _package_root(None).parent, folder / "formulas.toml"
    inside = folder.is_relative_to(repository)
    depth = len(folder.relative_to(repository).parts) if inside else 0
    notes = tomllib.loads(file.read_text("utf-8"))["notes"] if file.exists() else {}
    return markdown_page(formulas=read_formulas(file), notes=notes, root="../" * depth)


def write_table(path: Path, table: str | None = None) -> bool:
    """Writes the index between the markers of a file; whether that changed it."""
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} must have the lines {BEGIN} and, after it, {END}")
    if table is None:
        table = _page_in(path.resolve().parent)
    updated = f"{head}{BEGIN}\n{table}{END}{tail}"
    if updated != text:
        path.write_text(updated, encoding="utf-8")
    return updated != text


def print_equations(console=None) -> None:
    """Prints equation, function and file:line, unwrapped where it is no terminal."""
    from rich.console import Console
    from rich.table import Table

    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)
    table = Table("Paper", "Where", title="From equations to code")
    table.add_column("Function", overflow="fold")
    table.add_column("File", overflow="fold")
    for e in equation_index():
        table.add_row(e.paper, e.label, e.name, f"{e.file}:{e.line}")
    console.print(table, markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or write it into a file; 2 for a file that has no markers."""
    parser = argparse.ArgumentParser(
        prog="python -m churn_jax.equations",
        description="Index from the papers' equations to functions.",
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="refresh the index in this file"
    )
    arguments = parser.parse_args(argv)
    if arguments.write is None:
        print(markdown_table(), end="")
        return 0
    try:
        changed = write_table(arguments.write)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.write}: {'updated' if changed else 'already up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
