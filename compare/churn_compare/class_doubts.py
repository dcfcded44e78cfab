"""Predicted classes that look as if they were not those of the labels."""

import numpy as np

from churn_compare.example_ids import some
from churn_compare.pair import Pair, Scanned, ScannedSide, Table
from churn_compare.reading.account import Doubt
from churn_compare.reading.class_values import as_number
from churn_compare.stored_logits import sample_rows

_FEW = 10  # examples or classes; below, anything may be chance
_WIDTHS = 3  # standard deviations below chance
_EXPECTED, _PURE = 4, 0.6  # right by chance, if other classes would be right
_CHANCES = 100  # one in so many is too rare for chance

_REPAIR = (
    "write the classes of both in one way, or give a file with lines old,new "
    "(--class-map), the first of which is old,new itself"
)


def class_doubts(pair: Pair, scanned: Scanned) -> list[Doubt]:
    """Doubts about the classes of a pair, from what each side predicts."""
    found, labels = [], pair.labels
    sides = (pair.old, scanned.old), (pair.new, scanned.new)
    seen = [of.predicted.reshape(-1) for side, of in sides if side.kind == "classes"]
    if seen:
        more = [] if labels is None else [labels]
        count = len(np.unique(np.concatenate(seen + more)))
        if count > max(_FEW, pair.examples / 2):
            said = (
                f"there are {count:,} different classes in {pair.examples:,} examples, "
                "so they may be texts, numbers or ids; texts are compared in a column "
                "answer, numbers in a column value"
            )
            found.append(Doubt("many-classes", said))
    for side, of in sides:
        if said := _no_class(pair, side, of, labels):
            remedy = "if that is not a class, leave its column out or rename it"
            found.append(Doubt("score-columns", f"{side.name}: {said}; {remedy}"))
    if labels is None or len(labels) < _FEW or found:
        return found
    size = 1 + max(int(of.max()) for of in (labels, *(of.predicted for _, of in sides)))
    of_labels = np.bincount(labels, minlength=size)
    never = not any((of.predicted == labels).any() for _, of in sides)
    for side, of in sides:
        of_predicted = np.bincount(of.predicted.reshape(-1), minlength=size)
        right = (of.predicted == labels).mean(axis=0).sum()
        chance = float(of_labels @ of_predicted) / of.predicted.size
        if never or not chance or _below(right, chance, of.predicted, labels):
            names = [
                some([*map(pair.class_name, np.flatnonzero(of)[:4])])
                for of in (of_predicted, of_labels)
            ]
            said = (
                f"{side.name} is right on {right:,.0f} of {len(labels):,} examples, by "
                f"chance it would be on {chance:,.0f}; it predicts {names[0]}, and "
                f"labels are {names[1]}"
            )
            found.append(Doubt("below-chance", f"{said}: {_REPAIR}"))
        elif side.kind == "classes":
            found += _renamed(pair, side, of.predicted, of_labels, of_predicted)
    return found


def _no_class(
    pair: Pair, side: Table, of: ScannedSide, labels: np.ndarray | None
) -> str:
    """Says that a column of scores may not be of a class, as logit_norm."""
    if side.kind == "classes":
        return ""
    names = side.class_names or ()
    odd = [name for name in names if as_number(name) is None]
    if 0 < len(odd) < len(names) - len(odd):
        return f"{some(odd)} has scores, and all other classes are numbers"
    rows = sample_rows(side.values)
    if side.decisions is None and of.ties > max(0.9 * of.predicted.size, _FEW):
        highest = (rows == rows.max(axis=1, keepdims=True)).mean(axis=0)
        name = names[highest.argmax()] if names else str(highest.argmax())
        where = f"{of.ties:,} of {of.predicted.size:,} rows"
        return f"several classes have the highest score in {where}, mostly {name!r}"
    if labels is None or len(labels) < _FEW:
        return ""
    count = np.bincount(of.of_scores.reshape(-1))
    top = int(count.argmax())
    if count[top] > of.of_scores.size / 2 and not (labels == top).any():
        where = f"{count[top]:,} of {of.of_scores.size:,} rows"
        return (
            f"{pair.class_name(top)!r} has the highest score in {where} and is never a "
            "label"
        )
    return ""


def _below(
    right: float, chance: float, predicted: np.ndarray, labels: np.ndarray
) -> bool:
    """True if a side is right less often than independent predictions would be."""
    if right >= chance / 2:
        return False
    if chance - right > _WIDTHS * np.sqrt(chance):
        return True
    # It would be right often if each predicted class stood for its most frequent label.
    pairs = np.stack([predicted.reshape(-1), np.tile(labels, len(predicted))])
    pairs, counts = np.unique(pairs, axis=1, return_counts=True)
    most = np.zeros(pairs[0].max() + 1)
    np.maximum.at(most, pairs[0], counts)
    return chance >= _EXPECTED and most.sum() / predicted.size > _PURE


def _renamed(
    pair: Pair,
    side: Table,
    predicted: np.ndarray,
    of_labels: np.ndarray,
    of_predicted: np.ndarray,
) -> list[Doubt]:
    """A label that is never predicted, and a prediction in its place that is none."""
    # So many examples that some are right by the side's accuracy, in all classes.
    labels = pair.labels
    wrong = np.clip((predicted != labels).mean(), 0.01, 0.99)
    least = np.log(_CHANCES * np.count_nonzero(of_labels)) / -np.log(wrong)
    found = []
    never = (of_labels >= max(least, _FEW)) & (of_predicted == 0)
    for label in np.flatnonzero(never).tolist():
        instead = np.bincount(
            predicted[:, labels == label].reshape(-1), minlength=len(of_labels)
        )
        other = int(instead.argmax())
        half = max(instead.sum(), of_predicted[other]) / 2
        if of_labels[other] == 0 and instead[other] > half:
            found.append(
                f"{side.name} never predicts {pair.class_name(label)!r}, the label of "
                f"{of_labels[label]:,} examples, and predicts "
                f"{pair.class_name(other)!r}, which is never a label, for most of them"
            )
    more = f" (and {len(found) - 1} further classes)" if len(found) > 1 else ""
    return [Doubt("renamed-classes", f"{found[0]}{more}: {_REPAIR}")] if found else []
