"""Sets prepared by TFDS and read without TensorFlow; preparing them; errors."""

import json
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest

from churn_jax.data import DataError, load, prepare
from tests.data import small_sets  # noqa: F401 -- registers its sets
from tests.refusals import refusals


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """A folder with the sets that can be prepared."""
    folder = tmp_path_factory.mktemp("tfds")
    for name in ("three", "no_test", "ragged", "unlabelled", "test_only"):
        prepare(f"churn_probe/{name}", data_dir=folder)
    return folder


def test_sets_are_prepared_and_read_where_tensorflow_cannot_be_imported(
    tmp_path, monkeypatch
):
    find = PathFinder.find_spec

    def hidden(name, *rest):
        return None if name == "tensorflow" else find(name, *rest)

    monkeypatch.setattr(PathFinder, "find_spec", staticmethod(hidden))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    prepare("churn_probe/three", data_dir=tmp_path)
    found = load("churn_probe/three", data_dir=tmp_path)
    assert found.num_classes == 3 and len(found.test) == 12
    with pytest.raises(DataError, match=r"churn-jax\[tfds\]"):
        prepare("mnist", data_dir=tmp_path)
    assert "tensorflow" not in sys.modules


def test_preparing_is_summed_up_and_not_repeated(probe):
    again = prepare("churn_probe/three", data_dir=probe)
    assert again.splits == {"train": 30, "validation": 9, "test": 12}
    assert again.directory == probe / "churn_probe" / "three" / "1.0.0"
    assert again.size_bytes > 48 * 51
    assert "train 30, validation 9, test 12 examples" in str(again)
    assert again.seconds < 5


def test_load_prepares_first_if_it_is_given_the_original_files(tmp_path):
    name, folder = "churn_probe/no_test", tmp_path / "d"
    assert len(load(name, data_dir=folder, manual_dir=tmp_path).train) == 27


def test_ids_tell_split_and_index_where_the_set_has_none(probe):
    data = load("churn_probe/three", data_dir=probe)
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 9, 12)
    assert data.test.ids.tolist() == [f"test/{i}" for i in range(12)]
    cut = load("churn_probe/three", data_dir=probe, validation=10)
    row = {name: i for i, name in enumerate(data.train.ids)}
    for split in (cut.train, cut.validation):
        rows = [row[name] for name in split.ids]
        np.testing.assert_array_equal(split.images, data.train.images[rows])
    assert len(cut.validation) == 10


def test_validation_is_the_test_of_a_set_without_one(probe):
    data = load("churn_probe/no_test", data_dir=probe, validation=5)
    assert (len(data.train), len(data.validation), len(data.test)) == (25, 5, 9)
    # Every image holds its own number, as its file name does.
    for split in (data.train, data.validation, data.test):
        assert [f"{x.flat[0]}.png" for x in split.images] == split.ids.tolist()
        np.testing.assert_array_equal(split.labels, split.images[:, 0, 0, 0] % 3)


test_bad_names_and_sets_give_one_sentence = refusals(
    ("mnst", "'mnst' is neither 'digits', .* did you mean mnist"),
    ("digit", "did you mean digits"),
    ("tfds:cifar_10", "did you mean cifar10"),
    ("qqqqqqqq", "TensorFlow Datasets knows$"),
    ("mnist", "not prepared in .* run `churn-jax data mnist --data-dir .*data_dir"),
    ("churn_probe/nothing", "TFDS refuses it: .*nothing"),
    ("churn_probe:9.9.9", r"TFDS refuses it: .*9\.9\.9"),
    ("churn_probe/ragged", "images differ in size .* load_streaming"),
    ("churn_probe/unlabelled", "not a set of images with class labels"),
    ("churn_probe/test_only", "has no 'train' split; it has test"),
    ("ag_news_subset", "not prepared"),
    call=lambda folder, name: load(name, data_dir=folder),
    error=DataError,
    fixtures=["probe"],
)


def test_a_set_in_another_format_is_refused(tmp_path):
    name = "churn_probe/three"
    prepare(name, data_dir=tmp_path)
    info = tmp_path / name / "1.0.0" / "dataset_info.json"
    changed = json.loads(info.read_text()) | {"fileFormat": "tfrecord"}
    info.write_text(json.dumps(changed))
    with pytest.raises(DataError, match="not prepared as array_record: delete it"):
        load(name, data_dir=tmp_path)
    with pytest.raises(DataError, match="as tfrecord, not array_record: delete it"):
        prepare(name, data_dir=tmp_path)


def test_what_goes_wrong_while_preparing_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"OSError: .*is damaged.*manual_dir") as caught:
        prepare("churn_probe/broken", data_dir=tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="did you mean"):
        prepare("mnits", data_dir=tmp_path)
    with pytest.raises(DataError, match="digits are in the package"):
        prepare("digits")
    for name in ("none.npz", "module:function"):
        with pytest.raises(DataError, match=f"{name} is not a TFDS set.*--out FILE"):
            prepare(name)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        prepare("mnist", data_dir=tmp_path, manual_dir=tmp_path / "nowhere")
