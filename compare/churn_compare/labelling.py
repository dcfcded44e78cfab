"""Flip rates and accuracy gain from labels of changed examples only.

`gain = PFR - NFR`, and both count only examples that change, so the others need no
labels. Labels of a random part of the changed ones, the queue, give intervals.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from churn_compare.array_files import ArrayFileError
from churn_compare.estimates import difference_ends, hidden, share_ends
from churn_compare.example_ids import PredictionsError, rows_of, some
from churn_compare.example_numbers import Numbers
from churn_compare.pair import Drawn, Pair
from churn_compare.quantities import in_order
from churn_compare.reading.class_values import NO_LABEL
from churn_compare.reading.contents import read_contents
from churn_compare.reading.labels import DRAWN_FROM, as_text, read_labels
from churn_compare.result import Group, Interval, Sampled, Stratum

STRATUM, BETTER = "stratum", "better"
_ANSWERS = {"old": "old", "new": "new", "neither": "same", "both": "same", "": ""}
_BLOCK, _GRID = 256, 2000
_GOLDEN = 0.6180339887  # its multiples modulo 1 are evenly spread
_BET = 0.5  # largest share of the capital that one label may lose
NAMES = ("negative_flip_rate", "positive_flip_rate", "accuracy_gain")


def key_of(queue: Path) -> Path:
    """The file that says which version is A and which is B."""
    return queue.with_name(f"{queue.stem}.key.csv")


def would_be_lost(path: Path) -> bool:
    """True if a file is something other than a queue without answers."""
    try:
        columns = read_contents(path).columns
        names = {"label", BETTER} & columns.keys()
        texts = [text for n in names for text in as_text(columns[n], n).to_pylist()]
    except (PredictionsError, ArrayFileError):
        return path.exists()
    return DRAWN_FROM not in columns or any(map(str.strip, texts))


def read_drawn(given: Any, columns: Mapping[str, Any], rows: np.ndarray):
    """The queue's entry of each example i, in row `rows[i]`; None for other files."""
    if DRAWN_FROM not in columns:
        return None
    if STRATUM not in columns:
        raise PredictionsError(f"column {STRATUM} of the queue is gone; keep it")
    sides = ("A", "B") if "A" in columns else ("old", "new")
    texts = {
        name: np.array(as_text(columns[name], f"column {name}").to_pylist(), object)
        for name in (DRAWN_FROM, STRATUM, BETTER, "id", *sides)
        if name in columns
    }
    shown = [texts[name] for name in sides if name in texts]
    count = len(texts[DRAWN_FROM])
    better = texts.get(BETTER, np.full(count, "")).astype(str)
    better = np.char.lower(np.char.strip(better))
    if len(shown) < 2 and np.any(better != ""):
        raise PredictionsError(
            f"column {BETTER} needs the answers that were judged: keep the columns "
            f"{' and '.join(sides)} of the queue"
        )
    if "A" in columns:
        if not (path := key_of(Path(given))).is_file():
            raise PredictionsError(
                f"{given} shows the answers as A and B, and its key {path.name} "
                "is not beside it"
            )
        key, names = read_contents(path).columns, texts.get("id", np.array([]))
        written = (key[name].cast("string").to_pylist() for name in ("id", "A"))
        of_id = dict(zip(*written)) if {"id", "A"} <= key.keys() else {}
        first = np.array([of_id.get(name, "") for name in names.tolist()])
        if len(first) < count or not np.isin(first, ("old", "new")).all():
            raise PredictionsError(
                f"{path.name} does not say of each row of {given} which version is A; "
                "use the key that was written with this queue"
            )
        turned = np.where(first == "old", "new", "old")
        better = np.where(better == "a", first, np.where(better == "b", turned, better))
        if len(shown) == 2:
            shown = [np.where(first == "old", *of) for of in (shown, shown[::-1])]
    if odd := sorted({*better.tolist()} - {*_ANSWERS}):
        raise PredictionsError(
            f"column {BETTER} takes old, new, neither or both (A or B if blind); "
            f"got {some(odd)}"
        )
    better = np.array([_ANSWERS[answer] for answer in better.tolist()])
    strata = texts[STRATUM]
    names, codes = np.unique(strata, return_inverse=True)
    try:
        changed = texts[DRAWN_FROM].astype(np.int64)
    except ValueError:
        raise PredictionsError(f"column {DRAWN_FROM} must keep its numbers") from None
    there = rows >= 0
    return Drawn(
        place=rows,
        stratum=np.where(there, codes[rows], -1),
        names=tuple(names.tolist()),
        changed=np.array([changed[codes == k].max() for k in range(len(names))]),
        rows=count,
        better=np.where(there, better[rows], ""),
        shown=tuple(of[rows] for of in shown),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Sampling:
    """The changed examples, and what the labels of some of them say."""

    drawn: Drawn  # the queue
    changed: np.ndarray  # `[N]`, True if it changes in any pair of runs
    known: np.ndarray  # `[N]`, True with a label or a preferred answer
    worse: np.ndarray  # `[N]`, share of the pairs of runs in which it gets worse
    better: np.ndarray  # `[N]`, the same for getting better
    preferred: bool  # True if some have a preferred answer instead of a label
    level: float
    any_time: bool

    def flips(
        self, inside: np.ndarray | None = None
    ) -> tuple[Sampled, dict[str, Interval]]:
        """NFR, PFR and gain, of all examples or of a slice `[N]`."""
        # The labelled examples of a slice in a stratum are a random part of its changed
        # ones there. If none is labelled, each may be a flip.
        drawn, strata = self.drawn, []
        ends: Callable[..., Interval] = ends_of
        at = np.flatnonzero(self.changed if inside is None else self.changed & inside)
        stratum, known = drawn.stratum[at], self.known[at]
        for k, name in enumerate(drawn.names):
            of, changed = stratum == k, int(drawn.changed[k])
            if inside is not None:
                changed = int(np.count_nonzero(of))
            rows = at[of & known]
            rows = rows[np.argsort(drawn.place[rows], kind="stable")]
            if not len(rows) and inside is None:
                of_name = f" of {name!r}" if name else ""
                raise PredictionsError(f"no row of the queue{of_name} has a label yet")
            worse, better = self.worse[rows], self.better[rows]
            if self.any_time:  # then there is only one stratum
                ends = functools.partial(_at_any_time, flips=(worse, better))
            if changed:
                gain = better - worse
                of_rows = worse, better, worse * worse, better * better, gain * gain
                means = [float(np.mean(x)) if len(rows) else np.nan for x in of_rows]
                a, b, *squares = means
                strata.append(Stratum(name, changed, len(rows), a, b, tuple(squares)))
        if self.any_time and len(drawn.names) > 1:
            raise PredictionsError(
                "--any-time takes a queue that was drawn without --by"
            )
        count = len(self.changed) if inside is None else int(inside.sum())
        options = self.level, self.any_time, self.preferred
        sampled = Sampled(count, tuple(strata), *options)
        these = {name: ends(sampled, name) for name in NAMES}
        found = {name: ends(sampled, name, population=True) for name in NAMES}
        return dataclasses.replace(sampled, these=these), found

    def groups(
        self,
        groups: Sequence[Group],
        groupings: Mapping[str, tuple[Sequence[str], np.ndarray]],
    ) -> tuple[Group, ...]:
        """The groups, in the order of `groupings`, with the flips of each."""
        if not groups:
            return ()
        whole, found = self._with_strata(groupings), []
        insides = (
            codes == g for names, codes in groupings.values() for g in range(len(names))
        )
        for group, inside in zip(groups, insides, strict=True):
            sampled, more = whole.flips(inside)
            more = in_order({**group.quantities, **more})
            found.append(dataclasses.replace(group, quantities=more, sampled=sampled))
        return tuple(found)

    def _with_strata(
        self, slices: Mapping[str, tuple[Sequence[str], np.ndarray]]
    ) -> "Sampling":
        """Strata for all changed examples, also for those not in the queue."""
        there, known = self.drawn.place >= 0, np.array(self.drawn.names)
        stratum = self.drawn.stratum
        if len(known) == 1:
            stratum = np.zeros_like(stratum)
        elif np.any(self.changed & ~there):
            number = {name: k for k, name in enumerate(self.drawn.names)}
            of_slices = (np.array(names)[codes] for names, codes in slices.values())
            of_queue = known[stratum[there]]
            same = (of for of in of_slices if np.array_equal(of[there], of_queue))
            if (values := next(same, None)) is None:
                raise PredictionsError(
                    "the queue was drawn by the values of a column, and slices by "
                    "others need that column too: name it in --by (its values are "
                    f"{some(known)})"
                )
            stratum = np.array([number.get(value, -1) for value in values.tolist()])
        drawn = dataclasses.replace(self.drawn, stratum=stratum)
        return dataclasses.replace(self, drawn=drawn)


def by_labels(
    pair: Pair, numbers: Numbers, level: float, any_time: bool
) -> Sampling | None:
    """Sampling by labels or preferences; None if every change is labelled."""
    assert numbers.of.target is not None
    labelled, drawn = numbers.of.target != NO_LABEL, pair.drawn
    answers = np.full(len(labelled), "") if drawn is None else drawn.better
    of_answers = ~labelled & (answers != "")
    known, changed = labelled | of_answers, numbers.changed.mean > 0
    lacking = changed & ~known
    if drawn is None:
        if count := int(lacking.sum()):
            raise PredictionsError(
                f"{count:,} of the {int(changed.sum()):,} examples that change have no "
                f"label, for example {some(pair.ids[lacking])}; label these (those "
                "that do not change need none), or draw some at random by "
                "churn-compare label"
            )
        return None
    _check_queue(drawn, changed, pair, numbers)
    worse, better = numbers.worse.mean, numbers.better.mean
    of_label = np.array(["same", "new", "old"])[np.sign(better - worse).astype(int)]
    odd = pair.ids[labelled & (answers != "") & (answers != of_label)]
    if len(odd):
        raise PredictionsError(f"label and {BETTER} contradict each other: {some(odd)}")
    if not np.any(of_answers | lacking):
        return None
    if preferred := bool(of_answers.any()):
        check_single_runs(numbers)
    worse = np.where(of_answers, answers == "old", worse)
    better = np.where(of_answers, answers == "new", better)
    return Sampling(drawn, changed, known, worse, better, preferred, level, any_time)


def by_preference(
    pair: Pair, numbers: Numbers, labels: Any, level: float, any_time: bool
) -> Sampling:
    """Sampling by preferred answers, for outcomes without a target."""
    check_preferable(numbers)
    separate = read_labels(labels)
    rows = rows_of(pair.ids, np.arange(0) if separate.ids is None else separate.ids)
    drawn = read_drawn(labels, separate.others, rows)
    if drawn is None:
        raise PredictionsError(
            "labels of outcomes must be a queue of churn-compare label"
        )
    worse, better = ((drawn.better == of).astype(float) for of in ("old", "new"))
    known, changed = drawn.better != "", numbers.changed.mean > 0
    _check_queue(drawn, changed, pair, numbers)
    return Sampling(drawn, changed, known, worse, better, True, level, any_time)


def answers_of(pair: Pair, numbers: Numbers, rows: np.ndarray) -> list[list[str]]:
    """Answers of the old and of the new version on some examples, as texts."""
    of = numbers.of
    if pair.measures:
        return [[of.text(side, i) for i in rows] for side in ("old", "new")]
    names = np.array([pair.class_name(c) for c in range(pair.classes)])
    return [
        [", ".join(dict.fromkeys(runs)) for runs in names[side[:, rows]].T]
        for side in (of.old, of.new)
    ]


def _plain(answer: str) -> str:
    """An answer as it is after a spreadsheet has saved it, too: 1 as 1.0 or TRUE."""
    answer = " ".join(answer.split())
    answer = {"false": "0", "true": "1"}.get(answer.lower(), answer)
    try:
        return f"{float(answer):.15g}"
    except ValueError:
        return answer


def check_preferable(numbers: Numbers) -> None:
    """Refuses outcomes of which it is known already which is better."""
    if numbers.judged:
        name = numbers.of.name
        raise PredictionsError(f"{name} is judged already; no queue is needed")
    check_single_runs(numbers)


def check_single_runs(numbers: Numbers) -> None:
    """Refuses several runs: a preference is between two single answers."""
    if max(numbers.runs) > 1:
        raise PredictionsError(
            "a preferred answer needs one run of each version; fill label if there "
            "are right answers, or give single runs"
        )


def _check_queue(
    drawn: Drawn, changed: np.ndarray, pair: Pair, numbers: Numbers
) -> None:
    """Refuses a queue of other files, by its ids and by the answers judged in it."""
    there, here = int(drawn.changed.sum()), int(changed.sum())
    lost = drawn.rows - np.count_nonzero((drawn.place >= 0) & changed)
    if there != here or lost:
        raise PredictionsError(
            f"the queue was drawn from {there:,} examples that change; {here:,} change "
            f"here, and {lost:,} rows of the queue are not among them; compare "
            "the files, with the options, from which the queue was drawn"
        )
    rows, other = np.flatnonzero(drawn.better != ""), set()
    for here, shown in zip(answers_of(pair, numbers, rows), drawn.shown):
        pairs = zip(rows.tolist(), here, shown[rows], strict=True)
        other |= {row for row, a, b in pairs if _plain(a) != _plain(b)}
    if other:
        raise PredictionsError(
            f"the queue shows other answers than these files in {len(other):,} of "
            f"{len(rows):,} rows with a value in {BETTER}, for example "
            f"{some(pair.ids[sorted(other)])}; compare the files from which it was "
            "drawn, in the same order"
        )


def ends_of(
    sampled: Sampled, name: str, more: float = 1.0, *, population: bool = False
) -> Interval:
    """A rate and its interval, as if there were `more` times as many labels."""
    N, which = sampled.examples, NAMES.index(name)
    strata = [stratum for stratum in sampled.strata if stratum.labelled]
    known = [
        (s.changed, s.labelled, s.worse, s.better, s.squares[which]) for s in strata
    ]
    M, n, lost, gained, squares = np.array(known, np.float64).reshape(-1, 5).T
    n, means = np.minimum(M, more * n), (lost, gained, gained - lost)[which]
    value, z = float(np.sum(M * means) / N), _quantile(sampled.level)

    def ends(lost: Any, gained: Any, variance: Any, draws: Any) -> np.ndarray:
        of = np.maximum(variance, 0.0), z, draws
        if which < 2:
            return np.array(share_ends((lost, gained)[which], *of))
        return np.array(difference_ends(gained, lost, *of))

    left = (M - n) / np.maximum(M - 1, 1)
    low = high = value
    if left.any():
        whole, spread = M.sum() / N, squares - np.square(means)
        parts = np.square(M / M.sum()) / n * left
        # Number of draws with replacement that give the same variance.
        of_all = M @ lost / M.sum(), M @ gained / M.sum()
        low, high = whole * ends(*of_all, parts @ spread, 1 / parts.sum())
        draws = n / np.where(left > 0, left, 1e-300)
        variance = np.maximum(spread / draws, 0.0)
        away = ends(lost, gained, variance, draws) - means
        plain = M / N * z * np.sqrt(variance)
        a, b = (hidden(M / N * of, plain, draws, z) for of in away)
        low = value - np.sqrt(np.square(value - low) + a)
        high = min(value + np.sqrt(np.square(value - high) + b), whole)
        low = max(low, -whole if which == 2 else 0.0)
    if population:  # squared distances are added
        of_all = M @ lost / N, M @ gained / N
        outer = ends(*of_all, (M @ squares / N - value**2) / N, N)
        low = value - np.hypot(value - low, value - outer[0])
        high = value + np.hypot(high - value, outer[1] - value)
    if unknown := sampled.changed - M.sum():  # strata without a label
        low, high = low - (which == 2) * unknown / N, high + unknown / N
        value = np.nan
    return Interval(value, float(low), float(high))


def more_labels(sampled: Sampled, name: str, limit: float) -> int:
    """About how many more labels are needed until the interval excludes `limit`."""
    have = max(sampled.labelled, 1)
    most = sampled.changed - have
    steps: Sequence[int] = range(1, most)
    if sampled.any_time:  # each takes longer
        steps = sorted({int(1.2**k) for k in range(200) if 1.2**k < most})

    def decided(more: int) -> bool:
        if sampled.any_time:  # as if flips came evenly
            (of,) = sampled.strata
            even = np.arange(have + more) * _GOLDEN % 1
            worse = even < of.worse
            better = ~worse & (even < of.worse + of.better)
            found = _at_any_time(sampled, name, (worse * 1.0, better * 1.0))
        else:
            found = ends_of(sampled, name, (have + more) / have)
        return not found.low <= limit <= found.high

    at = bisect.bisect_left(steps, True, key=decided)
    return steps[at] if at < len(steps) else most


def _quantile(level: float) -> float:
    return float(special.ndtri((1 + level) / 2))


def _at_any_time(
    sampled: Sampled, name: str, flips: Sequence[np.ndarray], population: bool = False
) -> Interval:
    """`ends_of`, with an interval that is valid at every number of labels."""
    N, changed, gain = sampled.examples, sampled.changed, name == NAMES[2]
    worse, better = flips
    values = (worse, better, better - worse)[NAMES.index(name)]
    # Half of the error probability is for these examples, half for new ones.
    level = (1 + sampled.level) / 2 if population else sampled.level
    z = _quantile(level)
    ends = confidence_sequence((1 + values) / 2 if gain else values, changed, level)
    low, high = ((2 * end - 1 if gain else end) * changed / N for end in ends)
    if population and gain:
        rate = np.mean(worse + better) if len(worse) else 1.0
        spread = z * np.sqrt(rate * changed / N / N)
        spread = max(spread, share_ends(0.0, 0.0, z, N)[1])  # new examples may flip
        low, high = max(low - spread, -1.0), min(high + spread, 1.0)
    elif population:
        (low, _), (_, high) = (
            share_ends(at, at * (1 - at) / N, z, N) for at in (low, high)
        )
    value = float(np.mean(values) * changed / N) if len(values) else np.nan
    return Interval(value if changed else 0.0, float(low), float(high))


def confidence_sequence(
    values: np.ndarray, size: int, level: float
) -> tuple[float, float]:
    """Confidence sequence for the mean of `size` numbers in [0, 1] from `values` `[n]`.

    References:
        [betting] Sections 4.1, 5 -- Waudby-Smith and Ramdas, Estimating means of
        bounded random variables by betting. https://arxiv.org/abs/2010.09686
        [wor] -- Waudby-Smith and Ramdas, Confidence sequences for sampling without
        replacement, NeurIPS 2020. https://arxiv.org/abs/2006.04347
    """
    n, alpha = len(values), 1 - level
    total = values.sum()
    if n == size:
        return (float(total / max(size, 1)),) * 2
    if not n:
        return 0.0, 1.0
    whole = bool(np.all((values == 0) | (values == 1)))
    steps = size if whole and size <= _GRID else _GRID
    means = np.arange(steps + 1) / steps
    t = np.arange(1, n + 1)
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    guess = (0.5 + before + values) / (t + 1)
    squares = np.cumsum(np.square(values - guess))
    variance = (0.25 + np.concatenate([[0.0], squares[:-1]])) / t
    stake = np.sqrt(2 * np.log(2 / alpha) / (variance * t * np.log1p(t)))
    capital = np.zeros((2, len(means)))
    kept = np.ones(len(means), bool)
    for start in range(0, n, _BLOCK):
        part = slice(start, start + _BLOCK)
        left = size - t[part] + 1
        of_rest = (size * means - before[part, None]) / left[:, None]
        kept &= np.all((of_rest >= -1e-12) & (of_rest <= 1 + 1e-12), axis=0)
        of_rest = np.clip(of_rest, 1e-9, 1 - 1e-9)
        gain = values[part, None] - of_rest
        for side, bound in enumerate((of_rest, 1 - of_rest)):
            bet = np.minimum(stake[part, None], _BET / bound)
            grown = np.cumsum(np.log1p((1 - 2 * side) * bet * gain), axis=0)
            reached = capital[side] + grown.max(axis=0)
            kept &= reached < np.log(2 / alpha)
            capital[side] += grown[-1]
    rest = size - n
    kept &= (size * means >= total - 1e-9) & (size * means <= total + rest + 1e-9)
    found, low, high = means[kept], total / size, (total + rest) / size
    if len(found):  # else the possible means lie between two of the grid
        wide = 0.0 if steps == size else 1 / steps
        low, high = max(found[0] - wide, low), min(found[-1] + wide, high)
    return float(low), float(high)
