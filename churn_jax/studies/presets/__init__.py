"""Named studies. `tests/golden/` freezes each, so a changed default shows in review."""

import dataclasses

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.registry import Registry, did_you_mean
from churn_jax.studies.presets.anti_distillation import (
    ad_mnist,
    ad_mnist_init,
    ad_mnist_losses,
    ad_mnist_size,
    ad_table1,
    ad_table2,
)
from churn_jax.studies.presets.cifar import (
    cifar10,
    cifar10_resnet32,
    cifar100,
    table1,
    table3_cifar10,
    table3_cifar100,
    table6,
)
from churn_jax.studies.presets.digits import digits
from churn_jax.studies.presets.diversity import (
    dm_cifar10_be4,
    dm_cifar10_be8,
    dm_cifar100,
    dm_cifar100_wrn28_2,
    dm_cifar100_wrn28_5,
    dm_end2_cifar10,
    dm_mimo,
    dm_table6,
    dm_table7,
    dm_tinyimagenet,
)
from churn_jax.studies.presets.diversity_small import (
    dm_cifar10_small,
    dm_digits,
    dm_fashion,
    dm_fashion_more,
    dm_mnist,
)
from churn_jax.studies.presets.elodi import (
    elodi_figure2,
    elodi_figure5,
    elodi_figure6,
    elodi_table1,
    elodi_table2,
    elodi_table3,
    elodi_table4,
    elodi_table5,
    elodi_table6,
    elodi_table7,
    elodi_table8,
    elodi_table10,
    elodi_table11,
)
from churn_jax.studies.presets.elodi_small import (
    elodi_ag_news,
    elodi_architectures,
    elodi_chain,
    elodi_digits,
    elodi_displacement,
    elodi_fashion,
    elodi_fashion_more,
    elodi_growth,
    elodi_guides,
    elodi_offline,
    elodi_wide,
)
from churn_jax.studies.presets.imagenet import imagenet, inaturalist2018
from churn_jax.studies.presets.mnist import (
    claims_mnist,
    cross_sample_mnist,
    fashion_mnist,
    mnist,
    mnist_long,
    table1_mnist,
    table3_mnist,
    table6_mnist,
    train_size_mnist,
)
from churn_jax.studies.presets.svhn import svhn
from churn_jax.studies.provenance import retitled

__all__ = ["PRESETS", "parted", "preset", "tiny"]

PRESETS = Registry(
    "preset",
    {
        "digits": digits,
        "mnist": mnist,
        "mnist-long": mnist_long,
        "fashion_mnist": fashion_mnist,
        "table1-mnist": table1_mnist,
        "table3-mnist": table3_mnist,
        "table6-mnist": table6_mnist,
        "claims-mnist": claims_mnist,
        "cross-sample-mnist": cross_sample_mnist,
        "train-size-mnist": train_size_mnist,
        "svhn": svhn,
        "cifar10": cifar10,
        "cifar10-resnet32": cifar10_resnet32,
        "cifar100": cifar100,
        "table1": table1,
        "table3-cifar10": table3_cifar10,
        "table3-cifar100": table3_cifar100,
        "table6": table6,
        "imagenet": imagenet,
        "inaturalist2018": inaturalist2018,
        "ad-mnist": ad_mnist,
        "ad-mnist-size": ad_mnist_size,
        "ad-mnist-losses": ad_mnist_losses,
        "ad-mnist-init": ad_mnist_init,
        "ad-table1": ad_table1,
        "ad-table2": ad_table2,
        "dm-digits": dm_digits,
        "dm-fashion": dm_fashion,
        "dm-fashion-more": dm_fashion_more,
        "dm-mnist": dm_mnist,
        "dm-cifar10-small": dm_cifar10_small,
        "dm-cifar10-be4": dm_cifar10_be4,
        "dm-cifar10-be8": dm_cifar10_be8,
        "dm-cifar100": dm_cifar100,
        "dm-cifar100-wrn28-2": dm_cifar100_wrn28_2,
        "dm-cifar100-wrn28-5": dm_cifar100_wrn28_5,
        "dm-tinyimagenet": dm_tinyimagenet,
        "dm-mimo": dm_mimo,
        "dm-end2-cifar10": dm_end2_cifar10,
        "dm-table6": dm_table6,
        "dm-table7": dm_table7,
        "elodi-digits": elodi_digits,
        "elodi-fashion": elodi_fashion,
        "elodi-fashion-more": elodi_fashion_more,
        "elodi-wide": elodi_wide,
        "elodi-offline": elodi_offline,
        "elodi-growth": elodi_growth,
        "elodi-chain": elodi_chain,
        "elodi-architectures": elodi_architectures,
        "elodi-guides": elodi_guides,
        "elodi-displacement": elodi_displacement,
        "elodi-ag-news": elodi_ag_news,
        "elodi-table1": elodi_table1,
        "elodi-table2": elodi_table2,
        "elodi-table3": elodi_table3,
        "elodi-table4": elodi_table4,
        "elodi-table5": elodi_table5,
        "elodi-table6": elodi_table6,
        "elodi-table7": elodi_table7,
        "elodi-table8": elodi_table8,
        "elodi-table10": elodi_table10,
        "elodi-table11": elodi_table11,
        "elodi-figure2": elodi_figure2,
        "elodi-figure5": elodi_figure5,
        "elodi-figure6": elodi_figure6,
    },
)
"""Functions without arguments that make a `StudyConfig`, by name."""


# The smallest network of a family stands for it.
_TINY_MODELS = {
    "resnet32": "resnet8",
    "resnet56": "resnet8",
    "resnet_v2_50": "resnet_v2_8",
    "resnet18": "resnet_v2_8",
    "resnet50": "resnet_v2_8",
    "resnet101": "resnet_v2_8",
    "densenet121": "densenet_tiny",
    "densenet161": "densenet_tiny",
    "vgg13": "vgg_tiny",
    "vgg13_bn": "vgg_tiny",
    "swin_tiny": "resnet_v2_8",
    "bert_base": "bert_tiny",
    "wide_resnet28_1": "wide_resnet10_1",
    "wide_resnet28_2": "wide_resnet10_1",
    "wide_resnet28_5": "wide_resnet10_1",
    "wide_resnet28_10": "wide_resnet10_1",
}
# Examples of a tiny study and its updates' batch; the digits keep their own.
_TINY_EXAMPLES, _TINY_BATCH = 64, 32
_TINY_CLASSES = 5  # that an old model of fewer classes knows
_TINY_PIXELS = 32  # of images that are cropped from larger ones


def tiny(config: StudyConfig) -> StudyConfig:
    """The same study with two replicas and two epochs, for tests and first looks.

    Beside that, sets other than the embedded digits are cut to 64 examples and batches
    to 32, and the network is the smallest of its family; `--data` names another set.
    """
    train = dataclasses.replace(config.train, replicas=2, epochs=2, eval_every_epochs=1)
    data, model = config.data, config.model
    cut = data.name != "digits"
    if cut:
        train = dataclasses.replace(train, batch_size=_TINY_BATCH)
        data = dataclasses.replace(
            data,
            train_size=_TINY_EXAMPLES,
            validation=_TINY_EXAMPLES,
            image_size=_TINY_PIXELS,
        )
        model = _tiny_network(model)
    small = dataclasses.replace(
        config,
        name=f"{config.name}-tiny",
        train=train,
        data=data,
        model=model,
        methods=tuple(_tiny_row(spec, cut) for spec in config.methods),
    )
    return retitled(small)


_LENGTHS = ("epochs", "eval_every_epochs", "optimizer.warmup_epochs")


def _tiny_network(model: ModelConfig) -> ModelConfig:
    name = _TINY_MODELS.get(model.name, model.name)
    # What a larger network was pretrained to does not fit a smaller one.
    return dataclasses.replace(model, name=name, pretrained="")


def _tiny_row(spec: MethodSpec, cut: bool) -> MethodSpec:
    """The row with the tiny study's lengths, and with its batch where data are cut."""
    left_out = (*_LENGTHS, "batch_size") if cut else _LENGTHS
    row = dataclasses.replace(
        spec, train=tuple(change for change in spec.train if change[0] not in left_out)
    )
    if cut and spec.model is not None:
        row = dataclasses.replace(row, model=_tiny_network(spec.model))
    if cut:
        parts = [
            (_tiny_network(part) if isinstance(part, ModelConfig) else part, size)
            for part, size in spec.models
        ]
        row = dataclasses.replace(
            row, models=tuple(parts), classes=spec.classes[:_TINY_CLASSES]
        )
    if spec.train_size is None:
        return row
    size = min(max(spec.train_size // 100, _TINY_BATCH), _TINY_EXAMPLES)
    return dataclasses.replace(row, train_size=size)


def parted(name: str) -> tuple[str, str]:
    """A preset's name, or where it is imported from, and its form.

    Example:
        >>> parted("digits:tiny"), parted("mine.studies:fashion:tiny")
        (('digits', 'tiny'), ('mine.studies:fashion', 'tiny'))
    """
    base, _, form = name.partition(":")
    if form in ("", "tiny") or base in PRESETS:
        return base, form
    base = name.removesuffix(":tiny")
    return base, name[len(base) + 1 :]


def preset(name: str) -> StudyConfig:
    """The study called `name`; a suffix `:tiny` shrinks it to seconds.

    Args:
        name: one of `PRESETS`, or `package.module:name` of a function of your own that
            makes a `StudyConfig`.

    Raises:
        ValueError: there is none; the message has the closest names.
    """
    base, form = parted(name)
    if base == "own":
        raise ValueError(
            "a study of your own data has no preset: `churn-jax study own --data FILE` "
            "or `churn_jax.studies.own_study` choose a recipe for them"
        )
    if ":" not in base and (base not in PRESETS or form not in ("", "tiny")):
        forms = f"each with a small form, as in {next(iter(PRESETS))}:tiny"
        raise ValueError(
            f"unknown preset {name!r}; known: {', '.join(PRESETS)} ({forms})"
            f"{did_you_mean(base, PRESETS, cutoff=0.3)}"
        )
    config = PRESETS.find(base)()
    if not isinstance(config, StudyConfig):
        raise ValueError(f"{base} makes no StudyConfig, but {config!r}")
    return tiny(config) if form == "tiny" else config
