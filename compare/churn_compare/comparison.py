"""Two versions of a model, compared by their predictions alone."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.display import CompareResult, OutcomesResult
from churn_compare.estimates import all_examples, check_options
from churn_compare.example_ids import PredictionsError, names_of
from churn_compare.example_numbers import Numbers, class_estimates, class_numbers
from churn_compare.findings import (
    class_flow,
    largest_changes,
    largest_regressions,
    reliability_curve,
)
from churn_compare.gate_outcomes import judge, judge_measures
from churn_compare.gates import (
    EQUIVALENT,
    EXCESS,
    Gate,
    GateError,
    Gating,
    as_gates,
    check_gates,
    closest,
    limit_of,
    margin_of,
    waivers_of,
)
from churn_compare.groups import measured, waived_rows
from churn_compare.labelling import by_labels, by_preference
from churn_compare.measures import Normalization
from churn_compare.noise import noise_of
from churn_compare.pair import Kind, Pair, Scanned, Table, run_by_run
from churn_compare.reading.account import account_lines, settle
from churn_compare.reading.class_alignment import class_doubts
from churn_compare.reading.contents import column_names
from churn_compare.reading.join import Errors, join, read_pair
from churn_compare.reading.outcome_measures import directions
from churn_compare.reading.outcomes import has_outcomes, read_outcomes
from churn_compare.reading.sides import same_file, side_names
from churn_compare.result import MeasureFindings, Version, Waiver
from churn_compare.scanning import scan

_ANY_TIME = "any_time is for labels of a queue (churn-compare label); leave it out"


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
        old_kind, new_kind: `kind` of one side alone.
        class_map: class of the old side to class of the new one, or a file with it, or
            "identity" where equal numbers are equal classes though their counts differ.
        on_missing: "intersect" compares the examples that both sides have.
        confirm: names of doubts about what was read that are right as they are.
        id_column: column or array of ids, if its name is not a usual one.
        label_column: the same for labels.
        prediction_column: the same for predicted classes; next to scores they are the
            decisions.
        gates: conditions, the path of a TOML file with them, or limits by name, as in
            `{"max_nfr": 0.01}`.
        equivalent: a margin such as `0.01` or `"1%"`: the report states whether
            accuracy is shown to change by less. The gate of that name requires it.
        waivers: negative flips that gates on their rate do not count.
        pool: column of the slices, or without them of the predictions, with the names
            of benchmarks, whose accuracy gains are averaged with equal weights.
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
    by = names_of(by)
    if by and slices is not None:
        raise ValueError("slices are given, so `by` has nothing to choose from")
    if pool is not None and slices is None and pool not in by:
        by = (*by, pool)
    pair = read_pair(
        old,
        new,
        labels=labels,
        slices=slices,
        by=by,
        clusters=clusters,
        ids=ids,
        kind=kind,
        old_kind=old_kind,
        new_kind=new_kind,
        class_map=class_map,
        on_missing=on_missing,
        confirm=confirm,
        id_column=id_column,
        label_column=label_column,
        prediction_column=prediction_column,
    )
    return compare_pair(
        pair,
        gates=wanted,
        equivalent=equivalent,
        waivers=waivers_of(gates, waivers),
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
    check_options(level=level, regressions=regressions, resamples=resamples, seed=seed)
    check_gates(gates, pair)  # before the long pass
    margin = margin_of(equivalent, gates, pair)
    if margin is not None and level <= 0.5:
        raise ValueError(f"equivalence needs a level above 0.5; got {level}")
    if pool is not None and pool not in pair.slices:
        hint = closest(pool, pair.slices) or "it must be a column of the slices"
        raise PredictionsError(f"there is no column {pool!r} to pool; {hint}")
    unlabelled = pair.labels is None and not pair.partial
    if pool is not None and unlabelled:
        raise PredictionsError("benchmarks are pooled by accuracy; there are no labels")
    if any_time and pair.drawn is None:
        raise PredictionsError(_ANY_TIME)
    if waivers and unlabelled:
        raise GateError("waivers are about negative flips, and there are no labels")
    scanned = scanned or scan(pair)
    confirmed = settle(class_doubts(pair, scanned), confirm)
    if pair.old.runs == pair.new.runs:
        scanned = run_by_run(scanned)
    every = all_examples(pair.examples, pair.clusters, level)
    labels = pair.some_labels if pair.partial else pair.labels
    numbers, sampling = class_numbers(scanned, labels), None
    worse = None if labels is None else numbers.worse.mean
    if pair.partial or pair.drawn is not None:
        sampling = by_labels(pair, numbers, level, any_time)
    if sampling is not None:
        if waivers or pool or equivalent is not None or pair.clusters is not None:
            raise PredictionsError(
                "waivers, pool, equivalent and clusters need a label for every "
                "example that changes"
            )
        numbers = class_numbers(scanned, None)
    numbers.all_labelled = not pair.partial
    found = class_estimates(scanned, numbers, every, resamples=resamples, seed=seed)
    noise = noise_of(numbers, every)
    if noise is not None:
        found[EXCESS] = noise.excess
    fields, said = measured(numbers, every, pair, found, waivers, pool, sampling)
    some = dataclasses.replace(pair, labels=labels)
    listed, total = largest_regressions(some, scanned, worse, regressions)
    curves = None
    if pair.labels is not None and pair.scored:
        sides = {"old": scanned.old, "new": scanned.new}
        curves = {n: reliability_curve(of, pair.labels) for n, of in sides.items()}
    sides, notes = (pair.old, pair.new), (*pair.notes, *confirmed)
    result = CompareResult(
        *(Version(s.name, s.kind, len(s.runs), s.classes, s.examples) for s in sides),
        examples=pair.examples,
        **fields,
        flow=class_flow(pair if sampling else some, scanned),
        noise=noise,
        regressions=listed,
        regressions_total=total,
        curves=curves,
        notes=(*pair.old.notes, *pair.new.notes, *notes, *_notes(pair, scanned), *said),
        equivalent=margin,
        read=(*read_lines(pair), *_decided(pair, scanned)),
    )
    return dataclasses.replace(result, gates=judge(gates, result))


def read_lines(pair: Pair) -> tuple[str, ...]:
    """Lines on what was read of both sides and of separate labels."""
    sides = [(side.name, side.account) for side in (pair.old, pair.new)]
    return (*account_lines(sides), *pair.read)


def _decided(pair: Pair, scanned: Scanned) -> list[str]:
    """How many decisions of each side are not the most probable class."""
    said = []
    for side, of in ((pair.old, scanned.old), (pair.new, scanned.new)):
        differ = of.predicted != of.of_scores
        if differ.any():
            runs = " (in all runs)" if len(differ) > 1 else ""
            said.append(
                f"{side.name}: the decision of {int(differ.sum()):,} of "
                f"{differ.size:,} examples{runs} is not the most probable class."
            )
    if said:
        said.append(
            "Churn, accuracy and flips are of the decisions; NLL, Brier score, "
            "calibration and divergences of the scores."
        )
    return said


def _notes(pair: Pair, scanned: Scanned) -> Iterator[str]:
    """Sentences on ties and on runs that are compared one by one."""
    by = "number" if pair.class_names is None else "name"
    for side, of in ((pair.old, scanned.old), (pair.new, scanned.new)):
        if of.ties:
            yield (
                f"{side.name}: several classes have the highest score in {of.ties:,} "
                f"of {of.predicted.size:,} rows; the first by {by} is the prediction."
            )
    if scanned.paired:
        names = [str(run) for run in pair.old.runs]
        some = names if len(names) < 7 else [*names[:3], "...", names[-1]]
        yield (
            f"Runs {', '.join(some)} are each compared only with the run of the same "
            "name: the two differ less than half as much as either does from any other "
            "run."
        )


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
    equivalent: float | str | None = None,
    top: int | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
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
        equivalent: margin of equivalence, in the units of each measure.
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
    given = {"tolerance": tolerance, "regressions": regressions, "top": top}
    check_options(level=level, low=0.5, **given)
    wanted = as_gates(gates)
    same = settle(same_file(old, new), confirm)
    columns: dict[str, Any] = {"score_columns": score_columns, "grades": grades}
    columns |= {"lower_is_better": lower_is_better}
    columns |= {"id_column": id_column, "target_column": target_column}
    sides, by = outcome_sides(old, new, **columns), names_of(by)
    if pool is not None and pool not in (*by, *column_names(slices)):
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
        id_column=id_column,
        errors=errors,
    )
    check_gates(wanted, joined)
    waivers = waivers_of(gates, waivers)
    numbers = [Numbers(measure) for measure in joined.measures]
    flips = [of.worse.mean for of in numbers if of.judged]
    if not flips and (waivers or pool is not None or equivalent is not None):
        raise GateError(
            "waivers, pool and equivalent need outcomes that can be better or worse; "
            "give a column target, or --score-column"
        )
    if equivalent is not None:
        of_shares = any(of.decided for of in numbers)
        quantity = EQUIVALENT if of_shares else "score_change"
        equivalent = limit_of(equivalent, EQUIVALENT, quantity)
        if equivalent <= 0:
            raise ValueError("the margin of equivalence must be above 0")
    useless = ()
    if waivers:
        useless = waived_rows(waivers, joined.ids, np.max(flips, axis=0))[2]
    every = all_examples(len(joined.ids), joined.clusters, level)
    samplings: list = [None] * len(numbers)
    if any_time and labels is None:
        raise PredictionsError(_ANY_TIME)
    if labels is not None:
        if clusters is not None:
            raise PredictionsError("clusters and a queue exclude each other here")
        samplings[0] = by_preference(joined, numbers[0], labels, level, any_time)
    measures = []
    for of, sampling in zip(numbers, samplings, strict=True):
        fields, _ = measured(of, every, joined, None, waivers, pool, sampling)
        changes, total = largest_changes(of, joined.ids, regressions)
        measures.append(
            MeasureFindings(
                name=of.of.name,
                kind=of.of.kind,
                **fields,
                equivalent=equivalent,
                lower_is_better=of.of.lower_is_better,
                changes=changes,
                changes_total=total,
            )
        )
    return OutcomesResult(
        old=sides[0].name,
        new=sides[1].name,
        examples=len(joined.ids),
        level=level,
        measures=tuple(measures),
        gates=judge_measures(wanted, measures),
        notes=(*joined.notes, *same, *useless),
        read=(*read_lines(joined), *directions(joined.measures)),
    )


def outcome_sides(old: Any, new: Any, **columns: Any) -> list[Table]:
    """The tables of both versions; what is not a table is read."""
    return [
        given if isinstance(given, Table) else read_outcomes(given, name, **columns)
        for given, name in zip((old, new), side_names(old, new), strict=True)
    ]


def read_either(old: Any, new: Any, **reading: Any) -> tuple[Pair, Numbers]:
    """Two versions, joined, and what each example adds to their first measure."""
    reading = {name: given for name, given in reading.items() if given is not None}
    confirm = reading.get("confirm", ())
    outcome_options = ("score_columns", "lower_is_better", "grades")
    columns = {name: reading.pop(name) for name in outcome_options if name in reading}
    classes = {"kind", "old_kind", "new_kind", "prediction_column"} & reading.keys()
    label_column = reading.pop("target_column", reading.pop("label_column", None))
    if not classes and (columns.get("score_columns") or has_outcomes(old)):
        if "ids" in reading:
            raise PredictionsError(
                "outcomes take no separate ids; put them into a column, id"
            )
        columns |= {"target_column": label_column}
        columns |= {"id_column": reading.get("id_column")}
        said = settle(same_file(old, new), confirm)
        pair = join(*outcome_sides(old, new, **columns), **reading)
        first, *others = (of.name for of in pair.measures)
        if others:
            only = f"Only {first} is used here, and not {', '.join(others)}; "
            said = (*said, only + "to use another, leave its column out.")
        pair = dataclasses.replace(pair, notes=(*pair.notes, *said))
        return pair, Numbers(pair.measures[0])
    pair = read_pair(old, new, label_column=label_column, **reading)
    scanned = scan(dataclasses.replace(pair, slices={}))
    said = settle(class_doubts(pair, scanned), confirm)
    pair = dataclasses.replace(pair, notes=(*pair.notes, *said))
    if pair.old.runs == pair.new.runs:
        scanned = run_by_run(scanned)
    return pair, class_numbers(scanned, pair.labels)
