"""Predictions files: whole or not at all, and one clear sentence when unusable."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from churn_compare.array_files import replace_file
from churn_compare.store import (
    Predictions,
    PredictionsError,
    check_comparable,
    load_predictions,
    save_predictions,
)


def _predictions(rng, R=3, N=7, C=4, ids=None, labels=None, meta=None):
    return Predictions(
        ids=np.arange(N) if ids is None else ids,
        labels=rng.integers(0, C, N) if labels is None else labels,
        logits=rng.normal(size=(R, N, C)).astype(np.float32),
        meta=meta or {},
    )


@pytest.mark.parametrize("ids", [np.arange(7) * 3, [f"test/{i}é" for i in range(7)]])
def test_a_saved_file_loads_as_it_was(rng, tmp_path, ids):
    saved = _predictions(rng, ids=np.asarray(ids), meta={"method": "erm", "n": [1, 2]})
    loaded = load_predictions(save_predictions(tmp_path / "a" / "p.npz", saved))
    np.testing.assert_array_equal(loaded.ids, saved.ids)
    np.testing.assert_array_equal(loaded.labels, saved.labels)
    np.testing.assert_array_equal(loaded.logits, saved.logits)
    assert loaded.meta == saved.meta
    assert loaded.logits.dtype == np.float32
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["p.npz"]


def test_a_file_of_another_framework_with_one_run_loads(rng, tmp_path):
    logits = rng.normal(size=(5, 3))
    np.savez(
        tmp_path / "p.npz", ids=np.arange(5), labels=np.zeros(5, int), logits=logits
    )
    loaded = load_predictions(tmp_path / "p.npz")
    assert loaded.logits.shape == (1, 5, 3)
    np.testing.assert_allclose(loaded.logits[0], logits, rtol=1e-6)
    assert loaded.meta == {}


def test_log_of_zero_probability_is_allowed():
    logits = np.log(np.eye(3, dtype=np.float32)[None] + 1e-30)
    logits[0, 0, 1] = -np.inf
    assert Predictions(np.arange(3), np.arange(3), logits).logits[0, 0, 1] == -np.inf
    logits[0, 2] = -np.inf  # but not for every class
    with pytest.raises(PredictionsError, match="run 0"):
        Predictions(np.arange(3), np.arange(3), logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros((7, 4))}, r"logits must have shape \[R, N, C\].*\(7, 4\)"),
        ({"logits": np.zeros((2, 7, 1))}, r"two classes; got \(2, 7, 1\)"),
        ({"logits": np.zeros((2, 6, 4))}, r"ids \(7,\) and logits \(2, 6, 4\)"),
        ({"logits": np.full((1, 7, 4), "x")}, "real numbers"),
        ({"labels": np.zeros(7)}, "labels must be integers; got float64"),
        ({"labels": np.zeros((7, 1), int)}, r"labels must have shape \[N\]"),
        ({"labels": np.array([0, -1, 0, -1, 0, 0, 0])}, "2 are negative"),
        ({"ids": np.array([0, 1, 1, 2, 2, 3, 4])}, "2 of 7 occur more than once.*1, 2"),
        ({"ids": np.zeros((7, 1), int)}, r"ids must have shape \[N\]"),
        ({"ids": np.linspace(0, 1, 7)}, "ids must be integers or strings"),
        ({"meta": 3}, "meta must be a dict; got int"),
        ({"meta": {"stopped": [5]}}, r"names runs \[5\].*only 3 runs"),
        ({"meta": {"stopped": [{"step": 1}]}}, "must list run numbers"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_shapes(rng, change, message):
    good = _predictions(rng)
    values = {n: getattr(good, n) for n in ("ids", "labels", "logits", "meta")}
    with pytest.raises(PredictionsError, match=message):
        Predictions(**(values | change))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_logits_are_refused_unless_their_run_was_stopped(rng, value):
    good = _predictions(rng)
    logits = good.logits.copy()
    logits[1, [2, 4], 0] = value
    with pytest.raises(PredictionsError, match=r"run 1 .* 2 of 7 .* ids 2, 4"):
        Predictions(good.ids, good.labels, logits)
    meta = {"stopped": [{"replica": 1, "term": "cross_entropy", "step": 3}]}
    assert Predictions(good.ids, good.labels, logits, meta).stopped == (1,)


FOREIGN = {
    r"p\.npz: .* does not exist": lambda path: None,
    "is a folder": lambda path: path.mkdir(),
    r"not a NumPy \.npz archive": lambda path: path.write_text("id,label\n"),
    r"labels, logits missing.*ids, weights": lambda path: np.savez(
        path, ids=np.arange(3), weights=np.zeros(2)
    ),
    "not a predictions file": lambda path: np.savez(path),
    "ids: it holds pickled Python objects": lambda path: np.savez(
        path, ids=np.array([{}], object), labels=np.zeros(1, int), logits=1.0
    ),
    r"p\.npz: labels and logits must have": lambda path: np.savez(
        path, ids=np.arange(3), labels=np.zeros(2, int), logits=np.eye(3)
    ),
}


@pytest.mark.parametrize("message", FOREIGN)
def test_missing_and_foreign_files_are_named(tmp_path, message):
    FOREIGN[message](tmp_path / "p.npz")
    with pytest.raises(PredictionsError, match=message):
        load_predictions(tmp_path / "p.npz")


def test_a_file_cut_anywhere_or_with_a_flipped_byte_is_refused(rng, tmp_path):
    path = save_predictions(tmp_path / "p.npz", _predictions(rng))
    whole = path.read_bytes()
    for keep in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(PredictionsError, match=r"p\.npz"):
            load_predictions(path)
    at = whole.index(b"logits.npy") + 200  # inside the stored array
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(PredictionsError, match="damaged"):
        load_predictions(path)


def test_meta_that_json_cannot_hold_is_refused_before_writing(rng, tmp_path):
    bad = _predictions(rng, meta={"f": object()})
    with pytest.raises(PredictionsError, match="JSON-ready"):
        save_predictions(tmp_path / "p.npz", bad)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file_and_no_half_file(rng, tmp_path):
    old = _predictions(rng)
    path = save_predictions(tmp_path / "p.npz", old)
    script = f"""
        import resource, numpy as np
        from churn_compare.store import Predictions, save_predictions
        new = Predictions(np.arange(5000), np.zeros(5000, int), np.ones((4, 5000, 10)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            save_predictions({str(path)!r}, new)
        except OSError as error:
            print("refused:", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "left as it was" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["p.npz"]
    np.testing.assert_array_equal(load_predictions(path).logits, old.logits)


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ids": np.arange(2, 9)},
            r"2 of 7 ids only on the first .*0, 1.*2 of 7.*7, 8",
        ),
        ({"ids": np.array([1, 0, 2, 3, 4, 5, 6])}, "same 7 ids, but 2 are in another"),
        ({"ids": np.arange(7).astype(str)}, "cannot be matched"),
        ({"labels": np.array([0, 0, 0, 1, 0, 1, 0])}, "2 of 7 examples, .* ids 3, 5"),
    ],
)
def test_comparison_counts_what_differs(rng, change, message):
    labels = np.zeros(7, int)
    a = _predictions(rng, labels=labels)
    check_comparable(a, _predictions(rng, R=1, C=9, labels=labels))
    with pytest.raises(PredictionsError, match=message):
        check_comparable(a, _predictions(rng, **{"labels": labels, **change}))
