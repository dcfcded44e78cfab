"""The shell: one step, one loop, the mesh, checkpoints and files.

What a program needs to train a method is here by name; it is loaded when first used, so
that importing a configuration does not load checkpoints.

Example:
    >>> from churn_jax import training
    >>> training.TrainConfig(replicas=2, epochs=3).numbers
    (0, 1)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from churn_jax.configuration.training import (
        MeshShape,
        OptimizerConfig,
        Seeds,
        TrainConfig,
    )
    from churn_jax.training.loop import train
    from churn_jax.training.progress import Work
    from churn_jax.training.run import Interrupted, Progress, Run, Trained
    from churn_jax.training.written import write_predictions

__all__ = [
    "Interrupted",
    "MeshShape",
    "OptimizerConfig",
    "Progress",
    "Run",
    "Seeds",
    "TrainConfig",
    "Trained",
    "Work",
    "train",
    "write_predictions",
]

_HOMES = {
    "Interrupted": "run",
    "MeshShape": ".configuration.training",
    "OptimizerConfig": ".configuration.training",
    "Progress": "run",
    "Run": "run",
    "Seeds": ".configuration.training",
    "TrainConfig": ".configuration.training",
    "Trained": "run",
    "Work": "progress",
    "train": "loop",
    "write_predictions": "written",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
