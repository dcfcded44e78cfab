"""Files in one order are read from front to back, whatever the order of their ids."""

import dataclasses

import numpy as np
import pytest

from churn_jax.comparison.reading.join import join
from churn_jax.comparison.reading.sides import read_side
from churn_jax.comparison.scanning.scan import in_file_order, scan

N, C, R = 30, 4, 2


def _pair(rng, old_order, new_order):
    logits = np.random.default_rng(1).normal(size=(2, R, N, C)).astype(np.float32)
    labels = np.arange(N) % C
    sides = [
        read_side({"logits": z[:, order], "labels": labels[order], "ids": order}, name)
        for z, order, name in zip(logits, (old_order, new_order), ("old", "new"))
    ]
    return join(*sides, on_missing="intersect")


@pytest.mark.parametrize("case", ["same", "different", "one", "part"])
def test_the_order_of_reading_changes_nothing(case, rng):
    order = rng.permutation(N)
    orders = {
        "same": (order, order),
        "different": (order, rng.permutation(N)),
        "one": (order, np.arange(N)),
        "part": (order[3:], order[:-4]),
    }
    pair = _pair(rng, *orders[case])
    moved, place = in_file_order(pair)
    if case == "same":
        assert moved.old_rows is None
        assert moved.new_rows is None
    np.testing.assert_array_equal(moved.ids[place], pair.ids)
    np.testing.assert_array_equal(moved.labels[place], pair.labels)
    sorted_sides = {
        name: dataclasses.replace(
            side,
            values=side.values if rows is None else side.values[:, rows],
            ids=pair.ids,
        )
        for name, side, rows in (
            ("old", pair.old, pair.old_rows),
            ("new", pair.new, pair.new_rows),
        )
    }
    plain = dataclasses.replace(pair, **sorted_sides, old_rows=None, new_rows=None)
    got, want = scan(pair), scan(plain)
    for name in ("surrogate", "displacement"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    for side in ("old", "new"):
        for name in ("predicted", "confidence", "label_log_prob", "brier"):
            found = getattr(getattr(got, side), name)
            np.testing.assert_array_equal(found, getattr(getattr(want, side), name))


def test_rows_in_order_stay_as_they_are(rng):
    for order in (np.arange(N), np.arange(3, N)):
        pair = _pair(rng, order, rng.permutation(N))
        assert in_file_order(pair) == (pair, None)
