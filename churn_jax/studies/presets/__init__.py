"""One study for each paper that needs no file, and studies that a file makes."""

import dataclasses

from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.registry import Registry
from churn_jax.studies.provenance import retitled

__all__ = ["PRESETS", "parted", "preset", "tiny"]

PRESETS = Registry(
    "preset",
    {
        "digits": f"{__name__}.reproducibility:digits",
        "ad-digits": f"{__name__}.anti_distillation:ad_digits",
        "dm-digits": f"{__name__}.diversity:dm_digits",
        "elodi-digits": f"{__name__}.elodi:elodi_digits",
    },
)
"""Functions without arguments that make a `StudyConfig`, by name.

One for each paper; others are in `experiments/PAPER/presets.py`.
"""

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
        name: one of `PRESETS`, or `package.module:name` or `FILE.py:name` of a function
            that makes a `StudyConfig`.

    Raises:
        ValueError: there is none; the message has the closest names.
    """
    base, form = parted(name)
    if base == "own":
        raise ValueError(
            "a study of your own data has no preset: `churn-jax study own --data FILE` "
            "or `churn_jax.studies.own_study` choose a recipe for them"
        )
    if base.endswith(".py"):
        raise ValueError(f"{base} --list names its studies; write {base}:NAME")
    if ":" not in base and (base not in PRESETS or form not in ("", "tiny")):
        raise ValueError(
            f"unknown preset {name!r}; known: {', '.join(PRESETS)}, each with a small "
            "form as digits:tiny, and experiments/PAPER/presets.py:NAME of the papers"
            f"{did_you_mean(base, PRESETS, cutoff=0.6)}"
        )
    config = PRESETS.find(base)()
    if not isinstance(config, StudyConfig):
        made = type(config).__name__
        raise ValueError(f"{base} must make a StudyConfig; got {made}")
    return tiny(config) if form == "tiny" else config
