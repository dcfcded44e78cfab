"""Numbers of classes and slices, means over benchmarks, clusters and waivers."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from churn_compare.estimates import Groups, PerExample, all_examples, hidden
from churn_compare.example_ids import PredictionsError, canonical, rows_of
from churn_compare.example_numbers import Numbers
from churn_compare.labelling import Sampling
from churn_compare.number_text import listed
from churn_compare.pair import Pair
from churn_compare.quantities import in_order
from churn_compare.result import Clusters, Group, Interval, Pooled, Waived, Waiver
from churn_compare.significance import holm

_NAMED = 5  # ids named in a note
NEEDLESS = "about examples that are not negative flips"
NO_VALUE = "(none)"  # the slice of examples that have no value


def coded(values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The distinct values, and the index of each example's value."""
    texts = values.tolist()  # a dict finds equal strings faster than sorting does
    names = [str(name) for name in dict.fromkeys(texts)]
    names = sorted(set(names) - {"", NO_VALUE})
    if len(names) < len(set(texts)):
        names.append(NO_VALUE)
    number = {name: i for i, name in enumerate(names)}
    number[""] = number.get(NO_VALUE, -1)
    return names, np.fromiter(map(number.__getitem__, texts), np.int64, len(texts))


def grouped(
    numbers: Numbers,
    every: Groups,
    groupings: Mapping[str, tuple[Sequence[str], np.ndarray]],
    without: PerExample | None = None,
) -> tuple[Group, ...]:
    """A group for each name of each grouping, whose codes `[N]` number the names."""
    found: list[Group] = []
    for column, (names, group) in groupings.items():
        groups = Groups(group, len(names), every.clusters, every.level)
        quantities, p = numbers.intervals(groups), numbers.p(groups)
        waived = None if without is None else groups.share(without)
        adjusted = holm(p)
        found += [
            Group(
                grouping=column,
                name=name,
                examples=int(groups.size[g]),
                quantities={key: of.of(g) for key, of in quantities.items()},
                p=float(p[g]),
                adjusted_p=float(adjusted[g]),
                waived_rate=None if waived is None else waived.of(g),
            )
            for g, name in enumerate(names)
        ]
    return tuple(found)


def cluster_effect(
    of: PerExample, every: Groups, column: str, judged: Numbers | None = None
) -> Clusters | None:
    """Clusters and their effect on the interval of a share, or else of the change."""
    if every.clusters is None:
        return None
    both = every, all_examples(len(of.mean), None, every.level)
    mean = judged is not None and not judged.decided
    clustered, alone = (groups.known(of, mean=mean) for groups in both)
    found = [judged.change(groups) if judged else groups.share(of) for groups in both]
    wide, narrow = ((ends.high - ends.low)[0] for ends in found)
    effect, wider = np.nan, wide / narrow if narrow > 0 else np.nan
    if clustered.total[0] > 0 and alone.examples[0] > 0:
        effect = (clustered.examples / alone.examples)[0]
    sizes = np.bincount(every.clusters)
    return Clusters(len(sizes), int(sizes.max()), float(effect), float(wider), column)


def measured(
    numbers: Numbers,
    every: Groups,
    pair: Pair,
    found: Mapping[str, Interval] | None = None,
    waivers: Sequence[Waiver] = (),
    pooled: str | None = None,
    sampling: Sampling | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of `Measured`, and notes on waivers."""
    groupings = {column: coded(values) for column, values in pair.slices.items()}
    if pair.labels is not None:
        classes, group = np.unique(pair.labels, return_inverse=True)
        of_class = [pair.class_name(number) for number in classes.tolist()], group
        groupings = {"class": of_class, **groupings}
    judged = numbers if numbers.judged else None
    of = numbers.gain if judged else numbers.changed
    waivers = waivers if judged else ()
    waived, without, notes = waive(numbers, waivers, pair.ids, every)
    fields: dict[str, Any] = {
        "level": every.level,
        "groups": grouped(numbers, every, groupings, without),
        "runs": numbers.runs,
        "paired": numbers.paired,
        "clusters": cluster_effect(of, every, pair.cluster_column, judged),
    }
    if judged:
        fields |= {
            "p": float(numbers.p(every)[0]),
            "within": numbers.equivalence(every),
            "detectable": numbers.detectable(every),
            "waived": waived,
        }
        if pooled is not None:
            fields["pooled"] = pool(numbers, every, pooled, *groupings[pooled])
    found = numbers.of_all(every) if found is None else found
    if sampling is not None:  # flips by the labels of some of the changed examples
        fields["sampled"], flips = sampling.flips()
        fields["groups"] = sampling.groups(fields["groups"], groupings)
        found = {**found, **flips}
    return fields | {"quantities": in_order(found)}, notes


def pool(
    numbers: Numbers, every: Groups, column: str, names: Sequence[str], of: np.ndarray
) -> Pooled:
    """Mean change over benchmarks, each with the same weight."""
    if names[-1] == NO_VALUE:
        of, names = np.where(of == len(names) - 1, -1, of), names[:-1]
    if len(names) < 2:
        raise PredictionsError(
            f"{column} names {len(names)} benchmark; pooling needs several"
        )
    K, one = len(names), np.where(of < 0, -1, 0)
    whole = Groups(one, 1, every.clusters, every.level, strata=of)
    each = Groups(of, K, every.clusters, every.level)
    mean, span = not numbers.decided, numbers.span(whole)
    gain, own = numbers.change(whole).of(0), numbers.change(each, span=span)
    known, alone = (groups.known(numbers.gain, mean=mean) for groups in (whole, each))
    quantile = known.quantile(every.level).item()
    # A small benchmark without a change has no variance, but as much weight as others.
    plain, most = quantile * np.sqrt(alone.total), known.example_quantile(every.level)
    more = [
        hidden((end - own.value) / K, plain / K, each.units, most)
        for end in (own.low, own.high)
    ]
    low = gain.value - float(np.sqrt(np.square(gain.value - gain.low) + more[0]))
    high = gain.value + float(np.sqrt(np.square(gain.high - gain.value) + more[1]))
    added = more[int(gain.value < 0)] / np.square(quantile)  # to the variance
    p = whole.t_test(numbers.gain, span, share=not mean, added=added)
    ends = max(low, -numbers.most), min(high, numbers.most)
    found = Interval(gain.value, *ends)
    return Pooled(column, K, found, float(p[0]), int(np.sum(of < 0)))


def waive(
    numbers: Numbers, waivers: Sequence[Waiver], ids: np.ndarray, every: Groups
) -> tuple[Waived | None, PerExample | None, tuple[str, ...]]:
    """Waived flips, the examples that get worse without them, and notes."""
    if not waivers:
        return None, None, ()
    flips = numbers.worse.mean
    rows, used, notes = waived_rows(waivers, ids, flips)
    without = numbers.worse.without(rows)
    counts = float(flips[rows].sum()), float(flips.sum())
    return Waived(used, *counts, every.share(without).of(0)), without, notes


def waived_rows(
    waivers: Sequence[Waiver], ids: np.ndarray, flips: np.ndarray
) -> tuple[np.ndarray, tuple[Waiver, ...], tuple[str, ...]]:
    """Rows of waived flips, their waivers, and notes about the other waivers."""
    today = datetime.date.today().isoformat()
    expired = [w.id for w in waivers if w.until < today]
    valid = {canonical(w.id): w for w in waivers if w.until >= today}
    ids = ids.astype(str)
    rows = rows_of(np.array(list(valid), ids.dtype.type), ids)
    found = dict(zip(valid, rows.tolist(), strict=True))
    unknown = [w for w, row in found.items() if row < 0]
    used = {w: row for w, row in found.items() if row >= 0 and flips[row]}
    needless = [w for w in found if w not in used and w not in unknown]
    notes = []
    for which, what in (
        (expired, "past their dates and without effect"),
        (unknown, "about ids that are not compared"),
        (needless, NEEDLESS),
    ):
        if which:
            notes.append(f"Waivers {what}: {listed(which, _NAMED)}.")
    rows = np.array([*used.values()], np.int64)
    return rows, tuple(valid[w] for w in used), tuple(notes)
