"""Distances and worth of outcomes against definitions that loop over examples."""

import itertools

import numpy as np
import pytest
from scipy import stats

from churn_compare.measures import Measure, jaccard, kendall

RNG = np.random.default_rng(0)


def items(most, ordered):
    chosen = RNG.permutation(8)[: RNG.integers(0, most + 1)].astype(str)
    return tuple(chosen) if ordered else tuple(sorted(chosen))


def test_jaccard_is_that_of_sets():
    things = list(dict.fromkeys(items(5, False) for _ in range(40)))
    a, b = RNG.integers(len(things), size=(2, 300))
    expected = [
        1 - len(x & y) / len(x | y) if x | y else 0.0
        for x, y in ((set(things[i]), set(things[j])) for i, j in zip(a, b))
    ]
    np.testing.assert_allclose(jaccard(things, a, b), expected, atol=1e-12)


def test_kendall_is_scipys_over_common_items():
    things = list(dict.fromkeys(items(6, True) for _ in range(60)))
    a, b = RNG.integers(len(things), size=(2, 300))
    for i, j, found in zip(a, b, kendall(things, a, b)):
        both = [item for item in things[i] if item in things[j]]
        if len(both) < 2:
            assert found == 1.0
            continue
        places = [things[j].index(item) for item in both]
        tau = stats.kendalltau(range(len(both)), places).statistic
        assert found == pytest.approx(1 - tau)


def test_distances_are_zero_for_equals_and_symmetric():
    things = [("a",), ("a", "b"), ("b", "a"), ()]
    for kind, size in itertools.product(("set", "ranking"), (1, 4)):
        codes = np.arange(size)[None]
        measure = Measure("m", kind, codes, codes[:, ::-1], things)
        a, b = measure.old[0], measure.new[0]
        assert not measure.distance(a, a).any()
        np.testing.assert_array_equal(measure.distance(a, b), measure.distance(b, a))


def test_worth_of_a_value_is_minus_its_error_and_of_a_score_itself():
    of = np.array([[1.0, 4.0]])
    value = Measure("v", "value", of, of, target=np.array([2.0, 4.0]))
    assert value.worth(of[0]).tolist() == [-1.0, 0.0]
    assert Measure("s", "score", of, of).worth(of[0]).tolist() == [1.0, 4.0]
    assert not Measure("v", "value", of, of).judged


def test_a_relative_tolerance_is_a_share_of_the_larger():
    a, b = np.array([[100.0, 100.0, 0.0]]), np.array([[95.0, 94.0, 0.0]])
    measure = Measure("v", "value", a, b, tolerance=0.05, relative=True)
    size = measure.distance(a[0], b[0])
    assert measure.beyond(size, a[0], b[0]).tolist() == [False, True, False]
