"""Old models' data: some classes, or the first share of every class's examples."""

import numpy as np
import pytest

from churn_jax.data import DataError, Dataset, Split, load, narrow

DIGITS = load("digits", train_size=300, validation=60)


def counts(split):
    return np.bincount(split.labels, minlength=10)


def test_a_share_is_stratified_and_a_prefix_of_every_larger_one():
    whole = counts(DIGITS.train)
    kept = {share: narrow(DIGITS, share=share).train for share in (0.25, 0.5)}
    for share, split in kept.items():
        np.testing.assert_array_equal(counts(split), np.round(share * whole))
    np.testing.assert_array_equal(
        np.isin(kept[0.25].ids, kept[0.5].ids), np.ones(len(kept[0.25]), bool)
    )
    order = [np.flatnonzero(DIGITS.train.ids == i)[0] for i in kept[0.5].ids]
    assert order == sorted(order)  # as they were in the whole set


def test_every_class_keeps_an_example():
    assert counts(narrow(DIGITS, share=1e-6).train).tolist() == [1] * 10


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": (0, 10)}, r"classes 0 to 9; got \[0, 10\]"),
        ({"classes": (-1, 3)}, r"classes 0 to 9; got \[-1, 3\]"),
        ({"share": 0.0}, "share must be above 0 and at most 1; got 0.0"),
        ({"share": 1.5}, "share must be above 0 and at most 1; got 1.5"),
    ],
)
def test_what_cannot_be_kept_is_said(options, message):
    with pytest.raises(DataError, match=message):
        narrow(DIGITS, **options)


def test_a_class_without_examples_leaves_nothing():
    part = Split(np.zeros((4, 2), np.uint8), np.array([0, 1, 0, 1]), np.arange(4))
    dataset = Dataset("two of three", part, part, part, 3, fingerprint="x")
    with pytest.raises(DataError, match=r"no training example of classes \[2\]"):
        narrow(dataset, classes=(2,))
