"""Numbers of a measure, their intervals and distances against plain definitions."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize, stats

from churn_compare import compare, size
from churn_compare.measures import Measure
from churn_compare.outcomes import compare_outcomes
from tests.cases import class_scan, estimate, intervals, p_of


def test_a_change_of_scores_is_the_paired_t_test(rng):
    base = rng.normal(size=60)
    old, new = base + 0.3 * rng.normal(size=(2, 60))
    test = stats.ttest_rel(new, old)
    found = estimate(Measure("s", "score", old[None], new[None]))
    ends = test.confidence_interval(0.95)
    change = found.quantities["score_change"]
    assert change.value == pytest.approx(np.mean(new - old))
    assert (change.low, change.high) == pytest.approx((ends.low, ends.high))
    assert found.p == pytest.approx(test.pvalue)
    narrow = test.confidence_interval(0.9)
    assert (found.within.low, found.within.high) == pytest.approx(narrow)


@pytest.mark.parametrize("clustered", [False, True])
def test_right_and_wrong_are_as_in_a_comparison_of_classes(clustered):
    rng = np.random.default_rng(3)
    target, clusters = rng.integers(3, size=300), np.sort(rng.integers(25, size=300))
    classes = np.where(rng.random((2, 300)) < 0.7, target, rng.integers(3, size=300))
    scanned, groups = class_scan(*classes), clusters if clustered else None
    expected = intervals(scanned, target, clusters=groups, resamples=10)
    measure = Measure("l", "label", *classes[:, None], things="abc", target=target)
    known = estimate(measure, groups)
    found = known.quantities
    for name in found.keys() & expected.keys():
        ends = dataclasses.astuple(expected[name])
        assert dataclasses.astuple(found[name]) == pytest.approx(ends), name
    assert len(found.keys() & expected.keys()) == 6
    assert known.p == p_of(scanned, target, groups)
    whole = compare(*classes, labels=target, clusters=groups, resamples=100)
    assert known.detectable == pytest.approx(whole.detectable)


# From statsmodels 0.15:
#   i = np.arange(78)
#   right = np.sin(i) > -0.5, np.sin(i + 0.3 * np.cos(i * i)) > -0.5
#   pandas.crosstab(*right): 23, 3; 2, 50
#   proportion_confint([2, 3, 5, 0], 78, method="wilson")
I, G = np.arange(78), np.repeat(np.arange(12), np.arange(1, 13))
WILSON = {
    "negative_flip_rate": (2, 0.00706009347275921, 0.08875270035675846),
    "positive_flip_rate": (3, 0.013165825413161053, 0.10708446047501832),
    "churn": (5, 0.027689315373790935, 0.1414359546317118),
}


def test_the_variance_over_clusters_is_that_of_leaving_them_out():
    change = 0.1 + 0.3 * np.cos(I * I) + 0.1 * np.cos(G)
    measure = Measure("s", "score", np.sin(I)[None], (np.sin(I) + change)[None])
    found = estimate(measure, G)
    left = [np.mean(change[g != G]) - np.mean(change) for g in range(12)]
    value = found.quantities["score_change"]
    error = np.sqrt(11 / 12 * np.sum(np.square(left)))
    quantile = (value.high - value.value) / error
    # Fewer than 11 degrees of freedom, as the largest cluster has 12 of 78 examples.
    freedom = optimize.brentq(lambda df: stats.t.ppf(0.975, df) - quantile, 2, 50)
    assert 6 < freedom < 11
    p = 2 * stats.t.sf(value.value / error, freedom)
    assert found.p == pytest.approx(p, rel=1e-5)


def test_shares_have_the_intervals_of_statsmodels():
    old, new = np.sin(I) > -0.5, np.sin(I + 0.3 * np.cos(I * I)) > -0.5
    right = (of[None].astype(float) for of in (old, new))
    found = estimate(Measure("c", "correct", *right)).quantities
    for name, (count, low, high) in WILSON.items():
        expected = (count / 78, low, high)
        assert dataclasses.astuple(found[name]) == pytest.approx(expected), name
    same = estimate(Measure("c", "correct", old[None] * 1.0, old[None] * 1.0))
    assert same.quantities["churn"].high == pytest.approx(0.046937809712194314)


def test_what_never_changes_may_do_so_elsewhere():
    """3.84 / (40 + 3.84) of the span, and as many as that of the classes."""
    scores = np.arange(40.0)[None] % 9
    found = estimate(Measure("s", "score", scores, scores))
    most = 8 * stats.norm.ppf(0.975) ** 2 / (40 + stats.norm.ppf(0.975) ** 2)
    assert found.quantities["score_change"].high == pytest.approx(most, rel=0.07)  # t
    assert found.quantities["mean_distance"].low == 0.0 and found.p == 1.0
    right = np.ones((3, 40))
    excess = estimate(Measure("c", "correct", right, right)).quantities["excess_churn"]
    assert excess.low == -excess.high < -0.08


@pytest.mark.parametrize("kind", ["correct", "label"])
@pytest.mark.parametrize(
    ("flips", "examples", "least", "most"),
    [
        (0, 60, 0.08, 0.1),  # 3.84 / 63.84 flip at most: 2.8 sqrt(0.06 / 60) = 0.089
        (1, 60, 0.08, 0.1),  # no less than where none flips
        (60, 60, 0.08, 0.1),
        (3, 3, 1, 1),  # no interval of so few leaves out zero
        (0, 10**5, 5e-5, 6e-5),
    ],
)
def test_what_is_detectable_is_neither_nothing_nor_more_than_all(
    kind, flips, examples, least, most
):
    old, new = np.ones((1, examples)), (np.arange(examples) >= flips) * 1.0
    if kind == "correct":
        found = estimate(Measure("c", "correct", old, new[None])).detectable
    else:
        sides = (of.astype(int) for of in (old, new[None]))
        drawn = {"resamples": 100, "confirm": ["below-chance"]}
        found = compare(*sides, labels=np.ones(examples, int), **drawn).detectable
    assert least <= found <= most


def test_scores_detect_no_more_than_there_is_and_equal_ones_do_not_show_it():
    same = {"score": np.full(9, 4.0)}
    found = compare_outcomes(same, same)
    assert np.isnan(found["score"].detectable) and "in 80 %" not in found.markdown()
    sets = {"set": [["a"], ["b"]], "target": [["a"], ["a"]]}
    found = compare_outcomes(sets, sets | {"set": [["b"], ["b"]]})
    assert found["set"].detectable == 1
    sets = {"set": [["a"]] * 10, "target": [["a"]] * 10}
    found = compare_outcomes(sets, sets | {"set": [["a"]] * 9 + [["b"]]})["set"]
    assert found["score_new"].high == 1 and found["score_new"].low > 0.6
    few = compare_outcomes({"score": np.zeros(4)}, {"score": np.arange(4)})["score"]
    errors = few.detectable / np.sqrt(5 / 12)
    assert stats.nct.sf(stats.t.ppf(0.975, 3), 3, errors) == pytest.approx(0.8)


@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e6])
def test_limits_and_changes_of_scores_do_not_depend_on_their_unit(unit):
    rng = np.random.default_rng(0)
    old = {"id": np.arange(200), "score": unit * rng.normal(size=200)}
    new = old | {"score": old["score"] - unit * rng.uniform(0.5, 1.5, 200)}
    options = {"equivalent": 0.5 * unit, "gates": {"min_score_change": -0.5 * unit}}
    found = compare_outcomes(old, new, **options)
    score = found["score"]
    assert not found.passed and not score.is_equivalent
    assert score["share_worse"].value == 1
    assert "0.000000" not in found.gates[0].line
    assert size(old, new).options[0].power > 0.99


def test_changes_that_are_all_alike_are_tested_by_their_signs():
    for examples in (1, 2, 6):
        right = np.ones((1, examples))
        found = estimate(Measure("c", "correct", right, 1 - right))
        assert found.p == 2.0 ** (1 - examples)  # of 2^N signs, two are as extreme
    assert estimate(Measure("c", "correct", right, 1 - right), np.zeros(6, int)).p == 1
    for examples in (1, 2, 6, 7):  # the next change may be one of -1
        scores = np.full((1, examples), 3.0)
        found = estimate(Measure("s", "score", scores, scores + 1))
        assert (found["score_change"].low < 0) == (examples < 7)
        assert np.isnan(found.detectable) == (examples < 2)


def test_a_change_that_one_example_shows_may_be_as_frequent_as_its_share_says():
    """Another example is noisy, so that the excess has a variance."""
    old, new = np.ones((2, 3, 40))
    old[:, 0], new[:, 0], new[:, 1] = [1, 0, 1], [0, 1, 1], 0
    found = estimate(Measure("c", "correct", old, new)).quantities
    for name in ("excess_nfr", "excess_churn"):
        assert 0.11 < found[name].high < found["negative_flip_rate"].high < 0.14


def test_stability_and_excess_by_hand():
    old = np.array([[1.0, 1, 0, 0], [1, 0, 0, 0]])  # runs differ on one of four
    new = np.array([[0.0, 1, 0, 1]])
    found = estimate(Measure("c", "correct", old, new)).quantities
    assert found["stability_old"].value == 0.75
    assert found["within_old"].value == 0.25
    assert found["churn"].value == pytest.approx((2 + 3) / 8)
    assert found["excess_churn"].value == pytest.approx(5 / 8 - 1 / 4)
    assert "stability_new" not in found and "within_new" not in found


def test_errors_fall_where_values_come_nearer_than_a_tolerance():
    target = np.array([0.0, 1.0, 2.0])
    old, new = np.array([[1.0, 1.0, 4.0]]), np.array([[0.5, 1.0, 5.0]])
    measure = Measure("v", "value", old, new, target=target, tolerance=0.6)
    found = estimate(measure).quantities
    assert found["error_change"].value == pytest.approx((-0.5 + 0 + 1) / 3)
    assert found["share_worse"].value == pytest.approx(1 / 3)
    assert found["share_better"].value == 0.0
    assert found["mean_distance"].value == pytest.approx(0.5)
    a, b = np.array([[100.0, 100.0, 0.0]]), np.array([[95.0, 94.0, 0.0]])
    measure = Measure("v", "value", a, b, tolerance=0.05, relative=True)
    size = measure.distance(a[0], b[0])  # the tolerance is a share of the larger
    assert measure.beyond(size, a[0], b[0]).tolist() == [False, True, False]


@pytest.mark.parametrize("kind", ["set", "ranking"])
def test_distances_are_those_of_jaccard_and_of_scipys_kendall(kind, rng):
    def distance(x, y):
        both = [item for item in x if item in y]
        if kind == "set" or x == y:
            return 1 - len(both) / len({*x, *y}) if x or y else 0.0
        if len(both) < 2:
            return 1.0
        places = [y.index(item) for item in both]
        return 1 - stats.kendalltau(range(len(both)), places).statistic

    drawn = [rng.permutation(8)[: rng.integers(6)].astype(str) for _ in range(400)]
    items = [of.tolist() for of in drawn]
    sides = items[:200], items[200:]
    found = compare_outcomes(*({kind: of} for of in sides))[kind]
    expected = np.mean([distance(*pair) for pair in zip(*sides)])
    assert found["mean_distance"].value == pytest.approx(expected)
