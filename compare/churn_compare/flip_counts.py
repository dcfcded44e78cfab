"""Counts of changed predictions and flips for every pair of runs, in NumPy.

`churn_jax.metrics` has the same rates as functions of logits, in JAX.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_BLOCK = 1 << 16  # examples at a time; counts up to this are exact in float32


class Flips(NamedTuple):
    """Numbers of examples that flip from old run a to new b; `[..., A, B]` int64."""

    examples: np.ndarray  # [...], all examples
    changed: np.ndarray  # different predictions
    negative: Any = None  # right before, wrong now
    positive: Any = None  # wrong before, right now
    both: Any = None  # right in both

    @property
    def old_error(self) -> np.ndarray:
        """Share of examples that are wrong in old run a."""
        return 1 - (self.both + self.negative) / self.examples[..., None, None]

    @property
    def new_error(self) -> np.ndarray:
        """Share of examples that are wrong in new run b."""
        return 1 - (self.both + self.positive) / self.examples[..., None, None]

    @property
    def relative(self) -> np.ndarray:
        """Relative NFR: 1 for independent errors; 0 if no negative flip is possible."""
        chance = (1 - self.old_error) * self.new_error
        rate = self.negative / self.examples[..., None, None]
        return np.divide(rate, chance, out=np.zeros_like(chance), where=chance > 0)


def count_flips(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray | None = None
) -> Flips:
    """Counts for every old run and every new run."""
    shape, examples = (len(old), len(new)), old.shape[1]
    changed, both = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    old_right, new_right = (np.zeros(size, np.int64) for size in shape)
    for start in range(0, examples, _BLOCK):
        part = slice(start, start + _BLOCK)
        before, after = old[:, part], new[:, part]
        for a, run in enumerate(before):
            first = a + 1 if new is old else 0
            changed[a, first:] += np.count_nonzero(run != after[first:], axis=1)
        if labels is not None:
            was, now = (
                (runs == labels[part]).astype(np.float32) for runs in (before, after)
            )
            both += (was @ now.T).astype(np.int64)
            old_right += was.sum(axis=1).astype(np.int64)
            new_right += now.sum(axis=1).astype(np.int64)
    if new is old:
        changed += changed.T
    if labels is None:
        return Flips(np.array(examples), changed)
    negative, positive = old_right[:, None] - both, new_right - both
    return Flips(np.array(examples), changed, negative, positive, both)


@dataclasses.dataclass(frozen=True, eq=False)
class VersionMatrices:
    """Flips of every pair of runs, and means over the pairs of two versions."""

    flips: Flips  # flips of every pair of runs, ordered by version
    version: np.ndarray  # version of each run, from 0
    # `[V, V]` share of examples whose predicted class differs; symmetric
    churn: np.ndarray
    # `[V, V]` share right in the old and wrong in the new; None without labels
    negative_flip_rate: Any = None
    # `[V, V]` relative NFR, 1 for independent errors; None without labels
    relative_negative_flip_rate: Any = None
    # against the first run of the last version, see `_multiplicity`
    ambiguity: float = np.nan
    discrepancy: float = np.nan

    def between(self, old: int, new: int) -> Flips:
        """Flips from the runs of one version to those of another, `[A, B]`."""
        rows, columns = (np.flatnonzero(self.version == v) for v in (old, new))
        pairs = np.ix_(rows, columns)
        counts: Any = (None if of is None else of[pairs] for of in self.flips[1:])
        return Flips(self.flips.examples, *counts)


def version_matrices(
    predicted: Sequence[np.ndarray],
    labels: np.ndarray | None = None,
    chains: Sequence[int] = (),  # versions with equal numbers are compared run by run
) -> VersionMatrices:
    """Churn and negative flips between every two versions."""
    # Means over the pairs of runs of two versions; on the diagonal, over pairs of
    # different runs. Pairs without right old or wrong new predictions have no relative
    # NFR and are left out of its mean.
    runs = np.concatenate(predicted)
    version = np.repeat(np.arange(len(predicted)), [len(of) for of in predicted])
    flips = count_flips(runs, runs, labels)
    run = np.concatenate([np.arange(len(of)) for of in predicted])
    chain = np.take(chains or range(len(predicted)), version)
    of_version, of_run, of_chain = (x == x[:, None] for x in (version, run, chain))
    different = ~np.eye(len(runs), dtype=bool) & (of_version | of_run | ~of_chain)
    churn = _mean(flips.changed / flips.examples, version, different)
    if labels is None:
        rates = churn, None, None
    else:
        possible = different & (flips.old_error < 1) & (flips.new_error > 0)
        negative = _mean(flips.negative / flips.examples, version, different)
        rates = churn, negative, _mean(flips.relative, version, possible)
    return VersionMatrices(flips, version, *rates, *_multiplicity(predicted))


def _multiplicity(predicted: Sequence[np.ndarray]) -> tuple[float, float]:
    """Ambiguity and discrepancy (Marx et al., ICML 2020, arXiv 1909.06677)."""
    # Share of examples to which some other run, of any version, gives another class
    # than the reference; largest such share of a single run.
    reference = predicted[-1][0]
    anywhere, most = np.zeros(len(reference), bool), 0.0
    for run in (run for runs in predicted for run in runs):
        differs = run != reference
        anywhere |= differs
        most = max(most, float(differs.mean()))
    return float(anywhere.mean()), most


def _mean(values: np.ndarray, version: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean over the counted pairs of runs of every pair of versions, `[V, V]`."""
    of = (version == np.arange(version.max() + 1)[:, None]).astype(float)  # [V, runs]
    pairs = of @ counted @ of.T
    sums = of @ np.where(counted, values, 0.0) @ of.T
    return np.divide(sums, pairs, out=np.full(pairs.shape, np.nan), where=pairs > 0)
