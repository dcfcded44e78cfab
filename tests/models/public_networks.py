"""Our copies of public torch models, and the logits that those models gave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax import models

CLASSES = 10
FOLDER = Path(__file__).parents[1] / "golden"


class _Copy(NamedTuple):
    zoo_name: str
    overrides: dict
    read: Callable
    write: Callable


_HUGGING_FACE = (models.from_hugging_face, models.to_hugging_face)
_TIMM = (models.from_timm, models.to_timm)
NETWORKS = {
    "resnet18": _Copy("resnet18", {}, *_HUGGING_FACE),
    "resnet50": _Copy("resnet50", {}, *_HUGGING_FACE),
    "resnet50_stride_1x1": _Copy("resnet50", {"stride_at": "1x1"}, *_HUGGING_FACE),
    "resnet_v2_50": _Copy("resnet_v2_50", {}, *_TIMM),
}


def path_of(name):
    return FOLDER / f"logits_{name}.json"


def golden(name):
    return json.loads(path_of(name).read_text())


def build(name, num_classes=CLASSES, **overrides):
    copy = NETWORKS[name]
    return models.create(
        copy.zoo_name, num_classes=num_classes, **copy.overrides, **overrides
    )


def variable_shapes(model):
    """As from `init`, without computing anything."""
    return jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
