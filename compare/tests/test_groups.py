"""Groups, and the mean over benchmarks, against loops and SciPy."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from churn_compare import compare, compare_outcomes, compare_versions
from churn_compare.comparison import compare_pair
from churn_compare.estimates import Groups
from churn_compare.example_numbers import class_numbers
from churn_compare.significance import holm, sign_flip_exact
from tests.cases import class_scan, fails, pair_of, random_logits, reference


def groups_of(pair, scanned):
    """Those of the classes, and those of the slices."""
    found = compare_pair(pair, scanned=scanned, resamples=100).groups
    of_classes = [g for g in found if g.grouping == "class"]
    return of_classes, [g for g in found if g.grouping != "class"]


def check(groups, insides, old, new, labels):
    p = []
    for group, inside in zip(groups, insides, strict=True):
        of = old.argmax(-1)[:, inside], new.argmax(-1)[:, inside], labels[inside]
        numbers = reference(*of)
        known = numbers.keys() & group.quantities.keys()
        assert group.examples == inside.sum() and len(known) == 6
        for name in known:
            interval = group[name]
            assert interval.value == pytest.approx(numbers[name], abs=1e-12), name
            assert not interval.low > interval.value
            assert not interval.high < interval.value
        # Old and new are swapped in whole examples, with all pairs of their runs.
        was, now = (np.sum(side == of[2], axis=0) for side in of[:2])
        least = sign_flip_exact(now * len(old) - was * len(new)) - 1e-12
        assert least <= group.p and (len(old) > 1 or group.p <= least + 2e-12)
        p.append(group.p)
    assert [g.adjusted_p for g in groups] == pytest.approx(holm(p))


@pytest.mark.parametrize(("seed", "runs"), [(0, (1, 1)), (1, (3, 2))])
def test_classes_and_slices_are_those_of_a_loop(seed, runs):
    labels, old, new = random_logits(seed, runs, examples=90)
    drawn = np.random.default_rng(seed).integers(0, 3, 90)
    values = np.array(["south", "north", ""])[drawn]
    pair, scanned = pair_of(old, new, labels, slices={"region": values})
    groups, of_slices = groups_of(pair, scanned)
    assert [(g.grouping, g.name) for g in groups] == [("class", c) for c in "0123"]
    check(groups, [labels == c for c in range(4)], old, new, labels)
    names = ["north", "south", "(none)"]
    assert [(g.grouping, g.name) for g in of_slices] == [("region", n) for n in names]
    insides = [values == n for n in ("north", "south", "")]
    check(of_slices, insides, old, new, labels)


@pytest.mark.parametrize("runs", [(3, 3), (3, 1), (1, 2)])
@pytest.mark.parametrize("clusters", [None, np.arange(2000) % 30])
def test_p_counts_runs_as_the_interval_does(runs, clusters):
    """A run's own error rate moves the accuracy by more than its examples do."""
    rng = np.random.default_rng(sum(runs))
    rates = 0.1 * np.exp(0.3 * rng.standard_normal(4))[:, None]
    old, new = (1 * (rng.random((R, 2000)) < rates[:R]) for R in runs)
    scanned, labels = class_scan(old, new), np.zeros(2000, int)
    numbers = class_numbers(scanned, labels)
    of = numbers.gain, numbers.better, numbers.worse
    for count in (1, 5):
        groups = Groups(np.arange(2000) % count, count, clusters)
        p, score = numbers.p(groups), groups.score_test(*of)
        assert np.all(p >= score)
        for level in (0.6, 0.95, 0.999):
            _, low, high = groups.gain(*of, level)
            out = (low > 0) | (high < 0)
            np.testing.assert_array_equal(score < 1 - level, out)


def test_without_labels_only_churn_is_a_number():
    """Examples without a value are in one group with those of the value `(none)`."""
    slices = {"kind": np.array(["(none)", "", "(a)"])}
    pair, scanned = pair_of([[0, 1, 1]], [[0, 1, 0]], slices=slices)
    of_classes, groups = groups_of(pair, scanned)
    assert of_classes == []
    found = [(group.name, group.examples, group["churn"].value) for group in groups]
    assert found == [("(a)", 1, 1.0), ("(none)", 2, 0.0)]
    for group in groups:
        assert list(group.quantities) == ["churn"]
        assert np.isnan([group.p, group.adjusted_p]).all()


def three(seed=0, sizes=(40, 200, 900)):
    """Predictions, all labels 0, of three benchmarks."""
    rng = np.random.default_rng(seed)
    task = np.repeat(["a", "b", "c"], sizes)
    old, new = (rng.random((2, len(task))) < 0.3).astype(int)
    return old, new, task


def pooled(old, new, task, **options):
    labels = np.zeros(len(task), int)
    slices = {"task": task}
    return compare(old, new, labels=labels, slices=slices, pool="task", **options)


def test_the_mean_over_benchmarks_equals_loops_and_scipy():
    old, new, task = three()
    found = pooled(old, new, task)
    gains, variances = [], []
    for name in "abc":
        net = (old - new)[task == name]
        gains.append(net.mean())
        variances.append(net.var() / len(net))
    answers = found.pooled
    assert (answers.column, answers.benchmarks) == ("task", 3)
    assert answers.gain.value == pytest.approx(np.mean(gains))
    z = np.mean(gains) / np.sqrt(np.sum(variances) / 9)
    # The smallest benchmark's own interval, a score interval, is wider than z sqrt(V).
    assert 1 < answers.p / (2 * stats.norm.sf(abs(z))) < 1.05
    half = 1.96 * np.sqrt(np.sum(variances) / 9)
    width = answers.gain.high - answers.gain.low
    assert width == pytest.approx(2 * half, rel=0.03)  # a score interval, not z sqrt(V)
    said = "Over 3 values of task, each with the same weight, accuracy changes"
    assert said in " ".join(str(found).split())
    assert found.to_dict()["pooled"]["benchmarks"] == 3
    less = pooled(old, new, np.where(task == "b", "", task))
    assert "); 200 without a value are left out." in " ".join(str(less).split())
    alike = pooled(np.zeros(6, int), np.ones(6, int), np.repeat(["a", "b"], 3))
    assert alike.pooled.p == alike.p == 2.0**-5  # that of their signs


@pytest.mark.parametrize("clustered", [False, True])
def test_right_and_wrong_have_the_answer_of_their_classes(clustered):
    old, new, task = three()
    groups = np.arange(len(task)) // 3
    found = pooled(old, new, task, clusters=groups if clustered else None)
    sides = ({"correct": 1 - x, "task": task, "of": groups} for x in (old, new))
    clusters = "of" if clustered else None
    other = compare_outcomes(*sides, pool="task", clusters=clusters)["correct"]
    gain, p = dataclasses.astuple(other.pooled)[2:4]
    assert gain == pytest.approx(dataclasses.astuple(found.pooled.gain))
    assert p == pytest.approx(found.pooled.p)
    slices = zip(other.groups, found.groupings["task"], strict=True)
    assert all(ours.adjusted_p == theirs.adjusted_p for ours, theirs in slices)


def test_the_pooled_column_is_of_the_slices_or_of_the_predictions():
    old, new, task = three()
    given, labels = {"slices": {"task": task}, "pool": "task"}, np.zeros(len(task), int)
    sides = [{"prediction": x, "label": labels, "task": task} for x in (old, new)]
    correct = [{"correct": 1 - x} for x in (old, new)]
    named = [of | {"task": task} for of in correct]
    expected = pooled(old, new, task).pooled
    assert compare(*sides, pool="task").pooled == expected
    assert compare(*sides, **given).pooled == expected
    for of in (correct, named):
        found = compare_outcomes(*of, **given)["correct"].pooled
        assert found.gain.value == pytest.approx(expected.gain.value)
    message = "column task is named to group by and is also in the slices"
    fails(message, compare_outcomes, *named, by=["task"], **given)


@pytest.mark.parametrize("small", [1, 10])
def test_a_small_benchmark_without_a_change_may_change(small):
    task = np.repeat(["a", "b"], [2000, small])
    old = np.zeros(len(task), int)
    new = np.where((task == "a") & (np.arange(len(task)) < 80), 1, 0)
    found = pooled(old, new, task)
    sides = ({"score": 1.0 - x, "task": task} for x in (old, new))
    for of in (found, compare_outcomes(*sides, pool="task")["score"]):
        gain, p = of.pooled.gain, of.pooled.p
        z = stats.norm.ppf(0.975)
        own = z**2 / (small + z**2)  # Wilson's end of no event
        assert gain.value == pytest.approx(-0.02)
        assert 1 < 2 * (gain.value - gain.low) / own < 1.3
        assert gain.high > 0 and p > 0.05
    # Of many small ones not all hide changes: the mean is known as well as of all.
    task = np.arange(2000) % 50
    tasks = task.astype(str), (task % 2).astype(str)
    gains = (pooled(old[:2000], new[:2000], of).pooled.gain for of in tasks)
    wide, narrow = (of.high - of.low for of in gains)
    assert wide < 1.3 * narrow


def test_clusters_and_runs_widen_the_mean():
    old, new, task = three()
    copies = [np.repeat(x, 4) for x in (old, new, task)]
    plain = pooled(old, new, task).pooled
    clusters = np.repeat(np.arange(len(old)), 4)
    found = pooled(*copies, clusters=clusters).pooled
    # The small benchmark has most of the variance: fewer degrees of freedom, and
    # clusters have the factor G / (G - 1) in each benchmark.
    assert found.gain.high == pytest.approx(plain.gain.high, abs=0.005)
    assert found.p == pytest.approx(plain.p, abs=0.02)
    runs = np.random.default_rng(1).random((2, 3, len(task))) < 0.3
    assert pooled(*runs.astype(int), task).pooled.gain.low < 0


def test_what_cannot_be_pooled_is_refused(tmp_path):
    old, new, task = three()
    labels = np.zeros(len(task), int)
    slices = {"task": task}
    given = {"labels": labels, "slices": slices, "pool": "tsk"}
    fails("no column 'tsk' to pool; did you mean", compare, old, new, **given)
    fails("there are no labels", compare, old, new, slices=slices, pool="task")
    fails("names 1 benchmark", pooled, old, new, np.where(task == "a", "a", ""))
    for name, values in (("v1", old), ("v2", new)):
        np.save(tmp_path / f"{name}.npy", values)
    found = compare_versions(tmp_path, labels=labels, slices=slices, pool="task")
    assert found.steps[0].pooled.benchmarks == 3
