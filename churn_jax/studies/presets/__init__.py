"""One study for each paper that needs no file, and studies that a file makes."""

import dataclasses
import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.codec import from_json, replaced
from churn_jax.configuration.network import (
    ModelConfig,
    data_name,
    data_stem,
    network_name,
)
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.methods.base import METHODS, Method
from churn_jax.registry import Registry
from churn_jax.studies.presets.clicks import tiny_clicks

__all__ = ["PRESETS", "derived", "parted", "preset", "tiny"]

PRESETS = Registry(
    "preset",
    {
        "digits": f"{__name__}.reproducibility:digits",
        "ad-digits": f"{__name__}.anti_distillation:ad_digits",
        "dm-digits": f"{__name__}.diversity:dm_digits",
        "elodi-digits": f"{__name__}.elodi:elodi_digits",
        "clicks": f"{__name__}.clicks:clicks",
    },
)
"""Functions without arguments that make a `StudyConfig`, by name.

One for each paper; others are in `experiments/PAPER/presets.py`.
"""

# The smallest network of a family stands for it.
_TINY_MODELS = {
    name: small
    for small, names in {
        "resnet8": "resnet32 resnet56",
        "resnet_v2_8": "resnet_v2_50 resnet18 resnet50 resnet101 swin_tiny",
        "densenet_tiny": "densenet121 densenet161",
        "vgg_tiny": "vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn",
        "bert_tiny": "bert_base",
        "wide_resnet10_1": "wide_resnet28_1 wide_resnet28_2 wide_resnet28_5 "
        "wide_resnet28_10",
    }.items()
    for name in names.split()
}
# Examples of a tiny study and its updates' batch; the digits keep their own.
_TINY_EXAMPLES, _TINY_BATCH = 64, 32
_TINY_CLASSES, _OF_CLASSES = 5, 4  # of an old model of fewer classes, and its batch
_TINY_PIXELS = 32  # of images that are cropped from larger ones


def tiny(config: StudyConfig) -> StudyConfig:
    """The same study with two replicas and two epochs, for tests and first looks.

    Sets other than the embedded digits are cut to 64 examples and batches
    to 32, and the network is the smallest of its family; `--data` names another set.
    Clicks are cut to four windows.
    """
    if config.train.one_pass is not None:
        return tiny_clicks(config)
    cut = config.data.name != "digits"
    changes: dict[str, Any] = {
        "name": f"{config.name}-tiny",
        "train.replicas": 2,
        "train.seed_numbers": config.train.seed_numbers[:2],
        "train.epochs": 2,
        "train.eval_every_epochs": 1,
        "methods": tuple(_tiny_row(spec, cut) for spec in config.methods),
    }
    if cut:
        changes |= dict.fromkeys(("data.train_size", "data.validation"), _TINY_EXAMPLES)
        changes["train.batch_size"] = _TINY_BATCH
        changes["data.image_size"] = _TINY_PIXELS
        changes["model"] = _tiny_network(config.model)
    return _retitled(replaced(config, changes.items()))


def _retitled(config: StudyConfig) -> StudyConfig:
    """The study under a title made of its data, networks and length."""
    every = [p for s in config.methods for p, _ in s.models or [(s.model, 1)]]
    own = [p if isinstance(p, str) else (p or config.model).name for p in every]
    names = list(dict.fromkeys(map(network_name, own)))
    networks = names[0] if len(names) == 1 else f"{len(names)} networks"
    title = f"Preset {config.name} on {data_name(config.data.name)} with {networks}"
    if config.data.train_size is not None:
        title += f", {config.data.train_size:,} training examples"
    title += f", {config.train.epochs} epochs"
    return dataclasses.replace(config, title=title)


def derived(preset: StudyConfig, config: StudyConfig) -> StudyConfig:
    """A study made of a preset, with a title of its own where it is another study.

    A note says where the preset's recipe was made for other data or another network.
    """

    def parts(study: StudyConfig) -> tuple[str, str, int | None, int]:
        data, train = study.data, study.train
        return data_stem(data.name), study.model.name, data.train_size, train.epochs

    if parts(preset) == parts(config):
        return config
    config = _retitled(config)
    if parts(preset)[:2] == parts(config)[:2]:
        return config
    own = f"churn-jax study own --data {shlex.quote(config.data.name)}"
    if config.model.name != preset.model.name:
        own += f" --model {config.model.name}"
    hint = f"; `{own}` has one for these data and trains on all examples"
    note = (
        f"The recipe is the preset's ({preset.name}), for "
        f"{data_name(preset.data.name)} and {network_name(preset.model.name)}"
    )
    note += "." if config.train.one_pass else f"{hint}."  # which takes no clicks
    return dataclasses.replace(config, notes=(note,))


def as_row(given: Any, label: str = "") -> MethodSpec:
    """A row of a method, its class or its name; or a row, under the label if given."""
    folder = re.sub(r"[^\w.=+-]+", "-", label).strip("-.")
    if isinstance(given, MethodSpec):
        own: Any = {"name": folder, "label": label} if label else {}
        return dataclasses.replace(given, **own)
    method = METHODS.find(given) if isinstance(given, str) else given
    method = method() if isinstance(method, type) else method
    if not isinstance(method, Method):
        raise ValueError(
            f"a row is a method of churn_jax.methods, its class or its name, or a "
            f"MethodSpec; got {given!r}"
        )
    name = type(method).__name__  # MinimumEntropy becomes minimum_entropy
    alone = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return MethodSpec(folder or alone, label or name, method)


_LENGTHS = ("epochs", "eval_every_epochs", "optimizer.warmup_epochs")


def _tiny_network(model: ModelConfig) -> ModelConfig:
    name = _TINY_MODELS.get(model.name, model.name)
    # What a larger network was pretrained to does not fit a smaller one.
    return dataclasses.replace(model, name=name, pretrained="")


def _tiny_row(spec: MethodSpec, cut: bool) -> MethodSpec:
    """The row with the tiny study's lengths, and with its batch where data are cut."""
    left_out = (*_LENGTHS, "batch_size") if cut else _LENGTHS
    train = tuple(change for change in spec.train if change[0] not in left_out)
    size, classes = spec.train_size, spec.classes
    if size is not None:
        size = min(max(size // 100, _TINY_BATCH), _TINY_EXAMPLES)
    if cut:
        spec, classes = spec.with_networks(_tiny_network), classes[:_TINY_CLASSES]
        train += (("batch_size", _OF_CLASSES),) if classes else ()
    return dataclasses.replace(spec, train=train, train_size=size, classes=classes)


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
            that makes a `StudyConfig`, or a file `.json` of one: what `--print-config`
            prints, or a folder's `study.json`.

    Raises:
        ValueError: there is none; the message has the closest names.
    """
    base, form = parted(name)
    if base == "own":
        raise ValueError(
            "a study of your own data has no preset: `churn-jax study own --data FILE` "
            "or `churn_jax.studies.own_study` choose a recipe for them"
        )
    if base.endswith(".json"):
        try:
            found = json.loads(Path(base).read_text(encoding="utf-8-sig"))
            config = from_json(StudyConfig, found.get("config", found))
        except (OSError, ValueError, AttributeError) as error:
            raise ValueError(f"{base} is not a record of a study ({error})") from error
        return tiny(config) if form == "tiny" else config
    if base.endswith(".py"):
        raise ValueError(f"{base} --list names its studies; write {base}:NAME")
    if ":" not in base and (base not in PRESETS or form not in ("", "tiny")):
        hint = did_you_mean(base, PRESETS, cutoff=0.6)
        known = hint or f"; known: {', '.join([*PRESETS][:3])}, ..."
        raise ValueError(
            f"unknown preset {name!r}{known} (churn-jax study --list has all, "
            "each with a small form such as digits:tiny)"
        )
    made = PRESETS.find(base)
    try:
        inspect.signature(made).bind()
    except TypeError:
        raise ValueError(
            f"{base} is called without arguments, so each needs a default"
        ) from None
    config = made()
    if not isinstance(config, StudyConfig):
        kind = type(config).__name__
        raise ValueError(f"{base} must make a StudyConfig; got {kind}")
    return tiny(config) if form == "tiny" else config
