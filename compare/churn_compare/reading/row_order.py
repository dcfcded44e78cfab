"""Columns that show that two versions without ids list their examples differently."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from churn_compare.array_files import ArrayFileError
from churn_compare.example_ids import PredictionsError
from churn_compare.reading.account import Doubt
from churn_compare.reading.labels import as_text

_FEW = 10  # values of a column; of fewer, two versions may have as many by chance
_MOVED = 0.1  # of the rows; fewer may be changed predictions


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
