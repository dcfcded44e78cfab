"""`load_streaming`: a TFDS set of any size as streams of crops, without loading it."""

import contextlib
import pathlib
import zipfile
from collections.abc import Callable

import numpy as np

from churn_compare.array_files import replace_file
from churn_jax.data.cutting import cut
from churn_jax.data.records import (
    EncodedImages,
    Reading,
    StreamedSplit,
    StreamingDataset,
    stream_fingerprint,
)
from churn_jax.data.sources import is_tfds
from churn_jax.data.splits import (
    ChannelStatistics,
    DataError,
    check_classes,
    check_ids,
    check_labels,
)

# Of the training set of ImageNet on the 0..1 scale, as published with most networks.
IMAGENET_STATISTICS = ChannelStatistics(
    np.array([0.485, 0.456, 0.406], np.float32),
    np.array([0.229, 0.224, 0.225], np.float32),
)

_LARGE = ("imagenet2012", "i_naturalist2017", "i_naturalist2018")
_MOST_HELD = 10_000
_CHUNK = 256


def is_streaming(
    name_or_path: str | pathlib.Path, *, data_dir: str | pathlib.Path | None = None
) -> bool:
    """True if a set is for `load_streaming`: its images have no fixed size.

    Args:
        name_or_path: as for `load`.
        data_dir: where TFDS sets are prepared.

    Returns:
        True for `imagenet2012`, `i_naturalist2017`, `i_naturalist2018` and every TFDS
        set whose images vary in size; False for the rest and for unknown names, of
        which `load` says what is wrong.

    Example:
        >>> is_streaming("imagenet2012"), is_streaming("digits")
        (True, False)
    """
    if not is_tfds(name_or_path):
        return False
    name = str(name_or_path).removeprefix("tfds:")
    if name.split("/")[0].split(":")[0] in _LARGE:
        return True
    from churn_jax.data.tfds_source import image_size, make_builder

    try:
        shape = image_size(make_builder(name, data_dir))
    except DataError:
        return False
    return shape is not None and None in shape


def load_streaming(
    name: str,
    *,
    data_dir: str | pathlib.Path | None = None,
    manual_dir: str | pathlib.Path | None = None,
    image_size: int = 224,
    validation: int | float | None = None,
    train_size: int | None = None,
    reading: Reading = Reading(),
    on_progress: Callable[[str, int, int], None] = lambda split, done, total: None,
) -> StreamingDataset:
    """A TFDS set whose images are read, decoded and cropped when they are needed.

    The set is cut as `load` cuts one. Labels and ids are held in memory; the first
    time, they take one pass over the records, and are then kept next to the prepared
    files (`churn_jax_<split>.npz`) where that folder can be written.

    Args:
        name: a TFDS name, plain or with the prefix `tfds:`. `imagenet2012` and
            `i_naturalist*` are tested on their validation split, since their test
            split has no labels.
        data_dir: as for `load`, and so are `manual_dir` and `train_size`.
        image_size: side of the square images in pixels.
        validation: as for `load`, but None takes at most 10,000 examples.
        reading: threads and processes that read.
        on_progress: called with `(split, records read, of how many)` in the first
            pass.

    Returns:
        Splits with images `[image_size, image_size, 3]` uint8; training images are
        `random_crop`s, all others `centre_crop`s.

    Raises:
        DataError: the source cannot be read or used; one sentence says why.
    """
    if image_size < 1:
        raise DataError(f"image_size must be at least 1 pixel; got {image_size}")
    plain = name.removeprefix("tfds:")
    if manual_dir is not None:
        from churn_jax.data.prepare import prepare

        prepare(plain, data_dir=data_dir, manual_dir=manual_dir)
    # Importing tensorflow-datasets takes time that others need not pay.
    from churn_jax.data import tfds_source

    builder = tfds_source.prepared_builder(plain, data_dir)
    splits = {}
    for ours, theirs in tfds_source.split_names(builder, plain).items():
        records = tfds_source.TfdsRecords(builder, plain, theirs, encoded=True)
        where = f"{plain} {theirs}"
        labels, ids = _labels_and_ids(
            pathlib.Path(builder.data_dir), theirs, records, on_progress
        )
        splits[ours] = StreamedSplit(
            where,
            check_labels(where, labels),
            check_ids(where, ids, len(labels)),
            np.arange(len(labels)),
            EncodedImages(records, image_size),
            reading,
        )
    classes = check_classes(splits, tfds_source.class_count(builder))
    if validation is None and "validation" not in splits:
        validation = min(round(len(splits["train"]) / 10), _MOST_HELD)
    train, held = cut(plain, splits, validation, train_size)
    return StreamingDataset(
        name=name,
        train=train,
        validation=held,
        test=splits["test"],
        num_classes=classes,
        fingerprint=stream_fingerprint(train, held, splits["test"]),
    )


def _labels_and_ids(
    folder: pathlib.Path, split: str, records, on_progress
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and ids of all records, from the file kept with them or by a pass."""
    kept = folder / f"churn_jax_{split}.npz"
    try:
        with kept.open("rb") as file, np.load(file) as stored:
            labels, ids = stored["labels"], stored["ids"]
        if len(labels) == len(ids) == len(records):
            return labels, ids
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # not there, or cut off by a full disk: read again
    count = len(records)
    labels, names = np.empty(count, np.int64), []
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        for i, record in enumerate(records.chunk(start, stop), start):
            labels[i] = record["label"]
            names.append(record["id"])
        on_progress(split, stop, count)
    ids = np.asarray(names)
    with contextlib.suppress(OSError), replace_file(kept) as file:
        np.savez_compressed(file, labels=labels, ids=ids)
    return labels, ids
