"""Do the intervals of a comparison hold the truth as often as they say?

    JAX_PLATFORMS=cpu python benchmarks/compare_coverage.py --trials 2000

Predictions are drawn from models of which the true numbers are known, and compared with
`churn_compare`. A row is the share of trials, in percent, whose 95 % interval holds the
truth, or in which a test rejects at 5 %. `one` has one run a side: examples fall into
the five outcomes with given probabilities. `runs` has several: an example has a
difficulty that all runs share and one for each version, every run shifts all of its
scores (`shift`) and adds its own noise; the truth is that of new runs on new examples.
`scores` are numbers of scores rather than of classes, by the bootstrap; `noise` is the
test of "no more than retraining" and the intervals of `Noise`. `null` has that test
alone on equal versions, many cells of churn, examples and runs, and `power` on versions
that differ; `strong` has the intervals where runs differ by far more than examples
explain. `outcomes` has the intervals of `compare_outcomes`: scores and right and wrong
answers, also with several samples of each and with clusters of examples. `clusters` has
the intervals of classes where examples flip together in clusters, and the sign-flip
test of equal versions; `precision` how often a change of accuracy as large as the
detectable one is found, and one as large as the margin is taken for equivalent.
`pooled` has the mean change over several benchmarks, and its test on equal versions.
`labels` has flips by the labels of some of the changed examples (rows: examples, churn,
shares of it that get worse and better, labels; or labels of changed examples in each
stratum and the share that gets worse), and `deciding` the median number of labels that
decide a limit. `size` has how often comparisons decide of the sizes that
`churn-compare size` names, which promises 80 %; the pilot has 20,000 examples.
"""

import argparse
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import turns
from scipy import special, stats
from simulated import (
    Binary,
    Runs,
    by_cluster,
    exchanged,
    flipped,
    held,
    intervals,
    noise,
    normal_nodes,
    normals,
    outcome_intervals,
    sides_of,
    sizes,
    truth_of,
)

from churn_compare import sizing
from churn_compare.estimates import all_examples
from churn_compare.example_numbers import Numbers, class_numbers
from churn_compare.groups import coded, pool
from churn_compare.labelling import NAMES, confidence_sequence, ends_of
from churn_compare.noise import noise_of
from churn_compare.outcomes import Measure
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.result import Sampled, Stratum

# Name of a quantity -> heading.
SHARES = {
    "churn": "churn",
    "negative_flip_rate": "NFR",
    "positive_flip_rate": "PFR",
    "accuracy_old": "acc old",
    "accuracy_new": "acc new",
    "accuracy_gain": "gain",
    "relative_negative_flip_rate": "relNFR",
    "backward_trust_compatibility": "BTC",
    "backward_error_compatibility": "BEC",
    "good_churn": "good",
    "kappa": "kappa",
}

Trial = Callable[[np.random.Generator, int], list]  # numbers of one trial; nan: none
Cell = tuple[str, Trial] | tuple[str, Trial, int]  # label, trial, divisor of trials


def cells_one() -> Iterator[Cell]:
    sizes, rates = (40, 200, 1000, 5000, 20000), (0.01, 0.03, 0.1, 0.3)
    for N, flips in itertools.product(sizes, rates):
        rest = (flips, 1.5 * flips, flips / 3, 0.1)
        outcomes = np.array([1 - sum(rest), *rest])
        truth = truth_of(outcomes)

        def trial(rng, number, N=N, outcomes=outcomes, truth=truth):
            drawn = rng.choice(5, size=N, p=outcomes)
            old, new = np.array([[0, 0, 1, 1, 1], [0, 1, 0, 2, 1]])[:, drawn]
            found = intervals(sides_of(old, new), np.zeros(N), seed=number)
            return [held(found[name], truth[name]) for name in SHARES]

        yield f"N {N}, NFR {100 * flips:.0f} %", trial


def cells_runs() -> Iterator[Cell]:
    for offset, shift in itertools.product((5.5, 2.5), (0.0, 0.1)):
        model = Runs(offset=offset, shift=shift)
        truth = model.truth()
        for N, R in itertools.product((200, 2000, 20000), (2, 3, 5, 10)):

            def trial(rng, number, N=N, R=R, model=model, truth=truth):
                scanned = model.scanned(rng, N, (R, R))
                found = intervals(scanned, np.zeros(N, np.int64), seed=number)
                return [held(found[name], truth[name]) for name in SHARES]

            label = f"churn {100 * truth['churn']:.1f} %, shift {shift}, N {N}, R {R}"
            yield label, trial, 1 if R * R * N < 10**5 else 4


NOISE = ("within_old", "within_new", "expected", "excess")
NOISE_FLIPS = ("expected_nfr", "excess_nfr", "excess_pfr")


def cells_noise() -> Iterator[Cell]:
    updates = (("equal", 0.0, 0.0), ("small", 0.3, 0.3), ("large", 0.5, 1.0))
    for (label, gain, own), shift in itertools.product(updates, (0.05, 0.15)):
        model = Runs(gain=gain, own=own, shift=shift)
        truth = model.noise_truth()
        for N, R in itertools.product((200, 2000), (2, 3, 5)):

            def trial(rng, number, N=N, R=R, model=model, truth=truth):
                scanned = model.scanned(rng, N, (R, R))
                numbers = class_numbers(scanned, np.zeros(N, np.int64))
                every = all_examples(N, None, 0.95)
                noise, beyond = noise_of(numbers, every), numbers.beyond_runs(every)
                flips = {name: beyond[name].of(0) for name in NOISE_FLIPS}
                nfr = flips["excess_nfr"]
                return [
                    noise.p < 0.05,
                    *(held(getattr(noise, name), truth[name]) for name in NOISE),
                    not nfr.low <= 0 <= nfr.high,
                    *(held(of, truth[name]) for name, of in flips.items()),
                ]

            yield f"{label}, shift {shift}, N {N}, R {R}", trial


def cells_scores() -> Iterator[Cell]:
    """Surrogate churn and NLL: skewed values, `rare` of which are not nearly zero."""
    names = ("surrogate_churn", "nll_old", "nll_change", "brier_change", "ece_old",
             "ece_change")  # fmt: skip
    for rare, N, R in itertools.product((0.02, 0.2), (200, 1000, 20000), (1, 3)):
        truth = (rare * 0.4 + (1 - rare) * 0.002, 0.4, 0.0, 0.0, 0.1, 0.0)

        def trial(rng, number, rare=rare, N=N, R=R, truth=truth):
            level, size = rng.random(N) < rare, rng.beta(2.0, 3.0, N)
            each = np.where(level, size, 0.002) * rng.uniform(0.5, 1.5, (R, R, N))
            difficulty = rng.exponential(size=N) ** 2
            sides = []
            for _ in range(2):
                nll = 0.2 * difficulty * rng.uniform(0.5, 1.5, (R, N))
                # The confidence is right by twenty points too often.
                confidence = rng.uniform(0.6, 0.9, (R, N))
                wrong = rng.random((R, N)) >= confidence - 0.1
                parts = (confidence, -nll, np.square(1 - np.exp(-nll)))
                floats = (part.astype(np.float32) for part in parts)
                sides.append(ScannedSide(wrong.astype(np.int32), *floats))
            scanned = Scanned(*sides, surrogate=each.astype(np.float32))
            options = {"seed": number, "resamples": 1000}
            found = intervals(scanned, np.zeros(N, np.int64), **options)
            return [held(found[name], true) for name, true in zip(names, truth)]

        yield f"rare {rare}, N {N}, R {R}", trial, 1 if N < 2000 else 4


def retraining(model: Binary, runs: int, N: int) -> Trial:
    """True if the test of two equal numbers of runs has a p, and rejects at 5 %."""

    def trial(rng, number):
        ones = model.draw(rng, runs, 2 * runs, N)
        p = noise(sides_of(*np.split(ones, [runs]))).p
        rejects = p < 0.05
        return [not np.isnan(p), rejects, np.nan if np.isnan(p) else rejects]

    return trial


def cells_null() -> Iterator[Cell]:
    models = {
        "independent": Binary(0.1, independent=True),
        "difficulties": Binary(0.1),
        "runs differ": Binary(0.1, shift=1.0),
    }
    parts = models, (2, 3, 5), (0.005, 0.01, 0.03, 0.1, 0.3), (100, 300, 1000, 5000)
    for label, R, churn, N in itertools.product(*parts):
        model = dataclasses.replace(models[label], churn=churn)
        yield f"{label}, {R}x{R}, {100 * churn:g} %, N {N}", retraining(model, R, N)


def cells_power() -> Iterator[Cell]:
    parts = (0.0, 0.3), (3, 5), (0.01, 0.05), (0.05, 0.2, 1.0), (300, 1000, 5000)
    for shift, R, churn, part, N in itertools.product(*parts):
        model = Binary(churn, shift=shift).with_excess(part * churn)
        added = f"{100 * churn:g} + {100 * part * churn:g} %"
        yield f"shift {shift}, {R}x{R}, {added}, N {N}", retraining(model, R, N)


def cells_strong() -> Iterator[Cell]:
    """With one new run the truth is that run's: churn with it of all old runs."""
    N, (nodes, weights) = 1000, normal_nodes(150)
    runs = ((2, 2), (3, 3), (5, 5), (10, 10), (5, 1), (10, 1))
    for churn, shift, (A, B) in itertools.product((0.01, 0.1), (0.0, 0.3, 1.0), runs):
        model = Binary(churn, shift=shift)

        def trial(rng, number, A=A, B=B, model=model):
            difficulty = model.offset + model.spread * nodes
            shifts = model.shift * rng.standard_normal((A + B, 1))
            score = model.spread * rng.standard_normal(N)
            score = score + rng.standard_normal((A + B, N))
            scanned = sides_of(*np.split(model.offset + score + shifts < 0, [A]))
            found = noise(scanned)
            churn = intervals(scanned, None, resamples=100, seed=number)["churn"]
            between = model.churn
            if B == 1:
                typical = special.ndtr(difficulty / np.hypot(1, model.shift))
                one = special.ndtr(difficulty + shifts[A, 0])
                between = float(weights @ (typical * (1 - one) + one * (1 - typical)))
            true = (between, model.churn, between - model.churn)
            parts = (churn, found.expected, found.excess)
            return [held(part, x) for part, x in zip(parts, true)]

        yield f"{100 * churn:g} %, shift {shift}, R {A}, {B}", trial


IN_CLUSTERS = ("churn", "negative_flip_rate", "positive_flip_rate", "accuracy_new",
               "accuracy_gain", "backward_trust_compatibility",
               "good_churn")  # fmt: skip


def cells_clusters() -> Iterator[Cell]:
    """Versions of which each cluster has its own rates of flips, beta distributed.

    `alike` is the correlation of two examples of a cluster; sizes are all equal, or
    geometric. The sign-flip test is that of versions exchanged at random.
    """
    sizes = [(10, 4), (10, 25), (20, 25), (40, 5), (40, 25), (200, 5)]
    parts = sizes, ("equal", "unequal"), (0.02, 0.1), (0.0, 0.1, 0.4)
    for (count, mean), how, flips, alike in itertools.product(*parts):
        right, gained = 0.9 * (1 - 2.5 * flips), 1.5 * flips
        truth = (2.5 * flips, flips, gained, right + gained, gained - flips,
                 right / (right + flips), 0.6)  # fmt: skip

        def trial(rng, number, of=(count, mean, how, flips, alike), truth=truth):
            count, mean, how, flips, alike = of
            size = np.full(count, mean)
            if how == "unequal":
                size = rng.geometric(1 / mean, count)
            cluster = np.repeat(np.arange(count), size)

            def rates(rate: float) -> np.ndarray:
                if not alike:
                    return np.full(len(cluster), rate)
                scale = (1 - alike) / alike
                return rng.beta(rate * scale, (1 - rate) * scale, count)[cluster]

            old, new = flipped(rng, rates(flips), rates(1.5 * flips))
            labels = np.zeros(len(cluster), np.int64)
            found = by_cluster(sides_of(old, new), labels, cluster)[0]
            null = sides_of(*exchanged(rng, old, new, cluster))
            rejects = by_cluster(null, labels, cluster)[1] < 0.05
            pairs = zip(IN_CLUSTERS, truth)
            return [*(held(found[name], true) for name, true in pairs), rejects]

        yield f"{count} of {mean} {how}, {100 * flips:.0f} %, {alike}", trial


def cells_precision() -> Iterator[Cell]:
    """Power at the detectable change; equivalence at the margin and at no change."""
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    for N, flips in itertools.product((40, 200, 1000, 5000), (0.05, 0.2)):
        gain = min(z * np.sqrt(flips / N), flips)

        def trial(rng, number, N=N, flips=flips, gain=gain):
            found = []
            for k, true in enumerate((gain, gain, gain / 2, 0.0)):
                u = rng.random(N)
                scanned = sides_of(u > 1 - (flips + true) / 2, u < (flips - true) / 2)
                every = all_examples(N, None, 0.95 if k == 0 else 0.9)
                within = class_numbers(scanned, np.zeros(N)).change(every).of(0)
                detected = within.low > 0 or within.high < 0
                equal = max(-within.low, within.high) < gain
                found.append(detected if k == 0 else equal)
            return found

        yield f"N {N}, flips {100 * flips:.0f} %", trial


RARE = 0.05  # of skewed changes, how many are not nearly zero
CLUSTERED = [("", N) for N in (40, 200, 1000)]
CLUSTERED += [(kind, N) for kind in ("1 to 20", "28 % in one") for N in (200, 1000)]


def cells_outcome_scores() -> Iterator[Cell]:
    """Scores; a change of more than 1 counts as one."""
    kinds = (("normal", 1), ("normal", 5), ("skewed", 1))
    for (label, runs), (kind, N) in itertools.product(kinds, CLUSTERED):
        cluster, skewed = sizes(kind, N), label == "skewed"
        worse = stats.norm.cdf(-1.2 / np.sqrt(1 + 0.5 * (runs > 1)))
        truth = (0.0, RARE / 4) if skewed else (0.2, worse)

        def trial(rng, number, of=(N, runs, cluster, skewed), truth=truth):
            N, runs, cluster, skewed = of
            change = 0.2 + normals(rng, N, cluster)
            if skewed:  # few examples change, and by lognormal numbers
                size = np.exp(normals(rng, N, cluster))
                sign = np.where(rng.random(N) < 0.5, 1.0, -1.0)
                change = np.where(rng.random(N) < RARE, sign * size, 0.0)
            base = normals(rng, N, cluster)
            noise = 0.5 * (runs > 1 and not skewed)
            old, new = (base + noise * rng.standard_normal((runs, N)) for _ in "ab")
            measure = Measure("s", "score", old, new + change, tolerance=1.0)
            found = outcome_intervals(measure, cluster)
            names = ("score_change", "share_worse")
            return [held(found[name], true) for name, true in zip(names, truth)]

        yield f"{label}, N {N}, R {runs}" + f", {kind}" * bool(kind), trial


def cells_outcomes() -> Iterator[Cell]:
    """Classes, right or wrong, as `Runs` without shifts."""
    shares = ("churn", "negative_flip_rate", "accuracy_new", "accuracy_gain")
    sides = ((1, 1), (5, 5), (5, 1))
    for offset, runs in itertools.product((2.5, 5.5, 9.0), sides):
        model = Runs(offset=offset, shift=0.0)
        truth, noise = model.truth(), model.noise_truth()
        truth["excess_churn"] = noise["excess"]
        if runs == (5, 1):  # a single run is compared with the noise of the others
            truth["excess_churn"] = truth["churn"] - noise["within_old"]
        names = (*shares, *(("excess_churn",) if max(runs) > 1 else ()))
        for kind, N in CLUSTERED:
            cluster = sizes(kind, N)

            def trial(rng, number, of=(N, runs, cluster, model, names), truth=truth):
                N, runs, cluster, model, names = of
                drawn = model.draw(rng, N, runs, lambda: normals(rng, N, cluster))
                target, things = np.zeros(N, np.int64), ("a", "b", "c")
                measure = Measure("l", "label", *drawn, things=things, target=target)
                found = outcome_intervals(measure, cluster)
                missing = [np.nan] * (5 - len(names))
                return [held(found[name], truth[name]) for name in names] + missing

            label = f"churn {100 * truth['churn']:.2f} %, N {N}, R {runs[0]}, {runs[1]}"
            yield label + f", {kind}" * bool(kind), trial


def cells_pooled() -> Iterator[Cell]:
    """Coverage of the mean over benchmarks; its test where versions are equal."""
    sizes = (40,) * 3, (200,) * 3, (40,) * 10, (20, 50, 100, 500, 1000)
    every_size = (*itertools.product(sizes, (0.02, 0.1)), ((100,) * 57, 0.005))
    # Each has its own gain; or the smallest has one that it may not show.
    parts = [(of, x, x * (np.arange(len(of)) % 3) / 2) for of, x in every_size]
    small = ((2000, 10), 0.08), ((2000, 30), 0.04), ((1000,) * 3 + (20,), 0.06)
    parts += [(of, 0.02, np.eye(len(of))[-1] * gain) for of, gain in small]
    for size, flips, gain in parts:
        group = np.repeat(np.arange(len(size)), size)
        labels, of = np.zeros(len(group), np.int64), coded(group.astype(str))
        lost, gained = np.full(len(size), flips)[group], (flips + gain)[group]
        every = all_examples(len(group), None, 0.95)

        def pooled(*sides, labels=labels, every=every, of=of):
            return pool(class_numbers(sides_of(*sides), labels), every, "of", *of)

        def trial(rng, number, lost=lost, gained=gained, pooled=pooled, every=every,
                  of=of, gain=gain, group=group):  # fmt: skip
            old, new = flipped(rng, lost, gained)
            found = [held(pooled(old, new).gain, gain.mean())]
            before = rng.standard_normal((1, len(group)))
            after = before + gain[group] + rng.standard_normal((1, len(group)))
            numbers = Numbers(Measure("s", "score", before, after))
            found.append(held(pool(numbers, every, "of", *of).gain, gain.mean()))
            return [*found, pooled(*exchanged(rng, old, new)).p < 0.05]

        several = f" to {max(size)}" * (len(set(size)) > 1)
        label = f"{len(size)} of {min(size)}{several}, flips {100 * flips:g} %"
        yield label + f", gain {100 * gain.max():g} %", trial


def sampled(N: int, *strata: tuple[int, np.ndarray, np.ndarray]) -> Sampled:
    """Some changed examples of each stratum, drawn at random: which flip."""
    found = []
    for k, (changed, worse, better) in enumerate(strata):
        parts = (worse, better, better - worse)
        squares = tuple(float(np.mean(np.square(part))) for part in parts)
        means = float(worse.mean()), float(better.mean())
        found.append(Stratum(str(k), changed, len(worse), *means, squares))
    return Sampled(N, tuple(found), 0.95)


# Changed examples of 10,000, the share of them that gets worse, and labels, by stratum.
BY = (
    ((1000, 0.05, 20), (40, 0.25, 20)),
    ((1000, 0.05, 20), (200, 0.25, 20)),
    ((800, 0.1, 10), *((100, 0.3, 10),) * 3),
    ((100, 0.3, 20), (100, 0.3, 2)),
    ((100, 0.3, 50), (100, 0.3, 1)),
    ((200, 0.2, 10),) * 4,
    ((40, 0.05, 5),) * 30,
)


def cells_labels() -> Iterator[Cell]:
    """Flips by the labels of a part of the changed examples, and a look after each."""
    fates = ((0.1, 0.3), (0.4, 0.5), (0.8, 0.1))
    sizes = (200, 2000, 20_000), (0.005, 0.04, 0.2), fates, (10, 50, 200, 10**9)
    cells: list[tuple[str, int, list]] = []
    for N, churn, fate, labels in itertools.product(*sizes):
        if labels < min(N * churn, 10**9) or labels == 10**9:
            what = f"{fate[0]:g} and {fate[1]:g}, {labels if labels < 10**9 else 'all'}"
            label = f"{N}, {100 * churn:g} %, {what}"
            cells.append((label, N, [(N * churn, *fate, labels)]))
    for of in BY:
        named = {f"{n} of {M}, {100 * p:g} %": (M, p, n) for M, p, n in of}
        label = " + ".join(f"{of.count(one)} x {name}" for name, one in named.items())
        cells.append((label, 10_000, [(M, p, 0.1, n) for M, p, n in of]))
    for label, N, strata in cells:

        def trial(rng, number, N=N, strata=strata):
            drawn, here, there = [], np.zeros(2), np.zeros(2)
            for changed, lost, gained, labels in strata:
                fate = rng.random(rng.binomial(N, changed / N))
                worse, better = 1.0 * (fate < lost), 1.0 * (fate >= 1 - gained)
                here += np.array([worse.sum(), better.sum()]) / N
                there += np.array([lost, gained]) * changed / N
                if len(fate):
                    drawn.append((len(fate), worse[:labels], better[:labels]))
            if not drawn:
                return [np.nan] * 7
            found = []
            for new, (w, b) in enumerate((here, there)):  # these examples, new ones
                for name, true in zip(NAMES, (w, b, b - w)):
                    ends = ends_of(sampled(N, *drawn), name, population=bool(new))
                    slack = 1e-12 * (not new)
                    found.append(ends.low - slack <= true <= ends.high + slack)
            if len(strata) > 1:
                return [*found, np.nan]
            low, high = confidence_sequence(worse[: min(labels, 400)], len(fate), 0.95)
            return [*found, low - 1e-12 <= worse.mean() <= high + 1e-12]

        yield label, trial


def cells_deciding() -> Iterator[Cell]:
    """How many labels decide a limit of 1 % on NFR, in these examples."""
    limit = 0.01
    parts = (2000, 20_000), (0.01, 0.04, 0.2), (0.002, 0.006, 0.015, 0.04)
    for N, churn, nfr in itertools.product(*parts):
        if nfr >= churn:
            continue

        def trial(rng, number, N=N, churn=churn, nfr=nfr):
            changed = rng.binomial(N, churn)
            worse = (rng.random(changed) < nfr / churn).astype(float)
            if not changed or worse.sum() == limit * N:
                return [np.nan] * 4

            def one_look(n: int):
                drawn = sampled(N, (changed, worse[:n], 0 * worse[:n]))
                ends = ends_of(drawn, "negative_flip_rate")
                return ends.low, ends.high

            def any_time(n: int):
                ends = confidence_sequence(worse[:n], changed, 0.95)
                return ends[0] * changed / N, ends[1] * changed / N

            needed = []
            for ends in (one_look, any_time):
                low, high = 0, changed
                while high - low > 1:
                    middle = (low + high) // 2
                    below, above = ends(middle)
                    undecided = below <= limit <= above
                    low, high = (middle, high) if undecided else (low, middle)
                needed.append(high)
            return [changed, *needed, 100 * needed[1] / N]

        yield f"{N}, {100 * churn:g} %, NFR {100 * nfr:g} %", trial


def cells_size() -> Iterator[Cell]:
    """How often a comparison of the size that is named decides."""
    every = all_examples(20_000, None, 0.95)
    for shift, pilot in itertools.product((0.0, 0.1), (1, 20)):
        model, rng = Runs(shift=shift), np.random.default_rng(0)
        scanned, labels = model.scanned(rng, 20_000, (pilot, pilot)), every.group
        numbers, truth = class_numbers(scanned, labels), model.truth()
        for name, of_share in (("negative_flip_rate", True), ("accuracy_gain", False)):
            event = sizing.events(numbers)[name]
            values = (event(r, s).astype(float) for _, r, s in numbers.pairs())
            parts, _ = sizing.components(values, pilot, pilot, every, True)
            limit = 1.3 * truth[name] if of_share else 0.0
            design = sizing.Design(parts, truth[name], limit, of_share, 0.95, 0.8)
            for runs in (1,) if pilot == 1 else (2, 3, 5, 10):

                def option(N, design=design, runs=runs):
                    return design.option(N, runs, runs)

                found = design.least(option, 2, 50_000)
                if found is None:
                    continue

                def trial(rng, number, of=found, name=name, limit=limit, model=model):
                    whole = all_examples(of.examples, None, 0.95)
                    scanned = model.scanned(rng, of.examples, (of.old, of.new))
                    numbers = class_numbers(scanned, whole.group)
                    ends = numbers.intervals(whole)[name].of(0)
                    return [not ends.low <= limit <= ends.high]

                label = f"{shift}, {pilot} runs, {SHARES[name]}: "
                yield label + f"{found.examples} x {runs}", trial


FLIPS = ("NFR", "PFR", "gain")
TABLES: dict[str, list[tuple[tuple[str, ...], Callable[[], Iterator[Cell]]]]] = {
    "one": [((*SHARES.values(),), cells_one)],
    "runs": [((*SHARES.values(),), cells_runs)],
    "scores": [(("surr.", "NLL", "d NLL", "d Brier", "ECE", "d ECE"), cells_scores)],
    "noise": [(("rejects", "old", "new", "expected", "excess", "NFR rejects",
                "expected NFR", "excess NFR", "excess PFR"), cells_noise)],
    "null": [(("p given", "rejects", "of given"), cells_null)],
    "power": [(("p given", "rejects", "of given"), cells_power)],
    "strong": [(("churn", "within", "excess"), cells_strong)],
    "outcomes": [
        (("change", "worse"), cells_outcome_scores),
        (("churn", "NFR", "acc new", "gain", "excess"), cells_outcomes),
    ],
    "clusters": [(("churn", "NFR", "PFR", "acc new", "gain", "BTC", "good",
                   "rejects"), cells_clusters)],
    "precision": [(("detected", "at margin", "at half", "at 0"), cells_precision)],
    "pooled": [(("classes", "scores", "p"), cells_pooled)],
    "labels": [((*FLIPS, *(f"{n} new" for n in FLIPS), "any time"), cells_labels)],
    "size": [(("decided",), cells_size)],
    "deciding": [(("changed", "one look", "any time", "% of all"), cells_deciding)],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--cells", nargs="+", help="only rows with these names")
    options = parser.parse_args()
    for table in options.tables:
        start = time.perf_counter()
        for headings, cells in TABLES[table]:
            turns.head(table, *headings)
            for label, trial, *divisor in cells():
                if options.cells and label not in options.cells:
                    continue
                rng = np.random.default_rng(0)
                count = options.trials // (divisor or [1])[0]
                found = np.array([trial(rng, n) for n in range(count)], float)
                if table == "deciding":
                    numbers = np.nanmedian(found, axis=0)
                else:
                    given = np.maximum((~np.isnan(found)).sum(axis=0), 1)
                    numbers = 100 * np.nansum(found, axis=0) / given
                turns.row(label, *(f"{x:.1f}" for x in numbers))
        print(f"\n{table}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
