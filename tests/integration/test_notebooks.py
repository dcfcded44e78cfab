"""Every notebook in `docs/tutorials/` is free of outputs, can be read, and runs."""

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
NOTEBOOKS = sorted((ROOT / "docs/tutorials").glob("**/*.ipynb"))
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


def shown_as(outputs, mime):
    return "".join(output.get("data", {}).get(mime, "") for output in outputs)


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
def test_it_installs_first_unless_it_is_there_and_prints_versions(path):
    install = code_of(read(path))[0]
    assert re.search(
        r"if .*find_spec\(.churn_jax.\) is None:\n(    .*\n)+    %pip install", install
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
    measure = code_of(read(ROOT / "docs/tutorials" / "quickstart.ipynb"))[1]
    assert "metrics.churn(" in measure
    assert "metrics.negative_flip_rate(" in measure


def test_the_readme_links_every_notebook():
    readme = (ROOT / "README.md").read_text()
    for path in NOTEBOOKS:
        assert f"({path.relative_to(ROOT).as_posix()})" in readme


def test_a_failing_cell_fails_the_run(tmp_path):
    cell = nbformat.v4.new_code_cell("assert 1 + 1 == 3")
    with pytest.raises(Exception, match="AssertionError"):
        run(nbformat.v4.new_notebook(cells=[cell]), tmp_path)


def quickstart_shows_its_table_and_plots(outputs, folder):
    assert "jax" in text_of(outputs["install"])
    churn, flips = re.search(
        r"churn +([\d.]+)\nnegative flip rate +([\d.]+)", text_of(outputs["measure"])
    ).groups()
    assert 0 < float(flips) < float(churn) < 1

    alone, codistilled = re.findall(r"churn ([\d.]+) ±", text_of(outputs["pairs"]))
    assert float(codistilled) < float(alone)

    table = shown_as(outputs["table"], "text/markdown")
    methods, members = table.split("## Members")
    rows = [line for line in methods.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 8
    assert "| 2-Ensemble |" in members
    for cell in ("plots", "curves"):
        assert shown_as(outputs[cell], "text/html").count("<svg") == 2
    assert (folder / "runs" / "digits-tiny" / "report.html").exists()


def causes_are_told_apart(outputs, folder):
    churn = dict(
        re.findall(r"^(.+?) +churn +([\d.]+) ±", text_of(outputs["bars"]), re.M)
    )
    assert len(churn) == 8
    assert float(churn["nothing"]) == 0.0
    assert all(float(c) > 0 for label, c in churn.items() if label != "nothing")

    assert "equal weights, bit by bit" in text_of(outputs["machine"])
    apart = re.findall(r"up to ([\d.e+-]+) apart", text_of(outputs["bit"]))
    assert 0 < float(apart[0]) < 1e-8  # one bit of one weight
    ambiguity, mean = re.search(
        r"mean ambiguity ([\d.]+), churn ([\d.]+)", text_of(outputs["images"])
    ).groups()
    assert ambiguity == mean

    lemmas = text_of(outputs["lemmas"]).splitlines()
    assert len(lemmas) == 8
    for line in lemmas:
        measured, *bounds = (float(x) for x in re.findall(r" (\d\.\d+)", line))
        assert len(bounds) == 2
        assert measured <= min(bounds)
    for cell in ("bars", "bit", "images"):
        assert shown_as(outputs[cell], "image/png")
    assert shown_as(outputs["lemmas"], "text/html").count("<svg") == 1
    assert (folder / "runs" / "what-causes-churn-digits-tiny" / "one-bit").is_dir()


def anti_distillation_is_weighed(outputs, folder):
    by_hand = re.findall(
        r"by hand ([\d.]+) +library ([\d.]+)", text_of(outputs["measure"])
    )
    assert len(by_hand) == 4
    assert all(hand == library for hand, library in by_hand)
    exit_ = text_of(outputs["exit"])  # decorrelated logits, equal predictions
    assert "on logits         0.0000\n" in exit_
    assert "differ by at most 0.0000" in exit_
    assert float(re.search(r"on probabilities +([\d.]+)", exit_)[1]) > 0

    shown = {
        name: [float(value) for value in re.findall(r"-?[\d.]+", numbers)]
        for name, numbers in re.findall(
            r"^(\S.*?)  +((?: *-?\d+\.\d+){3})$", text_of(outputs["shifts"]), re.M
        )
    }
    assert len(shown) == 8
    plain, on_logits, _ = shown["penalty on logits"]
    assert on_logits < 0.05 * plain
    plain, on_logits, _ = shown["penalty on logits, shift removed"]
    assert on_logits > 0.1 * plain  # most of the drop was the shift
    plain, _, on_probs = shown["penalty on probabilities"]
    assert on_probs < plain
    plain, on_logits, _ = shown["Δ1 of the two components"]
    assert on_logits > plain

    found = re.findall(r"[\d.]+ ± [\d.]+", text_of(outputs["results"]))
    assert len(found) == 6 * (2 + 1)  # two rows and the change
    relative = re.findall(r"relative ([\d.]+) ± ([\d.]+)", text_of(outputs["stream"]))
    assert len(relative) == 2
    assert all(float(value) > 0 for pair in relative for value in pair)
    for cell in ("scatter", "bars", "curves"):
        assert shown_as(outputs[cell], "image/png")
    assert (folder / "runs" / "anti-distillation-digits-tiny" / "study.json").exists()


def an_ensemble_is_learnt_from(outputs, folder):
    counts = re.findall(
        r"^(.+?) +(\d+) parameters, as many as ([\d.]+) networks$",
        text_of(outputs["parameters"]),
        re.M,
    )
    networks = {label: float(count) for label, _, count in counts}
    assert networks.pop("DE-4") == 4
    assert len(networks) == 4
    assert len(set(networks.values())) == 1  # however they are trained
    assert 1 < networks["BE-4"] < 1.5

    printed = text_of(outputs["steps"])
    lengths = dict(re.findall(r"^(\w+) +mean change per pixel (.+)$", printed, re.M))
    assert float(lengths.pop("clean")) == 0
    for length in lengths.values():  # pixels that are clipped go less far
        assert 0.5 / 16 < float(length) < 1.1 / 16
    disagreement = text_of(outputs["disagreement"])
    none = re.search(r"^no step +mean KL ([\d.]+)$", disagreement, re.M)[1]
    rows = re.findall(
        r"Gaussian ([\d.]+) \( *[\d.]+ times\)   ODS ([\d.]+) ", disagreement
    )
    assert len(rows) == 5
    noise, along = map(float, rows[-1])  # the longest step
    assert along > max(float(none), noise)

    table = shown_as(outputs["table"], "text/markdown")
    head = next(line for line in table.splitlines() if line.startswith("| Method"))
    for column in ("Accuracy", "NLL", "Cal. NLL", "ECE", "DEE", "KL of members"):
        assert f"| {column}" in head
    curve = text_of(outputs["curve"])
    assert re.findall(r"^(\d) networks: calibrated NLL \d", curve, re.M) == list("1234")
    worth = re.findall(r"^BE-4.* DEE ([\d.]+)$", curve, re.M)
    assert len(worth) == 4
    assert all(1 <= float(size) <= 4 for size in worth)

    printed = text_of(outputs["own"])
    own = re.findall(r"accuracy ([\d.]+) .*KL of members ([\d.]+)", printed)
    assert len(own) == 2
    for accuracy, kl in own:
        assert float(accuracy) > 0.2  # twice that of guessing, after 20 updates
        assert float(kl) > 0
    for cell in ("steps", "disagreement"):
        assert shown_as(outputs[cell], "image/png")
    assert shown_as(outputs["curve"], "text/html").count("<svg") == 1
    study = folder / "runs" / "learning-from-ensembles-dm-digits-tiny" / "study.json"
    assert study.exists()


def an_update_is_judged(outputs, folder):
    by_hand = re.findall(
        r"by hand ([\d.]+) +library ([\d.]+)", text_of(outputs["measure"])
    )
    assert len(by_hand) == 3
    assert all(hand == library for hand, library in by_hand)
    assert "[0 0 0 0 0 2 0 0]" in text_of(outputs["measure"])  # the one flip's rank

    found = re.findall(
        r"NFR +([\d.]+) ± [\d.]+ % .*logits move ([\d.]+)", text_of(outputs["pairs"])
    )
    assert len(found) == 1
    assert 0 < float(found[0][0]) < 100
    sizes = re.findall(
        r"^ensembles of (\d): norm ([\d.]+), of normal logits ([\d.]+)",
        text_of(outputs["sizes"]),
        re.M,
    )
    assert [int(m) for m, _, _ in sizes] == [1, 2, 4]
    norms = [float(norm) for _, norm, _ in sizes]
    assert norms[0] > norms[1] > norms[2]
    for _, norm, normal in sizes:  # roughly as normal logits would move
        assert abs(float(norm) / float(normal) - 1) < 0.3
    assert shown_as(outputs["displacement"], "image/png")

    moved = dict(
        re.findall(r"^(.+?) +ER .*move ([\d.]+)$", text_of(outputs["elodi"]), re.M)
    )
    assert len(moved) == 4
    assert float(moved["ensembles of 8"]) < float(moved["trained again"])
    assert "ELODI, K = 3" in moved

    def updates_of(cell):
        table = shown_as(outputs[cell], "text/markdown")
        assert "Every model against every other" not in table
        return re.findall(r"^\| .* ± .*$", table, re.M)

    assert len(updates_of("updates")) == 3
    assert shown_as(outputs["scatter"], "text/html").count("<svg") == 1
    again = text_of(outputs["extend"]).splitlines()
    assert sum(line.endswith("is there already") for line in again) == 6
    assert sum(line.endswith("is trained") for line in again) == 5
    assert len(updates_of("versions")) == 7
    assert (folder / "runs" / "model-update-elodi-digits-tiny" / "study.json").exists()


def versions_are_compared(outputs, folder):
    numbers = re.findall(
        r"^(\w+) +([+-][\d.]+) +([+-][\d.]+) to ([+-][\d.]+)$",
        text_of(outputs["numbers"]),
        re.M,
    )
    found = {name: tuple(map(float, values)) for name, *values in numbers}
    assert len(found) == 3
    assert all(low <= value <= high for value, low, high in found.values())
    assert 0 < found["negative_flip_rate"][0] < found["churn"][0] < 1
    assert "Trust kept" in shown_as(outputs["compare"], "text/html")
    assert text_of(outputs["files"]).startswith("True ")  # in any order, of any format
    assert (folder / "report.html").exists()

    rows = text_of(outputs["slices"]).splitlines()
    counts = [int(re.search(r" (\d+) examples", row)[1]) for row in rows]
    assert len(rows) == 10 + 3 + 2
    assert sum(counts[:10]) == sum(counts[10:13]) == sum(counts[13:]) == 897

    *lines, verdict = text_of(outputs["gates"]).splitlines()
    assert [line[:4] for line in lines if line[:4] in ("PASS", "FAIL")] == (
        [line[:4] for line in lines]
    )
    assert len(lines) == 4
    held = all(line.startswith("PASS") for line in lines)
    assert verdict == ("ship it" if held else "do not ship it")
    assert "exit code 1" in text_of(outputs["gate-file"])
    assert "FAIL  negative flip rate at most 0.5 %" in text_of(outputs["pytest"])

    beyond = re.findall(
        r"beyond that ([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)",
        text_of(outputs["noise"]),
    )
    seeds, _ = [tuple(map(float, values)) for values in beyond]
    assert seeds[1] <= 0 <= seeds[2]  # other seeds change no more than other seeds
    assert text_of(outputs["torch"])
    assert shown_as(outputs["versions"], "text/html").count("<table") == 4
    assert (folder / "versions.html").exists()


# What a notebook must have shown when it has run; each has an entry.
SHOWS = {
    "anti_distillation": anti_distillation_is_weighed,
    "compare_versions": versions_are_compared,
    "learning_from_ensembles": an_ensemble_is_learnt_from,
    "model_update": an_update_is_judged,
    "quickstart": quickstart_shows_its_table_and_plots,
    "what_causes_churn": causes_are_told_apart,
}


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
    SHOWS[path.stem](run(notebook, tmp_path), tmp_path)
