"""Sizes of data sets: the presets' without the data, the user's own from the file."""

import dataclasses
from pathlib import Path

import numpy as np

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig
from churn_jax.data import StreamingDataset, is_tokens
from churn_jax.data.cutting import cut
from churn_jax.data.digits import VALIDATION_SIZE
from churn_jax.data.sources import is_object
from churn_jax.data.streaming import IMAGENET_STATISTICS
from churn_jax.studies.inputs import load_inputs


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The facts of a data set that a compiled step depends on."""

    shape: tuple[int, ...]  # of one example; () of images that are cropped
    classes: int
    train: int
    validation: int = 0  # of the set's own split, 0 where it has none
    tokens: bool = False
    streamed: bool = False  # batches are fed, else the training set is on the devices
    floats: bool = False  # examples are float32, not pixels of one byte

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the examples on the devices."""
        return np.dtype(
            np.int32 if self.tokens else np.float32 if self.floats else np.uint8
        )

    @property
    def moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of pixels as a study compiles them: one per channel."""
        # Values change no shape, so those of other sets than ImageNet are made up.
        if self.streamed:
            mean, std = IMAGENET_STATISTICS
            return tuple(map(float, mean)), tuple(map(float, std))
        channels = 1 if self.tokens else self.shape[-1]
        return (0.5,) * channels, (0.25,) * channels


def _grey(train: int) -> Sizes:
    return Sizes((28, 28, 1), 10, train)


# As published, and as TFDS has them; of the embedded digits 897 are for testing.
SIZES = {
    "digits": Sizes((8, 8, 1), 10, 900),
    "mnist": _grey(60_000),
    "fashion_mnist": _grey(60_000),
    "svhn_cropped": Sizes((32, 32, 3), 10, 73_257),
    "cifar10": Sizes((32, 32, 3), 10, 50_000),
    "cifar100": Sizes((32, 32, 3), 100, 50_000),
    "tiny_imagenet": Sizes((64, 64, 3), 200, 90_000, 10_000),
    "imagenet2012": Sizes((), 1000, 1_281_167, streamed=True),
    "i_naturalist2017": Sizes((), 5089, 579_184, streamed=True),
    "i_naturalist2018": Sizes((), 8142, 437_513, streamed=True),
    "ag_news_subset": Sizes((), 4, 120_000, tokens=True),
}


class _Counted:
    """A split of which only the number of examples is known."""

    def __init__(self, count: int):
        self.labels = np.empty(0)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def take(self, indices: np.ndarray) -> "_Counted":
        return _Counted(len(indices))


def row_sizes(config: DataConfig, spec: MethodSpec | None = None) -> Sizes:
    """The sizes of what one row of a study is trained on, cut as the study cuts it."""
    own = None if spec is None else spec.train_size
    size = config.train_size if own is None else own
    published = config.name.removeprefix("tfds:") in SIZES
    sizes = (_published if published else _of_file)(config, size)
    count = sizes.train
    if spec is not None:
        # Classes are taken to be of equal size.
        known = len(spec.classes) or sizes.classes
        count = int(count * spec.class_share * known / sizes.classes)
    return dataclasses.replace(sizes, train=count)


def _published(config: DataConfig, train_size: int | None) -> Sizes:
    name = config.name.removeprefix("tfds:")
    sizes = SIZES[name]
    shape = sizes.shape
    if sizes.streamed:
        shape = (config.image_size, config.image_size, 3)
    elif sizes.tokens:
        shape = (config.sequence_length,)
    splits = {"train": _Counted(sizes.train)}
    if sizes.validation:
        splits["validation"] = _Counted(sizes.validation)
    held = config.validation
    if held is None and name == "digits":
        held = VALIDATION_SIZE
    train, validation = cut(name, splits, held, train_size)
    return dataclasses.replace(
        sizes, shape=shape, train=len(train), validation=len(validation)
    )


def _of_file(config: DataConfig, train_size: int | None) -> Sizes:
    if not (is_object(config.name) or Path(config.name).expanduser().exists()):
        raise ValueError(
            "a plan needs the sizes of the data set: it knows those of "
            f"{', '.join(SIZES)}, and opens a file, folder or function of your own; "
            f"got {config.name!r}"
        )
    found = load_inputs(config, train_size).dataset
    sizes = Sizes((), found.num_classes, len(found.train), len(found.validation))
    if isinstance(found, StreamingDataset):
        shape = found.train.image_shape
        return dataclasses.replace(sizes, shape=shape, streamed=True)
    images = found.train.images
    return dataclasses.replace(
        sizes,
        shape=images.shape[1:],
        tokens=is_tokens(images),
        floats=bool(np.issubdtype(images.dtype, np.floating)),
    )
