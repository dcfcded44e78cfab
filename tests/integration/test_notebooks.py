"""Every notebook in `colabs/` is stored as its code ran, and still runs."""

import ast
import importlib.metadata
import inspect
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "colabs").glob("*.ipynb"))

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
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return {
        cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"
    }


def text_of(outputs):
    return "".join(output.get("text", "") for output in outputs)


def shown_as(outputs, mime):
    return "".join(output.get("data", {}).get(mime, "") for output in outputs)


def stored_text(notebook):
    """All that the stored outputs show, but pictures."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type in ("stream", "display_data", "execute_result")
            assert output.get("name") != "stderr"
            yield output.get("text", "")
            for mime, content in output.get("data", {}).items():
                if not mime.startswith("image/png"):
                    yield str(content)


@each_notebook
def test_the_stored_outputs_are_of_this_code(path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "colabs")
    from execute import code_hash

    notebook = read(path)
    stored = notebook.metadata.get("stored", {})
    assert stored.get("code") == code_hash(notebook), (
        f"make notebooks NOTEBOOKS={path.stem}"
    )
    assert 0 < stored["minutes"] <= 10 and stored["date"] and stored["hardware"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(
        "image/png" in output.get("data", {}) or "<svg" in str(output)
        for cell in code
        for output in cell.outputs
    )  # a plot


@each_notebook
def test_the_readme_links_it_and_its_card_says_how_long_it_takes(path):
    assert f"(colabs/{path.name})" in (ROOT / "README.md").read_text()
    index = (ROOT / "docs/tutorials/index.md").read_text()
    card = index.partition(f"colabs/{path.name})")[2].partition(":::")[0]
    said = int(re.search(r"(\d+) minutes?\.", card)[1])
    assert 0 <= said - read(path).metadata.stored.minutes <= 2


@each_notebook
def test_the_stored_outputs_hold_nothing_but_results(path):
    assert path.stat().st_size < 400_000
    text = "\n".join(stored_text(read(path)))
    assert not re.search(r"Traceback|\w(Warning|Error)\b", text)
    local = r"(?<![\w/.])/(work|tmp|home|root|usr|opt|Users)/|\.venv|site-packages"
    assert not re.search(local, text)


@pytest.mark.parametrize(
    ("output", "size"),
    [
        (nbformat.v4.new_output("stream", text="saved to /tmp/x/report.html"), 0),
        (nbformat.v4.new_output("stream", text="UserWarning: slow"), 0),
        (nbformat.v4.new_output("error", ename="ValueError"), 0),
        (nbformat.v4.new_output("stream", text="."), 400_000),
    ],
    ids=["path", "warning", "error", "size"],
)
def test_an_output_that_is_no_result_is_found(output, size, tmp_path):
    cell = nbformat.v4.new_code_cell("print()", outputs=[output])
    note = nbformat.v4.new_markdown_cell("." * size)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, note]), tmp_path / "a.ipynb")
    with pytest.raises(AssertionError):
        test_the_stored_outputs_hold_nothing_but_results(tmp_path / "a.ipynb")


@each_notebook
def test_the_format_is_valid_and_links_lead_somewhere(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)  # cells have ids
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.metadata.kernelspec.name == "python3"
    text = "".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    for link in re.findall(r"\]\(((?!https:)[^)\s]+)\)", text):
        assert (path.parent / link.partition("#")[0]).exists(), link
    assert not preset_of(notebook)[1].endswith(":tiny")  # not what its outputs are of


@each_notebook
def test_it_installs_itself_where_it_can_and_prints_versions(
    path, tmp_path, monkeypatch, capsys
):
    install, _, versions = code_of(read(path))[0].partition("\nfor ")
    assert "metadata.version(" in versions
    if path.stem != "compare_versions":  # which needs no JAX
        assert "print(jax.devices())" in versions
    install = re.sub("%pip (.*)", r"print(f'''\1''')", install)
    install = re.sub("^SOURCE = .*", 'SOURCE = ""', install, flags=re.M)
    exec(install, {})
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())
    monkeypatch.chdir(ROOT / "colabs")
    exec(install, {})
    assert f'install --quiet "{ROOT}/compare" "{ROOT}"' in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    exec(install.replace('""', '"churn-jax @ git+x"', 1), {})
    assert 'install --quiet "churn-jax @ git+x"' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="in a clone of its repository"):
        exec(install, {})


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


def test_quickstart_measures_churn_and_flips_first_and_teaches_study():
    code = code_of(read(ROOT / "colabs/quickstart.ipynb"))
    assert "metrics.churn(" in code[1] and "metrics.negative_flip_rate(" in code[1]
    assert any("churn_jax.study(" in cell for cell in code)


@pytest.mark.slow
def test_a_failing_cell_fails_the_run(tmp_path):
    cell = nbformat.v4.new_code_cell("assert 1 + 1 == 3")
    with pytest.raises(Exception, match="AssertionError"):
        run(nbformat.v4.new_notebook(cells=[cell]), tmp_path)


# What cells must have printed when a notebook has run: how often a pattern is found.
PRINTED = {
    "anti_distillation": {
        "measure": (r"by hand ([\d.]+) +library \1(?!\d)", 4),
        "exit": (r"on logits         0\.0000\n|differ by at most 0\.0000", 2),
        "shifts": (r"(?m)^\S.*?  +(?: *-?\d+\.\d+){3}$", 8),
        "results": (r"[\d.]+ ± [\d.]+", 5 * (2 + 2)),  # five rows and their changes
        "stream": (r"relative [\d.]+ ± [\d.]+ +Δ1 [\d.]+", 3),
    },
    "compare_versions": {
        "numbers": (r"(?m)^\w+ +[+-][\d.]+ +[+-][\d.]+ to [+-][\d.]+$", 3),
        "files": (r"^True ", 1),  # in any order, of any format
        "slices": (r" \d+ examples", 10 + 3 + 2),
        "gates": (r"(?m)^(?:PASS|FAIL)", 4),
        "gate-file": ("exit code 1", 1),
        "pytest": ("FAIL  negative flip rate at most 0.5 %", 1),
        "noise": (r"beyond that [+-][\d.]+ \([+-][\d.]+ to [+-][\d.]+\)", 2),
    },
    "learning_from_ensembles": {
        "parameters": (r"(?m)^.+? +\d+ parameters, as many as [\d.]+ networks$", 5),
        "steps": (r"(?m)^\w+ +mean change per pixel .+$", 3),
        "disagreement": (r"Gaussian [\d.]+ \( *[\d.]+ times\)   ODS [\d.]+ ", 5),
        "curve": (r"(?m)^\d networks: calibrated NLL \d|^BE-4.* DEE [\d.]+$", 8),
        "own": (r"accuracy [\d.]+ .*KL of members [\d.]+", 2),
    },
    "model_update": {
        "measure": (r"by hand ([\d.]+) +library \1(?!\d)", 3),
        "pairs": (r"NFR +[\d.]+ ± [\d.]+ % .*logits move [\d.]+", 1),
        "sizes": (r"(?m)^ensembles of [124]: norm [\d.]+, of normal", 3),
        "elodi": (r"(?m)^.+? +ER .*move [\d.]+$", 4),
        "extend": ("finished before, kept", 10),
    },
    "own_model": {
        "measure": (r"(?m)^\w+ +[+-][\d.]+ +[+-][\d.]+ to [+-][\d.]+$", 4),
        "seeds": (r"(?m)^(?:alone|co-distilled) +churn +[\d.]+ ± [\d.]+ %", 2),
        "gate": (r"(?m)^(?:PASS|FAIL)  ", 3),
    },
    "quickstart": {
        "measure": (r"churn +[\d.]+\nnegative flip rate +[\d.]+", 1),
        "pairs": (r"churn [\d.]+ ±", 2),
        "study": ("all 8 methods", 1),  # how far it is
    },
    "what_causes_churn": {
        "bars": (r"(?m)^.+? +churn +[\d.]+ ±", 8),
        "machine": ("equal weights, bit by bit", 1),
        "images": (r"mean ambiguity ([\d.]+), churn \1(?!\d)", 1),
        "lemmas": (r"(?m)^.*(?: \d\.\d+.*){3}$", 8),
    },
}
# Cells that must have drawn something, and files that are left.
DRAWN = {
    "anti_distillation": "scatter bars curves",
    "compare_versions": "regressions",
    "learning_from_ensembles": "steps disagreement",
    "model_update": "displacement scatter",
    "own_model": "flips histogram figure",
    "quickstart": "plots curves",
    "what_causes_churn": "bars images",
}
LEFT = {
    "anti_distillation": "runs/anti-distillation-digits-tiny/study.json",
    "compare_versions": "versions.html",
    "learning_from_ensembles": "runs/learning-from-ensembles-dm-digits-tiny/study.json",
    "model_update": "runs/model-update-elodi-digits-tiny/study.json",
    "own_model": "runs/own-digits-tiny/study.json",
    "quickstart": "runs/digits-tiny/report.html",
    "what_causes_churn": "runs",
}


@pytest.mark.slow
@each_notebook
def test_it_runs_and_shows_what_it_promises(path, tmp_path, monkeypatch):
    # The older emitters of kernels take longer here than they save in compiling.
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    notebook = read(path)
    cell, chosen = preset_of(notebook)
    tiny = chosen.removesuffix(":tiny") + ":tiny"
    cell.source = cell.source.replace(f'"{chosen}"', f'"{tiny}"', 1)
    outputs = run(notebook, tmp_path)
    for name, (pattern, count) in PRINTED[path.stem].items():
        found = re.findall(pattern, text_of(outputs[name]))
        assert len(found) >= count, f"{name}: {text_of(outputs[name])[-1000:]}"
    for name in DRAWN[path.stem].split():
        assert shown_as(outputs[name], "image/png"), name
    assert (tmp_path / LEFT[path.stem]).exists()
