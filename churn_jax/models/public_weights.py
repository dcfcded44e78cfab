"""Weights of public models in our networks, and back: Hugging Face and timm.

`state_dict()` of a PyTorch model, or the tensors of safetensors files, as NumPy arrays
are all that is needed: nothing is downloaded, and PyTorch is not needed.
"""

import collections
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from churn_jax.models.residual import ImageNetResNet, doubled
from churn_jax.models.transformers import Bert, Swin

_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "embedding": "weight",
    "position_bias": "relative_position_bias_table",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# Our modules and the public ones. The numbers in ours, `#`, are `{0}`, `{1}`, ... in
# theirs where they count from 0, and `{n[0]}` where they count from 1 as ours do.
_TRANSFORMER = {
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
    "layer#/norm1": "bert.encoder.layer.{0}.attention.output.LayerNorm",
    "layer#/norm2": "bert.encoder.layer.{0}.output.LayerNorm",
}
_BERT |= {
    f"layer#/{k}": f"bert.encoder.layer.{{0}}.{v}" for k, v in _TRANSFORMER.items()
}
_BLOCK = "swin.encoder.layers.{0}.blocks.{1}"
_SWIN = {
    "patches": "swin.embeddings.patch_embeddings.projection",
    "patches_norm": "swin.embeddings.norm",
    "norm": "swin.layernorm",
    "head": "classifier",
    # There it ends the stage before.
    "stage#_merge/norm": "swin.encoder.layers.{before[0]}.downsample.norm",
    "stage#_merge/reduction": "swin.encoder.layers.{before[0]}.downsample.reduction",
    "stage#_block#/norm1": f"{_BLOCK}.layernorm_before",
    "stage#_block#/norm2": f"{_BLOCK}.layernorm_after",
    "stage#_block#": f"{_BLOCK}.attention.self",  # the table of position biases
}
_SWIN |= {f"stage#_block#/{k}": f"{_BLOCK}.{v}" for k, v in _TRANSFORMER.items()}
_LAYER = "resnet.encoder.stages.{0}.layers.{1}"
_RESNET = {
    "head": "classifier.1",
    "stem": "resnet.embedder.embedder.convolution",
    "stem_norm": "resnet.embedder.embedder.normalization",
    "stage#_block#/shortcut": f"{_LAYER}.shortcut.convolution",
    "stage#_block#/shortcut_norm": f"{_LAYER}.shortcut.normalization",
    "stage#_block#/conv#": f"{_LAYER}.layer.{{2}}.convolution",
    "stage#_block#/norm#": f"{_LAYER}.layer.{{2}}.normalization",
}
_RESNET_V2 = {
    "head": "head.fc",
    "stem": "stem.conv",
    "norm": "norm",
    "stage#_block#/shortcut": "stages.{0}.blocks.{1}.downsample.conv",
    "stage#_block#/conv#": "stages.{0}.blocks.{1}.conv{n[2]}",
    "stage#_block#/norm#": "stages.{0}.blocks.{1}.norm{n[2]}",
}
_DENSE = "features.denseblock{n[0]}.denselayer{n[1]}"
_DENSENET = {
    "head": "classifier",
    "stem": "features.conv0",
    "stem_norm": "features.norm0",
    "norm": "features.norm5",
    "transition#/norm": "features.transition{n[0]}.norm",
    "transition#/conv": "features.transition{n[0]}.conv",
    "block#_layer#/conv#": f"{_DENSE}.conv{{n[2]}}",
    "block#_layer#/norm#": f"{_DENSE}.norm{{n[2]}}",
}
# Version 5 of `transformers` knows Swin's parts by other names than its files.
_SWIN_RENAMED = {
    ".attention.q_proj.": ".attention.self.query.",
    ".attention.k_proj.": ".attention.self.key.",
    ".attention.v_proj.": ".attention.self.value.",
    ".attention.o_proj.": ".attention.output.dense.",
    ".mlp.fc1.": ".intermediate.dense.",
    ".mlp.fc2.": ".output.dense.",
    ".attention.relative_position_bias.": ".attention.self.",
}
# What batch norm counts in PyTorch alone, and what follows from a window.
_NO_WEIGHTS = ("num_batches_tracked", "relative_position_index")


class _PublicNames(NamedTuple):
    """How a public library names and shapes the weights of one of our networks."""

    network: str  # ours, for messages
    modules: Mapping[str, str]  # ours and theirs
    # Our dense layers that are convolutions there, with height and width in pixels.
    windows: Mapping[str, tuple[int, int]] = {}

    def name(self, path: tuple[str, ...]) -> str:
        """PyTorch's name of a variable; refuses those of another network."""
        module = "/".join(path[1:-1])
        for ours, theirs in self.modules.items() if path[-1] in _LEAVES else ():
            if match := re.fullmatch(ours.replace("#", r"(\d+)"), module):
                n = [int(number) for number in match.groups()]
                zero, before = ([i - shift for i in n] for shift in (1, 2))
                place = theirs.format(*zero, n=n, before=before)
                return f"{place}.{_LEAVES[path[-1]]}"
        raise ValueError(
            f"these are not the variables of {self.network}: it has no {'/'.join(path)}"
        )

    def shape(self, path: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """PyTorch's shape: channels out, channels in, height, width."""
        if path[-1] != "kernel":
            return tuple(shape)
        *window, inside, outside = shape
        if not window:
            window = self.windows.get(path[-2], ())
            inside //= math.prod(window)
        return (outside, inside, *window)


def _timm_vgg(params: Mapping[str, Any]) -> _PublicNames:
    """Timm counts the layers of a VGG, also those without weights."""
    places = {"dense1": "pre_logits.fc1", "dense2": "pre_logits.fc2", "head": "head.fc"}
    counted, channels = 0, 1
    stages = map("stage{}".format, itertools.count(1))
    for stage in itertools.takewhile(params.get, stages):
        layers = params[stage]
        for number in range(1, sum(name.startswith("conv") for name in layers) + 1):
            for part in (f"conv{number}", f"norm{number}"):
                if part in layers:
                    places[f"{stage}/{part}"] = f"features.{counted}"
                    counted += 1
            counted += 1  # the ReLU
            channels = layers[f"conv{number}"]["kernel"].shape[-1]
        counted += 1  # the maxima
    # Rows of the first dense layer are those of a grid of the last stage's channels.
    grid = math.isqrt(params["dense1"]["kernel"].shape[0] // channels)
    return _PublicNames("VGG", places, {"dense1": (grid, grid), "dense2": (1, 1)})


def _hugging_face_names(variables: Mapping[str, Any]) -> _PublicNames:
    """The names of a `Bert`, a `Swin` or, for other variables, an `ImageNetResNet`."""
    params = variables.get("params", {})
    if "tokens" in params or "layer1" in params:
        return _PublicNames("Bert", _BERT)
    merges = any(name.endswith("_merge") for name in params)
    if "patches" in params or "attention" in params.get("stage1_block1", {}) or merges:
        return _PublicNames("Swin", _SWIN)
    return _PublicNames("ImageNetResNet", _RESNET)


def _timm_names(variables: Mapping[str, Any]) -> _PublicNames:
    """The names of a `DenseNet`, a `VGG` or, for other variables, a `ResNetV2`."""
    params = variables.get("params", {})
    if any(re.fullmatch(r"block\d+_layer\d+", name) for name in params):
        return _PublicNames("DenseNet", _DENSENET)
    if "dense1" in params and "stage1" in params:
        return _timm_vgg(params)
    return _PublicNames("ResNetV2", _RESNET_V2, {"head": (1, 1)})


def _swin_file_name(name: str) -> str:
    """A name in a file of Swin weights, from that or from the one in memory."""
    for new, old in _SWIN_RENAMED.items():
        name = name.replace(new, old)
    return name


def _some(names) -> str:
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _read(weights: Mapping[str, Any], like: Any, form: _PublicNames) -> dict:
    """Variables such as `like`, from PyTorch's names and shapes to ours."""
    leaves: dict[tuple, Any] = flatten_dict(like)
    wanted = {form.name(path): (path, leaf) for path, leaf in leaves.items()}
    given = {name for name in weights if not name.endswith(_NO_WEIGHTS)}
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
        variables[path] = np.ascontiguousarray(value)
    return unflatten_dict(variables)


def _write(variables: Any, form: _PublicNames) -> dict[str, np.ndarray]:
    """The inverse of `_read`."""
    leaves: dict[tuple, Any] = flatten_dict(variables)
    weights = {}
    for path, leaf in leaves.items():
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
        >>> dense = {"kernel": np.ones((3, 2)), "bias": np.zeros(2)}
        >>> weights = to_hugging_face({"params": {"head": dense}})
        >>> sorted(weights), weights["classifier.1.weight"].shape
        (['classifier.1.bias', 'classifier.1.weight'], (2, 3))
        >>> from_hugging_face({}, {"params": {"head": dense}})
        Traceback (most recent call last):
            ...
        ValueError: the weights lack classifier.1.bias, classifier.1.weight
    """
    form = _hugging_face_names(like)
    if form.network == "Swin":
        weights = {_swin_file_name(name): value for name, value in weights.items()}
    return _read(weights, like, form)


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
        >>> stem = {"kernel": np.zeros((7, 7, 3, 64))}
        >>> weights = to_hugging_face({"params": {"stem": stem}})
        >>> weights["resnet.embedder.embedder.convolution.weight"].shape
        (64, 3, 7, 7)
    """
    return _write(variables, _hugging_face_names(variables))


def from_timm(weights: Mapping[str, Any], like: Any) -> dict:
    """Variables of a `ResNetV2`, a `DenseNet` or a `VGG` from timm's.

    Arguments, result and errors as of `from_hugging_face`, for `state_dict()` of
    `resnetv2_50` (a pre-activation model with batch norm), `densenet121` or `vgg13`.

    Notes:
        timm's first dense layer of a VGG is a convolution over the whole grid, `[O, I,
        H, W]`; ours takes rows in row, column, channel order. torchvision's DenseNets
        have the same names; its VGGs have not.

    Example:
        >>> like = {"params": {"norm": {"scale": np.ones(2), "bias": np.zeros(2)}}}
        >>> read = from_timm({"norm.weight": [3, 4], "norm.bias": [5, 6]}, like)
        >>> read["params"]["norm"]["scale"]
        array([3., 4.], dtype=float32)
    """
    return _read(weights, like, _timm_names(like))


def to_timm(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `from_timm`; result and errors as of `to_hugging_face`.

    Example:
        >>> dense = {"kernel": np.ones((3, 2)), "bias": np.zeros(2)}
        >>> to_timm({"params": {"head": dense}})["head.fc.weight"].shape
        (2, 3, 1, 1)
    """
    return _write(variables, _timm_names(variables))


_INDEX = "model.safetensors.index.json"
_ONE = "model.safetensors"


class _Architecture(NamedTuple):
    """One public architecture and our network."""

    network: type[nn.Module]
    example: jax.ShapeDtypeStruct  # of an input
    # By key of `config.json`: its default, and the network's where that is not it.
    settings: Mapping[str, Any]
    # Prefixes or suffixes of tensors that have no place: other last layers, constants.
    ignored: tuple[str, ...] = ()


_IMAGE = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
_HEAD = "classifier."  # of the names of the last layer; all others have the type's
_ARCHITECTURES = {
    "bert": _Architecture(
        Bert,
        jax.ShapeDtypeStruct((1, 1), jnp.int32),
        {
            "vocab_size": (30522, lambda n: n.vocabulary_size),
            "hidden_size": (768, lambda n: n.width),
            "num_hidden_layers": (12, lambda n: n.depth),
            "num_attention_heads": (12, lambda n: n.attention_heads),
            "intermediate_size": (3072, lambda n: n.hidden),
            "max_position_embeddings": (512, lambda n: n.positions),
            "type_vocab_size": (2, lambda n: n.types),
            "layer_norm_eps": (1e-12, lambda n: n.epsilon),
            "hidden_act": ("gelu", lambda n: n.activation),
            "position_embedding_type": "absolute",
        },
        ("cls.", "position_ids"),
    ),
    "resnet": _Architecture(
        ImageNetResNet,
        _IMAGE,
        {
            "num_channels": 3,
            "depths": ([3, 4, 6, 3], lambda n: list(n.stages)),
            "layer_type": ("bottleneck", lambda n: n.block),
            "embedding_size": (64, lambda n: n.width),
            "hidden_sizes": (
                [256, 512, 1024, 2048],
                lambda n: doubled(n.width * (1 if n.block == "basic" else 4), n.stages),
            ),
            "downsample_in_bottleneck": (False, lambda n: n.stride_at == "1x1"),
            "downsample_in_first_stage": False,
            "hidden_act": ("relu", lambda n: n.activation),
            "batch_norm_eps": (1e-5, lambda n: n.epsilon),  # which they never change
        },
    ),
    "swin": _Architecture(
        Swin,
        _IMAGE,
        {
            "num_channels": 3,
            "embed_dim": (96, lambda n: n.width),
            "depths": ([2, 2, 6, 2], lambda n: list(n.stages)),
            "num_heads": ([3, 6, 12, 24], lambda n: list(n.attention_heads)),
            "window_size": (7, lambda n: n.window),
            "patch_size": (4, lambda n: n.patch),
            "mlp_ratio": (4, lambda n: n.expand),
            "qkv_bias": True,
            "use_absolute_embeddings": False,
            "layer_norm_eps": 1e-5,
            "hidden_act": ("gelu", lambda n: n.activation),
        },
        ("relative_position_index", "mask_token", "decoder."),
    ),
}


class PretrainedError(ValueError):
    """Weights that cannot be used; the message says why in one sentence."""


class Pretrained(NamedTuple):
    """Weights from a folder.

    Attributes:
        variables: `{"params": ..., **model_state}` as from the network's `init`, NumPy
            arrays; without the layers in `fresh`, which keep their initial weights.
        fresh: top-level layers that the folder has no fitting weights for: `head`
            where the classes differ or there are none, BERT's `pooler` where it was
            trained without.
        fingerprint: eight hexadecimal digits of names and values.
        note: one sentence that says what was read and what is fresh.
    """

    variables: dict
    fresh: tuple[str, ...]
    fingerprint: str
    note: str

    def into(self, variables: Mapping[str, Any]) -> dict:
        """`variables`, as the network's `init` draws them, with these weights instead.

        Example:
            >>> loaded = Pretrained({"params": {"stem": 1}}, ("head",), "", "")
            >>> loaded.into({"params": {"stem": 0, "head": 2}})
            {'params': {'stem': 1, 'head': 2}}
        """
        return {
            name: {**below, **self.variables.get(name, {})}
            for name, below in variables.items()
        }


def load_pretrained(folder: str | Path, network: nn.Module) -> Pretrained:
    """Weights of a local Hugging Face folder for one of our networks.

    BERT for `Bert`, ResNet for `ImageNetResNet` and Swin for `Swin`, of the sizes in
    `config.json`, as models for classification or without their last layer. Half
    precision becomes float32. A last layer of another number of classes is left out.

    Args:
        folder: with `config.json` and safetensors files.
        network: the Linen module, for example from `create`.

    Returns:
        The weights, and which layers keep their initial ones.

    Raises:
        PretrainedError: a file is missing or damaged, the architecture is unknown or
            another than the network's, or a tensor is missing, unexpected or of
            another shape.

    Example:
        >>> from churn_jax.models import create
        >>> load_pretrained("nowhere", create("bert_tiny", num_classes=4))
        Traceback (most recent call last):
            ...
        churn_jax.models.public_weights.PretrainedError: nowhere has no config.json; ...
    """
    folder = Path(folder)
    config = _json(folder, "config.json")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise PretrainedError(
            f"{folder} holds weights of {kind!r}; those of {known} can be read"
        )
    form = _ARCHITECTURES[kind]
    if not isinstance(network, form.network):
        raise PretrainedError(
            f"{folder} holds weights of {kind!r}, which fit {form.network.__name__}; "
            f"the network is {type(network).__name__}"
        )
    # Shapes alone do not show heads, strides, windows or activations.
    for key, known in form.settings.items():
        default, ours = known if isinstance(known, tuple) else (known, None)
        said, expected = config.get(key, default), ours(network) if ours else default
        if said != expected:
            raise PretrainedError(
                f"{folder} has {key} {said!r}, but the network needs {expected!r}"
            )
    like = dict(jax.eval_shape(network.init, jax.random.key(0), form.example))
    weights = {}
    for name, value in _tensors(folder):
        if (known := _known_name(name, kind)) is not None:
            weights[known] = value
    params = dict(like["params"])
    fresh = _fresh(weights, params, kind)
    for name in fresh:
        del params[name]
    try:
        variables = from_hugging_face(weights, {**like, "params": params})
    except ValueError as error:
        raise PretrainedError(f"{folder}: {error}") from error
    kept = f"; fresh: {', '.join(fresh)}" if fresh else ""
    note = f"weights of {kind} from {folder}{kept}"
    return Pretrained(variables, fresh, f"{_checksum(weights):08x}", note)


def _json(folder: Path, name: str) -> dict:
    path = folder / name
    if not path.is_file():
        raise PretrainedError(
            f"{folder} has no {name}; a Hugging Face folder has config.json and "
            f"{_ONE}, or {_INDEX} and the files it names"
        )
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PretrainedError(f"{path} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise PretrainedError(f"{path} must be a JSON object; got {read!r:.40}")
    return read


def _files(folder: Path) -> Mapping[str, set[str]]:
    """Files with the tensors that each must have; none are known without an index."""
    if (folder / _ONE).is_file() or not (folder / _INDEX).is_file():
        return {_ONE: set()}
    index = _json(folder, _INDEX).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise PretrainedError(f"{folder / _INDEX} has no weight_map")
    files = collections.defaultdict(set)
    for tensor, name in index.items():
        if Path(str(name)).name != name:
            raise PretrainedError(
                f"{folder / _INDEX} names {name!r}, which is not in its folder"
            )
        files[name].add(tensor)
    return files


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values of all tensors in a folder."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise PretrainedError(
            "reading pretrained weights needs the package safetensors: "
            "pip install 'churn-jax[pretrained]'"
        ) from error
    for name, expected in _files(folder).items():
        path = folder / name
        if not path.is_file():
            raise PretrainedError(f"{folder} has no {name}")
        try:
            with safe_open(path, framework="numpy") as file:  # mapped into memory
                names = set(file.keys())
                if missing := sorted(expected - names):
                    raise PretrainedError(f"{path} lacks {missing[0]}, see {_INDEX}")
                for tensor in sorted(names):
                    yield tensor, np.asarray(file.get_tensor(tensor))
        except (SafetensorError, OSError, TypeError) as error:
            raise PretrainedError(f"{path} cannot be read: {error}") from error


def _known_name(name: str, kind: str) -> str | None:
    """A tensor's name in newer files of whole models; None for what we do not use."""
    ignored = _ARCHITECTURES[kind].ignored
    if name.startswith(ignored) or name.endswith(ignored):
        return None
    if not name.startswith((f"{kind}.", _HEAD)):
        name = f"{kind}.{name}"  # of a model without a last layer
    if kind == "swin":
        name = _swin_file_name(name)
    # As the first BERTs were published.
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _fresh(weights: dict, params: dict, kind: str) -> tuple[str, ...]:
    """Layers to leave as they start; what the file has in their place is removed."""
    fresh, unused = [], []
    classes = params["head"]["kernel"].shape[-1]
    heads = [name for name in weights if name.startswith(_HEAD)]
    if not heads or any(weights[name].shape[:1] != (classes,) for name in heads):
        fresh.append("head")
        unused += heads
    poolers = [name for name in weights if name.startswith(f"{kind}.pooler.")]
    if "pooler" not in params:  # a `Bert` that takes means
        unused += poolers
    elif not poolers:
        fresh.append("pooler")
    for name in unused:
        del weights[name]
    return tuple(fresh)


def _checksum(weights: Mapping[str, np.ndarray]) -> int:
    code = 0
    for name in sorted(weights):
        code = zlib.crc32(name.encode(), code)
        code = zlib.crc32(np.ascontiguousarray(weights[name]).view(np.uint8).data, code)
    return code
