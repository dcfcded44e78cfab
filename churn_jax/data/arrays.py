"""Arrays of a script, a notebook or an `.npz` file as checked splits.

Pixels, tables and labels come as NumPy, JAX or PyTorch arrays, pandas frames or lists.
What is unambiguous is converted; anything else is refused in one sentence.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from churn_compare.array_files import ArrayFileError, NpzArrays
from churn_jax.data.splits import DataError, Split, check_split, first_line, hold_out
from churn_jax.data.text import TextOptions, of_length, text_split, token_rows

SPLITS = ("train", "validation", "test")
_TEST_FRACTION = 0.2
_LAYOUTS = (
    "train_image, train_label, test_image, test_label (optionally train_id, test_id "
    "and validation_*; plurals are fine), images, labels (optionally ids, split), or "
    "train_tokens, train_offsets, train_label, test_*"
)


class Part(NamedTuple):
    """Unchecked examples of one split."""

    images: Any  # pixels `[N, H, W, C]` or uint8 `[N, H, W]`, a table, or token ids
    labels: Any  # class numbers, strings or booleans `[N]`, or one-hot `[N, C]`
    ids: Any = None  # as for `Split`; None makes them up
    tokens: bool = False  # True if `images` are token ids `[N, L]`


class Uncut(NamedTuple):
    """A source's own splits, before validation examples are held out."""

    splits: dict[str, Split]  # `train`, `test` and perhaps `validation`
    num_classes: int | None = None  # None where the labels decide
    class_names: tuple[str, ...] = ()  # as in `Dataset`
    notes: tuple[str, ...] = ()  # as in `Dataset`


@contextlib.contextmanager
def open_npz(path: str | Path) -> Iterator[NpzArrays]:
    """The arrays of a file, which can be read inside; errors are `DataError`s."""
    if not Path(path).is_file():
        raise DataError(f"there is no file {path}")
    try:
        yield NpzArrays(Path(path))
    except (ArrayFileError, OSError) as error:
        raise DataError(f"{path} cannot be read as an .npz file: {error}") from error


def named_arrays(
    what: str, arrays: Mapping[str, Any], text: TextOptions | None
) -> Uncut:
    """The splits of arrays by the names that a file has; `what` is for messages.

    Texts keep their length if `text` is None.
    """
    # `train_images` and `train_image` are one key; so are `labels` and `label`.
    keys = {str(key).removesuffix("s") for key in arrays}
    unread = {str(key) for key in arrays if key != "num_classes"}

    def get(name: str) -> Any:
        given = [key for key in arrays if str(key).removesuffix("s") == name]
        if len(given) > 1:
            raise DataError(f"{what}: {' and '.join(given)} are one array; give one")
        unread.difference_update(map(str, given))
        return arrays[given[0]] if given else None

    def part(prefix: str, kind: str) -> Part:
        return Part(*(get(f"{prefix}{name}") for name in (kind, "label", "id")))

    classes, parts, names = _declared_classes(what, arrays), {}, None
    if "train_token" in keys:
        for split in SPLITS[:: 1 if "validation_token" in keys else 2]:
            if not {f"{split}_token", f"{split}_label"} <= keys:
                raise DataError(
                    f"{what}: texts need {split}_tokens and {split}_label; found "
                    f"{', '.join(map(str, arrays))}"
                )
            given, offsets = part(f"{split}_", "token"), get(f"{split}_offset")
            offsets = None if offsets is None else np.asarray(offsets)
            try:
                rows = token_rows(split, np.asarray(given.images), offsets, text)
            except DataError as error:
                raise DataError(f"{what}: {error}") from error
            parts[split] = given._replace(images=rows, tokens=True)
    elif {"train_image", "train_label", "test_image", "test_label"} <= keys:
        for split in SPLITS:
            if {f"{split}_image", f"{split}_label"} <= keys:
                parts[split] = part(f"{split}_", "image")
    elif {"image", "label"} <= keys:
        # Ids are given before the pool is cut, so they tell the row in the file.
        parts["train"] = part("", "image")
        names = get("split")
    if not parts or unread:
        found = ", ".join(map(str, arrays)) or "none"
        found += f" ({', '.join(sorted(unread))} would not be read)" if parts else ""
        raise DataError(f"{what} must hold {_LAYOUTS}; found {found}")
    return checked_parts(parts, num_classes=classes, names=names)


def _declared_classes(what: str, arrays: Mapping[str, Any]) -> int | None:
    if (given := arrays.get("num_classes")) is None:
        return None
    declared = np.asarray(given)
    if declared.size != 1 or not np.issubdtype(declared.dtype, np.integer):
        raise DataError(
            f"{what}: num_classes must be one integer; got {declared.tolist()!r}"
        )
    return int(declared.item())


def checked_parts(
    parts: Mapping[str, Part], *, num_classes: int | None = None, names: Any = None
) -> Uncut:
    """The splits of `parts`, of which `train` is there; without `test` it is cut.

    `names [N]` are the splits of a pool's examples; None holds out a fifth of them.
    """
    _check_columns(parts)
    # Ids tell the row in what was given, so they must not name the split of a cut pool.
    where = {n: "pool" if n == "train" and "test" not in parts else n for n in parts}
    labels = {n: _labels(where[n], part.labels) for n, part in parts.items()}
    classes, class_names, notes = None, (), ()
    if labels["train"].dtype.kind == "U":
        class_names = tuple(np.unique(labels["train"]).tolist())
        classes = len(class_names)
        labels = {n: _numbered(where[n], y, class_names) for n, y in labels.items()}
        listed = ", ".join(f"{i} {name!r}" for i, name in enumerate(class_names[:10]))
        more = ", ..." if classes > 10 else ""
        notes = (f"Classes are numbered in sorted order: {listed}{more}.",)
    widths = {where[n]: y.shape[1] for n, y in labels.items() if y.ndim == 2}
    if len(set(widths.values())) > 1:
        raise DataError(f"one-hot labels must have one number of classes; got {widths}")
    if widths:
        classes = classes or next(iter(widths.values()))
        labels = {n: y.argmax(1) if y.ndim == 2 else y for n, y in labels.items()}
    splits = {n: _split(where[n], part, labels[n]) for n, part in parts.items()}
    if all(part.tokens for part in parts.values()):
        longest = max(split.images.shape[1] for split in splits.values())
        splits = {
            name: Split(of_length(split.images, longest), split.labels, split.ids)
            for name, split in splits.items()
        }
    if "test" not in splits:
        pool = splits["train"]
        splits |= _cut_pool(pool, names)
        if names is None:
            notes += (
                f"No test examples were given: {len(splits['test']):,} of the "
                f"{len(pool):,} examples (20 %) are held out for testing, the same "
                "ones every time.",
            )
    if num_classes is not None and classes not in (None, num_classes):
        raise DataError(f"there are {classes} classes; got num_classes={num_classes}")
    classes = classes if num_classes is None else num_classes
    every = classes or 1 + max(split.labels.max() for split in splits.values())
    for name, split in splits.items():
        if name != "train" and _within(split.images, splits["train"].images):
            notes += (f"All {name} examples are among the training examples, too.",)
        absent = every - len(np.unique(split.labels))
        if absent and name != "validation":
            notes += (f"Classes without a {name} example: {absent} of {every}.",)
    return Uncut(splits, classes, class_names, notes)


def _cut_pool(pool: Split, names: Any) -> dict[str, Split]:
    count = len(pool)
    if names is None:
        kept, held = hold_out(count, round(count * _TEST_FRACTION))
        parts = {"train": np.sort(kept), "test": held}
    else:
        names = _strings(np.asarray(names))
        if names.shape != (count,) or names.dtype.kind != "U":
            raise DataError(
                f"split must hold one string per example, ({count},); got shape "
                f"{names.shape} of {names.dtype}"
            )
        unknown = sorted(set(np.unique(names).tolist()) - set(SPLITS))
        if unknown:
            raise DataError(
                f"split must be one of {', '.join(SPLITS)}; got {unknown[0]!r}"
            )
        parts = {name: np.flatnonzero(names == name) for name in SPLITS}
    for name in ("train", "test"):
        if not len(parts[name]):
            raise DataError(f"{name}: the split is empty ({count} examples in all)")
    return {name: pool.take(rows) for name, rows in parts.items() if len(rows)}


def _check_columns(parts: Mapping[str, Part]) -> None:
    """Refuses frames whose columns are others, or in another order, in some split."""
    frames = {n: part.images for n, part in parts.items() if _is_frame(part.images)}
    columns = {name: list(frame.columns) for name, frame in frames.items()}
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


def _split(where: str, part: Part, labels: np.ndarray) -> Split:
    ids = None if part.ids is None else as_array(where, "ids", part.ids)
    if ids is not None and ids.dtype == object and _all(ids, str):
        ids = ids.astype(str)
    images = _images(where, part.images)
    if part.tokens:
        rows = token_rows(where, images, None, None)
        return text_split(where, rows, labels, ids)
    return check_split(where, images, labels, ids)


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
    if array.dtype.kind == "U" and isinstance(values, (list, tuple)):
        objects = np.array(values, object)  # NumPy writes 1 and nan as words
        return array if _all(objects, (str, bytes)) else objects
    return array


def _within(some: np.ndarray, every: np.ndarray) -> bool:
    """True if all rows of one array are rows of the other."""
    sums = (x.reshape(len(x), -1).sum(1, dtype=np.float64) for x in (some, every))
    found = bool(np.isin(*sums).all())  # only then rows are looked at one by one
    seen = {hash(row.tobytes()) for row in every} if found else ()
    return found and all(hash(row.tobytes()) in seen for row in some)


def _images(where: str, values: Any) -> np.ndarray:
    """Pixels with a channel axis, or numbers of a table."""
    if _is_frame(values):
        values = _table(where, values)
    images = as_array(where, "images", values)
    if images.dtype.kind not in "biuf":
        kind = type(images.flat[0]).__name__ if images.size else "nothing"
        raise DataError(
            f"{where}: images must be real numbers; got {images.dtype} ({kind})"
        )
    if images.dtype == bool:
        return images.astype(np.float32)
    if images.dtype == np.uint8 and images.ndim == 3:
        return images[..., None]  # grey; floats [N, A, B] could be sequences
    return images


def _table(where: str, frame: Any) -> np.ndarray:
    """A pandas frame whose columns are numbers or booleans."""
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
        return np.asarray(frame, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: the table has missing values; fill or remove them"
        ) from error


def _labels(where: str, values: Any) -> np.ndarray:
    """Class numbers or strings `[N]`, or one-hot `[N, C]`."""
    labels = as_array(where, "labels", values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype == object:  # as pandas has them
        words = labels.size and isinstance(labels.flat[0], str)
        kind: Any = str if words else (int, np.integer)
        if not _all(labels, kind):
            at = next(i for i, v in enumerate(labels.flat) if not isinstance(v, kind))
            raise DataError(
                f"{where}: labels must be integers, or all of them strings; got "
                f"{labels.flat[at]!r} at position {at}"
            )
        labels = labels.astype(str if words else np.int64)
    labels = _strings(labels)
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


def _strings(values: np.ndarray) -> np.ndarray:
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


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
