"""Two versions compared by the outcomes of their examples."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.display import OutcomesResult
from churn_compare.estimates import all_examples
from churn_compare.example_ids import PredictionsError, rows_of
from churn_compare.example_numbers import Numbers
from churn_compare.gate_outcomes import judge
from churn_compare.gates import (
    ALL_SLICES,
    EQUIVALENT,
    Gate,
    GateError,
    Gating,
    as_gates,
    waivers_of,
)
from churn_compare.groups import coded, parts_of, waived_rows
from churn_compare.labelling import Flips, check_labelled, read_drawn, sampled_flips
from churn_compare.measures import Measure, Normalization
from churn_compare.quantities import in_order
from churn_compare.reading.account import account_lines, settle
from churn_compare.reading.contents import read_contents
from churn_compare.reading.labels import read_ids
from churn_compare.reading.outcome_join import (
    Errors,
    Joined,
    directions,
    join_outcomes,
)
from churn_compare.reading.outcomes import Outcomes, read_outcomes
from churn_compare.reading.sides import same_file, side_names
from churn_compare.result import Change, GateOutcome, MeasureFindings, Waiver

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def compare_outcomes(
    old: Any,
    new: Any,
    *,
    score_columns: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    grades: Mapping[str, float] | None = None,
    normalize: Normalization = "text",
    slices: Any = None,
    by: Sequence[str] = (),
    pool: str | None = None,
    clusters: Any = None,
    tolerance: float = 0.0,
    relative: bool = False,
    equivalent: float | None = None,
    top: int | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    strip: bool = False,
    id_column: str | None = None,
    target_column: str | None = None,
    gates: Gating = (),
    waivers: Sequence[Waiver] = (),
    regressions: int = 20,
    level: float = 0.95,
    labels: Any = None,
    any_time: bool = False,
    errors: Errors | None = None,
) -> OutcomesResult:
    """What changes in the outcomes of examples when `new` replaces `old`.

    Outcomes are right or wrong answers, scores, texts, numbers of regressions, sets of
    labels, rankings; see `read_outcomes` for files and columns.

    Args:
        old: outcomes of the version in use, see `read_outcomes`.
        new: the same of the version that is to replace it.
        score_columns: columns of numbers to compare, in place of the usual names.
        lower_is_better: scores of which less is better, if neither a log nor their
            names (loss, perplexity, wer, latency ...) say so.
        grades: what each grade is worth, where scores are letters or words.
        normalize: which differences of answers do not count: "text": capitals,
            repeated and outer spaces, composed letters; "squad": also punctuation and
            English articles, as in SQuAD; "none": every difference counts.
        slices: a file or a mapping of groupings, as in `compare`.
        by: columns of the outcomes' own files to group the examples by.
        pool: a column of benchmarks, whose changes have the same weight each.
        clusters: examples that belong together, as in `compare`.
        tolerance: numbers this near count as equal.
        relative: whether `tolerance` is a share of the larger of both numbers.
        equivalent: a margin that the change is tested to be smaller than.
        top: also compares the first `top` items of rankings, as sets.
        on_missing: "intersect" compares the examples that both sides have.
        confirm: names of doubts about what was read that are right as they are.
        strip: leaves out space around ids.
        id_column: column of ids, if its name is not a usual one.
        target_column: column of what is right, in the same case.
        gates: conditions, as in `compare`, for every measure that has the number.
        waivers: falls that gates on their share do not count, as in `compare`.
        regressions: how many changed examples to list.
        level: of the confidence intervals.
        labels: a queue of `label_queue` whose column `better` says, for some of the
            answers that change, which of the two is better.
        any_time: whether intervals hold at every number of these, as in `compare`.
        errors: what is done with examples that a tool could not evaluate: "wrong"
            counts them as wrong, "drop" leaves them out of both sides, "refuse" stops;
            None refuses if the sides have unequal numbers of them, else counts them as
            wrong.

    Returns:
        The `OutcomesResult`; `result.passed` says whether all gates hold.

    Raises:
        PredictionsError: outcomes cannot be read or joined. A `ValueError`.
        ValueError: an argument or a gate makes no sense.

    Example:
        >>> import churn_compare
        >>> old, new = {"score": [3, 4, 5, 1]}, {"score": [3, 5, 2, 1]}
        >>> found = churn_compare.compare_outcomes(old, new)["score"]
        >>> found["share_worse"].value, found["score_change"].value
        (0.25, -0.5)
    """
    if not 0.5 < level < 1:
        raise ValueError(f"level must lie between 0.5 and 1; got {level}")
    if not tolerance >= 0 or not (equivalent is None or equivalent > 0):
        raise ValueError("tolerance must be at least 0, the margin above 0")
    wanted = as_gates(gates)
    names, same = side_names(old, new), settle(same_file(old, new), confirm)
    columns: dict[str, Any] = {"score_columns": score_columns, "grades": grades}
    columns |= {"lower_is_better": lower_is_better}
    columns |= {"id_column": id_column, "target_column": target_column}
    sides = [
        given if isinstance(given, Outcomes) else read_outcomes(given, name, **columns)
        for given, name in zip((old, new), names, strict=True)
    ]
    if pool is not None and pool not in by:
        by = (*by, pool)
    joined = join_outcomes(
        *sides,
        slices=slices,
        by=by,
        clusters=clusters,
        tolerance=tolerance,
        relative=relative,
        normalize=normalize,
        top=top,
        on_missing=on_missing,
        confirm=confirm,
        strip=strip,
        id_column=id_column,
        errors=errors,
    )
    used = dict.fromkeys(by, "slices")
    used |= {clusters: "clusters"} if isinstance(clusters, str) else {}
    waivers = (*waivers, *waivers_of(gates))
    numbers = [Numbers(measure) for measure in joined.measures]
    useless = ()
    if waivers:
        flips = [of.worse.mean for of in numbers if of.judged]
        if not flips:
            raise GateError("waivers are about what gets worse; nothing says what does")
        useless = waived_rows(waivers, joined.ids, np.max(flips, axis=0))[2]
    measures = tuple(
        _findings(of, joined, equivalent, regressions, pool, waivers, level)
        for of in numbers
    )
    if labels is not None:
        measures = (
            _preferred(measures[0], numbers[0], joined, labels, any_time),
            *measures[1:],
        )
    return OutcomesResult(
        old=sides[0].name,
        new=sides[1].name,
        examples=len(joined.ids),
        level=level,
        measures=measures,
        gates=judge_measures(wanted, measures),
        notes=(*joined.notes, *same, *useless),
        read=(
            *account_lines(
                [(of.name, of.account and of.account.using(used)) for of in sides]
            ),
            *directions(joined.measures),
        ),
    )


def _findings(
    numbers: Numbers,
    joined: Joined,
    equivalent: float | None,
    listed: int,
    pool: str | None,
    waivers: Sequence[Waiver],
    level: float,
) -> MeasureFindings:
    measure = numbers.of
    every = all_examples(measure.examples, joined.clusters, level)
    found = {name: of.of(0) for name, of in numbers.intervals(every).items()}
    quantiles = {}
    if measure.kind in ("score", "value"):
        change = measure.new.mean(axis=0) - measure.old.mean(axis=0)
        quantiles = {q: float(np.quantile(change, q)) for q in _QUANTILES}
    changes, total = _changes(measure, joined.ids, listed)
    slices = {column: coded(values) for column, values in joined.slices.items()}
    fields, _ = parts_of(
        numbers, every, slices, joined.ids, waivers, pool, joined.cluster_column
    )
    return MeasureFindings(
        name=measure.name,
        kind=measure.kind,
        runs=numbers.runs,
        level=level,
        quantities=in_order(found),
        quantiles=quantiles,
        equivalent=equivalent,
        lower_is_better=measure.lower_is_better,
        changes=changes,
        changes_total=total,
        **fields,
    )


def _preferred(
    found: MeasureFindings,
    numbers: Numbers,
    joined: Joined,
    labels: Any,
    any_time: bool,
) -> MeasureFindings:
    """The measure with flips by which answer is better, of some that change."""
    if found.judged:
        raise PredictionsError(f"{found.name} is judged already; no queue is needed")
    columns = read_contents(labels).columns
    rows = rows_of(joined.ids, read_ids(labels))
    drawn = read_drawn(labels, columns, rows)
    if drawn is None:
        raise PredictionsError("labels of outcomes are a queue with the column better")
    known = drawn.better != ""
    worse, better = ((drawn.better == of).astype(float) for of in ("old", "new"))
    flips = Flips(numbers.changed.mean > 0, known, worse, better, True)
    check_labelled(joined.ids, drawn, flips)
    sampled, more = sampled_flips(drawn, flips, found.level, any_time)
    quantities = in_order({**found.quantities, **more})
    return dataclasses.replace(found, quantities=quantities, sampled=sampled)


def _changes(
    measure: Measure, ids: np.ndarray, listed: int
) -> tuple[tuple[Change, ...], int]:
    """The examples that fall most, or lie farthest apart."""
    if measure.judged:
        before, after = (
            np.mean([measure.worth(run) for run in runs], axis=0)
            for runs in (measure.old, measure.new)
        )
        fall = before - after
    else:
        fall = measure.distance(measure.old[0], measure.new[0])
    beyond = measure.beyond(fall, measure.old[0], measure.new[0])
    found = np.flatnonzero(beyond)
    worst = found[np.argsort(-fall[found], kind="stable")][:listed]
    best = lowest = np.zeros(len(ids), int)  # of several runs, those that fall most
    if measure.judged and measure.things is not None:
        best = np.argmax([measure.worth(run) for run in measure.old], axis=0)
        lowest = np.argmin([measure.worth(run) for run in measure.new], axis=0)
    rows = tuple(
        Change(
            str(ids[i]),
            measure.text("old", i, best[i]),
            measure.text("new", i, lowest[i]),
            "" if measure.target is None else measure.text("target", i),
            float(fall[i]),
        )
        for i in worst
    )
    return rows, len(found)


def judge_measures(
    gates: Sequence[Gate], measures: Sequence[MeasureFindings]
) -> tuple[GateOutcome, ...]:
    """Every gate on every measure that has its number."""
    outcomes = []
    for gate in gates:
        of = "slices" if gate.grouping else "number"
        about = [m for m in measures if _has(m, gate)]
        if not about:
            _check_direction(gate, measures)
            raise GateError(
                f"the gate {gate.text!r} cannot be judged: no such {of} here"
                + "; --by makes slices of columns" * bool(gate.grouping)
            )
        for measure in about:
            (outcome,) = judge([gate], measure)
            if len(measures) > 1:
                text = f"{gate.text} of {measure.name}"
                where = f"{measure.name} {outcome.where}".strip()
                line = outcome.line.replace(gate.text, text, 1)
                outcome = dataclasses.replace(outcome, where=where, line=line)
            outcomes.append(outcome)
    return tuple(outcomes)


_OF_SCORES = ("score_old", "score_new", "score_change")


def _bound(measure: MeasureFindings) -> Literal["max", "min"]:
    """The kind of limit that a worse score violates."""
    return "max" if measure.lower_is_better else "min"


def _check_direction(gate: Gate, measures: Sequence[MeasureFindings]) -> None:
    """Refuses a limit on the good end of a score."""
    if gate.quantity not in _OF_SCORES:
        return
    other = [m for m in measures if _has(m, dataclasses.replace(gate, bound=_bound(m)))]
    if not other:
        return
    less = other[0].lower_is_better
    key = f"{_bound(other[0])}-{gate.quantity}".replace("_", "-")
    raise GateError(
        f"the gate {gate.text!r} does not stop a worse score: "
        f"{'less' if less else 'more'} is better in {other[0].name}; write {key}"
        + ", or --lower-is-better if less is better"
        * (not less)
    )


def _has(measure: MeasureFindings, gate: Gate) -> bool:
    if gate.quantity == EQUIVALENT:
        return measure.decided and measure.within is not None
    if gate.quantity in _OF_SCORES and gate.bound != _bound(measure):
        return False
    if not gate.grouping:
        return gate.quantity in measure.quantities
    return any(
        gate.grouping in (ALL_SLICES, of.grouping) and gate.quantity in of.quantities
        for of in measure.groups
    )
