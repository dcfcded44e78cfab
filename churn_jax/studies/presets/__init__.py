"""Named studies. `tests/golden/` freezes each, so a changed default shows in review."""

import dataclasses

from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.registry import Registry
from churn_jax.studies.provenance import retitled

__all__ = ["PRESETS", "by_paper", "parted", "preset", "tiny"]

# Names in the order in which they are listed, by the file with their functions.
_FILES = {
    "reproducibility_small": (
        "digits mnist mnist-long fashion_mnist table1-mnist table3-mnist table6-mnist "
        "claims-mnist cross-sample-mnist train-size-mnist headline-reproducibility "
        "headline-reproducibility-14x14"
    ),
    "reproducibility": (
        "svhn cifar10 cifar10-resnet32 cifar100 table1 table3-cifar10 table3-cifar100 "
        "table6 imagenet inaturalist2018 claims-cifar10 figure1 figure3"
    ),
    "anti_distillation": (
        "ad-mnist ad-mnist-mean ad-mnist-size ad-mnist-losses ad-mnist-init ad-table1 "
        "ad-table1-mean ad-table1-covariance ad-table1-probabilities "
        "ad-table1-algorithms ad-table2 ad-table2-mean headline-anti-distillation "
        "headline-anti-distillation-14x14"
    ),
    "diversity_small": (
        "dm-digits dm-fashion dm-fashion-more dm-mnist dm-cifar10-small "
        "headline-diversity headline-diversity-14x14"
    ),
    "diversity": (
        "dm-cifar10-be4 dm-cifar10-be8 dm-cifar10-more dm-cifar100 dm-cifar100-wrn28-2 "
        "dm-cifar100-wrn28-5 dm-tinyimagenet dm-mimo dm-end2-cifar10 dm-table6 "
        "dm-table7"
    ),
    "elodi_small": (
        "elodi-digits elodi-fashion elodi-fashion-more elodi-wide elodi-offline "
        "elodi-growth elodi-chain elodi-architectures elodi-guides elodi-displacement "
        "elodi-figures elodi-ag-news headline-elodi headline-elodi-14x14"
    ),
    "elodi": (
        "elodi-table1 elodi-table2 elodi-table3 elodi-table4 elodi-table5 elodi-table6 "
        "elodi-table7 elodi-table8 elodi-table10 elodi-table11 elodi-figure2 "
        "elodi-figure2-mixed elodi-figure3 elodi-figure5 elodi-figure6 elodi-figure8"
    ),
}
PRESETS = Registry(
    "preset",
    {
        name: f"{__name__}.{file}:{name.replace('-', '_')}"
        for file, names in _FILES.items()
        for name in names.split()
    },
)
"""Functions without arguments that make a `StudyConfig`, by name."""


def by_paper() -> dict[str, list[str]]:
    """Names of presets by the key of their paper, such as `anti-distillation`.

    Those that other packages have registered are under "".
    """
    papers: dict[str, list[str]] = {}
    for file, names in _FILES.items():
        paper = file.removesuffix("_small").replace("_", "-")
        papers.setdefault(paper, []).extend(names.split())
    built_in = {name for names in papers.values() for name in names}
    return {**papers, "": [name for name in PRESETS if name not in built_in]}


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
    "vgg11": "vgg_tiny",
    "vgg11_bn": "vgg_tiny",
    "vgg13": "vgg_tiny",
    "vgg13_bn": "vgg_tiny",
    "vgg16": "vgg_tiny",
    "vgg16_bn": "vgg_tiny",
    "vgg19": "vgg_tiny",
    "vgg19_bn": "vgg_tiny",
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

    Sets other than the embedded digits are cut to 64 examples and batches
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
    if cut:
        row = dataclasses.replace(
            row.with_networks(_tiny_network), classes=spec.classes[:_TINY_CLASSES]
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
