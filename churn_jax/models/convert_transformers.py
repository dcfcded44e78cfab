"""BERT and Swin weights to and from the names in Hugging Face's files; NumPy only.

The tensors of a safetensors file, or `state_dict()` of a PyTorch model as NumPy arrays,
are all that is needed: nothing here imports PyTorch or JAX.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from churn_jax.models.convert import PublicNames, read_weights, write_weights

_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "embedding": "weight",
    "bias": "bias",
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
_BIAS_TABLE = "attention.self.relative_position_bias_table"
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


def _bert_name(*path: str) -> str | None:
    *modules, leaf = path
    if len(modules) == 1:
        module = _BERT.get(modules[0])
    else:
        layer = re.fullmatch(r"layer(\d+)", modules[0]) if modules else None
        within = _BERT_WITHIN.get("/".join(modules[1:]))
        if layer is None or within is None:
            return None
        module = f"bert.encoder.layer.{int(layer[1]) - 1}.{within}"
    return f"{module}.{_LEAVES[leaf]}" if module and leaf in _LEAVES else None


def _swin_name(*path: str) -> str | None:
    *modules, leaf = path
    top = modules[0] if modules else ""
    block = re.fullmatch(r"stage(\d+)_block(\d+)", top)
    merge = re.fullmatch(r"stage(\d+)_merge", top)
    if block:
        place = f"swin.encoder.layers.{int(block[1]) - 1}.blocks.{int(block[2]) - 1}"
        if len(modules) == 1:
            return f"{place}.{_BIAS_TABLE}" if leaf == "position_bias" else None
        within = _SWIN_WITHIN.get("/".join(modules[1:]))
        module = within and f"{place}.{within}"
    elif merge:  # there it ends the stage before
        part = modules[1] if len(modules) == 2 else ""
        known = part in ("norm", "reduction")
        place = f"swin.encoder.layers.{int(merge[1]) - 2}.downsample"
        module = f"{place}.{part}" if known else None
    else:
        module = _SWIN.get(top) if len(modules) == 1 else None
    return f"{module}.{_LEAVES[leaf]}" if module and leaf in _LEAVES else None


def swin_file_name(name: str) -> str:
    """A name in a file of Swin weights, from that or from the one in memory."""
    for pattern, form in _SWIN_RENAMED:
        name = pattern.sub(lambda m, form=form: form.format(_NEW_NAMES[m[1]]), name)
    return name


class _Names(PublicNames):
    """The names of a network without model state."""

    def find(self, path: tuple[str, ...]) -> str | None:
        """The name in a file, None for a variable of another network."""
        return self.module(*path[1:]) if path[0] == "params" else None


_BERT_NAMES = _Names("Bert", _bert_name)
_SWIN_NAMES = _Names("Swin", _swin_name)


def bert_from_hugging_face(weights: Mapping[str, Any], like: Any) -> dict:
    """Variables of a `Bert` from Hugging Face's BERT for sequence classification.

    Args:
        weights: name to array, as in a file of `BertForSequenceClassification`; dense
            layers are `[O, I]`.
        like: variables of the network, or their shapes from `jax.eval_shape`.

    Returns:
        `{"params": ...}`, float32 NumPy arrays.

    Raises:
        ValueError: a weight is missing, has no place or has another shape.

    Example:
        >>> import numpy as np
        >>> like = {"params": {"head": {"kernel": np.ones((2, 3))}}}
        >>> weights = {"classifier.weight": np.arange(6).reshape(3, 2)}
        >>> bert_from_hugging_face(weights, like)["params"]["head"]["kernel"]
        array([[0., 2., 4.],
               [1., 3., 5.]], dtype=float32)
    """
    return read_weights(weights, like, _BERT_NAMES)


def bert_to_hugging_face(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `bert_from_hugging_face`: name to float32 array.

    Args:
        variables: variables of a `Bert`, one network (no member axis).

    Returns:
        What a file of `BertForSequenceClassification` holds.

    Raises:
        ValueError: these are variables of another network.

    Example:
        >>> import numpy as np
        >>> tokens = {"embedding": np.zeros((7, 2))}
        >>> list(bert_to_hugging_face({"params": {"tokens": tokens}}))
        ['bert.embeddings.word_embeddings.weight']
    """
    return write_weights(variables, _BERT_NAMES)


def swin_from_hugging_face(weights: Mapping[str, Any], like: Any) -> dict:
    """Variables of a `Swin` from Hugging Face's Swin for image classification.

    Arguments, result and errors as of `bert_from_hugging_face`, with the names in a
    file of `SwinForImageClassification` or those of its `state_dict()`, which differ.
    Tensors named `relative_position_index` are left out.

    Example:
        >>> import numpy as np
        >>> like = {"params": {"stage2_merge": {"norm": {"scale": np.ones(1)}}}}
        >>> weights = {"swin.encoder.layers.0.downsample.norm.weight": [3]}
        >>> swin_from_hugging_face(weights, like)["params"]["stage2_merge"]["norm"]
        {'scale': array([3.], dtype=float32)}
    """
    known = {
        swin_file_name(name): value
        for name, value in weights.items()
        if not name.endswith(_SWIN_INDEX)
    }
    return read_weights(known, like, _SWIN_NAMES)


def swin_to_hugging_face(variables: Any) -> dict[str, np.ndarray]:
    """The inverse of `swin_from_hugging_face`; see `bert_to_hugging_face`.

    Example:
        >>> import numpy as np
        >>> patches = {"kernel": np.zeros((4, 4, 3, 8))}
        >>> weights = swin_to_hugging_face({"params": {"patches": patches}})
        >>> weights["swin.embeddings.patch_embeddings.projection.weight"].shape
        (8, 3, 4, 4)
    """
    return write_weights(variables, _SWIN_NAMES)
