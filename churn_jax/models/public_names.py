"""What public PyTorch models call the layers of our networks, and how they shape them.

A layer of ours is the path of its modules, such as `("stage1_block2", "conv1")`.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["PublicNames", "hugging_face_names", "timm_names"]

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
    """How a public library names and shapes the weights of one of our networks.

    Attributes:
        network: ours, for messages.
        module: our modules to the public one, or None.
        windows: our dense layers that are convolutions there, with their height and
            width in pixels.
    """

    network: str
    module: Callable[..., str | None]
    windows: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def name(self, path: tuple[str, ...]) -> str:
        """PyTorch's name of a variable.

        Raises:
            ValueError: the network has no such variable.
        """
        _, *modules, leaf = path
        module = self.module(*modules) if 1 <= len(modules) <= 2 else None
        if module is None or leaf not in _LEAVES:
            raise ValueError(
                f"these are not the variables of {self.network}: it has no "
                f"{'/'.join(path)}"
            )
        return f"{module}.{_LEAVES[leaf]}"

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
    """Of a residual network; `place` has stage and block, counted from 0."""
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
    """Layers are counted there, those without weights too."""
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
    """Of an `ImageNetResNet`, whatever the variables."""
    del variables
    return PublicNames("ImageNetResNet", _hugging_face_resnet)


def timm_names(variables: Mapping[str, Any]) -> PublicNames:
    """Of a `DenseNet` or a `VGG` where the variables are its, else of a `ResNetV2`."""
    params = variables.get("params", {})
    if any(_LAYER.fullmatch(name) for name in params):
        return PublicNames("DenseNet", _timm_densenet)
    if "dense1" in params and "stage1" in params:
        return _timm_vgg(params)
    return PublicNames("ResNetV2", _timm_resnet_v2, {"head": (1, 1)})
