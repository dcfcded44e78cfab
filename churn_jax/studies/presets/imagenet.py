"""ImageNet and iNaturalist 2018 with ResNet-v2-50, at 224 pixels.

Images are streamed: crops of random size and shape, mirrored half of the time, are
drawn where they are decoded, so the step augments no further.

The recipe is the paper's for ImageNet. The paper gives none for iNaturalist: there it
is ours, ImageNet's again, with its top-10 regulariser, which the paper has on ImageNet
alone. Ours, too: the examples that validate, the ramp, Anil et al.'s refresh and
burn-in, the weight of the distilled ensemble, the convolution that has the stride (see
`ResNetV2`). The network computes in bfloat16, as is usual on a TPU (the paper's runs
were on TPUv3, it does not say): weights, losses and metrics are float32 all the same,
and `--model.dtype float32` changes it.
"""

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.studies.presets import rows

__all__ = ["imagenet", "inaturalist2018"]

EPOCHS = 90
BATCH_SIZE = 1024
WARMUP_EPOCHS = 5
TOP_K = 10  # the regularisers look at the ten most likely classes

# Ours.
VALIDATION = 10_000
DISTILLATION_ALPHA = 0.9


def _rows(examples: int, **best) -> tuple[MethodSpec, ...]:
    steps_per_epoch = (examples - VALIDATION) // BATCH_SIZE
    return rows.paper_rows(
        **best,
        ramp_steps=float(EPOCHS * steps_per_epoch // 4),
        stale=(steps_per_epoch, float(WARMUP_EPOCHS * steps_per_epoch)),
        top_k=TOP_K,
    )


def _study(
    name: str, title: str, data: str, methods: tuple[MethodSpec, ...], published: str
) -> StudyConfig:
    return StudyConfig(
        name=name,
        title=title,
        data=DataConfig(name=data, validation=VALIDATION),
        model=ModelConfig(name="resnet_v2_50", dtype="bfloat16"),
        train=TrainConfig(
            replicas=10,
            epochs=EPOCHS,
            batch_size=BATCH_SIZE,
            eval_batch_size=500,
            eval_every_epochs=5,
            optimizer=OptimizerConfig(
                learning_rate=0.8,
                momentum=0.9,
                nesterov=False,
                weight_decay=1e-4,
                schedule="step",
                warmup_epochs=WARMUP_EPOCHS,
                step_epochs=(30, 60, 80),
            ),
            checkpoint_every_seconds=300.0,
        ),
        methods=methods,
        published=published,
    )


def imagenet() -> StudyConfig:
    """Tables 2, 4, 5 and 7, ImageNet."""
    methods = _rows(
        1_281_167,
        entropy=0.2,
        uniform_skl=0.05,
        distillation=(DISTILLATION_ALPHA, 1.0),
        codistill_ce=0.02,
        codistill_skl=0.06,
        combined=(0.2, 0.06),
    )
    title = "Churn on ImageNet with ResNet-v2-50"
    published = "reproducibility/table2/imagenet"
    return _study("imagenet", title, "imagenet2012", methods, published)


def inaturalist2018() -> StudyConfig:
    """Tables 2 and 5, iNaturalist 2018: the four methods that the paper has there."""
    methods = _rows(437_513, entropy=0.4, codistill_ce=0.02, codistill_skl=0.05)
    title = "Churn on iNaturalist 2018 with ResNet-v2-50"
    published = "reproducibility/table2/inaturalist2018"
    return _study("inaturalist2018", title, "i_naturalist2018", methods, published)
