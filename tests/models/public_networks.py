"""Our copies of public torch models, and the logits that those models gave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

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
    "resnet_v2_50": _Copy("resnet_v2_50", {}, *_TIMM),
}
# Without golden logits: only `make test-oracles` compares these. NumPy versions of
# tiny forms are in the tests of each.
LARGE = {
    "resnet50_stride_1x1": _Copy("resnet50", {"stride_at": "1x1"}, *_HUGGING_FACE),
    "resnet101": _Copy("resnet101", {}, *_HUGGING_FACE),
    "densenet121": _Copy("densenet121", {}, *_TIMM),
    "densenet161": _Copy("densenet161", {}, *_TIMM),
    "vgg13": _Copy("vgg13", {}, *_TIMM),
    "vgg13_bn": _Copy("vgg13_bn", {}, *_TIMM),
}


def path_of(name):
    return FOLDER / f"logits_{name}.json"


def golden(name):
    return json.loads(path_of(name).read_text())


def build(name, num_classes=CLASSES, **overrides):
    copy = (NETWORKS | LARGE)[name]
    return models.create(
        copy.zoo_name, num_classes=num_classes, **copy.overrides, **overrides
    )


def variable_shapes(model):
    """As from `init`, without computing anything."""
    x = np.zeros((1, 32, 32, 3), np.float32)
    return jax.eval_shape(model.init, jax.random.key(0), x)
