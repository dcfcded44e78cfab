"""The test against retraining, next to brute force and on versions that are equal."""

import itertools

import numpy as np
import pytest
from scipy import stats

from churn_compare import Gate, compare, compare_outcomes
from churn_compare.estimates import all_examples, share_ends, uncertainty
from churn_compare.example_numbers import class_numbers
from churn_compare.gate_outcomes import judge
from churn_compare.outcomes import noise_floor
from churn_compare.verdict import sentences
from tests.cases import class_scan, fails, noise


def sides(seed, old_runs, new_runs, moved=0.0, of_runs=0.0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(200, 3))
    shift = moved * rng.normal(size=base.shape)

    def side(runs, by):
        noise = rng.normal(size=(runs, *base.shape))
        noise += of_runs * rng.normal(size=(runs, 1, 3))
        return (base + by + noise).argmax(axis=-1)

    return class_scan(side(old_runs, 0.0), side(new_runs, shift))


def churn(runs):
    return np.array([[np.mean(a != b) for b in runs] for a in runs])


def excess(x, A):
    R = len(x)
    inside = [x[r, s] for r, s in itertools.combinations(range(A), 2)]
    of_new = [x[r, s] for r, s in itertools.combinations(range(A, R), 2)]
    within = [np.mean(side) for side in (inside, of_new) if side]
    return x[:A, A:].mean() - np.mean(within)


def permuted(runs, A):
    """Variance and skewness of the excess if predictions are permuted by example."""
    R, N = runs.shape
    squares, cubes = 0.0, 0.0
    for example in runs.T:
        x = (example[:, None] != example).astype(float)
        olds = itertools.combinations(range(R), A)
        orders = [[*old, *(r for r in range(R) if r not in old)] for old in olds]
        values = [excess(x[np.ix_(order, order)], A) for order in orders]
        assert np.mean(values) == pytest.approx(0, abs=1e-12)
        squares += np.var(values)
        cubes += np.mean(np.power(values, 3))
    return squares / N**2, cubes / squares**1.5


def solves(value, of_examples, normal, of_runs, freedom, tail):
    more = max(of_runs - 1.2 * of_examples, 0)
    error = np.hypot(normal * of_examples**0.5, stats.t.isf(tail, freedom) * more**0.5)
    return error == pytest.approx(abs(value), rel=1e-4)


@pytest.mark.parametrize("old,new,of_runs,moved", [(2, 3, 0, 0.3), (3, 3, 0.6, 0.5)])
def test_p_with_runs_on_both_sides_solves_its_equation(old, new, of_runs, moved):
    """`churn = mean + effects of both runs + excess [of two versions] + remainder`."""
    scanned = sides(1, old, new, moved, of_runs)
    runs = np.concatenate([scanned.old.predicted, scanned.new.predicted])
    x, R = churn(runs), old + new
    pairs = list(itertools.combinations(range(R), 2))
    rows = [
        [float(r in pair) for r in range(R)] + [float(pair[0] < old <= pair[1])]
        for pair in pairs
    ]
    design, y = np.array(rows), np.array([x[pair] for pair in pairs])
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ y
    left = y - design @ fitted
    of_runs = left @ left / (len(y) - R - 1) * inverse[-1, -1]
    found = noise(scanned)
    assert found.excess.value == pytest.approx(fitted[-1])
    assert found.excess.value > 0
    of_examples, skewness = permuted(runs, old)
    gamma = stats.pearson3.isf(found.p, skewness)
    assert solves(fitted[-1], of_examples, gamma, of_runs, (R - 3) / 2, found.p)


@pytest.mark.parametrize("of_runs", [0.0, 0.6])
def test_with_one_new_run_p_is_that_of_one_more_draw(of_runs):
    """The effects of the runs are estimated from all pairs of the other side."""
    scanned = sides(0, 4, 1, 1.0, of_runs)
    runs = np.concatenate([scanned.old.predicted, scanned.new.predicted])
    x = churn(runs)
    pairs = list(itertools.combinations(range(4), 2))
    design = np.array([[1.0, *(float(r in pair) for r in range(4))] for pair in pairs])
    y = np.array([x[pair] for pair in pairs])
    effects = np.linalg.lstsq(design, y, rcond=None)[0][1:]  # up to their mean
    of_runs = np.var(effects, ddof=1) * (1 + 1 / 4)
    found = noise(scanned)
    assert found.excess.value == pytest.approx(excess(x, 4))
    of_examples, _ = permuted(runs, 4)
    normal = stats.norm.isf(found.p / 2)
    assert solves(excess(x, 4), of_examples, normal, of_runs, 1, found.p / 2)


def test_equal_versions_of_few_counts_are_not_told_apart(rng):
    """The remainders of counts are often 0 exactly; p is not, where nothing changed."""
    found = []
    for churn_is, examples in ((0.03, 897), (0.1, 300), (0.3, 100)):
        wrong = (1 - np.sqrt(1 - 2 * churn_is)) / 2
        for _ in range(40):
            runs = rng.random((6, examples)) < wrong
            found.append(noise(class_scan(runs[:3], runs[3:])).p)
        # There are three ways to deal four runs: no test of 5 % exists.
        assert np.isnan(noise(class_scan(runs[:2], runs[3:5])).p)
    assert np.mean(np.array(found) < 0.05) <= 0.11  # 5 % and three standard errors


@pytest.mark.parametrize(("runs", "least"), [((2, 3), 0.01), ((5, 1), 0.05)])
def test_no_p_is_smaller_than_so_few_runs_support(runs, least):
    found = noise(sides(0, *runs, 3.0))
    assert found.p == least and not found.one_run


@pytest.mark.parametrize(("seed", "outlier"), [(147, 0), (367, 4)])
def test_where_one_run_decides_there_is_no_p(seed, outlier):
    """Five runs predict 1 on 11 to 18 % of examples, one on 48 or 54 %."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=300) + rng.normal(size=(6, 300))
    runs = (scores + rng.choice([0, 0, 0, 1.5], 6)[:, None] > 1.5) * 1
    assert runs.mean(axis=1).argmax() == outlier
    found = noise(class_scan(runs[:3], runs[3:]))
    assert np.isnan(found.p) and found.one_run
    sides = np.array_split(np.arange(6), 2)
    left = [runs[side[side != outlier]] for side in sides]
    assert noise(class_scan(*left)).p > 0.05


def test_churn_within_a_side_has_the_interval_of_the_jackknife():
    scanned = sides(3, 4, 1)
    runs = scanned.old.predicted
    R, N = runs.shape

    def within(x):
        return x.sum() / (len(x) * (len(x) - 1))

    def pseudo_values(x):
        left = [np.delete(np.delete(x, r, 0), r, 1) for r in range(R)]
        return np.array([R * within(x) - (R - 1) * within(less) for less in left])

    x = churn(runs)
    moved = [((run[:, None] != run) - x) / N for run in runs.T]  # by each example
    of_examples = np.sum([pseudo_values(of).var(ddof=1) for of in moved]) / R
    examples = np.sum(np.square([within(of) for of in moved]))
    part = pseudo_values(x).var(ddof=1) / R, of_examples, R - 1
    known = uncertainty(examples, part)
    ends = share_ends(within(x), known.total, known.quantile(0.95), N)
    found = noise(scanned).within_old
    assert found.value == pytest.approx(within(x))
    np.testing.assert_allclose((found.low, found.high), ends)


def test_the_floor_of_networks_is_for_new_runs_and_that_of_samples_for_these(rng):
    runs = (rng.random((4, 2000)) < [[0.05], [0.1], [0.2], [0.1]]).astype(int)
    within = noise(class_scan(runs[:3], runs[3:])).within_old
    of_networks = noise_floor(runs[:3])["prediction"].quantities
    assert vars(of_networks["runs_differ"]) == pytest.approx(vars(within))
    samples = noise_floor(*({"correct": run} for run in runs[:3]))["correct"]
    two = noise_floor(*runs[:2])["prediction"].quantities  # show no spread of runs
    for name, of in samples.quantities.items():
        wide = of_networks[name]
        assert wide.value == pytest.approx(of.value)
        assert of.high - of.low < 0.05 < 0.4 < wide.high - wide.low
        assert two[name].high - two[name].low < 0.05


def test_runs_are_aligned_and_doubted_as_versions_are():
    ids, truth = np.arange(40), np.arange(40) % 2 == 0
    first = {"id": ids, "label": np.where(truth, "TRUE", "FALSE")}
    first["prediction"] = [*map(str, truth ^ (ids < 4))]
    for of in (truth[::-1], truth[::-1] + 0):
        second = {"id": ids[::-1], "label": of, "prediction": of}
        found = noise_floor(first, second)["prediction"]
        assert found["runs_differ"].value == 0.1 and found.of_runs == (0.9, 1)
    runs = ({"prediction": [a, b] * 20} for a, b in (("cat", "dog"), ("Cat", "Dog")))
    fails("'cat' and 'Cat', 'dog' and 'Dog' differ only in spell", noise_floor, *runs)


def test_noise_by_hand():
    old = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]])
    new = np.array([[1, 1, 0, 0], [1, 1, 1, 1]])
    found = noise(class_scan(old, new))
    assert found.within_old.value == pytest.approx((1 + 2 + 1) / 3 / 4)
    assert found.within_new.value == pytest.approx(2 / 4)
    assert found.expected.value == pytest.approx((1 / 3 + 1 / 2) / 2)
    between = (2 + 4 + 3 + 3 + 4 + 2) / 6 / 4
    assert found.excess.value == pytest.approx(between - (1 / 3 + 1 / 2) / 2)
    assert np.isnan(found.p)  # four examples
    numbers = class_numbers(class_scan(old, new), np.zeros(4, int))
    beyond = numbers.beyond_runs(all_examples(4, None, 0.95))
    expected = ((1 / 3 + 1 / 3) / 4 + (1 / 2 + 1 / 2) / 4) / 2  # right, then wrong
    assert beyond["expected_nfr"].value == pytest.approx(expected)
    broken, mended = (1 + 1 + 1 / 3 + 1 / 6) / 4, (1 / 6 + 1 / 3) / 4
    assert beyond["excess_nfr"].value == pytest.approx(broken - expected)
    assert beyond["excess_pfr"].value == pytest.approx(mended - expected)
    # Runs that differ by noise alone lower a variance by half of it.
    parts = (0.0, np.array(0.8), 1), (0.0, np.array(0.1), 1)
    assert uncertainty(np.array(1.0), *parts).total == pytest.approx(1 - 0.9 / 2)


@pytest.mark.parametrize("clusters", [None, np.arange(1200) // 3])
@pytest.mark.parametrize("as_outcomes", [False, True])
def test_a_slice_that_an_update_breaks_stands_out_from_retraining(
    rng, as_outcomes, clusters
):
    known, slices = rng.normal(1.5, 1.0, 1200), np.arange(1200) % 4
    runs = [known + rng.normal(size=(3, 1200)) > 0 for _ in range(2)]
    runs[1] &= (slices != 2) | (rng.random(1200) > 0.1)
    of = {"id": np.arange(1200), "slice": slices}
    if as_outcomes:
        sides = [
            {"id": np.tile(of["id"], 3), "run": np.repeat(range(3), 1200), "correct": x}
            for x in (side.reshape(-1) for side in runs)
        ]
        found = compare_outcomes(*sides, slices=of, clusters=clusters)["correct"]
    else:
        sides = [(~side).astype(int) for side in runs]
        labels = np.zeros(1200, int)
        options = {"labels": labels, "ids": of["id"], "slices": of}
        found = compare(*sides, **options, clusters=clusters, resamples=100)
    beyond = {g.name: g["excess_nfr"] for g in found.groupings["slice"]}
    assert beyond["2"].low > 0.04 and beyond["2"].high < 0.14
    assert all(of.low < 0 < of.high for name, of in beyond.items() if name != "2")
    gate = Gate("excess_nfr", 0.04, on="bound", grouping="slice")
    (outcome,) = judge([gate], found)
    assert (outcome.state, outcome.where) == ("fail", "slice 2")
    assert found["excess_nfr"].low > 0 > found["excess_pfr"].high - 0.03
    said = [s for s in sentences(found) if s.startswith("Negative flips between")]
    assert len(said) == 1 and said[0].endswith("more.")


def test_noise_needs_several_runs_and_p_more_runs_and_examples():
    one, three = np.zeros((1, 6), int), np.eye(3, 6, dtype=int)
    assert noise(class_scan(one, one)) is None
    found = noise(class_scan(three, one))
    assert np.isnan(found.within_new.value) and np.isnan(found.p)
    assert found.expected == found.within_old
    runs = np.zeros((6, 1000), np.int32)
    runs[[0, 1, 3], :3] = 1
    of_few_examples = noise(class_scan(runs[:3], runs[3:]))
    of_few_runs = noise(class_scan(three[:2], one))
    for few in (of_few_examples, of_few_runs, noise(sides(0, 3, 1, 2.0))):
        assert np.isnan(few.p) and np.isfinite(few.excess.value)
    same = noise(class_scan(*np.zeros((2, 2, 6), int)))
    assert same.excess.value == 0.0
    assert same.excess.low < 0 < same.excess.high


def test_settings_of_a_noise_floor_that_make_no_sense_are_refused():
    runs = {"score": [1.0, 2.0]}, {"score": [1.0, 3.0]}
    for name, value in (("level", 2), ("tolerance", -1), ("regressions", -1)):
        fails(f"^{name} must ", noise_floor, *runs, **{name: value}, of=ValueError)
    for name, value in (("tolerance", 1), ("normalize", "squad"), ("grades", {"A": 1})):
        fails(f"{name} (is|are) for", noise_floor, [0, 1], [0, 0], **{name: value})
