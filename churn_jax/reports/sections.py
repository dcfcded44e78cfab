"""Sections of a study's page: its members, which inputs churn, the glossary.

Members that share most of their weights can come out nearly identical, and then their
mean is worth no more than one of them. So every report says how much they differ.
"""

import math

import numpy as np

from churn_compare.documents import Block, Section, Table, Term, Text
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.quantities import number, percent
from churn_jax.reports.report import Report

HARDLY = 0.001  # share of examples; below it members are as good as the same


def members_section(report: Report) -> Section:
    """How much the members of each row differ; empty where none were kept."""
    caption = (
        "Of the members of one run on the test split, mean ± standard deviation over "
        "runs. KL: mean over ordered pairs of members, nats. Disagreement: share of "
        "examples that two members predict differently, over all pairs. The mean is "
        "the one that the row serves."
    )
    rows = []
    for row in report.rows:
        found, label = row.agreement, row.label
        if found is None:
            continue
        of = found.of_runs
        shares = of.disagreement, of.mean_member_accuracy, of.ensemble_accuracy
        kl = number(over_runs(of.mean_kl))
        cells = (percent(over_runs(values)) for values in shares)
        rows.append((label, str(found.members), kl, *cells))
        if found.examples < (total := row.summary.examples):
            caption += (
                f" {label}: on {found.examples:,} of {total:,} examples, evenly spaced."
            )
        if of.disagreement.mean() < HARDLY:
            caption += (
                f" {label}: two members predict the same class for more than 99.9 % "
                "of the examples. Members that agree in everything give nothing that "
                "one of them does not."
            )
    heads = ("Method", "Members", "KL", "Disagreement %")
    heads += ("Accuracy of a member %", "Accuracy of the mean %")
    return Section("Members", [Table(heads, rows, caption=caption)] if rows else [])


SHOWN = 24


def ambiguous_section(report: Report) -> Section:
    """Which inputs churn, the worst first; empty without two runs of the baseline."""
    base = report.baseline
    if base is None or len(base.summary.runs) < 2:
        return Section("", [])
    others = [
        row
        for row in report.rows
        if row is not base and math.isfinite(row.summary.churn.mean)
    ]
    best = min(others, key=lambda row: row.summary.churn.mean, default=None)
    summary, inputs = base.summary, []
    order = np.argsort(-summary.ambiguity, kind="stable")[:SHOWN]
    shown = [row.summary.ambiguity for row in (base, best) if row is not None]
    for n in order[summary.ambiguity[order] > 0]:
        classes, runs = np.unique(summary.classes[:, n], return_counts=True)
        votes = sorted(zip(classes, runs, strict=True), key=lambda v: (-v[1], v[0]))
        voted = ", ".join(f"{c} ({r})" for c, r in votes)
        change = " → ".join(f"{100 * one[n]:.0f} %" for one in shown)
        inputs.append((str(report.ids[n]), str(report.labels[n]), voted, change))
    agreed = 100 * np.mean(summary.ambiguity == 0)
    intro = (
        f"All {len(summary.runs)} runs of {base.label} agree on {agreed:.1f} % "
        f"of {summary.examples:,} test examples. "
    )
    if inputs:
        least = "the other row that churns least"
        under = f" (→ under {best.label}, {least})" if best else ""
        intro += (
            f"These are the {len(inputs)} they agree on least, with the classes that "
            f"runs voted for (and how many did) and the ambiguity{under}, the share "
            "of pairs of runs that predict it differently."
        )
    blocks: list[Block] = [Text(intro)]
    if inputs:
        head = f"Ambiguity → under {best.label}" if best else "Ambiguity"
        blocks.append(Table(["Id", "Label", "Votes", head], inputs))
    return Section("Which inputs churn", blocks, detail="full")


# Formulas are in `docs/reference/`.
_MEANINGS = {
    "Churn": "Share of test examples that two runs predict differently.",
    "SChurn": "A soft churn that also sees changes of probability: between 0 and half "
    "the number of classes, and large where probabilities are nearly uniform.",
    "Churn correct, churn incorrect": "Churn on the examples that one run gets right, "
    "and on those that it gets wrong.",
    "Ambiguity": "Share of pairs of runs that predict one example differently; its "
    "mean over examples is the churn.",
    "Confidence": "Probability of the predicted class minus that of the runner-up.",
    "L1": "Distance of two runs' probabilities, between 0 and 2.",
    "Δ₁, Δ₂": "Prediction difference: distance of each run's probabilities from the "
    "mean of all runs.",
    "Δʳ, Δᴸ": "Δ₁ relative to the mean probability: over all classes, and of the "
    "observed label alone.",
    "Δᴴ": "Share of labels that two runs predict differently: the churn.",
    "NFR": "Negative flips: right in one run and wrong in another, averaged over both "
    "orders of every pair.",
    "ER, NFR, PFR of an update": "Error rate; share of examples that the old model "
    "gets right and its replacement wrong; and the reverse. ER falls by PFR − NFR.",
    "Relative NFR": "Negative flips over those of two models whose errors are "
    "independent: 100 % if they are, 0 if the new model breaks nothing.",
    "ECE": "Expected calibration error, 15 bins: how far the top probability is from "
    "the accuracy.",
    "NLL, Brier": "Proper scores of the probabilities; NLL in nats.",
    "Calibrated NLL, Brier, ECE": "Those at the temperature that suits the run's own "
    "validation predictions best.",
    "DEE": "Deep-ensemble equivalent: how many independent networks reach the same "
    "calibrated NLL.",
    "KL of members, churn of members": "How much the members of one run differ from "
    "each other.",
    "± and p": "Pairs share runs, so standard errors leave one run out at a time, of "
    "an update one run of either side. Differences are paired: run r of every method "
    "has the same seeds, unless a row sets others. p is two-sided (Student's t, R − 1 "
    "degrees of freedom) and Holm-adjusted over the methods; below 0.05 counts as an "
    "effect.",
}
GLOSSARY = tuple(Term(*entry) for entry in _MEANINGS.items())
