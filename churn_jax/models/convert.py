"""Weights to and from the names of public PyTorch models; NumPy only.

`state_dict()` of a PyTorch model, or the tensors of a safetensors file, as NumPy arrays
are all that is needed: nothing here imports PyTorch or JAX. A layer of ours is the path
of its modules, such as `("stage1_block2", "conv1")`.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

_BLOCK = re.compile(r"stage(\d+)_block(\d+)")
_PART = re.compile(r"(conv|norm)(\d+)")
_LAYER = re.compile(r"block(\d+)_layer(\d+)")
_TRANSITION = re.compile(r"transition\d+")
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


@dataclasses.dataclass(frozen=True)
class PublicNames:
    """How a public library names and shapes the weights of one of our networks."""

    network: str  # ours, for messages
    module: Callable[..., str | None]  # from our modules to the public one
    # Our dense layers that are convolutions there, with height and width in pixels.
    windows: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def find(self, path: tuple[str, ...]) -> str | None:
        """PyTorch's name of a variable, None for one of another network."""
        _, *modules, leaf = path
        module = self.module(*modules) if 1 <= len(modules) <= 2 else None
        return f"{module}.{_LEAVES[leaf]}" if module and leaf in _LEAVES else None

    def name(self, path: tuple[str, ...]) -> str:
        """PyTorch's name of a variable; refuses those of another network."""
        if (name := self.find(path)) is None:
            raise ValueError(
                f"these are not the variables of {self.network}: it has no "
                f"{'/'.join(path)}"
            )
        return name

    def shape(self, path: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """PyTorch's shape: channels out, channels in, height, width."""
        if path[-1] != "kernel":
            return tuple(shape)
        *window, inside, outside = shape
        if not window:
            window = self.windows.get(path[-2], ())
            inside //= math.prod(window)
        return (outside, inside, *window)


def _in_stages(
    modules: tuple[str, ...],
    outer: Mapping[str, str],
    inner: Mapping[str, str],
    place: str,
    numbered: Callable[[str, int], str],
) -> str | None:
    """PyTorch's module in a residual network; `place` has stage and block from 0."""
    if len(modules) == 1:
        return outer.get(modules[0])
    block, part = _BLOCK.fullmatch(modules[0]), modules[1]
    match = _PART.fullmatch(part)
    within = numbered(match[1], int(match[2])) if match else inner.get(part)
    if block is None or within is None:
        return None
    return f"{place.format(int(block[1]) - 1, int(block[2]) - 1)}.{within}"


def _hugging_face_resnet(*modules: str) -> str | None:
    outer = {
        "head": "classifier.1",
        "stem": "resnet.embedder.embedder.convolution",
        "stem_norm": "resnet.embedder.embedder.normalization",
    }
    inner = {
        "shortcut": "shortcut.convolution",
        "shortcut_norm": "shortcut.normalization",
    }
    kinds = {"conv": "convolution", "norm": "normalization"}
    return _in_stages(
        modules,
        outer,
        inner,
        "resnet.encoder.stages.{}.layers.{}",
        lambda kind, number: f"layer.{number - 1}.{kinds[kind]}",
    )


def _timm_resnet_v2(*modules: str) -> str | None:
    outer = {"head": "head.fc", "stem": "stem.conv", "norm": "norm"}
    return _in_stages(
        modules,
        outer,
        {"shortcut": "downsample.conv"},
        "stages.{}.blocks.{}",
        lambda kind, number: f"{kind}{number}",
    )


def _timm_densenet(*modules: str) -> str | None:
    outer = {
        "head": "classifier",
        "stem": "features.conv0",
        "stem_norm": "features.norm0",
        "norm": "features.norm5",
    }
    if len(modules) == 1:
        return outer.get(modules[0])
    if _TRANSITION.fullmatch(modules[0]) and modules[1] in ("norm", "conv"):
        return f"features.{'.'.join(modules)}"
    layer = _LAYER.fullmatch(modules[0])
    if layer is None or _PART.fullmatch(modules[1]) is None:
        return None
    place = f"features.denseblock{layer[1]}.denselayer{layer[2]}"
    return f"{place}.{modules[1]}"


def _timm_vgg(params: Mapping[str, Any]) -> PublicNames:
    """Timm counts the layers of a VGG, also those without weights."""
    places: dict[tuple[str, ...], str] = {
        ("dense1",): "pre_logits.fc1",
        ("dense2",): "pre_logits.fc2",
        ("head",): "head.fc",
    }
    counted, channels = 0, 1
    for stage in map("stage{}".format, itertools.count(1)):
        if stage not in params:
            break
        for number in itertools.count(1):
            if f"conv{number}" not in params[stage]:
                break
            for part in (f"conv{number}", f"norm{number}"):
                if part in params[stage]:
                    places[stage, part] = f"features.{counted}"
                    counted += 1
            counted += 1  # the ReLU
            channels = params[stage][f"conv{number}"]["kernel"].shape[-1]
        counted += 1  # the maxima
    # Rows of the first dense layer are those of a grid of the last stage's channels.
    grid = math.isqrt(params["dense1"]["kernel"].shape[0] // channels)
    windows = {"dense1": (grid, grid), "dense2": (1, 1)}
    return PublicNames("VGG", lambda *modules: places.get(modules), windows)


def hugging_face_names(variables: Mapping[str, Any]) -> PublicNames:
    """The names of an `ImageNetResNet`."""
    del variables
    return PublicNames("ImageNetResNet", _hugging_face_resnet)


def timm_names(variables: Mapping[str, Any]) -> PublicNames:
    """The names of a `DenseNet`, a `VGG` or, for other variables, a `ResNetV2`."""
    params = variables.get("params", {})
    if any(_LAYER.fullmatch(name) for name in params):
        return PublicNames("DenseNet", _timm_densenet)
    if "dense1" in params and "stage1" in params:
        return _timm_vgg(params)
    return PublicNames("ResNetV2", _timm_resnet_v2, {"head": (1, 1)})


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
    """Variables such as `like`, from PyTorch's names and shapes to ours."""
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
    """The inverse of `read_weights`."""
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
        variables: variables of an `ImageNetResNet`, one network (no member axis).

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

    Arguments, result and errors as of `from_hugging_face`, for `state_dict()` of
    `resnetv2_50` (a pre-activation model with batch norm), `densenet121` or `vgg13`.

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
    """The inverse of `from_timm`; result and errors as of `to_hugging_face`.

    Example:
        >>> import numpy as np
        >>> dense = {"kernel": np.ones((3, 2)), "bias": np.zeros(2)}
        >>> to_timm({"params": {"head": dense}})["head.fc.weight"].shape
        (2, 3, 1, 1)
    """
    return write_weights(variables, timm_names(variables))
