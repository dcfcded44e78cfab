"""The embedded digits: all methods in minutes on a laptop."""

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.studies.presets.rows import paper_rows

__all__ = ["digits"]


def digits() -> StudyConfig:
    """UCI digits, few training examples, a wide MLP: churn in minutes on a laptop."""
    epochs, steps_per_epoch = 80, 3
    return StudyConfig(
        name="digits",
        title="Churn on the UCI hand-written digits",
        data=DataConfig(name="digits", train_size=192, validation=600),
        model=ModelConfig(name="mlp", features=(256, 256)),
        train=TrainConfig(
            replicas=10,
            epochs=epochs,
            batch_size=64,
            eval_every_epochs=10,
            optimizer=OptimizerConfig(
                learning_rate=0.05,
                weight_decay=1e-4,
                schedule="cosine",
                warmup_epochs=2,
            ),
            augmentation=Augmentation(shift=1),
        ),
        methods=paper_rows(
            # Picked on the validation split.
            entropy=0.05,
            uniform_skl=0.02,
            distillation=(0.9, 4.0),
            codistill_ce=2.0,
            codistill_skl=0.6,
            combined=(0.2, 0.6),
            ramp_steps=float(epochs * steps_per_epoch // 4),
        ),
    )
