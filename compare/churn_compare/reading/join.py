"""Two versions brought together: the same examples, classes and truths."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from churn_compare.array_files import ArrayFileError
from churn_compare.example_ids import (
    PredictionsError,
    check_choice,
    check_count,
    counts_rows,
    match_ids,
    names_of,
    rows_of,
    some,
)
from churn_compare.labelling import read_drawn
from churn_compare.measures import Normalization
from churn_compare.number_text import counted
from churn_compare.pair import Kind, Pair, Table
from churn_compare.reading import arrow
from churn_compare.reading.account import Doubt, settle
from churn_compare.reading.class_alignment import aligned
from churn_compare.reading.class_values import NO_LABEL, ClassValues
from churn_compare.reading.contents import column_names
from churn_compare.reading.labels import (
    DRAWN_FROM,
    NO_CLUSTER,
    ExampleValues,
    as_names,
    as_slices,
    as_text,
    cluster_numbers,
    from_zero,
    read_clusters,
    read_ids,
    read_labels,
    read_slices,
)
from churn_compare.reading.outcome_measures import (
    common_measures,
    errors_as_wrong,
    measures_of,
    never_right,
    same_targets,
)
from churn_compare.reading.outcomes import text_of
from churn_compare.reading.sides import check_used, read_side, same_file, side_names

Errors = Literal["wrong", "drop", "refuse"]
_FEW = 10  # distinct values; with fewer, equal counts may be chance
_MOVED = 0.1  # share of rows that differ; fewer may be changed predictions
_BY_ROWS = (
    "Warning: there are no ids, so examples are matched by their rows. If one of the "
    "two lists them in another order, every number here is wrong; name the column of "
    "ids, or give ids."
)


def join(
    old: Table,
    new: Table,
    *,
    labels: Any = None,
    slices: Any = None,
    by: Sequence[str] = (),
    clusters: Any = None,
    class_map: Any = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    id_column: str | None = None,
    label_column: str | None = None,
    errors: Errors | None = None,
    normalize: Normalization = "text",
    **measuring: Any,
) -> Pair:
    """Joins two versions example by example, and class by class or by outcome.

    Examples are matched by id and come in ascending order of ids, so that the order of
    rows changes no number; without ids on either side, by row. Classes are matched by
    name, or by number where neither side has names; see `align_classes`.

    Args:
        old: the version in use.
        new: the one that is to replace it.
        labels: separate labels, see `read_labels`, which must agree with the sides'.
        slices: separate slices, see `read_slices`.
        by: columns of the versions' own files that are slices, too.
        clusters: `[N]` values or a mapping of ids to them; equal ones belong together.
            Or the name of a column of the slices or of the versions' own files.
        class_map: see `read_class_map`.
        on_missing: "intersect" compares the examples that both sides have, and those
            that lack a slice or a cluster without it. Labels may always be of some.
        confirm: names of doubts to accept.
        id_column: name of the ids in the other files, if it is not a usual one.
        label_column: name of the labels in their file, if it is not a usual one.
        errors: what is done with outcomes that a tool could not evaluate.
        normalize: normalization of texts, as in `measures_of`.
        **measuring: `tolerance`, `relative`, `top`.

    Raises:
        PredictionsError: if examples, classes or truths do not match.

    Example:
        >>> sides = (
        ...     Table(name, "classes", np.array([values]), ids=np.array(ids))
        ...     for name, values, ids in (("a", [0, 1], [7, 5]), ("b", [1, 0], [5, 7]))
        ... )
        >>> pair = join(*sides, labels={5: 1, 7: 0})
        >>> pair.ids, pair.old_rows, pair.new_rows, pair.labels
        (array([5, 7]), array([1, 0]), None, array([1, 0]))
    """
    check_choice("on_missing", on_missing, ("error", "intersect"))
    if errors is not None:
        check_choice("errors", errors, get_args(Errors))
    if labels is not None and old.measures:
        raise PredictionsError(
            "outcomes take no separate labels here; name the column of their right "
            "answers (--label-column)"
        )
    if measuring and not old.measures:
        raise TypeError(f"predicted classes take no argument {', '.join(measuring)}")
    by = names_of(by)
    rows = Rows(old, new, on_missing == "intersect", confirm)
    notes, inputs = rows.notes, old.inputs is not None and new.inputs is not None
    if old.measures and old.ids is not None and not inputs:
        if len(rows.ids) > 1 and counts_rows(rows.ids):
            notes.append("Ids count the rows: both files must keep the same order.")
    truth, drawn = None, None
    fields: dict[str, Any] = {}
    if labels is not None:
        separate: Any = read_labels(labels, id_column, label_column)
        truth = separate.labels
        of = rows.rows_in(separate, "labels")
        truth = ClassValues(np.append(truth.numbers, NO_LABEL)[of], truth.names)
        drawn = read_drawn(labels, separate.others, of)
        fields["read"] = separate.read
    groups, cluster_column = None, ""
    own = isinstance(clusters, str) and clusters not in column_names(slices)
    columns = _own_columns([*by, *([clusters] if own else [])], rows, old, new)
    if "class" in by and not old.measures:
        raise PredictionsError("column class cannot group: labels are grouped so")
    if own:
        groups = cluster_numbers(columns[clusters], clusters)
        cluster_column = clusters
    elif clusters is not None:
        found: Any = read_clusters(clusters, slices, id_column)
        places = rows.rows_in(found, "clusters")
        groups = np.append(found.clusters, NO_CLUSTER)[places]
        cluster_column = found.column
    groupings = {}
    if slices is not None:
        groupings = rows.values_of(read_slices(slices, id_column, cluster_column))
    for name in by:
        if name in groupings:
            raise PredictionsError(
                f"column {name} is named to group by and is also in the slices; leave "
                "it out of one of the two"
            )
        of = columns[name]
        groupings[name] = of if old.measures else as_slices(of, f"column {name}")
    doubts: list = []
    if old.measures:
        kept, old, new = _comparable(old, new, rows, errors, on_missing, confirm)
        groupings = {name: values[kept] for name, values in groupings.items()}
        groups = None if groups is None else groups[kept]
        measures, said = measures_of(
            (old, rows.old), (new, rows.new), normalize=normalize, **measuring
        )
        notes += said
        fields |= {"classes": 0, "measures": tuple(measures)}
        doubts = never_right(measures, old, new, normalize)
    if groups is not None:
        groups, said = from_zero(groups)
        notes += said
    if not old.measures:
        more, doubts = aligned(old, new, rows, truth, drawn, class_map, notes)
        fields |= more
    notes += settle(doubts, confirm)
    fields |= {"old_rows": old.rows_or_none(rows.old), "drawn": drawn}
    fields |= {"new_rows": new.rows_or_none(rows.new), "slices": groupings}
    fields |= {"clusters": groups, "cluster_column": cluster_column}
    used = dict.fromkeys(by, "slices") | ({clusters: "clusters"} if own else {})
    old, new = (
        dataclasses.replace(side, account=side.account and side.account.using(used))
        for side in (old, new)
    )
    return Pair(old, new, rows.ids, notes=tuple(notes), **fields)


def read_pair(
    old: Any,
    new: Any,
    *,
    labels: Any = None,
    ids: Any = None,
    kind: Kind | None = None,
    old_kind: Kind | None = None,
    new_kind: Kind | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
    **joining: Any,
) -> Pair:
    """Reads two versions of a classifier and joins them."""
    columns = {"id_column": id_column, "label_column": label_column}
    # The column of separate labels may be called otherwise.
    own: dict[str, Any] = columns | ({} if labels is None else {"label_column": None})
    own |= {"prediction_column": prediction_column}
    # With two kinds, two columns of one file are compared.
    same = same_file(old, new) if old_kind == new_kind else ()
    said = settle(same, joining.get("confirm", ()))
    ids = None if ids is None else read_ids(ids, id_column)
    kinds = old_kind or kind, new_kind or kind
    sides = [
        given if isinstance(given, Table) else read_side(given, name, ids, of, **own)
        for given, name, of in zip((old, new), side_names(old, new), kinds)
    ]
    check_used(ids, sides, own)
    pair = join(*sides, labels=labels, **columns, **joining)
    return dataclasses.replace(pair, notes=(*pair.notes, *said))


def _comparable(
    old: Table,
    new: Table,
    rows: "Rows",
    policy: Errors | None,
    on_missing: str,
    confirm: Sequence[str],
) -> tuple[np.ndarray, Table, Table]:
    """Leaves out examples without outcomes or with other inputs."""
    places, names = np.arange(len(rows.ids)), common_measures(old, new)
    sides = (old, rows.old), (new, rows.new)
    failed = [of.failed(at).any(axis=0) for of, at in sides]
    a, b = (int(of.sum()) for of in failed)
    if a or b:
        said = f"{counted(a, 'example')} errored"
        said += f" in {old.name}, {b:,} in {new.name}" if new is not old else ""
        if policy == "refuse" or (policy is None and a != b):
            raise PredictionsError(
                f"{said}; --errors wrong counts them as wrong, --errors drop leaves "
                "them out"
            )
        done = "are left out" if policy == "drop" else "count as wrong"
        rows.notes.append(f"Warning: {said}, and {done}.")
    if policy == "drop":
        places = places[rows.keep(~np.logical_or(failed[0], failed[1]))]
    else:
        old, new = (errors_as_wrong(side, names) for side in (old, new))
    known = old.known(names)[rows.old], new.known(names)[rows.new]
    keep = known[0] & known[1]
    if lacking := int((~keep).sum()):
        a, b = (int((~of).sum()) for of in known)
        said = f"{lacking:,} of {len(keep):,} examples lack an outcome"
        if old.name != new.name:
            said += f" ({a:,} in {old.name}, {b:,} in {new.name})"
        if on_missing == "error":
            whole = [n for n, kind in names.items() if kind in ("correct", "score")]
            for of, at in ((old, rows.old), (new, rows.new)):
                whole = [name for name in whole if of.known([name])[at].all()]
            others = [f", --score-column {n} compares what all have" for n in whole]
            raise PredictionsError(
                f"{said}, for example {some(rows.ids[~keep])}; --on-missing intersect "
                f"leaves them out{''.join(others[:1])}"
            )
        rows.notes.append(f"{said} and are left out.")
    where = "in the same row" if old.ids is None else "under the same id"
    for what, same in same_questions(old, new, rows):
        changed = int((keep & ~same).sum())
        if not changed or f"{what}s" in confirm:
            continue
        said = f"{changed:,} of {len(keep):,} examples have another {what} {where}"
        if 2 * changed > keep.sum():
            raise PredictionsError(
                f"{said}; if that is what the update changes, add --confirm {what}s"
            )
        said += " and are left out"
        rows.notes.append(f"Warning: {said}: {some(rows.ids[keep & ~same])}.")
        keep &= same
    places = places[rows.keep(keep)]
    if not len(places):
        raise PredictionsError("no example is left to compare")
    return places, old, new


def same_questions(
    old: Table, new: Table, rows: "Rows"
) -> Iterator[tuple[str, np.ndarray]]:
    """The input and the target, and where they are equal or one side has none."""
    if old.inputs is not None and new.inputs is not None:
        same = arrow.equal(old.inputs.take(rows.old), new.inputs.take(rows.new))
        yield "input", np.asarray(arrow.fill_null(same, True))
    if old.key is not None and new.key is not None:
        yield "target", same_targets(old.key.take(rows.old), new.key.take(rows.new))


def _own_columns(
    names: Sequence[str], rows: "Rows", *sides: Table
) -> dict[str, np.ndarray]:
    """Columns of the old side, or else of the new one, as `[N]` strings."""
    columns = {}
    others = [side.others(names) if names else {} for side in sides]
    for name in names:
        found = []
        for there, at in zip(others, (rows.old, rows.new), strict=True):
            if name not in there:
                continue
            values = there[name]
            if hasattr(values, "null_count") and arrow.types.is_nested(values.type):
                values = text_of(values, name)
            values = as_names(values, f"column {name}")
            found.append(np.asarray(values.take(arrow.array(at)), "U"))
        if not found:
            every = dict.fromkeys(name for side in sides for name in side.others())
            raise PredictionsError(
                f"there is no column {name!r}, or it is read as something else; others "
                f"are {some([*every]) or 'none'}"
            )
        if differ := int(np.sum(found[0] != found[-1])):
            rows.notes.append(
                f"Warning: {name} differs between the two sides for {differ:,} of "
                f"{len(found[0]):,} examples; that of {sides[0].name} is taken."
            )
        columns[name] = found[0]
    return columns


class Rows:
    """Rows of two versions, and of separate files, that belong to one example."""

    def __init__(self, old: Table, new: Table, intersect: bool, confirm: Sequence[str]):
        self._intersect, self._confirm = intersect, confirm
        self.notes: list[str] = []
        old_ids, new_ids = old.ids, new.ids
        self._ids = old_ids
        if (old_ids is None) != (new_ids is None):
            having, lacking = (new, old) if old_ids is None else (old, new)
            raise PredictionsError(
                f"{having.name} has ids and {lacking.name} has none; give the ids of "
                f"{lacking.name}, in the order of its rows"
            )
        if old_ids is None or new_ids is None:
            self._others, self._repeats = old.others(), bool(old.measures)
            self._check_order(new.others(), f"between {old.name} and {new.name}")
            if old.examples != new.examples:
                raise PredictionsError(
                    f"{old.name} has {old.examples} examples and {new.name} "
                    f"{new.examples}; without ids they cannot be matched"
                )
            self.ids = self.old = self.new = np.arange(old.examples)
            note = _BY_ROWS
            if old.truth and new.truth:  # which must agree
                note = (
                    "There are no ids: examples are matched by their rows, in which "
                    f"the {old.truth} of both agree."
                )
            self.notes.append(note)
            self._one_order = True
            return
        found = match_ids(old_ids, new_ids)
        self.ids, self.old, self.new = found.ids, found.rows_a, found.rows_b
        self._one_order = np.array_equal(self.old, self.new)
        parts = [
            f"{len(only):,} of {side.examples:,} ids are only in {side.name} (for "
            f"example {some(only)})"
            for side, only in ((old, found.only_a), (new, found.only_b))
            if len(only)
        ]
        if not parts:
            return
        self._one_order, why = False, "; ".join(parts)
        if not len(self.ids):
            raise PredictionsError(
                f"{why}; no example is left to compare; write the ids of both alike, "
                "or name their columns by --id-column"
            )
        if not intersect:
            raise PredictionsError(
                f"{why}; to compare only the {len(self.ids):,} that both have, use "
                "--on-missing intersect"
            )
        self.notes.append(f"{why}: {len(self.ids):,} examples are compared.")

    def _check_order(self, others: Mapping[str, Any], where: str) -> None:
        doubts = row_order_doubts(self._others, others, where, self._repeats)
        self.notes += settle(doubts, self._confirm)

    def keep(self, kept: np.ndarray) -> np.ndarray:
        """Leaves out all examples but those of a mask `[N]`, which it returns."""
        self.ids, self.old, self.new = self.ids[kept], self.old[kept], self.new[kept]
        self._one_order &= bool(kept.all())
        return kept

    def values_of(self, separate: ExampleValues) -> dict[str, np.ndarray]:
        """Slices of the examples; the value is "" where the file lacks an example."""
        if not separate.slices:  # its only column is that of the clusters
            return {}
        rows = self.rows_in(separate, "slices")
        if separate.left_out:
            self.notes.append(
                f"{len(separate.left_out)} of the slices' columns are called like "
                f"predictions and are not groupings here: {some(separate.left_out)}."
            )
        return {
            name: np.where(rows < 0, "", values[rows])
            for name, values in separate.slices.items()
        }

    def rows_in(self, separate: ExampleValues, what: str) -> np.ndarray:
        """Row of each example in a separate file; -1 if it lacks one."""
        ids = separate.ids
        if ids is None:
            self._check_rows(separate, what)
            return self.old
        if self._ids is None and DRAWN_FROM not in separate.others:  # else of rows
            raise PredictionsError(
                f"the {what} have ids, but the predictions have none; give ids for them"
            )
        rows = rows_of(self.ids, ids)
        lacking = self.ids[rows < 0]
        if further := len(ids) - (len(rows) - len(lacking)):
            self.notes.append(
                f"The {what} have {further:,} further ids, which are not compared."
            )
        every = len(lacking) == len(rows)
        if every or (len(lacking) and separate.labels is None):  # some labels will do
            why = f"the {what} lack {len(lacking):,} of {len(rows):,} ids (for example "
            why += f"{some(lacking)})"
            if every:
                raise PredictionsError(
                    f"{why}; their ids must be those of the examples"
                )
            if not self._intersect:
                raise PredictionsError(
                    f"{why}; --on-missing intersect compares these examples, too, "
                    "without a value"
                )
            self.notes.append(f"{why}, which are compared without a value.")
        return rows

    def _check_rows(self, separate: ExampleValues, what: str) -> None:
        """Refuses a file without ids if it is not clear what its rows belong to."""
        others = separate.slices or separate.others
        for name in others if self._ids is not None else ():
            if row_order_doubts({name: self._ids}, {name: others[name]}, ""):
                said = f"column {name} of the {what} has the ids of the predictions"
                doubt = Doubt("row-order", f"{said} in another order: call it id")
                self.notes += settle([doubt], self._confirm)
        if not self._one_order:
            raise PredictionsError(
                f"the {what} have no ids, but the two sides do not have the same "
                f"examples in the same order; give ids with the {what}"
            )
        check_count(f"the {what}", separate.size, len(self.ids))
        if self._ids is not None:
            said = f"he {what} have no ids: they are matched by rows."
            self.notes.append(f"Warning: t{said}" if others else f"T{said}")
        else:
            self._check_order(others, f"in the {what}")


def row_order_doubts(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str, repeats: bool = False
) -> list[Doubt]:
    """A doubt if one of the columns has the values of both sides in another order."""
    moved, many = [], []
    for name in old:
        if name not in new:
            continue
        try:
            texts = [arrow.one(as_text(side[name], name)) for side in (old, new)]
        except (PredictionsError, ArrayFileError):
            continue  # lists, for example
        both = arrow.concat_arrays(texts).dictionary_encode().indices.to_numpy()
        a, b = codes = np.split(both, [len(texts[0])])
        once = all(len(np.unique(of)) == len(of) for of in codes)
        if np.array_equal(a, b):
            names = texts[0].to_pylist() if once else []
            start = int(names[:1] != ["0"])
            if names != [str(start + i) for i in range(len(names))]:
                return []  # ids in the same order, which do not just count the rows
        elif once and len(np.intersect1d(a, b)) > len(a) / 2:
            moved.append(name)
        elif not once and np.array_equal(np.sort(a), np.sort(b)):
            if len(np.unique(a)) >= _FEW and np.mean(a != b) > _MOVED:
                many.append(name)
    if moved or (many and repeats):
        name = next((n for n in moved if "id" in n.lower()), (moved or many)[0])
        said = f"{name} names the examples, and its order differs {where}: "
        return [Doubt("row-order", said + f"add --id-column {name}")]
    said = f"has the same values in another order {where}: give ids"
    return [Doubt("row-order", f"{name} {said}") for name in many[:1]]
