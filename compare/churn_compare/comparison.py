"""Two versions of a model, compared by their predictions alone."""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.class_doubts import class_doubts
from churn_compare.display import CompareResult
from churn_compare.estimates import all_examples
from churn_compare.example_ids import PredictionsError
from churn_compare.example_numbers import (
    class_estimates,
    class_numbers,
)
from churn_compare.findings import (
    class_flow,
    largest_regressions,
    reliability_curve,
    scatter_points,
)
from churn_compare.gate_outcomes import judge
from churn_compare.gates import (
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
from churn_compare.groups import coded, parts_of
from churn_compare.labelling import check_labelled, known_flips, sampled_flips
from churn_compare.noise import noise_of
from churn_compare.pair import Kind, Pair, Scanned, Side, run_by_run
from churn_compare.quantities import in_order
from churn_compare.reading.account import account_lines, settle
from churn_compare.reading.join import join
from churn_compare.reading.labels import read_clusters, read_slices, without_clusters
from churn_compare.reading.sides import read_side, same_file, side_names
from churn_compare.result import Version, Waiver
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
    """What changes when the version `new` of a classifier replaces `old`.

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
        seed: of the bootstrap.
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
    sampled, flips = None, {}
    labels = pair.some_labels if pair.partial else pair.labels
    numbers = class_numbers(scanned, labels)
    if pair.partial:
        known = known_flips(pair.drawn, numbers)
        check_labelled(pair.ids, pair.drawn, known)
        if known.judged or np.any(known.changed & ~known.known):
            if waivers or pool or equivalent is not None or pair.clusters is not None:
                raise PredictionsError(
                    "waivers, pool, equivalent and clusters need a label for every "
                    "example that changes"
                )
            sampled, flips = sampled_flips(pair.drawn, known, level, any_time)
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
    some = dataclasses.replace(pair, labels=labels)
    listed, total = largest_regressions(some, scanned, regressions)
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
        curves=(
            reliability_curve(scanned.old, pair.labels),
            reliability_curve(scanned.new, pair.labels),
        )
        if pair.labels is not None and pair.scored
        else None,
        points=scatter_points(pair, scanned, seed=seed) if pair.scored else None,
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


def _side(used: Mapping[str, str], given: Any, name: str, **reading: Any) -> Side:
    side = given if isinstance(given, Side) else read_side(given, name, **reading)
    if side.account is None or not used:
        return side
    return dataclasses.replace(side, account=side.account.using(used))


def _version(side: Side) -> Version:
    return Version(side.name, side.kind, len(side.runs), side.classes, side.examples)
