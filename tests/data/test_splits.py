"""Checks, the fixed order, fingerprints and moments of data in memory."""

import dataclasses

import numpy as np
import pytest

from churn_jax.data import Dataset, load, narrow
from churn_jax.data.splits import (
    DataError,
    Split,
    channel_statistics,
    check_same_kind,
    check_split,
    fingerprint,
    fixed_order,
    hold_out,
)
from tests.refusals import refusals


def _arrays(rng, count=12, shape=(4, 5, 3)):
    images = rng.integers(0, 256, (count, *shape)).astype(np.uint8)
    return images, (np.arange(count) % 3).astype(np.int64)


def _with(value):
    images = np.zeros((12, 4, 5, 3), np.float64)
    images[7, 0, 0, 0] = images[9, 1, 1, 1] = value
    return images


def test_a_split_has_the_documented_dtypes(rng):
    images, labels = _arrays(rng)
    split = check_split("train", images, labels.astype(np.uint8), None)
    assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int32)
    assert split.ids[:2].tolist() == ["train/0", "train/1"]
    table = check_split("train", np.ones((12, 7)), labels, np.arange(12, dtype="i2"))
    assert (table.images.dtype, table.ids.dtype) == (np.float32, np.int64)
    counts = check_split("train", np.ones((12, 7), np.int32), labels, None)
    assert counts.images.dtype == np.float32
    encoded = check_split("train", images, labels, [b"a%d" % i for i in range(12)])
    assert encoded.ids[3] == "a3"


test_bad_arrays_give_one_sentence = refusals(
    (lambda x, y: (x[0, 0, 0], y, None), r"got shape \(3,\)"),
    (lambda x, y: (x[:, :0], y, None), r"images are empty; .* \(12, 0, 5, 3\)"),
    (lambda x, y: (x, y[:, None], None), r"must be \[N\]; got shape \(12, 1\)"),
    (lambda x, y: (x[:0], y[:0], None), "the split is empty"),
    (lambda x, y: (x, y - 2, None), "not be negative; got -2 at position 0"),
    (lambda x, y: (_with(np.nan), y, None), "2 of 12 images hold NaN.*position 7"),
    (lambda x, y: (_with(np.inf), y, None), "2 of 12 images hold NaN or values in"),
    (lambda x, y: (x.astype(np.int32), y, None), "uint8 or floats; got int32"),
    (lambda x, y: (x, y, np.arange(11)), r"one id per label, \(12,\); got \(11,\)"),
    (lambda x, y: (x, y, np.ones(12)), "strings, or integers below 2.63; got fl"),
    (lambda x, y: (x, y, [*"abcaebghijkl"]), "unique; 2 of 12 repeat another, .* 'a'"),
    (lambda x, y: (x, y, np.arange(12) // 2), "6 of 12 .* another, for example 0"),
    call=lambda rng, change: check_split("train", *change(*_arrays(rng))),
    error=DataError,
    fixtures=["rng"],
)


def test_held_out_examples_are_the_last_of_the_fixed_order():
    # Golden: a change would silently move examples between splits of every study.
    assert fixed_order(10).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    order = fixed_order(100)
    assert sorted(order) == list(range(100))
    kept, held = hold_out(100, 30)
    np.testing.assert_array_equal(kept, order[:70])
    np.testing.assert_array_equal(held, np.sort(order[70:]))


def test_fingerprint_sees_every_part(rng):
    images, labels = _arrays(rng)
    base = check_split("train", images, labels, None)
    other = images.copy()
    other[3, 1, 1, 1] ^= 1
    seen = {
        fingerprint(base),
        fingerprint(base, base),
        fingerprint(check_split("train", other, labels, None)),
        fingerprint(check_split("train", images, labels[::-1], None)),
        fingerprint(check_split("test", images, labels, None)),
        fingerprint(check_split("train", images, labels, np.arange(12))),
        fingerprint(check_split("train", images, labels, np.arange(12).astype(str))),
        fingerprint(check_split("train", images.reshape(12, 5, 4, 3), labels, None)),
    }
    assert len(seen) == 8
    wide = Split(base.images, base.labels, base.ids.astype("U40"))
    assert fingerprint(wide) == fingerprint(base)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_channel_statistics_equal_numpy(rng, dtype):
    images = rng.integers(0, 256, (5000, 2, 3, 3)).astype(dtype)
    scaled = images.astype(np.float64) / (255 if dtype == np.uint8 else 1)
    got = channel_statistics(images)
    np.testing.assert_allclose(got.mean, scaled.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(got.std, scaled.std((0, 1, 2)), rtol=1e-6)
    assert got.mean.dtype == np.float32


@pytest.mark.parametrize("value", [np.uint8(7), np.float32(0.1), np.float32(0.0)])
def test_a_constant_channel_has_unit_deviation(value):
    assert channel_statistics(np.full((3, 5, 7, 1), value)).std.tolist() == [1.0]


DIGITS = load("digits", train_size=300, validation=60)


def counts(split):
    return np.bincount(split.labels, minlength=10)


def test_a_share_is_stratified_and_a_prefix_of_every_larger_one():
    whole = counts(DIGITS.train)
    kept = {share: narrow(DIGITS, share=share).train for share in (1e-6, 0.25, 0.5)}
    for share, split in kept.items():
        expected = np.maximum(np.round(share * whole), 1)  # every class keeps one
        np.testing.assert_array_equal(counts(split), expected)
    assert set(kept[0.25].ids) <= set(kept[0.5].ids)
    order = [np.flatnonzero(DIGITS.train.ids == i)[0] for i in kept[0.5].ids]
    assert order == sorted(order)  # as they were in the whole set


def test_classes_leave_training_and_validation_but_not_the_test_split():
    few = narrow(DIGITS, classes=(7, 0, 7, 2))
    for split, whole in (
        (few.train, DIGITS.train),
        (few.validation, DIGITS.validation),
    ):
        expected = np.where(np.isin(np.arange(10), (0, 2, 7)), counts(whole), 0)
        np.testing.assert_array_equal(counts(split), expected)
    assert few.test is DIGITS.test and few.num_classes == 10
    labels = dict(zip(DIGITS.train.ids, DIGITS.train.labels))
    assert [labels[i] for i in few.train.ids] == few.train.labels.tolist()


def test_what_is_kept_decides_the_fingerprint():
    made = [
        narrow(DIGITS, classes=(0, 1)),
        narrow(DIGITS, classes=(0, 2)),
        narrow(DIGITS, classes=(0, 1), share=0.5),
        narrow(DIGITS, share=0.5),
    ]
    assert len({DIGITS.fingerprint, *(one.fingerprint for one in made)}) == 5
    again = narrow(DIGITS, classes=(1, 0))
    assert again.fingerprint == made[0].fingerprint
    assert narrow(DIGITS, (0, 1), 1).fingerprint == made[0].fingerprint


test_what_cannot_be_kept_is_said = refusals(
    ({"classes": (0, 10)}, r"classes 0 to 9; got \[0, 10\]"),
    ({"classes": (-1, 3)}, r"classes 0 to 9; got \[-1, 3\]"),
    ({"share": 0.0}, "share must be above 0 and at most 1; got 0.0"),
    ({"share": 1.5}, "share must be above 0 and at most 1; got 1.5"),
    ({"classes": (0.5,)}, "'float' object cannot be interpreted as an integer"),
    call=lambda options: narrow(DIGITS, **options),
    error=(DataError, TypeError),
)


PART = Split(np.zeros((4, 2), np.uint8), np.array([0, 1, 0, 1]), np.arange(4))
OF_TWO = Dataset("two of three", PART, PART, PART, 3, fingerprint="x")


def alike(**test):
    check_same_kind({"train": PART, "test": dataclasses.replace(PART, **test)})


def filled(value):
    return check_split("train", np.full((4, 3), value), np.arange(4), None)


def test_equal_splits_and_huge_values_are_fine():
    alike()
    assert np.isfinite(filled(3e38).images).all()


test_what_does_not_fit_is_refused = refusals(
    (lambda: narrow(OF_TWO, classes=(2,)), r"no training example of classes \[2\]"),
    (lambda: filled(1e308), r"4 of 4 images .* infinite in float32"),
    (lambda: alike(images=PART.images[:, :1]), r"one shape; got \(2,\) and \(1,\)"),
    (lambda: alike(images=PART.images * 0.5), "one dtype; got uint8 and float"),
    error=DataError,
)
