"""Ids of two files are joined exactly, whatever their types and orders."""

import numpy as np
import pytest

from churn_compare.example_ids import PredictionsError, check_unique, match_ids, rows_of


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kinds", [(int, int), (int, str), (str, int), (str, str)])
def test_rows_are_those_of_a_dictionary(seed, kinds):
    draw = np.random.default_rng(seed)
    wanted, ids = (draw.choice(60, 40, replace=False).astype(kind) for kind in kinds)
    row = {str(i): place for place, i in enumerate(ids.tolist())}
    expected = [row.get(str(i), -1) for i in wanted.tolist()]
    assert rows_of(wanted, ids).tolist() == expected
    found = match_ids(wanted, ids)
    np.testing.assert_array_equal(
        found.ids, wanted[found.rows_a].astype(found.ids.dtype)
    )
    np.testing.assert_array_equal(found.ids, ids[found.rows_b].astype(found.ids.dtype))
    assert len(found.only_a) == expected.count(-1)
    assert len(found.ids) + len(found.only_b) == len(ids)


def test_ids_beyond_the_precision_of_floats_stay_apart():
    large = np.array([2**53, 2**53 + 1], np.int64)
    assert rows_of(large, large[::-1].astype(np.uint64)).tolist() == [1, 0]
    assert rows_of(large[:1], large[1:].astype(np.uint64)).tolist() == [-1]


def test_ids_that_occur_twice_are_named():
    with pytest.raises(PredictionsError, match=r"2 of 5 occur more than once.*1, 2"):
        check_unique(np.array([1, 2, 2, 3, 1]))
