"""The mean over benchmarks, against loops and SciPy."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from churn_compare import compare, compare_outcomes, compare_versions
from churn_compare.example_ids import PredictionsError


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
    assert answers.p == pytest.approx(2 * stats.norm.sf(abs(z)))
    half = 1.96 * np.sqrt(np.sum(variances) / 9)
    width = answers.gain.high - answers.gain.low
    assert width == pytest.approx(2 * half, rel=0.03)  # a score interval, not z sqrt(V)
    said = "Over 3 values of task, each with the same weight, accuracy changes"
    assert said in " ".join(str(found).split())
    assert found.to_dict()["pooled"]["benchmarks"] == 3


@pytest.mark.parametrize("clustered", [False, True])
def test_right_and_wrong_have_the_answer_of_their_classes(clustered):
    old, new, task = three()
    groups = np.arange(len(task)) // 3
    found = pooled(old, new, task, clusters=groups if clustered else None)
    sides = ({"correct": 1 - x, "task": task, "of": groups} for x in (old, new))
    clusters = "of" if clustered else None
    other = compare_outcomes(*sides, pool="task", clusters=clusters)["correct"]
    gain, p = dataclasses.astuple(other.pooled)[2:]
    assert gain == pytest.approx(dataclasses.astuple(found.pooled.gain))
    assert p == pytest.approx(found.pooled.p)
    slices = zip(other.groups, found.groupings["task"], strict=True)
    assert all(ours.adjusted_p == theirs.adjusted_p for ours, theirs in slices)


def test_flips_that_are_all_alike_have_the_p_of_their_signs():
    task = np.repeat(["a", "b"], 3)
    found = pooled(np.zeros(6, int), np.ones(6, int), task)
    assert found.pooled.p == found.p == 2.0**-5


def test_a_small_benchmark_weighs_as_much_as_a_large_one():
    task = np.repeat(["large", "small"], [2000, 100])
    old, new = np.zeros((2, 2100), int)
    old[:60], new[60:75] = 1, 1  # the large one gains
    new[-12:] = 1  # the small one loses
    found = pooled(old, new, task)
    assert found.p < 0.001 and found["accuracy_gain"].value > 0
    assert found.pooled.gain.value < 0 and found.pooled.p < 0.05


def test_clusters_and_runs_widen_the_mean():
    old, new, task = three()
    copies = [np.repeat(x, 4) for x in (old, new, task)]
    plain = pooled(old, new, task).pooled
    clusters = np.repeat(np.arange(len(old)), 4)
    found = pooled(*copies, clusters=clusters).pooled
    # The small benchmark has most of the variance: fewer degrees of freedom.
    assert found.gain.high == pytest.approx(plain.gain.high, abs=0.003)
    assert found.p == pytest.approx(plain.p, abs=0.01)
    runs = np.random.default_rng(1).random((2, 3, len(task))) < 0.3
    assert pooled(*runs.astype(int), task).pooled.gain.low < 0


def test_what_cannot_be_pooled_is_refused(tmp_path):
    old, new, task = three()
    labels = np.zeros(len(task), int)
    with pytest.raises(PredictionsError, match="no column 'tsk' to pool; did you mean"):
        compare(old, new, labels=labels, slices={"task": task}, pool="tsk")
    with pytest.raises(PredictionsError, match="there are no labels"):
        compare(old, new, slices={"task": task}, pool="task")
    with pytest.raises(PredictionsError, match="names 1 benchmark"):
        pooled(old, new, np.where(task == "a", "a", ""))
    for name, values in (("v1", old), ("v2", new)):
        np.save(tmp_path / f"{name}.npy", values)
    slices = {"task": task}
    found = compare_versions(tmp_path, labels=labels, slices=slices, pool="task")
    assert found.steps[0].pooled.benchmarks == 3
