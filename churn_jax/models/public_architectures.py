"""Public architectures whose weights fit our networks, and what must agree."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.bert import Bert
from churn_jax.models.convert import from_hugging_face
from churn_jax.models.convert_transformers import (
    bert_from_hugging_face,
    swin_from_hugging_face,
)
from churn_jax.models.resnet_imagenet import ImageNetResNet
from churn_jax.models.swin import Swin

__all__ = ["ARCHITECTURES", "Architecture", "Setting"]


class Setting(NamedTuple):
    """One entry of `config.json` and what it must be for our network.

    Attributes:
        key: of the entry.
        default: where `config.json` does not say.
        ours: network to what the entry must be.
    """

    key: str
    default: Any
    ours: Callable[[Any], Any]


class Architecture(NamedTuple):
    """One public architecture and our network.

    Attributes:
        network: the class of ours.
        prefix: how the names of all tensors but the last layer's begin.
        head: how those of the last layer begin.
        read: names to arrays, and variables or their shapes, to variables.
        example: what the network takes.
        settings: what must agree with `config.json`.
        ignored: how names of tensors begin or end that have no place with us: other
            last layers and constants.
    """

    network: type[nn.Module]
    prefix: str
    head: str
    read: Callable[[Mapping[str, Any], Any], dict]
    example: jax.ShapeDtypeStruct
    settings: tuple[Setting, ...]
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
        bert_from_hugging_face,
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
        from_hugging_face,
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
        swin_from_hugging_face,
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
