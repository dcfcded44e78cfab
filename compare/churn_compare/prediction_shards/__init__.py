"""Predictions too large for one file or one host: a folder of shards and an index.

Every process writes one shard, `[R, n, C]` logits of some examples with their ids and
labels, batch by batch. `write_index` then says that all of them are there, and
`read_shards` maps them into memory. Only NumPy is needed, so any framework can write
such a folder:

    index.json                      format, shards, examples, runs, classes, dtype, meta
    ids-00000-of-00002.npy          [n], of all shards together every id once
    labels-00000-of-00002.npy       [n]
    logits-00000-of-00002.npy       [R, n, C]
    order.npy                       [N], which row each example of a split is; optional

`load_stored` reads such a folder or a file of predictions, whichever is there.
"""

from churn_compare.prediction_shards.folder import (
    INDEX,
    ShardedPredictions,
    read_shards,
    write_index,
    write_order,
)
from churn_compare.prediction_shards.rows import ShardedRows
from churn_compare.prediction_shards.stored import (
    WHOLE_BYTES,
    MappedPredictions,
    TooLargeError,
    fits_whole,
    is_stored,
    load_stored,
    load_whole,
    shard_folder,
)
from churn_compare.prediction_shards.writer import ShardWriter

__all__ = [
    "INDEX",
    "WHOLE_BYTES",
    "MappedPredictions",
    "ShardWriter",
    "ShardedPredictions",
    "ShardedRows",
    "TooLargeError",
    "fits_whole",
    "is_stored",
    "load_stored",
    "load_whole",
    "read_shards",
    "shard_folder",
    "write_index",
    "write_order",
]
