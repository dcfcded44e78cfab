"""Trains a small co-distilled pair and prints a digest of its weights.

    python -m churn_jax.studies.repeatability STEPS

Run it twice: equal digests mean that this machine repeats a run bit by bit. What the
hardware adds must be measured across launches, because slots of one launch share
kernels.
"""

import dataclasses
import hashlib
import sys

import jax
import numpy as np

from churn_jax import data
from churn_jax.data.augment import Augmentation
from churn_jax.methods import Codistillation
from churn_jax.studies.config import ModelConfig
from churn_jax.training.config import TrainConfig
from churn_jax.training.loop import train
from churn_jax.training.run import Run, Trained
from churn_jax.typing import PyTree

__all__ = ["digest", "small_run"]


def digest(tree: PyTree) -> str:
    """sha256 over the bytes of every leaf."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        total.update(np.ascontiguousarray(leaf).tobytes())
    return total.hexdigest()


def small_run(steps: int, model: str = "mlp") -> Trained:
    """Two replicas of a co-distilled pair on the digits, for about `steps` updates."""
    dataset = data.load("digits", train_size=256)
    method = Codistillation(beta=0.1)
    config = TrainConfig(
        replicas=2,
        epochs=max(-(-steps // 8), 1),
        batch_size=32,
        augmentation=Augmentation(shift=1),
    )
    config = dataclasses.replace(config, eval_every_epochs=config.epochs)
    from churn_jax.ensembles import Group

    network = ModelConfig(model).build(dataset.num_classes)
    run = Run("repeatability", method, (Group(network, method.members),), config)
    return train(run, dataset)


if __name__ == "__main__":
    print(digest(small_run(int(sys.argv[1])).last.params))
