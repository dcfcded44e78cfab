"""Where examples come from, and what happens to them before the network.

`load` reads a set into memory by its name, `from_source` takes Python objects, to which
`named` gives a name; `augment` and `normalize` run inside the jitted step;
`load_streaming` reads what does not fit into memory; `prepare`
converts a TFDS set and `write_npz` writes one file.
TensorFlow Datasets and Grain are imported only when asked for.
"""

from churn_compare.lazy import load_on_use
from churn_jax.data.augment import Augmentation, augment, normalize
from churn_jax.data.clicks import Clicks, as_clicks, load_clicks, synthetic_clicks
from churn_jax.data.cutting import narrow
from churn_jax.data.digits import load_digits
from churn_jax.data.prepare import prepare, write_npz
from churn_jax.data.records import Reading, StreamedSplit, StreamingDataset, stream
from churn_jax.data.sources import DATASETS, find_dataset, from_source, load, named
from churn_jax.data.splits import (
    DataError,
    Dataset,
    Split,
    channel_statistics,
    is_tokens,
)
from churn_jax.data.streaming import is_streaming, load_streaming
from churn_jax.data.text import TextOptions

__getattr__, __dir__, __all__ = load_on_use(__name__)
