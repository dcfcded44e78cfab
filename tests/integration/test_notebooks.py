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
    assert "all 8 methods" in text_of(outputs["study"])  # how far it is
    for cell in ("plots", "curves"):
        assert sum("image/png" in shown.data for shown in outputs[cell]) == 2
    assert (folder / "runs" / "digits-tiny" / "report.html").exists()


def causes_are_told_apart(outputs, folder):
    churn = dict(
        re.findall(r"^(.+?) +churn +([\d.]+) ±", text_of(outputs["bars"]), re.M)
    )
    assert len(churn) == 8
    assert float(churn["nothing"]) == 0.0
    assert all(float(c) > 0 for label, c in churn.items() if label != "nothing")

    assert "equal weights, bit by bit" in text_of(outputs["machine"])
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
    for cell in ("bars", "images"):
        assert shown_as(outputs[cell], "image/png")
    assert shown_as(outputs["lemmas"], "text/html").count("<svg") == 3  # a lemma each


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

    table = shown_as(outputs["study"], "text/html")
    assert all(head in table for head in ("Accuracy", "Churn", "Cal. NLL", "Δ₁"))
    found = re.findall(r"[\d.]+ ± [\d.]+", text_of(outputs["results"]))
    assert len(found) == 5 * (2 + 2)  # five rows and their changes
    relative = re.findall(
        r"relative ([\d.]+) ± ([\d.]+) +Δ1 ([\d.]+)", text_of(outputs["stream"])
    )
    assert len(relative) == 3
    assert all(float(value) > 0 for found in relative for value in found)
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

    assert len(updates_of("updates")) == 6
    assert shown_as(outputs["scatter"], "image/png")
    again = text_of(outputs["extend"])
    assert again.count("finished before, kept") == 10
    assert len({*re.findall(r"^[\d:]+ (\S+): validation acc", again, re.M)}) == 5
    assert len(updates_of("versions")) == 7
    assert (folder / "runs" / "model-update-elodi-digits-tiny" / "study.json").exists()


def an_own_model_is_measured(outputs, folder):
    found = {
        name: tuple(map(float, values))
        for name, *values in re.findall(
            r"^(\w+) +([+-][\d.]+) +([+-][\d.]+) to ([+-][\d.]+)$",
            text_of(outputs["measure"]),
            re.M,
        )
    }
    assert len(found) == 4
    assert all(low <= value <= high for value, low, high in found.values())
    assert 0 < found["negative_flip_rate"][0] < found["churn"][0] < 1
    rows = re.findall(
        r"^(\S+) +churn +([\d.]+) ± [\d.]+ %", text_of(outputs["seeds"]), re.M
    )
    assert [name for name, _ in rows] == ["alone", "co-distilled"]
    assert re.search(r"change of churn [+-][\d.]+ ± [\d.]+", text_of(outputs["seeds"]))
    for cell in ("flips", "histogram", "figure"):
        assert shown_as(outputs[cell], "image/png")
    assert "co-distilled" in shown_as(outputs["study"], "text/html")
    gates = [line[:6] for line in text_of(outputs["gate"]).splitlines()[:3]]
    assert all(verdict in ("PASS  ", "FAIL  ") for verdict in gates)
    assert (folder / "runs" / "own-digits-tiny" / "study.json").exists()


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
    assert shown_as(outputs["regressions"], "image/png")
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
    # Versions, updates, and every one against every other: churn, NFR, relative NFR.
    assert shown_as(outputs["versions"], "text/html").count("<table") == 5
    assert (folder / "versions.html").exists()


# What a notebook must have shown when it has run; each has an entry.
SHOWS = {
    "anti_distillation": anti_distillation_is_weighed,
    "compare_versions": versions_are_compared,
    "learning_from_ensembles": an_ensemble_is_learnt_from,
    "model_update": an_update_is_judged,
    "own_model": an_own_model_is_measured,
    "quickstart": quickstart_shows_its_table_and_plots,
    "what_causes_churn": causes_are_told_apart,
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
    SHOWS[path.stem](run(notebook, tmp_path), tmp_path)
