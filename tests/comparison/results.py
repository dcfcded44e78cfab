"""Comparisons as `compare` gives them, made by hand from random predictions."""

import dataclasses
import math

import numpy as np

from churn_jax.comparison.display import CompareResult
from churn_jax.comparison.quantities import QUANTITIES
from churn_jax.comparison.result import (
    Curve,
    Flow,
    GateOutcome,
    Group,
    Interval,
    McNemar,
    Noise,
    Points,
    Regression,
    Version,
)

NAN = math.nan
NONE = Interval(NAN, NAN, NAN)


def fake_result(
    *,
    classes=10,
    examples=2000,
    runs=1,
    labelled=True,
    scored=True,
    names=None,
    groupings=("region",),
    gates=True,
    seed=0,
):
    """A comparison whose parts agree with each other; its intervals are rough."""
    rng = np.random.default_rng(seed)
    names = names or [f"class {c}" for c in range(classes)]
    labels = rng.integers(0, classes, examples)
    old = np.where(rng.random(examples) < 0.82, labels, _confused(rng, labels, classes))
    moved = rng.random(examples) < 0.12
    back = np.where(rng.random(examples) < 0.6, labels, _confused(rng, labels, classes))
    new = np.where(moved, back, old)
    changed = old != new
    negative = (old == labels) & (new != labels)
    positive = (old != labels) & (new == labels)
    found = _quantities(labels, old, new, labelled, scored)
    groups = []
    if labelled:
        groups += _groups("class", labels, names, labels, old, new)
    for grouping in groupings:
        places = rng.integers(0, 5, examples)
        members = [f"{grouping} {place}" for place in range(5)]
        found_groups = _groups(grouping, places, members, labels, old, new)
        groups += found_groups if labelled else map(_without_labels, found_groups)
    listed = np.flatnonzero(negative)[:20]
    kind = "logits" if scored else "classes"
    return CompareResult(
        old=Version("model-2026-03.npz", kind, runs, classes, examples),
        new=Version("model-2026-11.npz", kind, runs, classes, examples),
        examples=examples,
        level=0.95,
        quantities=found,
        flow=_flow(old, new, changed, negative, positive, names, labelled),
        mcnemar=McNemar(float(negative.sum()), float(positive.sum()), 0.0312, runs**2)
        if labelled
        else None,
        noise=_noise(found["churn"]) if runs > 1 else None,
        groups=tuple(groups),
        regressions=tuple(
            Regression(
                f"image-{i:05d}",
                names[labels[i]],
                names[old[i]],
                names[new[i]],
                *((0.91, 0.55, 0.7, 3.14) if scored else (NAN,) * 4),
                1.0,
            )
            for i in listed
        )
        if labelled
        else (),
        regressions_total=int(negative.sum()) if labelled else 0,
        curves=(_curve(rng, 0.07), _curve(rng, 0.02)) if labelled and scored else None,
        points=_points(rng, changed, negative, positive, labelled) if scored else None,
        gates=_gates(found) if gates else (),
    )


def _confused(rng, labels, classes):
    """Mostly the next class, as real mistakes have favourites."""
    step = np.where(rng.random(len(labels)) < 0.6, 1, rng.integers(1, classes + 1))
    return (labels + step) % classes


def _share(values, scale=1.0):
    mean, reach = float(np.mean(values)), 1.96 * float(np.std(values))
    reach /= math.sqrt(max(len(values), 1))
    return Interval(scale * mean, scale * (mean - reach), scale * (mean + reach))


def _quantities(labels, old, new, labelled, scored):
    right, now = (old == labels) * 1.0, (new == labels) * 1.0
    values = {
        "accuracy_old": _share(right),
        "accuracy_new": _share(now),
        "accuracy_gain": _share(now - right),
        "churn": _share(old != new),
        "surrogate_churn": _share((old != new) * 0.8),
        "kappa": Interval(0.89, 0.87, 0.91),
        "negative_flip_rate": _share(right > now),
        "positive_flip_rate": _share(now > right),
        "relative_negative_flip_rate": Interval(0.31, 0.26, 0.37),
        "backward_trust_compatibility": _share(now[right > 0]),
        "backward_error_compatibility": _share(1 - right[now == 0]),
        "good_churn": Interval(0.41, 0.33, 0.49),
        "bad_churn": Interval(0.32, 0.25, 0.39),
        "neutral_churn": Interval(0.27, 0.2, 0.34),
        "nll_old": Interval(0.612, 0.588, 0.637),
        "nll_new": Interval(0.571, 0.549, 0.594),
        "nll_change": Interval(-0.041, -0.058, -0.024),
        "brier_old": Interval(0.268, 0.255, 0.281),
        "brier_new": Interval(0.272, 0.258, 0.286),
        "brier_change": Interval(0.004, -0.006, 0.014),
        "ece_old": Interval(0.0312, 0.025, 0.041),
        "ece_new": Interval(0.0691, 0.058, 0.081),
        "ece_change": Interval(0.0379, 0.022, 0.051),
    }
    return {
        name: values[name]
        for name, quantity in QUANTITIES.items()
        if (labelled or not quantity.labels) and (scored or not quantity.scores)
    }


def _groups(grouping, of, names, labels, old, new):
    found = []
    for place, name in enumerate(names):
        member = of == place
        if not member.any():
            continue
        right, now = (old == labels)[member] * 1.0, (new == labels)[member] * 1.0
        gain = _share(now - right)
        p = 0.0001 if gain.low > 0 or gain.high < 0 else 0.4
        found.append(
            Group(
                grouping,
                name,
                int(member.sum()),
                float(right.mean()),
                float(now.mean()),
                gain,
                _share((old != new)[member]),
                _share(right > now),
                _share(now > right),
                p,
                min(1.0, p * len(names)),
            )
        )
    return found


def _without_labels(group):
    return dataclasses.replace(
        group,
        accuracy_old=NAN,
        accuracy_new=NAN,
        accuracy_gain=NONE,
        negative_flip_rate=NONE,
        positive_flip_rate=NONE,
        p=NAN,
        adjusted_p=NAN,
    )


def _flow(old, new, changed, negative, positive, names, labelled):
    pairs, place = np.unique(
        np.stack([old, new], -1)[changed], axis=0, return_inverse=True
    )
    counts = [
        np.bincount(place.ravel(), part[changed], len(pairs))
        for part in (changed, negative, positive)
    ]
    order = np.argsort(-counts[0], kind="stable")
    size, worse, better = (tuple(map(float, count[order])) for count in counts)
    if not labelled:
        worse = better = (NAN,) * len(order)
    return Flow(
        tuple(names[pairs[i, 0]] for i in order),
        tuple(names[pairs[i, 1]] for i in order),
        size,
        worse,
        better,
    )


def _noise(churn):
    within = Interval(0.061, 0.052, 0.071)
    return Noise(
        within,
        Interval(0.055, 0.047, 0.064),
        Interval(0.058, 0.05, 0.066),
        Interval(churn.value - 0.058, churn.value - 0.061, churn.value - 0.055),
        0.002,
    )


def _curve(rng, gap):
    confidence = (np.arange(15) + 0.5) / 15
    examples = np.round(400 * confidence**3).astype(int)
    accuracy = np.clip(confidence - gap + 0.02 * rng.normal(size=15), 0, 1)
    empty = examples == 0
    return Curve(
        np.where(empty, NAN, confidence), np.where(empty, NAN, accuracy), examples
    )


def _points(rng, changed, negative, positive, labelled):
    outcome = np.full(len(changed), "same", dtype="<U8")
    outcome[changed] = "other"
    if labelled:
        outcome[positive], outcome[negative] = "positive", "negative"
    order = np.argsort(outcome != "negative", kind="stable")
    few = max(0, int(negative.sum()) - 1500)
    order = order[few : few + 3000]
    confidence = np.where(
        changed, rng.uniform(0.3, 0.9, len(changed)), rng.beta(8, 1.2, len(changed))
    )
    displacement = rng.gamma(2, 1, len(changed)) + 2.0 * changed
    names, counts = np.unique(outcome, return_counts=True)
    totals = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    return Points(
        confidence[order], displacement[order], outcome[order], len(changed), totals
    )


def _gates(found):
    outcomes = []
    for gate, name, limit in (
        ("churn at most 5 %", "churn", 0.05),
        ("NFR at most 10 %", "negative_flip_rate", 0.1),
    ):
        if name not in found:
            continue
        measured = found[name].value
        passed = measured <= limit
        word = "PASS" if passed else "FAIL"
        line = f"{word}  {gate}: {100 * measured:.1f} %"
        outcomes.append(GateOutcome(gate, "", measured, limit, passed, line))
    return tuple(outcomes)
