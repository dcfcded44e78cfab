"""Clicks from arrays and files, cut the same way, and synthetic ones."""

import numpy as np
import pytest

from churn_jax.data import DATASETS
from churn_jax.data.clicks import as_clicks, load_clicks, synthetic_clicks
from churn_jax.data.splits import DataError
from tests.refusals import refusals
from tests.training.tiny_clicks import arrays


def parts(data):
    """The keys of both parts."""
    return data.train.keys.tolist(), data.validation.keys.tolist()


def test_a_share_is_held_out_and_the_rest_is_cut_from_the_front():
    data = as_clicks("a", arrays(2000), validation=0.25)
    train, held_out = parts(data)
    assert sorted(train + held_out) == list(range(2000))
    assert abs(len(held_out) / 2000 - 0.25) < 0.03
    cut = as_clicks("a", arrays(2000), validation=0.25, train_size=9)
    assert parts(cut) == (train[:9], held_out)
    assert cut.fingerprint != data.fingerprint != as_clicks("a", arrays(2001))
    assert data.fingerprint == as_clicks("b", arrays(2000), validation=0.25).fingerprint
    assert parts(as_clicks("a", arrays(50))) == (list(range(50)), [])
    largest = {"ids": np.uint8([[255], [3]]), "labels": [0, 1]}
    assert as_clicks("a", largest).sizes == (256,)
    grouped = arrays(8) | {"draw": [0.9, 0.1] * 4}
    assert parts(as_clicks("a", grouped, validation=0.5))[1] == [1, 3, 5, 7]


def test_windows_are_padded_and_go_on_where_others_ended():
    data = as_clicks("a", arrays(11)).train
    whole = list(data.windows(4))
    assert [w.mask.sum() for w in whole] == [4, 4, 3]
    assert [int(w.first) for w in whole] == [0, 4, 8]
    for again, window in zip(data.windows(4, start=4), whole[1:], strict=True):
        for a, b in zip(again, window, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole[2].ids[:3], data.ids[8:])
    assert not whole[2].ids[3:].any() and whole[2].numeric.dtype == np.float32


def few():
    return arrays(20)


def test_clicks_come_from_a_file_a_function_and_a_built_in_name(tmp_path):
    np.savez(tmp_path / "few.npz", **few())
    from_file = load_clicks(str(tmp_path / "few.npz"))
    from_function = load_clicks(f"{__name__}:few")
    DATASETS.register("few clicks")(few)
    assert from_file.fingerprint == from_function.fingerprint
    assert from_file.fingerprint == load_clicks("few clicks").fingerprint
    assert len(load_clicks("clicks-tiny", validation=0.0).train) == 256
    for name, said in (
        (str(tmp_path / "none.npz"), "there is no file"),
        (str(tmp_path / "few.csv"), "an .npz file or a function"),
        ("digit", "clicks are clicks or clicks-tiny, an .npz file"),
    ):
        with pytest.raises(DataError, match=said):
            load_clicks(name)
    for made, said in ((tuple, "must be a dict of .*a tuple"), ({}.popitem, "KeyErr")):
        DATASETS.register("odd clicks")(made)
        with pytest.raises(DataError, match=said):
            load_clicks("odd clicks")
    (tmp_path / "torn.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"torn\.npz cannot be read .* it is truncated"):
        load_clicks(str(tmp_path / "torn.npz"))


def changed(change, validation=0.5, train_size=None):
    given = {k: v for k, v in (few() | change).items() if v is not None}
    return as_clicks("mine", given, validation=validation, train_size=train_size)


test_arrays_that_cannot_be_used_are_named = refusals(
    ({"ids": None}, "must have the arrays ids and labels"),
    ({"clicked": [1]}, "it has ids, numeric, labels, sizes, clicked"),
    ({"ids": np.zeros((20, 2))}, r"whole numbers \[N, F\] .* got float64"),
    ({"ids": np.zeros((0, 2), int)}, "of one example or more"),
    ({"labels": [1]}, r"labels must be numbers of shape \[20\]; got int64 \[1\]"),
    ({"draw": [0.5]}, r"draw must be numbers of shape \[20\]"),
    ({"draw": np.arange(20)}, "draw must be at least 0 and below 1"),
    ({"sizes": [7, 7.5]}, r"sizes must be whole numbers of shape \[2\]; got float64"),
    ({"numeric": np.ones(20)}, r"numeric must be numbers of shape \[20, 1\]"),
    ({"sizes": [7, 2]}, "an id of field 1 is outside of its table of 2 rows"),
    ({"labels": np.full(20, 2)}, "labels must be 0 or 1"),
    ({"labels": np.zeros(20, int)}, "no example has the label 1"),
    ({"numeric": np.full((20, 1), np.inf)}, "numbers of example 0 are not finite"),
    ({"draw": np.zeros(20)}, "every example is held out"),
    ({}, 1.0, "a share below 1; got 1"),
    ({}, 0.5, -3, "train_size must be a positive count; got -3"),
    ({}, 0.0, 21, "train_size=21 is more than the 20 training examples of mine that"),
    call=changed,
    error=DataError,
)


def test_the_share_of_clicks_is_the_rate_and_words_follow_zipfs_law():
    found = synthetic_clicks(50_000, 2, (1000, 7), rate=0.2, signal=2.0)
    assert abs(found["labels"].mean() - 0.2) < 0.02
    ids = found["ids"][:, 0]
    counts = np.bincount(ids, minlength=1000) / 50_000
    expected = np.log((np.arange(1000) + 2) / (np.arange(1000) + 1)) / np.log(1001)
    assert (ids.min(), ids.max() < 1000) == (0, True)
    assert np.abs(counts - expected)[:10].max() < 0.01
    assert abs(counts[100:].sum() - expected[100:].sum()) < 0.01
    # A number raises the chance by itself: there is something to learn.
    high = found["numeric"].sum(axis=1) > 0
    assert found["labels"][high].mean() > 1.5 * found["labels"][~high].mean()


def test_an_example_is_a_function_of_the_seed_and_its_place():
    few, more = synthetic_clicks(1000, 2, 40), synthetic_clicks(2000, 2, 40)
    for name in ("ids", "numeric", "labels", "draw"):
        np.testing.assert_array_equal(few[name], more[name][:1000])
    other = synthetic_clicks(1000, 2, 40, seed=1)
    assert (few["ids"] != other["ids"]).mean() > 0.5


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"numeric": -1}, {"fields": 0}, {"buckets": (7, 9, 3)}]
)
def test_impossible_clicks_are_refused(wrong):
    with pytest.raises(DataError, match="got"):
        synthetic_clicks(10, **{"fields": 2, **wrong})
