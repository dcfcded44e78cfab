"""Small runs on a few clicks."""

import numpy as np

from churn_jax.configuration.training import OnePass
from churn_jax.data import Clicks, as_clicks
from churn_jax.methods import ERM
from churn_jax.models import ClickModel
from churn_jax.training import OptimizerConfig, Run, Seeds, TrainConfig, click_run

SIZES = (7, 11)


def arrays(count=70, sizes=SIZES, numeric=2, seed=0):
    """Examples whose label depends on ids and numbers."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.integers(0, s, count) for s in sizes], 1)
    numbers = rng.normal(size=(count, numeric)).astype(np.float32)
    score = np.sum(np.sin(ids), axis=1) + np.sum(numbers, axis=1)
    labels = (rng.normal(size=count) < score).astype(np.int32)
    return {"ids": ids, "numeric": numbers, "labels": labels, "sizes": sizes}


def few_clicks(count=70, held_out=0, **changes) -> Clicks:
    """The last few are held out."""
    total = count + held_out
    draw = np.where(np.arange(total) < count, 0.9, 0.0)
    given = arrays(total, **changes) | {"draw": draw}
    return as_clicks("few", given, validation=0.5)


def tiny_model(**changes) -> ClickModel:
    settings = {
        "sizes": SIZES,
        "numeric": 2,
        "embedding_dim": 3,
        "features": (5,),
        "components": 2,
        "wide": True,
    }
    return ClickModel(**settings | changes)


def adagrad(rate=0.1, **changes) -> OptimizerConfig:
    settings = {"name": "adagrad", "momentum": 0.0, "weight_decay": 0.0}
    return OptimizerConfig(learning_rate=rate, **settings | changes)


def tiny_run(method=None, model=None, one_pass=None, **changes) -> Run:
    """Three replicas of two towers, windows of 16 examples in batches of 8."""
    settings = {
        "replicas": 3,
        "epochs": 1,
        "batch_size": 8,
        "optimizer": adagrad(),
        "seeds": Seeds(init="fixed"),
        "one_pass": OnePass(**{"window": 16} | (one_pass or {})),
    }
    method = method or ERM(members=2, deploy="mean_probs")
    config = TrainConfig(**settings | changes)
    return click_run("tiny", method, model or tiny_model(), config)
