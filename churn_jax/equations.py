"""The index from equations to code, read from the `References:` lines of docstrings.

The source tree is parsed, not imported, so this needs nothing but the standard library:

    python -m churn_jax.equations          # the table, in Markdown
    python -m churn_jax.equations --write docs/reference/equations.md  # refreshes it
"""

import argparse
import ast
import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = [
    "BEGIN",
    "END",
    "Equation",
    "equation_index",
    "main",
    "markdown_table",
    "print_equations",
    "untagged",
    "write_table",
]

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
class _Public:
    """A public function or class, where it is defined."""

    package: str
    name: str
    path: Path
    node: ast.FunctionDef | ast.ClassDef

    @property
    def qualified(self) -> str:
        return f"churn_jax.{self.package}.{self.name}"


def _package_root(root: Path | None) -> Path:
    return Path(__file__).resolve().parent if root is None else Path(root)


def _module_path(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported_from(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Local name to (module, name there), also under `if TYPE_CHECKING:`."""
    lazy = [node for of in tree.body if isinstance(of, ast.If) for node in of.body]
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in (*tree.body, *lazy)
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.split(".")[0] == "churn_jax"
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
        return _definition(root, *imported[name])
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


def _number(label: str) -> int:
    digits = re.search(r"\d+", label)
    return int(digits.group()) if digits else sys.maxsize


def _order(entry: Equation):
    """The four papers first; equations before lemmas, sections and tables."""
    paper = PAPERS.index(entry.paper) if entry.paper in PAPERS else len(PAPERS)
    kind = next(
        (i for i, kind in enumerate(_KINDS) if entry.label.startswith(kind)),
        len(_KINDS),
    )
    return paper, entry.paper, kind, _number(entry.label), entry.label, entry.name


def equation_index(root: Path | None = None) -> list[Equation]:
    """Every reference of every public loss, metric, perturbation and method.

    Sorted by paper and by number within it.

    Example:
        >>> [e.name for e in equation_index() if e.label == "Eq. 9"][0]
        'churn_jax.losses.symmetric_kl'
    """
    root = _package_root(root)
    entries = []
    for public in _public_objects(root):
        file = public.path.relative_to(root.parent).as_posix()
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
        if public.package != "analysis"  # our statistics, not the papers'
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


def write_table(path: Path, table: str | None = None) -> bool:
    """Writes the table between the markers of a file; whether that changed it."""
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} must have the lines {BEGIN} and, after it, {END}")
    if table is None:
        repository, folder = _package_root(None).parent, path.resolve().parent
        inside = folder.is_relative_to(repository)
        depth = len(folder.relative_to(repository).parts) if inside else 0
        table = markdown_table(root="../" * depth)
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
        "--write", type=Path, metavar="FILE", help="refresh the table in this file"
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
