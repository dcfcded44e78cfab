"""Compares every kind of input by `churn-compare`, in a temporary folder.

`check.py` runs it in an empty environment where the wheel is installed. The same flips
must be found in whatever form they come.
"""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import churn_compare
from churn_compare.cli import main as compare
from churn_compare.store import Predictions, ShardWriter, save_predictions, write_index

N = 60
WRONG = {"old": range(0, 12), "new": range(6, 21)}  # 9 of 60 get worse, 6 better
LABELS = np.arange(N) % 3
FOUND = "15 %"  # the negative flips, in the first lines of each report


def right(version: str) -> np.ndarray:
    """Which examples a version gets right."""
    return ~np.isin(np.arange(N), WRONG[version])


def scores(version: str) -> np.ndarray:
    """Logits `[N, 3]`."""
    predicted = (LABELS + ~right(version)) % 3
    return np.where(np.arange(3) == predicted[:, None], 2.0, 0.25).astype(np.float32)


def write_table(name: str, table: pa.Table) -> None:
    """A table as `.csv`, `.csv.gz`, `.parquet` or `.jsonl`, by its name."""
    if name.endswith(".parquet"):
        pa.parquet.write_table(table, name)
    elif name.endswith(".jsonl"):
        write_lines(name, table.to_pylist())
    else:
        with (
            pa.CompressedOutputStream(name, "gzip")
            if name.endswith(".gz")
            else open(name, "wb") as file
        ):
            pa.csv.write_csv(table, file)


def write_lines(name: str, rows: list) -> None:
    """JSON lines."""
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_classes(version: str) -> list[str]:
    """A file of classes or scores of each kind; their names after the version."""
    ids = [f"e{i}" for i in range(N)]
    logits = scores(version)
    table = pa.table({"id": ids, "label": LABELS})
    classes = table.append_column("prediction", pa.array(logits.argmax(axis=1)))
    for c in range(3):
        table = table.append_column(f"logit_{c}", pa.array(logits[:, c]))
    endings = (".csv", ".csv.gz", ".parquet", ".jsonl")
    for ending in endings:
        write_table(f"{version}_classes{ending}", classes)
        write_table(f"{version}_scores{ending}", table)
    np.save(f"{version}.npy", logits)
    runs = np.stack([logits, logits])
    found = Predictions(np.array(ids), LABELS, runs, {})
    save_predictions(f"{version}.npz", found)
    with ShardWriter(f"{version}_shards", 0, 1, ids, LABELS, 2, 3) as writer:
        writer.write(runs)
    write_index(f"{version}_shards", 1)
    Path("versions").mkdir(exist_ok=True)
    write_table(f"versions/{version}.csv", classes)
    return [
        f"_{what}{ending}" for what in ("classes", "scores") for ending in endings
    ] + [".npz", "_shards"]


def write_outcomes(version: str) -> list[str]:
    """A file of each kind of outcome and log."""
    correct, ids = right(version), list(range(100, 100 + N))
    kinds = {
        "correct": {"correct": correct.tolist()},
        "score": {"score": (correct * 2.5).tolist()},
        "answer": {
            "answer": [f"a{i % 7}" if of else "wrong" for i, of in enumerate(correct)],
            "target": [f"a{i % 7}" for i in range(N)],
        },
        "value": {"value": (~correct * 1.5).tolist(), "target": [0.0] * N},
        "set": {
            "set": [["a", "b"] if of else ["a", "c"] for of in correct],
            "target": [["a", "b"]] * N,
        },
        "ranking": {
            "ranking": [["a", "b", "c"] if of else ["c", "a", "b"] for of in correct],
            "target": [["a", "b", "c"]] * N,
        },
    }
    names = []
    for kind, columns in kinds.items():
        for ending in (".jsonl", ".parquet", ".csv"):
            if ending == ".csv" and kind in ("set", "ranking"):
                continue
            names.append(f"_{kind}{ending}")
            write_table(f"{version}{names[-1]}", pa.table({"id": ids, **columns}))
    write_lines(
        f"{version}_harness.jsonl",
        [
            {
                "doc_id": i,
                "doc": {},
                "target": "a",
                "filter": "none",
                "resps": [["a"]],
                "filtered_resps": ["a" if of else "b"],
                "doc_hash": f"{i:x}",
                "acc": float(of),
            }
            for i, of in enumerate(correct)
        ],
    )
    samples = [
        {
            "id": i,
            "epoch": 1,
            "input": "?",
            "target": "a",
            "scores": {"match": {"value": "C" if of else "I", "answer": "a"}},
        }
        for i, of in enumerate(correct)
    ]
    log = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}
    Path(f"{version}_inspect.json").write_text(json.dumps(log | {"samples": samples}))
    with zipfile.ZipFile(f"{version}_inspect.eval", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(log))
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_1.json"
            file.writestr(name, json.dumps(sample))
    return [*names, "_harness.jsonl", "_inspect.json", "_inspect.eval"]


def run(*words: str) -> str:
    """The command's output; raises where it fails."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = compare(words)
    assert code == 0, f"{' '.join(words)}: exit code {code}\n{out.getvalue()}"
    return " ".join(out.getvalue().split())


FIXTURE = """
def test_update(model_update):
    model_update("old_classes.csv", "new_scores.parquet", max_nfr="15%")
"""


def main() -> None:
    """Writes the inputs and compares them."""
    for write in (write_classes, write_outcomes):
        names, _ = (write(version) for version in WRONG)
        for name in names:
            said = run(f"old{name}", f"new{name}", "--html", "page.html")
            assert FOUND in said, f"{name}: {said}"
            if name == ".npz":  # a figure by Matplotlib, or a table in its place
                drawn = importlib.util.find_spec("matplotlib") is not None
                assert ("<svg" in Path("page.html").read_text()) == drawn
    with open("labels.csv", "w") as file:
        file.write("label\n" + "".join(f"{of}\n" for of in LABELS))
    said = run("old.npy", "new.npy", "--kind", "logits", "--labels", "labels.csv")
    assert FOUND in said, said
    for name in ("_correct.jsonl", "_classes.csv", "_inspect.eval"):
        said = run("--noise", f"old{name}", f"new{name}")
        assert "25" in said, said  # per cent of examples on which the two differ
    assert FOUND in run("versions", "--json", "page.json")
    found = churn_compare.compare_outcomes(
        {"correct": right("old")}, {"correct": right("new")}
    )
    assert found["correct"]["negative_flip_rate"].value == 0.15
    for name in churn_compare.__all__:
        getattr(churn_compare, name)
    if "--pytest" in sys.argv:
        import pytest

        Path("conftest.py").write_text(
            'pytest_plugins = ["churn_compare.pytest_plugin"]'
        )
        Path("test_update.py").write_text(FIXTURE)
        assert pytest.main(["-q", "-W", "error", "--junit-xml=found.xml"]) == 0
        assert "negative flip rate at most 15" in Path("found.xml").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main()
