"""What a comparison says, in sentences."""

from churn_compare.display import CompareResult
from churn_compare.gates import margin_text
from churn_compare.noise import TESTED_RUNS, least_p
from churn_compare.number_text import (
    Unit,
    count_text,
    equals_text,
    has_range,
    judgement,
    level_text,
    listed,
    range_text,
    size_text,
    value_text,
    with_range,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Interval, Judged, Measured, Pooled, Waived

_WAIVERS = 10  # that a sentence lists; the record has all
_NAMED = 3  # groups that a sentence names


def sentences(result: CompareResult) -> tuple[str, ...]:
    """The findings in plain words, the most important first."""
    # A change is called one only where its interval leaves out zero.
    found = [_churn(result)]
    if not result.labelled:
        found.append(
            "There are no labels: whether the changes are for better or worse is not "
            "known."
        )
    else:
        found += [_flips(result), _accuracy(result), *_precision(result)]
        found += _probabilities(result)
    if result.clusters is not None:
        found.append(_clusters(result))
    if result.noise is not None:
        found += _noise(result)
        if result.noise.of_runs > 0.5:
            found.append(
                "Runs differ by more than the examples explain: intervals of churn "
                "hold the truth less often than they say (in simulations those of 95 % "
                "about 90 times of 100)."
            )
    if result.pooled is not None:
        found.append(pooled_sentence(result.pooled))
    if result.waived is not None:
        found += waived_sentence(result.waived, result["negative_flip_rate"])
    if result.labelled:
        found += group_sentences(result, result.level, "Accuracy")
    return tuple(found)


def gate_sentence(result: Judged) -> str:
    """How many gates hold; "" without gates."""
    gates = len(result.gates)
    states = [outcome.state for outcome in result.gates]
    failed, unclear = states.count("fail"), states.count("inconclusive")
    if not gates:
        return ""
    if unclear and not failed:
        what = "the gate is" if gates == 1 else f"{unclear} of {gates} gates are"
        what = what.replace("gates are", "gates is") if unclear == 1 else what
        return f"INCONCLUSIVE: {what} neither kept nor broken by the whole interval."
    if gates == 1:
        return f"{'FAILED' if failed else 'PASSED'}: the gate {_holds(failed)}."
    if failed:
        left = f", {unclear} more inconclusive" if unclear else ""
        return f"FAILED: {failed} of {gates} gates {_holds(failed)}{left}."
    return f"PASSED: all {gates} gates hold."


def _holds(failed: int) -> str:
    return ("holds", "does not hold")[failed] if failed < 2 else "do not hold"


def _churn(result: CompareResult) -> str:
    churn = result["churn"]
    runs = result.old.runs, result.new.runs
    over = ""
    if result.paired:
        over = f", on average over {runs[0]} pairs of runs of the same name"
    elif max(runs) > 1:
        over = (
            f", on average over {result.run_pairs} pairs of runs "
            f"({runs[0]} old, {runs[1]} new)"
        )
    what = "no prediction"
    if churn.value != 0:
        what = f"{value_text(churn, 'share')} of predictions"
    ends = range_text(churn, "share")
    within = f" ({level_text(result.level)} interval {ends})" if ends else ""
    return f"The update changes {what}{within}{over}."


def _flips(result: CompareResult) -> str:
    negative, positive = result["negative_flip_rate"], result["positive_flip_rate"]
    if negative.value == 0:
        first = "No example that was right is wrong now"
        if ends := range_text(negative, "share"):
            first += f" (interval {ends})"
    else:
        first = (
            f"{with_range(negative, 'share')} of all examples were right and are "
            "wrong now"
        )
    if positive.value == 0:
        return f"{first}; none was wrong and is right now."
    return f"{first}; {with_range(positive, 'share')} were wrong and are right now."


def _accuracy(result: CompareResult) -> str:
    gain = result["accuracy_gain"]
    verdict = judgement("accuracy_gain", gain)
    old, new = (
        value_text(Interval(result[name].value, gain.low, gain.high), "share")
        for name in ("accuracy_old", "accuracy_new")
    )
    brackets = [range_text(gain, "points")] if has_range(gain) else []
    if result.mcnemar is not None:
        kind = "exact McNemar" if result.clusters is None else "clusters' sign-flip"
        kind = kind if result.mcnemar.pairs == 1 else f"median {kind}"
        brackets.append(f"{kind} {equals_text(result.mcnemar.p)}")
    said = f" ({'; '.join(brackets)})" if brackets else ""
    size = value_text(gain, "points")
    if not has_range(gain):
        return f"Accuracy goes from {old} to {new}, {size}{said}."
    if verdict == "unclear":
        return (
            f"Accuracy does not change detectably, from {old} to {new}: {size}{said}."
        )
    verb = "rises" if verdict == "better" else "falls"
    return f"Accuracy {verb} by {size.lstrip('+-')}, from {old} to {new}{said}."


def _clusters(result: CompareResult) -> str:
    clusters = result.clusters
    assert clusters is not None
    of = f" of {clusters.column}" if clusters.column else ""
    said = f"Intervals and tests are for new clusters{of}"
    if not clusters.wider < float("inf"):  # NaN
        return f"{said}."
    number = "the accuracy gain" if result.labelled else "churn"
    return (
        f"{said}: that of {number} is {clusters.wider:.2f} times as wide as if "
        f"examples were independent (design effect {clusters.design_effect:.2f})."
    )


def _precision(result: CompareResult) -> list[str]:
    """What is shown of the change of accuracy, and what would be seen of one."""
    precision = result.precision
    if precision is None:
        return []
    found = []
    if result.equivalent is not None:
        shown = "is shown" if result.is_equivalent else "is not shown"
        level = level_text(2 * result.level - 1)
        found.append(
            f"The update {shown} to change accuracy by less than "
            f"{margin_text(result.equivalent)} ({level} interval "
            f"{range_text(precision.within, 'points')})."
        )
    units = "examples" if result.clusters is None else "clusters"
    change = "change of accuracy"
    return [*found, *detectable_sentence(precision.detectable, "points", units, change)]


def detectable_sentence(
    size: float, unit: Unit, units: str, change: str = "change"
) -> list[str]:
    """The smallest change that these examples or clusters find."""
    if size != size:  # NaN
        return []
    if unit == "points" and size >= 1:
        few = f"These {units} are too few to detect a {change}"
        return [f"{few}: one of less than 100 points may go unseen."]
    return [
        f"These {units} detect a {change} of {size_text(size, unit)} in 80 % of cases; "
        "a smaller one may go unseen."
    ]


def pooled_sentence(
    pooled: Pooled, what: str = "accuracy", unit: Unit = "points"
) -> str:
    """The mean change over all benchmarks."""
    gain = pooled.gain
    return (
        f"Over {pooled.benchmarks} values of {pooled.column}, each with the same "
        f"weight, {what} changes by {value_text(gain, unit)} "
        f"({range_text(gain, unit)}; {equals_text(pooled.p)})."
    )


def waived_sentence(
    waived: Waived, rate: Interval, what: str = "negative flips"
) -> list[str]:
    """How many negative flips the gates do not count, and each with its reason."""
    if not waived.waivers:
        return []
    rates = (with_range(of, "share") for of in (rate, waived.rate))
    flips = [count_text(count) for count in (waived.flips, waived.all_flips)]
    verb = "is" if waived.flips == 1 else "are"
    one, other = rates
    reasons = [f"{w.id} until {w.until} ({w.reason})" for w in waived.waivers]
    return [
        f"{flips[0]} of {flips[1]} {what} {verb} waived: {one} with and "
        f"{other} without, which limits on their rate judge: "
        f"{listed(reasons, _WAIVERS)}."
    ]


def _probabilities(result: CompareResult) -> list[str]:
    found = []
    for version in ("old", "new"):
        nll = result.quantities.get(f"nll_{version}")
        if nll is not None and nll.value == float("inf"):
            found.append(
                f"The {version} version gives some label a probability of 0, so its "
                "NLL is infinite."
            )
    for name, heading, what in (
        ("nll_change", "NLL", "Probabilities of the labels get"),
        ("ece_change", "ECE", "Calibration gets"),
    ):
        change = result.quantities.get(name)
        if change is None or judgement(name, change) == "unclear":
            continue
        verb, word = ("falls", "better") if change.high < 0 else ("rises", "worse")
        size = value_text(change, "change").lstrip("+-")
        found.append(
            f"{what} {word}: {heading} {verb} by {size} "
            f"({range_text(change, 'change')})."
        )
    return found


def _noise(result: CompareResult) -> list[str]:
    """Compares churn with that of retraining; p decides, not the interval."""
    # A side's only run is given for the interval, but one of many for p.
    noise = result.noise
    assert noise is not None
    runs = {"old": result.old.runs, "new": result.new.runs}
    several = [version for version in runs if runs[version] > 1]
    which = f"the {several[0]} version" if len(several) == 1 else "the same version"
    start = (
        f"Retraining {which} alone changes {with_range(noise.expected, 'share')} of "
        "predictions"
    )
    excess = noise.excess
    if result.paired:
        return [
            f"{start}; the update is compared run by run and is not tested against "
            "that."
        ]
    if noise.p != noise.p:  # NaN
        if sum(runs.values()) < TESTED_RUNS:
            return [f"{start}; there are too few runs to test the update against that."]
        if noise.one_run:
            return [
                f"{start}; one run decides how much more the update changes, so that "
                "it is not tested against that."
            ]
        return [
            f"{start}; runs disagree on too few examples to test the update against "
            "that."
        ]
    only = " for this run" if len(several) == 1 else ""
    ends = f"{range_text(excess, 'points')}{only}; " if has_range(excess) else ""
    brackets = f"{ends}{equals_text(noise.p, least_p(*runs.values()))}"
    size = value_text(excess, "points")
    if noise.p > 1 - result.level:
        other = "different from" if len(several) == 1 else "more than"
        return [
            f"{start}: the update's churn is not detectably {other} that, {size} "
            f"({brackets})."
        ]
    word = "more" if excess.value > 0 else "less"
    size = size.lstrip("+-")
    return [f"{start}: the update's churn is {size} {word} than that ({brackets})."]


def group_sentences(measure: Measured, level: float, what: str) -> list[str]:
    """In which groups of each grouping the mean gets worse; `what` names it."""
    alpha, change = 1 - level, measure.change
    down = QUANTITIES[change].better == "higher" and not measure.lower_is_better
    falls = f"{what} {'falls' if down else 'rises'} detectably in"
    found = []
    for grouping, groups in measure.groupings.items():
        if len(groups) == 1:
            continue  # says nothing that the whole does not
        worse = [
            g
            for g in groups
            if g.adjusted_p < alpha and g[change].value * (-1 if down else 1) > 0
        ]
        worse.sort(key=lambda group: (group.adjusted_p, -abs(group[change].value)))
        groups_of = "classes" if grouping == "class" else f"values of {grouping}"
        total = count_text(len(groups))
        if not worse:
            found.append(f"{falls} none of the {total} {groups_of}.")
            continue
        names = listed([group.name for group in worse], _NAMED)
        found.append(
            f"{falls} {count_text(len(worse))} of {total} {groups_of} (Holm-adjusted p "
            f"below {alpha:.3g}): {names}."
        )
    return found
