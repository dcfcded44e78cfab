"""Sizes of the presets' data sets, so that a plan does not need the data."""

import dataclasses

import numpy as np

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig
from churn_jax.data import IMAGENET_STATISTICS
from churn_jax.data.digits import VALIDATION_SIZE
from churn_jax.data.loading import cut

__all__ = ["SIZES", "Sizes", "row_sizes"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a compiled step depends on of a data set."""

    shape: tuple[int, ...]  # of one example; () of images that are cropped
    classes: int
    train: int
    validation: int = 0  # of the set's own split, 0 where it has none
    tokens: bool = False
    streamed: bool = False  # batches are fed, else the training set is on the devices

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the examples on the devices."""
        return np.dtype(np.int32 if self.tokens else np.uint8)

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
    name = config.name.removeprefix("tfds:")
    if name not in SIZES:
        raise ValueError(
            f"a plan needs the sizes of the data set, and knows those of "
            f"{', '.join(SIZES)}; got {config.name!r}"
        )
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
    own = None if spec is None else spec.train_size
    train, validation = cut(
        name, splits, held, config.train_size if own is None else own
    )
    count = len(train)
    if spec is not None:
        # Classes are taken to be of equal size.
        known = len(spec.classes) or sizes.classes
        count = int(count * spec.class_share * known / sizes.classes)
    return dataclasses.replace(
        sizes, shape=shape, train=count, validation=len(validation)
    )
