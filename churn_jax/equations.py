"""The index from equations to code, read from the `References:` lines of docstrings."""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = (
    "losses",
    "metrics",
    "perturbations",
    "methods",
    "analysis",
    "models",
    "ensembles",
)
PAPERS = {
    "reproducibility": "Bhojanapalli et al., On the Reproducibility of Neural Network "
    "Predictions, 2021. https://arxiv.org/abs/2102.03349",
    "anti-distillation": "Shamir and Coviello, Anti-Distillation: Improving "
    "Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923",
    "diversity": "Nam et al., Diversity Matters When Learning From Ensembles, NeurIPS "
    "2021. https://arxiv.org/abs/2110.14149",
    "elodi": "Zhao et al., ELODI: Ensemble Logit Difference Inhibition for "
    "Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265",
}
"""The four papers of this library; a reference to one may be its place alone."""

ROOT = Path(__file__).resolve().parents[1]
_TAG = re.compile(
    r"\[(?P<paper>[a-z0-9][a-z0-9-]*)\] (?P<label>.+?) -- (?P<citation>.+?) "
    r"(?P<url>https?://\S+)"
)
_PLACE = re.compile(r"\[(?P<paper>[a-z-]+)\] [A-Z][a-z]+\.? [\w.]+(, [\w.]+)*")
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


def public_objects() -> Iterator[tuple[str, Any]]:
    """Public functions and classes of `PACKAGES` with their full names."""
    for package in PACKAGES:
        module = importlib.import_module(f"churn_jax.{package}")
        for name in module.__all__:
            value = inspect.unwrap(getattr(module, name))
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{module.__name__}.{name}", value


def _of_experiments() -> Iterator[tuple[str, str, int, str | None]]:
    """Name, file, line and docstring of what a clone's experiments define."""
    clone = (ROOT / "pyproject.toml").is_file()  # else it is site-packages
    for path in sorted(ROOT.glob("experiments/*/*.py")) if clone else ():
        file = path.relative_to(ROOT)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = ".".join((*file.with_suffix("").parts, node.name))
                yield name, file.as_posix(), node.lineno, ast.get_docstring(node)


def _entries() -> Iterator[tuple[str, str, int, str | None]]:
    for name, value in public_objects():
        path = Path(inspect.getsourcefile(value) or "").as_posix()
        package = value.__module__.partition(".")[0]
        own = "compare/" if package == "churn_compare" else ""
        file = own + package + "/" + path.rpartition(f"/{package}/")[2]
        docstring = inspect.getdoc(value) if value.__doc__ else None
        if references(docstring):  # generated classes have none
            lines, first = inspect.getsourcelines(value)
            words = (f"def {value.__name__}", f"class {value.__name__}")
            line = first + next(i for i, s in enumerate(lines) if s.startswith(words))
            yield name, file, line, docstring
    yield from _of_experiments()


def references(docstring: str | None) -> list[str]:
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


def tag(reference: str) -> dict[str, str] | None:
    """`paper`, `label`, `citation` and `url` of a reference; None of another form."""
    short = _PLACE.fullmatch(reference)
    if short and short["paper"] in PAPERS:
        reference += f" -- {PAPERS[short['paper']]}"
    found = _TAG.fullmatch(reference)
    return found.groupdict() if found else None


def place_order(label: str) -> tuple[int, int, str]:
    """Equations before lemmas, sections and tables, then by number."""
    kinds = (i for i, kind in enumerate(_KINDS) if label.startswith(kind))
    digits = re.search(r"\d+", label)
    number = int(digits.group()) if digits else sys.maxsize
    return next(kinds, len(_KINDS)), number, label


def _order(entry: Equation):
    """The four papers first."""
    paper = list(PAPERS).index(entry.paper) if entry.paper in PAPERS else len(PAPERS)
    return paper, entry.paper, *place_order(entry.label), entry.name


def equation_index() -> list[Equation]:
    """Every reference of every public loss, metric, method, network and so on.

    In a clone, references in `experiments` are included. Sorted by paper and by number
    within it.

    Example:
        >>> [e.name for e in equation_index() if e.label == "Eq. 9"][0]
        'churn_jax.losses.symmetric_kl'
    """
    entries = []
    for name, file, line, docstring in _entries():
        for reference in references(docstring):
            if (found := tag(reference)) is None:
                raise ValueError(
                    f"{file}:{line} {name}: a reference must read '[key] Eq. N -- "
                    "Author et al., Title, venue year. https://...'; got "
                    f"{reference!r}"
                )
            entries.append(Equation(name=name, file=file, line=line, **found))
    return sorted(entries, key=_order)


def print_equations() -> None:
    """Prints equation, function and file:line, unwrapped where it is not a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table("Paper", "Where", title="From equations to code")
    table.add_column("Function", overflow="fold")
    table.add_column("File", overflow="fold")
    for e in equation_index():
        table.add_row(e.paper, e.label, e.name, f"{e.file}:{e.line}")
    console.print(table, markup=False)
