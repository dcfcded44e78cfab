"""`churn-jax compare`, from files to the exit code."""

import importlib
import io
import json
import re
import runpy
import shlex
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from sklearn.metrics import accuracy_score, log_loss

import churn_compare
from churn_compare.cli import Arguments
from churn_compare.option_list import options_of
from churn_compare.store import ShardWriter, write_index
from churn_compare.testing import assert_compatible
from churn_jax import metrics
from churn_jax.cli import main
from churn_jax.data import load_digits

DEMO = Path(churn_compare.__file__).parent / "demo"
WHOLE = 'on = "interval" max-churn'
EXAMPLES = Path(__file__).resolve().parents[2] / "experiments" / "compare"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Predictions that scikit-learn has made, as the example writes them."""
    folder = tmp_path_factory.mktemp("digits") / "predictions"
    script = runpy.run_path(str(EXAMPLES / "scikit_learn.py"))
    script["write_predictions"](folder)
    return folder


@pytest.fixture
def files(tmp_path):
    """Twenty examples of four classes: two negative flips and a positive one."""
    labels = np.arange(20) % 4
    old, new = labels.copy(), labels.copy()
    old[:3], new[1:5] = 3, (new[1:5] + 1) % 4
    for name, classes in (("old", old), ("new", new), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", classes)
    regions = "region\n" + "north\n" * 10 + "south\n" * 10
    (tmp_path / "slices.csv").write_text(regions)
    return tmp_path


def compare(folder, *words):
    """Exit code of the command on `old.npy` and `new.npy` of the folder."""
    sides = [str(folder / "old.npy"), str(folder / "new.npy")]
    labels = ["--labels", str(folder / "labels.npy")]
    return main(["compare", *sides, *labels, *map(str, words)])


def record(folder, *words):
    compare(folder, *words, "--json", folder / "report.json")
    return json.loads((folder / "report.json").read_text())


def test_numbers_of_two_files_are_printed_and_written(files, capsys):
    page = files / "new" / "a.html"
    written = ["--html", page, "--markdown", files / "a.md"]
    found = record(files, *written, "--max-churn", "1%")  # which fails
    assert found["passed"] is False and found["gates"][0]["limit"] == 0.01
    quantities = {name: q["value"] for name, q in found["quantities"].items()}
    assert quantities["churn"] == 4 / 20
    assert quantities["negative_flip_rate"] == 2 / 20
    assert quantities["positive_flip_rate"] == 1 / 20
    assert quantities["accuracy_gain"] == pytest.approx(-1 / 20)
    said = capsys.readouterr().out
    assert "were right and are wrong now" in said and "old.npy" in said
    assert "churn-jax compare" in page.read_text() and "--markdown" in page.read_text()
    assert "| Churn (lower is better) |" in (files / "a.md").read_text()
    assert f"Written: {page}, " in " ".join(said.split("\n"))


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("", 0, "--full prints every table; --html FILE writes the page."),
        ("--max-churn 20%", 0, "PASS churn at most 20 %: 20"),
        ("--max-churn 0.19", 1, "FAIL churn at most 19 %: 20"),
        ("--gates 'on = \"bound\" max-churn = 0.2'", 1, "FAIL upper end of churn at"),
        ("--min-accuracy-gain=0", 1, "FAIL accuracy gain at least 0 points"),
        ("--slices slices.csv --max-slice-nfr 0.1", 1, "1 of 2: region north 20 %"),
        ("--gates 'min-examples = 6 [classes] max-churn = 0.5'", 1, "judge; 4 of 4"),
        ("--equivalent 40%", 0, "is shown to change accuracy by less than 40 points ("),
        (f"--gates '{WHOLE} = 0.3'", 4, "INCONCLUSIVE: the limit of the gate"),
        (f"--gates '{WHOLE} = 0.3' --inconclusive pass", 0, "INCONCLUSIVE"),
        (f"--gates '{WHOLE} = 0.3' --inconclusive fail", 1, "INCONCLUSIVE"),
        (f"--gates '{WHOLE} = 0.05' --inconclusive pass", 1, "FAILED"),
    ],
)
def test_the_exit_code_says_whether_all_gates_hold(
    files, capsys, monkeypatch, words, code, line
):
    monkeypatch.chdir(files)
    given = shlex.split(words)
    if given[:1] == ["--gates"]:
        Path("gates.toml").write_text(re.sub(r" (?=\[|m)", "\n", given[1]))
        given[1] = "gates.toml"
    assert compare(files, *given) == code
    assert line in " ".join(capsys.readouterr().out.split())


def test_the_command_has_forty_options_and_a_short_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(options_of(Arguments)) <= 40
    with monkeypatch.context() as patch:
        patch.setattr("inspect.getsource", pytest.fail)  # the source is parsed once
        assert all(option.help for option in options_of(Arguments).values())
    with pytest.raises(SystemExit):
        main(["compare", "-h"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= 80


def test_files_are_written_if_the_reader_of_the_text_goes(files, monkeypatch):
    """As `head` does."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

        def fileno(self):
            return 1

    page = files / "page.html"
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Gone())  # Rich alone would exit with 1
        patch.setattr("os.dup2", lambda *_: None)  # what keeps Python from a traceback
        assert compare(files, "--html", page) == 141
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_options_replace_what_the_gate_file_says(files, capsys):
    gates = files / "gates.toml"
    gates.write_text('max-churn = "1%"\nmax-nfr = 0.5\nmin-kappa = 0.5')
    assert compare(files, "--gates", gates) == 1
    assert compare(files, "--gates", gates, "--max-churn", "30%") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "PASS kappa at least 0.5: 0.7" in said and "at most 30 %" in said
    gates.write_text('on = "bound"\nmax-churn = "50%"')
    assert compare(files, "--gates", gates, "--max-churn", "30%") == 1
    assert "FAIL  upper end of churn at most 30 %" in capsys.readouterr().out


def test_the_demo_compares_two_models_of_the_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--demo"]) == 0
    said = capsys.readouterr().out
    assert "897 examples; each: probabilities, 10 classes, 4 runs" in said
    assert "compare old.csv new.csv --max-nfr 1% --html report.html" in said
    assert "churn-jax compare --demo" in (tmp_path / "churn-demo.html").read_text()
    digits = load_digits()["test"]
    for name in ("neural_network.npz", "random_forest.npz"):
        with np.load(DEMO / name) as stored:
            assert stored["ids"].tolist() == digits.ids.tolist()
            assert stored["labels"].tolist() == digits.labels.tolist()
            assert stored["probabilities"].shape == (4, 897, 10)
            sums = stored["probabilities"].sum(axis=-1, dtype=float)
        np.testing.assert_allclose(sums, 1, atol=2e-3)
    assert sum(file.stat().st_size for file in DEMO.iterdir()) < 100_000


SIDES = "old.npy new.npy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--max-chrun 1%", "unknown option --max-chrun; did you mean --max-churn?"),
        ("--max-churn 5x", "--max-churn must be a number such as 0.02 or 2%; got '5x'"),
        ("--max-churn", "Missing value for argument '--max-churn'"),
        ("--normalize all", "invalid choice 'all' for argument '--normalize'"),
        ("--max-class-churn 1%", "write max-churn = ... under [classes] into the file"),
        ("--max-ece-new=1%", "--max-ece-new is set in a gate file: write max-ece-new"),
        ("--on bound", "--on is set in a gate file: write on = ... into the file of"),
        ("--demo", "--demo brings its own files; leave OLD and NEW out"),
        ("--max-excess-churn 1%", "both versions have one run"),
        ("--html .", "--html: . is a folder; name a file"),
        ("--json /dev/null", "--json: /dev/null is not an ordinary file; name a file"),
        ("--gates gone.toml", "gone.toml: there is no such file"),
        ("--order a b", "--order is for a folder of versions"),
        ("--full --full --by a --by=b", "--by is given twice; write all values after"),
        ("--gates a --gates b", "--gates is given twice; put all limits into one file"),
        ("--max-nfr 1% --max_nfr=9%", "--max-nfr is given twice; give it once"),
    ],
)
def test_bad_options_are_one_sentence(files, refused, monkeypatch, words, message):
    monkeypatch.chdir(files)
    words = f"compare {SIDES} --labels labels.npy {words}"
    refused(words.split(), message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "OLD and NEW are missing (churn-jax compare -h lists the options)"),
        (f"--by region {SIDES}", "; write OLD and NEW before options of several names"),
        ("old.npy --order new.npy", "; write OLD and NEW before options of several"),
        (f"size --confirm {SIDES}", "; write OLD and NEW before options of several"),
        ("old.npy", "NEW is missing; name two versions, or a folder of them"),
        ("gone.npy new.npy", "gone.npy: there is no such file"),
        ("old.npy short.npy", "20"),
        ("old.npy old.npy", "write one file for each version"),
        (". --json new.npy", "--json: new.npy is called like predictions"),
        (
            f"{SIDES} --class-map m.json --json ./m.json",
            "--json: m.json would write over what is read; name another",
        ),
        (
            f"{SIDES} --json a --markdown a",
            "--markdown: a would write over the file of --json; name another",
        ),
        ("--noise r.json s.json --json s.json", "--json: s.json would write over what"),
        (". --json ./study.json", "study.json lies within what is read; name another"),
        ("store new.npy --json store/index.json", "index.json lies within what is rea"),
        (". --json index.json", "--json: index.json lies within what is read"),
        ("label . old.npy --out a.csv", "--out: a.csv lies within what is read"),
        (f"label {SIDES} --out ./new.npy", "a queue is a CSV file; name it .csv"),
        ("label a.csv b.csv --out ./b.csv", "b.csv would write over what is read"),
        (". --by region", "--by is for OLD and NEW; a folder takes --slices"),
    ],
)
def test_wrong_files_are_named(files, refused, monkeypatch, words, message):
    monkeypatch.chdir(files)
    np.save("short.npy", np.arange(3))
    Path("study.json").write_text("{}")
    with ShardWriter("store", 0, 1, np.arange(1), np.zeros(1, int), 1, 2) as writer:
        writer.write(np.zeros((1, 1, 2)))
    write_index("store", 1)
    refused(["compare", *words.split()], message)


def test_scikit_learn_end_to_end_by_csv_and_parquet(digits, tmp_path, capsys):
    old, new = digits / "old.csv", digits / "new.parquet"
    words = [str(old), str(new), "--slices", str(digits / "slices.csv")]
    report = tmp_path / "report.json"
    gates = ["--max-nfr", "5%", "--min-accuracy-gain", "-1%"]
    assert main(["compare", *words, *gates, "--json", str(report)]) == 0
    found = json.loads(report.read_text())
    assert found["examples"] == 897
    labels, before, after = probabilities_of(digits)
    flips = {"old_logits": before, "new_logits": after, "labels": labels}
    expected = {
        "churn": metrics.churn(before, after),
        "negative_flip_rate": metrics.negative_flip_rate(**flips),
        "accuracy_old": accuracy_score(labels, before.argmax(-1)),
        "nll_new": log_loss(labels, np.exp(after)),
    }
    for name, value in expected.items():
        measured = found["quantities"][name]["value"]
        assert measured == pytest.approx(float(value), rel=2e-5), name
    sizes = [g["examples"] for g in found["groups"] if g["grouping"] == "ink"]
    assert sum(sizes) == 897 and len(sizes) == 3


def probabilities_of(folder):
    """Labels, and log-probabilities of both sides in the order of their ids."""
    from pyarrow import csv, parquet

    old, new = folder / "old.csv", folder / "new.parquet"
    tables = [of.sort_by("id") for of in (csv.read_csv(old), parquet.read_table(new))]
    scores = ([of[f"prob_{c}"].to_numpy() for c in range(10)] for of in tables)
    return tables[0]["label"].to_numpy(), *(np.log(np.transpose(of)) for of in scores)


def commands(text):
    """The `churn-jax compare` and `churn-compare` commands in a text."""
    found = re.findall(r"^ *churn-(?:jax )?compare ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return [shlex.split(words.replace("\\\n", " ")) for words in found]


def test_the_workflow_parses_and_its_command_works(digits, monkeypatch, capsys):
    jobs = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all("uses" in step or "run" in step for step in steps)
    (words,) = (found for step in steps for found in commands(step.get("run", "")))
    folder = digits.parent
    monkeypatch.chdir(folder)
    (folder / "gates.toml").write_text((EXAMPLES / "gates.toml").read_text())
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    assert main(["compare", *words]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("PASS  ", "FAIL  ")) for line in lines) == 6
    wanted = {word for step in steps for word in re.findall(r"\w+\.\w+", str(step))}
    for name in ("report.html", "report.json", "gates.xml"):
        assert name in wanted and (folder / name).is_file()
    assert "| Churn |" in (folder / "summary.md").read_text()
    cases = ElementTree.parse(folder / "gates.xml").findall(".//testcase")
    assert len(cases) == 6


def test_the_summary_of_a_job_needs_one(files, monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert compare(files, "--github") == 2
    assert "--github needs $GITHUB_STEP_SUMMARY" in capsys.readouterr().err
    summary = files / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert compare(files, "--github", "--max-churn", "99%") == 0
    text = summary.read_text()
    assert text.startswith("before\n###") and "PASS" in text


def test_a_file_that_cannot_be_written_keeps_nothing_else_from_it(files, capsys):
    report = files / "report.json"
    where = ["--html", str(files / "old.npy" / "a.html"), "--json", str(report)]
    assert compare(files, *where) == 2 and report.is_file()
    out, err = capsys.readouterr()
    assert "were right and are wrong now" in out and "old.npy" in err


def outcomes_script(name, monkeypatch, **constants):
    """A script of the worked cases, with smaller constants."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(name)
    for constant, value in constants.items():
        monkeypatch.setattr(module, constant, value)
    return module


@pytest.mark.slow
def test_answers_of_a_language_model_end_to_end(tmp_path, monkeypatch, capsys):
    few = {"STEPS": 2, "TEXTS": 8, "SAMPLES": 2, "LENGTH": 5, "WIDTH": 8}
    script = outcomes_script("language_model", monkeypatch, **few)
    rng = np.random.default_rng(0)
    arrays = {}
    for of in ("train", "test"):
        arrays[f"{of}_tokens"] = rng.integers(1, 3000, (20, 5))
        arrays[f"{of}_labels"] = np.arange(20) % 4
    np.savez(tmp_path / "tokens.npz", **arrays)
    script.write_answers(str(tmp_path / "tokens.npz"), tmp_path)
    paths = (tmp_path / f"{n}.jsonl" for n in ("old", "new", "bfloat16", "batch_50"))
    old, new, half, batches = (
        [json.loads(line)["answer"] for line in path.read_text().splitlines()]
        for path in paths
    )
    assert [len(rows) for rows in (old, new, half, batches)] == [16] * 4
    assert old != new and old == batches
    sides = [str(tmp_path / f"{name}.jsonl") for name in ("old", "new")]
    assert main(["compare", *sides, "--by", "topic"]) == 0
    assert "8 examples; answer, 2 and 2 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_days_of_two_regressions_end_to_end(tmp_path, monkeypatch, capsys):
    script = outcomes_script("regression", monkeypatch, TESTED=100)
    rng, rows = np.random.default_rng(0), 400
    names = (*script.NUMBERS, *script.KINDS)
    table = {name: rng.integers(0, 5, rows) for name in names}
    table["encounter_id"] = rng.permutation(rows)
    table["patient_nbr"] = np.arange(rows) // 2
    table["time_in_hospital"] = 1 + table["num_procedures"] + rng.integers(0, 3, rows)
    lines = [",".join(map(str, row)) for row in (table, *zip(*table.values()))]
    with zipfile.ZipFile(tmp_path / "stays.zip", "w") as archive:
        archive.writestr("some/diabetic_data.csv", "\n".join(lines))
    script.write_days(tmp_path / "stays.zip", tmp_path)
    sides = [str(tmp_path / f"{name}.csv") for name in ("old", "new")]
    options = ["--tolerance", "1", "--cluster", "patient_nbr", "--by", "age"]
    assert main(["compare", *sides, *options]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "100 examples in" in said and "The mean error" in said


def test_the_example_of_a_test_passes_and_can_fail(digits, monkeypatch):
    names = runpy.run_path(str(EXAMPLES / "test_update.py"))
    example = names["test_the_new_model_may_replace_the_old_one"]
    monkeypatch.chdir(digits.parent)
    example()
    monkeypatch.setitem(
        example.__globals__,
        "assert_compatible",
        lambda old, new, **limits: assert_compatible(new, old, **limits),
    )
    with pytest.raises(AssertionError, match="FAIL  negative flip rate at most 2 %"):
        example()  # the other way round


def test_columns_kinds_and_class_maps_are_options(tmp_path, capsys):
    for name, rows in (
        ("old", "key,truth,said 7,cat,cat 8,dog,cat 9,dog,dog"),
        ("new", "key,truth,said 9,hound,hound 7,cat,cat 8,hound,hound"),
        ("map", "old,new cat,cat dog,hound"),
    ):
        (tmp_path / f"{name}.csv").write_text(rows.replace(" ", "\n"))
    sides = [str(tmp_path / "old.csv"), str(tmp_path / "new.csv")]
    columns = ["--id-column", "key", "--label-column", "truth"]
    columns += ["--prediction-column", "said"]
    mapped = ["--class-map", str(tmp_path / "map.csv"), "--kind", "classes"]
    report = tmp_path / "report.json"
    written = ["--json", str(report)]
    assert main(["compare", *sides, *columns, *mapped, *written]) == 0
    found = json.loads(report.read_text())["quantities"]
    assert found["churn"]["value"] == found["positive_flip_rate"]["value"] == 1 / 3
    assert found["negative_flip_rate"]["value"] == 0
    capsys.readouterr()
    assert main(["compare", *sides, *written]) == 2
    assert "old.csv" in capsys.readouterr().err


def test_a_folder_of_versions_is_compared(files, capsys):
    folder = files / "versions"
    folder.mkdir()
    labels = np.arange(20) % 4
    np.save(folder / "labels.npy", labels)
    for name, wrong in (("v2", 2), ("v10", 4), ("v1", 6)):
        classes = labels.copy()
        classes[:wrong] = 3 - classes[:wrong]
        np.save(folder / f"{name}.npy", classes)
    words = [str(folder), "--html", str(files / "v.html")]
    words += ["--json", str(files / "v.json"), "--markdown", str(files / "v.md")]
    assert main(["compare", *words, "--max-nfr", "5%"]) == 1
    assert main(["compare", *words, "--max-nfr", "5%", "--order", "v1", "v2"]) == 0
    again = ["compare", str(folder), "--json", str(folder / "v.json")]
    assert main(again) == main(again) == 0  # over its own report
    assert (files / "v.html").is_file() and "v1" in (files / "v.md").read_text()
    capsys.readouterr()
