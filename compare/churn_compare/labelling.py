"""Flips from the labels of changed examples alone, and a queue of those to label.

`gain = PFR - NFR`, and both live on the examples that change: labels of the others are
not needed. Labels of a random part of them are enough for an interval.
"""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from churn_compare.example_ids import PredictionsError, some
from churn_compare.example_numbers import Numbers
from churn_compare.pair import Drawn
from churn_compare.quantities import in_order
from churn_compare.reading.class_values import NO_LABEL
from churn_compare.reading.contents import read_contents
from churn_compare.reading.labels import DRAWN_FROM, as_text
from churn_compare.result import Group, Interval, Sampled
from churn_compare.uncertainty import difference_ends, share_ends

BETTER = "better"
_KEY = ".key.csv"
_ANSWERS = {"old": "old", "new": "new", "neither": "same", "both": "same", "": ""}
NAMES = ("negative_flip_rate", "positive_flip_rate", "accuracy_gain")


def key_of(queue: Path) -> Path:
    """The file that says which version is A and which is B."""
    return queue.with_name(queue.stem + _KEY)


def read_drawn(given: Any, columns: Mapping[str, Any], rows: np.ndarray):
    """A queue's columns for the examples, `rows` of it; None of other files."""
    if DRAWN_FROM not in columns:
        return None
    texts = {
        name: np.array(as_text(columns[name], f"column {name}").to_pylist())
        for name in (DRAWN_FROM, BETTER, "id")
        if name in columns
    }
    count = len(texts[DRAWN_FROM])
    better = np.char.lower(np.char.strip(texts.get(BETTER, np.full(count, ""))))
    answers = dict(_ANSWERS)
    first = np.full(count, "")
    if "A" in columns:
        if not key_of(Path(given)).is_file():
            raise PredictionsError(
                f"{given} shows the answers as A and B, and {key_of(Path(given)).name},"
                " which says whose they are, is not beside it"
            )
        key = read_contents(key_of(Path(given))).columns
        of_id = dict(zip(key["id"].cast("string").to_pylist(), key["A"].to_pylist()))
        first = np.array([of_id.get(name, "") for name in texts["id"].tolist()])
        turned = np.where(first == "old", "new", "old")
        better = np.where(better == "a", first, np.where(better == "b", turned, better))
    if odd := sorted({*better.tolist()} - {*answers}):
        raise PredictionsError(
            f"column {BETTER} takes A, B, neither or both (old or new where they are "
            f"shown so); got {some(odd)}"
        )
    better = np.array([answers[answer] for answer in better.tolist()])
    try:
        changed = int(texts[DRAWN_FROM].astype(np.int64).max())
    except ValueError:
        raise PredictionsError(f"column {DRAWN_FROM} must be as it was drawn") from None
    there = rows >= 0
    return Drawn(changed, there, np.where(there, better[rows], ""))


@dataclasses.dataclass(frozen=True, eq=False)
class Flips:
    """Which examples change, and what is known of those that do."""

    changed: np.ndarray  # `[N]`, in any pair of runs
    known: np.ndarray  # `[N]`, by a label or by which answer is better
    worse: np.ndarray  # `[N]`, in how many pairs of runs
    better: np.ndarray  # `[N]`
    judged: bool  # whether some are known by which answer is better


def known_flips(drawn: Drawn | None, numbers: Numbers) -> Flips:
    """The changed examples where some have labels."""
    assert numbers.of.target is not None
    known = numbers.of.target != NO_LABEL
    answers = np.full(len(known), "") if drawn is None else drawn.better
    of_answers = ~known & (answers != "")
    worse = np.where(of_answers, answers == "old", numbers.worse.mean)
    better = np.where(of_answers, answers == "new", numbers.better.mean)
    changed, judged = numbers.changed.mean > 0, bool(of_answers.any())
    return Flips(changed, known | of_answers, worse, better, judged)


def check_labelled(ids: np.ndarray, drawn: Drawn | None, flips: Flips) -> None:
    """Refuses labels of a part of the changed examples that nobody drew at random."""
    lacking = flips.changed & ~flips.known
    if drawn is None:
        if count := int(lacking.sum()):
            raise PredictionsError(
                f"{count:,} of the {int(flips.changed.sum()):,} examples that change "
                f"have no label, for example {some(ids[lacking])}; label these "
                "(those that do not change need none), or draw some at random by "
                "churn-compare label"
            )
        return
    there, here = drawn.changed, int(flips.changed.sum())
    if there != here:
        raise PredictionsError(
            f"the queue was drawn from {there:,} examples that change, and {here:,} "
            "change here; label a queue of the same files and options"
        )


def sampled_flips(
    drawn: Drawn | None,
    flips: Flips,
    level: float,
    inside: np.ndarray | None = None,
) -> tuple[Sampled, dict[str, Interval]]:
    """NFR, PFR and gain of a random part of the changed examples.

    Of `M` changed examples `n` are labelled: `T = M / N m` of their mean `m`. For these
    N examples its variance is that of sampling without replacement,

        V = (M / N)^2 s^2 / n (M - n) / (M - 1)

    and 0 where all are labelled; ends are Wilson's and Tango's. For the population they
    come from, the squares of their distances from T are added to those of N labelled
    examples. The labelled examples of a slice, those `inside` `[N]`, are a random
    sample of it; without labels it may have any number of flips.
    """
    if drawn is None:
        raise PredictionsError("labels of a part are those of a queue")
    changed = flips.changed if inside is None else flips.changed & inside
    rows = np.flatnonzero(changed & flips.known & drawn.there)
    if not len(rows) and inside is None:
        raise PredictionsError("no row of the queue has a label yet")
    worse, better = flips.worse[rows], flips.better[rows]
    parts = worse, better, better - worse
    known = len(rows) > 0
    sampled = Sampled(
        examples=len(changed) if inside is None else int(inside.sum()),
        changed=int(np.count_nonzero(changed)),
        labelled=len(rows),
        worse=float(worse.mean()) if known else np.nan,
        better=float(better.mean()) if known else np.nan,
        squares=tuple(float(np.mean(of * of)) if known else np.nan for of in parts),
        level=level,
        preferred=flips.judged,
    )
    these = {name: ends_of(sampled, name) for name in NAMES}
    found = {name: ends_of(sampled, name, population=True) for name in NAMES}
    return dataclasses.replace(sampled, these=these), found


def sampled_groups(
    groups: Sequence[Group],
    groupings: Mapping[str, tuple[Sequence[str], np.ndarray]],
    drawn: Drawn | None,
    flips: Flips,
    level: float,
) -> tuple[Group, ...]:
    """The groups, in the order of `groupings`, with `sampled_flips` of each."""
    found = []
    insides = (
        codes == g for names, codes in groupings.values() for g in range(len(names))
    )
    for group, inside in zip(groups, insides, strict=True):
        sampled, more = sampled_flips(drawn, flips, level, inside)
        quantities = in_order({**group.quantities, **more})
        found.append(dataclasses.replace(group, quantities=quantities, sampled=sampled))
    return tuple(found)


def ends_of(
    sampled: Sampled, name: str, more: float = 1.0, *, population: bool = False
) -> Interval:
    """A number and its interval, had `more` times as many changed examples labels."""
    N, which, lost, gained, square = sampled.examples, NAMES.index(name), 0.0, 0.0, 0.0
    M = sampled.changed if sampled.labelled else 0  # those that are known of
    if M:
        lost, gained, square = sampled.worse, sampled.better, sampled.squares[which]
    mean, n = (lost, gained, gained - lost)[which], min(M, more * sampled.labelled)
    value, quantile = M * mean / N, special.ndtri((1 + sampled.level) / 2)

    def ends(scale: float, variance: float, draws: float) -> np.ndarray:
        up, down = (M * of / N / scale for of in (gained, lost))
        of = max(variance, 0.0), quantile, draws
        if which < 2:
            return np.array(share_ends(value / scale, *of)) * scale
        return np.array(difference_ends(up, down, *of)) * scale

    low = high = value
    if left := (M - n) / max(M - 1, 1):
        # As many draws with replacement as n / left would tell as much.
        low, high = ends(M / N, left / n * (square - mean**2), n / left)
    if population:  # the squares of both distances are added, above and below
        outer = ends(1.0, (M * square / N - value**2) / N, N)
        low = value - np.hypot(value - low, value - outer[0])
        high = value + np.hypot(high - value, outer[1] - value)
    if unknown := sampled.changed - M:
        low, high = low - (which == 2) * unknown / N, high + unknown / N
        value = np.nan
    return Interval(float(value), float(low), float(high))


def more_labels(sampled: Sampled, name: str, limit: float) -> int:
    """About how many more labels put a limit outside of the interval."""
    have = max(sampled.labelled, 1)

    def decided(more: int) -> bool:
        found = ends_of(sampled, name, (have + more) / have)
        return not found.low <= limit <= found.high

    most = sampled.changed - have
    return min(1 + bisect.bisect_left(range(1, most), True, key=decided), most)
