"""Where examples come from, and what happens to them before the network.

`load` reads a set into memory; `augment` and `normalize` run inside the jitted step;
`grain_batches` reads what does not fit into memory; `prepare` converts a TFDS set.
TensorFlow Datasets and Grain are imported only when asked for.
"""

from churn_jax.data.augment import Augmentation, augment, normalize
from churn_jax.data.digits import load_digits
from churn_jax.data.loading import load
from churn_jax.data.pipeline import epoch_positions, grain_batches
from churn_jax.data.prepare import Prepared, prepare
from churn_jax.data.splits import (
    ChannelStatistics,
    DataError,
    Dataset,
    Split,
    channel_statistics,
)

__all__ = [
    "Augmentation",
    "ChannelStatistics",
    "DataError",
    "Dataset",
    "Prepared",
    "Split",
    "augment",
    "channel_statistics",
    "epoch_positions",
    "grain_batches",
    "load",
    "load_digits",
    "normalize",
    "prepare",
]
