"""The verdict of a comparison, in sentences."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from churn_compare.display import VersionsResult
from churn_compare.gates import EXCESS, margin_text, past_margin
from churn_compare.noise import TESTED_RUNS, least_p
from churn_compare.number_text import (
    count_text,
    equals_text,
    has_range,
    judgement,
    level_text,
    listed,
    range_text,
    share_text,
    size_text,
    value_text,
    with_range,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.result import (
    Clusters,
    GateOutcome,
    Interval,
    Measured,
    Noise,
    Sampled,
)
from churn_compare.scanning import UNKNOWN

_WAIVERS = 10  # waivers listed in a sentence; the record has all
_NAMED = 3  # groups named in a sentence
_FEW = 0.05  # share of flips that cancel, below which they accumulate
_UNKNOWN_ACCURACY = "Accuracy is not known: only changed examples have labels."
_MEANS = {
    "accuracy_gain": "Accuracy",
    "score_change": "The mean",
    "error_change": "The mean error",
}


def sentences(found: Measured) -> tuple[str, ...]:
    """The findings in plain words, most important first."""
    # A change is reported as one only if its interval leaves out zero.
    return tuple(_floor(found) if "runs_differ" in found.quantities else _said(found))


def _said(found: Measured) -> Iterator[str]:
    yield _changed(found)
    if not found.judged:
        truth = "labels" if found.of_classes else "targets"
        yield f"There are no {truth}: it is not known which changes are for the better."
    else:
        yield from (_flips(found), _average(found))
        if found.sampled is not None:
            yield from _sampled(found, found.sampled)
        elif f"{found.mean}_old" not in found.quantities:
            yield _UNKNOWN_ACCURACY
        yield from (*_precision(found), *_probabilities(found))
    if found.clusters is not None:
        yield _clusters(found, found.clusters)
    if found.noise is not None:
        yield _retraining(found, found.noise)
        if found.noise.of_runs > 0.5:
            yield (
                "Runs differ by more than the examples explain, so intervals of churn "
                "are too narrow: in simulations, 95 % intervals held the true value "
                "about 90 times of 100."
            )
    elif EXCESS in found.quantities:
        within = [
            f"{value_text(found[name], 'share')} ({name.removeprefix('within_')})"
            for name in ("within_old", "within_new")
            if name in found.quantities
        ]
        said = f"Runs of one version differ on {' and '.join(within)} of examples"
        yield f"{said}: the update changes {_beyond(found[EXCESS], ' than that')}."
    if "excess_nfr" in found.quantities:
        expected, beyond = found["expected_nfr"], _beyond(found["excess_nfr"])
        yield (
            f"Negative flips between runs of one version are "
            f"{with_range(expected, 'share')} of all examples; the update has {beyond}."
        )
    if found.groups_judged:
        yield from (*_pooled(found), *_waived(found), *_groups(found))


def gate_sentence(outcomes: Sequence[GateOutcome]) -> str:
    """A sentence on how many gates hold; "" without gates."""
    gates, states = len(outcomes), [outcome.state for outcome in outcomes]
    failed, unclear = states.count("fail"), states.count("inconclusive")
    one = gates == 1
    what = "the gate" if one else f"{failed or unclear} of {gates} gates"
    if failed:
        holds = "does not hold" if failed == 1 else "do not hold"
        left = f", {unclear} more inconclusive" if unclear else ""
        return f"FAILED: {what} {holds}{left}."
    if unclear == 1:
        return f"INCONCLUSIVE: the limit of {what} lies within its interval."
    if unclear:
        return f"INCONCLUSIVE: the limits of {what} lie within their intervals."
    held = "the gate holds" if one else f"all {gates} gates hold"
    return f"PASSED: {held}." if gates else ""


def _floor(found: Any) -> Iterator[str]:
    """Sentences on the changes between runs of one version."""
    differ, agree = found["runs_differ"], found["runs_agree"]
    yield (
        f"Two of {found.runs[0]} runs differ on {with_range(differ, 'share')} of "
        f"examples; all agree on {with_range(agree, 'share')}."
    )
    if runs := found.of_runs:
        share = found.kind in ("correct", "answer", "label")
        scale, unit = (100, " %") if share else (1, "")
        least, most = (f"{scale * end:#.4g}" for end in (min(runs), max(runs)))
        spread = f"{scale * statistics.stdev(runs):.2g}{' points' if share else ''}"
        what = "The mean error" if found.kind == "value" else "The mean"
        yield (
            f"{'Accuracy' if share else what} is "
            f"{scale * statistics.fmean(runs):#.4g}{unit}, from {least} to "
            f"{most}{unit} over runs (standard deviation {spread})."
        )
    yield "An update with no more churn is indistinguishable from another run."


def _changed(found: Measured) -> str:
    changed, (old, new) = found[found.changed], found.runs
    over = f", on average over {found.run_pairs} pairs of runs"
    if found.paired:
        over += " of the same name"
    else:
        over = f"{over} ({old} old, {new} new)" if max(old, new) > 1 else ""
    noun = "prediction" if found.of_classes else "outcome"
    many = f"{value_text(changed, 'share')} of {noun}s"
    what = many if changed.value != 0 else f"no {noun}"
    ends = range_text(changed, "share")
    within = f" ({level_text(found.level)} interval {ends})" if ends else ""
    return f"The update changes {what}{within}{over}."


def _flips(found: Measured) -> str:
    worse, better = found[found.worse], found[found.better]
    none, some = "that was right is wrong now", "were right and are wrong now"
    others = ("was wrong and is right now", "were wrong and are right now")
    preferred = found.sampled is not None and found.sampled.preferred
    if not found.decided or preferred:
        none, some, others = "gets worse", "get worse", ("gets better", "get better")
    first = f"{with_range(worse, 'share')} of all examples {some}"
    if worse.value == 0:
        ends = range_text(worse, "share")
        first = f"No example {none}" + (f" (interval {ends})" if ends else "")
    then = f"{with_range(better, 'share')} {others[1]}"
    return f"{first}; {then if better.value != 0 else f'none {others[0]}'}."


def _average(found: Measured) -> str:
    name = found.change
    change, unit, what = found[name], QUANTITIES[name].unit, _MEANS[name]
    if found.sampled is not None and found.sampled.preferred:
        what = "The balance of better and worse"
    sides = [f"{found.mean}_{side}" for side in ("old", "new")]
    ends = ""
    if {*sides} <= {*found.quantities}:
        old, new = (_with_digits_of(change, found[side], unit) for side in sides)
        ends = f", from {old} to {new}"
    brackets = [range_text(change, unit)] if has_range(change) else []
    if found.p == found.p:  # not NaN
        test = f"{found.test} " if found.decided else ""
        brackets.append(f"{test}{equals_text(found.p)}")
    said = f" ({'; '.join(brackets)})" if brackets else ""
    size = value_text(change, unit)
    if not has_range(change):
        goes = f"goes{ends[1:]}, {size}" if ends else f"changes by {size}"
        return f"{what} {goes}{said}."
    judged = judgement(name, change, found.lower_is_better)
    if judged == "unclear":
        return f"{what} does not change detectably{ends}: {size}{said}."
    verb = "rises" if change.value > 0 else "falls"
    less = f", which is {judged}" if found.lower_is_better else ""
    return f"{what} {verb} by {size.lstrip('+-')}{ends}{said}{less}."


def _with_digits_of(change: Interval, mean: Interval, unit: str) -> str:
    """A version's mean with as many digits as the interval of its change supports."""
    mean = Interval(mean.value, change.low, change.high)
    return value_text(mean, "share" if unit == "points" else "number")


def _sampled(found: Measured, sampled: Sampled) -> list[str]:
    """Sentences on the labels of a part of the changed examples."""
    worse, gain = (sampled.these[name] for name in (found.worse, found.change))
    what = "were right and are wrong now, and accuracy changes by"
    if sampled.preferred:
        what = "get worse, and the balance changes by"
    always = " (valid at every number of labels)" if sampled.any_time else ""
    return [
        "These intervals are for new examples. Of the "
        f"{count_text(sampled.changed)} examples that change, "
        f"{count_text(sampled.labelled)} have labels. Of these "
        f"{count_text(sampled.examples)} examples, {with_range(worse, 'share')} {what} "
        f"{with_range(gain, 'points')}{always}.",
        _UNKNOWN_ACCURACY,
    ]


def _clusters(found: Measured, clusters: Clusters) -> str:
    of = f" of {clusters.column}" if clusters.column else ""
    said = f"Intervals and tests are for new clusters{of}"
    if not clusters.wider < float("inf"):  # NaN
        return f"{said}."
    number = "the change"
    if found.decided or not found.judged:
        number = "the accuracy gain" if found.judged else "churn"
    effect = f" (design effect {clusters.design_effect:.2f})"
    return (
        f"{said}. The interval of {number} is {clusters.wider:.2f} times as wide as "
        f"for independent examples{effect if clusters.design_effect > 0 else ''}."
    )


def _precision(found: Measured) -> Iterator[str]:
    """Sentences on equivalence and on the change that can be detected."""
    unit = QUANTITIES[found.change].unit
    what = _MEANS[found.change].lower()
    if found.equivalent is not None and found.within is not None:
        shown = "is shown" if found.is_equivalent else "is not shown"
        margin = f"{found.equivalent:.10g}"
        margin = margin_text(found.equivalent) if unit == "points" else margin
        yield (
            f"The update {shown} to change {what} by less than {margin} "
            f"({level_text(2 * found.level - 1)} interval "
            f"{range_text(found.within, unit)}"
            f"{past_margin(found.within, found.equivalent, unit)})."
        )
    units = "examples" if found.clusters is None else "clusters"
    if unit == "points" and found.detectable >= 1:
        yield (
            f"These {units} are too few to detect a change of {what} of less than 100 "
            "points."
        )
    elif found.detectable == found.detectable:  # not NaN
        yield (
            f"These {units} detect a change of {what} of "
            f"{size_text(found.detectable, unit)} in 80 % of cases"
            f"{' if no more examples flip' if unit == 'points' else ''}; a smaller one "
            "may go unseen."
        )


def _probabilities(found: Measured) -> Iterator[str]:
    never = f"a probability of 0 or a logit {-UNKNOWN:,.0f} below the highest"
    infinite = {n for n, of in found.quantities.items() if of.value == float("inf")}
    for side in ("old", "new"):
        if f"nll_{side}" in infinite:
            start = f"The {side} version gives some label"
            yield f"{start} {never}, so its NLL is infinite."
    if "kl_divergence" in infinite:
        yield (
            f"The new version gives some class {never} and the old one does not, so "
            "the KL divergence is infinite."
        )
    for name, heading, what in (
        ("nll_change", "NLL", "Probabilities of the labels get"),
        ("ece_change", "ECE", "Calibration gets"),
    ):
        change = found.quantities.get(name)
        if change is None or judgement(name, change) == "unclear":
            continue
        verb, word = ("falls", "better") if change.high < 0 else ("rises", "worse")
        size = value_text(change, "change").lstrip("+-")
        yield (
            f"{what} {word}: {heading} {verb} by {size} "
            f"({range_text(change, 'change')})."
        )


def _retraining(found: Measured, noise: Noise) -> str:
    """A sentence on churn compared with that of retraining."""
    # p decides, not the interval: the interval is for a side's only run, while p treats
    # it as one of many.
    runs, excess = dict(zip(("old", "new"), found.runs, strict=True)), noise.excess
    several = [version for version in runs if runs[version] > 1]
    one = len(several) == 1
    start = (
        f"Retraining {f'the {several[0]}' if one else 'the same'} version alone "
        f"changes {with_range(noise.expected, 'share')} of predictions"
    )
    if found.paired:
        why = "the update is compared run by run and is not tested against that"
        return f"{start}; {why}."
    if noise.p != noise.p:  # NaN
        why = "runs disagree on too few examples to test the update"
        if sum(runs.values()) < TESTED_RUNS:
            why = "there are too few runs to test the update"
        elif noise.one_run:
            why = (
                "one run decides how much more the update changes, so it is not tested"
            )
        return f"{start}; {why} against that."
    ends = range_text(excess, "points")
    ends = f"{ends}{' for this run' * one}; " if ends else ""
    brackets = f"({ends}{equals_text(noise.p, least_p(*runs.values()))})"
    size = value_text(excess, "points")
    if noise.p > 1 - found.level:
        other = "different from" if one else "more than"
        said = f"not detectably {other} that, {size}"
    else:
        said = f"{size.lstrip('+-')} {'more' if excess.value > 0 else 'less'} than that"
    return f"{start}: the update's churn is {said} {brackets}."


def _beyond(excess: Interval, than: str = "") -> str:
    """The change beyond that of another run, in words."""
    size = f"{value_text(excess, 'points')} ({range_text(excess, 'points')})"
    if excess.low <= 0 <= excess.high:
        return f"not detectably more{than}, {size}"
    return f"{size.lstrip('+-')} {'more' if excess.value > 0 else 'less'}{than}"


def _pooled(found: Measured) -> list[str]:
    """A sentence on the mean change over all benchmarks."""
    if found.pooled is None:
        return []
    pooled, unit = found.pooled, QUANTITIES[found.change].unit
    left = f"; {count_text(pooled.left_out)} without a value are left out"
    return [
        f"Over {pooled.benchmarks} values of {pooled.column}, each with the same "
        f"weight, {_MEANS[found.change].lower()} changes by "
        f"{value_text(pooled.gain, unit)} ({range_text(pooled.gain, unit)}; "
        f"{equals_text(pooled.p)}){left if pooled.left_out else ''}."
    ]


def _waived(found: Measured) -> list[str]:
    """A sentence on the flips that gates leave out, with their reasons."""
    waived = found.waived
    if waived is None or not waived.waivers:
        return []
    what = "negative flips" if found.decided else f"{found.turn}s"
    one, other = (with_range(x, "share") for x in (found[found.worse], waived.rate))
    flips = f"{count_text(waived.flips)} of {count_text(waived.all_flips)}"
    verb = "is" if waived.flips == 1 else "are"
    reasons = [f"{w.id} until {w.until} ({w.reason})" for w in waived.waivers]
    return [
        f"{flips} {what} {verb} waived: {listed(reasons, _WAIVERS)}. "
        f"Gates judge the rate without them, {other}, instead of {one}."
    ]


def _groups(found: Measured) -> Iterator[str]:
    """Sentences on the groups whose mean gets worse, one per grouping."""
    alpha, change = 1 - found.level, found.change
    down = found.higher_is_better
    falls = f"{_MEANS[change]} {'falls' if down else 'rises'} detectably in"
    for grouping, groups in found.groupings.items():
        if len(groups) == 1:
            continue  # the same as all examples
        worse = [g for g in groups if found.finding(g) == "worse"]
        worse.sort(key=lambda group: (group.adjusted_p, -abs(group[change].value)))
        groups_of = "classes" if grouping == "class" else f"values of {grouping}"
        total = count_text(len(groups))
        if not worse:
            yield f"{falls} none of the {total} {groups_of}."
            continue
        names = listed([group.name for group in worse], _NAMED)
        yield (
            f"{falls} {count_text(len(worse))} of {total} {groups_of} (Holm-adjusted p "
            f"below {alpha:.3g}): {names}."
        )


def versions_sentences(result: VersionsResult) -> Iterator[str]:
    """The findings in plain words; for two versions, those of `compare`."""
    whole = result.whole
    if len(result.steps) == 1:
        yield from sentences(whole)
        return
    if result.labelled:
        gain = whole["accuracy_gain"]
        sides = whole["accuracy_old"], whole["accuracy_new"]
        old, new = (_with_digits_of(gain, side, "points") for side in sides)
        yield (
            f"Accuracy goes from {old} ({result.names[0]}) to {new} "
            f"({result.names[-1]}), {with_range(gain, 'points', result.level)}."
        )
    ordered = sorted(result.steps, key=lambda step: step["churn"].value)
    least, most = (
        f"{with_range(step['churn'], 'share')} in {step.title}"
        for step in (ordered[0], ordered[-1])
    )
    yield (
        f"Of {count_text(len(ordered))} updates the smallest changes {least}, the "
        f"largest {most}."
    )
    # Sums over some runs and a number over all pairs of runs are not comparable.
    if same := {step.paired for step in result.steps} == {whole.paired}:
        yield _added(result, "churn", "Changes", "change more than once")
    if same and result.labelled:
        flips, back = "Negative flips", "also change for the better on the way"
        yield _added(result, "negative_flip_rate", flips, back)
    some, last = "Some version", result.names[-1]
    if max(version.runs for version in result.versions) > 1:
        some, last = "Some run of a version", f"the first run of {last}"
    yield (
        f"{some} gives {share_text(result.ambiguity)} of the examples another "
        f"class than {last} does (ambiguity), a single one at most "
        f"{share_text(result.discrepancy)} (discrepancy)."
    )
    if again := [churn for churn in np.diag(result.churn) if np.isfinite(churn)]:
        low, high = share_text(min(again)), share_text(max(again))
        size = low if low == high else f"{low} to {high}"
        yield (
            f"Two runs of one version predict differently for {size} of the examples, "
            "which is what retraining alone changes."
        )


def _added(result: VersionsResult, name: str, what: str, back: str) -> str:
    """A sentence on how the changes of the updates add up."""
    added, there = result.step_sum(name), result.whole[name].value
    start = (
        f"{what} of the single updates add up to {share_text(added)} of the examples; "
        f"from the first version to the last they are {share_text(there)}"
    )
    gone = added - there  # never below 0: every path of runs has at least as many flips
    if added <= 0 or gone < _FEW * added:
        return f"{start}: they accumulate."
    return f"{start}. {share_text(gone / added)} cancel out, in examples that {back}."
