"""The equation index: what it reads, how it sorts, and that nothing is missing."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from churn_jax import equations, losses

ROOT = Path(__file__).resolve().parent.parent

OTHER = "[some-other] Sec. 2 -- Someone, Something, 2001. https://example.org/other"

MODULE = '''
def first(x):
    """One line.

    References:
        [elodi] Eqs. 11, 12 -- Zhao et al., A Title -- with dashes
        over two lines, 2022. https://example.org/elodi
        OTHER

    Notes:
        [not a reference] because the block above has ended.
    """


async_like = 3


def second(x):
    """No reference."""


class State:
    """No reference either."""


def _private(x):
    """Never listed.

    References:
        [elodi] Eq. 1 -- Zhao et al., Title, 2022. https://example.org/elodi
    """


def tenth(x):
    """One line.

    References:
        [reproducibility] Eq. 10 -- A et al., Title, 2021. https://example.org/r
    """


def ninth(x):
    """One line.

    References:
        [reproducibility] Eq. 9 -- A et al., Title, 2021. https://example.org/r
    """
'''.replace("OTHER", OTHER)


@pytest.fixture
def package(tmp_path):
    """A package `churn_jax` with one module of losses."""
    root = tmp_path / "churn_jax"
    (root / "losses").mkdir(parents=True)
    (root / "losses" / "module.py").write_text(MODULE)
    (root / "losses" / "again.py").write_text(
        "from churn_jax.losses.module import tenth\n"
    )
    (root / "losses" / "__init__.py").write_text(
        "from churn_jax.losses.again import tenth\n"
        "from churn_jax.losses.module import State, async_like, first, ninth, second\n"
        '__all__ = ["State", "async_like", "first", "ninth", "second", "tenth"]\n'
    )
    return root


def test_entries_are_sorted_by_paper_and_number(package):
    found = equations.equation_index(package)
    assert [(e.paper, e.label, e.name) for e in found] == [
        ("reproducibility", "Eq. 9", "churn_jax.losses.ninth"),
        ("reproducibility", "Eq. 10", "churn_jax.losses.tenth"),
        ("elodi", "Eqs. 11, 12", "churn_jax.losses.first"),
        ("some-other", "Sec. 2", "churn_jax.losses.first"),
    ]


def test_an_entry_joins_wrapped_lines_and_points_at_the_definition(package):
    entry = equations.equation_index(package)[2]
    assert entry.citation == (
        "Zhao et al., A Title -- with dashes over two lines, 2022."
    )
    assert entry.url == "https://example.org/elodi"
    assert entry.file == "churn_jax/losses/module.py"
    assert MODULE.splitlines()[entry.line - 1] == "def first(x):"


def test_a_reexported_function_points_at_its_own_file(package):
    entry = equations.equation_index(package)[1]
    assert entry.file == "churn_jax/losses/module.py"


def test_a_package_that_loads_its_files_later_is_read_too(package):
    before = equations.equation_index(package)
    init = package / "losses" / "__init__.py"
    *imports, names = init.read_text().splitlines()
    lazy = ["if TYPE_CHECKING:", *(f"    {line}" for line in imports), names]
    init.write_text("\n".join(lazy) + "\n")
    assert equations.equation_index(package) == before


def test_a_function_without_reference_is_reported(package):
    assert equations.untagged(package) == ["churn_jax.losses.second"]


def test_methods_are_classes_outside_base(package):
    folder = package / "methods"
    folder.mkdir()
    (folder / "base.py").write_text('class Method:\n    """Base."""\n')
    (folder / "erm.py").write_text(
        'class ERM:\n    """Bare."""\n\n\ndef make():\n    """A function."""\n'
    )
    (folder / "__init__.py").write_text(
        "from churn_jax.methods.base import Method\n"
        "from churn_jax.methods.erm import ERM, make\n"
        '__all__ = ["ERM", "Method", "make"]\n'
    )
    assert equations.untagged(package)[1:] == ["churn_jax.methods.ERM"]


@pytest.mark.parametrize(
    "reference",
    [
        "[elodi] Eq. 1, Zhao et al., Title, 2022. https://example.org",
        "[elodi] Eq. 1 -- Zhao et al., Title, 2022.",
        "[Elodi 22] Eq. 1 -- Zhao et al., Title, 2022. https://example.org",
    ],
)
def test_a_reference_of_another_form_is_an_error_with_its_place(package, reference):
    path = package / "losses" / "module.py"
    path.write_text(MODULE.replace(OTHER, reference))
    with pytest.raises(
        ValueError, match=r"losses/module\.py:2 first: a reference must"
    ):
        equations.equation_index(package)


@pytest.mark.parametrize("statement", ["", "from .module import lost"])
def test_an_exported_name_that_cannot_be_followed_is_an_error(package, statement):
    (package / "losses" / "__init__.py").write_text(
        f'{statement}\n__all__ = ["lost"]\n'
    )
    with pytest.raises(ValueError, match=r"losses/__init__\.py: 'lost' is exported"):
        equations.equation_index(package)


@pytest.fixture(scope="module")
def index():
    return equations.equation_index()


def test_every_public_loss_metric_and_method_has_a_reference(index):
    assert equations.untagged() == []
    named = {e.name.rpartition(".")[2] for e in index}
    assert set(losses.__all__) <= named


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Eq. 3", "churn_jax.metrics.churn"),
        ("Eq. 6", "churn_jax.losses.entropy"),
        ("Eq. 7", "churn_jax.losses.uniform_symmetric_kl"),
        ("Eq. 8", "churn_jax.losses.l1"),
        ("Eq. 9", "churn_jax.losses.symmetric_kl"),
        ("Eq. 18", "churn_jax.losses.cross_entropy_between"),
    ],
)
def test_equations_of_the_first_paper_lead_to_their_functions(index, label, name):
    entry = ("reproducibility", label, name)
    (found,) = [e for e in index if (e.paper, e.label, e.name) == entry]
    line = (ROOT / found.file).read_text().splitlines()[found.line - 1]
    assert line.startswith(f"def {name.rpartition('.')[2]}(")


def test_one_paper_has_one_url(index):
    urls = {(entry.paper, entry.url) for entry in index}
    assert len(urls) == len({entry.paper for entry in index})


def test_the_page_of_the_documentation_is_current():
    page = ROOT / "docs" / "reference" / "equations.md"
    text = page.read_text(encoding="utf-8")
    assert text.count(equations.BEGIN) == text.count(equations.END) == 1
    shown = text.partition(equations.BEGIN)[2].partition(equations.END)[0]
    assert shown.lstrip("\n") == equations._page_in(page.parent), (
        "run: python -m churn_jax.equations --write docs/reference/equations.md"
    )


def test_every_equation_of_the_four_papers_has_its_formula(index):
    formulas = equations.read_formulas(ROOT / "docs" / "reference" / "formulas.toml")
    cited = {(e.paper, place) for e in index for place in equations.places(e.label)}
    needed = {
        (paper, place)
        for paper, place in cited
        if paper in equations.PAPERS and place.startswith(("Eq", "Def", "Lemma"))
    }
    assert needed <= set(formulas) <= cited


def test_write_replaces_what_is_between_the_markers(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{equations.BEGIN}\nold\n{equations.END}\nafter\n")
    assert equations.write_table(path, "new\n")
    assert path.read_text() == (
        f"before\n{equations.BEGIN}\nnew\n{equations.END}\nafter\n"
    )
    assert not equations.write_table(path, "new\n")


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(equations, "_page_in", lambda folder: "the index\n")
    page = tmp_path / "page.md"
    page.write_text("no markers")
    assert equations.main(["--write", str(page)]) == 2
    assert "equations:begin" in capsys.readouterr().err
    page.write_text(f"{equations.BEGIN}{equations.END}")
    assert equations.main(["--write", str(page)]) == 0
    assert "updated" in capsys.readouterr().out
    assert equations.main(["--write", str(page)]) == 0
    assert "already up to date" in capsys.readouterr().out
    assert "the index\n" in page.read_text()


def test_the_module_prints_markdown_without_importing_jax():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['equations']\n"
        "try:\n"
        "    runpy.run_module('churn_jax.equations', run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == equations.markdown_table()


def test_terminal_table_shows_file_and_line(index):
    from rich.console import Console

    out = io.StringIO()
    equations.print_equations(Console(file=out, width=200))
    text = out.getvalue()
    for entry in index:
        assert entry.name in text
        assert f"{entry.file}:{entry.line}" in text
