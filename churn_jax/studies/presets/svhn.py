"""SVHN with LeNet5: the paper's coefficients, and for the most part a recipe of ours.

Of the paper are momentum SGD and the weight decay of 1e-4, which it has "for all
experiments". It augments by random cropping and flipping; digits are shifted here and
never mirrored.
"""

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.studies.presets.rows import paper_rows

__all__ = ["svhn"]

# All ours, as are the learning rate and its schedule: none of it is in the paper.
EPOCHS = 60
BATCH_SIZE = 128
VALIDATION = 2000
STEPS_PER_EPOCH = (73_257 - VALIDATION) // BATCH_SIZE
RAMP_STEPS = float(EPOCHS * STEPS_PER_EPOCH // 4)


def svhn() -> StudyConfig:
    """Tables 2 and 5, SVHN: the four methods that the paper has there."""
    return StudyConfig(
        name="svhn",
        title="Churn on SVHN with LeNet5",
        data=DataConfig(name="svhn_cropped", validation=VALIDATION),
        model=ModelConfig(name="lenet5"),
        train=TrainConfig(
            replicas=10,
            epochs=EPOCHS,
            batch_size=BATCH_SIZE,
            eval_every_epochs=5,
            optimizer=OptimizerConfig(
                learning_rate=0.05,
                weight_decay=1e-4,
                schedule="cosine",
                warmup_epochs=2,
            ),
            augmentation=Augmentation(shift=2),
        ),
        methods=paper_rows(
            entropy=0.2,
            codistill_ce=0.02,
            codistill_skl=0.02,
            ramp_steps=RAMP_STEPS,
            # As for CIFAR: copies up to an epoch old, burn-in until the warm-up ends.
            stale=(STEPS_PER_EPOCH, float(2 * STEPS_PER_EPOCH)),
        ),
        published="reproducibility/table2/svhn",
    )
