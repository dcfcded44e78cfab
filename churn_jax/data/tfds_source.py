"""TensorFlow Datasets, read by random access and without TensorFlow.

Sets prepared as array_record are read through `as_data_source`, which needs no
TensorFlow. *Preparing* an official image set does: that is the `tfds` extra, and
`churn-jax data` (`prepare.py`). Importing this module imports tensorflow-datasets, so
`load` imports it only when a name asks for it.
"""

import importlib.util
import pathlib

import numpy as np

from churn_compare.suggestions import did_you_mean
from churn_jax.data.digits import NUM_CLASSES, load_digits
from churn_jax.data.object_names import DATASETS
from churn_jax.data.splits import DataError, Split, check_split, first_line
from churn_jax.data.text import TextOptions, read_text_records

# TFDS only logs what it could not import, and fails later with an AttributeError.
_NEEDED = ("tensorflow_datasets", "promise", "importlib_resources", "array_record")
_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
if _missing:
    raise DataError(
        f"data sets of TensorFlow Datasets need {' and '.join(_missing)}: pip install "
        f"{' '.join(_missing)} (.npz files, tables and the embedded digits do not)"
    )

import tensorflow_datasets as tfds  # noqa: E402

from churn_jax.data.tiny_imagenet import TinyImagenet  # noqa: E402

_CHUNK = 1024


class ChurnDigits(tfds.core.GeneratorBasedBuilder):
    """The embedded digits as a TFDS builder, `churn_digits`."""

    # Its image feature is a tensor, not an encoded image, so it is prepared and read
    # without TensorFlow.

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Pixels times 16, clipped to 255; 900 train, 897 test."}  # noqa: RUF012

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="1,797 hand-written digits of 8x8 pixels.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Tensor(shape=(8, 8, 1), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
                    "id": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://doi.org/10.24432/C50P49",
            license="CC BY 4.0",
            citation=(
                "E. Alpaydin and C. Kaynak. Optical Recognition of Handwritten "
                "Digits. UCI Machine Learning Repository, 1998."
            ),
            disable_shuffling=True,  # the order of load_digits
        )

    def _split_generators(self, dl_manager):
        del dl_manager  # the pixels are in the package
        return {name: self._examples(split) for name, split in load_digits().items()}

    def _generate_examples(self, split: Split):
        return self._examples(split)

    @staticmethod
    def _examples(split: Split):
        for i in range(len(split)):
            record = split[i]
            yield i, {**record, "label": int(record["label"]), "id": str(record["id"])}


def make_builder(name: str, data_dir: str | pathlib.Path | None = None):
    """The TFDS builder of `name[/config][:version]`, without using the network."""
    try:
        return tfds.builder(
            name, data_dir=None if data_dir is None else str(data_dir), try_gcs=False
        )
    except tfds.core.DatasetNotFoundError as error:
        base = name.split("/")[0].split(":")[0]
        official = tfds.list_builders(with_community_datasets=False)
        known = ["digits", *DATASETS, *official]
        hint = did_you_mean(base, known, count=3, cutoff=0.6)
        raise DataError(
            f"{name!r} is neither 'digits', a .npz file nor a name that TensorFlow "
            f"Datasets knows{hint}"
        ) from error
    except ImportError as error:
        raise DataError(
            f"{name}: its TFDS builder needs {error.name or error}, which is not "
            "installed (TensorFlow comes with pip install 'churn-jax[tfds]')"
        ) from error
    except (ValueError, AssertionError) as error:  # unknown configuration or version
        raise DataError(f"{name}: TFDS refuses it: {first_line(error)}") from error


class TfdsRecords:
    """Random access to one prepared split: `{"image", "label", "id"}` per index."""

    # Without an id of the set's own it is `<split>/<index>` in the prepared files,
    # whose order TFDS fixes per version of the set.

    def __init__(self, source, split: str, image: str, label: str, identity):
        self._source, self._split = source, split
        self._image, self._label, self._identity = image, label, identity

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict:
        return self._record(int(index), self._source[int(index)])

    def chunk(self, start: int, stop: int) -> list[dict]:
        """The records `start..stop-1`, read together."""
        records = self._source.__getitems__(list(range(start, stop)))
        return [self._record(start + i, record) for i, record in enumerate(records)]

    def _record(self, index: int, record: dict) -> dict:
        if self._identity is None:
            identity = f"{self._split}/{index}"
        else:
            identity = record[self._identity]
            if isinstance(identity, bytes):
                identity = identity.decode()
        image = record[self._image]
        if not isinstance(image, bytes):
            image = np.asarray(image)
        return {"image": image, "label": record[self._label], "id": identity}


def open_records(
    name: str,
    split: str,
    *,
    data_dir: str | pathlib.Path | None = None,
    encoded: bool = False,
) -> TfdsRecords:
    """Random access to a split of a prepared set, for `grain_batches` or by hand."""
    return _open(prepared_builder(name, data_dir), name, split, encoded=encoded)


def prepared_builder(name: str, data_dir: str | pathlib.Path | None):
    """The builder of a set, refused unless it is prepared."""
    builder = make_builder(name, data_dir)
    if not builder.is_prepared():
        where = "" if data_dir is None else f" --data-dir {data_dir}"
        if builder.MANUAL_DOWNLOAD_INSTRUCTIONS is not None:
            where += " --manual-dir FOLDER"
        needs = (
            ""
            if isinstance(builder, (ChurnDigits, TinyImagenet))
            else " (official sets need the extra: pip install 'churn-jax[tfds]')"
        )
        raise DataError(
            f"{name} is not prepared in {builder.data_dir}: run `churn-jax data {name}"
            f"{where}`{needs}, or pass the data_dir that holds it"
        )
    return builder


def _keys(builder) -> tuple[str, str]:
    """Names of the image and of the label among the features."""
    keys = builder.info.supervised_keys or ("image", "label")
    return keys if len(keys) == 2 else ("image", "label")


def image_size(builder) -> tuple[int | None, ...] | None:
    """The shape of a set's images, `None` where it varies, or None without images."""
    features, key = builder.info.features, _keys(builder)[0]
    if not hasattr(features, "keys") or key not in features:
        return None
    if _holds_bytes(features[key]):
        return (None, None, 3)
    shape = features[key].shape or ()
    return tuple(shape) if len(shape) == 3 else None


def _holds_bytes(feature) -> bool:
    """A scalar of bytes that is not text, such as `Scalar(np.object_)`."""
    text = isinstance(feature, tfds.features.Text)
    return not text and feature.shape == () and feature.np_dtype == np.object_


def text_fields(builder) -> tuple[str, ...]:
    """The features that make up a text, the title first; empty for other sets."""
    features, (key, label) = builder.info.features, _keys(builder)
    if not hasattr(features, "keys") or not {key, label} <= set(features.keys()):
        return ()
    known = hasattr(features[label], "num_classes")
    if not known or not isinstance(features[key], tfds.features.Text):
        return ()
    return tuple(dict.fromkeys(k for k in ("title", key) if k in features))


def split_names(builder, name: str) -> dict[str, str]:
    """The set's own names of `train`, `test` and, if it has one, `validation`."""
    # Without a test split, or with an unlabelled one, the validation split is the test.
    available = set(builder.info.splits)
    unlabelled = name.split("/")[0].startswith(("imagenet2012", "i_naturalist"))
    if "test" not in available or unlabelled:
        return {"train": "train", "test": "validation"}
    names = {"train": "train", "test": "test"}
    return names | ({"validation": "validation"} if "validation" in available else {})


def class_count(builder) -> int:
    """How many classes the labels have."""
    return builder.info.features[_keys(builder)[1]].num_classes


def _open(builder, name: str, split: str, *, encoded: bool = False) -> TfdsRecords:
    features = builder.info.features
    image, label = _keys(builder)
    if not hasattr(features, "keys") or not {image, label} <= set(features.keys()):
        raise DataError(f"{name} has no image and label; its features are {features}")
    an_image = len(features[image].shape or ()) == 3 or (
        encoded and image_size(builder) is not None
    )
    if not an_image or not hasattr(features[label], "num_classes"):
        raise DataError(
            f"{name} is not a set of images with class labels: {image} is "
            f"{features[image]} and {label} is {features[label]}"
        )
    skip = encoded and isinstance(features[image], tfds.features.Image)
    source = _source(
        builder, name, split, {image: tfds.decode.SkipDecoding()} if skip else None
    )
    identity = next((key for key in ("id", "file_name") if key in features), None)
    return TfdsRecords(source, split, image, label, identity)


def _source(builder, name: str, split: str, decoders=None):
    if split not in builder.info.splits:
        raise DataError(
            f"{name} has no {split!r} split; it has {', '.join(builder.info.splits)}"
        )
    try:
        return builder.as_data_source(split, decoders=decoders)
    except NotImplementedError as error:
        raise DataError(
            f"{name} in {builder.data_dir} was not prepared as array_record: delete it "
            f"and run `churn-jax data {name}`, or pass another data_dir"
        ) from error


def _read_texts(builder, name: str, fields, text: TextOptions) -> dict[str, Split]:
    names = split_names(builder, name)
    sources = {o: (t, _source(builder, name, t)) for o, t in names.items()}
    return read_text_records(sources, fields, _keys(builder)[1], text)


def read_tfds(
    name: str,
    *,
    data_dir: str | pathlib.Path | None = None,
    text: TextOptions = TextOptions(),
) -> tuple[dict[str, Split], int]:
    """The splits of a prepared set in memory, and its number of classes."""
    builder = prepared_builder(name, data_dir)
    if fields := text_fields(builder):
        return _read_texts(builder, name, fields, text), class_count(builder)
    splits = {}
    for ours, theirs in split_names(builder, name).items():
        records = _open(builder, name, theirs)
        splits[ours] = _read_split(f"{name} {theirs}", records)
    return splits, class_count(builder)


def read_split(
    name: str, split: str, *, data_dir: str | pathlib.Path | None = None
) -> Split:
    """One split of a prepared set in memory; arguments and errors of `open_records`."""
    records = open_records(name, split, data_dir=data_dir)
    return _read_split(f"{name} {split}", records)


def _read_split(where: str, records: TfdsRecords) -> Split:
    count, images = len(records), None
    labels, ids = np.empty(count, np.int64), []
    for start in range(0, count, _CHUNK):
        for i, record in enumerate(
            records.chunk(start, min(start + _CHUNK, count)), start
        ):
            image = record["image"]
            if images is None:
                images = np.empty((count, *image.shape), image.dtype)
            if image.shape != images.shape[1:]:
                raise DataError(
                    f"{where}: images differ in size ({images.shape[1:]} and "
                    f"{image.shape}); use load_streaming, or open_records with "
                    "grain_batches and a transform that resizes"
                )
            images[i], labels[i] = image, record["label"]
            ids.append(record["id"])
    return check_split(
        where,
        np.empty((0, 1)) if images is None else images,
        labels,
        np.asarray(ids) if ids else None,
    )
