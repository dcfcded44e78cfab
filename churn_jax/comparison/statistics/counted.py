"""Numbers that are made of counts of examples: shares, accuracy gain, kappa."""

import dataclasses

import numpy as np

from churn_jax.comparison.result import Interval
from churn_jax.comparison.scanned import Scanned
from churn_jax.comparison.statistics.estimates import (
    Estimate,
    difference,
    ratio,
    relative,
)
from churn_jax.comparison.statistics.runs import Uncertainty
from churn_jax.comparison.statistics.shares import difference_ends, share_ends
from churn_jax.comparison.statistics.sums import chance_sums, outcome_sums

__all__ = ["counted"]


def counted(
    scanned: Scanned,
    labels: np.ndarray | None,
    group: np.ndarray,
    groups: int,
    level: float,
) -> dict[str, Interval]:
    """Shares, the accuracy gain and kappa."""
    sums = outcome_sums(scanned, labels, group, groups)
    size = np.sum([*sums.values()], axis=0)[:, :1, :1]
    if labels is None:
        changed = sums["changed"]
    else:
        changed = sums["negative"] + sums["positive"] + sums["neutral"]
    found = {"churn": _share(ratio(changed, size, np.nan), level)}
    chance = chance_sums(scanned, group, groups)
    apart = ratio(changed, size - chance, np.nan)  # 1 - kappa
    most = float(size.sum() / max(np.mean(np.sum(size - chance, axis=0)), 1e-9))
    lost = _part(apart, level, most=most, examples=float(size.sum()))
    found["kappa"] = Interval(1 - lost.value, 1 - lost.high, 1 - lost.low)
    if labels is None:
        return found
    negative, positive, both = (sums[x] for x in ("negative", "positive", "both"))
    right = both + negative
    wrong = sums["wrong"] + sums["neutral"] + negative
    of_old = ratio(right[:, :, :1], size, np.nan)
    now = both + positive
    of_new = ratio(now if scanned.paired else now[:, :1, :], size, np.nan)
    gained, lost = ratio(positive, size, np.nan), ratio(negative, size, np.nan)
    most = float(size.sum() / max(right.sum(axis=0).mean(), 1.0))
    shares = {
        "accuracy_old": of_old,
        "accuracy_new": of_new,
        "negative_flip_rate": lost,
        "positive_flip_rate": gained,
    }
    found |= {name: _share(share, level) for name, share in shares.items()}
    parts = {
        "backward_trust_compatibility": ratio(both, right, 1.0),
        "backward_error_compatibility": ratio(wrong - negative, wrong, 1.0),
        "good_churn": ratio(positive, changed, np.nan),
        "bad_churn": ratio(negative, changed, np.nan),
        "neutral_churn": ratio(sums["neutral"], changed, np.nan),
    }
    found |= {name: _part(part, level) for name, part in parts.items()}
    found["relative_negative_flip_rate"] = _part(
        relative(negative, right, wrong, size), level, most=most
    )
    known = difference(of_old, of_new).uncertainty()
    low, high = difference_ends(
        np.array(gained.value),
        np.array(lost.value),
        known.total,
        known.quantile(level),
        np.array(gained.examples),
    )
    value = of_new.value - of_old.value
    found["accuracy_gain"] = Interval(value, float(low), float(high))
    return found


def _share(estimate: Estimate, level: float) -> Interval:
    """Interval of a share of all examples."""
    known = estimate.uncertainty()
    return _ends(estimate.value, known, level, 1.0, estimate.examples)


def _part(
    estimate: Estimate,
    level: float,
    *,
    most: float = 1.0,
    examples: float | None = None,
) -> Interval:
    """The same of a number between 0 and `most` whose denominator varies."""
    # Means over many runs vary less than binomial shares. How much less is not well
    # known where the denominator holds few examples, which costs degrees of freedom.
    examples = estimate.examples if examples is None else examples
    known, share = estimate.uncertainty(), estimate.value / most
    binomial = share * (1 - share) * most**2 / max(examples, 1.0)
    several = estimate.influence[0].size > 1 and not known.alone
    if several and binomial > 0 and known.total > 0:
        less = max(1 - known.examples / binomial, 0.0)
        unsure = estimate.tail() * less * np.square(known.examples / known.total) / 2
        freedom = 1 / np.maximum(1 / known.freedom + unsure, 1e-12)
        known = dataclasses.replace(known, freedom=np.asarray(freedom))
    return _ends(estimate.value, known, level, most, examples)


def _ends(
    value: float, known: Uncertainty, level: float, most: float, examples: float
) -> Interval:
    if not examples or np.isnan(value):
        return Interval(value, np.nan, np.nan)
    low, high = share_ends(
        np.array(value / most),
        known.total / most**2,
        known.quantile(level),
        np.array(examples),
    )
    return Interval(value, float(low) * most, float(high) * most)
