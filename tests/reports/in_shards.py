"""A study's folder whose rows are in shards, as two processes would leave them."""

import dataclasses

from churn_jax.prediction_shards import (
    ShardWriter,
    shards_beside,
    write_index,
    write_order,
)
from churn_jax.predictions import load_predictions


def into_shards(run_dir):
    """Every `predictions*.npz` becomes two shards beside it."""
    for path in sorted((run_dir / "methods").glob("*/predictions*.npz")):
        found, folder = load_predictions(path), shards_beside(path)
        runs, _, classes = found.shape
        for shard in range(2):
            rows = slice(shard, None, 2)
            of = found.ids[rows], found.labels[rows], runs, classes
            with ShardWriter(folder, shard, 2, *of) as writer:
                writer.write(found.logits[:, rows])
        write_order(folder, 2, found.ids)
        write_index(folder, 2, found.meta)
        path.unlink()
    return run_dir


def numbers_of(record):
    """Numbers of a dataclass, also inside of it, by name."""
    out = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            value = numbers_of(value)
        if isinstance(value, dict):
            out |= {f"{field.name}.{key}": v for key, v in value.items()}
        else:
            out[field.name] = value
    return out
