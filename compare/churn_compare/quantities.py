"""Every number of a comparison: name, heading, formula, unit and requirements."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number of a comparison, as a report shows it."""

    name: str  # key of `CompareResult.quantities`
    heading: str  # heading in tables
    formula: str  # definition in one line
    # "share" is shown as a percentage, "points" as percentage points with a sign,
    # "number" as it is, "change" as it is with a sign.
    unit: Literal["share", "points", "number", "change"] = "share"
    # "lower" or "higher"; "" if neither is better.
    better: Literal["lower", "higher", ""] = ""
    labels: bool = True  # True if it needs labels
    # Side that needs logits or probabilities: "old", "new", "both" or "".
    scores: Literal["", "old", "new", "both"] = ""
    # True for numbers, texts, sets or rankings, False for classes.
    outcomes: bool = False

    @property
    def is_change(self) -> bool:
        """True if it is the difference of a quantity that both versions have."""
        return self.name.endswith(("_gain", "_change"))


# Name, heading, better direction, unit and requirements; below it the formula. A star
# stands for "old", "new" and, for their difference, "change" or "gain".
_TABLE = """
accuracy_* | Accuracy | higher share
    share of right predictions
churn | Churn | lower share unlabelled
    share of examples whose prediction changes
surrogate_churn | Surrogate churn | lower share unlabelled both
    1/2 sum_c |exp(z_c - max z) - exp(z'_c - max z')|, mean over examples
kl_divergence | KL divergence | lower number unlabelled both
    KL(old || new) of the probabilities in nats, mean over examples
kappa | Cohen's kappa | higher number unlabelled
    agreement beyond that of independent predictions with the same frequencies
negative_flip_rate | Negative flips (NFR) | lower share
    right before, wrong now, of all examples
positive_flip_rate | Positive flips (PFR) | higher share
    wrong before, right now, of all examples
relative_negative_flip_rate | Relative NFR | lower number
    NFR / (accuracy_old (1 - accuracy_new)); 1 for independent errors
backward_trust_compatibility | Trust kept (BTC) | higher share
    right now, of those right before
backward_error_compatibility | Known errors (BEC) | higher share
    wrong before too, of those wrong now
good_churn | Good churn | higher share
    wrong before, right now, of the changed predictions
bad_churn | Bad churn | lower share
    right before, wrong now, of the changed predictions
neutral_churn | Neutral churn | share
    wrong before and wrong now in another way, of the changed predictions
score_* | Mean score | higher number outcomes
    mean over examples
error_* | Mean absolute error | lower number outcomes
    mean of |value - target|
stability_* | All runs agree (TARa) | higher share outcomes
    share of examples on which all runs of a version agree
share_changed | Changed | lower share outcomes
    share of examples whose outcome moves by more than the tolerance
share_reworded | Reworded | share outcomes
    share of examples whose texts are not the same letter by letter
share_worse | Worse (harmful flips) | lower share outcomes
    share of examples that are worth less, by more than the tolerance
share_better | Better (beneficial flips) | higher share outcomes
    share of examples that are worth more, by more than the tolerance
mean_distance | Mean distance | lower number outcomes
    |new - old|; of sets 1 - Jaccard, of rankings 1 - Kendall's tau
runs_differ | Runs differ | share outcomes
    share of examples on which two runs differ, mean over pairs
runs_agree | All runs agree (TARa) | share outcomes
    share of examples on which all runs agree
within_old | Runs differ, old | share unlabelled
    share of examples on which two runs of a version differ
within_new | Runs differ, new | share unlabelled
    share of examples on which two runs of a version differ
excess_churn | Beyond runs of one version | lower points unlabelled
    share of examples that change, less that between runs of one version
expected_nfr | NFR of retraining alone | share
    right in one run and wrong in another of one version, mean of the versions
excess_nfr | NFR beyond retraining | lower points
    NFR less that of retraining alone
excess_pfr | PFR beyond retraining | higher points
    PFR less that of retraining alone, which breaks as much as it mends
nll_* | NLL | lower number
    mean -log p(label), nats
brier_* | Brier score | lower number
    mean of sum_c (p_c - [c = label])^2
ece_* | ECE | lower number
    sum_m |B_m|/N |accuracy(B_m) - confidence(B_m)|, 15 equal-width bins
"""


def _read(table: str) -> Iterator[Quantity]:
    lines = table.strip().splitlines()
    for head, formula in zip(lines[::2], lines[1::2], strict=True):
        name, heading, words = head.split(" | ")
        known = words.split()
        better: Any = next((w for w in known if w in ("lower", "higher")), "")
        unit: Any = next(w for w in known if w in ("share", "points", "number"))
        outcomes = "outcomes" in known
        scores: Any = "both" if "both" in known else ""
        labels = not outcomes and "unlabelled" not in known
        one = Quantity(
            name, heading, formula.strip(), unit, better, labels, scores, outcomes
        )
        if not name.endswith("_*"):
            yield one
            continue
        share = unit == "share"  # of right predictions, which need no scores
        end, change = ("gain", "points") if share else ("change", "change")
        for side in ("old", "new", "change"):
            scores = "" if share or outcomes else "both" if side == "change" else side
            of: dict[str, Any] = {"heading": f"{heading}, {side}", "scores": scores}
            if side == "change":
                of |= {"formula": "new minus old, paired", "unit": change}
            name = one.name[:-1] + (end if side == "change" else side)
            yield dataclasses.replace(one, name=name, **of)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {quantity.name: quantity for quantity in _read(_TABLE)}
)
"""The quantities of a comparison, by name; gates use these names."""


def in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers in the order of `QUANTITIES`."""
    return {name: found[name] for name in QUANTITIES if name in found}
