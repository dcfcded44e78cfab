"""README and docs/: code runs, commands parse, links lead somewhere."""

import functools
import importlib
import json
import re
import shlex
import sys
import types
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import churn_jax
from churn_compare import read_gates, read_suite, read_waivers
from churn_jax import losses
from churn_jax.cli import main
from churn_jax.command import COMMANDS
from churn_jax.configuration import to_json
from churn_jax.data import load_clicks
from churn_jax.reports import QUANTITIES
from churn_jax.studies import preset

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted(DOCS.rglob("*.md")) if "_build" not in p.parts),
]
TEXTS = [
    *PAGES,
    ROOT / "compare" / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "experiments").rglob("*.md")),
]
SLOW = {"start/train"} | {
    f"how_to/{name}" for name in "own_loop updates own_method studies".split()
}  # they train, or draw a report


def name_of(page):
    """`README`, or the place of a page in docs, without its ending."""
    if page.is_relative_to(DOCS):
        return page.relative_to(DOCS).with_suffix("").as_posix()
    return page.stem


def blocks(page, language):
    """The blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


# What is checked needs fewer epochs and runs than pages have.
SHORTER = {
    "start/train": ("epochs=20", "epochs=2"),
    "how_to/own_method": ("epochs=20", "epochs=4"),
    "how_to/own_loop": ("range(20)", "range(6)"),
    "how_to/studies": ("epochs=80", "epochs=3"),
}


def run(page):
    """The names that a page's Python blocks leave, run in order."""
    # A module, as a script is one: classes that it defines are found by their names.
    module = sys.modules["page"] = types.ModuleType("page")
    for block in blocks(page, "python"):
        exec(block.replace(*SHORTER.get(name_of(page), ("", ""))), module.__dict__)
    return module.__dict__


def pages_with(language):
    return [
        pytest.param(page, marks=pytest.mark.slow if name_of(page) in SLOW else ())
        for page in PAGES
        if blocks(page, language)
    ]


def check_readme(names, folder):
    churn = names["metrics"].churn(names["old_logits"], names["new_logits"])
    matrix = names["metrics"].pairwise(names["metrics"].churn, names["runs"])
    assert matrix.shape == (2, 2) and 0.8 < float(churn) < 1
    assert float(matrix[0, 1]) == pytest.approx(float(churn))


def check_how_to_own_loop(names, folder):
    metrics, runs = names["metrics"], names["logits"]["co-distilled"]
    assert runs.shape == (6, 897, 10)
    alone, together = (
        metrics.summarize_pairs(metrics.pairwise(metrics.churn, logits)).mean
        for logits in names["logits"].values()
    )
    assert 0 < together < alone < 0.2
    history = names["train"](0, 1.0)[1]
    assert history[-1] < 0.3 * history[0]
    assert names["less"].difference < 0 < names["less"].runs == 6
    assert float(names["streamed"]) == float(names["two_runs"])
    both = names["first"][:896], names["second"][:896]
    assert float(names["churn_of_all"]) == float(metrics.churn(*both))
    whole = names["losses"].correlation_penalty(np.stack(both))
    assert float(names["penalty_of_all"]) == pytest.approx(float(whole), rel=1e-5)


def check_start_compare(names, folder):
    assert (folder / "new.csv").is_file()
    assert names["result"]["churn"].value == 0.375
    assert names["less"].difference < 0 and names["less"].p < 0.05


def check_how_to_gate_in_ci(names, folder):
    assert main(["compare", "old.csv", "new.csv", "--max-nfr", "1%"]) == 1
    with pytest.raises(AssertionError) as failed:
        names["test_the_new_model_may_replace_the_old_one"]()
    print(failed.exconly())
    assert main(["compare", "old.csv", "new.csv", "--gates", "gates.toml"]) == 0
    page = (DOCS / "how_to" / "gate_in_ci.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", page, re.M)
    for count, *limits in rows:  # that can be passed
        right = np.zeros(int(count.replace(",", "")), int)
        for limit, flips in zip(limits, (0, len(right) // 100), strict=True):
            new = (np.arange(len(right)) < flips).astype(int)
            result = churn_jax.compare(right, new, labels=right)
            assert result["negative_flip_rate"].high <= float(limit) / 100
    assert len(rows) == 5


def check_how_to_grouped_examples(names, folder):
    assert names["result"].clusters.count == 40


def check_how_to_slices(names, folder):
    assert set(names["result"].groupings) == {"class", "ink"}
    words = ["old.npz", "new.npz", "--slices", "slices.csv", "--max-slice-nfr"]
    assert [main(["compare", *words, limit]) for limit in ("4%", "2%")] == [0, 1]


def check_how_to_llm_evaluations(names, folder):
    words = ["old.jsonl", "new.jsonl", "--by", "task", "--max-slice-nfr"]
    assert [main(["compare", *words, limit]) for limit in ("15%", "20%")] == [1, 0]
    assert names["answer"]["negative_flip_rate"].value == pytest.approx(0.118, abs=5e-4)
    assert names["answer"].is_equivalent


def check_reference_file_formats(names, folder):
    assert names["load_predictions"]("mine.npz").shape == (3, 100, 10)
    assert names["stored"].shape == (3, 100, 10)


def check_how_to_data(names, folder):
    dataset = names["dataset"]
    sizes = len(dataset.train), len(dataset.validation), len(dataset.test)
    assert sizes == (360, 40, 100)


def check_how_to_studies(names, folder):
    dataset, logits = names["dataset"], names["logits"]
    assert logits.shape == (10, len(dataset.test), dataset.num_classes)
    assert {"table.md", "table.csv", "report.html"} <= {
        path.name for path in names["folder"].iterdir()
    }


def check_how_to_own_method(names, folder):
    of_networks = churn_jax.StudyResult("runs/own-network").predictions
    assert of_networks["co-distilled"].shape == (5, 897, 10)
    assert names["trained"].predict(names["digits"].test.images).shape == (2, 897, 10)
    logits = names["result"].predictions["squeezed"]
    assert logits.shape == (5, 897, 10)
    baseline = names["result"].predictions["baseline"]
    assert np.abs(logits).mean() < 0.7 * np.abs(baseline).mean()
    for name in ("margin", "unanimous"):
        del QUANTITIES._registered[name]
    logits = np.array([[[3.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [1.0, 0.0]]])
    assert names["unanimous"].measure(logits, np.array([0, 1])) == 0.5
    assert names["margin"].measure(logits[0], np.array([0, 1])) == 2.0


def check_reference_faq(names, folder):
    few, many = names["little_churn"], names["much_churn"]
    for found in (few, many):
        assert found.quantities["accuracy_gain"].value == pytest.approx(0.003)
    assert "p < 0.001" in str(few) and "does not change detectably" in str(many)


def check_how_to_streams(names, folder):
    found = load_clicks(str(folder / "ads.npz"))
    assert len(found.train) + len(found.validation) == 20_000
    assert found.sizes == (200,) and found.train.numeric.shape[1] == 1


def check_how_to_large_data(names, folder):
    assert main(["compare", "old", "new", "--max-nfr", "5%"]) == 1


def check_start_train(names, folder):
    assert names["logits"].shape == (5, 897, 10)


def check_how_to_updates(names, folder):
    assert names["kd"].shape == names["old"].shape == (10, 897, 10)
    row = r"\| Churn distillation \| .* \| 2× \| 1× \|"
    assert re.search(row, str(names["result"]))
    assert 0 < sum(names["rates"]) / 10 < 0.05


def check_how_to_labels(names, folder):
    assert names["bought"] == 28 and names["found"]["negative_flip_rate"].low > 0.008


def check_how_to_repair(names, folder):
    assert names["log_probs"].argmax(-1).tolist() == [1]  # 0.8 of 1 and 0.2 of -2


check_index = check_readme


def check_concepts_determinism(names, folder):
    """That it runs is all."""


# Pages whose text blocks, from this one on, are what their commands and code print.
PRINTED = {"gate_in_ci": 0, "grouped_examples": 0, "slices": 0, "llm_evaluations": 0}
PRINTED |= {"large_data": 1, "labels": -1, "faq": 0}


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    own_loop = page.stem == "own_loop"
    names = request.getfixturevalue("loop") if own_loop else run(page)
    for gates in blocks(page, "toml"):
        Path("gates.toml").write_text(gates)
    place = name_of(page).lower().replace("/", "_")
    globals()[f"check_{place}"](names, tmp_path)
    if page.stem not in PRINTED:
        return
    texts = "...\n".join(blocks(page, "text")[PRINTED[page.stem] :])
    shown = re.sub("^E  +", "", texts, flags=re.M).split("...\n")
    text, came = "".join(blocks(page, "sh")).replace("\\\n", ""), ""
    for full in ([], ["--full"]):
        for command in re.findall(r"^churn-(?:jax )?compare ([^l].*)", text, re.M):
            main(["compare", *shlex.split(command), *full])
        came += " ".join(capsys.readouterr().out.split())
        missing = [part for part in shown if " ".join(part.split()) not in came]
        if not missing:
            break
    assert missing == []


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """The names of the page on loops, which trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("loop"))
        return run(DOCS / "how_to" / "own_loop.md")


def _on_devices(way, f, mesh):
    """`f(weights, x, y)` of sharded examples, in the ways to map it over devices."""
    sharded = functools.partial(
        jax.shard_map, f, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P()
    )
    if way == "pmap":
        mapped = jax.pmap(f, axis_name="data", in_axes=(None, 0, 0))

        def first(weights, *batch):
            parts = (jnp.stack(jnp.split(part, mesh.size)) for part in batch)
            return jax.tree.map(lambda leaf: leaf[0], mapped(weights, *parts))

        return first
    return jax.jit(sharded(check_vma=way == "shard_map"))


@pytest.mark.slow
def test_gradients_on_four_devices_are_those_of_one(loop):
    mesh = jax.make_mesh((4,), ("data",), (AxisType.Auto,), devices=jax.devices()[:4])
    x, y = loop["x"][:64], loop["y"][:64]
    pair = [loop["net"].init(jax.random.key(i), x) for i in (0, 1)]

    def objective(pair):
        a, b = (loop["net"].apply(params, x) for params in pair)
        labels = losses.cross_entropy(a, y) + losses.cross_entropy(b, y)
        each = labels + losses.symmetric_kl(a, b)
        return each.mean() + 0.01 * losses.correlation_penalty(jnp.stack([a, b]))

    one = jax.jit(jax.grad(objective))(pair)
    for way in ("shard_map", "shard_map without the check", "pmap"):
        of_all = _on_devices(way, loop["gradients"], mesh)(pair, x, y)
        chex.assert_trees_all_close(of_all, one, rtol=1e-5, atol=1e-6)
    page = jax.jit(loop["sharded_gradients"])(pair, x, y)  # on all eight
    chex.assert_trees_all_close(page, one, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["NNX", "Linen"])
def test_steps_of_the_loops_on_four_devices_are_those_of_one(loop, kind):
    mesh = jax.make_mesh((4,), ("data",), (AxisType.Auto,), devices=jax.devices()[:4])
    x, y = loop["x"][:64], loop["y"][:64]
    adam, nnx = loop["adam"], loop["nnx"]

    def stepped(*batch):
        if kind == "NNX":
            nets = nnx.List([loop["Net"](nnx.Rngs(seed)) for seed in (0, 1)])
            rule = nnx.Optimizer(nets, adam, wrt=nnx.Param)
            loop["step"](nets, rule, *batch, 1.0)
            return nnx.to_pure_dict(nnx.state(nets, nnx.Param))
        params = loop["net"].init(jax.random.key(0), x)
        return loop["linen_step"](params, adam.init(params), *batch, 0.2)[0]

    rows = NamedSharding(mesh, P("data"))
    four = stepped(*(jax.device_put(part, rows) for part in (x, y)))
    assert len(jax.tree.leaves(four)[0].sharding.device_set) == 4
    chex.assert_trees_all_close(four, stepped(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_is_as_wide_as_the_site_shows(page):
    code = [
        b for language in ("python", "py", "sh", "toml") for b in blocks(page, language)
    ]
    wide = [line for block in code for line in block.split("\n") if len(line) > 72]
    assert [line for line in wide if "pip install" not in line] == []


class Parsed(BaseException):
    """The options of a command have been read."""


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_have_real_options(page, monkeypatch, tmp_path):
    cli = tyro.cli

    def parse(*args, **options):
        raise Parsed(cli(*args, **options))

    monkeypatch.setattr(tyro, "cli", parse)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    Path("experiments").symlink_to(ROOT / "experiments")
    Path("study.json").write_text(json.dumps(to_json(preset("digits"))))
    start = r"^ *(?:- )?(?:run: |srun )?churn-(?:jax |(?=compare ))([^>#\n]*)"
    for block in blocks(page, "sh") + blocks(page, "yaml"):
        for command in re.findall(start, block.replace("\\\n", ""), re.M):
            # Defaults of the first are in a study's folder; the others have no options.
            if command.startswith("equations |"):
                continue
            with pytest.raises(Parsed):
                main(shlex.split(command))


def test_the_toml_of_the_pages_is_read(tmp_path):
    path = tmp_path / "gates.toml"
    for page, counts in (("how_to/gate_in_ci", [3]), ("reference/gate_file", [9, 1])):
        for gates, count in zip(blocks(DOCS / f"{page}.md", "toml"), counts):
            path.write_text(gates)
            assert len(read_gates(path)) == count
    assert [waiver.id for waiver in read_waivers(path)] == ["1118"]
    (suite,) = blocks(DOCS / "how_to/suite.md", "toml")
    waiver = gates.partition("[[waive]]")[2]  # what both pages say, in one file
    path.write_text(f"{suite}\n[[benchmark.mmlu.gates.waive]]{waiver}")
    mmlu = read_suite(path).of("mmlu")
    assert [of.id for of in mmlu.waivers] == ["1118"] and len(mmlu.gates) == 1


@pytest.fixture
def filled_in(monkeypatch):
    """A page of the reference with the parts that the package's declarations write."""
    monkeypatch.syspath_prepend(DOCS / "extensions")
    generated = importlib.import_module("generated")
    return lambda name: generated.filled_in((DOCS / "reference" / name).read_text())


def test_every_option_stands_in_the_section_of_its_command(filled_in):
    page = filled_in("command_line.md")
    words = importlib.import_module("command_line").words
    sections = dict(re.findall(r"^###? (\w+)$(.*?)(?=^###? )", page, re.M | re.S))
    below = {name: f"compare {name}" for name in ("label", "repair", "size", "suite")}
    assert set(sections) == {*COMMANDS, *below}
    assert {"--mesh", "--epochs", "--no-fresh"} <= {*words("study")}
    for command in set(sections) - {"equations"}:
        said = set(re.findall(r"--[a-z][\w.-]*\w", sections[command]))
        assert set(words(below.get(command, command))) <= said, command
    assert "| 130 | stopped by Ctrl-C" in page


def test_every_name_of_the_command_line_stands_on_the_page_of_presets(filled_in):
    page = filled_in("presets.md")
    names = list(importlib.import_module("preset_list").every_name())
    assert len(names) > 120 and not [n for n in names if f"`{n}`" not in page]


def anchors(page):
    """What GitHub calls a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
        text = target.read_text() if target.suffix == ".md" else ""
        assert "<!-- shows: " not in text, f"{link} is empty outside of the site"


def test_the_parts_that_contributing_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for package in ("compare/churn_compare", "churn_jax"):
        table = text.partition(f"| Part of `{Path(package).name}` |")[2]
        parts = re.findall(r"^\| (`[^|]*) \|", table.partition("\n\n")[0], re.M)
        for name in re.findall(r"`([^`]*)`", "".join(parts)):
            assert (ROOT / package / name).exists(), name


def test_the_readme_is_short_and_links_every_page():
    readme = ROOT / "README.md"
    assert len(readme.read_bytes()) <= 8192
    assert "`make test`" in readme.read_text()  # what .ci/run runs


def test_every_public_name_has_a_page_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    import public_names

    known = {*public_names.MODULES, *public_names.INTERNAL}
    assert public_names.packages() <= known
    pages = [public.page.lower() for public in public_names.public_names()]
    assert len(pages) == len(set(pages))  # also where capitals make no difference
    named = {
        name
        for public in public_names.public_names()
        for name in (public.qualified, *public.also)
    }
    for module in public_names.MODULES:
        found, exported = importlib.import_module(module), public_names.exported(module)
        assert {f"{module}.{name}" for name in exported} <= named
        assert all(hasattr(found, name) for name in exported), module
        assert set(getattr(found, "__all__", exported)) >= set(exported)
