"""Which rows of two versions, and of files about them, belong together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from churn_compare.array_files import ArrayFileError
from churn_compare.example_ids import PredictionsError, match_ids, rows_of, some
from churn_compare.reading.account import Doubt, settle
from churn_compare.reading.ids import counts_rows
from churn_compare.reading.labels import NO_CLUSTER, ExampleValues, as_text
from churn_compare.reading.spelling import similar_ids

if TYPE_CHECKING:
    from churn_compare.pair import Side
    from churn_compare.reading.outcomes import Outcomes

    Version = Side | Outcomes


_FEW = 10  # values of a column; of fewer, two versions may have as many by chance
_MOVED = 0.1  # of the rows; fewer may be changed predictions


class Rows:
    """Which rows of two versions, and of files about them, are of one example."""

    def __init__(
        self, old: "Version", new: "Version", intersect: bool, confirm: Sequence[str]
    ):
        self._intersect, self._confirm = intersect, confirm
        self.notes: list[str] = []
        old_ids, new_ids = _ids(old, new), _ids(new, old)
        self._has_ids = old_ids is not None
        self._index = old.index and new.index
        if (old_ids is None) != (new_ids is None):
            having, lacking = (new, old) if old_ids is None else (old, new)
            what = "an index" if having.index else "ids"
            no = "none" if lacking.ids is None else "only numbers of its rows"
            raise PredictionsError(
                f"{having.name} has {what} and {lacking.name} has {no}; give the ids "
                f"of {lacking.name}, in the order of its rows"
            )
        if old_ids is None or new_ids is None:
            self._others, self._repeats = old.others(), old.repeats
            self._check_order(new.others(), f"between {old.name} and {new.name}")
            if old.examples != new.examples:
                raise PredictionsError(
                    f"{old.name} has {old.examples} examples and {new.name} "
                    f"{new.examples}; without ids they cannot be matched"
                )
            self.ids = self.old = self.new = np.arange(old.examples)
            self.notes.append(_in_one_order(old, new))
            self._one_order = True
            return
        self.notes += [
            f"{side.name} has no column of ids: its index is taken for them."
            for side in (old, new)
            if side.index
        ]
        found = match_ids(old_ids, new_ids)
        self.ids, self.old, self.new = found.ids, found.rows_a, found.rows_b
        self._one_order = np.array_equal(self.old, self.new)
        parts = [
            f"{len(only):,} of {side.examples:,} ids are only in {side.name} (for "
            f"example {some(only)})"
            for side, only in ((old, found.only_a), (new, found.only_b))
            if len(only)
        ]
        if parts:
            self._one_order = False
            self._go_on("; ".join(parts) + similar_ids(found.only_a, found.only_b))

    def _check_order(self, others: Mapping[str, Any], where: str) -> None:
        doubts = row_order_doubts(self._others, others, where, self._repeats)
        self.notes += settle(doubts, self._confirm)

    def _go_on(self, why: str) -> None:
        """Continues with the remaining examples, if the user allows it."""
        if not len(self.ids):
            raise PredictionsError(f"{why}; no example is left to compare")
        if not self._intersect:
            raise PredictionsError(
                f"{why}; to compare only the {len(self.ids):,} that are everywhere, "
                "use --on-missing intersect"
            )
        self.notes.append(f"{why}: {len(self.ids):,} examples are compared.")

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

    def clusters_of(self, separate: ExampleValues) -> np.ndarray:
        """The number of each example's cluster; `NO_CLUSTER` without a value."""
        assert separate.clusters is not None
        return np.append(separate.clusters, NO_CLUSTER)[
            self.rows_in(separate, "clusters")
        ]

    def rows_in(
        self, separate: ExampleValues, what: str, *, drop: bool = False
    ) -> np.ndarray:
        """The row of each example in a separate file; one it lacks has -1, or goes."""
        ids = self._ids_of(separate)
        if ids is None:
            others = separate.slices or separate.others
            return self._in_row_order(separate.size, what, others)
        rows = self._found(ids, what)
        kept = rows >= 0
        allow = separate.labels is not None and not drop  # labels of some are enough
        if not kept.all() and not (allow and kept.any()):
            lacking = self.ids[~kept]
            if drop:
                self.ids, self.old = self.ids[kept], self.old[kept]
                self.new, rows = self.new[kept], rows[kept]
                self._one_order = False
            self._go_on(
                f"the {what} lack {len(lacking):,} of {len(kept):,} ids (for example "
                f"{some(lacking)}){similar_ids(lacking, ids)}"
            )
        return rows

    def _ids_of(self, separate: ExampleValues) -> np.ndarray | None:
        """Ids of a separate file; None if its index does not identify examples."""
        if separate.ids is None or not separate.index:
            return separate.ids
        if not (self._index or (self._has_ids and not counts_rows(separate.ids))):
            return None
        found = rows_of(self.ids, separate.ids) >= 0
        partly = found.any() and not counts_rows(separate.ids)
        return separate.ids if found.all() or partly else None

    def _in_row_order(
        self, count: int, what: str, others: Mapping[str, Any]
    ) -> np.ndarray:
        """Rows of a file without ids, if it is clear what they belong to."""
        if not self._one_order:
            raise PredictionsError(
                f"the {what} have no ids, but the two sides do not have the same "
                f"examples in the same order; give ids with the {what}"
            )
        if count != len(self.ids):
            raise PredictionsError(
                f"the {what} are of {count:,} examples, the predictions of "
                f"{len(self.ids):,}"
            )
        if self._has_ids:
            self.notes.append(
                f"The {what} have no ids: they are matched by their rows."
            )
        else:
            self._check_order(others, f"in the {what}")
        return self.old

    def _found(self, ids: np.ndarray, what: str) -> np.ndarray:
        """The row of each example in a file with ids; -1 if it has none."""
        if not (self._has_ids or self._index):
            raise PredictionsError(
                f"the {what} have ids, but the predictions have none; give ids for them"
            )
        rows = rows_of(self.ids, ids)
        if further := len(ids) - np.count_nonzero(rows >= 0):
            self.notes.append(
                f"The {what} have {further:,} further ids, which are not compared."
            )
        return rows


def _ids(side: "Version", other: "Version") -> np.ndarray | None:
    """Ids of a side; None if its index only counts the rows."""
    if side.ids is None or not side.index or not counts_rows(side.ids):
        return side.ids
    if other.ids is None or not other.index or counts_rows(other.ids):
        return None
    permuted = np.array_equal(np.sort(other.ids), side.ids)
    return side.ids if permuted else None


def _in_one_order(old: "Version", new: "Version") -> str:
    """The note if examples are matched by the order of the rows alone."""
    if old.truth and new.truth:  # which must agree
        return (
            f"There are no ids: examples are matched by their rows, in which the "
            f"{old.truth} of both agree."
        )
    return (
        "Warning: there are no ids, so examples are matched by their rows. If one of "
        "the two lists them in another order, every number here is wrong; name the "
        "column of ids, or give ids."
    )


def row_order_doubts(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str, repeats: bool = False
) -> list[Doubt]:
    """A doubt if one of the columns has the values of both sides in another order."""
    moved, repeated, many = [], {}, []
    for name in old:
        if name not in new:
            continue
        try:
            a, b = codes = _codes(name, old[name], new[name])
        except (PredictionsError, ArrayFileError):
            continue  # lists, for example
        once = all(len(np.unique(of)) == len(of) for of in codes)
        if np.array_equal(a, b):
            if once and not _counts(as_text(old[name], name).to_pylist()):
                return []
        elif once and len(np.intersect1d(a, b)) > len(a) / 2:
            moved.append(name)
        elif not once and np.array_equal(np.sort(a), np.sort(b)):
            repeated[name] = codes
            if len(np.unique(a)) >= _FEW and np.mean(a != b) > _MOVED:
                many.append(name)
    if not moved and len(repeated) > 1:
        sides = [np.stack(side) for side in zip(*repeated.values(), strict=True)]
        a, b = (np.unique(side, axis=1) for side in sides)
        if np.array_equal(a, b) and a.shape == sides[0].shape:
            said = (
                f"{' and '.join(repeated)} together name the examples, and their order "
                f"differs {where}: write them into one column called id (levels of an "
                "index, too)"
            )
            return [Doubt("row-order", said)]
    if moved or (many and repeats):
        name = next((n for n in moved if "id" in n.lower()), (moved or many)[0])
        said = f"{name} names the examples, and its order differs {where}: "
        return [Doubt("row-order", said + f"add --id-column {name}")]
    said = f"has the same values in another order {where}: give ids"
    return [Doubt("row-order", f"{name} {said}") for name in many[:1]]


def _codes(name: str, *columns: Any) -> list[np.ndarray]:
    """The columns as codes; equal values have equal ones."""
    import pyarrow as pa

    texts = [as_text(column, name) for column in columns]
    chunks = [chunk for text in texts for chunk in getattr(text, "chunks", [text])]
    both = pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode()
    return np.split(both.indices.to_numpy(), [len(texts[0])])


def _counts(texts: list[str]) -> bool:
    first = int(texts[0] != "0")
    return texts == [str(number) for number in range(first, first + len(texts))]
