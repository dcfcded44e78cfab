"""The pass over the scores next to float64 NumPy, in any order of the files."""

import dataclasses
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from churn_compare import scanning, stored_logits
from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_compare.pair import Pair, Table
from churn_compare.reading.join import join
from churn_compare.reading.sides import read_side
from churn_compare.scanning import scan
from churn_compare.stored_logits import StoredLogits
from tests.cases import fails, pair_of

KINDS = ("logits", "probabilities")


def softmax(values):
    return special.softmax(values, axis=-1)


def scores(seed, shape=(1, 60, 7), kind="logits", dtype=np.float32):
    values = 3 * np.random.default_rng(seed).normal(size=shape)
    return (values if kind == "logits" else softmax(values)).astype(dtype)


def log_probs(values, kind):
    values = np.asarray(values, np.float64)
    if kind == "probabilities":
        with np.errstate(divide="ignore"):
            values = np.log(values)
    values = values - values.max(-1, keepdims=True)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def reference_side(values, kind, labels):
    """What is kept of one side in which class c is class c, `[R, N]`."""
    logs = log_probs(values, kind)
    probs = np.exp(logs)
    classes = max(logs.shape[-1], labels.max() + 1)
    target = np.eye(classes)[labels]
    padded = np.zeros((*probs.shape[:2], classes))
    padded[..., : probs.shape[-1]] = probs
    with np.errstate(divide="ignore"):
        own = np.log(np.take_along_axis(padded, labels[None, :, None], -1)[..., 0])
    found = {"predicted": np.argmax(values, -1), "confidence": probs.max(-1)}
    brier = ((padded - target) ** 2).sum(-1)
    return found | {"label_log_prob": own, "brier": brier}


def assert_close(a, b, rtol=1e-5):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7)


def assert_same(found, wanted, rtol=0):
    """Asserts that two passes kept the same numbers."""
    for a, b in ((found, wanted), (found.old, wanted.old), (found.new, wanted.new)):
        for name, value in vars(a).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_allclose(value, getattr(b, name), rtol, err_msg=name)


@pytest.mark.parametrize("kinds", [(a, b) for a in KINDS for b in KINDS])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numbers_are_those_of_float64(kinds, dtype):
    old = scores(0, (2, 60, 7), kinds[0], dtype)
    new = scores(1, (3, 60, 7), kinds[1], dtype)
    labels = np.random.default_rng(2).integers(0, 9, 60)  # two classes nobody knows
    _, found = pair_of(old, new, labels, kinds)
    for side, values, kind in ((found.old, old, kinds[0]), (found.new, new, kinds[1])):
        for name, value in reference_side(values, kind, labels).items():
            assert_close(getattr(side, name), value)
    p, q = log_probs(old, kinds[0])[:, None], log_probs(new, kinds[1])[None]
    ratios = [np.exp(v - v.max(-1, keepdims=True)) for v in (p, q)]
    apart = np.abs(ratios[0] - ratios[1]).sum(-1) / 2
    assert_close(found.surrogate, apart)
    with np.errstate(invalid="ignore"):  # 0 log 0 is 0
        kl = np.nansum(np.exp(p) * (p - q), axis=-1)
    np.testing.assert_allclose(found.kl, kl, rtol=1e-4, atol=1e-5)


def test_near_certainty_and_far_from_it_nothing_cancels():
    sure = np.array([[[20.0, 0.0, 1.0]]])
    _, found = pair_of(sure, sure, labels=np.array([0]))
    logs = log_probs(sure, "logits")[0, 0]
    p = np.exp(logs)
    wanted = -np.log1p((p[1] + p[2]) / p[0])
    np.testing.assert_allclose(found.old.label_log_prob, [[wanted]], rtol=1e-6)
    wanted = (p[1] + p[2]) ** 2 + p[1] ** 2 + p[2] ** 2
    np.testing.assert_allclose(found.old.brier, [[wanted]], rtol=1e-6)
    far = np.array([[[0.0, -90.0, -300.0]] * 3])
    _, found = pair_of(far, -far, labels=np.array([0, 1, 2]))
    assert_close(found.old.label_log_prob, [[0.0, -90.0, -300.0]])
    assert_close(found.old.brier, [[0.0, 2.0, 2.0]])
    assert_close(found.surrogate, [[[1.0] * 3]])


def test_blocks_of_rows_change_nothing(monkeypatch):
    old, new = scores(0, (2, 103, 7)), scores(1, (1, 103, 7), "probabilities")
    labels = np.random.default_rng(2).integers(0, 7, 103)
    pair, whole = pair_of(old, new, labels, KINDS)
    for size in (1, 1000, 5000):
        monkeypatch.setattr(scanning, "_BLOCK_BYTES", size)
        assert_same(scan(pair), whole, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("ascending", ["a b c", "2 9 10", "2 10 a", "c10 c9 d"])
def test_ties_go_to_the_first_class_by_name_on_both_sides(ascending, dtype, kind):
    """Whatever the order of the columns, with labels and without."""
    names = np.array(ascending.split())
    values = np.random.default_rng(0).integers(1, 3, (1, 200, 3)).astype(dtype)
    if kind == "probabilities":
        values /= values.sum(-1, keepdims=True)
    best = names[values[0].argmax(axis=-1)].tolist()
    tied = (values[0] == values[0].max(-1, keepdims=True)).sum(-1) > 1
    for old_order, new_order in (([0, 1, 2], [2, 1, 0]), ([1, 2, 0], [2, 0, 1])):
        sides = (
            Table(name, kind, values[..., order], tuple(names[order]))
            for name, order in (("old", old_order), ("new", new_order))
        )
        pair = join(*sides, labels=names[np.arange(200) % 3])
        for found in (scan(pair), scan(dataclasses.replace(pair, labels=None))):
            for side in (found.old, found.new):
                assert [pair.class_name(c) for c in side.predicted[0]] == best
                assert side.ties == tied.sum() > 20


def test_rows_and_classes_are_taken_where_the_pair_says():
    old, new = scores(0, (1, 40, 4)), scores(1, (1, 50, 5))
    labels = np.random.default_rng(2).integers(0, 6, 30)
    rng = np.random.default_rng(3)
    old_rows, new_rows = rng.permutation(40)[:30], rng.permutation(50)[:30]
    old_columns, new_columns = np.array([5, 0, 2, 3]), np.array([2, 1, 0, 4, 5])
    columns = {"old_columns": old_columns, "new_columns": new_columns}
    rows = {"ids": np.arange(30), "old_rows": old_rows, "new_rows": new_rows}
    _, found = pair_of(old, new, labels, **rows, **columns)
    wide = [np.full((1, 30, 6), -np.inf) for _ in range(2)]
    wide[0][..., old_columns] = old[:, old_rows]
    wide[1][..., new_columns] = new[:, new_rows]
    for side, values in ((found.old, wide[0]), (found.new, wide[1])):
        for name, value in reference_side(values, "logits", labels).items():
            assert_close(getattr(side, name), value)
    ratios = [np.exp(v - v.max(-1, keepdims=True)) for v in wide]
    assert_close(found.surrogate[0], np.abs(ratios[0] - ratios[1]).sum(-1) / 2)
    assert found.kl is None  # class 3 is of the old side only
    assert pair_of([[[0.0, 0.0]]], [[[1.0, 1.0, 3.0]]])[1].kl is not None


@pytest.mark.parametrize("nothing", [-np.inf, UNKNOWN_LOGIT, np.finfo(np.float32).min])
def test_classes_that_a_row_excludes_are_unknown_there(nothing):
    old = np.array([[[1.0, 2.0, 0.0], [1.0, 2.0, nothing]]], np.float32)
    new = np.array([[[2.0, 1.0, 3.0], [2.0, 1.0, 3.0]]], np.float32)
    _, found = pair_of(old, new, labels=np.array([2, 2]))
    assert found.old.label_log_prob[0, 1] == -np.inf
    assert np.isfinite(found.old.label_log_prob[0, 0])
    assert np.isfinite(found.kl).all()
    _, back = pair_of(new, old)
    assert np.isfinite(back.kl[0, 0, 0]) and back.kl[0, 0, 1] == np.inf
    shares = (softmax(np.maximum(of, -1e9)) for of in (new, old))
    assert_close(pair_of(*shares, kinds=KINDS[1:] * 2)[1].kl, back.kl)


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("logits", [np.nan, 1, 2], "2 of 60 examples have NaN logits"),
        ("logits", [np.inf, 1, 2], "2 of 60 examples have infinite logits"),
        ("logits", [-np.inf] * 3, "2 of 60 examples have no finite entry in their"),
        ("probabilities", [np.nan, 1, 0], "2 of 60 examples have NaN probabilities"),
        ("probabilities", [-0.1, 1.1, 0], "2 of 60 examples have negative"),
        ("probabilities", [0.5, 0.3, 0.1], "2 of 60 .* do not sum to one"),
        ("probabilities", [0, 0, 0], "2 of 60 .* do not sum to one"),
        ("probabilities", [50, 30, 20], "2 of 60 .* sum to 100 .percent"),
    ],
)
def test_bad_scores_are_counted_and_named(kind, row, message, monkeypatch):
    monkeypatch.setattr(scanning, "_BLOCK_BYTES", 1000)
    new = scores(0, (1, 60, 3), kind)
    new[0, [5, 55]] = row
    ids = np.array([f"image {i}" for i in range(60)])
    said = f"^new: .*{message}.*for example ids image 5, image 55$"
    fails(said, pair_of, scores(1, (1, 60, 3)), new, kinds=("logits", kind), ids=ids)


def test_every_fault_of_both_sides_is_told_with_its_run():
    old, new = scores(0, (2, 60, 3)), scores(1, (1, 60, 3))
    old[1, 7, 0], old[:, 9, 0], new[0, :, 0] = np.nan, np.nan, np.inf
    said = r"^old: 2 of 60 examples have NaN logits, for example ids 7 \(run 1\), "
    said += r"9 \(run 0\); new: 60 of 60 .* infinite logits, .* ids 0, 1, 2, \.\.\.$"
    fails(said, pair_of, old, new)
    side = Table("old.csv", "classes", np.array([[0, -1, 5, 1]]), ("a", "b"))
    fails(r"2 of 4 .* from 0 to 1, .* 1, 2", scan, Pair(side, side, np.arange(4), 2))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("digits", "classes"), [(3, 5), (2, 7), (4, 60)])
def test_probabilities_of_a_few_digits_still_sum_to_one(digits, classes, dtype):
    probs = np.round(scores(0, (1, 2000, classes), "probabilities"), digits)
    off = np.abs(probs.sum(-1) - 1).max()
    assert off > 1e-3 or digits == 4
    pair_of(probs.astype(dtype), probs, kinds=KINDS[1:] * 2)
    probs[0, 7, 0] += round(off + classes * 10.0**-digits, digits)
    sides = probs.astype(dtype), probs
    fails("^old: 1 of 2000 .* sum to one", pair_of, *sides, kinds=KINDS[1:] * 2)


N, C, R = 30, 4, 2


@pytest.mark.parametrize("case", ["same", "different", "one", "part"])
def test_the_order_of_reading_changes_nothing(case, rng, monkeypatch):
    order = rng.permutation(N)
    orders = {
        "same": (order, order),
        "different": (order, rng.permutation(N)),
        "one": (order, np.arange(N)),
        "part": (order[3:], order[:-4]),
    }
    logits = np.random.default_rng(1).normal(size=(2, R, N, C)).astype(np.float32)
    labels, names = np.arange(N) % C, ("old", "new")
    sides = [
        read_side({"logits": z[:, order], "labels": labels[order], "ids": order}, name)
        for z, order, name in zip(logits, orders[case], names)
    ]
    pair, picked = join(*sides, on_missing="intersect"), {}
    for name in names:
        side, rows = getattr(pair, name), getattr(pair, f"{name}_rows")
        values = side.values if rows is None else side.values[:, rows]
        picked[name] = dataclasses.replace(side, values=values, ids=pair.ids)
    plain = dataclasses.replace(pair, **picked, old_rows=None, new_rows=None)
    want, orders, of = scan(plain), [], StoredLogits.of
    spied = staticmethod(lambda *given: orders.append(given[1]) or of(*given))
    monkeypatch.setattr(StoredLogits, "of", spied)
    got = scan(pair)
    if case == "same":  # both files are read from first to last
        assert orders == [None, None]
    assert_same(got, want)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_memory_mapped_files_are_read_like_arrays(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_logits, "_MAPPED_BYTES", 1)  # let go after every block
    monkeypatch.setattr(scanning, "_BLOCK_BYTES", 5000)
    values = scores(0, (400, 9), dtype=np.float16), scores(1, (400, 9))
    mapped = []
    for i, of in enumerate(values):
        np.save(tmp_path / f"{i}.npy", of)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode=mode))
    if mode == "c":  # changes in a private mapping survive
        values[0][:, 3] = mapped[0][:, 3] = 99.0
    rows = np.random.default_rng(0).permutation(400)
    _, a = pair_of(*(side[None] for side in values), old_rows=rows)
    for _ in range(2):
        _, b = pair_of(*(side[None] for side in mapped), old_rows=rows)
        assert_same(a, b)
    assert np.array_equal(mapped[0], values[0])


def mapped_bytes(path):
    """Bytes of a mapped file that are in this process's memory."""
    own, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            own = line.endswith(str(path))
        elif own and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_mapped_files_do_not_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_logits, "_MAPPED_BYTES", 1 << 20)
    path = tmp_path / "scores.npy"
    np.lib.format.open_memmap(path, "w+", np.float16, (16_000, 1000))[:] = 0
    mapped = np.load(path, mmap_mode="r")
    float(mapped.max())
    assert mapped_bytes(path) > 30e6  # what a pass leaves that does not care
    pair_of(mapped[None], mapped[None])
    assert mapped_bytes(path) < 8e6


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_an_unknown_class_is_impossible_and_its_logit_finite(dtype):
    logits = np.array([3.0, -20.0, UNKNOWN_LOGIT], dtype)
    probs = softmax(logits.astype(np.float32))
    assert probs[2] == 0.0 and probs[1] > 0.0
    assert 0.0 * logits[2] == 0.0
    np.testing.assert_array_equal(known_classes(logits), [True, True, False])
    logits = np.array([0.0, -np.inf, np.inf, np.nan, 0.5 * UNKNOWN_LOGIT, -4999.0])
    expected = [True, False, True, True, False, True]
    np.testing.assert_array_equal(known_classes(logits), expected)
