"""Data sets given as Python objects: what is taken, converted, refused and named."""

import dataclasses
import gc
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import data
from churn_jax.configuration.study import DataConfig
from churn_jax.data import DATASETS, DataError, Dataset, from_source, load, named
from churn_jax.studies import preset
from churn_jax.studies.folder import importable
from churn_jax.studies.inputs import StudyInputs, load_inputs
from tests.refusals import refusals

RNG = np.random.default_rng(0)
X = RNG.integers(256, size=(50, 4, 4, 3), dtype=np.uint8)
Y = np.arange(50) % 3
U, V = X[:20, ::-1].copy(), Y[:20]
WORDS = np.array(["dog", "cat", "bird"])


def same(a: Dataset, b: Dataset) -> bool:
    return a.fingerprint == b.fingerprint and a.num_classes == b.num_classes


def study_of(name, **options):
    return dataclasses.replace(preset("digits"), data=DataConfig(name, **options))


def make():
    return (X, Y), (U, V)


@pytest.mark.parametrize("validation", [None, 7, 0.2])
def test_objects_are_cut_as_a_file_of_their_arrays(tmp_path, validation):
    two = {"train_image": X, "train_label": Y, "test_image": U, "test_label": V}
    pool = {"images": X, "labels": Y, "ids": np.arange(50) + 100}
    options = {"validation": validation, "train_size": 20}
    for arrays, objects in (
        (two, [two, ((X, Y), (U, V)), {"train": (X, Y), "test": (U, V)}, make]),
        (pool, [pool]),
    ):
        np.savez(tmp_path / "arrays.npz", **arrays)
        expected = load(tmp_path / "arrays.npz", **options)
        for source in objects:
            assert same(load(named(source), **options), expected)
            if source is not make:
                assert same(from_source(source, **options), expected)
    arrays = Dataset.from_arrays(X, Y, validation=validation, test=(U, V))
    assert same(arrays, from_source(two, validation=validation))
    ids = Dataset.from_arrays(X, Y, ids=np.arange(50) + 100, validation=validation)
    assert same(ids, from_source(pool, validation=validation))


def test_validation_examples_may_be_given():
    for mine in (
        Dataset.from_arrays(X, Y, validation=(U, V), test=(U, V)),
        from_source({"train": (X, Y), "validation": (U, V), "test": (U, V)}),
        load(named((X, Y), validation=(U, V), test=(U, V))),
    ):
        sizes = [len(s) for s in (mine.train, mine.validation, mine.test)]
        assert sizes == [50, 20, 20]
        assert mine.validation.ids[0] == "validation/0" and mine.notes == ()


def test_without_test_examples_a_fifth_is_held_out_and_said():
    mine = Dataset.from_arrays(X, Y, validation=0)
    assert (len(mine.train), len(mine.test)) == (40, 10)
    rows = [int(name.removeprefix("pool/")) for name in mine.test.ids]
    np.testing.assert_array_equal(mine.test.images, X[rows])
    (note,) = mine.notes
    assert note.startswith("No test examples were given: 10 of the 50 examples (20 %)")
    inputs = StudyInputs(study_of(named((X, Y))))
    again = inputs.described()
    assert again.notes == (*inputs.config.notes, note)
    assert StudyInputs(again).described() == again
    split = {"images": X, "labels": Y, "split": np.where(Y == 0, "test", "train")}
    assert from_source(split).notes == (
        "Classes without a train example: 1 of 3.",
        "Classes without a test example: 2 of 3.",
    )


ONE_HOT = np.eye(3)[Y]


@pytest.mark.parametrize(
    ("x", "y", "shape", "dtype"),
    [
        (X[..., 0], Y, (4, 4, 1), np.uint8),
        (X / 255.0, Y.astype(np.uint8)[:, None], (4, 4, 3), np.float32),
        (jnp.asarray(X), jnp.asarray(Y), (4, 4, 3), np.uint8),
        (jnp.zeros((50, 4), jnp.bfloat16), Y, (4,), np.float32),
        (X[:, 0, 0].tolist(), Y.tolist(), (3,), np.float32),
        (X[:, 0, 0] > 99, ONE_HOT, (3,), np.float32),
        (X, ONE_HOT.astype(bool), (4, 4, 3), np.uint8),
    ],
    ids=["grey", "floats", "JAX", "bfloat16", "lists", "booleans", "one-hot"],
)
def test_what_is_unambiguous_is_converted(x, y, shape, dtype):
    mine = Dataset.from_arrays(x, y, test=(x, y))
    assert mine.test.images.shape[1:] == shape and mine.test.images.dtype == dtype
    assert mine.test.labels.tolist() == Y.tolist() and mine.num_classes == 3
    assert mine.notes == ("All test examples are among the training examples, too.",)


@pytest.mark.parametrize("dtype", ["U", "S", object])
def test_strings_are_numbered_in_sorted_order(dtype):
    words = WORDS[Y].astype(dtype)
    mine = Dataset.from_arrays(X, words, test=(U, words[:20]))
    assert mine.class_names == ("bird", "cat", "dog")
    assert mine.test.labels[:3].tolist() == [2, 1, 0]
    (note,) = mine.notes
    assert note == "Classes are numbered in sorted order: 0 'bird', 1 'cat', 2 'dog'."
    by_name = from_source({"image": X, "label": words, "id": np.arange(50)})
    assert by_name.class_names == mine.class_names
    assert (by_name.test.labels == 2 - Y[by_name.test.ids]).all()
    yes = Dataset.from_arrays(X, Y > 0)
    assert yes.num_classes == 2 and yes.class_names == ()


class Frame:
    """What the code reads of a pandas frame."""

    def __init__(self, **columns):
        self.columns = list(columns)
        values = [np.asarray(column) for column in columns.values()]
        self.dtypes = [column.dtype for column in values]
        self._values = np.array([c.astype(object) for c in values]).T

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype or object)


def test_tables_of_frames_are_numbers():
    frame = Frame(age=Y * 10, rate=Y / 7, married=Y > 0)
    table = Dataset.from_arrays(frame, Y, validation=0, test=(frame, Y)).train.images
    expected = np.stack([Y * 10, Y / 7, Y > 0], 1, dtype="f4")
    np.testing.assert_array_equal(table, expected)
    words = Frame(age=Y, work=WORDS[Y], race=WORDS[Y])
    with pytest.raises(DataError, match=r"2 that are not \(work, race\): encode them"):
        Dataset.from_arrays(words, Y)
    for other, message in (
        (Frame(age=Y, married=Y, rate=Y), "in one order; their order differs"),
        (Frame(age=Y, rate=Y, single=Y), "train and test .*only one has married, sin"),
    ):
        with pytest.raises(DataError, match=message):
            Dataset.from_arrays(frame, Y, test=(other, Y))
    named_arrays = {"train_image": frame, "train_label": Y}
    named_arrays |= {"test_image": other, "test_label": Y}
    with pytest.raises(DataError, match="train and test must have the same columns"):
        from_source(named_arrays)
    with pytest.raises(DataError, match="pool: 50 of 50 images hold NaN"):
        Dataset.from_arrays(Frame(a=Y * np.nan), Y)


TOKENS = np.arange(1, 151).reshape(50, 3)


def test_texts_keep_their_length_until_a_study_asks_for_one():
    texts = {"train_tokens": TOKENS, "train_labels": WORDS[Y]}
    texts |= {"test_tokens": TOKENS.ravel(), "test_offsets": range(0, 151, 3)}
    texts |= {"test_labels": WORDS[Y]}
    mine = from_source(texts, validation=0)
    assert data.is_tokens(mine.train.images) and mine.class_names[0] == "bird"
    np.testing.assert_array_equal(mine.train.images, TOKENS)
    np.testing.assert_array_equal(mine.test.images, TOKENS)
    for length in (2, 5):
        config = DataConfig(named(texts), sequence_length=length, vocabulary_size=9)
        found = load_inputs(config, None).dataset
        assert found.test.images.shape == (50, length)
        assert found.test.images[:2, :2].tolist() == [[1, 2], [4, 5]]
        assert found.test.images.max() == 8
        cut = any("Texts of 3 tokens are cut to 2" in note for note in found.notes)
        assert cut == (length == 2)


def masked():
    return np.ma.masked_equal(X[:, 0, 0].astype(float), X[0, 0, 0, 0])


def fails():
    raise OSError("no such disk\nat all")


MINUTES = np.stack([np.arange(50), 1.7e9 + 60 * np.arange(50)], axis=1)
test_what_cannot_be_meant_gives_one_sentence = refusals(
    ((X[..., 0] / 255, Y), r"\(50, 4, 4\); add a channel axis"),
    ((X.astype(int), Y), "got int64; pixels from 0 to 255 .*astype.numpy.uint8"),
    ((np.zeros((50, 3, 8, 8), "u1"), Y), r"channels last.*transpose\(0, 2, 3, 1\)"),
    ((np.zeros((50, 3, 32, 32)), Y), "channels last"),
    ((X, Y / 2), "labels must be integers; got float64"),
    ((X, np.eye(3)[Y] * 0.9), r"one-hot; those at position 0 .*argmax\(-1\)"),
    ((X, Y.astype(str)), "numbers written as strings, such as '0'"),
    ((X, [*WORDS[Y][:-1], None]), "all of them strings; got None at position 49"),
    ((X, [0, None, *Y[2:]]), "all of them strings; got None at position 1"),
    ((X, [0, -1, *Y[2:]]), "-1 at position 1: remove such examples, or number"),
    ((X, [*WORDS[Y][:-1], np.nan]), "all of them strings; got nan at position 49"),
    ({"image": X, "label": Y, "id": 2**63 + np.arange(50, dtype="u8")}, "below 2.63;"),
    ({"image": X, "label": Y, "test_image": U}, r"\(test_image would not be read\)"),
    ({"image": X, "label": Y, "weight": Y}, r"\(weight would not be read\)"),
    ((X, [[1], [2, 3]]), "pool: labels cannot be read as one array .*inhomogen"),
    ((X.astype(object), Y), r"images must be real numbers; got object \(int\)"),
    ((X[:, 0, :, 0].astype(str), Y), r"must be real numbers; got <U3 \(str_\)"),
    ((X[:, 0, :, 0] + 1j, Y), "must be real numbers; got complex128"),
    ((masked(), Y), "images have masked entries"),
    (((X, WORDS[Y]), (U, ["fox"] * 20)), "test: label 'fox' at position 0 is not"),
    (((X, WORDS[Y]), (U, V)), "test: labels must be strings.*; got int64"),
    (((X, ONE_HOT), (U, np.eye(4)[V])), "one number of classes; got .*'test': 4"),
    (((X, Y), (U, V), (U, V)), "got 3 pairs of arrays; name them"),
    ((X, Y, Y), r"expected a pair \(x, y\).*; got a tuple of 3"),
    ({"train": (X, Y), "dev": (U, V)}, "are train, test and validation; got train"),
    ({"test": (U, V)}, "are train, test and validation; got test"),
    ({"x": X, "y": Y}, "the dict of arrays must hold train_image.*found"),
    ({"images": X, "labels": Y, "label": Y}, "labels and label are one array; give"),
    (fails, r"fails\(\) failed: OSError: no such disk$"),
    ((X, Y[:9]), "50 images and 9 labels"),
    ((MINUTES, Y), "pool: float32 makes 24 values of the 50 in column 1; subtract"),
    ((MINUTES.astype(int), Y), "float32 makes 24 values of the 50 in column 1"),
    call=lambda source: load(named(source)),
    error=DataError,
)


def test_options_that_contradict_the_source_are_refused():
    whole = Dataset.from_arrays(X, Y)
    with pytest.raises(DataError, match=r"test: arrays@\w+ has splits of its own"):
        from_source(whole, test=(U, V))
    with pytest.raises(DataError, match="num_classes=5"):
        Dataset.from_arrays(X, WORDS[Y], num_classes=5)
    with pytest.raises(DataError, match=r"DataConfig\(validation=...\)"):
        named((X, Y), validation=0.1)
    assert Dataset.from_arrays(X, Y, num_classes=5).num_classes == 5
    for options, message in (
        ({"num_classes": 5.0}, "num_classes must be an integer; got 5.0"),
        ({"validation": "10%"}, "validation: expected a source of examples; got '10%'"),
        ({"columns": "image"}, "names of the image and of the label; got 'image'"),
    ):
        with pytest.raises(DataError, match=message):
            from_source((X, Y), **options)


def test_a_name_is_that_of_the_contents():
    name = named((X, Y))
    assert name.startswith("arrays@") and len(name) == 15
    assert named({"images": X.copy(), "labels": Y}) == name
    assert load(name).name == name
    assert name != named((X, Y), num_classes=4) != named((X, (Y + 1) % 3))
    assert named((X, WORDS[2 - Y])) != name  # of which the classes have names
    with pytest.raises(DataError, match="test: give images and labels as"):
        named((X, Y), test=X)
    assert named((X, Y), name="my set").startswith("my-set@")
    assert named("digits") == "digits"
    mine = Dataset.from_arrays(X, Y)
    assert named(mine) == mine.name and named(load("digits")).startswith("digits@")
    assert same(load(mine.name), mine)
    narrowed = data.narrow(mine, [0, 1])
    assert named(narrowed) != mine.name and len(load(named(narrowed)).train) == 26


def test_a_function_of_a_file_in_any_folder_is_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "set_of_mine.py").write_text("from tests.data.test_sources import make")
    assert same(load(f"{tmp_path}/set_of_mine.py:make"), load(f"{__name__}:make"))


def test_a_study_cuts_an_object_as_its_settings_say():
    config = DataConfig(named(make()), validation=10)
    assert not data.is_streaming(config.name)
    study = study_of(config.name, validation=10)
    assert importable(study).data.name == config.name
    inputs = StudyInputs(study)
    assert (len(inputs.dataset.train), len(inputs.dataset.validation)) == (40, 10)
    few = load_inputs(config, 5).dataset
    assert set(few.train.ids) < set(inputs.dataset.train.ids)


def test_the_last_objects_are_kept_and_earlier_ones_while_they_are_held():
    first, held = named((X, Y)), named((X, (Y + 1) % 3))
    holder = data.find_dataset(held)
    assert named((X, (Y + 1) % 3)) == held and data.find_dataset(held) is holder
    for i in range(4):
        named((X ^ (i + 1), Y))
    gc.collect()
    for name in (first, "arrays@00112233"):  # of another process
        message = f"{name} was given as a Python object, .* script that made it again"
        with pytest.raises(DataError, match=message):
            load(name)
    assert load(held).num_classes == holder.num_classes == 3


def test_changed_arrays_are_noticed():
    x = X.copy()
    name = named(((x, Y), (U, V)))
    x[0, 0, 0, 0] ^= 1
    with pytest.raises(DataError, match=f"the arrays of {name} were changed after"):
        load(name)


def test_functions_are_found_by_their_names(monkeypatch):
    monkeypatch.setattr(DATASETS, "_registered", {})
    dotted = f"{__name__}:make"
    assert named(make) == dotted and load(dotted).name == dotted
    assert named(lambda: make()).startswith("arrays@")
    assert named(make, num_classes=4).startswith("arrays@")
    DATASETS.register("mine")(make)
    assert same(from_source(make), load(dotted))
    for name in ("digits", Path("digits")):
        assert same(from_source(name), load("digits"))
    assert same(load("mine"), load(dotted)) and not data.is_streaming("mine")
    study = study_of("mine")
    assert importable(study).data.name == dotted
    with pytest.raises(ValueError, match="X is not a function that returns a data set"):
        load(f"{__name__}:X")
    with pytest.raises(ValueError, match="no_such_package cannot be imported"):
        load("no_such_package:make")


def test_a_data_set_is_printed_in_short():
    printed = repr(Dataset.from_arrays(X, Y, name="mine", validation=0))
    start = "Dataset(name='mine', train=Split(40 examples of 4 x 4 x 3 uint8), valid"
    assert printed.startswith(start) and len(printed) < 500


def unseeded():
    return (X, Y), (np.random.default_rng().permutation(X), Y)


def test_rows_that_read_again_must_get_the_same_test_examples():
    spec = dataclasses.replace(preset("digits").methods[0], train_size=20)
    assert len(StudyInputs(study_of(f"{__name__}:make")).of(spec).dataset.train) == 20
    inputs = StudyInputs(study_of(f"{__name__}:unseeded"))
    with pytest.raises(ValueError, match="unseeded gave other test examples when it"):
        inputs.of(spec)
