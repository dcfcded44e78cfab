"""Which files of a folder are versions, and in what order."""

import json

import pytest

from churn_jax.comparison.version_files import find_versions, natural_order
from churn_jax.predictions import PredictionsError


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_numbers_in_names_sort_as_numbers(tmp_path):
    folder = touch(tmp_path, "v10.csv", "v2.npz", "v1.parquet", "v3.csv.gz", "v4.npy")
    found = find_versions(folder)
    assert found.names == ("v1", "v2", "v3", "v4", "v10")
    assert [path.name for path in found.paths][:2] == ["v1.parquet", "v2.npz"]
    assert found.notes == ()


def test_names_that_differ_in_case_alone_have_one_order():
    assert natural_order("a1") != natural_order("A1")
    assert sorted(["b", "A", "a"], key=natural_order) == ["A", "a", "b"]


def test_files_about_all_versions_are_none(tmp_path):
    names = ("labels.npy", "ids.csv", "slices.parquet", "notes.txt", ".hidden.csv")
    found = find_versions(touch(tmp_path, "a.csv", "b.csv", *names))
    assert found.names == ("a", "b")
    assert {k: path.name for k, path in found.beside.items()} == {
        "labels": "labels.npy",
        "ids": "ids.csv",
        "slices": "slices.parquet",
    }


def test_a_file_that_was_given_otherwise_is_no_version(tmp_path):
    touch(tmp_path, "a.csv", "b.csv", "truth.csv")
    found = find_versions(tmp_path, used=[tmp_path / "truth.csv"])
    assert found.names == ("a", "b")


def test_a_folder_for_each_version(tmp_path):
    touch(tmp_path, "v2/predictions.npz", "v1/predictions.parquet", "logs/a.csv")
    touch(tmp_path, "v2/predictions-validation.npz", "v3.npy")
    found = find_versions(tmp_path)
    assert found.names == ("v1", "v2", "v3")
    assert found.paths[1] == tmp_path / "v2" / "predictions.npz"


def study(folder, text):
    touch(folder, *(f"methods/{row}/predictions.npz" for row in ("b", "a", "z")))
    touch(folder, "examples.npz")
    (folder / "study.json").write_text(text)
    return folder


def test_a_study_has_the_order_of_its_rows(tmp_path):
    rows = [{"name": name} for name in ("z", "a", "unfinished", "b")]
    found = find_versions(study(tmp_path, json.dumps({"methods": rows})))
    assert found.names == ("z", "a", "b")


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"methods": [1]}'])
def test_rows_of_a_study_without_a_record_sort_by_name(tmp_path, text):
    assert find_versions(study(tmp_path, text)).names == ("a", "b", "z")


def test_an_order_chooses_versions_and_says_what_it_leaves_out(tmp_path):
    touch(tmp_path, "a.csv", "b.csv", "c.csv")
    found = find_versions(tmp_path, order=["c", "a"])
    assert found.names == ("c", "a")
    assert found.notes == ("Left out, since the order does not name them: 'b'.",)


@pytest.mark.parametrize(
    ("names", "order", "message"),
    [
        ((), None, "none found"),
        (("a.csv",), None, "only 'a' found"),
        (("a.csv", "b.csv"), ["a"], "only 'a' found"),
        (("a.csv", "a.npz"), None, "both called 'a'"),
        (("a.csv", "a/predictions.npz"), None, "both called 'a'"),
        (("labels.csv", "labels.npy", "a.csv"), None, "both called 'labels'"),
        (("a/predictions.npz", "a/predictions.csv"), None, "only one can be"),
        (("a/predictions.npz", "a/predictions/index.json"), None, "only one can be"),
        (("a.csv", "b.csv"), ["a", "x"], "1 of the 2 versions .* 'x'; it has 'a', 'b'"),
        (("a.csv", "b.csv"), ["a", "b", "a"], "names 'a' more than once"),
    ],
)
def test_what_cannot_be_told_is_one_sentence(tmp_path, names, order, message):
    with pytest.raises(PredictionsError, match=message):
        find_versions(touch(tmp_path, *names), order)


def test_a_folder_must_be_there(tmp_path):
    with pytest.raises(PredictionsError, match="x: the folder of versions does not"):
        find_versions(tmp_path / "x")
    with pytest.raises(PredictionsError, match="csv: the folder of versions is a f"):
        find_versions(touch(tmp_path, "a.csv") / "a.csv")
