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


class Shown(dict):
    """The outputs of each code cell of a notebook that has run."""

    def text(self, cell):
        return "".join(output.get("text", "") for output in self[cell])

    def found(self, cell, pattern):
        """All matches of a pattern in what a cell printed, line by line."""
        return re.findall(pattern, self.text(cell), re.M)

    def data(self, cell, mime):
        return "".join(output.get("data", {}).get(mime, "") for output in self[cell])

    def html(self, cell):
        return self.data(cell, "text/html")

    def drawn(self, *cells):
        return all(self.data(cell, "image/png") for cell in cells)


@pytest.fixture(scope="module")
def client():
    """Its one kernel runs all notebooks, which share imports and compiled programs."""
    empty = nbformat.v4.new_notebook()
    made = NotebookClient(empty, timeout=400, kernel_name="python3")
    made.execute(cleanup_kc=False)
    yield made
    made._cleanup_kernel()


def run(notebook, folder, client):
    """Runs a notebook in `folder`, without the names that another one has left."""
    begin = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}")
    notebook.cells.insert(0, begin)
    client.nb = notebook
    client.execute(cleanup_kc=False)
    return Shown({c.id: c.outputs for c in notebook.cells if c.cell_type == "code"})


def floats(words):
    return [float(word) for word in words]


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
        target = path.parent / link.partition("#")[0]
        assert target.suffix != ".md" or "<!-- shows:" not in target.read_text(), link
        assert target.exists(), link
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


def shows_quickstart(shown, runs):
    assert "jax" in shown.text("install")
    pattern = r"churn +([\d.]+)\nnegative flip rate +([\d.]+)"
    churn, flips = floats(*shown.found("measure", pattern))
    assert 0 < flips < churn < 1
    alone, codistilled = floats(shown.found("pairs", r"churn ([\d.]+) ±"))
    assert codistilled < alone
    methods, members = shown.data("table", "text/markdown").split("## Members")
    assert len(re.findall(r"^\| ", methods, re.M)) == 1 + 8
    assert "| 2-Ensemble |" in members
    assert "all 8 methods" in shown.text("study")  # how far it is
    for cell in ("plots", "curves"):
        assert sum("image/png" in output.data for output in shown[cell]) == 2
    assert (runs / "digits-tiny" / "report.html").exists()


def shows_what_causes_churn(shown, runs):
    churn = dict(shown.found("bars", r"^(.+?) +churn +([\d.]+) ±"))
    assert len(churn) == 8 and float(churn.pop("nothing")) == 0.0
    assert min(floats(churn.values())) > 0
    assert "equal weights, bit by bit" in shown.text("machine")
    pattern = r"mean ambiguity ([\d.]+), churn ([\d.]+)"
    ((ambiguity, mean),) = shown.found("images", pattern)
    assert ambiguity == mean
    lemmas = shown.text("lemmas").splitlines()
    assert len(lemmas) == 8
    for line in lemmas:
        measured, *bounds = floats(re.findall(r" (\d\.\d+)", line))
        assert len(bounds) == 3 and measured <= min(bounds)
    assert shown.drawn("bars", "images", "lemmas")


BY_HAND = r"by hand ([\d.]+) +library ([\d.]+)"


def shows_anti_distillation(shown, runs):
    by_hand = shown.found("measure", BY_HAND)
    assert len(by_hand) == 4 and all(hand == library for hand, library in by_hand)
    exit_ = shown.text("exit")  # decorrelated logits, equal predictions
    assert "on logits         0.0000\n" in exit_
    assert "differ by at most 0.0000" in exit_
    assert floats(shown.found("exit", r"on probabilities +([\d.]+)"))[0] > 0
    pattern = r"^(\S.*?)  +((?: *-?\d+\.\d+){3})$"
    shifts = {name: floats(n.split()) for name, n in shown.found("shifts", pattern)}
    assert len(shifts) == 8
    plain, on_logits, _ = shifts["penalty on logits"]
    assert on_logits < 0.05 * plain
    plain, on_logits, _ = shifts["penalty on logits, shift removed"]
    assert on_logits > 0.1 * plain  # most of the drop was the shift
    plain, _, on_probs = shifts["penalty on probabilities"]
    assert on_probs < plain
    plain, on_logits, _ = shifts["Δ1 of the two components"]
    assert on_logits > plain
    table = shown.html("study")
    assert all(head in table for head in ("Accuracy", "Churn", "Cal. NLL", "Δ₁"))
    found = shown.found("results", r"[\d.]+ ± [\d.]+")
    assert len(found) == 5 * (2 + 2)  # five rows and their changes
    relative = shown.found("stream", r"relative ([\d.]+) ± ([\d.]+) +Δ1 ([\d.]+)")
    assert len(relative) == 3 and all(min(floats(found)) > 0 for found in relative)
    assert shown.drawn("scatter", "bars", "curves")
    assert (runs / "anti-distillation-digits-tiny" / "study.json").exists()


def shows_learning_from_ensembles(shown, runs):
    pattern = r"^(.+?) +\d+ parameters, as many as ([\d.]+) networks$"
    networks = {k: float(n) for k, n in shown.found("parameters", pattern)}
    assert networks.pop("DE-4") == 4 and len(networks) == 4
    assert len(set(networks.values())) == 1  # however they are trained
    assert 1 < networks["BE-4"] < 1.5
    lengths = dict(shown.found("steps", r"^(\w+) +mean change per pixel (.+)$"))
    assert float(lengths.pop("clean")) == 0
    for length in floats(lengths.values()):  # pixels that are clipped go less far
        assert 0.5 / 16 < length < 1.1 / 16
    (none,) = floats(shown.found("disagreement", r"^no step +mean KL ([\d.]+)$"))
    pattern = r"Gaussian ([\d.]+) \( *[\d.]+ times\)   ODS ([\d.]+) "
    rows = shown.found("disagreement", pattern)
    noise, along = floats(rows[-1])  # the longest step
    assert len(rows) == 5 and along > max(none, noise)
    table = shown.data("table", "text/markdown")
    head = next(line for line in table.splitlines() if line.startswith("| Method"))
    for column in ("Accuracy", "NLL", "Cal. NLL", "ECE", "DEE", "KL of members"):
        assert f"| {column}" in head
    sizes = shown.found("curve", r"^(\d) networks: calibrated NLL \d")
    assert sizes == list("1234")
    worth = floats(shown.found("curve", r"^BE-4.* DEE ([\d.]+)$"))
    assert len(worth) == 4 and all(1 <= size <= 4 for size in worth)
    own = shown.found("own", r"accuracy ([\d.]+) .*KL of members ([\d.]+)")
    assert len(own) == 2
    for accuracy, kl in map(floats, own):
        assert accuracy > 0.2 and kl > 0  # twice that of guessing, after 20 updates
    assert shown.drawn("steps", "disagreement")
    assert shown.html("curve").count("<svg") == 1
    assert (runs / "learning-from-ensembles-dm-digits-tiny" / "study.json").exists()


def shows_model_update(shown, runs):
    by_hand = shown.found("measure", BY_HAND)
    assert len(by_hand) == 3 and all(hand == library for hand, library in by_hand)
    assert "[0 0 0 0 0 2 0 0]" in shown.text("measure")  # the one flip's rank
    pattern = r"NFR +([\d.]+) ± [\d.]+ % .*logits move ([\d.]+)"
    ((flips, _),) = shown.found("pairs", pattern)
    assert 0 < float(flips) < 100
    pattern = r"^ensembles of (\d): norm ([\d.]+), of normal logits ([\d.]+)"
    counts, norms, normal = zip(*map(floats, shown.found("sizes", pattern)))
    assert counts == (1, 2, 4) and norms[0] > norms[1] > norms[2]
    for norm, expected in zip(norms, normal):  # roughly as normal logits would move
        assert abs(norm / expected - 1) < 0.3
    moved = dict(shown.found("elodi", r"^(.+?) +ER .*move ([\d.]+)$"))
    assert len(moved) == 4 and "ELODI, K = 3" in moved
    assert float(moved["ensembles of 8"]) < float(moved["trained again"])
    for cell, count in (("updates", 6), ("versions", 7)):
        table = shown.data(cell, "text/markdown")
        assert "Every model against every other" not in table
        assert len(re.findall(r"^\| .* ± .*$", table, re.M)) == count
    assert shown.drawn("displacement", "scatter")
    assert shown.text("extend").count("finished before, kept") == 10
    assert len({*shown.found("extend", r"^[\d:]+ (\S+): validation acc")}) == 5
    assert (runs / "model-update-elodi-digits-tiny" / "study.json").exists()


def intervals(shown, cell, count):
    """Numbers with an interval around each; flips are fewer than changes."""
    found = shown.found(cell, r"^(\w+) +([+-][\d.]+) +([+-][\d.]+) to ([+-][\d.]+)$")
    assert len(found) == count
    values = {name: floats(numbers) for name, *numbers in found}
    assert all(low <= value <= high for value, low, high in values.values())
    assert 0 < values["negative_flip_rate"][0] < values["churn"][0] < 1


def shows_own_model(shown, runs):
    intervals(shown, "measure", 4)
    names = shown.found("seeds", r"^(\S+) +churn +[\d.]+ ± [\d.]+ %")
    assert names == ["alone", "co-distilled"]
    assert shown.found("seeds", r"change of churn [+-][\d.]+ ± [\d.]+")
    assert shown.drawn("flips", "histogram", "figure")
    assert "co-distilled" in shown.html("study")
    gates = shown.text("gate").splitlines()[:3]
    assert all(line[:6] in ("PASS  ", "FAIL  ") for line in gates)
    assert (runs / "own-digits-tiny" / "study.json").exists()


def shows_compare_versions(shown, runs):
    intervals(shown, "numbers", 3)
    assert "Trust kept" in shown.html("compare")
    assert shown.drawn("regressions")
    assert shown.text("files").startswith("True ")  # in any order, of any format
    counts = [int(n) for n in shown.found("slices", r"^.* (\d+) examples")]
    assert len(counts) == len(shown.text("slices").splitlines()) == 10 + 3 + 2
    assert sum(counts[:10]) == sum(counts[10:13]) == sum(counts[13:]) == 897
    *lines, verdict = shown.text("gates").splitlines()
    assert len(lines) == 4 and all(line[:4] in ("PASS", "FAIL") for line in lines)
    held = all(line.startswith("PASS") for line in lines)
    assert verdict == ("ship it" if held else "do not ship it")
    assert "exit code 1" in shown.text("gate-file")
    assert "FAIL  negative flip rate at most 0.5 %" in shown.text("pytest")
    pattern = r"beyond that [+-][\d.]+ \(([+-][\d.]+) to ([+-][\d.]+)\)"
    (low, high), _ = map(floats, shown.found("noise", pattern))
    assert low <= 0 <= high  # other seeds change no more than other seeds
    assert shown.text("torch")
    # Versions, updates, and every one against every other: churn, NFR, relative NFR.
    assert shown.html("versions").count("<table") == 5
    for name in ("report", "versions"):
        assert (runs.parent / f"{name}.html").exists()


@pytest.mark.slow
@each_notebook
def test_it_runs_and_shows_what_it_promises(path, tmp_path, client):
    notebook = read(path)
    cell, chosen = preset_of(notebook)
    tiny = chosen.removesuffix(":tiny") + ":tiny"
    cell.source = cell.source.replace(f'"{chosen}"', f'"{tiny}"', 1)
    shows = globals()[f"shows_{path.stem}"]  # each notebook has one
    shows(run(notebook, tmp_path, client), tmp_path / "runs")
