"""Arrays of a script or a notebook as checked splits.

Pixels, tables and labels come as NumPy, JAX or PyTorch arrays, pandas frames or lists.
What is unambiguous is converted; anything else is refused in one sentence.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from churn_jax.data.npz_source import cut_pool
from churn_jax.data.splits import DataError, Split, check_split, first_line
from churn_jax.data.text import of_length, text_split


class Part(NamedTuple):
    """Unchecked examples of one split.

    Attributes:
        images: pixels `[N, H, W, C]` or uint8 `[N, H, W]`, a table, or token ids.
        labels: class numbers, strings or booleans `[N]`, or one-hot `[N, C]`.
        ids: as for `Split`; None makes them up.
        tokens: whether `images` are token ids `[N, L]`.
    """

    images: Any
    labels: Any
    ids: Any = None
    tokens: bool = False


class Uncut(NamedTuple):
    """A source's own splits, before validation examples are held out.

    Attributes:
        splits: `train`, `test` and perhaps `validation`.
        num_classes: None where the labels decide.
        class_names: as in `Dataset`.
        notes: as in `Dataset`.
    """

    splits: dict[str, Split]
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def checked_parts(parts: Mapping[str, Part]) -> Uncut:
    """The splits of `parts`, of which `train` is there; without `test` it is cut."""
    check_columns({name: part.images for name, part in parts.items()})
    where = {name: _where(name, parts) for name in parts}
    raw = {name: (where[name], part.labels) for name, part in parts.items()}
    labels, classes, class_names, notes = as_labels(raw, "train")
    splits = {n: _split(where[n], part, labels[n]) for n, part in parts.items()}
    if all(part.tokens for part in parts.values()):
        longest = max(split.images.shape[1] for split in splits.values())
        splits = {
            name: replace(split, images=of_length(split.images, longest))
            for name, split in splits.items()
        }
    if "test" not in splits:
        pool = splits["train"]
        splits |= cut_pool(pool)
        held = len(splits["test"])
        notes += (pool_note(len(pool), held),)
    return Uncut(splits, classes, class_names, notes)


def check_columns(images: Mapping[str, Any]) -> None:
    """Refuses frames whose columns are others, or in another order, in some split."""
    columns = {n: list(x.columns) for n, x in images.items() if _is_frame(x)}
    first = next(iter(columns), "")
    for name, own in columns.items():
        if own != columns[first]:
            other = sorted(set(map(str, own)) ^ set(map(str, columns[first])))
            shown = ", ".join(other[:3]) + (", ..." if len(other) > 3 else "")
            why = f"only one has {shown}" if other else "their order differs"
            raise DataError(
                f"{first} and {name} must have the same columns in one order; {why}: "
                "encode both together, or reindex(columns=...)"
            )


def _is_frame(values: Any) -> bool:
    return hasattr(values, "columns") and hasattr(values, "dtypes")


def pool_note(count: int, held: int) -> str:
    """What is said of a pool whose test examples are held out of it."""
    return (
        f"No test examples were given: {held:,} of the {count:,} examples (20 %) are "
        "held out for testing, the same ones every time."
    )


def as_labels(
    raw: Mapping[str, tuple[str, Any]], train: str
) -> tuple[dict[str, np.ndarray], int | None, tuple[str, ...], tuple[str, ...]]:
    """Labels as numbers, their classes and names if these are known, and notes.

    `raw` has what messages call the labels, and these; strings are numbered in the
    sorted order of those at `train`.
    """
    labels = {name: _as_labels(*given) for name, given in raw.items()}
    classes, class_names, notes = None, (), ()
    if labels[train].dtype.kind == "U":
        class_names = tuple(np.unique(labels[train]).tolist())
        classes = len(class_names)
        labels = {n: _numbered(raw[n][0], y, class_names) for n, y in labels.items()}
        listed = ", ".join(f"{i} {name!r}" for i, name in enumerate(class_names[:10]))
        more = ", ..." if classes > 10 else ""
        notes = (f"Classes are numbered in sorted order: {listed}{more}.",)
    widths = {raw[n][0]: y.shape[1] for n, y in labels.items() if y.ndim == 2}
    if len(set(widths.values())) > 1:
        raise DataError(f"one-hot labels must have one number of classes; got {widths}")
    if widths:
        classes = classes or next(iter(widths.values()))
        labels = {n: y.argmax(1) if y.ndim == 2 else y for n, y in labels.items()}
    return labels, classes, class_names, notes


def _where(name: str, parts: Mapping[str, Part]) -> str:
    # Ids tell the row in what was given, so they must not name the split of a cut pool.
    return "pool" if name == "train" and "test" not in parts else name


def _split(where: str, part: Part, labels: np.ndarray) -> Split:
    images = as_images(where, part.images)
    ids = None if part.ids is None else as_array(where, "ids", part.ids)
    if ids is not None and ids.dtype == object and _all(ids, str):
        ids = ids.astype(str)
    if not part.tokens:
        return check_split(where, images, labels, ids)
    if images.ndim != 2 or not np.issubdtype(images.dtype, np.integer):
        raise DataError(
            f"{where}: token ids must be integers [N, L], padded with 0; got "
            f"{images.dtype} of shape {images.shape}"
        )
    if images.min(initial=0) < 0 or images.max(initial=0) >= 2**31:
        raise DataError(f"{where}: token ids must be at least 0 and below 2^31")
    return text_split(where, images.astype(np.int32), labels, ids)


def as_array(where: str, what: str, values: Any) -> np.ndarray:
    """The NumPy array of anything that has one; `where` and `what` are for messages."""
    try:
        array = np.asarray(values)
    # Whatever the library of the array raises: of a device, of gradients, of a mesh.
    except Exception as error:
        raise DataError(
            f"{where}: {what} cannot be read as one array ({first_line(error)})"
        ) from error
    if np.ma.is_masked(values):
        raise DataError(f"{where}: {what} have masked entries; fill or remove them")
    if array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat16", "float8")):
        return array.astype(np.float32)
    return array


def as_images(where: str, values: Any) -> np.ndarray:
    """Pixels with a channel axis, or numbers of a table."""
    if _is_frame(values):
        values = _table(where, values)
    images = as_array(where, "images", values)
    if images.dtype == object:
        kind = type(images.flat[0]).__name__ if images.size else "nothing"
        raise DataError(f"{where}: images must be numbers; got objects ({kind})")
    if images.dtype == bool:
        return images.astype(np.float32)
    if images.dtype == np.uint8 and images.ndim == 3:
        return images[..., None]  # grey; floats [N, A, B] could be sequences
    return images


def _table(where: str, frame: Any) -> np.ndarray:
    """A pandas frame whose columns are numbers or booleans, float32."""
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    words = [
        str(name) for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"
    ]
    if words:
        shown = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
        raise DataError(
            f"{where}: all columns must be numbers; got {len(words)} that are not "
            f"({shown}): encode them, for example with pandas.get_dummies"
        )
    try:
        return np.asarray(frame, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: the table has missing values; fill or remove them"
        ) from error


def _as_labels(where: str, values: Any) -> np.ndarray:
    """Class numbers or strings `[N]`, or one-hot `[N, C]`."""
    labels = as_array(where, "labels", values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype == object:
        labels = _plain_labels(where, labels)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "U" and labels.size and np.char.isdecimal(labels).all():
        raise DataError(
            f"{where}: labels are numbers written as strings, such as "
            f"{labels.flat[0].item()!r}; give them as integers"
        )
    if labels.ndim == 2 and labels.dtype.kind in "biuf":
        one_hot = ((labels == 0) | (labels == 1)).all(1) & (labels.sum(1) == 1)
        if not one_hot.all():
            raise DataError(
                f"{where}: labels [N, C] must be one-hot; those at position "
                f"{int(np.argmin(one_hot))} are not (of probabilities take argmax(-1))"
            )
    elif labels.dtype == bool:
        return labels.astype(np.int32)
    return labels


def _plain_labels(where: str, labels: np.ndarray) -> np.ndarray:
    """Objects, as pandas has them, as strings or integers."""
    if _all(labels, str):
        return labels.astype(str)
    if _all(labels, (int, np.integer)):
        return labels.astype(np.int64)
    other = next(i for i, v in enumerate(labels.flat) if not isinstance(v, str))
    raise DataError(
        f"{where}: labels must be integers, or all of them strings; got "
        f"{labels.flat[other]!r} at position {other}"
    )


def _all(values: np.ndarray, kind: Any) -> bool:
    return all(isinstance(value, kind) for value in values.flat)


def _numbered(where: str, labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The places of strings among the sorted `names`."""
    if labels.dtype.kind != "U":
        raise DataError(
            f"{where}: labels must be strings, as in the training split; got "
            f"{labels.dtype}"
        )
    known = np.isin(labels, names)
    if not known.all():
        at = int(np.argmin(known))
        raise DataError(
            f"{where}: label {labels[at].item()!r} at position {at} is not among those "
            f"of the training split ({', '.join(map(repr, names[:10]))})"
        )
    return np.searchsorted(names, labels)
