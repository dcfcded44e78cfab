"""Every notebook in `colabs/` is free of outputs, can be read, and runs."""

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "colabs").glob("**/*.ipynb"))
PYTHON_KERNEL = "python3"

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_of(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def run(notebook, folder):
    """Runs a notebook in `folder`; returns what each code cell printed or showed."""
    NotebookClient(
        notebook,
        timeout=400,
        kernel_name=PYTHON_KERNEL,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return {
        cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"
    }


def text_of(outputs):
    return "".join(output.get("text", "") for output in outputs)


def test_there_is_a_quickstart():
    assert "quickstart" in [path.stem for path in NOTEBOOKS]


@each_notebook
def test_no_output_is_committed(path):
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], cell["id"]
            assert cell["execution_count"] is None, cell["id"]


@each_notebook
def test_the_format_is_valid_and_the_kernel_is_python(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)  # cells have ids
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.metadata.kernelspec.name == PYTHON_KERNEL


@each_notebook
def test_it_opens_with_a_badge_for_this_very_file(path):
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert "colab-badge.svg" in first.source
    assert f"/blob/main/{path.relative_to(ROOT).as_posix()})" in first.source


@each_notebook
def test_it_installs_first_unless_it_is_there_and_prints_versions(path):
    install = code_of(read(path))[0]
    assert re.search(
        r"if .*find_spec\(.churn_jax.\) is None:\n    %pip install", install
    )
    assert "version(" in install and "print(" in install
    if path.stem != "compare_versions":  # which needs no JAX
        assert "print(jax.devices())" in install


@each_notebook
def test_the_names_that_it_uses_are_there(path):
    """Whether cells run is seen by the slow tests."""
    cells = (re.sub("^( *)%.*", r"\1pass", c, flags=re.M) for c in code_of(read(path)))
    nodes = list(ast.walk(ast.parse("\n".join(cells))))
    modules = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("churn_jax"):
            package = importlib.import_module(node.module)
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if not hasattr(package, alias.name):
                    importlib.import_module(name)
                if inspect.ismodule(getattr(package, alias.name)):
                    modules[alias.asname or alias.name] = getattr(package, alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            assert module is None or hasattr(module, node.attr), ast.unparse(node)


def preset_of(notebook):
    """The cell that chooses the preset, and its choice."""
    (found,) = (
        (cell, choice[1])
        for cell in notebook.cells
        if (choice := re.search(r'^preset = "(.*?)"', cell.source, re.M))
    )
    return found


@each_notebook
def test_it_is_set_to_a_tiny_preset_unless_its_table_shall_mean_something(path):
    chosen = preset_of(read(path))[1]
    assert chosen == "digits" if path.stem == "quickstart" else chosen.endswith(":tiny")


def test_quickstart_measures_churn_and_flips_right_after_installing():
    measure = code_of(read(ROOT / "colabs" / "quickstart.ipynb"))[1]
    assert "metrics.churn(" in measure
    assert "metrics.negative_flip_rate(" in measure


def test_the_readme_links_every_notebook():
    readme = (ROOT / "README.md").read_text()
    for path in NOTEBOOKS:
        assert f"/blob/main/{path.relative_to(ROOT).as_posix()})" in readme


def test_a_failing_cell_fails_the_run(tmp_path):
    cell = nbformat.v4.new_code_cell("assert 1 + 1 == 3")
    with pytest.raises(Exception, match="AssertionError"):
        run(nbformat.v4.new_notebook(cells=[cell]), tmp_path)


# By notebook and cell: patterns of what is printed or shown, and how often they occur.
# Numbers that must agree are one group and a reference to it.
BY_HAND = r"by hand ([\d.]+) +library \1\b"
SHOWS = {
    "anti_distillation": {
        "measure": {BY_HAND: 4},
        "exit": {r"on logits +0\.0000$": 1, r"differ by at most 0\.0000": 1},
        "shifts": {r"^\S.*?  +( *-?\d+\.\d+){3}$": 8},
        "results": {r"[\d.]+ ± [\d.]+": 6 * (2 + 1)},  # two rows and the change
        "stream": {r"relative [\d.]+ ± [\d.]+": 2},
        "scatter": {"png": 1},
        "bars": {"png": 1},
        "curves": {"png": 1},
    },
    "compare_versions": {
        "numbers": {r"^\w+ +[+-][\d.]+ +[+-][\d.]+ to [+-][\d.]+$": 3},
        "compare": {"<.*Trust kept": None},
        "files": {"^True ": 1},  # in any order, of any format
        "slices": {r" \d+ examples": 10 + 3 + 2},
        "gates": {"^(PASS|FAIL)": 4, "^(ship it|do not ship it)$": 1},
        "gate-file": {"exit code 1": None},
        "pytest": {r"FAIL  negative flip rate at most 0\.5 %": None},
        "noise": {r"beyond that [+-][\d.]+ \([+-][\d.]+ to [+-][\d.]+\)": 2},
        "torch": {".": None},
        "versions": {"<table": 4},
    },
    "learning_from_ensembles": {
        "parameters": {r"parameters, as many as [\d.]+ networks$": 5},
        "steps": {r"^clean +mean change per pixel 0\.?0*$": 1, "png": 1},
        "disagreement": {r"Gaussian [\d.]+ .*ODS [\d.]+ ": 5, "png": 1},
        "table": {r"^\| Method.*Accuracy.*NLL.*Cal\. NLL.*ECE.*DEE.*KL of members": 1},
        "curve": {
            r"^\d networks: calibrated NLL \d": 4,
            r"^BE-4.* DEE [1-4][\d.]*$": 4,
            "<svg": 1,
        },
        "own": {r"accuracy [\d.]+ .*KL of members [\d.]+": 2},
    },
    "model_update": {
        "measure": {BY_HAND: 3, r"\[0 0 0 0 0 2 0 0\]": 1},  # the one flip's rank
        "pairs": {r"NFR +[\d.]+ ± [\d.]+ % .*logits move [\d.]+": 1},
        "sizes": {r"^ensembles of \d: norm [\d.]+, of normal logits [\d.]+": 3},
        "displacement": {"png": 1},
        "elodi": {r"^.+? +ER .*move [\d.]+$": 4, "ELODI, K = 3": 1},
        "updates": {r"^\| .* ± .*$": 3, "Every model against every other": 0},
        "scatter": {"<svg": 1},
        "extend": {"is there already$": 6, "is trained$": 5},
        "versions": {r"^\| .* ± .*$": 7, "Every model against every other": 0},
    },
    "quickstart": {
        "install": {"jax": None},
        "measure": {r"churn +0[\d.]+\nnegative flip rate +0[\d.]+": 1},
        "pairs": {r"churn [\d.]+ ±": 2},
        "table": {r"^\| (?!2-Ensemble \|).*%": None, r"^\| 2-Ensemble \|": None},
        "plots": {"<svg": 2},
        "curves": {"<svg": 2},
    },
    "what_causes_churn": {
        "bars": {r" +churn +[\d.]+ ±": 8, r"^nothing +churn +0\.0+ ±": 1, "png": 1},
        "machine": {"equal weights, bit by bit": 1},
        "bit": {r"up to \d[\d.]*e-\d+ apart": None, "png": 1},
        "images": {r"mean ambiguity ([\d.]+), churn \1": 1, "png": 1},
        "lemmas": {r" \d\.\d+.* \d\.\d+.* \d\.\d+": 8, "<svg": 1},
    },
}


def occurrences(outputs, pattern):
    """How often a cell printed or showed a pattern; `png` are pictures."""
    shown = [output.get("data", {}) for output in outputs]
    if pattern == "png":
        return sum("image/png" in data for data in shown)
    kind = "text/html" if pattern.startswith("<") else "text/markdown"
    texts = [text_of(outputs), *(data.get(kind, "") for data in shown)]
    return sum(len(re.findall(pattern, text, re.M)) for text in texts)


@pytest.fixture
def quick_kernels(compilation_cache, monkeypatch):
    """Kernels compile a program once, all notebooks together, and hardly optimise."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compilation_cache))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # With the older emitters a notebook runs for longer than it saves in compiling.
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_kernels")
@each_notebook
def test_it_runs_and_shows_what_it_promises(path, tmp_path):
    notebook = read(path)
    cell, chosen = preset_of(notebook)
    tiny = chosen.removesuffix(":tiny") + ":tiny"
    cell.source = cell.source.replace(f'"{chosen}"', f'"{tiny}"', 1)
    outputs = run(notebook, tmp_path)
    for name, patterns in SHOWS[path.stem].items():
        for pattern, count in patterns.items():
            found = occurrences(outputs[name], pattern)
            assert found == count if count is not None else found, (name, pattern)
