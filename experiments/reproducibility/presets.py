"""The reproducibility paper's studies: CIFAR, SVHN, ImageNet and iNaturalist 2018.

CIFAR and ImageNet have the paper's recipes. What the paper does not say is ours and
named here: how many examples validate, how long the linear ramp is, how often Anil et
al.'s copies are refreshed and when their burn-in ends, the weight of the distilled
ensemble, the padding of the crops, the convolution with the stride (see `ResNetV2`).
The paper trains on all examples; a study keeps some for validation. "L2 weight decay of
strength 1e-4" is read as `1e-4 w` in the gradient, a penalty of `1e-4 / 2 |w|^2`; read
as a penalty of `1e-4 |w|^2` it would be `--set train.optimizer.weight_decay=2e-4`.
"""

import dataclasses
from typing import Any

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.studies.presets.reproducibility import paper_rows
from experiments.reproducibility import rows

CIFAR = TrainConfig(
    replicas=10,
    epochs=450,
    batch_size=1024,
    eval_every_epochs=10,
    optimizer=OptimizerConfig(
        learning_rate=1.0,
        momentum=0.9,
        nesterov=True,
        weight_decay=1e-4,
        schedule="step",
        warmup_epochs=15,
        step_epochs=(200, 300, 400),
    ),
    augmentation=Augmentation(pad_crop=4, flip=True),
)
SVHN = TrainConfig(
    replicas=10,
    epochs=60,
    batch_size=128,
    eval_every_epochs=5,
    optimizer=OptimizerConfig(
        learning_rate=0.05,
        weight_decay=1e-4,
        schedule="cosine",
        warmup_epochs=2,
    ),
    augmentation=Augmentation(shift=2),
)
IMAGENET = TrainConfig(
    replicas=10,
    epochs=90,
    batch_size=1024,
    eval_batch_size=500,
    eval_every_epochs=5,
    optimizer=OptimizerConfig(
        learning_rate=0.8,
        momentum=0.9,
        nesterov=False,
        weight_decay=1e-4,
        schedule="step",
        warmup_epochs=5,
        step_epochs=(30, 60, 80),
    ),
    checkpoint_every_seconds=300.0,
)


def _lengths(train: TrainConfig, examples: int) -> dict[str, Any]:
    """Ours: ramps over a quarter of the training, peers that are up to an epoch old.

    Peers are copied once the warm-up has ended.
    """
    steps_per_epoch = examples // train.batch_size
    burn_in = float(train.optimizer.warmup_epochs * steps_per_epoch)
    ramp = float(train.epochs * steps_per_epoch // 4)
    return {"ramp_steps": ramp, "stale": (steps_per_epoch, burn_in)}


# Ours.
VALIDATION = 1000
LENGTHS = _lengths(CIFAR, 50_000 - VALIDATION)
DISTILLATION_ALPHA = 0.9

# Appendix A: the grids from which the paper picked, and which its figures show.
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
BETAS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08)
_FIGURE_COLUMNS = ("accuracy", "churn", "surrogate_churn", "entropy", "confidence")

# Table 5: the best coefficients on each set.
_BEST: dict[str, dict[str, Any]] = {
    "cifar10": {
        "entropy": 0.15,
        "uniform_skl": 0.05,
        "distillation": (DISTILLATION_ALPHA, 3.0),
        "codistill_ce": 0.01,
        "codistill_skl": 0.01,
        "combined": (0.1, 0.01),
    },
    "cifar100": {
        "entropy": 0.25,
        "uniform_skl": 0.35,
        "distillation": (DISTILLATION_ALPHA, 4.0),
        "codistill_ce": 0.04,
        "codistill_skl": 0.04,
        "combined": (0.2, 0.04),
    },
}
_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def _study(
    name: str,
    title: str,
    methods: tuple[MethodSpec, ...],
    published: str = "",
    *,
    data: DataConfig = DataConfig("cifar10", validation=VALIDATION),
    model: ModelConfig = ModelConfig("resnet56"),
    train: TrainConfig = CIFAR,
    replicas: int = 10,
) -> StudyConfig:
    """`published` is a table of the paper and its set."""
    return StudyConfig(
        name=name,
        title=title,
        data=data,
        model=model,
        train=dataclasses.replace(train, replicas=replicas),
        methods=methods,
        published=published
        and f"experiments/reproducibility/published.csv:{published}",
    )


def _paper_rows(data: str, *names: str) -> tuple[MethodSpec, ...]:
    """The rows with the coefficients of the set; all of them if none is named."""
    best = {k: v for k, v in _BEST[data].items() if not names or k in names}
    return paper_rows(**best, **LENGTHS)


def cifar10() -> StudyConfig:
    """Tables 2, 4, 5 and 7, CIFAR-10."""
    title = "Churn on CIFAR-10 with ResNet-56"
    return _study("cifar10", title, _paper_rows("cifar10"), "table2/cifar10")


def cifar10_resnet32() -> StudyConfig:
    """The methods of Table 2 with the smaller network; the paper has no such table."""
    title, model = "Churn on CIFAR-10 with ResNet-32", ModelConfig("resnet32")
    return _study("cifar10-resnet32", title, _paper_rows("cifar10"), model=model)


def cifar100() -> StudyConfig:
    """Tables 2, 4, 5 and 7, CIFAR-100."""
    return _study(
        "cifar100",
        "Churn on CIFAR-100 with ResNet-56",
        _paper_rows("cifar100"),
        "table2/cifar100",
        data=DataConfig("cifar100", validation=VALIDATION),
    )


def _table3(data: str) -> StudyConfig:
    methods = _paper_rows(data, "entropy", "uniform_skl", "codistill_skl")
    return _study(
        f"table3-{data}",
        f"Churn on {_TITLES[data]} with and without weight decay",
        rows.with_and_without_decay(methods),
        f"table3/{data}",
        data=DataConfig(data, validation=VALIDATION),
    )


def table3_cifar10() -> StudyConfig:
    """Table 3, CIFAR-10: weight decay 1e-4 and none."""
    return _table3("cifar10")


def table3_cifar100() -> StudyConfig:
    """Table 3, CIFAR-100: weight decay 1e-4 and none."""
    return _table3("cifar100")


def table1() -> StudyConfig:
    """Table 1: initialisation x order x {augmentation varied, off}, five runs."""
    return _study(
        "table1",
        "What causes churn on CIFAR-10: initialisation, order, augmentation",
        rows.fixed_seeds(),
        "table1/cifar10",
        replicas=5,
    )


def table6() -> StudyConfig:
    """Table 6: initialisation x input data with ResNet-32, five runs."""
    return _study(
        "table6",
        "What causes churn on CIFAR-10: initialisation and input data",
        rows.fixed_input(),
        "table6/cifar10",
        model=ModelConfig("resnet32"),
        replicas=5,
    )


def claims_cifar10() -> StudyConfig:
    """Appendix C on CIFAR-10, and section 4's co-distillation with one initialisation.

    Five runs as in Table 1; the paper gives no number of runs here. Its beta for SKL
    and CE is 0.01; for L1 and for gradients into both peers of CE, which have none,
    that is ours.
    """
    betas = dict.fromkeys(("skl", "l1", "ce", "ce_both"), 0.01)
    methods = rows.design_claims(betas=betas, **LENGTHS)
    title = "The design of co-distillation on CIFAR-10, claim by claim"
    return _study("claims-cifar10", title, methods, replicas=5)


def svhn() -> StudyConfig:
    """Tables 2 and 5, SVHN: the four methods that the paper has there, with LeNet5.

    Of the paper are the coefficients, momentum SGD and the weight decay of 1e-4, which
    it has "for all experiments"; the rest of the recipe is ours. It augments by random
    cropping and flipping; digits are shifted here and never mirrored.
    """
    validation = 2000
    return _study(
        "svhn",
        "Churn on SVHN with LeNet5",
        paper_rows(
            entropy=0.2,
            codistill_ce=0.02,
            codistill_skl=0.02,
            **_lengths(SVHN, 73_257 - validation),
        ),
        "table2/svhn",
        data=DataConfig("svhn_cropped", validation=validation),
        model=ModelConfig("lenet5"),
        train=SVHN,
    )


def _imagenet(
    name: str, title: str, data: str, examples: int, **best: Any
) -> StudyConfig:
    """A streamed study at 224 pixels.

    Crops of random size and shape, mirrored half of the time, are drawn where images
    are decoded, so the step augments no further. The network computes in bfloat16, as
    is usual on a TPU (the paper's runs were on TPUv3, it does not say): weights, losses
    and metrics are float32 all the same, and `--set model.dtype=float32` changes it.
    """
    validation = 10_000
    lengths = _lengths(IMAGENET, examples - validation)
    return _study(
        name,
        title,
        # The regularisers look at the ten most likely classes.
        paper_rows(**best, **lengths, top_k=10),
        f"table2/{name}",
        data=DataConfig(data, validation=validation),
        model=ModelConfig("resnet_v2_50", dtype="bfloat16"),
        train=IMAGENET,
    )


def imagenet() -> StudyConfig:
    """Tables 2, 4, 5 and 7, ImageNet."""
    return _imagenet(
        "imagenet",
        "Churn on ImageNet with ResNet-v2-50",
        "imagenet2012",
        1_281_167,
        entropy=0.2,
        uniform_skl=0.05,
        distillation=(DISTILLATION_ALPHA, 1.0),
        codistill_ce=0.02,
        codistill_skl=0.06,
        combined=(0.2, 0.06),
    )


def inaturalist2018() -> StudyConfig:
    """Tables 2 and 5, iNaturalist 2018: the four methods that the paper has there.

    The paper gives no recipe for it: this is ImageNet's, with its top-10 regulariser,
    which the paper has on ImageNet alone.
    """
    return _imagenet(
        "inaturalist2018",
        "Churn on iNaturalist 2018 with ResNet-v2-50",
        "i_naturalist2018",
        437_513,
        entropy=0.4,
        codistill_ce=0.02,
        codistill_skl=0.05,
    )


def _figure(name: str, title: str, study: StudyConfig, grid: Any) -> StudyConfig:
    return dataclasses.replace(
        study,
        name=name,
        title=title,
        methods=rows.on_grid(study.methods, grid),
        columns=_FIGURE_COLUMNS,
        published="",
    )


def figure1() -> StudyConfig:
    """Figures 1 and 2, ImageNet: the top-10 entropy regulariser and co-distillation."""
    grid = {
        "entropy": ("alpha", ALPHAS),
        "codistill_ce": ("beta", BETAS),
        "codistill_skl": ("beta", BETAS),
    }
    title = "Entropy, accuracy and churn on ImageNet against alpha and beta"
    return _figure("figure1", title, imagenet(), grid)


def figure3() -> StudyConfig:
    """Figure 3, CIFAR-100: the SKL regulariser and co-distillation."""
    grid = {"uniform_skl": ("alpha", ALPHAS), "codistill_skl": ("beta", BETAS)}
    title = "Entropy, accuracy and churn on CIFAR-100 against alpha and beta"
    return _figure("figure3", title, cifar100(), grid)
