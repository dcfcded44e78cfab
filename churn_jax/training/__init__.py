"""Training: one step, one loop, the mesh, checkpoints and files.

Names are loaded when they are first used, so that importing a configuration does not
load checkpoints.

Example:
    >>> from churn_jax import training
    >>> training.TrainConfig(replicas=2, epochs=3).numbers
    (0, 1)
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.configuration.training import (
        OPTIMIZERS,
        MeshShape,
        OnePass,
        OptimizerConfig,
        Seeds,
        TrainConfig,
    )
    from churn_jax.training.clicks import click_run
    from churn_jax.training.loggers import (
        LOGGERS,
        CsvLogger,
        LoggedRun,
        Logger,
        TensorBoardLogger,
        scalars,
    )
    from churn_jax.training.loop import train
    from churn_jax.training.predictions import write_predictions
    from churn_jax.training.progress import Work
    from churn_jax.training.run import Interrupted, Progress, Run, Trained
    from churn_jax.training.tracking import CluLogger, MlflowLogger, WandbLogger

__getattr__, __dir__, __all__ = load_on_use(__name__)
