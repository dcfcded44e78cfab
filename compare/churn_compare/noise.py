"""How much churn retraining alone gives, and whether an update has more."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import special

from churn_compare.display import OutcomesResult
from churn_compare.estimates import (
    Groups,
    PerExample,
    Uncertainty,
    Weighted,
    all_examples,
    check_options,
)
from churn_compare.example_ids import PredictionsError
from churn_compare.example_numbers import Numbers, between_runs, spread
from churn_compare.flip_counts import count_flips
from churn_compare.groups import cluster_effect
from churn_compare.measures import Measure, Normalization
from churn_compare.pair import Pair, Table
from churn_compare.reading import arrow
from churn_compare.reading.account import Doubt, account_lines, settle
from churn_compare.reading.class_alignment import class_doubts
from churn_compare.reading.join import Errors, Rows, join, same_questions
from churn_compare.reading.outcome_measures import target_of
from churn_compare.reading.outcomes import has_outcomes, read_outcomes
from churn_compare.reading.sides import check_used, read_side, same_file
from churn_compare.result import NONE, Change, MeasureFindings, Noise
from churn_compare.scanning import scan

TESTED_RUNS = 5  # in all; with fewer, runs' effects alone can look like an update
_ONE_RUN = 1 / 3  # least share of the excess that must remain without any one run
_EXCEEDS = 1.2  # V_runs counts only above this multiple of V_examples
_EXAMPLES = 5  # least effective number of examples for a p-value
_SKEWED = 2000  # above so many examples the excess counts as normal
_NORMAL = 1e-3  # skewness below which normal quantiles are used
_DIVISIONS = 300  # most divisions of the runs into two versions
_HALVINGS = 40  # steps of bisection


def noise_of(numbers: Numbers, every: Groups) -> Noise | None:
    """Churn of retraining, and whether an update has more; None with one run a side."""
    if not numbers.within:
        return None
    p, one_run, least = np.nan, False, 0.0
    of_units = numbers.permuted(numbers.differ, every)
    if of_units is not None:
        runs, A = np.stack(numbers.rows), numbers.runs[0]
        x = count_flips(runs, runs).changed / runs.shape[1]
        equal = _equal_versions(x, A, of_units.sum() / runs.shape[1] ** 2)
        least = float(equal.total if min(A, len(x) - A) > 1 else equal.examples)
        p, one_run = _p(runs, x, A, equal, of_units, every)
    within = {side: every.share(of).of(0) for side, of in numbers.within.items()}
    return Noise(
        within_old=within.get("old", NONE),
        within_new=within.get("new", NONE),
        expected=every.share(numbers.expected).of(0),
        excess=every.excess(numbers.beyond, of_units, least).of(0),
        of_runs=float(every.known(numbers.changed).of_runs()[0]),
        p=p,
        one_run=one_run,
    )


def least_p(old: int, new: int) -> float:
    """Least p-value that is reported for these numbers of runs."""
    # Chosen by simulation with runs that shift all examples and occasional outliers.
    return 0.05 if min(old, new) == 1 else 0.01


def _p(
    runs: np.ndarray,
    x: np.ndarray,
    A: int,
    equal: Uncertainty,
    of_units: np.ndarray,
    every: Groups,
) -> tuple[float, bool]:
    """The p-value, and whether one run would decide it."""
    R, squares = len(x), np.sum(np.square(of_units))
    bearing = of_units.sum() ** 2 / squares if squares > 0 else 0.0
    if R < TESTED_RUNS or bearing < _EXAMPLES:
        return np.nan, False
    one_sided, excess = min(A, R - A) > 1, _excess(x, A)
    of_runs = equal.total - equal.examples
    skewness = 0.0
    if one_sided and excess > 0:
        skewness = _skewness(runs, A, of_units, every.clusters)
    low, high = 0.0, 0.5
    for _ in range(_HALVINGS):
        tail = (low + high) / 2
        examples = max(_skewed(tail, skewness), 0.0) ** 2 * equal.examples
        student = special.stdtrit(equal.freedom, 1 - tail)
        outside = excess**2 > examples + student**2 * of_runs
        low, high = (low, tail) if outside else (tail, high)
    p = 2 * high
    if one_sided:
        p = high if excess > 0 else 1 - high
    if p < 0.05 and _without_a_run(x, A) < _ONE_RUN:
        return np.nan, True
    return max(p, least_p(A, R - A)), False


def _excess(x: np.ndarray, A: int) -> float:
    """Churn between the versions minus that of runs of one version."""
    sides = [x[own, own] for own in (slice(0, A), slice(A, None))]
    within = [of.sum() / (len(of) * (len(of) - 1)) for of in sides if len(of) > 1]
    return float(x[:A, A:].mean() - np.mean(within))


def _without_a_run(x: np.ndarray, A: int) -> float:
    """Least share of the excess without one run of a version with several."""
    R = len(x)
    sides = [(r, A - (r < A)) for r in range(R)]
    return min(
        _excess(np.delete(np.delete(x, r, 0), r, 1), left) / _excess(x, A)
        for r, left in sides
        if 0 < left < R - 1
    )


def _skewed(tail: float, skewness: float) -> float:
    """Upper quantile of a gamma distribution with mean 0 and variance 1."""
    if skewness < _NORMAL:
        return -special.ndtri(tail)
    freedom = 8 / skewness**2
    return (special.chdtri(freedom, tail) - freedom) / np.sqrt(2 * freedom)


def _skewness(
    runs: np.ndarray, A: int, of_units: np.ndarray, clusters: np.ndarray | None
) -> float:
    """Skewness of the excess if every unit's predictions are permuted."""
    R, bearing = len(runs), of_units > 0
    if (count := np.count_nonzero(bearing)) > _SKEWED:
        return 0.0
    units = np.arange(runs.shape[1]) if clusters is None else clusters
    some = np.flatnonzero(bearing[units])
    unit, runs = (np.cumsum(bearing) - 1)[units[some]], runs[:, some]
    pairs = np.array(list(itertools.combinations(range(R), 2)))
    differ = np.array([np.bincount(unit, runs[r] != runs[s], count) for r, s in pairs])
    every = itertools.combinations(range(R), A)
    divisions = list(itertools.islice(every, _DIVISIONS + 1))
    if len(divisions) > _DIVISIONS:
        rng = np.random.default_rng(0)
        divisions = [rng.permutation(R)[:A] for _ in range(_DIVISIONS)]
    old = np.zeros((len(divisions), R), bool)
    np.put_along_axis(old, np.array(divisions), True, axis=1)
    first, second = old[:, pairs[:, 0]], old[:, pairs[:, 1]]
    inside = np.where(first, A * (A - 1), (R - A) * (R - A - 1))
    weights = np.where(first != second, 1 / (A * (R - A)), -1 / inside)
    cubes = np.mean((weights @ differ) ** 3, axis=0).sum()
    return float(max(cubes, 0.0) / of_units.sum() ** 1.5)


def _equal_versions(x: np.ndarray, A: int, of_examples: float) -> Uncertainty:
    """Variance of the excess of equal versions; of three runs, due to examples."""
    R = len(x)
    B = R - A
    if min(A, B) > 1:
        pairs = np.array(list(itertools.combinations(range(R), 2)))
        design = np.zeros((len(pairs), R + 1))
        np.put_along_axis(design, pairs, 1, axis=1)
        design[:, R] = (pairs[:, 0] < A) & (pairs[:, 1] >= A)
        y = x[pairs[:, 0], pairs[:, 1]]
        left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        of_runs = float(left @ left / (len(pairs) - R - 1) * spread(A, B))
    elif R > 3:
        several = x[:A, :A] if A > 1 else x[A:, A:]
        rows = several.sum(axis=1) / (len(several) - 2)
        of_runs = float(np.var(rows, ddof=1) * (1 + 1 / len(several)))
    else:
        of_runs = 0.0
    total = of_examples + max(of_runs - _EXCEEDS * of_examples, 0.0)
    freedom = np.array(max(R - 3, 1) / 2)
    return Uncertainty(np.array(of_examples), np.array(total), freedom, alone=True)


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
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    regressions: int = 20,
    level: float = 0.95,
    errors: Errors | None = None,
) -> OutcomesResult:
    """How much identical runs of one version differ: an A/A test.

    Runs are trainings with other seeds, samples of a language model, the same model in
    another batch size. An update that changes no more than they do cannot be told from
    running the version in use again.

    Args:
        *runs: files or objects, each with one run or several, of outcomes (see
            `read_outcomes`) or of predicted classes (see `read_side`).
        regressions: how many of the least stable examples to list.

    All other arguments are as in `compare_outcomes`; `target_column` is also that of
    labels.

    Returns:
        A result whose measures have `runs_differ`, the share of examples on which two
        runs differ, and `runs_agree`, the share on which all agree. Intervals of three
        or more runs of predicted classes are for new runs; others are for these runs.

    Raises:
        PredictionsError: if there is only one run, or runs cannot be read or joined.

    Example:
        >>> runs = ([1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 1])
        >>> found = noise_floor(*({"correct": run} for run in runs))["correct"]
        >>> round(found["runs_differ"].value, 3), found["runs_agree"].value
        (0.167, 0.75)
    """
    check_options(level=level, tolerance=tolerance, regressions=regressions)
    said = "two runs are the same file, which cannot differ; name a file of each"
    same = any(same_file(a, b) for a, b in itertools.combinations(runs, 2))
    notes = [*settle([Doubt("same-file", said)] * same, confirm)]
    columns = {"id_column": id_column, "target_column": target_column}
    scores = {"score_columns": score_columns, "grades": grades}
    read = [_read(given, columns, scores) for given in runs]
    check_used(None, read, columns)
    first = next((of for of in read if not of.measures), None)
    sides = [
        of if of.measures else _of_classes(of, first or of, confirm, on_missing)
        for of in read
    ]
    if sum(len(side.runs) for side in sides) < 2:
        raise PredictionsError("a noise floor needs at least two runs; got one")
    whole, notes = sides[0], notes + [note for side in sides for note in side.notes]
    for side in sides[1:]:
        rows = Rows(whole, side, on_missing == "intersect", confirm)
        whole, notes = _with_runs(whole, side, rows, normalize), notes + rows.notes
    joined = join(
        whole,
        whole,
        clusters=clusters,
        confirm=confirm,
        tolerance=tolerance,
        relative=relative,
        normalize=normalize,
        on_missing=on_missing,
        errors=errors,
    )
    groups = all_examples(len(joined.ids), joined.clusters, level)
    measures = [_findings(of, groups, joined, regressions) for of in joined.measures]
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


def _read(given: Any, columns: dict, scores: dict) -> Table:
    if isinstance(given, Table):
        return given
    if scores["score_columns"] or has_outcomes(given):
        return read_outcomes(given, **columns, **scores)
    if scores["grades"]:
        raise PredictionsError("grades are for scores; here are predicted classes")
    id_column, label_column = columns["id_column"], columns["target_column"]
    return read_side(given, id_column=id_column, label_column=label_column)


def _of_classes(
    side: Table, first: Table, confirm: Sequence[str], on_missing: Any
) -> Table:
    """Predicted classes as outcomes, aligned with those of the first run."""
    pair = join(side, first, confirm=confirm, on_missing=on_missing)
    scanned = scan(pair, runs_together=False)
    said = settle(dict.fromkeys(class_doubts(pair, scanned)), confirm)
    names = [*(first.class_names or map(str, range(first.classes)))]
    names += [*map(pair.class_name, range(len(names), pair.classes)), "(unknown)"]

    def texts(classes: np.ndarray) -> Any:
        """Names of classes `[..., n]` in all rows of the side, as one column."""
        every = np.full((*classes.shape[:-1], side.examples), len(names) - 1)
        every[..., slice(None) if pair.old_rows is None else pair.old_rows] = classes
        return arrow.array(names).take(arrow.array(every.reshape(-1) % len(names)))

    labels = pair.some_labels if pair.partial else pair.labels
    return Table(
        name=side.name,
        runs=tuple(range(len(side.values))),
        ids=side.ids,
        measures={"prediction": "label"},
        columns={"prediction": texts(scanned.old.predicted)},
        target=None if labels is None or side is not first else texts(labels),
        notes=(*side.notes, *said),
        account=side.account,
        others=side.others,
    )


def _with_runs(
    whole: Table, side: Table, rows: Rows, normalize: Normalization
) -> Table:
    """The runs of both on the examples that both have."""
    if side.measures != whole.measures:
        raise PredictionsError(
            f"{side.name} has {', '.join(side.measures)}; {whole.name} has "
            f"{', '.join(whole.measures)}"
        )
    both = (whole, rows.old), (side, rows.new)
    for what, same in same_questions(whole, side, rows):
        if differ := int((~same).sum()):
            raise PredictionsError(
                f"{differ:,} of {len(same):,} examples have another {what} in "
                f"{side.name} than in {whole.name}; runs must have the same"
            )
    for kind in {*whole.measures.values()} - {"correct", "score"}:
        target_of(kind, *both, normalize=normalize)  # must agree
    columns = {}
    for name in whole.measures:
        parts = [of.at(at, name) for of, at in both]
        if isinstance(parts[0], np.ndarray):
            columns[name] = np.concatenate(parts)
        else:
            texts = [part.cast(arrow.large_string()) for part in parts]
            columns[name] = arrow.concat_arrays(texts)

    def kept(column: Any) -> Any:
        return None if column is None else column.take(arrow.array(rows.old))

    def others(names: Collection[str] | None = None) -> dict[str, Any]:
        return {name: kept(column) for name, column in whole.others(names).items()}

    named = whole.name if side.name in whole.name.split(", ") else ""
    return Table(
        name=named or f"{whole.name}, {side.name}",
        runs=tuple(range(len(whole.runs) + len(side.runs))),
        ids=None if whole.ids is None else rows.ids,
        measures=whole.measures,
        columns=columns,
        target=kept(whole.target),
        inputs=kept(whole.inputs),
        key=kept(whole.key),
        others=others,
        less=whole.less,
        errored=np.concatenate([of.failed(at) for of, at in both]),
    )


def _findings(
    measure: Measure, groups: Groups, joined: Pair, listed: int
) -> MeasureFindings:
    runs, worth = measure.old, measure.worth
    pairs = list(itertools.combinations(range(len(runs)), 2))
    apart = [measure.differ(runs[a], runs[b]) for a, b in pairs]
    differ, agree = np.mean(apart, axis=0), ~np.logical_or.reduce(apart)
    unstable, judged = np.flatnonzero(differ), runs if measure.judged else ()
    changes, agreeing, rows = PerExample(differ), PerExample(agree), []
    if measure.kind == "label" and (R := len(runs)) > 2:  # networks: all examples share
        shared = PerExample(differ, ((),))  # a run, and another may shift them all
        of_pairs = dict(zip(pairs, apart))
        of_runs = between_runs(lambda r, s: of_pairs[r, s], R, R, shared)
        changes = of_runs[0]["old"]
        counts = changes.runs[0][0].sums
        rest = counts.sum(axis=0) == 2 * counts  # agree without this run
        agreeing = PerExample(agree, ((Weighted(R - 1, rest),),))
    for i in unstable[np.argsort(-differ[unstable], kind="stable")][:listed]:
        before, after = (
            f"{runs[r, i]:.4g}" if measure.things is None else measure.text("old", i, r)
            for r in next(pair for pair, of in zip(pairs, apart) if of[i])
        )
        target = "" if measure.target is None else measure.text("target", i)
        rows.append(Change(str(joined.ids[i]), before, after, target, float(differ[i])))
    return MeasureFindings(
        clusters=cluster_effect(changes, groups, joined.cluster_column),
        name=measure.name,
        kind=measure.kind,
        runs=(len(runs), len(runs)),
        level=groups.level,
        quantities={
            "runs_differ": groups.share(changes).of(0),
            "runs_agree": groups.share(agreeing).of(0),
        },
        of_runs=tuple(measure.sign * float(worth(run).mean()) for run in judged),
        changes=tuple(rows),
        changes_total=len(unstable),
    )
