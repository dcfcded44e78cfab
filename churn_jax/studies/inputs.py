"""What a study trains on: a data set, resident or streamed, and its pixels' moments."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from churn_jax import data
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.data import Dataset, StreamingDataset

if TYPE_CHECKING:
    from churn_jax.training.run import Trained

__all__ = ["Inputs", "deployed_logits", "inputs_key", "load_inputs", "row_inputs"]


class Inputs(NamedTuple):
    """A data set with the moments that its pixels are normalised by.

    Of a stream the moments are those of ImageNet: its own would take a pass over every
    pixel.
    """

    dataset: Dataset | StreamingDataset
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: Dataset | StreamingDataset) -> "Inputs":
        """The moments of the training images."""
        if isinstance(dataset, StreamingDataset):
            moments = data.IMAGENET_STATISTICS
        else:
            moments = data.channel_statistics(dataset.train.images)
        mean, std = (tuple(map(float, np.ravel(m))) for m in moments)
        return cls(dataset, mean, std)


def load_inputs(config: DataConfig, train_size: int | None) -> Inputs:
    """Loads the set that `config` names, cut to `train_size` training examples.

    Sets whose images vary in size are streamed, all others lie in memory.

    Raises:
        churn_jax.data.DataError: the data cannot be used.
        ValueError: reading threads or processes that cannot be.
    """
    options = {
        "data_dir": config.data_dir,
        "manual_dir": config.manual_dir,
        "train_size": train_size,
        "validation": config.validation,
    }
    if data.is_streaming(config.name, data_dir=config.data_dir):
        reading = data.Reading(threads=config.threads, workers=config.workers)
        return Inputs.of(
            data.load_streaming(
                config.name, image_size=config.image_size, reading=reading, **options
            )
        )
    return Inputs.of(data.load(config.name, text=config.text(), **options))


def inputs_key(config: StudyConfig, spec: MethodSpec) -> tuple:
    """Rows of one key are trained on the same examples."""
    size = config.data.train_size if spec.train_size is None else spec.train_size
    return size, spec.classes, spec.class_share


def row_inputs(config: StudyConfig, spec: MethodSpec, whole: Inputs) -> Inputs:
    """What one row is trained on, of a study whose data are `whole`.

    Rows of some classes, or of a share of every class's examples, keep the moments of
    the study's pixels: an old model and its successor must see an image alike.

    Args:
        config: the study.
        spec: the row.
        whole: the study's data.

    Raises:
        churn_jax.data.DataError: the data cannot be used, or nothing is left of them.
    """
    own = whole
    if spec.train_size not in (None, config.data.train_size):
        own = load_inputs(config.data, spec.train_size)
    if not spec.classes and spec.class_share == 1.0:
        return own
    narrowed = data.narrow(own.dataset, spec.classes, spec.class_share)
    return Inputs(narrowed, own.mean, own.std)


def deployed_logits(
    trained: "Trained",
    dataset: Dataset | StreamingDataset,
    split: str,
    weights: str = "config",
) -> np.ndarray:
    """`[R, N, C]` of the split of `dataset` called so, resident or streamed."""
    part = getattr(dataset, split)
    if isinstance(dataset, StreamingDataset):
        return trained.predict(part, weights, reading=dataset.reading)
    return trained.predict(part.images, weights)
