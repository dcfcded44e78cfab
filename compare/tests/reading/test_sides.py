"""Predictions in every form that is read: the same numbers, or one clear sentence."""

import gzip
import json
import pathlib
import re

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from churn_compare import array_files, compare
from churn_compare.reading.outcomes import read_outcomes
from churn_compare.reading.sides import read_side
from churn_compare.store import Predictions, PredictionsError, save_predictions
from tests.cases import fails
from tests.reading.sides import Frame

N, C = 12, 3
IDS = np.arange(N) * 7 + 3
LABELS = np.arange(N) % C
LOGITS = np.random.default_rng(0).normal(size=(N, C)) - 3000.0  # as log-likelihoods
PROBS = np.exp(LOGITS + 3000) / np.exp(LOGITS + 3000).sum(1, keepdims=True)
OWN = {"ids": IDS, "labels": LABELS, "logits": LOGITS}


def _write(path, columns):
    """A table in Parquet, in lines or in delimited text, by the name of the file."""
    lists = (np.asarray(column).tolist() for column in columns.values())
    rows = list(zip(*lists, strict=True))
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=5)
    elif ".json" in path.name:
        lines = (json.dumps(dict(zip(columns, row))) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        lines = (",".join(map(str, line)) for line in (columns, *rows))
        _json(path, "".join(f"{line}\n" for line in lines))
    return path


def _columns(values, prefix, names=range(C), **more):
    scores = {f"{prefix}{name}": values[:, i] for i, name in enumerate(names)}
    return {"id": IDS, "label": LABELS, **scores, **more}


def _npy(path, array):
    np.save(path, array)
    return path


def _npz(path, savez=np.savez, **arrays):
    savez(path, **arrays)
    return path


def _folder(folder):
    predictions = Predictions(IDS, LABELS, LOGITS[None], {"method": "erm"})
    save_predictions(folder / "predictions.npz", predictions)
    return folder


def _text(path, delimiter, decimal=".", encoding="utf-8", start=""):
    columns = _columns(LOGITS, "logit_")
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    text = "\n".join(delimiter.join(map(str, line)) for line in lines) + "\n"
    return _json(path, start + text.replace(".", decimal), encoding)


def _json(path, written, encoding="utf-8"):
    content = written.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _quoted(path):
    return re.sub(r"[^,\n]+", r"'\g<0>'", path.read_text())


def _arrow(path, writer):
    table = pa.table(_columns(LOGITS, "logit_"))
    with pa.OSFile(str(path), "wb") as file, writer(file, table.schema) as to:
        to.write_table(table)
    return path


RECORDS = pa.table(_columns(LOGITS, "logit_")).to_pylist()
LINES = "\n".join(map(json.dumps, RECORDS))
IN_COLUMNS = {n: {str(i): row[n] for i, row in enumerate(RECORDS)} for n in RECORDS[0]}
SPLIT = {"columns": [*RECORDS[0]], "index": [*range(N)]}
SPLIT["data"] = [[*row.values()] for row in RECORDS]
ZIPPED = {"savez": np.savez_compressed, "id": IDS, "y_true": LABELS}
FIELDS = [("id", int), ("target", int), ("logits", float, C)]
LISTS = {"id": IDS, "target": LABELS, "logits": list(LOGITS)}
ROWS = np.array([*zip(*LISTS.values())], FIELDS)
FIXED = {"logits": pa.FixedSizeListArray.from_arrays(pa.array(LOGITS.reshape(-1)), C)}
WITH_IDS = {  # what to give to `read_side`, written into a folder
    "npz": lambda d: _npz(d / "p.npz", **OWN),
    "npz compressed": lambda d: _npz(d / "p.npz", **ZIPPED, probs=PROBS),
    "our own": _folder,
    "csv": lambda d: _write(d / "p.csv", _columns(LOGITS, "logit_")),
    "csv.gz": lambda d: _write(d / "p.csv.gz", _columns(PROBS, "p_")),
    "parquet columns": lambda d: _write(d / "p.parquet", _columns(PROBS, "prob_")),
    "parquet lists": lambda d: _write(d / "p.parquet", LISTS),
    "tabs": lambda d: _text(d / "p.tsv", "\t"),
    "tabs in csv": lambda d: _text(d / "p.csv.gz", "\t"),
    "semicolons": lambda d: _text(d / "p.csv", ";"),
    "decimal commas": lambda d: _text(d / "p.csv", ";", ","),
    "excel": lambda d: _text(d / "p.csv", ";", ",", "utf-8-sig", "sep=;\n"),
    "utf-16": lambda d: _text(d / "p.csv", "\t", ",", "utf-16"),
    "bars": lambda d: _text(d / "p.csv", "|"),
    "savetxt": lambda d: _text(d / "p.csv", ",", start="# "),
    "jsonl.gz": lambda d: _json(d / "p.jsonl.gz", LINES),
    "ndjson": lambda d: _json(d / "p.ndjson", LINES, "utf-16"),
    "json of lines": lambda d: _json(d / "p.json", LINES),
    "json of records": lambda d: _json(d / "p.json", json.dumps(RECORDS)),
    "json of columns": lambda d: _json(d / "p.json", json.dumps(IN_COLUMNS)),
    "json split": lambda d: _json(d / "p.json.gz", json.dumps(SPLIT)),
    "feather": lambda d: _arrow(d / "p.feather", pa.ipc.new_file),
    "arrow": lambda d: _arrow(d / "p.arrow", pa.ipc.new_stream),
    "comments": lambda d: _text(d / "p.csv", ",", start="# v1\n#\n# a, b\n"),
    "single quotes": lambda d: _json(d / "p.csv", _quoted(_text(d / "a.csv", ","))),
    "packed csv": lambda d: _text(d / "p.csv.gz", ",").rename(d / "p.csv"),
    "packed lines": lambda d: _json(d / "p.json.gz", LINES).rename(d / "p.jsonl"),
    "not packed": lambda d: _text(d / "p.csv", ",").rename(d / "p.csv.gz"),
    "array in lines": lambda d: _json(d / "p.jsonl", json.dumps(RECORDS)),
    "indented": lambda d: _json(d / "p.jsonl", json.dumps(RECORDS, indent=1)),
    "objects": lambda d: _json(d / "p.jsonl", LINES.replace(", ", ",\n")),
    "structured": lambda d: _npy(d / "p.npy", ROWS),
    "mapping": lambda d: OWN,
    "mapping of columns": lambda d: _columns(LOGITS, "logit_"),
    "arrow table": lambda d: pa.table(_columns(LOGITS, "logit_")),
    "jsonl": lambda d: _write(d / "p.jsonl", _columns(LOGITS, "logit_")),
    "jsonl lists": lambda d: _write(d / "p.jsonl", LISTS),
    "frame": lambda d: Frame(_columns(LOGITS, "logit_")),
    "frame of lists": lambda d: Frame({"id": IDS, "label": LABELS, "logits": LOGITS}),
}
WITHOUT_IDS = {
    "npy": lambda d: _npy(d / "p.npy", LOGITS),
    "npy runs": lambda d: _npy(d / "p.npy", LOGITS[None]),
    "npy fortran": lambda d: _npy(d / "p.npy", np.asfortranarray(LOGITS)),
    "parquet fixed lists": lambda d: _write(d / "p.parquet", FIXED),
    "array": lambda d: PROBS.tolist(),
}


@pytest.mark.parametrize("form", [*WITH_IDS, *WITHOUT_IDS])
def test_every_form_gives_the_same_predictions(form, tmp_path):
    given = {**WITH_IDS, **WITHOUT_IDS}[form](tmp_path)
    side = read_side(given)
    probabilities = form in ("npz compressed", "csv.gz", "parquet columns", "array")
    assert side.kind == ("probabilities" if probabilities else "logits")
    assert (side.runs, side.class_names) == ((0,), None)
    wanted = PROBS if probabilities else LOGITS
    if form == "our own":  # of float32, the only form that is rounded
        wanted = wanted.astype(np.float32)
    np.testing.assert_array_equal(side.values, [wanted])
    if form in WITH_IDS:
        np.testing.assert_array_equal(side.ids, IDS)
        np.testing.assert_array_equal(side.labels, LABELS)
        assert not side.notes  # nothing had to be assumed
    if isinstance(given, pathlib.Path):
        assert side.name == given.name


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ">f4"])
def test_npy_keeps_its_type_and_is_mapped(dtype, tmp_path):
    side = read_side(_npy(tmp_path / "p.npy", LOGITS.astype(dtype)))
    assert side.values.dtype == np.dtype(dtype)
    assert isinstance(side.values, np.memmap)
    np.testing.assert_array_equal(side.values[0], LOGITS.astype(dtype))


def test_runs_that_stopped_are_left_out(tmp_path, monkeypatch):
    runs = np.stack([LOGITS, LOGITS + 1, LOGITS * np.nan]).astype(np.float32)
    predictions = Predictions(IDS, LABELS, runs, {"stopped": [{"replica": 2}]})
    save_predictions(tmp_path / "p.npz", predictions)
    for given in (tmp_path / "p.npz", predictions):
        side = read_side(given, "v1")
        assert side.runs == (0, 1)
        np.testing.assert_array_equal(side.values, runs[:2])
        assert side.notes == ("v1: runs that stopped early are left out: 2.",)
    monkeypatch.setattr(array_files, "_MAPPED_BYTES", 1)
    stored = read_side(tmp_path / "p.npz").values
    assert isinstance(stored.parts[0], np.memmap)  # and none of it is read
    np.testing.assert_array_equal(stored, runs[:2])


def test_runs_in_a_column_become_an_axis(rng, tmp_path):
    runs = np.stack([LOGITS, LOGITS * 2])
    rows = rng.permutation(2 * N)  # of run r, example i: r N + i
    columns = {
        "run": np.repeat([3, 8], N)[rows],
        "id": np.tile(IDS, 2)[rows],
        "label": np.array(["cat", "dog", "cow"])[np.tile(LABELS, 2)[rows]],
        **{f"logit_{c}": runs.reshape(-1, C)[rows, c] for c in range(C)},
    }
    side = read_side(_write(tmp_path / "p.csv", columns))
    assert side.runs == (3, 8)
    np.testing.assert_array_equal(side.ids, IDS)
    np.testing.assert_array_equal(side.values, runs)
    assert side.label_names == ("cat", "cow", "dog")
    assert [side.label_names[c] for c in side.labels[:3]] == ["cat", "dog", "cow"]
    floats = columns | {"run": columns["run"].astype(float)}
    assert read_side(pa.table(floats)).runs == (3, 8)
    several = {name: columns[name] for name in ("run", "id", "label")}
    side = read_side(several | {"prediction": columns["label"]})  # arrays as columns
    assert side.runs == (3, 8) and side.values.shape == (2, N)
    columns["id"][0] = 999
    fails("as many rows as runs", read_side, _write(tmp_path / "p.csv", columns))


@pytest.mark.parametrize("shape", [(N,), (2, N)])
def test_integers_and_strings_are_predicted_classes(shape, rng, tmp_path):
    classes = rng.integers(0, C, shape)
    side = read_side(_npy(tmp_path / "p.npy", classes))
    assert (side.kind, side.class_names) == ("classes", None)
    np.testing.assert_array_equal(side.values, classes.reshape(-1, N))
    names = np.array(["b", "a", "c"])[classes]
    side = read_side(_npz(tmp_path / "p.npz", y_pred=names))
    assert side.class_names == ("a", "b", "c")
    said = np.array(side.class_names)[side.values]
    np.testing.assert_array_equal(said, names.reshape(-1, N))


P, Y, THREE = [0, 1, 1, 0], [0, 1, 0, 0], ["a", "b", "a", "b"]
HALF, SURE = [0.5, 0.5, 0.5, 0.5], [0.9, 0.8, 0.7, 0.6]
SHARES = np.stack([HALF, HALF], axis=1)
DENSE = [{"type": 1, "size": None, "indices": None, "values": [0.2, 0.8]}] * 4
SPARSE = [{"type": 0, "size": 2, "indices": [1], "values": [1.0]}] * 4
FLOATS, ADJ, IDS_4 = [0.0, 1.0, 1.0, 0.0], [0.96] * 4, [7, 8, 9, 6]
STACKED, SEEDS, UNSURE = [0, 0, 1, 1], [1, 2, 1, 2], ["0", "?", "1", "?"]
VIEWS = pa.array(list("abcd"), pa.string_view())
PRINTED = ["[0.2 0.8]", "[.3, .7]", "[1,0]", "array([1,0])"]
ROLES = """
class=Y pred=P | label (column class), prediction (column pred)
label=Y class=P | label, prediction (column class)
Y~Hat=P ~y~=Y | label (column  y ), prediction (column Y Hat)
output=P gold=Y | label (column gold), prediction (column output)
predict=P p0=HALF | prediction (column predict); left out: p0
target=P --prediction_column=target | prediction (column target)
pred=P yhat=Y --prediction_column=yhat | prediction (column yhat); left out: pred
prediction=P prob_0=HALF prob_1=HALF | decision (column prediction), \
probabilities of 2 classes
prediction=P prob_0=HALF prob_1=HALF --kind=classes | prediction; \
left out: prob_0, prob_1
prediction=P prob_0=HALF prob_1=HALF --kind=probabilities | \
probabilities of 2 classes; left out: prediction
class=P prob_0=HALF prob_1=HALF --prediction_column=class | \
decision (column class), probabilities of 2 classes
class=Y prob_0=HALF prob_1=HALF --label_column=class | \
label (column class), probabilities of 2 classes
prediction=P p_value=ADJ p_adj=SURE | prediction; left out: \
p_value (not probabilities of the classes), p_adj (not probabilities of the classes)
prediction=P p_5=SURE p_name=THREE | prediction; left out: \
p_5 (not probabilities of the classes), p_name (not probabilities of the classes)
prediction=THREE p_a=HALF p_b=HALF | decision (column prediction), \
probabilities of 2 classes
logit_0=P logit_1=Y p_0=HALF p_1=HALF | logits of 2 classes; left out: p_0, p_1
logit_0=P logit_1=Y p_0=HALF p_1=HALF --kind=probabilities | \
probabilities of 2 classes; left out: logit_0, logit_1
prediction=P probability=SURE | prediction; left out: \
probability (one number per example)
prediction=P prob_1=SURE | prediction; left out: prob_1 (scores of one class)
label=THREE score=SURE | prediction (column label); left out: score (its confidence)
y_true=Y y_pred=P y_prob=SURE --kind=probabilities --prediction_column=y_pred | \
label (column y_true), decision (column y_pred), probabilities of 2 classes \
(column y_prob)
label=THREE class=THREE score=SURE | label, prediction (column class); left out: score
class=THREE score=SURE | prediction (column class); left out: score (its confidence)
label=Y score=SURE --kind=probabilities --prediction_column=score | label, \
probabilities of 2 classes (column score)
"""
ROLES_OF_ARROW = """
prediction=FLOATS probability=DENSE | decision (column prediction), \
probabilities of 2 classes (column probability)
prediction=P probability=SPARSE | prediction; left out: probability (sparse vectors)
prediction=LISTED | probabilities of 2 classes (column prediction)
prediction=P probs=PRINTED | decision (column prediction), \
probabilities of 2 classes (column probs)
id=STACKED seed=SEEDS pred=P | id, prediction (column pred), run (column seed)
id=IDS_4 seed=SEEDS pred=P | id, prediction (column pred); left out: seed
id=VIEWS class=P | id, prediction (column class)
"""
ROLES_OF_ARRAYS = """
predictions=WIDE label_ids=Y | label (array label_ids), \
logits of 2 classes (array predictions)
logits=SHARES preds=P meta=META | decision (array preds), logits of 2 classes
probs=SURE y_pred=P | prediction (array y_pred); left out: \
probs (one number per example)
"""
LISTED, WIDE, META = [*SHARES], SHARES * 9, "{}"


def _roles(text):
    """Columns, options and what is read."""
    for line in text.strip().splitlines():
        given, read = line.split(" | ")
        parts = [part.partition("=")[::2] for part in given.split()]
        options = {name[2:]: of for name, of in parts if name.startswith("--")}
        columns = {n.replace("~", " "): of for n, of in parts if n[2:] not in options}
        yield {name: globals()[of] for name, of in columns.items()}, options, read


@pytest.mark.parametrize(("columns", "options", "read"), [*_roles(ROLES)])
def test_columns_have_one_role_each_by_their_names(columns, options, read, tmp_path):
    for given in (*_tables(tmp_path, columns), columns):
        said = read_side(given, **options).account.text()
        expected = read if given is not columns else said and read
        assert said.replace("(array", "(column") == f"read: {expected}"


@pytest.mark.parametrize(
    ("given", "options", "read"),
    [(pa.table(of), *more) for of, *more in _roles(ROLES_OF_ARROW)]
    + [*_roles(ROLES_OF_ARRAYS)],
)
def test_vectors_and_arrays_have_their_roles_too(given, options, read):
    assert read_side(given, **options).account.text() == f"read: {read}"


UNCLEAR = """
pred=P output=P | pred and output could be the prediction column; --prediction-col
label=Y class=Y pred=P | label and class could be the label column; --label-column
class=P prob_0=HALF prob_1=HALF | --label-column class or --prediction-column class says
id=P example_id=P pred=P | id and example_id could be the id column; --id-column
label=Y score=SURE | --kind probabilities --prediction-column score takes it
y_true=Y score=SURE | what column score next to y_true is
Class=Y score=SURE | what column score next to Class is
id=IDS_4 reward=Y | it has id, reward; --prediction-column names .* --score-column
prediction=SURE prob_0=HALF prob_1=HALF | must be whole .* compares the scores alone
prediction=UNSURE prob_0=HALF prob_1=HALF | decisions of 2 of 4 examples are of no class
x=Y x_pred=P | it has x, x_pred; --prediction-column names .* --label-column the right
id=P p_a=SURE p_b=SURE | p_a, p_b are not probabilities
"""


@pytest.mark.parametrize(("columns", "options", "message"), [*_roles(UNCLEAR)])
def test_what_may_have_two_meanings_is_refused(columns, options, message, tmp_path):
    for path in _tables(tmp_path, columns):
        fails(message, read_side, path)


def test_decisions_are_numbers_of_the_classes_with_scores():
    scores = {"logits": np.zeros((2, 3, 2)), "class_names": ["no", "yes"]}
    numbers = np.array([[1, 0, 0], [0, 0, 1]])
    for decided in (np.array(["no", "yes"])[numbers], numbers, numbers == 1):
        side = read_side(scores | {"predictions": decided})
        np.testing.assert_array_equal(side.decisions, numbers)
    for decided, message in (
        ([0, 1, 0], r"shape \(3,\) and scores .* \(2, 3, 2\)"),
        ([[0.1, 0.9, 0.2]] * 2, "must be whole numbers .* compares the scores alone"),
    ):
        fails(message, read_side, scores | {"predictions": np.array(decided)})


def _tables(folder, columns):
    """The same table as it is read from CSV and from Parquet."""
    return _write(folder / "p.csv", columns), _write(folder / "p.parquet", columns)


def test_a_table_of_classes_without_prefix_is_read_if_the_kind_is_said(tmp_path):
    scores = dict(zip(("cat", "dog", "cow"), PROBS.T, strict=True))
    path = _write(tmp_path / "p.csv", {"example": IDS, "y": LABELS, **scores})
    names = {"id_column": "example", "label_column": "y"}
    side = read_side(path, kind="probabilities", **names)
    assert side.class_names == ("cat", "dog", "cow")
    np.testing.assert_array_equal(side.values[0], PROBS)
    np.testing.assert_array_equal(side.ids, IDS)
    assert "of 3 classes are all other columns: cat, dog, cow." in side.notes[0]
    fails("no column logit_<class>, prob_", read_side, path)


def test_one_score_per_example_is_of_the_second_class_and_needs_its_kind(tmp_path):
    one = PROBS[:, 1]
    side = read_side({"prob": one}, "v1")
    assert side.kind == "probabilities"
    np.testing.assert_allclose(side.values[0, :, 1], one)
    np.testing.assert_allclose(side.values[0].sum(axis=1), 1, rtol=1e-6)
    side = read_side(PROBS[:, 1:2], kind="logits")
    np.testing.assert_array_equal(side.values[0, :, 0], 0)
    fails("one score per example; say by", read_side, one)
    for path in _tables(tmp_path, {"id": IDS, "prediction": one}):
        for kind in (None, "classes"):
            fails("12 of 12 are not", read_side, path, kind=kind)
        for kind in ("logits", "probabilities"):
            side = read_side(path, kind=kind)
            assert side.kind == kind
            np.testing.assert_array_equal(side.values[0, :, 1], one)
            assert "for the " + kind + " of class 1 of two" in side.notes[0]


def test_one_score_decides_in_its_own_precision(tmp_path):
    near = [0.50000001, 0.49999999]
    path = _write(tmp_path / "p.csv", {"id": [1, 2], "prob": near})
    for given in (path, {"prob": near}, pa.table({"prob": near})):
        side = read_side(given, kind="probabilities")
        assert side.values[0].argmax(axis=1).tolist() == [1, 0]
    large = read_side(np.array([[2**24, 2**24 + 1]]), kind="logits")
    assert large.values[0].argmax(axis=1).tolist() == [1]


def test_booleans_and_views_of_strings_are_the_same_in_every_form(tmp_path):
    truth = np.arange(N) % 5 == 0
    for given in (*_tables(tmp_path, {"y_pred": truth}), {"y_pred": truth.tolist()}):
        side = read_side(given)
        assert side.class_names == ("False", "True")
        np.testing.assert_array_equal(side.values[0], truth)
    side = read_side({"prediction": ["true", "true"], "label": [1, 0]})
    np.testing.assert_array_equal(side.values, [[1, 1]])
    pq.write_table(pa.table({"id": VIEWS, "class": P}), tmp_path / "a.parquet")
    assert read_side(tmp_path / "a.parquet").ids.tolist() == list("abcd")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_header_longer_than_a_block_is_read(tmp_path, ending):
    names = [f"logit_{c:02000}" for c in range(600)]  # 1.2 MB
    rows = [f"{i}," + ",".join(["0"] * i + ["1"] + ["0"] * (599 - i)) for i in (0, 7)]
    path = tmp_path / f"a{ending}"
    with (gzip.open if ending == ".csv.gz" else open)(path, "wt") as file:
        file.write("\n".join([",".join(["id", *names]), *rows]))
    assert read_side(path).values.argmax(axis=-1).tolist() == [[0, 7]]


def test_what_is_assumed_is_said():
    said = "v1: scores are taken for probabilities: rows are at least 0 and sum to one."
    assert read_side(PROBS, "v1").notes == (said,)
    some_wrong = PROBS * np.where(np.arange(N) < 3, 2, 1)[:, None]
    assert {read_side(of).kind for of in (LOGITS, PROBS * 70)} == {"logits"}
    for values in (PROBS * 100, some_wrong):  # the first is refused in the pass
        assert read_side(values).kind == "probabilities"
    assert read_side(PROBS, kind="logits").kind == "logits"
    fails(r"12 of 12 rows .* do not sum to one", read_side, PROBS / 2)
    note = "v1: scores are taken for logits: no row that was looked at is finite."
    assert read_side(PROBS * np.nan, "v1").notes == (note,)
    spoiled = PROBS.copy()
    spoiled.view(np.uint32)[0, 0] = 0x7F800001  # a NaN that NumPy warns of
    assert read_side(spoiled).kind == "probabilities"


def test_tensors_of_other_frameworks_are_arrays():
    class Tensor:  # the part of a PyTorch tensor that is used
        dtype, requires_grad = "torch.float32", True

        def detach(self):
            self.requires_grad = False
            return self

        def cpu(self):
            return self

        def __array__(self, dtype=None, copy=None):
            assert not self.requires_grad
            return LOGITS

    np.testing.assert_array_equal(read_side(Tensor()).values[0], LOGITS)
    side = read_side({"logits": LOGITS.astype(ml_dtypes.bfloat16), "label": LABELS})
    assert side.values.dtype.name == "bfloat16"


def test_separate_ids_are_for_sides_without_ids(tmp_path):
    path, ids = _npy(tmp_path / "p.npy", LOGITS), _npy(tmp_path / "ids.npy", IDS)
    np.testing.assert_array_equal(read_side(path, ids=ids).ids, IDS)
    names = _write(tmp_path / "ids.csv", {"name": [f"{i:03}.png" for i in IDS]})
    assert read_side(path, ids=names).ids[0] == "003.png"
    own = read_side({"logits": LOGITS, "ids": IDS + 1}, ids=ids)
    np.testing.assert_array_equal(own.ids, IDS + 1)
    used = compare({"logits": LOGITS}, {"logits": LOGITS, "ids": IDS}, ids=ids)
    assert used["churn"].value == 0
    for given in (ids, IDS, [1, 2]):
        fails("have ids of their own; leave the separate", compare, own, own, ids=given)
    fails("are of 2 examples, the pred", read_side, path, ids=[1, 2])


TEXTS = {  # a file and its text
    ("a.csv", ""): "the file is empty",
    ("a.txt", "1 2"): "files of this kind are not read",
    ("a.npy", "hello"): "it is not a NumPy .npy file",
    ("a.npz", "hello"): "it is not a NumPy .npz archive",
    ("a.parquet", "hello you"): "cannot be read, ",
    ("a.csv", "id,p_0,p_1"): "it has no rows: its only line has the names of columns",
    ("a.csv", "p_0,p_1\n1,x\n"): "column p_1 must hold .* an invalid value 'x'$",
    ("a.csv", "p_0,p_1\n1\n"): "Expected 2 columns, got 1",
    ("a.csv", "p_0,p_0\n1,0\n"): "more than once",
    ("a.csv", "p_0,p_2\n1,0\n"): "class numbers 0 to 1",
    ("a.csv", "prob_0,x\n1,0\n"): "scores of one class",
    ("a.csv", "y_true,label,p_0,p_1\n1,1,1,0\n"): "could be the label column",
    ("a.csv", "0.1,0.9\n0.8,0.2\n"): "must be names of columns, .* the number 0.1",
    ("a.csv", "2\n0\n1\n"): "here it has the number 2",
    ("a.csv", "id,prediction\n1,0\nid,prediction\n2,1\n"): "stands in line 3 again",
    ("a.csv", "sep=;\nid;pred\n1;0\nid;pred\n"): "stands in line 4 again",
    ("a.csv", "id;a,b\n1;0,5\n"): "not clear whether commas or semicolons separate",
    ("a.csv", "id;p_0;p_1\n1;0,5;0.5\n"): "invalid value '0.5'",
    ("a.csv", "label,pred\n,1\n,0\n"): "2 of 2 .*; leave the column out, or name",
    ("a.json", "{}}"): "is not JSON|not a table",
    ("a.json", '[{"id": 1, "pred": 2, "pred": 0}]'): "it has the key 'pred' twice",
    ("a.json", '{"columns": ["x", "x"], "data": [[1, 2]]}'): "more than once",
    ("a.json", '{"a": {"b": 1}}'): "is JSON, but not a table: write a row per example",
}
ARRAYS = {  # what is in `a.npy`
    "they are complex128": np.ones((2, 2), complex),
    r"must have shape \[N, C\]": np.ones(()),
    "scores are empty": np.ones((0, 3)),
    "more runs than examples; transpose": np.ones((9, 2), int),
}
VALUES = {  # what a user gives
    "say by the kind whether that": {"predictions": [0.5, 1]},
    "at least 0; 1 of 2 are not": {"predictions": [1, -2]},
    "must be below 1,000,000, or names": {"predictions": [1, 2**40]},
    "prob_<class> or prediction, it has ids; --pre": {"ids": [1, 2]},
    "unique; 2 of 5 occur .* 4, 5": {"ids": [4, 4, 5, 5, 5], "classes": [1] * 5},
    "they are double": {"ids": [0.5], "classes": [1]},
    "ids are bytes that are not in UTF-8": {"ids": [b"\xff", b"a"], "classes": [1, 1]},
    "labels are bytes that are not": {"labels": [b"\xff", b"a"], "classes": [1, 1]},
    "class_names are bytes": {"class_names": [b"\xff", b"a"], "logits": [[0, 1.0]]},
    "ids are of 2 examples, the predictions of 3": {"ids": [1, 2], "classes": [1] * 3},
    "labels are of 2 examples": {"labels": [1, 2], "classes": [1, 1, 1]},
    "these are classes .R, N., add --kind classes": {
        "labels": [0, 1, 2],
        "prediction": [[0.0, 1.0, 2.0]] * 2,
    },
    r"are names \(None\), but": {"labels": [1, 2], "prediction": ["1", "None"]},
    "must name 2 classes; there are 1": {"class_names": ["a"], "logits": [[0, 1.0]]},
    "class names must differ": {"class_names": ["a", "a"], "logits": [[0, 1.0]]},
    "has 2 entries in most rows, but not in 2 of 4, for example rows 1, 2": pa.table(
        {"logits": [[1.0, 2], [1.0], None, [1.0, 2]]}
    ),
    "cannot be made an array": [[1.0], [1.0, 2]],
    "a run column must have an id column": pa.table({"run": [0, 1], "pred": [1, 1]}),
    "labels must .* are list": pa.table({"y": [[1]] * 4, "p_a": HALF, "p_b": HALF}),
    "pred must .* are binary": pa.table({"pred": [b"\xff", b"a"]}),
    "ids must .* are list": pa.table({"id": [[1]] * 4, "seed": IDS_4, "pred": P}),
    "runs are missing": pa.table({"id": [1, 1], "pred": [1, 0], "run": ["a", ""]}),
    "objects of several types": [{"pred": 1}, 2],
}


def _refused(given, message):
    start = given if isinstance(given, pathlib.Path) else "version 1"
    fails(f"^{start}: .*(?:{message})", read_side, given, "version 1")


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_text_that_cannot_be_read_is_said_in_one_sentence(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8")
    _refused(tmp_path / name, TEXTS[name, text])


@pytest.mark.parametrize("message", [*ARRAYS, *VALUES])
def test_values_that_cannot_be_used_are_said_in_one_sentence(message, tmp_path):
    if message in ARRAYS:
        np.save(tmp_path / "a.npy", ARRAYS[message], allow_pickle=True)
    _refused(VALUES.get(message, tmp_path / "a.npy"), message)


def test_a_kind_that_does_not_fit_is_refused_and_may_be_left_out(tmp_path):
    columns = _columns(LOGITS, "logit_", prediction=LOGITS.argmax(1))
    for path in _tables(tmp_path, columns):
        fails("no column prob_<class>, it has", read_side, path, kind="probabilities")
    for path in _tables(tmp_path, {"prediction": ["cat", "dog"]}):
        fails(r"must hold numbers|no numbers", read_side, path, kind="probabilities")
    for text, message in (
        ("id,g,x\n1,a,0\n", "column g must hold .* 'a'; leave --kind out if"),
        ("id,prob_0,prob_1\n1,0,1\n", "no column logit_<class>, .*; leave --kind out"),
    ):
        (tmp_path / "p.csv").write_text(text)
        fails(message, read_side, tmp_path / "p.csv", kind="logits")
    runs = {"labels": [0, 1, 1], "prediction": [[0.0, 1.0, 1.0]] * 2}
    assert read_side(runs, kind="classes").values.shape == (2, 3)
    names = {"prediction": np.array([["a", "b", "b"]] * 2)}
    assert read_side(names, kind="classes").class_names == ("a", "b")


def test_headers_that_look_odd_are_read(tmp_path):
    """Names that are numbers, and words that stand below them."""
    for text, more in (
        (",0,1\n0,1,0\n1,0,1\n", {"kind": "logits"}),  # pandas, with an index
        ("0,1\n0.5,1\n1,0\n", {"kind": "logits"}),
        ("id,spam\na,spam\nb,ham\n", {"prediction_column": "spam"}),
        ("id;label;pred\n1;0;0\n2;1;0\n", {}),
        ("# id;label\nid;label;pred\n1;0;0\n2;1;0\n", {}),
        ("id,label,prob_0,prob_1\n1,0,0,1\n2,1,0,1\n,,,\n,,,\n", {}),
    ):
        for blank in ("", "\n", " \r\n\n"):
            (tmp_path / "p.csv").write_text(blank + text)
            assert read_side(tmp_path / "p.csv", **more).examples == 2


def test_accounts_say_how_a_file_is_written(tmp_path):
    side = read_side(_text(tmp_path / "a.csv", ";", ","))
    assert side.account.read[-2:] == ("separated by semicolons", "with decimal commas")
    path = _write(tmp_path / "c.csv", _columns(LOGITS, "logit_"))
    path.write_text(path.read_text()[:-3])
    assert "may be cut short" in read_side(path).notes[0]
    path.write_text('id;score;set\na;"1,5";"1,2"\nb;3;"2,4"\n')
    found = read_outcomes(path)
    assert found.columns["score"].tolist() == [[1.5, 3.0]]
    assert found.columns["set"].to_pylist() == ["1,2", "2,4"]
    assert found.account.read[-1] == "with decimal commas"
    for name in ("score", "value", "logit_A"):  # thousands or decimals
        path.write_text(f'id;{name};logit_b\na;"1,050";1\nb;958;"0,5"\n')
        _refused(path, f"the comma of 1,050 in column {name} may mean thousands or")


@pytest.mark.parametrize("ending", [".snappy.parquet", ".csv.gz", ".json"])
def test_parts_of_one_table_are_refused_with_a_line_that_merges(ending, tmp_path):
    folder, columns = tmp_path / "p.parquet", _columns(LOGITS, "logit_")
    for day, rows in enumerate((slice(0, 9), slice(9, None))):
        part = folder / f"day={day}" / f"part-0000{day}-c000{ending}"
        part.parent.mkdir(parents=True)
        _write(part, {name: of[rows] for name, of in columns.items()})
    (folder / "_SUCCESS").touch()
    with pytest.raises(PredictionsError, match="is a folder of 2 parts of") as error:
        read_side(folder)
    line = re.search(r"pq\.write_table\(.*\)$", str(error.value))
    merged = str(tmp_path / "merged.parquet")
    exec(line[0].replace("merged.parquet", merged), {"pq": pq, "ds": dataset})
    side = read_side(merged)
    np.testing.assert_array_equal(side.ids, IDS)
    np.testing.assert_array_equal(side.values[0], LOGITS)
    assert side.account.left_out == ("day",)
    (folder / "_delta_log").mkdir()
    _refused(folder, "2 parts of one table, a Delta table: write its current version")


def test_what_is_not_there_or_no_text_is_said(tmp_path):
    _refused(tmp_path / "no.npy", "there is no such file")
    _refused(tmp_path, "is a folder without predictions.npz")
    _refused(tmp_path / "\udce9.npz", "its path is not in UTF-8; rename it")
    fails("in UTF-8; rename it", read_outcomes, tmp_path / "\udce9.jsonl")
    buffers = map(pa.py_buffer, (np.array([0, 1, 2], np.int32), b"a\xff"))
    text = pa.StringArray.from_buffers(2, *buffers)
    table = pa.table({"id": text, "prediction": [0, 1]})
    _refused(table, "the table is damaged")
    pq.write_table(table, tmp_path / "p.parquet")
    _refused(tmp_path / "p.parquet", "the table is damaged")
    for content, message in (
        (b"id,prediction\nB\xe4r,1\n", "it is not in UTF-8; in Excel, s"),
        (b"B\xe4r,prediction\n1,1\n", "it is not in UTF-8"),
    ):
        (tmp_path / "p.csv").write_bytes(content)
        _refused(tmp_path / "p.csv", message)


@pytest.mark.parametrize("form", ["npy", "npz", "parquet lists", "csv.gz"])
def test_truncated_files_are_refused(form, rng, tmp_path):
    path = {**WITH_IDS, **WITHOUT_IDS}[form](tmp_path)
    whole = path.read_bytes()
    for length in rng.integers(1, len(whole), 20):
        path.write_bytes(whole[:length])
        fails(f"^{path}: ", read_side, path)


def test_facts_of_another_tool_are_no_harm(tmp_path):
    for meta in ("no json", json.dumps([1, 2]), json.dumps({"stopped": []})):
        path = _npz(tmp_path / "p.npz", logits=LOGITS, meta=meta)
        assert read_side(path).runs == (0,)
