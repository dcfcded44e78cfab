"""The equation index: what it reads, how it sorts, and that nothing is missing."""

import importlib
import inspect
from pathlib import Path

import pytest

from churn_jax import equations, losses

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def page_of(monkeypatch):
    """The module that writes the page of equations."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "extensions")
    return importlib.import_module("equations_page")


DOCSTRING = """One line.

References:
    [elodi] Eqs. 11, 12 -- Zhao et al., A Title -- with dashes
    over two lines, 2022. https://example.org/elodi
    [some-other] Sec. 2 -- Someone, Something, 2001. https://example.org/other

Notes:
    [not a reference] because the block above has ended.
"""


@pytest.fixture(scope="module")
def index():
    return equations.equation_index()


def test_wrapped_lines_are_joined_and_read_as_references():
    first, second = map(equations.tag, equations.references(DOCSTRING))
    assert first == {
        "paper": "elodi",
        "label": "Eqs. 11, 12",
        "citation": "Zhao et al., A Title -- with dashes over two lines, 2022.",
        "url": "https://example.org/elodi",
    }
    assert (second["paper"], second["label"]) == ("some-other", "Sec. 2")


def test_the_place_alone_is_a_reference_to_one_of_the_four_papers():
    found = equations.tag("[elodi] Eqs. 11, 12")
    assert (found["paper"], found["label"]) == ("elodi", "Eqs. 11, 12")
    assert found["citation"].startswith("Zhao et al., ELODI")
    assert found["url"] == "https://arxiv.org/abs/2205.06265"


@pytest.mark.parametrize(
    "reference",
    [
        "[some-other] Eq. 1",
        "[elodi] Eq. 1, Zhao et al., Title, 2022. https://example.org",
        "[elodi] Eq. 1 -- Zhao et al., Title, 2022.",
        "[Elodi 22] Eq. 1 -- Zhao et al., Title, 2022. https://example.org",
    ],
)
def test_a_reference_of_another_form_is_an_error_with_its_place(reference, monkeypatch):
    spoilt = [("churn_jax.losses.l1", "a.py", 2, f"References:\n    {reference}")]
    monkeypatch.setattr(equations, "_entries", lambda: spoilt)
    with pytest.raises(ValueError, match=r"a\.py:2 churn_jax.losses.l1: a reference m"):
        equations.equation_index()


def test_files_are_those_of_this_repository(index, monkeypatch, tmp_path):
    """In a clone of the package's name, and next to what is not ours."""
    monkeypatch.setattr(equations, "Path", lambda file: Path("/churn_jax" + file))
    found = list(equations._entries())
    assert {(e.name, e.file) for e in index} <= {entry[:2] for entry in found}
    (tmp_path / "experiments" / "theirs").mkdir(parents=True)
    (tmp_path / "experiments" / "theirs" / "a.py").write_text("def f():\n    pass\n")
    monkeypatch.setattr(equations, "ROOT", tmp_path)
    assert not list(equations._of_experiments())


def test_every_public_loss_metric_and_method_has_a_reference(index):
    named = {entry.name for entry in index}
    assert {f"churn_jax.losses.{name}" for name in losses.__all__} <= named
    # States and result types belong to a function with a reference, and what methods
    # are made of is not a method.
    base = ("base.py", "batch.py", "fields.py")
    for name, value in equations.public_objects():
        file = Path(inspect.getsourcefile(value)).name
        method = inspect.isclass(value) and file not in base
        if name.split(".")[1] not in ("analysis", "models", "ensembles"):
            needed = method if ".methods." in name else inspect.isfunction(value)
            assert not needed or name in named, name


def test_one_paper_has_one_url(index):
    urls = {(entry.paper, entry.url) for entry in index}
    assert len(urls) == len({entry.paper for entry in index})


def test_the_page_of_the_documentation_is_current(tmp_path, page_of):
    page = ROOT / "docs" / "reference" / "equations.md"
    assert page.read_text(encoding="utf-8") == page_of.page_text(page), (
        "run: python docs/extensions/equations_page.py docs/reference/equations.md"
    )
    (tmp_path / "page.md").write_text("no markers")
    with pytest.raises(ValueError, match="must have the lines <!-- equations:begin"):
        page_of.page_text(tmp_path / "page.md")


def test_every_equation_of_the_four_papers_has_its_formula(index, page_of):
    formulas = page_of.read_formulas(ROOT / "docs" / "reference" / "formulas.toml")
    cited = {(e.paper, place) for e in index for place in page_of.places(e.label)}
    needed = {
        (paper, place)
        for paper, place in cited
        if paper in tuple(equations.PAPERS) and place.startswith(("Eq", "Def", "Lemma"))
    }
    assert needed <= set(formulas) <= cited


def test_terminal_table_shows_file_and_line(index, capsys):
    equations.print_equations()
    text = capsys.readouterr().out
    for entry in index:
        assert entry.name in text
        assert f"{entry.file}:{entry.line}" in text
        line = (ROOT / entry.file).read_text().splitlines()[entry.line - 1]
        assert line.startswith(("def ", "class ")), entry
