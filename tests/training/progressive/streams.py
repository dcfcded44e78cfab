"""A stream of arrays, small runs on it, and windows by hand."""

from typing import NamedTuple

import numpy as np

from churn_jax.configuration.streams import StreamConfig
from churn_jax.methods import ERM
from churn_jax.models.click import ClickModel
from churn_jax.training import OptimizerConfig
from churn_jax.training.progressive.config import StreamRun

SIZES = (7, 11)


class Window(NamedTuple):
    ids: np.ndarray
    numeric: np.ndarray
    labels: np.ndarray
    mask: np.ndarray
    first: int
    keys: np.ndarray


class ArrayStream:
    """Examples whose label depends on ids and numbers; the last few are held out."""

    def __init__(self, count=70, held_out=0, sizes=SIZES, numeric=2, seed=0):
        rng = np.random.default_rng(seed)
        total = count + held_out
        self.ids = np.stack([rng.integers(0, s, total) for s in sizes], 1)
        self.ids = self.ids.astype(np.int32)
        self.numeric = rng.normal(size=(total, numeric)).astype(np.float32)
        score = np.sum(np.sin(self.ids), axis=1) + np.sum(self.numeric, axis=1)
        self.labels = (rng.normal(size=total) < score).astype(np.int32)
        self.count = count
        self.fingerprint = f"array-{seed}-{count}"
        self.breaks_at = None

    def windows(self, size, *, start=0, part="train"):
        low, high = 0, self.count
        if part == "holdout":
            low, high = self.count, len(self.labels)
        for a in range(low + start, high, size):
            if self.breaks_at is not None and a >= self.breaks_at:
                raise ValueError("line 49 of the file is cut")
            yield self.window(a, min(a + size, high), size)

    def window(self, a, b, size):
        def padded(array):
            missing = [(0, size - (b - a))] + [(0, 0)] * (array.ndim - 1)
            return np.pad(array[a:b], missing)

        mask = padded(np.ones(len(self.labels), np.float32))
        keys = padded(np.arange(len(self.labels)))
        arrays = map(padded, (self.ids, self.numeric, self.labels))
        return Window(*arrays, mask, a, keys)


def tiny_model(**changes) -> ClickModel:
    settings = {
        "sizes": SIZES,
        "numeric": 2,
        "embedding_dim": 3,
        "features": (5, 4),
        "components": 2,
    }
    return ClickModel(**settings | changes)


def adagrad(rate=0.1, **changes) -> OptimizerConfig:
    settings = {"name": "adagrad", "momentum": 0.0, "weight_decay": 0.0}
    return OptimizerConfig(learning_rate=rate, **settings | changes)


def tiny_run(method=None, model=None, **changes) -> StreamRun:
    """Three replicas of two towers, windows of 16 examples in batches of 8."""
    settings = {"replicas": 3, "batch_size": 8, "window": 16, "optimizer": adagrad()}
    config = StreamConfig(**settings | changes)
    method = method or ERM(members=2, deploy="mean_probs")
    return StreamRun("tiny", method, model or tiny_model(), config)
