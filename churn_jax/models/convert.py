"""Weights to and from the names of public models: Hugging Face and timm; NumPy only.

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
_MERGE = re.compile(r"stage(\d+)_merge")
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "embedding": "weight",
    "position_bias": "relative_position_bias_table",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# Inside a layer of BERT and inside a block of Swin.
_WITHIN = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/out": "attention.output.dense",
    "feed_forward/dense1": "intermediate.dense",
    "feed_forward/dense2": "output.dense",
}
_BERT = {
    "tokens": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "types": "bert.embeddings.token_type_embeddings",
    "norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "head": "classifier",
}
_BERT_WITHIN = _WITHIN | {
    "norm1": "attention.output.LayerNorm",
    "norm2": "output.LayerNorm",
}
_SWIN = {
    "patches": "swin.embeddings.patch_embeddings.projection",
    "patches_norm": "swin.embeddings.norm",
    "norm": "swin.layernorm",
    "head": "classifier",
}
_SWIN_WITHIN = _WITHIN | {"norm1": "layernorm_before", "norm2": "layernorm_after"}
# Version 5 of `transformers` knows Swin's parts by other names than its files.
_SWIN_RENAMED = (
    (re.compile(r"\.attention\.(q|k|v)_proj\."), ".attention.self.{}."),
    (re.compile(r"\.attention\.(o)_proj\."), ".attention.{}."),
    (re.compile(r"\.mlp\.(fc[12])\."), ".{}."),
    (re.compile(r"\.attention\.(relative)_position_bias\."), ".attention.{}."),
)
_NEW_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "output.dense",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "relative": "self",
}
_SWIN_INDEX = "relative_position_index"  # follows from the window; not a weight


@dataclasses.dataclass(frozen=True)
class PublicNames:
    """How a public library names and shapes the weights of one of our networks."""

    network: str  # ours, for messages
    module: Callable[..., str | None]  # from our modules to the public one
    # Our dense layers that are convolutions there, with height and width in pixels.
    windows: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    depth: int = 2  # modules inside each other, at most

    def find(self, path: tuple[str, ...]) -> str | None:
        """PyTorch's name of a variable, None for one of another network."""
        _, *modules, leaf = path
        module = self.module(*modules) if 1 <= len(modules) <= self.depth else None
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


def _bert(*modules: str) -> str | None:
    if len(modules) == 1:
        return _BERT.get(modules[0])
    layer = re.fullmatch(r"layer(\d+)", modules[0])
    within = _BERT_WITHIN.get("/".join(modules[1:]))
    if layer is None or within is None:
        return None
    return f"bert.encoder.layer.{int(layer[1]) - 1}.{within}"


def _swin(*modules: str) -> str | None:
    top, within = modules[0], "/".join(modules[1:])
    if block := _BLOCK.fullmatch(top):
        place = f"swin.encoder.layers.{int(block[1]) - 1}.blocks.{int(block[2]) - 1}"
        # A block itself has the table of position biases.
        known = _SWIN_WITHIN.get(within) if within else "attention.self"
        return known and f"{place}.{known}"
    if merge := _MERGE.fullmatch(top):  # there it ends the stage before
        place = f"swin.encoder.layers.{int(merge[1]) - 2}.downsample"
        return f"{place}.{within}" if within in ("norm", "reduction") else None
    return None if within else _SWIN.get(top)


def hugging_face_names(variables: Mapping[str, Any]) -> PublicNames:
    """The names of a `Bert`, a `Swin` or, for other variables, an `ImageNetResNet`."""
    params = variables.get("params", {})
    if "tokens" in params or "layer1" in params:
        return PublicNames("Bert", _bert, depth=3)
    merges = any(_MERGE.fullmatch(name) for name in params)
    if "patches" in params or "attention" in params.get("stage1_block1", {}) or merges:
        return PublicNames("Swin", _swin, depth=3)
    return PublicNames("ImageNetResNet", _hugging_face_resnet)


def swin_file_name(name: str) -> str:
    """A name in a file of Swin weights, from that or from the one in memory."""
    for pattern, form in _SWIN_RENAMED:
        name = pattern.sub(lambda m, form=form: form.format(_NEW_NAMES[m[1]]), name)
    return name


def timm_names(variables: Mapping[str, Any]) -> PublicNames:
    """The names of a `DenseNet`, a `VGG` or, for other variables, a `ResNetV2`."""
    params = variables.get("params", {})
    if any(_LAYER.fullmatch(name) for name in params):
        return PublicNames("DenseNet", _timm_densenet)
    if "dense1" in params and "stage1" in params:
        return _timm_vgg(params)
    return PublicNames("ResNetV2", _timm_resnet_v2, {"head": (1, 1)})


# Of every batch norm, which only PyTorch counts, and what follows from a window.
_COUNTERS = ("num_batches_tracked", _SWIN_INDEX)


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
    given = {name for name in weights if not name.endswith(_COUNTERS)}
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
    """Variables of an `ImageNetResNet`, a `Bert` or a `Swin` from Hugging Face's.

    Args:
        weights: PyTorch's name to array, as in `state_dict()` or in a file of
            `ResNetForImageClassification`, `BertForSequenceClassification` or
            `SwinForImageClassification`; convolutions are `[O, I, H, W]`. Counters
            named `num_batches_tracked` and `relative_position_index` are left out.
        like: variables of the network, or their shapes from `jax.eval_shape`.

    Returns:
        `{"params": ..., "batch_stats": ...}`, float32 NumPy arrays.

    Raises:
        ValueError: a weight is missing, has no place or has another shape.

    Notes:
        The default ResNet there has its strides where ours has (`stride_at="3x3"`);
        `downsample_in_bottleneck` is our `"1x1"`.

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
    form = hugging_face_names(like)
    if form.network == "Swin":
        weights = {swin_file_name(name): value for name, value in weights.items()}
    return read_weights(weights, like, form)


def to_hugging_face(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `from_hugging_face`: PyTorch's name to float32 array.

    Args:
        variables: variables of one network (no member axis).

    Returns:
        What `load_state_dict(..., strict=False)` takes, as NumPy arrays; a Swin has
        the names of its file.

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
