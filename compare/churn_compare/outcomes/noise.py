"""What identical runs of one version change: the floor of every comparison."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.estimates import Groups, PerExample, all_examples
from churn_compare.example_ids import PredictionsError, rows_of
from churn_compare.outcomes.joining import Joined, equal, join_outcomes, target_of
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
from churn_compare.reading.rows import Rows
from churn_compare.reading.sides import read_side
from churn_compare.result import Clusters

_ROWS = 2**16  # of scores at once


def noise_floor(
    *runs: Any,
    clusters: Any = None,
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
        clusters: as in `compare_outcomes`, like all that follows.
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
    sides = [_read(given, clusters, columns, scores) for given in runs]
    if sum(side.runs for side in sides) < 2:
        raise PredictionsError("noise is measured between runs, and there is one")
    whole, notes = sides[0], []
    for side in sides[1:]:
        whole, said = _with_runs(whole, side, normalize, confirm)
        notes += said
    joining: dict[str, Any] = {"clusters": clusters, "confirm": confirm}
    joining |= {"tolerance": tolerance, "relative": relative, "normalize": normalize}
    joined = join_outcomes(whole, whole, on_missing="intersect", **joining)
    groups = all_examples(len(joined.ids), joined.clusters, level)
    measures = [
        _findings(measure, groups, joined, regressions) for measure in joined.measures
    ]
    used = {clusters: "clusters"} if isinstance(clusters, str) else {}
    return OutcomesResult(
        old=whole.name,
        new="",
        examples=len(joined.ids),
        level=level,
        measures=tuple(measures),
        notes=tuple(dict.fromkeys((*notes, *joined.notes))),
        read=account_lines(
            [(of.name, of.account and of.account.using(used)) for of in sides]
        ),
    )


def _read(given: Any, clusters: Any, columns: dict, scores: dict) -> Outcomes:
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
    if not isinstance(clusters, str):
        return found
    import pyarrow as pa

    of = read_clusters(clusters, (given,), id_column)
    rows = np.arange(side.examples)
    if side.ids is not None and of.ids is not None:
        rows = rows_of(side.ids, of.ids)
    elif len(of.numbers) != side.examples:
        raise PredictionsError(f"{side.name}: clusters of several runs need ids")
    known = pa.array(of.numbers[rows], mask=of.numbers[rows] == NO_CLUSTER)
    return dataclasses.replace(found, rest={clusters: known})


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
        known = np.where(side.labels < 0, len(right), side.labels)
        known = np.minimum(known, len(right))
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


def _with_runs(
    whole: Outcomes, side: Outcomes, normalize: Normalization, confirm: Sequence[str]
) -> tuple[Outcomes, list[str]]:
    """The runs of both on the examples that both have, and notes about the others."""
    import pyarrow as pa

    if side.kinds != whole.kinds:
        raise PredictionsError(
            f"{side.name} has {', '.join(side.kinds)}; {whole.name} has "
            f"{', '.join(whole.kinds)}"
        )
    rows = Rows(whole, side, True, confirm)
    both = (whole, rows.old), (side, rows.new)
    if whole.inputs is not None and side.inputs is not None:
        same = equal(whole.inputs.take(rows.old), side.inputs.take(rows.new))
        if differ := int((~same).sum()):
            raise PredictionsError(
                f"{differ:,} of {len(same):,} examples have another input in "
                f"{side.name} than in {whole.name}; runs must have the same"
            )
    if {*whole.kinds.values()} - {"correct", "score"}:
        target_of(answers_of, *both, normalize=normalize)  # must agree
    columns = {}
    for name in whole.kinds:
        parts = [of.at(at, name) for of, at in both]
        if isinstance(parts[0], np.ndarray):
            columns[name] = np.concatenate(parts)
        else:
            texts = [part.cast(pa.large_string()) for part in parts]
            columns[name] = pa.concat_arrays(texts)

    def kept(column: Any) -> Any:
        return None if column is None else column.take(pa.array(rows.old))

    named = whole.name if side.name in whole.name.split(", ") else ""
    return Outcomes(
        name=named or f"{whole.name}, {side.name}",
        runs=whole.runs + side.runs,
        ids=None if whole.ids is None else rows.ids,
        kinds=whole.kinds,
        columns=columns,
        known=np.logical_and(*(of.known[at] for of, at in both)),
        target=kept(whole.target),
        inputs=kept(whole.inputs),
        rest={name: kept(column) for name, column in whole.rest.items()},
    ), rows.notes


def _findings(
    measure: Measure, groups: Groups, joined: Joined, listed: int
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
        rows.append(Change(str(joined.ids[i]), before, after, target, float(differ[i])))
    clusters = None
    if joined.clusters is not None:
        sizes = np.bincount(joined.clusters)
        named = len(sizes), int(sizes.max()), np.nan, np.nan, joined.cluster_column
        clusters = Clusters(*named)
    return MeasureFindings(
        clusters=clusters,
        name=measure.name,
        kind=measure.kind,
        runs=(len(runs), len(runs)),
        level=groups.level,
        quantities=found,
        of_runs=tuple(means),
        changes=tuple(rows),
        changes_total=len(unstable),
    )
