"""Do the intervals of a comparison hold the truth as often as they say?

    JAX_PLATFORMS=cpu python benchmarks/compare_coverage.py --trials 2000

Predictions are drawn from models of which the true numbers are known, and compared with
`churn_compare`. Printed is the share of trials, in percent, whose 95 % interval
holds the truth. `one` has one run a side: examples fall into the five outcomes with
given probabilities. `runs` has several: an example has a difficulty that all runs share
and one for each version, every run shifts all of its scores (`shift`) and adds its own
noise; the truth is that of new runs on new examples. `scores` are numbers of scores
rather than of classes, by the bootstrap; `noise` is how often the test of "no more than
retraining" rejects at 5 %, and how often the intervals of `Noise` hold. `null` has that
test alone on equal versions, many cells of churn, examples and runs, and `power` on
versions that differ, next to the t-test of the residuals with one or more degrees of
freedom; `strong` has the intervals where runs differ by far more than examples explain.
`outcomes` has the intervals of `compare_outcomes`: scores and right and wrong answers,
also with several samples of each and with clusters of examples. `clusters` has the
intervals of classes where examples flip together in clusters, and how often the
sign-flip test rejects equal versions at 5 %; `precision` how often a change of accuracy
as large as the detectable one is found, and one as large as the margin is taken for
equivalent. `pooled` has the mean change over several benchmarks, and how often tests of
it reject equal versions at 5 %. `labels` has flips by the labels of some of the changed
examples (rows: examples, churn, shares of it that get worse and better, labels), and
`deciding` the median number of these that decide a limit.
"""

import argparse
import dataclasses
import functools
import itertools
import time

import numpy as np
from scipy import optimize, special, stats

from churn_compare.estimates import all_examples
from churn_compare.groups import coded, pool
from churn_compare.intervals import ClassNumbers, intervals, ratios
from churn_compare.labelling import NAMES, confidence_sequence, ends_of
from churn_compare.noise import noise_of, noise_test, retraining_p
from churn_compare.outcomes import Measure, estimate
from churn_compare.outcomes.estimates import OutcomeNumbers
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.reading.join import join
from churn_compare.reading.sides import read_side
from churn_compare.result import Sampled, Stratum
from churn_compare.scanning.scan import scan
from churn_compare.sums import partition

SHARES = (
    "churn",
    "negative_flip_rate",
    "positive_flip_rate",
    "accuracy_old",
    "accuracy_new",
    "accuracy_gain",
    "relative_negative_flip_rate",
    "backward_trust_compatibility",
    "backward_error_compatibility",
    "good_churn",
    "kappa",
)
HEADINGS = ("churn", "NFR", "PFR", "acc old", "acc new", "gain", "relNFR", "BTC", "BEC",
            "good", "kappa")  # fmt: skip
SAME_WRONG = 0.8  # how often a wrong run predicts the example's favourite wrong class


# ------------------------------------------------------------------- one run a side


def one_run(rng: np.random.Generator, examples: int, flips: float, neutral: float):
    """Old and new predictions and labels; negative flips have probability `flips`.

    Positive flips are half as likely again, a tenth of the examples is wrong twice in
    the same way, and `neutral` of them in different ways.
    """
    outcomes = one_run_outcomes(flips, neutral)
    drawn = rng.choice(5, size=examples, p=outcomes)
    old = np.array([0, 0, 1, 1, 1], np.int32)[drawn]
    new = np.array([0, 1, 0, 2, 1], np.int32)[drawn]
    return Scanned(ScannedSide(old[None]), ScannedSide(new[None])), np.zeros(examples)


def one_run_outcomes(flips: float, neutral: float) -> np.ndarray:
    """Of both right, negative, positive, neutral and wrong alike."""
    rest = (flips, 1.5 * flips, neutral, 0.1)
    return np.array([1 - sum(rest), *rest])


def truth_of(outcomes: np.ndarray, pairs: np.ndarray | None = None) -> dict[str, float]:
    """Every number, from the probabilities `[..., 5]` of the outcomes.

    Args:
        outcomes: both right, negative, positive, neutral, wrong alike.
        pairs: weights `[...]` of pairs of runs; None for one pair.
    """
    both, negative, positive, neutral, wrong = np.moveaxis(outcomes, -1, 0)
    churn = negative + positive + neutral
    new_wrong = negative + neutral + wrong
    right, now = both + negative, both + positive
    # Of the wrong predictions, classes 1 and 2 are predicted alike in `runs`; in `one`
    # the old version never predicts 2 and the new one does where it changes its mind.
    old_two = 0.0 * right if pairs is None else (1 - right) / 2
    new_two = neutral if pairs is None else (1 - now) / 2
    old_one, new_one = 1 - right - old_two, 1 - now - new_two
    chance = right * now + old_one * new_one + old_two * new_two
    numbers = {
        "churn": churn,
        "negative_flip_rate": negative,
        "positive_flip_rate": positive,
        "accuracy_old": right,
        "accuracy_new": now,
        "accuracy_gain": positive - negative,
        "relative_negative_flip_rate": negative / (right * new_wrong),
        "backward_trust_compatibility": both / right,
        "backward_error_compatibility": (neutral + wrong) / new_wrong,
        "good_churn": positive / churn,
        "kappa": 1 - churn / (1 - chance),
    }
    weights = np.ones(()) if pairs is None else pairs
    return {name: float(np.sum(weights * x)) for name, x in numbers.items()}


# ---------------------------------------------------------------- several runs a side


@dataclasses.dataclass(frozen=True)
class Runs:
    """Scores `offset + shared b_i + own c_vi + shift s_r + e_ri`; right above 0.

    Attributes:
        offset: of the old version; the new one's is larger by `gain`.
        gain: what the update adds to every score.
        shared: spread of the difficulty that both versions know.
        own: spread of the part that is one version's own.
        shift: spread of the runs' shifts.
    """

    offset: float = 4.0
    gain: float = 0.3
    shared: float = 3.0
    own: float = 0.3
    shift: float = 0.1

    def draw(self, rng: np.random.Generator, examples: int, old: int, new: int):
        """Both versions' predictions and the labels."""
        shared = self.shared * rng.standard_normal(examples)
        favourite = rng.integers(1, 3, size=examples)
        sides = []
        for runs, offset in ((old, self.offset), (new, self.offset + self.gain)):
            own = self.own * rng.standard_normal(examples)
            shift = self.shift * rng.standard_normal((runs, 1))
            score = offset + shared + own + shift
            right = score + rng.standard_normal((runs, examples)) > 0
            swapped = rng.random((runs, examples)) > SAME_WRONG
            wrong = np.where(swapped, 3 - favourite, favourite)
            sides.append(ScannedSide(np.where(right, 0, wrong).astype(np.int32)))
        return Scanned(*sides), np.zeros(examples, np.int64)

    def truth(self) -> dict[str, float]:
        """Means over pairs of new runs, on all examples there could be."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(61)
        weights = weights / weights.sum()
        shifts, of_shifts = np.polynomial.hermite_e.hermegauss(15)
        of_shifts = of_shifts / of_shifts.sum()
        scale = np.sqrt(1 + self.own**2)
        difficulty = self.shared * nodes
        old, new = (
            special.ndtr((offset + difficulty + self.shift * shifts[:, None]) / scale)
            for offset in (self.offset, self.offset + self.gain)
        )
        old, new = old[:, None], new[None]
        both_wrong = (1 - old) * (1 - new)
        differ = 2 * SAME_WRONG * (1 - SAME_WRONG)
        outcomes = np.stack(
            [
                old * new,
                old * (1 - new),
                (1 - old) * new,
                differ * both_wrong,
                (1 - differ) * both_wrong,
            ],
            axis=-1,
        )
        outcomes = np.einsum("abio,i->abo", outcomes, weights)
        return truth_of(outcomes, np.outer(of_shifts, of_shifts))

    def noise_truth(self) -> dict[str, float]:
        """Churn within the sides, and what the update adds."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(61)
        weights = weights / weights.sum()
        within, flips = [], []
        for offset in (self.offset, self.offset + self.gain):
            # two runs of a version share its own part of the difficulty as well
            spread = np.hypot(self.shared, self.own)
            scale = np.sqrt(1 + self.shift**2)
            right = special.ndtr((offset + spread * nodes) / scale)
            differ = 2 * SAME_WRONG * (1 - SAME_WRONG)
            churn = 2 * right * (1 - right) + differ * (1 - right) ** 2
            within.append(float(weights @ churn))
            flips.append(float(weights @ (right * (1 - right))))
        expected, truth = sum(within) / 2, self.truth()
        expected_nfr = sum(flips) / 2
        return {
            "within_old": within[0],
            "within_new": within[1],
            "expected": expected,
            "excess": truth["churn"] - expected,
            "expected_nfr": expected_nfr,
            "excess_nfr": truth["negative_flip_rate"] - expected_nfr,
            "excess_pfr": truth["positive_flip_rate"] - expected_nfr,
        }


# --------------------------------------------------------------------------- scores


def scores(rng: np.random.Generator, examples: int, old: int, new: int, rare: float):
    """Surrogate churn and NLL: skewed values, `rare` of which are not nearly zero."""
    level = rng.random(examples) < rare
    size = rng.beta(2.0, 3.0, examples)
    surrogate = np.where(level, size, 0.002)
    surrogate = surrogate * rng.uniform(0.5, 1.5, (old, new, examples))
    difficulty = rng.exponential(size=examples) ** 2
    # The confidence is right by twenty points too often.
    sides = []
    for runs in (old, new):
        nll = 0.2 * difficulty * rng.uniform(0.5, 1.5, (runs, examples))
        confidence = rng.uniform(0.6, 0.9, (runs, examples))
        right = rng.random((runs, examples)) < confidence - 0.1
        side = ScannedSide(
            np.where(right, 0, 1).astype(np.int32),
            confidence.astype(np.float32),
            -nll.astype(np.float32),
            np.square(1 - np.exp(-nll)).astype(np.float32),
        )
        sides.append(side)
    scanned = Scanned(*sides, surrogate=surrogate.astype(np.float32))
    truth = {
        "surrogate_churn": rare * 0.4 + (1 - rare) * 0.002,
        "nll_old": 0.4,
        "nll_change": 0.0,
        "brier_change": 0.0,
        "ece_old": 0.1,
        "ece_change": 0.0,
    }
    return scanned, np.zeros(examples, np.int64), truth


# ------------------------------------------------------------------------ the tables


def coverage(draw, truth, names, trials, seed, **options):
    """Percent of trials whose interval holds the truth, and trials per miss side."""
    rng = np.random.default_rng(seed)
    held, defined = np.zeros(len(names)), np.zeros(len(names))
    for trial in range(trials):
        scanned, labels = draw(rng)
        found = intervals(scanned, labels, seed=trial, **options)
        for k, name in enumerate(names):
            interval = found[name]
            if not np.isnan(interval.low):
                defined[k] += 1
                held[k] += interval.low <= truth[name] <= interval.high
    return 100 * held / np.maximum(defined, 1)


def row(heading: str, numbers) -> None:
    print(f"{heading:<34}" + "".join(f"{x:>9.1f}" for x in numbers), flush=True)


def header(heading: str, names) -> None:
    print(f"\n{heading:<34}" + "".join(f"{x:>9}" for x in names), flush=True)


def table_one(trials: int) -> None:
    header("one run a side", HEADINGS)
    for examples in (40, 200, 1000, 5000, 20000):
        for flips in (0.01, 0.03, 0.1, 0.3):
            neutral = flips / 3
            truth = truth_of(one_run_outcomes(flips, neutral))
            draw = functools.partial(
                one_run, examples=examples, flips=flips, neutral=neutral
            )
            row(
                f"N {examples}, NFR {100 * flips:.0f} %",
                coverage(draw, truth, SHARES, trials, 0),
            )


def table_runs(trials: int) -> None:
    header("several runs", HEADINGS)
    for offset in (5.5, 2.5):
        for shift in (0.0, 0.1):
            model = Runs(offset=offset, shift=shift)
            truth = model.truth()
            print(", ".join(f"{k} {100 * v:.1f} %" for k, v in [*truth.items()][:4]))
            for examples in (200, 2000, 20000):
                for old, new in ((2, 2), (3, 3), (5, 5), (10, 10)):
                    few = trials if old * new * examples < 10**5 else trials // 4
                    row(
                        f"shift {shift}, N {examples}, R {old}, {new}",
                        coverage(
                            functools.partial(
                                model.draw, examples=examples, old=old, new=new
                            ),
                            truth,
                            SHARES,
                            few,
                            0,
                        ),
                    )


def table_scores(trials: int) -> None:
    names = ("surrogate_churn", "nll_old", "nll_change", "brier_change", "ece_old",
             "ece_change")  # fmt: skip
    header("scores", ("surr.", "NLL", "d NLL", "d Brier", "ECE", "d ECE"))
    for rare in (0.02, 0.2):
        for examples in (200, 1000, 20000):
            for old, new in ((1, 1), (3, 3)):
                few = trials if examples < 2000 else trials // 4
                truth = scores(np.random.default_rng(0), 2, 1, 1, rare)[2]

                def draw(rng, N=examples, A=old, B=new, rare=rare):
                    return scores(rng, N, A, B, rare)[:2]

                row(
                    f"rare {rare}, N {examples}, R {old}, {new}",
                    coverage(draw, truth, names, few, 0, resamples=1000),
                )


def table_noise(trials: int) -> None:
    names = ("within_old", "within_new", "expected", "excess")
    of_flips = ("expected_nfr", "excess_nfr", "excess_pfr")
    heads = ("rejects", "old", "new", "expect", "excess", "NFR rej", "expect", "excess")
    header("noise", (*heads, "PFR"))
    updates = (("equal", 0.0, 0.0), ("small", 0.3, 0.3), ("large", 0.5, 1.0))
    for label, gain, own in updates:
        for shift in (0.05, 0.15):
            model = Runs(gain=gain, own=own, shift=shift)
            truth = model.noise_truth()
            for examples in (200, 2000):
                for old, new in ((2, 2), (3, 3), (5, 5)):
                    rng = np.random.default_rng(0)
                    found = np.zeros(9)
                    for _ in range(trials):
                        numbers = ClassNumbers(*model.draw(rng, examples, old, new))
                        every = all_examples(examples, None, 0.95)
                        noise = noise_of(numbers, every)
                        parts = [getattr(noise, name) for name in names]
                        beyond = numbers.beyond_runs(every)
                        parts += [beyond[name].of(0) for name in of_flips]
                        nfr = parts[5]
                        held = [
                            part.low <= truth[name] <= part.high
                            for name, part in zip((*names, *of_flips), parts)
                        ]
                        rejects = not nfr.low <= 0 <= nfr.high
                        found += [noise.p < 0.05, *held[:4], rejects, *held[4:]]
                    row(
                        f"{label}, shift {shift}, N {examples}, R {old}, {new}",
                        100 * found / trials,
                    )


# ---------------------------------------------------------- the test of retraining


@dataclasses.dataclass(frozen=True)
class Binary:
    """Two classes: `offset + 3 b_i + own c_i [new] + shift s_r + e_ri` above 0 or not.

    Attributes:
        churn: of two runs of the old version.
        shift: spread of the runs' shifts.
        own: spread of what the new version has of its own; 0 for equal versions.
        independent: without difficulties: each run predicts 1 with one probability.
    """

    churn: float
    shift: float = 0.0
    own: float = 0.0
    independent: bool = False

    @functools.cached_property
    def spread(self) -> float:
        """Of the difficulties; smaller where it could not give so much churn."""
        return 3.0 if self.churn < 0.15 else 0.5

    @functools.cached_property
    def offset(self) -> float:
        """That gives this churn."""

        def missing(offset):
            return self._churns(offset, 0.0)[0] - self.churn

        return float(optimize.root_scalar(missing, bracket=(0.0, 30.0)).root)

    def _churns(self, offset: float, own: float) -> tuple[float, float, float]:
        """Of two old runs, two new runs, and an old and a new one."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(150)
        weights = weights / weights.sum()
        noise = np.hypot(1.0, self.shift)
        old = special.ndtr((offset + self.spread * nodes) / noise)
        new = special.ndtr((offset + np.hypot(self.spread, own) * nodes) / noise)
        mean = special.ndtr((offset + self.spread * nodes) / np.hypot(noise, own))
        return (
            float(weights @ (2 * old * (1 - old))),
            float(weights @ (2 * new * (1 - new))),
            float(weights @ (old * (1 - mean) + mean * (1 - old))),
        )

    def excess(self, own: float) -> float:
        """Churn between the versions beyond the mean of that within them."""
        of_old, of_new, between = self._churns(self.offset, own)
        return between - (of_old + of_new) / 2

    def with_excess(self, excess: float) -> "Binary":
        """The same, with an update that adds so much churn."""

        def missing(own):
            return self.excess(own) - excess

        own = float(optimize.root_scalar(missing, bracket=(0.0, 50.0)).root)
        return dataclasses.replace(self, own=own)

    def draw(self, rng: np.random.Generator, trials: int, A: int, B: int, N: int):
        """`[trials, A + B, N]` predictions, 0 or 1, float32."""
        shape = (trials, A + B, N)
        if self.independent:
            wrong = (1 - np.sqrt(1 - 2 * self.churn)) / 2
            return (rng.random(shape, np.float32) < wrong).astype(np.float32)
        score = rng.standard_normal(shape, np.float32) + np.float32(self.offset)
        score += self.spread * rng.standard_normal((trials, 1, N), np.float32)
        if self.shift:
            score += self.shift * rng.standard_normal((*shape[:2], 1), np.float32)
        if self.own:
            score[:, A:] += self.own * rng.standard_normal((trials, 1, N), np.float32)
        return (score < 0).astype(np.float32)


def retraining(model: Binary, A: int, B: int, N: int, trials: int):
    """`[trials]` p of the test and of the t-test of the residuals."""
    rng = np.random.default_rng([A, B, N, round(1e4 * model.churn)])
    block = max(1, min(trials, 10**7 // ((A + B) * N)))
    found = []
    while len(found) < trials:
        ones = model.draw(rng, min(block, trials - len(found)), A, B, N)
        count = ones.sum(axis=2)
        x = count[:, :, None] + count[:, None] - 2 * ones @ ones.transpose(0, 2, 1)
        x = x.astype(np.float64) / N
        if not found:  # what is counted here is what a comparison counts
            old, new = (ScannedSide(p.astype(int)) for p in np.split(ones[0], [A]))
            whole = noise_test(Scanned(old, new))
            assert whole is not None
            p, _ = retraining_p(ones[0], x[0], A)
            np.testing.assert_allclose(whole.p, p, rtol=1e-6)
        found += [
            (retraining_p(runs, churn, A)[0], residual_t(churn, A))
            for runs, churn in zip(ones, x, strict=True)
        ]
    return np.array(found).T


def residual_t(x: np.ndarray, A: int) -> float:
    """P of the excess over the residuals of a fit of runs' effects; 0 where all are 0.

    What `noise_test` used to print; wrong for few counts and for two runs a side.
    """
    R = len(x)
    B = R - A
    rows, columns = np.triu_indices(R, 1)
    across = (rows < A) & (columns >= A)
    inside = np.where(columns < A, A * (A - 1), B * (B - 1))
    weights = np.where(across, 1 / (A * B), -1 / inside)
    y = x[rows, columns]
    excess = weights @ y
    left = y @ y
    left -= (np.sum(x.sum(1) ** 2) - x.sum() ** 2 / (2 * (R - 1))) / (R - 2)
    left -= excess**2 / (weights @ weights)
    freedom = R * (R - 3) // 2 - 1
    error = np.sqrt(max(left, 0.0) / freedom * (weights @ weights))
    if error <= 1e-9:
        return 1.0 if abs(excess) <= 1e-9 else 0.0
    return float(2 * stats.t.sf(abs(excess) / error, freedom))


NULLS = (
    ("independent", Binary(0.1, independent=True)),
    ("difficulties", Binary(0.1)),
    ("runs differ", Binary(0.1, shift=1.0)),
)


def table_null(trials: int, only: list[str] | None = None) -> None:
    header("equal versions", ("p given", "rejects", "of given", "t rejects"))
    for label, model in NULLS:
        for A, B in ((2, 2), (3, 3), (5, 5)):
            for churn in (0.005, 0.01, 0.03, 0.1, 0.3):
                equal = dataclasses.replace(model, churn=churn)
                for N in (100, 300, 1000, 5000):
                    name = f"{label}, {A}x{B}, {100 * churn:g} %, N {N}"
                    if only and name not in only:
                        continue
                    p, t = retraining(equal, A, B, N, trials)
                    given, rejects = np.mean(~np.isnan(p)), np.mean(p < 0.05)
                    numbers = [given, rejects, rejects / max(given, 1e-9)]
                    row(name, 100 * np.array([*numbers, np.mean(t < 0.05)]))


def table_power(trials: int) -> None:
    header("an update", ("p given", "rejects", "t rejects"))
    for shift in (0.0, 0.3):
        for A, B in ((3, 3), (5, 5)):
            for churn in (0.01, 0.05):
                for part in (0.05, 0.2, 1.0):
                    model = Binary(churn, shift=shift).with_excess(part * churn)
                    for N in (300, 1000, 5000):
                        p, t = retraining(model, A, B, N, trials)
                        numbers = np.mean([~np.isnan(p), p < 0.05, t < 0.05], axis=1)
                        row(
                            f"shift {shift}, {A}x{B}, {100 * churn:g} + "
                            f"{100 * part * churn:g} %, N {N}",
                            100 * numbers,
                        )


def table_strong(trials: int) -> None:
    """With one new run the truth is that run's: churn with it of all old runs."""
    header("1,000 examples", ("churn", "within", "excess"))
    for churn in (0.01, 0.1):
        for shift in (0.0, 0.3, 1.0):
            for A, B in ((2, 2), (3, 3), (5, 5), (10, 10), (5, 1), (10, 1)):
                held = strong_cell(Binary(churn, shift=shift), A, B, 1000, trials)
                row(f"{100 * churn:g} %, shift {shift}, R {A}, {B}", 100 * held)


def strong_cell(model: Binary, A: int, B: int, N: int, trials: int):
    """Shares of trials whose intervals of churn, of that within and of excess hold."""
    rng = np.random.default_rng([A, B, N])
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    difficulty = model.offset + model.spread * nodes
    typical = special.ndtr(difficulty / np.hypot(1, model.shift))
    held = np.zeros(3)
    for trial in range(trials):
        shift = model.shift * rng.standard_normal((A + B, 1))
        score = model.spread * rng.standard_normal(N) + rng.standard_normal((A + B, N))
        predicted = (model.offset + score + shift < 0).astype(np.int32)
        scanned = Scanned(ScannedSide(predicted[:A]), ScannedSide(predicted[A:]))
        found = noise_test(scanned)
        assert found is not None
        churn = intervals(scanned, None, resamples=100, seed=trial)["churn"]
        between = model.churn
        if B == 1:
            one = special.ndtr(difficulty + shift[A, 0])
            between = float(weights @ (typical * (1 - one) + one * (1 - typical)))
        true = (between, model.churn, between - model.churn)
        for k, part in enumerate((churn, found.expected, found.excess)):
            held[k] += part.low <= true[k] <= part.high
    return held / trials


# ------------------------------------------------------------------------- clusters

IN_CLUSTERS = (
    "churn",
    "negative_flip_rate",
    "positive_flip_rate",
    "accuracy_new",
    "accuracy_gain",
    "backward_trust_compatibility",
    "good_churn",
)


def in_clusters(rng, count: int, mean: int, unequal: bool, flips: float, alike: float):
    """Versions of which each cluster has its own rates of flips, beta distributed.

    `alike` is the correlation of two examples of a cluster; sizes are all `mean`, or
    geometric. A tenth of the examples is wrong twice.
    """
    size = rng.geometric(1 / mean, count) if unequal else np.full(count, mean)
    clusters = np.repeat(np.arange(count), size)

    def rates(rate: float) -> np.ndarray:
        if not alike:
            return np.full(count, rate)
        scale = (1 - alike) / alike
        return rng.beta(rate * scale, (1 - rate) * scale, count)

    lost, gained = (rates(rate)[clusters] for rate in (flips, 1.5 * flips))
    u = rng.random(len(clusters))
    negative, positive = u < lost, u > 1 - gained
    wrong = (rng.random(len(clusters)) < 0.1) & ~negative & ~positive
    old, new = positive | wrong, negative | wrong
    sides = (ScannedSide(side.astype(np.int32)[None]) for side in (old, new))
    return Scanned(*sides), np.zeros(len(clusters), np.int64), clusters


def counted(scanned, labels, clusters):
    """Numbers that need no bootstrap, and the p of equal accuracy."""
    numbers = ClassNumbers(scanned, labels)
    every = all_examples(len(labels), clusters, 0.95)
    found = {name: of.of(0) for name, of in numbers.intervals(every).items()}
    parts = partition(len(labels), 1, 0, clusters)
    found |= ratios(scanned, labels, parts, 0.95)
    return found, numbers.p(every)[0]


def table_clusters(trials: int) -> None:
    """Coverage with clusters; and the sign-flip test where flips are as frequent."""
    heads = ("churn", "NFR", "PFR", "acc new", "gain", "BTC", "good", "rejects")
    header("clusters of examples", heads)
    cells = [(10, 4), (10, 25), (20, 25), (40, 5), (40, 25), (200, 5)]
    for (count, mean), unequal in itertools.product(cells, (False, True)):
        for flips, alike in itertools.product((0.02, 0.1), (0.0, 0.1, 0.4)):
            right = 0.9 * (1 - 2.5 * flips)
            truth = {
                "churn": 2.5 * flips,
                "negative_flip_rate": flips,
                "positive_flip_rate": 1.5 * flips,
                "accuracy_new": right + 1.5 * flips,
                "accuracy_gain": 0.5 * flips,
                "backward_trust_compatibility": right / (right + flips),
                "good_churn": 0.6,
            }
            rng = np.random.default_rng(0)
            held, defined = np.zeros(len(truth)), np.zeros(len(truth))
            rejected = 0
            for _ in range(trials):
                scanned, labels, clusters = in_clusters(
                    rng, count, mean, unequal, flips, alike
                )
                found = counted(scanned, labels, clusters)[0]
                for k, name in enumerate(IN_CLUSTERS):
                    interval = found[name]
                    if not np.isnan(interval.low):
                        defined[k] += 1
                        held[k] += interval.low <= truth[name] <= interval.high
                swapped = rng.random(count) < 0.5  # of equal versions either may be new
                old, new = scanned.old.predicted[0], scanned.new.predicted[0]
                turned = swapped[clusters]
                equal = Scanned(
                    ScannedSide(np.where(turned, new, old)[None]),
                    ScannedSide(np.where(turned, old, new)[None]),
                )
                rejected += counted(equal, labels, clusters)[1] < 0.05
            numbers = [*(100 * held / np.maximum(defined, 1)), 100 * rejected / trials]
            how = "unequal" if unequal else "equal"
            row(f"{count} of {mean} {how}, {100 * flips:.0f} %, {alike}", numbers)


def table_precision(trials: int) -> None:
    """Power at the detectable change; equivalence at the margin and at no change."""
    header("precision", ("detected", "at margin", "at half", "at 0"))
    for examples in (40, 200, 1000, 5000):
        for flips in (0.05, 0.2):
            z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
            rng = np.random.default_rng(0)
            found = np.zeros(4)
            gain = min(z * np.sqrt(flips / examples), flips)
            at = (gain, gain, gain / 2, 0.0)
            for _ in range(trials):
                for k, true in enumerate(at):
                    lost, gained = (flips - true) / 2, (flips + true) / 2
                    u = rng.random(examples)
                    old, new = u > 1 - gained, u < lost
                    sides = (ScannedSide(s.astype(np.int32)[None]) for s in (old, new))
                    numbers = ClassNumbers(Scanned(*sides), np.zeros(examples))
                    every = all_examples(examples, None, 0.95 if k == 0 else 0.9)
                    within = numbers.change(every).of(0)
                    if k == 0:
                        found[k] += within.low > 0 or within.high < 0
                    else:
                        found[k] += max(-within.low, within.high) < gain
            row(f"N {examples}, flips {100 * flips:.0f} %", 100 * found / trials)


# ------------------------------------------------------------------------- outcomes

ALIKE = 0.3  # correlation of what two examples of one cluster have in common
RARE = 0.05  # of skewed changes, how many are not nearly zero


def drawn(rng: np.random.Generator, examples: int, cluster: np.ndarray | None):
    """Standard normal numbers, alike within clusters."""
    own = rng.standard_normal(examples)
    if cluster is None:
        return own
    shared = rng.standard_normal(cluster.max() + 1)
    return np.sqrt(ALIKE) * shared[cluster] + np.sqrt(1 - ALIKE) * own


def sizes(kind: str, examples: int) -> np.ndarray | None:
    """Codes of 20 clusters: as 1 to 20, or as 1, 1/2, 1/3, ... (the first 28 %)."""
    rank = np.arange(1, 21)
    weights = {"": None, "1 to 20": rank, "28 % in one": 1 / rank}[kind]
    if weights is None:
        return None
    return np.searchsorted(
        np.cumsum(weights) / np.sum(weights), (np.arange(examples) + 0.5) / examples
    )


def scored(rng, examples: int, runs: int, cluster, skewed: bool):
    """Scores, and the truth; a change of more than 1 counts as one."""
    change = 0.2 + drawn(rng, examples, cluster)
    worse = stats.norm.cdf(-1.2 / np.sqrt(1 + 0.5 * (runs > 1)))
    mean = 0.2
    if skewed:  # few examples change, and by lognormal numbers
        size = np.exp(drawn(rng, examples, cluster))
        sign = np.where(rng.random(examples) < 0.5, 1.0, -1.0)
        change = np.where(rng.random(examples) < RARE, sign * size, 0.0)
        mean, worse = 0.0, RARE / 4
    base = drawn(rng, examples, cluster)
    noise = 0.5 * (runs > 1 and not skewed)
    old, new = (base + noise * rng.standard_normal((runs, examples)) for _ in range(2))
    measure = Measure("s", "score", old, new + change, tolerance=1.0)
    return measure, {"score_change": mean, "share_worse": worse}


def judged(rng, examples: int, runs: tuple[int, int], cluster, offset: float):
    """Classes, right or wrong, and the truth; as `Runs` without shifts."""
    model = Runs(offset=offset, shift=0.0)
    shared = model.shared * drawn(rng, examples, cluster)
    favourite = rng.integers(1, 3, size=examples)
    sides = []
    for count, at in zip(runs, (offset, offset + model.gain)):
        score = at + shared + model.own * drawn(rng, examples, cluster)
        right = score + rng.standard_normal((count, examples)) > 0
        swapped = rng.random((count, examples)) > SAME_WRONG
        wrong = np.where(swapped, 3 - favourite, favourite)
        sides.append(np.where(right, 0, wrong))
    target = np.zeros(examples, np.int64)
    return Measure("l", "label", *sides, things=("a", "b", "c"), target=target)


def table_outcomes(trials: int) -> None:
    """Shares of trials whose intervals of `estimate` hold the truth."""
    names = ("score_change", "share_worse")
    shares = ("churn", "negative_flip_rate", "accuracy_new", "accuracy_gain",
              "excess_churn")  # fmt: skip

    def held(draw, truth, cluster) -> np.ndarray:
        rng = np.random.default_rng(0)
        hits = np.zeros(len(truth))
        for _ in range(trials):
            found = estimate(draw(rng), cluster).quantities
            for k, (name, true) in enumerate(truth.items()):
                hits[k] += found[name].low <= true <= found[name].high
        return 100 * hits / trials

    cells = [("", N) for N in (40, 200, 1000)]
    cells += [(kind, N) for kind in ("1 to 20", "28 % in one") for N in (200, 1000)]
    header("outcomes: scores", ("change", "worse"))
    for label, runs, skewed in (("normal", 1, 0), ("normal", 5, 0), ("skewed", 1, 1)):
        for kind, N in cells:
            options = (N, runs, sizes(kind, N), bool(skewed))
            truth = scored(np.random.default_rng(0), *options)[1]

            def draw(rng, options=options):
                return scored(rng, *options)[0]

            heading = f"{label}, N {N}, R {runs}" + (f", {kind}" if kind else "")
            row(heading, held(draw, {n: truth[n] for n in names}, options[2]))
    header("outcomes: right or wrong", ("churn", "NFR", "acc new", "gain", "excess"))
    for offset in (2.5, 5.5, 9.0):
        model = Runs(offset=offset, shift=0.0)
        truth, noise = model.truth(), model.noise_truth()
        truth["excess_churn"] = noise["excess"]
        print(", ".join(f"{name} {100 * truth[name]:.2f} %" for name in shares))
        for runs in ((1, 1), (5, 5), (5, 1)):
            if runs == (5, 1):  # a single run is compared with the noise of the others
                truth["excess_churn"] = truth["churn"] - noise["within_old"]
            several = shares[: 5 if max(runs) > 1 else 4]
            for kind, N in cells:
                cluster = sizes(kind, N)

                def draw(rng, options=(N, runs, cluster, offset)):
                    return judged(rng, *options)

                heading = f"N {N}, R {runs[0]}, {runs[1]}"
                heading += f", {kind}" if kind else ""
                row(heading, held(draw, {n: truth[n] for n in several}, cluster))


# --------------------------------------------------------------------------- pooled


def table_pooled(trials: int) -> None:
    """Coverage of the mean over benchmarks; its test where versions are equal."""
    header("pooled", ("classes", "scores", "p"))
    sizes = (40,) * 3, (200,) * 3, (40,) * 10, (20, 50, 100, 500, 1000)
    for size, flips in itertools.product(sizes, (0.02, 0.1)):
        group = np.repeat(np.arange(len(size)), size)
        labels, of = np.zeros(len(group), np.int64), coded(group.astype(str))
        gain = flips * (np.arange(len(size)) % 3) / 2  # each has its own
        lost, gained = np.full(len(size), flips)[group], (flips + gain)[group]
        rng, found = np.random.default_rng(0), np.zeros(3)
        every = all_examples(len(group), None, 0.95)

        def pooled(*sides, labels=labels, every=every, of=of):
            read = (read_side({"predictions": side.astype(int)}) for side in sides)
            pair = join(*read, labels=labels)
            numbers = ClassNumbers(scan(pair), labels)
            return pool(numbers, every, "of", *of)

        for _ in range(trials):
            u = rng.random(len(group))
            negative, positive = u < lost, u > 1 - gained
            wrong = (rng.random(len(group)) < 0.1) & ~negative & ~positive
            old, new = positive | wrong, negative | wrong
            known = pooled(old, new).gain
            found[0] += known.low <= gain.mean() <= known.high
            before = rng.standard_normal((1, len(group)))
            after = before + gain[group] + rng.standard_normal((1, len(group)))
            numbers = OutcomeNumbers(Measure("s", "score", before, after))
            known = pool(numbers, every, "of", *of).gain
            found[1] += known.low <= gain.mean() <= known.high
            turned = rng.random(len(group)) < 0.5  # of equal versions either is new
            null = pooled(np.where(turned, new, old), np.where(turned, old, new))
            found[2] += null.p < 0.05
        several = f" to {max(size)}" * (len(set(size)) > 1)
        heading = f"{len(size)} of {min(size)}{several}"
        row(f"{heading}, flips {100 * flips:.0f} %", 100 * found / trials)


def table_labels(trials: int) -> None:
    """Flips by the labels of a part of the changed examples, and a look after each."""
    names = ("NFR", "PFR", "gain")
    header("labels", (*names, *(f"{n} new" for n in names), "any time"))
    for N, churn, (lost, gained), labels in itertools.product(
        (200, 2000, 20_000),
        (0.005, 0.04, 0.2),
        ((0.1, 0.3), (0.4, 0.5), (0.8, 0.1)),
        (10, 50, 200, 10**9),
    ):
        if N * churn <= labels < 10**9:
            continue
        rng, held, tried = np.random.default_rng(0), np.zeros(7), 0
        for _ in range(trials):
            rows, fate = np.flatnonzero(rng.random(N) < churn), rng.random(N)
            worse = 1.0 * (fate[rows] < lost)
            better = (fate[rows] >= lost) * 1.0 * (fate[rows] < lost + gained)
            if not len(rows):
                continue
            tried += 1
            few = worse[:labels], better[:labels]
            parts = (*few, few[1] - few[0])
            squares = tuple(float(np.mean(np.square(of))) for of in parts)
            means = float(few[0].mean()), float(few[1].mean())
            stratum = Stratum("", len(rows), len(few[0]), *means, squares)
            sampled = Sampled(N, (stratum,), 0.95)
            here = (worse.sum() / N, better.sum() / N)
            there = (churn * lost, churn * gained)
            for k, name in enumerate(NAMES):
                these, new = (ends_of(sampled, name, population=p) for p in (0, 1))
                truth = (*here, here[1] - here[0])[k]
                held[k] += these.low - 1e-12 <= truth <= these.high + 1e-12
                truth = (*there, there[1] - there[0])[k]
                held[3 + k] += new.low <= truth <= new.high
            low, high = confidence_sequence(few[0][:400], len(rows), 0.95)
            held[6] += low - 1e-12 <= worse.mean() <= high + 1e-12
        count = "all" if labels == 10**9 else labels
        heading = f"{N}, {100 * churn:g} %, {lost:g} and {gained:g}, {count}"
        row(heading, 100 * held / max(tried, 1))


def table_deciding(trials: int) -> None:
    """How many labels decide a limit of 1 % on NFR, in these examples."""
    limit = 0.01
    header("deciding", ("changed", "one look", "any time", "% of all"))
    for N, churn, nfr in itertools.product(
        (2000, 20_000), (0.01, 0.04, 0.2), (0.002, 0.006, 0.015, 0.04)
    ):
        if nfr >= churn:
            continue
        rng, found = np.random.default_rng(0), []
        for _ in range(trials):
            changed = rng.binomial(N, churn)
            worse = (rng.random(changed) < nfr / churn).astype(float)
            if not changed or worse.sum() == limit * N:
                continue

            def fixed(n: int, worse=worse, changed=changed, N=N) -> tuple:
                mean = float(worse[:n].mean())
                stratum = Stratum("", changed, n, mean, 0.0, (mean, 0.0, mean))
                ends = ends_of(Sampled(N, (stratum,), 0.95), "negative_flip_rate")
                return ends.low, ends.high

            def always(n: int, worse=worse, changed=changed, N=N) -> tuple:
                ends = confidence_sequence(worse[:n], changed, 0.95)
                return ends[0] * changed / N, ends[1] * changed / N

            needed = []
            for ends in (fixed, always):
                low, high = 0, changed
                while high - low > 1:
                    middle = (low + high) // 2
                    below, above = ends(middle)
                    open_ = below <= limit <= above
                    low, high = (middle, high) if open_ else (low, middle)
                needed.append(high)
            found.append([changed, *needed, 100 * needed[1] / N])
        row(f"{N}, {100 * churn:g} %, NFR {100 * nfr:g} %", np.median(found, axis=0))


TABLES = {
    "one": table_one,
    "runs": table_runs,
    "scores": table_scores,
    "noise": table_noise,
    "null": table_null,
    "power": table_power,
    "strong": table_strong,
    "outcomes": table_outcomes,
    "clusters": table_clusters,
    "precision": table_precision,
    "pooled": table_pooled,
    "labels": table_labels,
    "deciding": table_deciding,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--cells", nargs="+", help="rows of the table null alone")
    arguments = parser.parse_args()
    tables = {**TABLES, "null": functools.partial(table_null, only=arguments.cells)}
    for name in arguments.tables:
        start = time.perf_counter()
        tables[name](arguments.trials)
        print(f"{name}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
