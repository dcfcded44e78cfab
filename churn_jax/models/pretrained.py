"""Weights of a local Hugging Face folder in our networks: BERT, ResNet and Swin.

A folder has `config.json` and `model.safetensors`, or several such files with
`model.safetensors.index.json`. Nothing is downloaded, and PyTorch is not needed.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.models.bert import Bert
from churn_jax.models.convert import from_hugging_face, swin_file_name
from churn_jax.models.residual import ImageNetResNet
from churn_jax.models.swin import Swin

_INDEX = "model.safetensors.index.json"
_ONE = "model.safetensors"


class Setting(NamedTuple):
    """One entry of `config.json` and what it must be for our network."""

    key: str
    default: Any  # where `config.json` does not say
    ours: Callable[[Any], Any]  # the network's value


class Architecture(NamedTuple):
    """One public architecture and our network."""

    network: type[nn.Module]
    prefix: str  # of the names of all tensors but the last layer's
    head: str  # prefix of the last layer's
    example: jax.ShapeDtypeStruct  # of an input
    settings: tuple[Setting, ...]  # must agree with `config.json`
    # Prefixes or suffixes of tensors that have no place: other last layers, constants.
    ignored: tuple[str, ...] = ()


def _resnet_width(network: ImageNetResNet) -> list[int]:
    widen = 1 if network.block == "basic" else 4
    return [network.width * widen * 2**i for i in range(len(network.stages))]


_IMAGE = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
ARCHITECTURES = {
    "bert": Architecture(
        Bert,
        "bert.",
        "classifier.",
        jax.ShapeDtypeStruct((1, 1), jnp.int32),
        (
            Setting("vocab_size", 30522, lambda n: n.vocabulary_size),
            Setting("hidden_size", 768, lambda n: n.width),
            Setting("num_hidden_layers", 12, lambda n: n.depth),
            Setting("num_attention_heads", 12, lambda n: n.attention_heads),
            Setting("intermediate_size", 3072, lambda n: n.hidden),
            Setting("max_position_embeddings", 512, lambda n: n.positions),
            Setting("type_vocab_size", 2, lambda n: n.types),
            Setting("layer_norm_eps", 1e-12, lambda n: n.epsilon),
            Setting("hidden_act", "gelu", lambda n: "gelu"),
            Setting("position_embedding_type", "absolute", lambda n: "absolute"),
        ),
        ("cls.", "position_ids"),
    ),
    "resnet": Architecture(
        ImageNetResNet,
        "resnet.",
        "classifier.",
        _IMAGE,
        (
            Setting("num_channels", 3, lambda n: 3),
            Setting("depths", [3, 4, 6, 3], lambda n: list(n.stages)),
            Setting("layer_type", "bottleneck", lambda n: n.block),
            Setting("embedding_size", 64, lambda n: n.width),
            Setting("hidden_sizes", [256, 512, 1024, 2048], _resnet_width),
            Setting("downsample_in_bottleneck", False, lambda n: n.stride_at == "1x1"),
            Setting("downsample_in_first_stage", False, lambda n: False),
            Setting("hidden_act", "relu", lambda n: "relu"),
        ),
    ),
    "swin": Architecture(
        Swin,
        "swin.",
        "classifier.",
        _IMAGE,
        (
            Setting("num_channels", 3, lambda n: 3),
            Setting("embed_dim", 96, lambda n: n.width),
            Setting("depths", [2, 2, 6, 2], lambda n: list(n.stages)),
            Setting("num_heads", [3, 6, 12, 24], lambda n: list(n.attention_heads)),
            Setting("window_size", 7, lambda n: n.window),
            Setting("patch_size", 4, lambda n: n.patch),
            Setting("mlp_ratio", 4, lambda n: n.expand),
            Setting("qkv_bias", True, lambda n: True),
            Setting("use_absolute_embeddings", False, lambda n: False),
            Setting("layer_norm_eps", 1e-5, lambda n: 1e-5),
            Setting("hidden_act", "gelu", lambda n: "gelu"),
        ),
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
        """`variables` with these weights in place of their own.

        Args:
            variables: variables of the network, from its `init`.

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
        churn_jax.models.pretrained.PretrainedError: nowhere has no config.json; ...
    """
    folder = Path(folder)
    config = _json(folder, "config.json")
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise PretrainedError(
            f"{folder} holds weights of {kind!r}; those of "
            f"{', '.join(ARCHITECTURES)} can be read"
        )
    form = ARCHITECTURES[kind]
    if not isinstance(network, form.network):
        raise PretrainedError(
            f"{folder} holds weights of {kind!r}, which fit {form.network.__name__}; "
            f"the network is {type(network).__name__}"
        )
    _check_settings(folder, config, form, network)
    like = dict(jax.eval_shape(network.init, jax.random.key(0), form.example))
    files = _files(folder)
    weights = dict(_tensors(folder, files, form))
    params = dict(like["params"])
    fresh = _fresh(weights, params, form)
    for name in fresh:
        del params[name]
    try:
        variables = from_hugging_face(weights, {**like, "params": params})
    except ValueError as error:
        raise PretrainedError(f"{folder}: {error}") from error
    kept = f"; fresh: {', '.join(fresh)}" if fresh else ""
    return Pretrained(
        variables,
        fresh,
        _fingerprint(weights),
        f"weights of {kind} from {folder}{kept}",
    )


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


def _check_settings(
    folder: Path, config: dict, form: Architecture, network: nn.Module
) -> None:
    """Shapes alone do not show heads, strides, windows or activations."""
    for key, default, ours in form.settings:
        said, expected = config.get(key, default), ours(network)
        if said != expected:
            raise PretrainedError(
                f"{folder} has {key} {said!r}, but the network needs {expected!r}"
            )


def _files(folder: Path) -> dict[str, set[str] | None]:
    """Files with the tensors that each must have; None where no index says."""
    if (folder / _ONE).is_file() or not (folder / _INDEX).is_file():
        return {_ONE: None}
    index = _json(folder, _INDEX).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise PretrainedError(f"{folder / _INDEX} has no weight_map")
    files: dict[str, set[str] | None] = {}
    for tensor, name in index.items():
        if Path(name).name != name:
            raise PretrainedError(
                f"{folder / _INDEX} names {name!r}, which is not in its folder"
            )
        held = files.setdefault(name, set())
        assert held is not None
        held.add(tensor)
    return files


def _tensors(
    folder: Path, files: dict[str, set[str] | None], form: Architecture
) -> Iterator[tuple[str, np.ndarray]]:
    """Name, as in a file of the model for classification, and values."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise PretrainedError(
            "reading pretrained weights needs the package safetensors: "
            "pip install 'churn-jax[pretrained]'"
        ) from error
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise PretrainedError(f"{folder} has no {name}")
        try:
            with safe_open(path, framework="numpy") as file:  # mapped into memory
                names = set(file.keys())
                if expected and (missing := sorted(expected - names)):
                    raise PretrainedError(f"{path} lacks {missing[0]}, see {_INDEX}")
                for tensor in sorted(names):
                    known = _known_name(tensor, form)
                    if known is not None:
                        yield known, np.asarray(file.get_tensor(tensor))
        except (SafetensorError, OSError, TypeError) as error:
            raise PretrainedError(f"{path} cannot be read: {error}") from error


def _known_name(name: str, form: Architecture) -> str | None:
    """A tensor's name in newer files of whole models; None for what we do not use."""
    if name.startswith(form.ignored) or name.endswith(form.ignored):
        return None
    if not name.startswith((form.prefix, form.head)):
        name = form.prefix + name  # of a model without a last layer
    if form.network is Swin:
        name = swin_file_name(name)
    # As the first BERTs were published.
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _fresh(weights: dict, params: dict, form: Architecture) -> tuple[str, ...]:
    """Layers to leave as they start; what the file has in their place is removed."""
    fresh = []
    classes = params["head"]["kernel"].shape[-1]
    heads = {name: v for name, v in weights.items() if name.startswith(form.head)}
    if not heads or any(v.shape[:1] != (classes,) for v in heads.values()):
        fresh.append("head")
        for name in heads:
            del weights[name]
    pooler = f"{form.prefix}pooler."
    if "pooler" in params and not any(name.startswith(pooler) for name in weights):
        fresh.append("pooler")
    if "pooler" not in params:  # a `Bert` that takes means
        for name in [n for n in weights if n.startswith(pooler)]:
            del weights[name]
    return tuple(fresh)


def _fingerprint(weights: Mapping[str, np.ndarray]) -> str:
    code = 0
    for name in sorted(weights):
        code = zlib.crc32(name.encode(), code)
        code = zlib.crc32(np.ascontiguousarray(weights[name]).view(np.uint8).data, code)
    return f"{code:08x}"
