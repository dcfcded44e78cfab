"""Where a study's settings come from: its title, and what it keeps of its preset."""

import dataclasses
import shlex
from typing import Any

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.difference import without
from churn_jax.configuration.names import data_name, data_stem, network_name
from churn_jax.configuration.study import StudyConfig

__all__ = [
    "changes_from",
    "derived",
    "retitled",
]

# Settings of the training that are no part of its recipe, in addition to those that
# change no results.
_NO_RECIPE = ("replicas", "seed_numbers", "eval_every_epochs", "seeds.base")


def _networks(config: StudyConfig) -> str:
    """What a study's rows train, in words."""
    found: dict[str, None] = {}
    for spec in config.methods:
        for part, _ in spec.models or ((spec.model or config.model, 1),):
            found[part if isinstance(part, str) else part.name] = None
    names = [network_name(name) for name in found]
    return names[0] if len(names) == 1 else f"{len(names)} networks"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value}
    parts: dict[str, Any] = {}
    for key, part in value.items():
        parts |= _flat(part, f"{prefix}{key}.")
    return parts


def _recipe(config: StudyConfig) -> dict[str, Any]:
    flat = _flat(without(to_json(config.train)))
    return {k: v for k, v in flat.items() if not k.startswith(_NO_RECIPE)}


def changes_from(preset: StudyConfig, config: StudyConfig) -> tuple[str, ...]:
    """What a study computes otherwise than its preset, in words.

    The data set, the number of training examples, the network and the recipe; runs,
    seeds, devices and the coefficients of single methods are not compared.

    Example:
        >>> from churn_jax.studies import preset
        >>> paper = preset("digits")
        >>> train = dataclasses.replace(paper.train, epochs=3)
        >>> changes_from(paper, dataclasses.replace(paper, train=train))
        ('epochs 3 instead of 80',)
    """
    found = []
    if data_stem(config.data.name) != data_stem(preset.data.name):
        old, new = data_name(preset.data.name), data_name(config.data.name)
        found.append(f"{new} instead of {old}")
    if config.data.train_size != preset.data.train_size:
        sizes = (config.data.train_size, preset.data.train_size)
        new, old = ("all" if n is None else f"{n:,}" for n in sizes)
        found.append(f"{new} training examples instead of {old}")
    if config.model.name != preset.model.name:
        old, new = network_name(preset.model.name), network_name(config.model.name)
        found.append(f"{new} instead of {old}")
    elif config.model != preset.model:
        found.append(f"{network_name(config.model.name)} with other settings")
    old, new = _recipe(preset), _recipe(config)
    for key in new:
        if new[key] != old.get(key):
            name = key.rpartition(".")[2]
            found.append(f"{name} {new[key]} instead of {old.get(key)}")
    return tuple(found)


def retitled(config: StudyConfig) -> StudyConfig:
    """The study under a title made of its data, network and length."""
    title = f"Preset {config.name} on {data_name(config.data.name)} with "
    title += _networks(config)
    if config.data.train_size is not None:
        title += f", {config.data.train_size:,} training examples"
    title += f", {config.train.epochs} epochs"
    return dataclasses.replace(config, title=title)


def derived(preset: StudyConfig, config: StudyConfig) -> StudyConfig:
    """The study with a title of its own, and notes on what it keeps of its preset.

    It has a new title where data, their number, the network or the epochs are others,
    and notes where the preset's recipe was made for other data or another network.
    """
    config = dataclasses.replace(config, changes=changes_from(preset, config))
    other_data = data_stem(config.data.name) != data_stem(preset.data.name)
    other_network = config.model.name != preset.model.name
    size, old_size = config.data.train_size, preset.data.train_size
    other_length = config.train.epochs != preset.train.epochs
    if not (other_data or other_network or other_length or size != old_size):
        return config
    config = retitled(config)
    if not (other_data or other_network):
        return config
    recipe = _recipe(preset)
    changed = [
        key.rpartition(".")[2]
        for key, value in _recipe(config).items()
        if value != recipe.get(key)
    ]
    kept = ["the recipe" + (f" (except {', '.join(changed)})" if changed else "")]
    if not other_network:
        kept.append(_networks(config))
    if size is not None and size == old_size:
        kept.append(f"{size:,} training examples")
    validation = config.data.validation
    if isinstance(validation, int) and validation == preset.data.validation:
        kept.append(f"{validation:,} validation examples")
    *first, last = kept
    listed = f"{', '.join(first)} and {last}" if first else last
    own = f"churn-jax study own --data {shlex.quote(config.data.name)}"
    if other_network:
        own += f" --model {config.model.name}"
    note = (
        f"{listed[0].upper()}{listed[1:]} {'are' if first else 'is'} still the "
        f"preset's ({config.name}); `{own}` trains on all examples with a recipe for "
        "them."
    )
    return dataclasses.replace(config, notes=(note,))
