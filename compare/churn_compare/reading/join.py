"""Two versions brought together: the same examples and classes, one set of labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from churn_compare.example_ids import PredictionsError, errors_of, some
from churn_compare.labelling import read_drawn
from churn_compare.pair import Kind, Pair, Side
from churn_compare.reading.account import Doubt, settle
from churn_compare.reading.class_alignment import Alignment, align_classes
from churn_compare.reading.class_values import NO_LABEL, ClassValues, without_space
from churn_compare.reading.ids import ids_without_space
from churn_compare.reading.labels import (
    DRAWN_FROM,
    from_zero,
    read_clusters,
    read_labels,
    read_slices,
)
from churn_compare.reading.rows import Rows
from churn_compare.reading.sides import read_side, side_names
from churn_compare.reading.spelling import similar_classes, stripped
from churn_compare.store import sample_rows, sampled


def join(
    old: Side,
    new: Side,
    *,
    labels: Any = None,
    slices: Any = None,
    clusters: Any = None,
    class_map: Any = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    strip: bool = False,
    id_column: str | None = None,
    label_column: str | None = None,
) -> Pair:
    """Joins two versions example by example and class by class.

    Examples are matched by id and come in ascending order of ids, so that the order of
    rows changes no number; without ids on either side, by row. Classes are matched by
    name, or by number where neither side has names; see `align_classes`.

    Args:
        old: the version in use.
        new: the one that is to replace it.
        labels: separate labels, see `read_labels`, which must agree with the sides'.
        slices: separate slices, see `read_slices`.
        clusters: `[N]` values or a mapping of ids to them; equal ones belong together.
        class_map: see `read_class_map`.
        on_missing: "intersect" goes on with the examples that are everywhere.
        confirm: names of doubts that are right as they are.
        strip: leaves out space around ids and names of classes.
        id_column: name of the ids in the other files, if it is not a usual one.
        label_column: name of the labels in their file, if it is not a usual one.

    Raises:
        PredictionsError: examples, classes or labels do not fit together.

    Example:
        >>> sides = (
        ...     Side(name, "classes", np.array([values]), ids=np.array(ids))
        ...     for name, values, ids in (("a", [0, 1], [7, 5]), ("b", [1, 0], [5, 7]))
        ... )
        >>> pair = join(*sides, labels={5: 1, 7: 0})
        >>> pair.ids, pair.old_rows, pair.new_rows, pair.labels
        (array([5, 7]), array([1, 0]), None, array([1, 0]))
    """
    if on_missing not in ("error", "intersect"):
        raise PredictionsError(
            f"on_missing must be 'error' or 'intersect'; got {on_missing!r}"
        )

    def tidy(found: Any, what: str) -> Any:
        if not strip:
            return found
        with errors_of(what):
            return found._replace(ids=ids_without_space(found.ids))

    if strip:
        old, new = _without_space(old), _without_space(new)
    old, new = _named_numbers(old, new)
    rows = Rows(old, new, on_missing == "intersect", confirm)
    separate_labels, drawn = None, None
    if labels is not None:
        separate = tidy(read_labels(labels, id_column, label_column), "labels")
        truth = separate.labels
        truth = without_space(truth, "labels") if strip else truth
        drop = on_missing == "intersect" and DRAWN_FROM not in separate.others
        of = rows.rows_in(separate, "labels", drop=drop)
        numbers = np.append(truth.numbers, NO_LABEL)[of]
        separate_labels = ClassValues(numbers, truth.names)
        drawn = read_drawn(labels, separate.others, of)
    groupings = {}
    if slices is not None:
        groupings = rows.values_of(tidy(read_slices(slices, id_column), "slices"))
    belonging, cluster_column = None, ""
    if clusters is not None:
        found = tidy(read_clusters(clusters, id_column=id_column), "clusters")
        belonging, notes = from_zero(rows.clusters_of(found))
        rows.notes += notes
        cluster_column = found.column
    given = (_labels(old, rows.old), _labels(new, rows.new), separate_labels)
    known_labels = [found and found.numbers != NO_LABEL for found in given]
    own, others, separate = map(_known, given, known_labels)
    aligned = align_classes(
        old,
        new,
        old_labels=own,
        new_labels=others,
        labels=separate,
        class_map=class_map,
    )
    known = (
        np.arange(old.classes) if aligned.old_columns is None else aligned.old_columns,
        np.arange(new.classes),
    )
    sources = (aligned.old_labels, aligned.new_labels, aligned.labels)
    of_all = map(_spread, sources, known_labels)
    names_of = (old.name, new.name, "the separate labels")
    truth = _agreed(*zip(names_of, of_all, strict=True), ids=rows.ids)
    partial = truth is not None and bool((truth == NO_LABEL).any())
    labelled = {c for of in sources if of is not None for c in np.unique(of).tolist()}
    names = aligned.class_names or ()
    similar = similar_classes(names, [of.tolist() for of in known], labelled)
    if len(names) > max(10, len(rows.ids) / 2):
        hint = "; if they are texts, call their column answer"
        similar = [of._replace(sentence=of.sentence + hint) for of in similar]
    doubts = [*_odd_decisions(old, new), *similar]
    return Pair(
        old=old,
        new=new,
        ids=rows.ids,
        classes=aligned.classes,
        old_rows=old.rows_or_none(rows.old),
        new_rows=new.rows_or_none(rows.new),
        old_columns=aligned.old_columns,
        labels=None if partial else truth,
        some_labels=truth if partial else None,
        drawn=drawn,
        class_names=aligned.class_names,
        slices=groupings,
        clusters=belonging,
        cluster_column=cluster_column,
        notes=(
            *rows.notes,
            *_partly(truth, drawn is None),
            *_classes_of_one(old, new, aligned),
            *settle(doubts, confirm),
        ),
    )


def _named_numbers(*sides: Side) -> list[Side]:
    """The sides with names of classes where equal numbers have different ones."""
    names = [side.class_names or side.number_names for side in sides]
    if None in names or (
        names[0] == names[1] and not any(s.class_names for s in sides)
    ):
        return list(sides)
    found = []
    for side in sides:
        known = side.number_names or ()
        fits = side.kind != "classes" or side.values.max() < len(known)
        if side.class_names is None and fits and side.classes <= len(known):
            labels = side.label_names or known
            side = dataclasses.replace(side, class_names=known, label_names=labels)
        found.append(side)
    return found


def _without_space(side: Side) -> Side:
    """The side without space around its ids and the names of its classes."""
    with errors_of(side.name):
        ids = ids_without_space(side.ids)
        changed: dict[str, Any] = {"ids": ids}
        names = side.class_names
        if names is not None and side.kind == "classes":
            found = without_space(ClassValues(side.values, names), "predictions")
            changed["values"] = found.numbers.astype(np.int32)
            changed["class_names"] = found.names
        elif names is not None:
            changed["class_names"] = tuple(map(stripped, names))
            if len(set(changed["class_names"])) < len(names):
                raise PredictionsError("columns of two classes differ only in space")
        if side.labels is not None:
            labels = ClassValues(side.labels, side.label_names)
            labels = without_space(labels, "labels")
            changed["labels"], changed["label_names"] = labels
    return dataclasses.replace(side, **changed)


def _labels(side: Side, rows: np.ndarray) -> ClassValues | None:
    if side.labels is None:
        return None
    return ClassValues(side.labels[rows], side.label_names)


def _odd_decisions(*sides: Side) -> list[Doubt]:
    """Decisions that are seldom the most probable class."""
    found = []
    for side in sides:
        if side.decisions is None:
            continue
        top = sample_rows(side.values).argmax(axis=1)
        differ = side.decisions[0, sampled(side.examples)] != top
        if differ.mean() > 0.5:
            found.append(
                f"{side.name}: {int(differ.sum())} of {differ.size} decisions looked "
                "at are not the most probable class, so the classes may be in another "
                "order; decide by name, or compare decisions alone by --kind classes"
            )
    return [Doubt("decisions", sentence) for sentence in found]


def _classes_of_one(old: Side, new: Side, aligned: Alignment) -> tuple[str, ...]:
    """Notes about classes that only one side has scores for."""
    if "classes" in (old.kind, new.kind):
        return ()  # then it is not known which classes there are
    columns = np.arange(old.classes)
    if aligned.old_columns is not None:
        columns = aligned.old_columns
    names = aligned.class_names or range(aligned.classes)
    only_new = np.setdiff1d(np.arange(new.classes), columns)
    only_old = columns[columns >= new.classes]
    return tuple(
        f"{len(only)} of {side.classes} classes are only in {side.name}: "
        f"{some([names[c] for c in only])}."
        for side, only in ((old, only_old), (new, only_new))
        if len(only)
    )


def _partly(truth: np.ndarray | None, said: bool) -> list[str]:
    """The note if only some examples have labels."""
    count = 0 if truth is None else int((truth != NO_LABEL).sum())
    if truth is None or not said or count == len(truth):
        return []
    return [
        f"{count:,} of {len(truth):,} examples have a label: those that change need "
        "one, and only NFR, PFR and their difference are known."
    ]


def _known(labels: ClassValues | None, known: Any) -> ClassValues | None:
    """The labels of the examples that have one."""
    return labels and ClassValues(labels.numbers[known], labels.names)


def _spread(numbers: np.ndarray | None, known: Any) -> np.ndarray | None:
    """Labels of all examples, `NO_LABEL` for those without one."""
    if numbers is None or known.all():
        return numbers
    found = np.full(len(known), NO_LABEL, np.int64)
    found[known] = numbers
    return found


def _agreed(
    *labels: tuple[str, np.ndarray | None], ids: np.ndarray
) -> np.ndarray | None:
    """The labels, on which all sources must agree."""
    given = [(name, found) for name, found in labels if found is not None]
    if not given:
        return None
    first, labels_of_first = given[0]
    for name, found in given[1:]:
        both = (found != NO_LABEL) & (labels_of_first != NO_LABEL)
        differ = both & (found != labels_of_first)
        if differ.any():
            raise PredictionsError(
                f"labels of {int(differ.sum()):,} of {len(ids):,} examples differ "
                f"between {first} and {name}, for example ids {some(ids[differ])}"
            )
        labels_of_first = np.where(labels_of_first != NO_LABEL, labels_of_first, found)
    return labels_of_first


def read_pair(
    old: Any,
    new: Any,
    *,
    by: Sequence[str] = (),
    kind: Kind | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
    **joining: Any,
) -> Pair:
    """Reads two versions and joins them; `by` are columns of the old one."""
    columns = {"id_column": id_column, "label_column": label_column}
    of_side = {"kind": kind, "prediction_column": prediction_column}
    sides = [
        read_side(given, name, **columns, **of_side)
        for given, name in zip((old, new), side_names(old, new), strict=True)
    ]
    slices = read_slices(old, id_column, only=by) if by else None
    return join(*sides, slices=slices, **columns, **joining)
