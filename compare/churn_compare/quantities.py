"""Every number of a comparison: its name, how it is shown, what it needs."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Quantity:
    """How a report shows one number.

    Attributes:
        name: key of `CompareResult.quantities`.
        heading: in tables.
        formula: what it is, in one line.
        unit: "share" is shown as a percentage, "points" as percentage points with a
            sign, "number" as it is, "change" as it is with a sign.
        better: which way is better; "" where neither is.
        labels: whether it needs labels.
        scores: whether both sides need logits or probabilities; "old" and "new" name
            the one side that does.
        outcomes: whether it is of numbers, texts, sets or rankings, not of classes.
    """

    name: str
    heading: str
    formula: str
    unit: Literal["share", "points", "number", "change"] = "share"
    better: Literal["lower", "higher", ""] = ""
    labels: bool = True
    scores: Literal["", "old", "new", "both"] = ""
    outcomes: bool = False

    @property
    def is_change(self) -> bool:
        """Whether it is the difference of a quantity that both versions have."""
        return self.name.endswith(("_gain", "_change"))


def _two_versions(
    name: str,
    heading: str,
    formula: str,
    better: Literal["lower", "higher"] = "lower",
    unit: Literal["share", "number"] = "number",
) -> tuple[Quantity, ...]:
    """A quantity of each version, and its difference, new minus old."""
    share = unit == "share"  # of right predictions, which need no scores
    suffix, change = ("gain", "points") if share else ("change", "change")
    quantities = (
        Quantity(f"{name}_old", f"{heading}, old", formula, unit, better, scores="old"),
        Quantity(f"{name}_new", f"{heading}, new", formula, unit, better, scores="new"),
        Quantity(
            f"{name}_{suffix}",
            f"{heading}, change",
            "new minus old, paired",
            change,
            better,
            scores="both",
        ),
    )
    if share:
        return tuple(dataclasses.replace(q, scores="") for q in quantities)
    return quantities


def _outcomes(*quantities: Quantity) -> tuple[Quantity, ...]:
    """Numbers of outcomes other than a classifier's predictions."""
    return tuple(
        dataclasses.replace(q, labels=False, scores="", outcomes=True)
        for q in quantities
    )


_ALL = (
    *_two_versions(
        "accuracy", "Accuracy", "share of right predictions", "higher", "share"
    ),
    Quantity(
        "churn",
        "Churn",
        "share of examples whose prediction changes",
        better="lower",
        labels=False,
    ),
    Quantity(
        "surrogate_churn",
        "Surrogate churn",
        "1/2 sum_c |exp(z_c - max z) - exp(z'_c - max z')|, mean over examples",
        better="lower",
        labels=False,
        scores="both",
    ),
    Quantity(
        "kl_divergence",
        "KL divergence",
        "KL(old || new) of the probabilities in nats, mean over examples",
        unit="number",
        better="lower",
        labels=False,
        scores="both",
    ),
    Quantity(
        "kappa",
        "Cohen's kappa",
        "agreement beyond that of independent predictions with the same frequencies",
        unit="number",
        better="higher",
        labels=False,
    ),
    Quantity(
        "negative_flip_rate",
        "Negative flips (NFR)",
        "right before, wrong now, of all examples",
        better="lower",
    ),
    Quantity(
        "positive_flip_rate",
        "Positive flips (PFR)",
        "wrong before, right now, of all examples",
        better="higher",
    ),
    Quantity(
        "relative_negative_flip_rate",
        "Relative NFR",
        "NFR / (accuracy_old (1 - accuracy_new)); 1 for independent errors",
        unit="number",
        better="lower",
    ),
    Quantity(
        "backward_trust_compatibility",
        "Trust kept (BTC)",
        "right now, of those right before",
        better="higher",
    ),
    Quantity(
        "backward_error_compatibility",
        "Known errors (BEC)",
        "wrong before too, of those wrong now",
        better="higher",
    ),
    Quantity(
        "good_churn",
        "Good churn",
        "wrong before, right now, of the changed predictions",
        better="higher",
    ),
    Quantity(
        "bad_churn",
        "Bad churn",
        "right before, wrong now, of the changed predictions",
        better="lower",
    ),
    Quantity(
        "neutral_churn",
        "Neutral churn",
        "wrong before and wrong now in another way, of the changed predictions",
    ),
    *_outcomes(
        *_two_versions("score", "Mean score", "mean over examples", "higher"),
        *_two_versions("error", "Mean absolute error", "mean of |value - target|"),
        *_two_versions(
            "stability",
            "All runs agree (TARa)",
            "share of examples on which all runs of a version agree",
            "higher",
            "share",
        ),
        Quantity(
            "share_changed",
            "Changed",
            "share of examples whose outcome moves by more than the tolerance",
            better="lower",
        ),
        Quantity(
            "share_reworded",
            "Reworded",
            "share of examples whose texts are not the same letter by letter",
        ),
        Quantity(
            "share_worse",
            "Worse (harmful flips)",
            "share of examples that are worth less, by more than the tolerance",
            better="lower",
        ),
        Quantity(
            "share_better",
            "Better (beneficial flips)",
            "share of examples that are worth more, by more than the tolerance",
            better="higher",
        ),
        Quantity(
            "mean_distance",
            "Mean distance",
            "|new - old|; of sets 1 - Jaccard, of rankings 1 - Kendall's tau",
            unit="number",
            better="lower",
        ),
        Quantity(
            "runs_differ",
            "Runs differ",
            "share of examples on which two runs differ, mean over pairs",
        ),
        Quantity(
            "runs_agree",
            "All runs agree (TARa)",
            "share of examples on which all runs agree",
        ),
    ),
    *(
        Quantity(
            f"within_{side}",
            f"Runs differ, {side}",
            "share of examples on which two runs of a version differ",
            labels=False,
        )
        for side in ("old", "new")
    ),
    Quantity(
        "excess_churn",
        "Beyond runs of one version",
        "share of examples that change, less that between runs of one version",
        "points",
        "lower",
        labels=False,
    ),
    Quantity(
        "expected_nfr",
        "NFR of retraining alone",
        "right in one run and wrong in another of one version, mean of the versions",
    ),
    Quantity(
        "excess_nfr",
        "NFR beyond retraining",
        "NFR less that of retraining alone",
        "points",
        "lower",
    ),
    Quantity(
        "excess_pfr",
        "PFR beyond retraining",
        "PFR less that of retraining alone, which breaks as much as it mends",
        "points",
        "higher",
    ),
    *_two_versions("nll", "NLL", "mean -log p(label), nats"),
    *_two_versions("brier", "Brier score", "mean of sum_c (p_c - [c = label])^2"),
    *_two_versions(
        "ece",
        "ECE",
        "sum_m |B_m|/N |accuracy(B_m) - confidence(B_m)|, 15 equal-width bins",
    ),
)

QUANTITIES: Mapping[str, Quantity] = MappingProxyType({q.name: q for q in _ALL})
"""What a comparison computes, by name; gates use these names."""


def in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers in the order of `QUANTITIES`."""
    return {name: found[name] for name in QUANTITIES if name in found}
