"""Runs of small networks on the digits."""

import functools

from churn_jax import data
from churn_jax.ensembles import Group
from churn_jax.methods import ERM
from churn_jax.studies import ModelConfig
from churn_jax.training import OptimizerConfig, Run, TrainConfig

PLAIN = OptimizerConfig(learning_rate=0.1, weight_decay=0.0)


@functools.cache
def digits(train_size=128, validation=50):
    return data.load("digits", train_size=train_size, validation=validation)


def digits_run(
    method=ERM(), *, features=(16,), dtype="float32", name="run", stream=0, **options
):
    """Two replicas; options are those of `TrainConfig`."""
    network = ModelConfig(features=features, dtype=dtype).build(10)
    config = TrainConfig(**{"replicas": 2, "optimizer": PLAIN} | options)
    return Run(name, method, (Group(network, method.members),), config, stream)
