"""Two versions of a model, compared by their predictions alone."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.class_doubts import class_doubts
from churn_compare.display import CompareResult, OutcomesResult
from churn_compare.estimates import all_examples
from churn_compare.example_ids import PredictionsError, rows_of
from churn_compare.example_numbers import Numbers, class_estimates, class_numbers
from churn_compare.findings import (
    class_flow,
    largest_regressions,
    reliability_curve,
)
from churn_compare.gate_outcomes import judge
from churn_compare.gates import (
    ALL_SLICES,
    EQUIVALENT,
    EXCESS,
    Gate,
    GateError,
    Gating,
    as_gates,
    check_gates,
    closest,
    margin_of,
    waivers_of,
)
from churn_compare.groups import coded, parts_of, waived_rows
from churn_compare.labelling import (
    Flips,
    check_labelled,
    known_flips,
    read_drawn,
    sampled_flips,
    sampled_groups,
)
from churn_compare.measures import Measure, Normalization
from churn_compare.noise import noise_of
from churn_compare.pair import Kind, Pair, Scanned, Table, run_by_run
from churn_compare.quantities import in_order
from churn_compare.reading.account import account_lines, settle
from churn_compare.reading.join import Errors, join
from churn_compare.reading.labels import (
    read_clusters,
    read_labels,
    read_slices,
    without_clusters,
)
from churn_compare.reading.outcome_measures import directions
from churn_compare.reading.outcomes import read_outcomes
from churn_compare.reading.sides import read_side, same_file, side_names
from churn_compare.result import Change, GateOutcome, MeasureFindings, Version, Waiver
from churn_compare.scanning.scan import scan


def compare(
    old: Any,
    new: Any,
    *,
    labels: Any = None,
    slices: Any = None,
    by: Sequence[str] = (),
    clusters: Any = None,
    ids: Any = None,
    kind: Kind | None = None,
    old_kind: Kind | None = None,
    new_kind: Kind | None = None,
    class_map: Mapping[Any, Any] | str | os.PathLike | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    strip: bool = False,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
    gates: Gating = (),
    equivalent: float | str | None = None,
    waivers: Sequence[Waiver] = (),
    pool: str | None = None,
    regressions: int = 20,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    any_time: bool = False,
) -> CompareResult:
    """Compares the predictions of the versions `old` and `new` of a classifier.

    Outcomes other than predicted classes (right or wrong, scores, answers, numbers) are
    compared by `compare_outcomes`.

    Args:
        old: predictions of the version in use: a file, an array `[N, C]` or
            `[R, N, C]` of scores or `[N]` or `[R, N]` of classes, a mapping of arrays,
            a data frame, or `Predictions`; see `read_side`.
        new: the same for the version that is to replace it.
        labels: a file, `[N]` classes, or a mapping of ids to classes, if the
            predictions hold none. Examples that do not change need none, and of those
            that do a part is enough which `label_queue` has drawn.
        slices: a file or a mapping of groupings, name to `[N]` values.
        by: columns of the predictions themselves to take as slices.
        clusters: examples that belong together (one document's or user's) in every
            interval and test: a column, a mapping of ids to values, or `[N]` values.
        ids: `[N]` example ids, or a file of them, for sides that hold none.
        kind: "logits", "probabilities" or "classes" if the values do not show it.
        old_kind: `kind` of the old side alone.
        new_kind: `kind` of the new side alone.
        class_map: class of the old side to class of the new one, or a file with it, or
            "identity" where equal numbers are equal classes though their counts differ.
        on_missing: "intersect" compares the examples that both sides have.
        confirm: names of doubts about what was read that are right as they are.
        strip: leaves out space around ids and names of classes.
        id_column: column or array of ids, if its name is not a usual one.
        label_column: the same for labels.
        prediction_column: the same for predicted classes; next to scores they are the
            decisions.
        gates: conditions, the path of a TOML file with them, or limits by name, as in
            `{"max_nfr": 0.01}`.
        equivalent: a margin such as `0.01` or `"1%"`: the report states whether
            accuracy is shown to change by less. The gate of that name requires it.
        waivers: negative flips that gates on their rate do not count.
        pool: column of the slices with the names of benchmarks, whose accuracy gains
            are averaged, each with the same weight.
        regressions: number of negative flips to list.
        level: confidence level of the intervals.
        resamples: number of bootstrap samples.
        seed: seed of the bootstrap.
        any_time: whether intervals hold at every number of labels, for those who look
            after each; where a part of the changed examples has labels.

    Returns:
        The `CompareResult`; `result.passed` says whether all gates hold.

    Raises:
        PredictionsError: predictions cannot be read, used or joined. A `ValueError`.
        ValueError: an argument or a gate makes no sense.

    Example:
        >>> from churn_compare import compare
        >>> result = compare([0, 1, 1, 0], [0, 1, 0, 0], labels=[0, 1, 1, 1])
        >>> result["churn"].value, result["negative_flip_rate"].value
        (0.25, 0.25)
    """
    wanted = as_gates(gates)
    columns = {"id_column": id_column, "label_column": label_column}
    used = dict.fromkeys(by, "slices")
    # With two kinds, two columns of one file are compared.
    same = settle(same_file(old, new) if old_kind == new_kind else (), confirm)
    if clusters is not None:
        clusters = read_clusters(clusters, (slices, old, new), id_column)
        slices = without_clusters(slices, clusters, id_column)
        used[clusters.column] = "clusters"
    if by:
        if slices is not None:
            raise ValueError("slices are given, so `by` has nothing to choose from")
        slices = read_slices(old, id_column, only=by)
    read = functools.partial(
        _side, used, ids=ids, prediction_column=prediction_column, **columns
    )
    if labels is not None:  # whose column may be called otherwise
        read = functools.partial(read, label_column=None)
    names = side_names(old, new)
    pair = join(
        read(old, names[0], kind=old_kind or kind),
        read(new, names[1], kind=new_kind or kind),
        labels=labels,
        slices=slices,
        clusters=clusters,
        class_map=class_map,
        on_missing=on_missing,
        confirm=confirm,
        strip=strip,
        **columns,
    )
    pair = dataclasses.replace(pair, notes=(*pair.notes, *same))
    return compare_pair(
        pair,
        gates=wanted,
        equivalent=equivalent,
        waivers=(*waivers, *waivers_of(gates)),
        pool=pool,
        regressions=regressions,
        level=level,
        resamples=resamples,
        seed=seed,
        confirm=confirm,
        any_time=any_time,
    )


def compare_pair(
    pair: Pair,
    *,
    gates: Sequence[Gate] = (),
    equivalent: float | str | None = None,
    waivers: Sequence[Waiver] = (),
    pool: str | None = None,
    regressions: int = 20,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    scanned: Scanned | None = None,
    confirm: Sequence[str] = (),
    any_time: bool = False,
) -> CompareResult:
    """Compares two sides that are already joined.

    Args:
        pair: from `join`.
        gates: conditions; all other arguments are as in `compare`.
        scanned: what `scan` found of this pair; None to scan it.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1; got {level}")
    if resamples < 100:
        raise ValueError(f"resamples must be at least 100; got {resamples}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0; got {seed}")
    check_gates(gates, pair)  # before the long pass
    margin = margin_of(equivalent, gates, pair)
    if pool is not None and pool not in pair.slices:
        hint = closest(pool, pair.slices) or "it must be a column of the slices"
        raise PredictionsError(f"there is no column {pool!r} to pool; {hint}")
    unlabelled = pair.labels is None and not pair.partial
    if pool is not None and unlabelled:
        raise PredictionsError("benchmarks are pooled by accuracy; there are no labels")
    if waivers and unlabelled:
        raise GateError("waivers are about negative flips, and there are no labels")
    if scanned is None:
        scanned = scan(pair)
    confirmed = settle(class_doubts(pair, scanned), confirm)
    if pair.old.runs == pair.new.runs:
        scanned = run_by_run(scanned)
    every = all_examples(pair.examples, pair.clusters, level)
    sampled, flips, sampling = None, {}, None
    labels = pair.some_labels if pair.partial else pair.labels
    numbers = class_numbers(scanned, labels)
    worse = None if labels is None else numbers.worse.mean
    if pair.partial:
        known = known_flips(pair.drawn, numbers)
        check_labelled(pair.ids, pair.drawn, known)
        if known.judged or np.any(known.changed & ~known.known):
            if waivers or pool or equivalent is not None or pair.clusters is not None:
                raise PredictionsError(
                    "waivers, pool, equivalent and clusters need a label for every "
                    "example that changes"
                )
            sampling = pair.drawn, known, level, any_time
            sampled, flips = sampled_flips(*sampling)
            numbers = class_numbers(scanned, None)
    numbers.all_labelled = not pair.partial
    found = class_estimates(scanned, numbers, every, resamples=resamples, seed=seed)
    found = in_order(found | flips)
    noise = noise_of(numbers, every)
    if noise is not None:
        found[EXCESS] = noise.excess
    groupings = {}
    if pair.labels is not None:
        classes, group = np.unique(pair.labels, return_inverse=True)
        groupings["class"] = [pair.class_name(of) for of in classes.tolist()], group
    groupings |= {column: coded(values) for column, values in pair.slices.items()}
    fields, said = parts_of(
        numbers, every, groupings, pair.ids, waivers, pool, pair.cluster_column
    )
    if sampling is not None:
        fields["groups"] = sampled_groups(fields["groups"], groupings, *sampling)
    some = dataclasses.replace(pair, labels=labels)
    listed, total = largest_regressions(some, scanned, worse, regressions)
    result = CompareResult(
        old=_version(pair.old),
        new=_version(pair.new),
        examples=pair.examples,
        level=level,
        quantities=found,
        **fields,
        sampled=sampled,
        flow=class_flow(pair if sampled else some, scanned),
        noise=noise,
        regressions=listed,
        regressions_total=total,
        curves={
            "old": reliability_curve(scanned.old, pair.labels),
            "new": reliability_curve(scanned.new, pair.labels),
        }
        if pair.labels is not None and pair.scored
        else None,
        notes=(
            *pair.old.notes,
            *pair.new.notes,
            *pair.notes,
            *confirmed,
            *_ties(pair, scanned),
            *_pairing(pair, scanned),
            *said,
        ),
        runs=(len(scanned.old.predicted), len(scanned.new.predicted)),
        paired=scanned.paired,
        equivalent=margin,
        read=(
            *account_lines([(s.name, s.account) for s in (pair.old, pair.new)]),
            *_decided(pair, scanned),
        ),
    )
    return dataclasses.replace(result, gates=judge(gates, result))


def _decided(pair: Pair, scanned: Scanned) -> list[str]:
    """How many decisions of each side are not the most probable class."""
    said = []
    for side, of in ((pair.old, scanned.old), (pair.new, scanned.new)):
        differ = of.predicted != of.of_scores
        if differ.any():
            where = f"{int(differ.sum()):,} of {differ.shape[1]:,} examples"
            if len(differ) > 1:
                where = f"{int(differ.sum()):,} of {differ.size:,} examples of all runs"
            said.append(
                f"{side.name}: the decision of {where} is not the most probable class."
            )
    if said:
        said.append(
            "Churn, accuracy and flips are of the decisions; NLL, Brier score, "
            "calibration and divergences of the scores."
        )
    return said


def _ties(pair: Pair, scanned: Scanned) -> list[str]:
    by = "number" if pair.class_names is None else "name"
    return [
        f"{side.name}: several classes have the highest score in {found.ties:,} of "
        f"{found.predicted.size:,} rows; the first by {by} is the prediction."
        for side, found in ((pair.old, scanned.old), (pair.new, scanned.new))
        if found.ties
    ]


def _pairing(pair: Pair, scanned: Scanned) -> list[str]:
    if not scanned.paired:
        return []
    names = [str(run) for run in pair.old.runs]
    some = ", ".join(names if len(names) < 7 else [*names[:3], "...", names[-1]])
    return [
        f"Runs {some} are each compared only with the run of the same name: the two "
        "differ less than half as much as either does from any other run."
    ]


def _side(used: Mapping[str, str], given: Any, name: str, **reading: Any) -> Table:
    side = given if isinstance(given, Table) else read_side(given, name, **reading)
    if side.account is None or not used:
        return side
    return dataclasses.replace(side, account=side.account.using(used))


def _version(side: Table) -> Version:
    return Version(side.name, side.kind, len(side.runs), side.classes, side.examples)


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
    """Compares the outcomes of examples of the versions `old` and `new`.

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
        by: columns of the outcomes' own files to group the examples by.
        tolerance: numbers this near count as equal.
        relative: whether `tolerance` is a share of the larger of both numbers.
        equivalent: a margin that the change is tested to be smaller than.
        top: also compares the first `top` items of rankings, as sets.
        target_column: column of what is right, if its name is not a usual one.
        gates: conditions, as in `compare`, for every measure that has the number.
        labels: a queue of `label_queue` whose column `better` says, for some of the
            answers that change, which of the two is better.
        errors: what is done with examples that a tool could not evaluate: "wrong"
            counts them as wrong, "drop" leaves them out of both sides, "refuse" stops;
            None refuses if the sides have unequal numbers of them, else counts them as
            wrong.

    All other arguments are as in `compare`.

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
    same = settle(same_file(old, new), confirm)
    columns: dict[str, Any] = {"score_columns": score_columns, "grades": grades}
    columns |= {"lower_is_better": lower_is_better}
    columns |= {"id_column": id_column, "target_column": target_column}
    sides = outcome_sides(old, new, **columns)
    if pool is not None and pool not in by:
        by = (*by, pool)
    joined = join(
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


def outcome_sides(old: Any, new: Any, **columns: Any) -> list[Table]:
    """The outcomes of both versions, read where they are not yet."""
    return [
        given if isinstance(given, Table) else read_outcomes(given, name, **columns)
        for given, name in zip((old, new), side_names(old, new), strict=True)
    ]


def _findings(
    numbers: Numbers,
    joined: Pair,
    equivalent: float | None,
    listed: int,
    pool: str | None,
    waivers: Sequence[Waiver],
    level: float,
) -> MeasureFindings:
    measure = numbers.of
    every = all_examples(measure.examples, joined.clusters, level)
    found = {name: of.of(0) for name, of in numbers.intervals(every).items()}
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
        equivalent=equivalent,
        lower_is_better=measure.lower_is_better,
        changes=changes,
        changes_total=total,
        **fields,
    )


def _preferred(
    found: MeasureFindings,
    numbers: Numbers,
    joined: Pair,
    labels: Any,
    any_time: bool,
) -> MeasureFindings:
    """The measure with flips by which answer is better, of some that change."""
    if found.judged:
        raise PredictionsError(f"{found.name} is judged already; no queue is needed")
    separate = read_labels(labels)
    rows = rows_of(joined.ids, np.arange(0) if separate.ids is None else separate.ids)
    drawn = read_drawn(labels, separate.others, rows)
    if drawn is None:
        raise PredictionsError("labels of outcomes are a queue with the column better")
    known = drawn.better != ""
    worse, better = ((drawn.better == of).astype(float) for of in ("old", "new"))
    flips = Flips(numbers.changed.mean > 0, known, worse, better, True)
    check_labelled(joined.ids, drawn, flips)
    sampling = drawn, flips, found.level, any_time
    sampled, more = sampled_flips(*sampling)
    quantities = in_order({**found.quantities, **more})
    slices = {column: coded(values) for column, values in joined.slices.items()}
    groups = sampled_groups(found.groups, slices, *sampling)
    return dataclasses.replace(
        found, quantities=quantities, groups=groups, sampled=sampled
    )


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
