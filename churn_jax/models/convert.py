"""Weights to and from the names of public PyTorch models; NumPy only.

`state_dict()` of a PyTorch model, or the tensors of a safetensors file, as NumPy arrays
are all that is needed: nothing here imports PyTorch or JAX.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from churn_jax.models.public_names import (
    PublicNames,
    hugging_face_names,
    timm_names,
)

__all__ = [
    "from_hugging_face",
    "from_timm",
    "read_weights",
    "to_hugging_face",
    "to_timm",
    "write_weights",
]

_COUNTER = "num_batches_tracked"  # of every batch norm; only PyTorch keeps it


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple, Any]]:
    for name, below in tree.items():
        if isinstance(below, Mapping):
            yield from _leaves(below, (*path, name))
        else:
            yield (*path, name), below


def _some(names) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def read_weights(weights: Mapping[str, Any], like: Any, form: PublicNames) -> dict:
    """Variables such as `like`, from PyTorch's names and shapes to ours.

    Raises:
        ValueError: a weight is missing, has no place or has another shape.
    """
    wanted = {form.name(path): (path, leaf) for path, leaf in _leaves(like)}
    given = {name for name in weights if not name.endswith(_COUNTER)}
    if missing := wanted.keys() - given:
        raise ValueError(f"the weights lack {_some(missing)}")
    if unknown := given - wanted.keys():
        raise ValueError(f"the network has no place for {_some(unknown)}")
    variables: dict = {}
    for name, (path, leaf) in wanted.items():
        value = np.asarray(weights[name], np.float32)
        expected = form.shape(path, leaf.shape)
        if value.shape != expected:
            raise ValueError(
                f"{name} must have shape {expected} for this network; got {value.shape}"
            )
        if path[-1] == "kernel":  # [O, I, ...] -> [..., I, O]
            value = np.moveaxis(value, (0, 1), (-1, -2)).reshape(leaf.shape)
        at = variables
        for module in path[:-1]:
            at = at.setdefault(module, {})
        at[path[-1]] = np.ascontiguousarray(value)
    return variables


def write_weights(variables: Any, form: PublicNames) -> dict[str, np.ndarray]:
    """The inverse of `read_weights`.

    Raises:
        ValueError: these are variables of another network.
    """
    weights = {}
    for path, leaf in _leaves(variables):
        value, name = np.asarray(leaf, np.float32), form.name(path)
        if path[-1] == "kernel":  # [..., I, O] -> [O, I, ...]
            outside, inside, *window = form.shape(path, leaf.shape)
            value = value.reshape(*window, inside, outside)
            value = np.moveaxis(value, (-1, -2), (0, 1))
        weights[name] = np.ascontiguousarray(value)
    return weights


def from_hugging_face(weights: Mapping[str, Any], like: Any) -> dict:
    """Variables of an `ImageNetResNet` from Hugging Face's ResNet for classification.

    Args:
        weights: PyTorch's name to array, as in `state_dict()` of
            `ResNetForImageClassification`; convolutions are `[O, I, H, W]`. Counters
            named `num_batches_tracked` are left out.
        like: variables of the network, or their shapes from `jax.eval_shape`.

    Returns:
        `{"params": ..., "batch_stats": ...}`, float32 NumPy arrays.

    Raises:
        ValueError: a weight is missing, has no place or has another shape.

    Notes:
        The default configuration there has its strides where ours has
        (`stride_at="3x3"`); `downsample_in_bottleneck` is our `"1x1"`.

    Example:
        >>> import numpy as np
        >>> dense = {"kernel": np.ones((3, 2)), "bias": np.zeros(2)}
        >>> weights = to_hugging_face({"params": {"head": dense}})
        >>> sorted(weights), weights["classifier.1.weight"].shape
        (['classifier.1.bias', 'classifier.1.weight'], (2, 3))
        >>> from_hugging_face({}, {"params": {"head": dense}})
        Traceback (most recent call last):
            ...
        ValueError: the weights lack classifier.1.bias, classifier.1.weight
    """
    return read_weights(weights, like, hugging_face_names(like))


def to_hugging_face(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `from_hugging_face`: PyTorch's name to float32 array.

    Args:
        variables: of an `ImageNetResNet`, one network (no member axis).

    Returns:
        What `load_state_dict(..., strict=False)` takes, as NumPy arrays.

    Raises:
        ValueError: these are variables of another network.

    Example:
        >>> import numpy as np
        >>> stem = {"kernel": np.zeros((7, 7, 3, 64))}
        >>> weights = to_hugging_face({"params": {"stem": stem}})
        >>> weights["resnet.embedder.embedder.convolution.weight"].shape
        (64, 3, 7, 7)
    """
    return write_weights(variables, hugging_face_names(variables))


def from_timm(weights: Mapping[str, Any], like: Any) -> dict:
    """Variables of a `ResNetV2`, a `DenseNet` or a `VGG` from timm's.

    Args:
        weights: PyTorch's name to array, as in `state_dict()` of `resnetv2_50` (a
            pre-activation model with batch norm), `densenet121` or `vgg13`.
        like: variables of the network, or their shapes from `jax.eval_shape`.

    Returns:
        `{"params": ..., "batch_stats": ...}`, float32 NumPy arrays.

    Raises:
        ValueError: a weight is missing, has no place or has another shape.

    Notes:
        timm's first dense layer of a VGG is a convolution over the whole grid, `[O, I,
        H, W]`; ours takes rows in row, column, channel order. torchvision's DenseNets
        have the same names; its VGGs have not.

    Example:
        >>> import numpy as np
        >>> like = {"params": {"norm": {"scale": np.ones(2), "bias": np.zeros(2)}}}
        >>> read = from_timm({"norm.weight": [3, 4], "norm.bias": [5, 6]}, like)
        >>> read["params"]["norm"]["scale"]
        array([3., 4.], dtype=float32)
    """
    return read_weights(weights, like, timm_names(like))


def to_timm(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `from_timm`: PyTorch's name to float32 array.

    Args:
        variables: of a `ResNetV2`, a `DenseNet` or a `VGG`, one network (no member
            axis).

    Returns:
        What `load_state_dict(..., strict=False)` takes, as NumPy arrays.

    Raises:
        ValueError: these are variables of another network.

    Example:
        >>> import numpy as np
        >>> dense = {"kernel": np.ones((3, 2)), "bias": np.zeros(2)}
        >>> to_timm({"params": {"head": dense}})["head.fc.weight"].shape
        (2, 3, 1, 1)
    """
    return write_weights(variables, timm_names(variables))
