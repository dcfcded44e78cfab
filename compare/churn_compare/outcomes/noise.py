"""What identical runs of one version change: the floor of every comparison."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.estimates import Groups, PerExample, all_examples
from churn_compare.example_ids import PredictionsError, match_ids, rows_of
from churn_compare.outcomes.joining import equal, join_outcomes, target_of
from churn_compare.outcomes.reading import (
    Outcomes,
    answers_of,
    has_outcomes,
    read_outcomes,
)
from churn_compare.outcomes.result import Change, MeasureFindings, OutcomesResult
from churn_compare.outcomes.values import Measure, Normalization
from churn_compare.pair import Side, class_order
from churn_compare.reading.account import account_lines
from churn_compare.reading.clusters import NO_CLUSTER, read_clusters
from churn_compare.reading.sides import read_side

_ROWS = 2**16  # of scores at once


def noise_floor(
    *runs: Any,
    cluster: str | None = None,
    tolerance: float = 0.0,
    relative: bool = False,
    normalize: Normalization = "text",
    id_column: str | None = None,
    target_column: str | None = None,
    score_columns: Sequence[str] = (),
    grades: Mapping[str, float] | None = None,
    confirm: Sequence[str] = (),
    regressions: int = 20,
    level: float = 0.95,
) -> OutcomesResult:
    """How much identical runs of one version differ: an A/A test.

    Runs are trainings with other seeds, samples of a language model, the same model in
    another batch size. An update that changes no more than they do cannot be told from
    running the version in use again.

    Args:
        *runs: files or objects, each with one run or several, of outcomes (see
            `read_outcomes`) or of predicted classes (see `read_side`).
        cluster: as in `compare_outcomes`, like all that follows.
        tolerance: numbers this near count as equal.
        relative: whether `tolerance` is a share of the larger of both numbers.
        normalize: which differences of answers do not count.
        id_column: column of ids.
        target_column: column of what is right, or of labels.
        score_columns: columns of numbers to compare.
        grades: what each grade is worth, where scores are letters or words.
        confirm: names of doubts about what was read that are right as they are.
        regressions: how many of the least stable examples to list.
        level: of the confidence intervals.

    Returns:
        A result whose measures have `runs_differ`, the share of examples on which two
        runs differ, and `runs_agree`, the share on which all agree.

    Raises:
        PredictionsError: there is one run only, or they cannot be read or joined.

    Example:
        >>> runs = ([1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 1])
        >>> found = noise_floor(*({"correct": run} for run in runs))["correct"]
        >>> round(found["runs_differ"].value, 3), found["runs_agree"].value
        (0.167, 0.75)
    """
    columns = {"id_column": id_column, "target_column": target_column}
    scores = {"score_columns": score_columns, "grades": grades}
    sides = [_read(given, cluster, columns, scores) for given in runs]
    if sum(side.runs for side in sides) < 2:
        raise PredictionsError("noise is measured between runs, and there is one")
    whole = _together(sides, normalize)
    joining: dict[str, Any] = {"cluster": cluster, "confirm": confirm}
    joining |= {"tolerance": tolerance, "relative": relative, "normalize": normalize}
    joined = join_outcomes(whole, whole, on_missing="intersect", **joining)
    groups = all_examples(len(joined.ids), joined.clusters, level)
    measures = [
        _findings(measure, groups, joined.ids, regressions)
        for measure in joined.measures
    ]
    clusters = None if joined.clusters is None else int(joined.clusters.max()) + 1
    used = {} if cluster is None else {cluster: "clusters"}
    return OutcomesResult(
        old=whole.name,
        new="",
        examples=len(joined.ids),
        level=level,
        measures=tuple(measures),
        clusters=clusters,
        notes=joined.notes,
        read=account_lines(
            [(of.name, of.account and of.account.using(used)) for of in sides]
        ),
    )


def _read(given: Any, cluster, columns: dict, scores: dict) -> Outcomes:
    path = isinstance(given, str | os.PathLike)
    named = scores["score_columns"]
    if named or not path or has_outcomes(Path(given)):
        try:
            return read_outcomes(given, **columns, **scores)
        except PredictionsError:
            if path or named:
                raise
    id_column, label_column = columns["id_column"], columns["target_column"]
    side = read_side(given, id_column=id_column, label_column=label_column)
    found = of_classes(side)
    if cluster is None:
        return found
    import pyarrow as pa

    clusters = read_clusters(cluster, (given,), id_column)
    rows = np.arange(side.examples)
    if side.ids is not None and clusters.ids is not None:
        rows = rows_of(side.ids, clusters.ids)
    elif len(clusters.numbers) != side.examples:
        raise PredictionsError(f"{side.name}: clusters of several runs need ids")
    known = pa.array(clusters.numbers[rows], mask=clusters.numbers[rows] == NO_CLUSTER)
    return dataclasses.replace(found, others={cluster: known})


def of_classes(side: Side) -> Outcomes:
    """Predicted classes as outcomes."""
    import pyarrow as pa

    names = side.class_names or tuple(map(str, range(side.classes)))
    if side.kind == "classes":
        predicted = side.values
    elif side.decisions is not None:
        predicted = side.decisions
    else:
        order = class_order(names)  # ties go to the first class by name
        blocks = (side.values[:, i : i + _ROWS] for i in range(0, side.examples, _ROWS))
        found = [order[block[..., order].argmax(axis=-1)] for block in blocks]
        predicted = np.concatenate(found, axis=1)
    texts = pa.array(names).take(pa.array(np.asarray(predicted).reshape(-1)))
    target = None
    if side.labels is not None:
        right = side.label_names or names
        known = np.minimum(side.labels, len(right))
        target = pa.array([*right, "(unknown)"]).take(pa.array(known))
    return Outcomes(
        name=side.name,
        runs=len(side.values),
        ids=side.ids,
        kinds={"prediction": "label"},
        columns={"prediction": texts},
        known=np.ones(side.examples, bool),
        target=target,
        account=side.account,
    )


def _together(sides: Sequence[Outcomes], normalize: Normalization) -> Outcomes:
    """The runs of all sides, on the examples that all have."""
    import pyarrow as pa

    first = sides[0]
    for side in sides[1:]:
        if (side.ids is None) != (first.ids is None):
            raise PredictionsError("some runs have ids and some have none")
        if side.ids is None and len(side.known) != len(first.known):
            raise PredictionsError("without ids, all runs must be of equal length")
        if side.kinds != first.kinds:
            raise PredictionsError(
                f"{side.name} has {', '.join(side.kinds)}; {first.name} has "
                f"{', '.join(first.kinds)}"
            )
    ids = first.ids
    named = [side.ids for side in sides if side.ids is not None]
    for of in named[1:]:
        ids = match_ids(np.asarray(ids), of).ids
    count = len(first.known) if ids is None else len(ids)
    if not count:
        raise PredictionsError("there is no example that all runs have")
    rows = [np.arange(count) for _ in sides]
    if ids is not None:
        rows = [rows_of(ids, of) for of in named]
    columns: dict[str, Any] = {}
    for name in first.kinds:
        parts = []
        for side, of in zip(sides, rows):
            column = side.columns[name]
            if isinstance(column, np.ndarray):
                parts.append(column[:, of])
                continue
            place = np.arange(side.runs)[:, None] * len(side.known) + of
            parts.append(column.take(pa.array(place.reshape(-1))))
        numbers = isinstance(parts[0], np.ndarray)
        columns[name] = np.concatenate(parts) if numbers else _concatenated(parts)
    for side, of in zip(sides[1:], rows[1:], strict=True):
        if first.inputs is not None and side.inputs is not None:
            same = equal(first.inputs.take(rows[0]), side.inputs.take(of))
            if differ := int((~same).sum()):
                raise PredictionsError(
                    f"{differ:,} of {count:,} examples have another input in "
                    f"{side.name} than in {first.name}; runs must have the same"
                )
    if {*first.kinds.values()} - {"correct", "score"}:
        of = zip(sides, rows, strict=True)
        target_of(answers_of, *of, normalize=normalize)  # must agree
    names = list(dict.fromkeys(side.name for side in sides))
    return Outcomes(
        name=", ".join(names),
        runs=sum(side.runs for side in sides),
        ids=ids,
        kinds=first.kinds,
        columns=columns,
        known=np.logical_and.reduce([s.known[of] for s, of in zip(sides, rows)]),
        target=None if first.target is None else first.target.take(pa.array(rows[0])),
        inputs=None if first.inputs is None else first.inputs.take(pa.array(rows[0])),
        others={n: of.take(pa.array(rows[0])) for n, of in first.others.items()},
    )


def _concatenated(parts: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_arrays([part.cast(pa.large_string()) for part in parts])


def _findings(
    measure: Measure, groups: Groups, ids: np.ndarray, listed: int
) -> MeasureFindings:
    runs = measure.old
    pairs = list(itertools.combinations(runs, 2))
    apart = [measure.beyond(measure.distance(a, b), a, b) for a, b in pairs]
    differ = np.mean(apart, axis=0)
    agree = ~np.logical_or.reduce(apart[: len(runs) - 1])  # with the first run
    found = {
        "runs_differ": groups.share(PerExample(differ)).of(0),
        "runs_agree": groups.share(PerExample(agree)).of(0),
    }
    means = []
    if measure.judged:
        means = [measure.sign * float(measure.worth(run).mean()) for run in runs]
    unstable = np.flatnonzero(differ)
    worst = unstable[np.argsort(-differ[unstable], kind="stable")][:listed]
    rows = []
    for i in worst:
        other = next(b for b in range(1, len(runs)) if runs[b, i] != runs[0, i])
        two = dataclasses.replace(measure, old=runs[:1], new=runs[other : other + 1])
        if measure.shown is not None:
            texts = {"old": measure.shown["old"], "new": measure.shown["old"][other:]}
            two = dataclasses.replace(two, shown=texts)
        before, after = two.text("old", i), two.text("new", i)
        target = "" if measure.target is None else measure.text("target", i)
        rows.append(Change(str(ids[i]), before, after, target, float(differ[i])))
    return MeasureFindings(
        name=measure.name,
        kind=measure.kind,
        runs=(len(runs), len(runs)),
        level=groups.level,
        quantities=found,
        quantiles={},
        p=np.nan,
        detectable=np.nan,
        within=None,
        equivalent=None,
        of_runs=tuple(means),
        changes=tuple(rows),
        changes_total=len(unstable),
    )
