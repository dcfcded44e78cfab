"""Which value of a coefficient to take: decided on the validation split alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from churn_jax.reports.compare import paired
from churn_jax.reports.summary import MethodSummary
from churn_jax.setting_checks import check_choice

CRITERIA = {
    "churn": "the lowest validation churn",
    "accuracy": "the highest validation accuracy",
    "churn-at-accuracy": "the lowest validation churn among the values whose "
    "validation accuracy is at most one standard error below the baseline's",
    "prediction-difference": "the lowest validation Δ₁",
    "prediction-difference-at-accuracy": "the lowest validation Δ₁ among the values "
    "whose validation accuracy is at most one standard error below the baseline's",
}
_AT_ACCURACY = "-at-accuracy"


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was picked on one axis."""

    axis: str  # name of the axis
    criterion: str  # one of `CRITERIA`
    point: str | None  # name of the chosen point; None where none could be
    value: float | None  # of the coefficient there
    # names of the other points that are within one standard error of the chosen one,
    # paired by seed: the data do not tell them apart from it
    within: tuple[str, ...] = ()
    reason: str = ""  # why there is no choice, or which points were no candidates


def choose(
    axis: str,
    points: Sequence[tuple[str, float, MethodSummary | None]],
    baseline: MethodSummary | None,
    criterion: str = "churn",
) -> Choice:
    """The best point of an axis by its validation numbers."""
    # Points at which a run stopped are no candidates: a coefficient that sometimes
    # diverges is not one to recommend. Nor are points with less than half the accuracy
    # of the best one: networks that predict one class for everything do not churn.
    # The paper reports the value "with the smallest churn" and not on which split; this
    # is the validation split.
    check_choice("criterion", criterion, CRITERIA)
    quantity = criterion.removesuffix(_AT_ACCURACY).replace("-", "_")
    sound = [
        (name, value, s)
        for name, value, s in points
        if s is not None and not s.stopped and np.isfinite(getattr(s, quantity).mean)
    ]
    collapsed = [name for name, _, s in sound if _collapsed(s, sound, baseline)]
    reason = _left_out(points, [name for name, *_ in sound], collapsed)
    sound = [point for point in sound if point[0] not in collapsed]
    if criterion.endswith(_AT_ACCURACY):
        if baseline is None:
            return Choice(axis, criterion, None, None, (), "there is no baseline")
        sound = [point for point in sound if _as_accurate(point[2], baseline)]
    if not sound:
        why = "no value meets the criterion" if not reason else reason
        return Choice(axis, criterion, None, None, (), why)
    sign = -1 if quantity == "accuracy" else 1
    name, value, best = min(
        sound, key=lambda point: sign * getattr(point[2], quantity).mean
    )
    within = []
    for other, _, summary in sound:
        difference = paired(quantity, summary, best)
        if other != name and abs(difference.difference) <= difference.stderr:
            within.append(other)
    return Choice(axis, criterion, name, value, tuple(within), reason)


def _collapsed(point: MethodSummary, sound, baseline: MethodSummary | None) -> bool:
    """Whether a point has less than half the accuracy of the best one."""
    known = [s.accuracy.mean for _, _, s in sound]
    if baseline is not None:
        known.append(baseline.accuracy.mean)
    return point.accuracy.mean < 0.5 * max(known)


def _left_out(points, sound: Sequence[str], collapsed: Sequence[str]) -> str:
    """Why points are no candidates; empty where all are."""
    why: dict[str, list[str]] = {}
    for name, _, summary in points:
        if name in collapsed:
            why.setdefault("they learned little", []).append(name)
        elif name not in sound:
            halted = summary is not None and summary.stopped
            cause = "runs stopped there" if halted else "they have no numbers"
            why.setdefault(cause, []).append(name)
    said = [f"because {cause}: {', '.join(names)}" for cause, names in why.items()]
    return f"no candidates, {'; '.join(said)}" if said else ""


def _as_accurate(point: MethodSummary, baseline: MethodSummary) -> bool:
    difference = paired("accuracy", point, baseline)
    if not np.isfinite(difference.stderr):
        return difference.difference >= 0
    return difference.difference >= -difference.stderr
