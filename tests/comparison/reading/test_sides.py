"""Predictions in every form that is read: the same numbers, or one clear sentence."""

import gzip
import json
import pathlib

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from churn_jax import array_files
from churn_jax.comparison.reading.sides import read_side
from churn_jax.predictions import Predictions, PredictionsError, save_predictions

N, C = 12, 3
IDS = np.arange(N) * 7 + 3


@pytest.fixture
def logits(rng):
    return rng.normal(size=(N, C)).astype(np.float32)


@pytest.fixture
def probs(logits):
    odds = np.exp(logits.astype(np.float64))
    return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)


LABELS = np.arange(N) % C


def _csv(path, columns):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _columns(values, prefix, names=range(C), **more):
    scores = {f"{prefix}{name}": values[:, i] for i, name in enumerate(names)}
    return {"id": IDS, "label": LABELS, **scores, **more}


def _written(form, folder, logits, probs):
    """The predictions in one form: what to give to `read_side`, and their kind."""
    if form == "npy":
        np.save(folder / "p.npy", logits)
        return folder / "p.npy", "logits"
    if form == "npy runs":
        np.save(folder / "p.npy", logits[None])
        return folder / "p.npy", "logits"
    if form == "npy fortran":
        np.save(folder / "p.npy", np.asfortranarray(logits))
        return folder / "p.npy", "logits"
    if form == "npz":
        np.savez(folder / "p.npz", ids=IDS, labels=LABELS, logits=logits)
        return folder / "p.npz", "logits"
    if form == "npz compressed":
        np.savez_compressed(folder / "p.npz", id=IDS, y_true=LABELS, probs=probs)
        return folder / "p.npz", "probabilities"
    if form == "our own":
        predictions = Predictions(IDS, LABELS, logits[None], {"method": "erm"})
        save_predictions(folder / "predictions.npz", predictions)
        return folder, "logits"  # the folder that holds it
    if form == "csv":
        return _csv(folder / "p.csv", _columns(logits, "logit_")), "logits"
    if form == "csv.gz":
        plain = _csv(folder / "p.csv", _columns(probs, "p_"))
        (folder / "p.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
        return folder / "p.csv.gz", "probabilities"
    if form == "parquet columns":
        table = pa.table(_columns(probs, "prob_"))
        pq.write_table(table, folder / "p.parquet", row_group_size=5)
        return folder / "p.parquet", "probabilities"
    if form == "parquet lists":
        table = pa.table({"id": IDS, "target": LABELS, "logits": list(logits)})
        pq.write_table(table, folder / "p.parquet", row_group_size=5)
        return folder / "p.parquet", "logits"
    if form == "parquet fixed lists":
        lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), C)
        pq.write_table(pa.table({"logits": lists}), folder / "p.parquet")
        return folder / "p.parquet", "logits"
    if form == "mapping of columns":
        return _columns(logits, "logit_"), "logits"
    if form == "mapping":
        return {"ids": IDS, "labels": LABELS, "logits": logits}, "logits"
    if form == "array":
        return probs.tolist(), "probabilities"
    if form == "arrow":
        return pa.table(_columns(logits, "logit_")), "logits"

    class Frame:  # what is used of a data frame, without its library
        def __init__(self, data):
            self.columns, self._data = list(data), data

        def __getitem__(self, name):
            return self._data[name]

    if form == "frame of lists":
        return Frame({"id": IDS, "label": LABELS, "logits": logits}), "logits"
    return Frame(_columns(logits.astype(np.float64), "logit_")), "logits"


@pytest.mark.parametrize(
    "form",
    [
        "npy",
        "npy runs",
        "npy fortran",
        "npz",
        "npz compressed",
        "our own",
        "csv",
        "csv.gz",
        "parquet columns",
        "parquet lists",
        "parquet fixed lists",
        "mapping",
        "mapping of columns",
        "array",
        "arrow",
        "frame",
        "frame of lists",
    ],
)
def test_every_form_gives_the_same_predictions(form, tmp_path, logits, probs):
    given, kind = _written(form, tmp_path, logits, probs)
    side = read_side(given)
    assert side.kind == kind
    assert side.values.shape == (1, N, C)
    assert side.runs == (0,)
    assert side.class_names is None
    np.testing.assert_array_equal(side.values[0], {"logits": logits}.get(kind, probs))
    if form not in ("npy", "npy runs", "npy fortran", "array", "parquet fixed lists"):
        np.testing.assert_array_equal(side.ids, IDS)
        np.testing.assert_array_equal(side.labels, LABELS)
        assert not side.notes  # nothing had to be assumed
    if isinstance(given, pathlib.Path):
        assert side.name == given.name


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ">f4"])
def test_npy_keeps_its_type_and_is_mapped(dtype, tmp_path, logits):
    np.save(tmp_path / "p.npy", logits.astype(dtype))
    side = read_side(tmp_path / "p.npy")
    assert side.values.dtype == np.dtype(dtype)
    assert isinstance(side.values, np.memmap)
    np.testing.assert_array_equal(side.values[0], logits.astype(dtype))


def test_large_arrays_of_an_archive_are_mapped(tmp_path, logits, monkeypatch):
    monkeypatch.setattr(array_files, "_MAPPED_BYTES", 1)
    np.savez(tmp_path / "a.npz", ids=IDS, logits=logits.astype(np.float16))
    side = read_side(tmp_path / "a.npz")
    assert isinstance(side.values, np.memmap)
    np.testing.assert_array_equal(side.values[0], logits.astype(np.float16))
    np.testing.assert_array_equal(side.ids, IDS)
    np.savez_compressed(tmp_path / "b.npz", logits=logits)  # has to be unpacked
    np.testing.assert_array_equal(read_side(tmp_path / "b.npz").values[0], logits)


def test_runs_that_stopped_are_left_out(tmp_path, logits):
    runs = np.stack([logits, logits + 1, logits * np.nan])
    predictions = Predictions(IDS, LABELS, runs, {"stopped": [{"replica": 2}]})
    save_predictions(tmp_path / "p.npz", predictions)
    for given in (tmp_path / "p.npz", predictions):
        side = read_side(given, "v1")
        assert side.runs == (0, 1)
        np.testing.assert_array_equal(side.values, runs[:2])
        assert side.notes == ("v1: runs 2 stopped early and are left out.",)


def test_runs_below_each_other_come_side_by_side(rng, tmp_path, logits):
    runs = np.stack([logits, logits * 2])
    rows = rng.permutation(2 * N)  # of run r, example i: r N + i
    columns = {
        "run": np.repeat([3, 8], N)[rows],
        "id": np.tile(IDS, 2)[rows],
        "label": np.array(["cat", "dog", "cow"])[np.tile(LABELS, 2)[rows]],
        **{f"logit_{c}": runs.reshape(-1, C)[rows, c] for c in range(C)},
    }
    side = read_side(_csv(tmp_path / "p.csv", columns))
    assert side.runs == (3, 8)
    np.testing.assert_array_equal(side.ids, IDS)
    np.testing.assert_array_equal(side.values, runs)
    assert side.label_names == ("cat", "cow", "dog")
    columns["id"][0] = 999
    with pytest.raises(PredictionsError, match="2 are not both in run 3 and in run 8"):
        read_side(_csv(tmp_path / "p.csv", columns))


@pytest.mark.parametrize("shape", [(N,), (2, N)])
def test_integers_and_strings_are_predicted_classes(shape, rng, tmp_path):
    classes = rng.integers(0, C, shape)
    np.save(tmp_path / "p.npy", classes)
    side = read_side(tmp_path / "p.npy")
    assert (side.kind, side.class_names) == ("classes", None)
    np.testing.assert_array_equal(side.values, classes.reshape(-1, N))
    names = np.array(["b", "a", "c"])
    np.savez(tmp_path / "p.npz", y_pred=names[classes])
    side = read_side(tmp_path / "p.npz")
    assert side.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(
        np.array(side.class_names)[side.values], names[classes.reshape(-1, N)]
    )


def test_classes_and_scores_in_one_file_are_told_apart_by_kind(tmp_path, logits, probs):
    columns = _columns(logits, "logit_", prediction=logits.argmax(1))
    columns |= {f"prob_{c}": probs[:, c] for c in range(C)}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    for path in (_csv(tmp_path / "p.csv", columns), tmp_path / "p.parquet"):
        assert read_side(path).kind == "logits"
        found = read_side(path, kind="probabilities")
        np.testing.assert_array_equal(found.values[0], probs)
        found = read_side(path, kind="classes")
        np.testing.assert_array_equal(found.values[0], logits.argmax(1))


def test_a_column_of_p_values_is_no_score(tmp_path):
    columns = {"id": IDS, "prediction": LABELS, "p_value": LABELS}
    assert read_side(_csv(tmp_path / "p.csv", columns)).kind == "classes"


def test_names_of_classes_come_from_the_columns(tmp_path, probs):
    columns = _columns(probs, "prob_", ["dog", "cat", "über"])
    columns["label"] = np.array(["dog", "cat", "unknown"])[LABELS]
    side = read_side(_csv(tmp_path / "p.csv", columns))
    assert side.class_names == ("dog", "cat", "über")
    assert side.label_names == ("cat", "dog", "unknown")
    shuffled = {name: columns[name] for name in reversed(columns)}
    side = read_side(_csv(tmp_path / "p.csv", shuffled))
    assert side.class_names == ("über", "cat", "dog")
    np.testing.assert_array_equal(side.values[0], probs[:, ::-1])


def test_numbered_columns_are_taken_by_number_not_by_place(tmp_path, probs):
    columns = _columns(probs, "prob_")
    shuffled = {name: columns[name] for name in reversed(columns)}
    side = read_side(_csv(tmp_path / "p.csv", shuffled))
    assert side.class_names is None
    np.testing.assert_array_equal(side.values[0], probs)


def test_a_table_of_classes_without_prefix_is_read_if_the_kind_is_said(tmp_path, probs):
    columns = {"example": IDS, "y": LABELS, "cat": probs[:, 0], "dog": probs[:, 1]}
    columns["cow"] = probs[:, 2]
    path = _csv(tmp_path / "p.csv", columns)
    side = read_side(
        path, None, None, "probabilities", id_column="example", label_column="y"
    )
    assert side.class_names == ("cat", "dog", "cow")
    np.testing.assert_array_equal(side.values[0], probs)
    np.testing.assert_array_equal(side.ids, IDS)
    assert "of 3 classes are all other columns: cat, dog, cow." in side.notes[0]
    with pytest.raises(
        PredictionsError, match="there is no column logit_<class>, prob_"
    ):
        read_side(path)
    table = pa.table({"prob_0": probs[:, 0], "prob_1": probs[:, 1]})
    with pytest.raises(PredictionsError, match="there is no column logit_<class>, it"):
        read_side(table, kind="logits")


def test_one_score_per_example_is_of_the_second_class(probs):
    side = read_side({"prob": probs[:, 1]}, "v1")
    assert side.kind == "probabilities"
    np.testing.assert_allclose(side.values[0, :, 1], probs[:, 1])
    np.testing.assert_allclose(side.values[0].sum(axis=1), 1, rtol=1e-6)
    side = read_side(probs[:, 1:2], kind="logits")
    np.testing.assert_array_equal(side.values[0, :, 0], 0)
    with pytest.raises(PredictionsError, match="one score per example; say by"):
        read_side(probs[:, 1])


def _tables(folder, columns):
    """The same table as it is read from CSV and from Parquet."""
    pq.write_table(pa.table(columns), folder / "p.parquet")
    return _csv(folder / "p.csv", columns), folder / "p.parquet"


def test_one_score_in_the_prediction_column_needs_its_kind(tmp_path, probs):
    for path in _tables(tmp_path, {"id": IDS, "prediction": probs[:, 1]}):
        with pytest.raises(
            PredictionsError, match=r"12 of 12 are not.* say their kind"
        ):
            read_side(path)
        with pytest.raises(PredictionsError, match="12 of 12 are not"):
            read_side(path, kind="classes")
        for kind in ("logits", "probabilities"):
            side = read_side(path, kind=kind)
            assert side.kind == kind
            np.testing.assert_array_equal(side.values[0, :, 1], probs[:, 1])
            assert "for the " + kind + " of class 1 of two" in side.notes[0]
    more = {"id": IDS, "score": probs[:, 1], "x": LABELS, "y": LABELS}
    for path in _tables(tmp_path, more):
        side = read_side(path, kind="logits", prediction_column="score")
        np.testing.assert_array_equal(side.values[0, :, 1], probs[:, 1])


def test_a_kind_that_is_not_there_is_refused(tmp_path, logits):
    columns = _columns(logits, "logit_", prediction=logits.argmax(1))
    for path in _tables(tmp_path, columns):
        with pytest.raises(PredictionsError, match="no column prob_<class>, it has"):
            read_side(path, kind="probabilities")
    for path in _tables(tmp_path, {"prediction": ["cat", "dog"]}):
        with pytest.raises(PredictionsError, match=r"invalid value|no numbers"):
            read_side(path, kind="probabilities")


def test_booleans_are_the_same_classes_in_every_form(tmp_path):
    truth = np.arange(N) % 5 == 0
    for given in (*_tables(tmp_path, {"y_pred": truth}), {"y_pred": truth.tolist()}):
        side = read_side(given)
        assert side.class_names == ("False", "True")
        np.testing.assert_array_equal(side.values[0], truth)
    side = read_side({"prediction": ["true", "true"], "label": [1, 0]})
    np.testing.assert_array_equal(side.values, [[1, 1]])


def test_text_of_several_lines_is_read_from_a_large_csv(tmp_path):
    cell = '"two lines of text,\nand ""quotes"" to fill a block"'
    rows = [f"{i},{cell},{i % 3}\n" for i in range(25_000)]
    (tmp_path / "p.csv").write_text("id,text,prediction\n" + "".join(rows))
    side = read_side(tmp_path / "p.csv")
    np.testing.assert_array_equal(side.ids, np.arange(25_000))
    np.testing.assert_array_equal(side.values[0], np.arange(25_000) % 3)


def test_what_is_assumed_is_said(logits, probs):
    assert read_side(probs, "v1").notes == (
        "v1: scores are taken for probabilities: rows are at least 0 and sum to one.",
    )
    assert read_side(logits).kind == "logits"
    assert read_side(probs, kind="logits").kind == "logits"
    assert read_side(probs * 100).kind == "probabilities"  # refused in the pass
    some_wrong = probs.copy()
    some_wrong[:3] *= 2
    assert read_side(some_wrong).kind == "probabilities"
    assert read_side(probs * 70).kind == "logits"
    with pytest.raises(PredictionsError, match=r"12 of 12 rows .* do not sum to one"):
        read_side(probs / 2)


def test_bits_that_are_no_number_give_no_warning(probs):
    probs.view(np.uint32)[0, 0] = 0x7F800001  # a NaN that NumPy warns of
    assert read_side(probs).kind == "probabilities"


def test_tensors_of_other_frameworks_are_arrays(logits):
    import jax.numpy as jnp

    class Tensor:  # the part of a PyTorch tensor that is used
        dtype, requires_grad = "torch.float32", True

        def detach(self):
            self.requires_grad = False
            return self

        def cpu(self):
            return self

        def __array__(self, dtype=None, copy=None):
            assert not self.requires_grad
            return logits

    np.testing.assert_array_equal(read_side(Tensor()).values[0], logits)
    side = read_side({"logits": jnp.asarray(logits, jnp.bfloat16), "label": LABELS})
    assert side.values.dtype.name == "bfloat16"


def test_ids_beside_are_for_sides_without_ids(tmp_path, logits):
    np.save(tmp_path / "p.npy", logits)
    np.save(tmp_path / "ids.npy", IDS)
    _csv(tmp_path / "ids.csv", {"name": [f"{i:03}.png" for i in IDS]})
    np.testing.assert_array_equal(
        read_side(tmp_path / "p.npy", ids=tmp_path / "ids.npy").ids, IDS
    )
    found = read_side(tmp_path / "p.npy", ids=tmp_path / "ids.csv").ids
    assert found[0] == "003.png"
    own = read_side({"logits": logits, "ids": IDS + 1}, ids=tmp_path / "ids.npy")
    np.testing.assert_array_equal(own.ids, IDS + 1)
    with pytest.raises(
        PredictionsError, match="ids beside are of 2 examples, the pred"
    ):
        read_side(tmp_path / "p.npy", ids=[1, 2])


def test_ids_of_digits_with_zeros_in_front_stay_text(tmp_path, logits):
    columns = _columns(logits, "logit_")
    columns["id"] = [f"{i:04}" for i in IDS]
    side = read_side(_csv(tmp_path / "p.csv", columns))
    assert side.ids[0] == "0003"


BAD = {
    "missing file": (lambda d: d / "no.npy", "no.npy: there is no such file"),
    "folder": (lambda d: d, "is a folder without predictions.npz"),
    "empty": (lambda d: _text(d / "a.csv", ""), "a.csv: the file is empty"),
    "text": (lambda d: _text(d / "a.txt", "1 2"), "files of this kind are not read"),
    "not npy": (lambda d: _text(d / "a.npy", "hello"), "it is no NumPy .npy file"),
    "not npz": (
        lambda d: _text(d / "a.npz", "hello"),
        "it is not a NumPy .npz archive",
    ),
    "not parquet": (lambda d: _text(d / "a.parquet", "hello you"), "cannot be read, "),
    "header only": (lambda d: _text(d / "a.csv", "id,p_0,p_1\n"), "it has no rows"),
    "words": (lambda d: _text(d / "a.csv", "p_0,p_1\n1,x\n"), "invalid value 'x'"),
    "semicolons": (lambda d: _text(d / "a.csv", "p_0;p_1\n1;0\n"), "by commas, not by"),
    "ragged": (
        lambda d: _text(d / "a.csv", "p_0,p_1\n1\n"),
        "Expected 2 columns, got 1",
    ),
    "twice": (lambda d: _text(d / "a.csv", "p_0,p_0\n1,0\n"), "more than once"),
    "gap": (lambda d: _text(d / "a.csv", "p_0,p_2\n1,0\n"), "class numbers 0 to 1"),
    "one class": (
        lambda d: _text(d / "a.csv", "prob_0,x\n1,0\n"),
        "scores of one class",
    ),
    "two labels": (
        lambda d: _text(d / "a.csv", "y_true,label,p_0,p_1\n1,1,1,0\n"),
        "y_true and label could both be the label column",
    ),
    "no labels": (
        lambda d: _text(d / "a.csv", "label,p_0,p_1\n1,1,0\n,1,0\n"),
        r"labels are missing for 1 of 2 examples, for example rows 1",
    ),
    "pickle": (
        lambda d: _saved(d, np.array([{}, []], object)),
        "holds pickled Python objects",
    ),
    "complex": (lambda d: _saved(d, np.ones((2, 2), complex)), "they are complex128"),
    "scalar": (lambda d: _saved(d, np.ones(())), r"must have shape \[N, C\]"),
    "no examples": (lambda d: _saved(d, np.ones((0, 3))), "scores are empty"),
    "transposed": (
        lambda d: _saved(d, np.ones((9, 2), int)),
        "more runs than examples; transpose",
    ),
    "half class": (
        lambda d: {"predictions": [0.5, 1]},
        "say by the kind whether that",
    ),
    "negative": (lambda d: {"predictions": [1, -1]}, "at least 0; 1 of 2 are not"),
    "huge": (
        lambda d: {"predictions": [1, 2**40]},
        "must be below 1,000,000, or names",
    ),
    "nothing": (
        lambda d: {"ids": [1, 2]},
        "there are no logits, probabilities or pr",
    ),
    "same ids": (
        lambda d: {"ids": [4, 4, 5, 5, 5], "classes": [1, 1, 1, 0, 0]},
        "ids must be unique; 2 of 5 occur more than once, for example 4, 5",
    ),
    "float ids": (lambda d: {"ids": [0.5], "classes": [1]}, "they are float64"),
    "ids no text": (
        lambda d: {"ids": [b"\xff", b"a"], "classes": [1, 1]},
        "ids are bytes that are not in UTF-8",
    ),
    "labels no text": (
        lambda d: {"labels": [b"\xff", b"a"], "classes": [1, 1]},
        "labels are bytes that are not in UTF-8",
    ),
    "names no text": (
        lambda d: {"class_names": [b"\xff", b"a"], "logits": [[0, 1.0]]},
        "class_names are bytes that are not in UTF-8",
    ),
    "few ids": (
        lambda d: {"ids": [1, 2], "classes": [1, 1, 1]},
        "ids are of 2 examples, the predictions of 3",
    ),
    "few labels": (
        lambda d: {"labels": [1, 2], "classes": [1, 1, 1]},
        "labels are of 2 examples, the predictions of 3",
    ),
    "few names": (
        lambda d: {"class_names": ["a"], "logits": [[0, 1.0]]},
        "class_names must name 2 classes; there are 1",
    ),
    "equal names": (
        lambda d: {"class_names": ["a", "a"], "logits": [[0, 1.0]]},
        "class names must differ",
    ),
    "lists": (
        lambda d: pa.table({"logits": [[1.0, 2], [1.0], None, [1.0, 2]]}),
        "has 2 entries in most rows, but not in 2 of 4, for example rows 1, 2",
    ),
    "ragged array": (lambda d: [[1.0], [1.0, 2]], "cannot be made an array"),
    "runs without ids": (
        lambda d: pa.table({"run": [0, 1], "prediction": [1, 1]}),
        "with a run column must have an id column",
    ),
}


def _text(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def _saved(folder, array):
    np.save(folder / "a.npy", array, allow_pickle=True)
    return folder / "a.npy"


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_said_in_one_sentence(case, tmp_path):
    given, message = BAD[case]
    given = given(tmp_path)
    with pytest.raises(PredictionsError, match=message) as caught:
        read_side(given, "version 1")
    start = str(given) if isinstance(given, pathlib.Path) else "version 1"
    assert str(caught.value).startswith(f"{start}: ")
    assert "\n" not in str(caught.value)


def test_text_that_is_none_is_refused(tmp_path):
    """Bytes of a damaged file that are no UTF-8."""
    text = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")
    )
    table = pa.table({"id": text, "prediction": [0, 1]})
    with pytest.raises(PredictionsError, match="p: the table is damaged"):
        read_side(table, "p")
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(PredictionsError, match="cannot be read, "):
        read_side(tmp_path / "p.parquet")
    (tmp_path / "p.csv").write_bytes(b"id,prediction\nB\xe4r,1\n")
    with pytest.raises(PredictionsError, match=r"cannot be read, .*UTF"):
        read_side(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_bytes(b"B\xe4r,prediction\n1,1\n")
    with pytest.raises(PredictionsError, match="it is not in UTF-8"):
        read_side(tmp_path / "p.csv")


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "csv.gz"])
def test_truncated_files_are_refused(ending, rng, tmp_path, logits, probs):
    forms = {"npy": "npy", "npz": "npz", "parquet": "parquet lists", "csv.gz": "csv.gz"}
    path, _ = _written(forms[ending], tmp_path, logits, probs)
    whole = path.read_bytes()
    for length in rng.integers(1, len(whole), 20):
        path.write_bytes(whole[:length])
        with pytest.raises(PredictionsError, match=f"^{path}: "):
            read_side(path)


def test_a_csv_without_a_last_line_end_is_noted(tmp_path, logits):
    path = _csv(tmp_path / "p.csv", _columns(logits, "logit_"))
    path.write_text(path.read_text()[:-3])
    assert "may be cut short" in read_side(path).notes[0]


def test_facts_of_another_tool_are_no_harm(tmp_path, logits):
    for meta in ("no json", json.dumps([1, 2]), json.dumps({"stopped": []})):
        np.savez(tmp_path / "p.npz", logits=logits, meta=meta)
        assert read_side(tmp_path / "p.npz").runs == (0,)
