"""A folder of versions: found, joined, compared with one another, step by step."""

import dataclasses
import json
import re

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from churn_compare import versions as module
from churn_compare.comparison import compare
from churn_compare.documents import html_page, plain_text, print_document
from churn_compare.gates import Gate
from churn_compare.verdict import versions_sentences
from churn_compare.versions import compare_versions, find_versions, natural_order
from tests.cases import csv_file, fails
from tests.html_page import Page

EXAMPLES, CLASSES = 60, 4
QUICK = {"resamples": 100, "regressions": 3}


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            "v10.csv v2.npz v1.csv.gz .b.csv c/d.csv",
            "v1=v1.csv.gz v2=v2.npz v10=v10.csv",
        ),
        # Numbers and minutes, which are no parts.
        ("part1.csv part2.csv", "part1=part1.csv part2=part2.csv"),
        (
            "m_202611281200.csv m_202611281201.csv",
            "m_202611281200=m_202611281200.csv m_202611281201=m_202611281201.csv",
        ),
        # Folders of parts, and a folder for each version.
        ("a.csv/part-00000.csv b/part-00000.csv b/_SUCCESS", "a=a.csv b=b"),
        ("a/predictions.csv/part-00000.csv b.npy", "a=a/predictions.csv b=b.npy"),
        ("b.npy a/predictions.npz a/predictions-c.npz", "a=a/predictions.npz b=b.npy"),
    ],
)
def test_versions_are_found_in_the_order_of_their_numbers(tmp_path, files, found):
    versions = find_versions(touch(tmp_path, *files.split()))
    paths = (path.relative_to(tmp_path) for path in versions.paths)
    assert [f"{n}={p}" for n, p in zip(versions.names, paths)] == found.split()
    left = ("Left out, since they have no predictions: c.",)
    assert versions.notes == (left if "c/d.csv" in files else ())
    assert sorted(["b", "A", "a"], key=natural_order) == ["A", "a", "b"]


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ({"methods": [{"name": n} for n in ("z", "a", "unfinished", "b")]}, "zab"),
        ([], "abz"),
        (None, "abz"),
        ({"methods": [1]}, "abz"),
    ],
)
def test_a_study_has_the_order_of_its_rows(tmp_path, record, names):
    touch(tmp_path, *(f"methods/{row}/predictions.npz" for row in ("b", "a", "z")))
    touch(tmp_path, "examples.npz")
    (tmp_path / "study.json").write_text(json.dumps(record))
    assert find_versions(tmp_path).names == tuple(names)
    (tmp_path / "study.json").write_text("{")
    assert find_versions(tmp_path).names == ("a", "b", "z")


@pytest.mark.parametrize(
    ("names", "order", "message"),
    [
        ((), None, "none found"),
        (("a.csv",), None, "only 'a' found"),
        (("a.csv", "b.csv"), ["a"], "only 'a' found"),
        (("part-00000-a.csv", "part-00001-a.csv"), None, "its 2 files, such as"),
        (("index.json", "a.csv"), None, "are the shards of one version"),
        (("a_000000000000.csv", "a_000000000001.csv"), None, "its 2 files, such as"),
        (("x=1/a.csv", "x=2/a.csv"), None, "are parts of one table, not versions"),
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
    fails(message, find_versions, touch(tmp_path, *names), order)
    fails("x: the folder of versions does not", find_versions, tmp_path / "x")
    file = touch(tmp_path, "x") / "x"
    fails("x: the folder of versions is a file", find_versions, file)


@pytest.fixture(scope="module")
def made():
    """Ids, labels, and logits of four versions, the later the better."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, EXAMPLES)
    noise = 0.7 * draw.normal(size=(4, EXAMPLES, CLASSES))
    better = 0.4 * np.arange(1, 5)[:, None, None] * np.eye(CLASSES)[labels]
    logits = draw.normal(size=(EXAMPLES, CLASSES)) + noise + better
    return np.arange(EXAMPLES) * 3 + 100, labels, logits.astype(np.float32)


def write(folder, made, rows=(slice(None),) * 4):
    """v1.npz, v2.csv, v3.parquet and v10.npz, each in the order of its `rows`."""
    ids, labels, logits = made
    folder.mkdir(exist_ok=True)
    names = ("v1.npz", "v2.csv", "v3.parquet", "v10.npz")
    for name, scores, of in zip(names, logits, rows, strict=True):
        columns = {f"logit_{c}": scores[of, c] for c in range(CLASSES)}
        table = pa.table({"id": ids[of], "label": labels[of], **columns})
        if name.endswith(".csv"):
            csv_file(folder / name, **table.to_pydict())
        elif name.endswith(".parquet"):
            pyarrow.parquet.write_table(table, folder / name)
        else:
            np.savez(folder / name, ids=ids[of], labels=labels[of], logits=scores[of])
    return folder


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    return write(tmp_path_factory.mktemp("versions"), made)


@pytest.fixture(scope="module")
def found(folder):
    return compare_versions(folder, **QUICK)


def test_every_version_is_compared_with_every_other(found, made):
    _, labels, logits = made
    assert found.names == ("v1", "v2", "v3", "v10")
    assert found.examples == EXAMPLES
    predicted = logits.argmax(-1)
    right = predicted == labels
    for i in range(4):
        assert found.accuracy[i].value == pytest.approx(right[i].mean())
        for j in range(4):
            if i != j:
                churn, flips = predicted[i] != predicted[j], right[i] & ~right[j]
                assert found.churn[i, j] == pytest.approx(churn.mean())
                assert found.negative_flip_rate[i, j] == pytest.approx(flips.mean())
    assert found.whole["churn"].value == pytest.approx(found.churn[0, 3])
    differs = predicted != predicted[3]
    assert found.ambiguity == pytest.approx(differs.any(axis=0).mean())
    assert found.discrepancy == pytest.approx(differs.mean(axis=1).max())
    gain = right[3].mean() - right[0].mean()
    assert found.whole["accuracy_gain"].value == pytest.approx(gain)
    for i, step in enumerate(found.steps):
        rate = found.relative_negative_flip_rate[i, i + 1]
        assert step["churn"].value == pytest.approx(found.churn[i, i + 1])
        assert step["relative_negative_flip_rate"].value == pytest.approx(rate)
    for name in ("churn", "negative_flip_rate"):
        matrix = getattr(found, name)
        added = sum(matrix[i, i + 1] for i in range(3))
        assert found.step_sum(name) == pytest.approx(added)
        assert added >= matrix[0, 3]


def test_a_step_is_what_compare_finds_of_the_two_files(found, folder):
    step = found.steps[1]
    alone = compare(folder / "v2.csv", folder / "v3.parquet", **QUICK)
    assert (step.old.name, alone.old.name) == ("v2", "v2.csv")
    versions = {"old": step.old, "new": step.new, "notes": step.notes}
    assert dataclasses.replace(alone, **versions).to_dict() == step.to_dict()


def test_the_order_of_rows_changes_nothing(found, tmp_path, made, rng):
    rows = [rng.permutation(EXAMPLES) for _ in range(4)]
    again = compare_versions(write(tmp_path / "moved", made, rows), **QUICK)
    assert again.to_dict() == found.to_dict()


def test_examples_that_some_version_lacks_are_left_out_knowingly(tmp_path, made):
    _, labels, logits = made
    every = np.arange(EXAMPLES)
    rows = (every, np.delete(every, [3]), np.delete(every, [7, 8])[::-1], every)
    folder = write(tmp_path, made, rows)
    fails(r"103|109", compare_versions, folder, **QUICK)
    fails("have ids of their own", compare_versions, folder, ids=every, **QUICK)
    found = compare_versions(folder, on_missing="intersect", **QUICK)
    both = np.delete(every, [3, 7, 8])
    predicted = logits[:, both].argmax(-1)
    assert found.examples == len(both)
    assert {step.examples for step in (*found.steps, found.whole)} == {len(both)}
    for i in range(4):
        assert found.accuracy[i].value == np.mean(predicted[i] == labels[both])
        for j in range(i):
            churn = np.mean(predicted[i] != predicted[j])
            assert found.churn[i, j] == found.churn[j, i] == pytest.approx(churn)


def test_rows_without_ids_and_files_about_all_versions(tmp_path, made):
    _, labels, logits = made
    for name, scores in zip("abc", logits, strict=False):
        np.save(tmp_path / f"{name}.npy", scores)
    np.save(tmp_path / "labels.npy", labels)
    groups = np.where(np.arange(EXAMPLES) % 3, "many", "few")
    csv_file(tmp_path / "slices.csv", group=groups)
    found = compare_versions(tmp_path, kind="logits", **QUICK)
    assert found.accuracy[0].value == np.mean(logits[0].argmax(-1) == labels)
    for step in (*found.steps, found.whole):
        assert {g.name for g in step.groups if g.grouping == "group"} == {"many", "few"}


def test_without_labels_there_is_churn_alone(tmp_path, made):
    for name, scores in zip("ab", made[2], strict=False):
        np.save(tmp_path / f"{name}.npy", scores)
    found = compare_versions(tmp_path, kind="logits", **QUICK)
    assert not found.labelled
    assert found.accuracy == ()
    assert found.whole is found.steps[0]
    assert "NFR" not in str(found)
    assert "Churn %" not in str(found)  # a matrix of two says nothing more
    assert found.to_dict()["negative_flip_rate"] is None
    assert found._repr_html_().startswith("<div")


@pytest.mark.parametrize(("names", "labels"), [("abc", [0, 1, 2]), ("201", [2, 0, 1])])
def test_labels_of_one_version_keep_the_names_of_its_classes(tmp_path, names, labels):
    """Places in the names of that version, or the names where these are numbers."""
    logits, ids = np.eye(3), np.arange(3)
    first = {"logits": logits, "ids": ids, "class_names": list(names)}
    other = {"logits": logits[:, ::-1], "ids": ids, "class_names": list(names[::-1])}
    np.savez(tmp_path / "v1.npz", **first, labels=labels)
    np.savez(tmp_path / "v2.npz", **other)
    np.savez(tmp_path / "v3.npz", **other)
    found = compare_versions(tmp_path, **QUICK)
    assert [a.value for a in found.accuracy] == [1.0, 1.0, 1.0]


def test_classes_are_matched_by_name_over_all_versions(tmp_path):
    """v2 has the classes in another order, and v3 knows one more than v2."""
    names = (["ant", "bee"], ["bee", "ant"], ["bee", "cat", "ant"], ["cat", "bee"])
    said = ("ant bee bee", "ant ant bee", "ant cat bee", "bee cat cat")
    words = [text.split() for text in said]
    for v, (classes, of) in enumerate(zip(names, words, strict=True), start=1):
        scores = {f"logit_{n}": [float(word == n) for word in of] for n in classes}
        label = ["ant", "bee", "bee"]
        csv_file(tmp_path / f"v{v}.csv", id=[1, 2, 3], label=label, **scores)
    found = compare_versions(tmp_path, **QUICK)
    assert [3 * a.value for a in found.accuracy] == pytest.approx([3, 2, 2, 0])
    for i in range(4):
        for j in range(4):
            differ = sum(a != b for a, b in zip(words[i], words[j], strict=True))
            expected = differ / 3 if i != j else np.nan
            np.testing.assert_allclose(found.churn[i, j], expected)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_scores_beyond_the_memory_wait_on_the_disk(dtype, made, tmp_path, monkeypatch):
    for v, logits in enumerate(made[2]):
        np.savez_compressed(tmp_path / f"v{v}.npz", logits=logits.astype(dtype))
    found = compare_versions(tmp_path, **QUICK).to_dict()
    monkeypatch.setattr(module, "_IN_MEMORY", 0)
    assert compare_versions(tmp_path, **QUICK).to_dict() == found


def test_versions_that_do_not_fit_together_are_refused(tmp_path, made):
    ids, labels, logits = made
    for name, value, error in (
        ("class_map", {0: 1}, ValueError),
        ("class_map", "map.json", ValueError),
        ("seeds", 1, TypeError),
        ("level", 2, ValueError),
    ):
        said = name.replace("class_map", "class map is for two versions")
        fails(said, compare_versions, "no folder", **{name: value}, of=error)
    for v, rows in enumerate((slice(0, 30), slice(20, 50), slice(40, 60))):
        np.savez(tmp_path / f"v{v}.npz", ids=ids[rows], logits=logits[v][rows])
    said, few = "no example that all versions have", {"on_missing": "intersect"}
    fails(said, compare_versions, tmp_path, **few, **QUICK)
    for v in range(3):
        others = {"labels": (labels + v) % 4, "logits": logits[v]}
        np.savez(tmp_path / f"v{v}.npz", ids=ids, **others)
    fails("label", compare_versions, tmp_path, **QUICK)


NAMES = ("v0", "v1", "v2", "v3", "v4<script>alert(1)<_script>")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Five versions, the third with two runs, one with an awkward name."""
    folder = tmp_path_factory.mktemp("versions")
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 80)
    hard = draw.normal(size=(80, 3))
    for v, runs in enumerate((1, 1, 2, 1)):
        noise = 0.6 * draw.normal(size=(runs, 80, 3))
        logits = hard + noise + 0.5 * v * np.eye(3)[labels]
        np.savez(folder / f"{NAMES[v]}.npz", logits=logits, ids=np.arange(80))
    np.savez(folder / f"{NAMES[4]}.npz", logits=hard[None])
    np.save(folder / "labels.npy", labels)
    csv_file(folder / "ids.csv", id=range(80))
    gates = [Gate("churn", 0.3), Gate("negative_flip_rate", 0.0)]
    return compare_versions(folder, gates=gates, resamples=100, regressions=25)


@pytest.fixture(scope="module")
def page(result):
    return html_page(result.document("churn-jax compare versions"))


def test_the_page_has_every_part_and_links_to_each_update(page):
    read = Page(page)
    anchors = [*(f"update-{i}" for i in range(1, 5)), "first-to-last"]
    assert read.of("href") == [f"#{anchor}" for anchor in anchors]
    ids = read.of("id")
    assert [i for i in ids if i in anchors] == anchors and len(set(ids)) == len(ids)
    assert "alert(1)" in page and "<script>" not in page
    assert not re.search(r'(src|href)="(?!#)', page.replace("xmlns:xlink", ""))
    assert "FAILED: " in page and "Accuracy goes from" in page
    assert "Every version against every other" in page and "Relative NFR" in page
    assert "Largest regressions, " in page and "What was run" in page
    assert "churn-jax compare versions" in page
    assert "<svg" not in page and "color-mix" in page  # matrices are heat maps


def test_the_text_fits_and_says_the_sentences(result, capsys):
    text = str(result)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(("PASS ", "FAIL ")) for line in lines) == 8
    assert text == plain_text(result.terminal())
    print_document(result.terminal())
    printed = " ".join(capsys.readouterr().out.split())
    for sentence in versions_sentences(result):
        assert " ".join(sentence.split()) in printed
    assert "Relative NFR" in plain_text(result.terminal(full=True))
    assert re.search(r"^1\s+v0\s", text, re.M)  # names are too long for columns


def test_files_hold_what_was_found_the_same_every_time(result, page, tmp_path):
    file = result.save_html(tmp_path / "a.html", command="churn-jax compare versions")
    assert file.read_text(encoding="utf-8") == page
    record = json.loads(result.save_json(tmp_path / "a.json").read_text())
    assert record == json.loads(json.dumps(result.to_dict()))
    assert record["versions"] == list(NAMES)
    assert record["churn"][0][0] is None
    assert record["churn"][2][2] > 0  # two runs of one version
    assert record["churn"][0][1] == result.churn[0, 1]
    assert record["steps"][0]["quantities"]["churn"]["value"] == result.churn[0, 1]
    assert record["first_to_last"]["examples"] == 80
    assert record["passed"] is False


def test_sentences_say_whether_flips_accumulate_or_cancel(result):
    said = " ".join(versions_sentences(result))
    gone = 1 - result.whole["churn"].value / result.step_sum("churn")
    assert gone > 0.05
    assert f"{100 * gone:.1f} % cancel out, in examples that change more" in said
    assert said.endswith("which is what retraining alone changes.")


@pytest.mark.parametrize("fresh", [False, True])
def test_updates_that_are_run_by_run_are_so_in_every_number(tmp_path, rng, fresh):
    """Each version changes runs of the one before; the last may be trained anew."""
    labels, versions = rng.integers(0, 9, 900), [rng.integers(0, 9, (3, 900))]
    for _ in range(3):
        changed = np.where(rng.random((3, 900)) < 0.06, 0, versions[-1])
        versions.append(changed)
    if fresh:
        versions[-1] = rng.integers(0, 9, (3, 900))
    for v, runs in enumerate(versions):
        np.savez(tmp_path / f"v{v}.npz", predictions=runs, ids=np.arange(900))
    found = compare_versions(tmp_path, labels=labels, **QUICK)
    assert [step.paired for step in found.steps] == [True, True, not fresh]
    for i in range(4):
        for j in range(i):
            first, second = versions[i], versions[j]
            if fresh and i == 3:
                first, second = first[:, None], second[None]
            assert found.churn[i, j] == pytest.approx(np.mean(first != second))
    assert found.whole["churn"].value == pytest.approx(found.churn[0, 3])
    text = " ".join(plain_text(found.terminal(full=True)).split())
    assert ("updates add up to" in text) == (not fresh)
    assert "of the same name, where all updates between are compared so" in text
    assert "Some run of a version gives" in text
