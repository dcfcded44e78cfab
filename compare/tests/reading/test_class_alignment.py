"""Classes of two versions as one list: by number, by name or by a class map."""

import dataclasses
import json

import numpy as np
import pytest

from churn_compare import join, read_side, scan
from churn_compare.reading.class_alignment import read_class_map
from tests.cases import fails
from tests.reading.sides import N, classes_of, old_and_new, refused, scores_of

ANIMALS = ["cat", "dog", "fox"]


def test_other_numbers_of_classes_need_a_class_map():
    old = scores_of("old")
    refused("old has 3 classes and new 4; give a class map", old, scores_of("new", C=4))
    pair = join(old, scores_of("new", C=4), class_map="identity")
    assert (pair.classes, pair.class_names, pair.old_columns) == (4, None, None)
    assert pair.notes[1:] == ("1 of 4 classes are only in new: 3.",)
    new, mapping = scores_of("new", C=2), {0: 1, 2: 0}
    pair = join(old, new, class_map=mapping)
    assert pair.class_names == ("0", "1", "1 (old)")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.notes[1:] == ("1 of 3 classes are only in old: 1 (old).",)
    before, now = old_and_new(pair)
    assert before == ["1", "1 (old)", "0"] * 3
    assert now == (["0", "1"] * 5)[:N]
    # Labels of a side are in its own classes, separate ones in those of the new side.
    labelled = scores_of("old", labels=np.arange(N) % 3)
    assert join(labelled, new, class_map=mapping).labels.tolist() == [1, 2, 0] * 3
    pair = join(old, new, labels=[1] * N, class_map=mapping)
    assert pair.labels.tolist() == [1] * N


def test_labels_may_be_of_classes_that_one_side_does_not_know():
    labels = np.arange(N) % 4
    two, four = scores_of("old", C=2, labels=labels), scores_of("new", C=4)
    pair = join(two, four, class_map="identity")
    assert pair.classes == 4
    np.testing.assert_array_equal(pair.labels, labels)
    old, new = scores_of("old"), scores_of("new")
    refused(r"labels of 2 of 9 .* of no class.* 3; the", old, new, labels=labels)
    pair = join(classes_of("old", labels % 2), scores_of("new", C=2), labels=labels)
    assert pair.classes == 4  # predicted classes do not say how many classes there are
    wrong = np.zeros((N, 2))
    refused(r"labels must have shape \[N\]; got \(9, 2", old, new, labels=wrong)
    names = np.full(N, "cat")
    refused(r"labels are names .* class numbers", old, new, labels=names)


def test_classes_with_names_are_joined_by_name():
    old = scores_of("old", class_names=ANIMALS, labels=["dog"] * N)
    new = scores_of("new", class_names=["fox", "cat", "dog"], labels=[2] * N)
    pair = join(old, new, labels=np.full(N, "dog"))
    assert pair.class_names == ("fox", "cat", "dog")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.new_columns is None
    assert pair.labels.tolist() == [2] * N
    assert old_and_new(pair) == [ANIMALS * 3, ["fox", "cat", "dog"] * 3]
    refused("of which class names; give labels as", old, new, labels=[2] * N)
    refused("3 classes have different names at the", old, new, class_map="identity")
    named = (classes_of(name, [name] * N) for name in ("old", "new"))
    refused("1 classes have different names at the", *named, class_map="identity")
    pair = join(old, dataclasses.replace(old, name="new"), labels=[1] * N)
    assert pair.labels.tolist() == [1] * N
    assert pair.old_columns is None


def test_predicted_names_meet_columns_of_scores():
    labels = ["fox", "cat", "owl"] * 3
    old = classes_of("old", ["fox", "cat", "emu"] * 3)
    new = scores_of("new", class_names=["dog", "cat", "fox"])
    pair = join(old, new, labels=labels)
    assert pair.class_names == ("dog", "cat", "fox", "emu", "owl")
    assert old_and_new(pair) == [["fox", "cat", "emu"] * 3, ["dog", "cat", "fox"] * 3]
    assert pair.labels.tolist() == [2, 1, 4] * 3
    refused(r"3 of 9 examples are of no .* owl", new, new, labels=labels)


def test_numbers_say_nothing_about_predicted_names():
    names, numbers = ["fox", "cat", "emu"] * 3, [0, 1, 2] * 3
    old, new = (classes_of(name, names) for name in ("old", "new"))
    refused("unclear of which class names", old, new, labels=numbers)
    fails(r"are names .*, but labels are num", classes_of, "old", names, labels=numbers)
    old = classes_of("old", numbers, class_names=["x", "y", "z"], labels=[2] * N)
    pair = join(old, dataclasses.replace(old, name="new"))
    assert pair.labels.tolist() == [2] * N
    assert old_and_new(pair)[0] == ["x", "y", "z"] * 3


def test_labels_may_be_called_as_the_old_side_does():
    tabby = ["tabby"] * N
    old = classes_of("old", ["tabby", "dog", "dog"] * 3, labels=tabby)
    new = classes_of("new", ["cat", "dog", "cat"] * 3)
    pair = join(old, new, labels=tabby, class_map={"tabby": "cat"})
    assert pair.class_names == ("cat", "dog")
    assert pair.labels.tolist() == [0] * N
    new = classes_of("new", ["cat", "hund", "cat"] * 3, labels=["hund"] * N)
    old = classes_of("old", ["tabby", "dog", "dog"] * 3, labels=["dog"] * N)
    said = "labels of .* differ .*; the class map does not have dog"
    refused(said, old, new, class_map={"tabby": "cat"})


def test_numbers_as_names_are_names(tmp_path):
    old = scores_of("old", class_names=["3", "7", "1"], labels=[7] * N)
    new = scores_of("new", class_names=[1, 3, 7], labels=[7] * N)
    pair = join(old, new, labels=["7"] * N)
    assert pair.class_names == ("1", "3", "7")
    assert pair.old_columns.tolist() == [1, 2, 0]
    assert pair.labels.tolist() == [2] * N
    ids = np.arange(N)
    own = {"ids": ids, "logits": np.zeros((N, 2)), "class_names": ["1", "0"]}
    np.savez(tmp_path / "labels.npz", **own, labels=ids % 2)
    bare = [read_side(own, name) for name in ("old", "new")]
    separate = join(*bare, labels=tmp_path / "labels.npz")
    inside = join(read_side(tmp_path / "labels.npz"), bare[1])
    for pair in (separate, inside):
        assert [pair.class_name(c) for c in pair.labels[:3]] == ["0", "1", "0"]
    names = ["b", "c", "a"]  # another order than in a file of labels
    sides = [scores_of(name, ids=ids, class_names=names) for name in ("old", "new")]
    own = {"ids": ids, "labels": ids % 3, "logits": np.zeros((N, 3))}
    np.savez(tmp_path / "third.npz", **own, class_names=["a", "b", "c"])
    pair = join(*sides, labels=tmp_path / "third.npz")
    assert [pair.class_name(c) for c in pair.labels[:3]] == ["a", "b", "c"]


def test_false_and_true_are_0_and_1_where_they_meet_numbers():
    truth, numbers = [True, False, True], [1, 0, 1]
    labels = np.array(numbers)
    for other in (numbers, ["true", "false", "true"], ["TRUE", "FALSE", "TRUE"]):
        sides = [read_side({"prediction": p}) for p in (truth, other)]
        for pair in (join(*sides, labels=labels), join(*sides[::-1], labels=labels)):
            assert pair.class_names is None
            scanned = scan(pair)
            np.testing.assert_array_equal(scanned.old.predicted, [numbers])
            np.testing.assert_array_equal(scanned.new.predicted, [numbers])
            np.testing.assert_array_equal(pair.labels, labels)
    scores = {"p_True": [0.9, 0.2, 0.8], "p_False": [0.1, 0.8, 0.2], "label": truth}
    pair = join(read_side(scores, "scores"), read_side({"prediction": truth}, "truth"))
    scanned = scan(pair)
    np.testing.assert_array_equal(scanned.old.predicted, scanned.new.predicted)
    np.testing.assert_array_equal(pair.labels, scanned.new.predicted[0])


@pytest.mark.parametrize("other", ["Cat", "ｃ_a\u200bt"])
def test_classes_that_look_alike_are_refused_unless_confirmed(other):
    cat, dog = classes_of("a", ["cat", "dog"]), classes_of("b", [other, "dog"])
    message = "differ only in spelling: write .* old,new.* --confirm similar-classes"
    refused(message, cat, dog)
    refused(message, cat, cat, labels=[other, "dog"])
    pair = join(cat, dog, confirm=["similar-classes"])
    assert len(pair.class_names) == 3
    assert "differ only in spelling" in pair.notes[-1]
    both = classes_of("c", ["cat", other])  # tells one from the other, as a from A
    assert join(both, both).classes == 2
    assert join(both, cat, labels=["cat", other]).classes == 3
    refused("differ only in spelling", both, cat, labels=["dog", "dog"])


def test_composed_and_decomposed_letters_are_equal():
    one, two = "café", "cafe\u0301"
    names, ids = [one, two, "tea"], [f"{two}{i}" for i in range(3)]
    side = classes_of("a", names, labels=names, ids=[f"{one}{i}" for i in range(3)])
    assert side.class_names == (one, "tea")
    scores = {f"prob_{n}": np.full(3, 0.5) for n in ("tea", two)} | {"id": ids}
    given = {"class_map": {two: one, "tea": "tea"}, "labels": dict(zip(ids, names))}
    pair = join(side, read_side(scores, "b"), **given)
    assert pair.class_names == ("tea", one)
    assert pair.labels.tolist() == [1, 1, 0]
    scores = {f"prob_{n}": np.full(3, 0.5) for n in (one, two)}
    fails("class names must differ", read_side, scores)
    fails("ids must be unique; 1 of 2", classes_of, "a", [1, 2], ids=[one, two])


def test_space_around_names_and_ids_does_not_count():
    ids = ["x", "y", "z"]
    padded = {"ids": ["x\xa0", "\ufeffy", "z"], "labels": ["q"] * 3}
    padded = classes_of("a", ["q ", "p\u3000", "q"], **padded)
    bare = classes_of("b", ["p", "q", "q"], ids=ids)
    labels = {"x ": "q ", "y": "q", "z": "q"}
    slices = {"id": ["x", "y\t", "z"], "s": [0, 1, 1]}
    clusters = {"x ": "q ", "y": "q", "z": "p"}
    pair = join(padded, bare, labels=labels, slices=slices, clusters=clusters)
    assert pair.clusters.tolist() == [0, 0, 1]
    assert (pair.ids.tolist(), pair.labels.tolist()) == (ids, [1, 1, 1])
    assert old_and_new(pair) == [["q", "p", "q"], ["p", "q", "q"]]
    two, mapped = ["p", "q"], join(padded, bare, class_map={"p ": "q", " q": "p"})
    assert mapped.class_names == (*two,)
    for given, message in (
        ({"prediction": two, "id": ["x", "x "]}, "a: ids must be unique; 1 of 2"),
        ({"prediction": two, "id": ["x", "\t"]}, "a: ids are missing for 1 of 2"),
        ({"prediction": ["p", "\u200b"]}, "prediction are missing for 1 of 2"),
        ({"prob_p": [0, 1], "prob_p ": [1, 0]}, "class names must differ; p occur"),
        ({"logits": np.eye(2), "class_names": ["p", "p "]}, "class names must differ"),
    ):
        fails(message, read_side, given, "a")
    numbers = classes_of("a", ["1 ", "0 ", " 1"], ids=[" 7", "8 ", "9"])
    assert numbers.values.tolist() == [[1, 0, 1]] and numbers.ids.tolist() == [7, 8, 9]


def test_an_svm_that_predicts_one_class_alone_knows_the_other():
    both, one = [-1, 1, 1], [1, 1, 1]
    for sides in ((both, one), (one, both), (one, one)):
        pair = join(*(classes_of("s", of, labels=both) for of in sides))
        assert pair.labels.tolist() == [0, 1, 1]
        assert old_and_new(pair) == [[*map(str, of)] for of in sides]
    zero = classes_of("new", [0, 1, 1])
    refused("old has class names .* new class numbers", classes_of("old", both), zero)


def test_names_on_one_side_need_a_class_map():
    old, new = scores_of("old", class_names=["a", "b", "c"]), scores_of("new")
    for pair in ((old, new), (new, old)):
        refused(r"old has class names .* new class num", *pair)
        found = join(*pair, class_map="identity", labels=["b"] * N)
        assert found.class_names == ("a", "b", "c")
        assert found.labels.tolist() == [1] * N
    four, names = scores_of("new", C=4), classes_of("old", ["a"] * N)
    refused("'identity' needs as many", old, four, class_map="identity")
    message = "give a class map with names and numbers"
    refused(message, names, new, class_map="identity")
    pair = join(old, new, class_map={"a": 2, "c": 0})
    assert pair.old_columns.tolist() == [2, 3, 0]
    assert pair.class_names == ("0", "1", "2", "b (old)")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": 5}, "leads to '5', which is not a class of new"),
        ({"x": 0}, "names 'x', which is not a class of old"),
        ({"a": 1, "b": 1}, "two old classes to one new class: a and b to 1"),
        ({}, "the class map is empty"),
        ({"a": 1.5}, "must be numbers or names; got 1.5"),
        (7, "a class map is 'identity', a mapping or a file; got int"),
        ("no.json", "no.json: there is no such file"),
        ("identiti", r"no such file \(a map may also be 'identity'\)"),
    ],
)
def test_maps_that_make_no_sense(given, message):
    old = scores_of("old", class_names=["a", "b", "c"])
    refused(message, old, scores_of("new", C=2), class_map=given)


def test_a_class_that_is_mapped_leaves_its_name_to_none():
    old, new = (scores_of("s", class_names=list(names)) for names in ("abc", "bcd"))
    refused("leads to 'b', but s has a class of that", old, new, class_map={"a": "b"})
    pair = join(old, new, class_map={"a": "b", "b": "d"})
    assert pair.old_columns.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.json", "[1, 2]", "must be one object"),
        ("m.json", "3", "must be one object"),
        ("m.json", '{"a": 1, "a": 0}', "has the key 'a' twice"),
        ("m.json", "{", "cannot be read"),
        ("m.csv", "a,b\n1,2\n", "must have the columns old and new"),
        ("m.csv", "old,new\n1\n", "Expected 2 columns, got 1"),
        ("m.txt", "old,new\n1\n", "files of this kind are not read"),
    ],
)
def test_files_of_maps_that_cannot_be_read(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    fails(f"^{tmp_path / name}: .*{message}", read_class_map, tmp_path / name)


def test_a_map_is_json_or_csv(tmp_path):
    (tmp_path / "m.csv").write_text("old,new\n1,2\ncat,3\n")
    (tmp_path / "m.json").write_text(json.dumps({"1": 2, "cat": "3"}))
    for name in ("m.csv", "m.json"):
        assert read_class_map(tmp_path / name) == {"1": "2", "cat": "3"}
