"""How many examples and runs decide: parts of a variance, power as promised."""

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from churn_compare import compare_outcomes, size
from churn_compare.cli import main
from churn_compare.estimates import all_examples, difference_ends
from churn_compare.example_numbers import class_numbers
from churn_compare.gates import GateError
from churn_compare.sizing import Components, components
from tests.cases import class_scan, csv_file, fails


def test_parts_of_a_variance_are_found(rng):
    spread = {"e": 0.7, "r": 0.3, "s": 0.2, "er": 0.9, "es": 0.6, "ers": 0.8}
    N, A, B, found = 4000, 4, 3, []
    shapes = {"r": (A, 1), "s": (B, 1), "er": (A, N), "es": (B, N)}
    for _ in range(60):
        e = spread["e"] * rng.normal(size=N)
        r, s, er, es = (spread[k] * rng.normal(size=of) for k, of in shapes.items())
        x = (
            e + r[a] + s[b] + er[a] + es[b] + spread["ers"] * rng.normal(size=N)
            for a, b in itertools.product(range(A), range(B))
        )
        found.append(components(x, A, B, all_examples(N, None, 0.95), True)[0])
    names = {"examples": "e", "old": "er", "new": "es", "both": "ers"}
    for name, of in (names | {"old_run": "r", "new_run": "s"}).items():
        mean = np.mean([getattr(parts, name) for parts in found])
        assert mean == pytest.approx(spread[of] ** 2, rel=0.25), name


def test_with_one_run_a_size_is_the_formula():
    # 100 flips of 10,000; Wilson's end leaves out 1.3 % from N on where
    # 0.003 sqrt(N) = 1.96 sqrt(.013 .987) + .8416 sqrt(.01 .99)
    old = np.zeros(10_000, int)
    new = np.where(np.arange(10_000) < 100, 1, 0)
    found = size(old, new, labels=old, gates={"max_nfr": "1.3%"})
    variance = 0.0099 * 10_000 / 9_999
    end = 1.959964 * np.sqrt(0.013 * 0.987 / 0.0099)  # in standard deviations
    wanted = (end + 0.841621) * np.sqrt(variance) / 0.003
    now, more = found.options
    assert more.examples == pytest.approx(wanted**2, abs=1)
    assert now.power < 0.8 <= more.power and found.quantity == "negative_flip_rate"
    half = 1.959964 * np.sqrt(variance / 10_000)
    assert now.half_width == pytest.approx(half, rel=1e-4)
    assert found.components == Components(pytest.approx(variance))
    assert "more examples" in str(found)
    for limit in (0, "0.001%"):  # left out from the first flip on
        few = size(old, new, labels=old, gates={"max_nfr": limit}).options[1]
        assert few.examples == np.ceil(np.log(0.2) / np.log(0.99))
    enough = size(old, new, labels=old, gates={"max_nfr": "2%"})
    assert enough.options[1].examples < 10_000 and "would do" in str(enough)


@pytest.mark.parametrize(("mean", "sd"), [(1, 0.3), (1, 1), (0.6, 1)])
def test_few_scores_have_the_quantile_and_power_of_a_t_test(mean, sd):
    change = np.repeat([-1.0, 1.0], 200) * np.sqrt(399 / 400) * sd + mean
    sides = [{"id": range(400), "score": of} for of in (0 * change, change)]
    N = size(*sides).options[1].examples
    n = np.array([N, N - 1])
    enough, less = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, mean / sd * n**0.5)
    assert enough > 0.798 and (N == 10 or less < 0.802)


def test_names_of_clusters_are_those_of_compare_and_few_widen_the_interval():
    codes = np.repeat(np.arange(6), 50)
    change = 1.5 + 0.7 * np.cos(codes) + 0.3 * np.cos(np.arange(300) ** 2)
    same = {"id": range(300), "user": [f"user {1000 * c}" for c in codes]}
    sides = [same | {"score": of} for of in (0 * change, change)]
    score = compare_outcomes(*sides, clusters="user")["score"]["score_change"]
    forms = "user", codes, 1000 * codes + 7
    found = [size(*sides, clusters=of).options[0].half_width for of in forms]
    assert found == [found[0]] * 3
    median = np.sqrt(stats.chi2.median(5) / 5)  # of a standard deviation of 6
    assert found[0] == pytest.approx(median * (score.high - score.low) / 2, rel=0.01)
    fails("clusters", size, *sides, clusters=codes[1:])


@pytest.mark.parametrize("change", ["-5%", "-20%", "-60%"])
def test_a_change_larger_than_the_flips_of_the_pilot_has_flips_of_its_own(change):
    old, new = np.ones(2000, int), 1 * (np.arange(2000) >= 10)
    N = size(old, new, labels=old, change=change).options[1].examples
    chance = stats.binom(N, -float(change[:-1]) / 100).pmf(np.arange(N + 1))
    lost = np.arange(N + 1) / N
    high = difference_ends(0, lost, lost * (1 - lost) / N, 1.96, N)[1]
    assert chance @ (high < 0) > 0.8


def drawn(rng, examples, runs):
    """Right and wrong of runs that share how hard an example is."""
    hard = rng.normal(size=examples) * 2.0
    noise = rng.normal(size=(2, runs, examples))
    return [1 * (hard + gain + of < 0) for gain, of in zip((1.8, 2.0), noise)]


@pytest.mark.parametrize("runs", [1, 3])
def test_the_promised_power_is_reached(runs):
    rng, labels = np.random.default_rng(1), np.zeros(40_000, int)
    gain = 0.0248  # ndtr(2 / sqrt(5)) - ndtr(1.8 / sqrt(5))
    found = size(*drawn(rng, 40_000, runs), labels=labels, change=gain)
    enough = found.options[1]
    assert (enough.old, enough.new) == (runs, runs) and enough.examples < 10_000
    every = all_examples(enough.examples, None, 0.95)
    told, trials = 0, 150
    for _ in range(trials):
        scanned = class_scan(*drawn(rng, enough.examples, runs))
        numbers = class_numbers(scanned, labels[: enough.examples])
        told += numbers.change(every).low[0] > 0
    assert 0.7 * trials <= told <= 0.9 * trials


def test_samples_of_each_example_count_as_runs(rng):
    p, ids = rng.beta(2, 1, size=400), np.tile(np.arange(400), 4)
    right = 1 * (rng.random((2, 4, 400)) < p)
    sides = [{"id": ids, "correct": of.ravel()} for of in right]
    found = size(*sides, change=0.03)
    assert not found.components.shared and found.components.old > 0.05
    assert found.quantity == "accuracy_gain"
    samples = [of for of in found.options if of.old > 4]
    assert samples and "samples of each example" in str(found)
    # What is left with very many samples is what examples differ by.
    assert samples[0].half_width < found.options[0].half_width


def test_runs_that_are_compared_in_pairs_count_as_pairs(rng):
    old, labels = drawn(rng, 600, 4)[0], np.zeros(600, int)
    new = np.where(rng.random((4, 600)) < 0.04, 1 - old, old)
    said = " ".join(str(size(old, new, labels=labels, change=0.01)).split())
    assert "600 examples with 4 pairs of runs distinguish" in said
    assert "pairs of runs, on each example" in said.lower() and " new " not in said
    assert "unknown" not in said and "a side" not in said


def test_what_is_refused(rng, tmp_path):
    labels = np.zeros(500, int)
    sides = [of[0] for of in drawn(rng, 500, 1)]
    two, one = {"max_nfr": 0.1, "max_churn": 0.2}, {"max_nfr": 0.1}
    for options, says in (
        ({"labels": None}, "without labels or a limit"),
        ({"gates": two}, "one limit, on all examples"),
        ({"gates": one, "change": 0.05}, "for a limit or for a change, not for both"),
        ({"change": "1"}, "change 1 may mean 1 % or 100 %"),
        ({"change": 30}, "change must lie between -1 and 1, got 30; write 0.05 or"),
        ({"change": 0.0}, "the limit itself"),
    ):
        fails(says, size, *sides, **{"labels": labels} | options, of=GateError)
    given = {"labels": labels, "power": 0.2, "of": ValueError}
    fails(r"power between 0\.5 and 1", size, *sides, **given)
    for options in ({"gates": {"max_nfr": "1%"}}, {"change": "1%"}):
        same = labels, labels  # nothing in the pilot says how it varies
        fails("larger pilot", size, *same, labels=labels, **options, of=GateError)
    scores = [{"id": [*range(500)], "score": side} for side in sides]
    fails("outcomes take no separate labels", size, *scores, labels=labels)
    answers = [{"answer": side, "key": labels} for side in sides]
    fails("no separate ids; put them", size, *answers, ids=[*range(500)])
    assert size(*answers, target_column="key").quantity == "accuracy_gain"
    words = ["size"]
    for name, side in zip(("old", "new"), sides, strict=True):
        path = tmp_path / f"{name}.csv"
        words.append(csv_file(path, id=range(500), prediction=side, label=labels))
    page, record = tmp_path / "size.html", tmp_path / "size.json"
    written = ["--html", str(page), "--json", str(record)]
    assert main([*words, "--max-nfr", "8%", *written]) == 0
    assert "Where the variance comes from" in page.read_text()
    assert "1 old and 1 new run decide" in page.read_text()
    assert not {"passed", "state"} & json.loads(record.read_text()).keys()
