"""Versions of which the true numbers are known, for `compare_coverage.py`."""

import dataclasses
import functools

import numpy as np
from scipy import optimize, special

from churn_compare.estimates import all_examples
from churn_compare.example_numbers import Numbers, class_estimates, class_numbers
from churn_compare.noise import noise_of
from churn_compare.outcomes import Measure
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.sums import partition, ratios

SAME_WRONG = 0.8  # how often a wrong run predicts the example's favourite wrong class
ALIKE = 0.3  # correlation of what two examples of one cluster have in common


def held(interval, truth: float) -> float:
    """1 if the interval holds the truth, 0 if not, nan if there is none."""
    if np.isnan(interval.low):
        return np.nan
    return float(interval.low <= truth <= interval.high)


def outcome_intervals(measure: Measure, clusters=None) -> dict:
    """All numbers of a measure with their 95 % intervals."""
    every = all_examples(measure.examples, clusters, 0.95)
    found = Numbers(measure).intervals(every)
    return {name: of.of(0) for name, of in found.items()}


def intervals(scanned: Scanned, labels, **options) -> dict:
    """All numbers of all examples, with their intervals."""
    every = all_examples(scanned.old.predicted.shape[1], None, 0.95)
    return class_estimates(scanned, class_numbers(scanned, labels), every, **options)


def noise(scanned: Scanned):
    """The churn between runs of one version, and the excess of an update."""
    every = all_examples(scanned.old.predicted.shape[1], None, 0.95)
    return noise_of(class_numbers(scanned, None), every)


def sides_of(old, new) -> Scanned:
    """Predicted classes `[N]` or `[R, N]` of both versions."""
    sides = (np.atleast_2d(side).astype(np.int32) for side in (old, new))
    return Scanned(*(ScannedSide(side) for side in sides))


def flipped(rng: np.random.Generator, lost: np.ndarray, gained: np.ndarray):
    """Errors of both versions; examples flip with these probabilities, 0.1 are hard."""
    u = rng.random(len(lost))
    negative, positive = u < lost, u > 1 - gained
    wrong = (rng.random(len(lost)) < 0.1) & ~negative & ~positive
    return positive | wrong, negative | wrong


def exchanged(rng: np.random.Generator, old, new, cluster=None):
    """Equal versions: in every example, or cluster, either may be the new one."""
    count = len(old) if cluster is None else cluster.max() + 1
    turned = rng.random(count) < 0.5
    turned = turned if cluster is None else turned[cluster]
    return np.where(turned, new, old), np.where(turned, old, new)


def normal_nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the mean over a standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


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


@dataclasses.dataclass(frozen=True)
class Runs:
    """Scores `offset + shared b_i + own c_vi + shift s_r + e_ri`; right above 0.

    Attributes:
        offset: mean score of the old version.
        gain: increase of every score by the update.
        shared: spread of the difficulty that both versions know.
        own: spread of the part that is one version's own.
        shift: spread of the runs' shifts.
    """

    offset: float = 4.0
    gain: float = 0.3
    shared: float = 3.0
    own: float = 0.3
    shift: float = 0.1

    def draw(self, rng: np.random.Generator, N: int, runs: tuple[int, int], normal):
        """Both versions' classes, of which 0 is right; `normal` draws the examples."""
        shared = self.shared * normal()
        favourite = rng.integers(1, 3, size=N)
        sides = []
        for count, offset in zip(runs, (self.offset, self.offset + self.gain)):
            score = offset + shared + self.own * normal()
            if self.shift:
                score = score + self.shift * rng.standard_normal((count, 1))
            right = score + rng.standard_normal((count, N)) > 0
            swapped = rng.random((count, N)) > SAME_WRONG
            sides.append(
                np.where(right, 0, np.where(swapped, 3 - favourite, favourite))
            )
        return sides

    def scanned(self, rng: np.random.Generator, N: int, runs: tuple[int, int]):
        """Independent examples."""
        return sides_of(*self.draw(rng, N, runs, lambda: rng.standard_normal(N)))

    def truth(self) -> dict[str, float]:
        """Means over pairs of new runs, on all examples there could be."""
        (nodes, weights), (shifts, of_shifts) = normal_nodes(61), normal_nodes(15)
        scale = np.sqrt(1 + self.own**2)
        difficulty = self.shared * nodes
        old, new = (
            special.ndtr((offset + difficulty + self.shift * shifts[:, None]) / scale)
            for offset in (self.offset, self.offset + self.gain)
        )
        old, new = old[:, None], new[None]
        wrong = (1 - old) * (1 - new)
        differ = 2 * SAME_WRONG * (1 - SAME_WRONG)
        parts = [old * new, old * (1 - new), (1 - old) * new]
        outcomes = np.stack([*parts, differ * wrong, (1 - differ) * wrong], axis=-1)
        outcomes = np.einsum("abio,i->abo", outcomes, weights)
        return truth_of(outcomes, np.outer(of_shifts, of_shifts))

    def noise_truth(self) -> dict[str, float]:
        """Churn within the sides, and what the update adds."""
        nodes, weights = normal_nodes(61)
        within, flips = [], []
        for offset in (self.offset, self.offset + self.gain):
            # two runs of a version share its own part of the difficulty as well
            spread = np.hypot(self.shared, self.own)
            right = special.ndtr((offset + spread * nodes) / np.sqrt(1 + self.shift**2))
            differ = 2 * SAME_WRONG * (1 - SAME_WRONG)
            churn = 2 * right * (1 - right) + differ * (1 - right) ** 2
            within.append(float(weights @ churn))
            flips.append(float(weights @ (right * (1 - right))))
        expected, nfr, truth = sum(within) / 2, sum(flips) / 2, self.truth()
        return {
            "within_old": within[0],
            "within_new": within[1],
            "expected": expected,
            "excess": truth["churn"] - expected,
            "expected_nfr": nfr,
            "excess_nfr": truth["negative_flip_rate"] - nfr,
            "excess_pfr": truth["positive_flip_rate"] - nfr,
        }


@dataclasses.dataclass(frozen=True)
class Binary:
    """Two classes: `offset + 3 b_i + own c_i [new] + shift s_r + e_ri` above 0 or not.

    Attributes:
        churn: share of examples on which two old runs differ.
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
        """Spread of the difficulties; smaller where it could not give so much churn."""
        return 3.0 if self.churn < 0.15 else 0.5

    @functools.cached_property
    def offset(self) -> float:
        """The offset that gives this churn."""

        def missing(offset):
            return self._churns(offset, 0.0)[0] - self.churn

        return float(optimize.root_scalar(missing, bracket=(0.0, 30.0)).root)

    def _churns(self, offset: float, own: float) -> tuple[float, float, float]:
        """Churn of two old runs, of two new runs, and of an old and a new one."""
        nodes, weights = normal_nodes(150)
        noise = np.hypot(1.0, self.shift)
        old = special.ndtr((offset + self.spread * nodes) / noise)
        new = special.ndtr((offset + np.hypot(self.spread, own) * nodes) / noise)
        mean = special.ndtr((offset + self.spread * nodes) / np.hypot(noise, own))
        differ = (2 * old * (1 - old), 2 * new * (1 - new))
        between = old * (1 - mean) + mean * (1 - old)
        return tuple(float(weights @ x) for x in (*differ, between))

    def with_excess(self, excess: float) -> "Binary":
        """The same, with an update that adds so much churn."""

        def missing(own):
            of_old, of_new, between = self._churns(self.offset, own)
            return between - (of_old + of_new) / 2 - excess

        own = float(optimize.root_scalar(missing, bracket=(0.0, 50.0)).root)
        return dataclasses.replace(self, own=own)

    def draw(self, rng: np.random.Generator, A: int, R: int, N: int) -> np.ndarray:
        """`[R, N]` predictions, 0 or 1, of which the first A runs are the old ones."""
        if self.independent:
            wrong = (1 - np.sqrt(1 - 2 * self.churn)) / 2
            return (rng.random((R, N)) < wrong).astype(np.float32)
        score = self.offset + self.spread * rng.standard_normal(N)
        score = score + self.shift * rng.standard_normal((R, 1))
        score[A:] += self.own * rng.standard_normal(N)
        return (score + rng.standard_normal((R, N)) < 0).astype(np.float32)


def by_cluster(scanned, labels, clusters):
    """Numbers that need no bootstrap, and the p of equal accuracy."""
    numbers = class_numbers(scanned, labels)
    every = all_examples(len(labels), clusters, 0.95)
    found = {name: of.of(0) for name, of in numbers.intervals(every).items()}
    parts = partition(len(labels), 1, 0, clusters)
    return found | ratios(scanned, labels, parts, 0.95), numbers.p(every)[0]


def sizes(kind: str, N: int) -> np.ndarray | None:
    """Codes of 20 clusters: as 1 to 20, or as 1, 1/2, 1/3, ... (the first 28 %)."""
    if not kind:
        return None
    rank = np.arange(1, 21)
    weights = rank if kind == "1 to 20" else 1 / rank
    return np.searchsorted(
        np.cumsum(weights) / np.sum(weights), (np.arange(N) + 0.5) / N
    )


def normals(rng: np.random.Generator, N: int, cluster: np.ndarray | None):
    """Standard normal numbers, alike within clusters."""
    own = rng.standard_normal(N)
    if cluster is None:
        return own
    shared = rng.standard_normal(cluster.max() + 1)
    return np.sqrt(ALIKE) * shared[cluster] + np.sqrt(1 - ALIKE) * own
