"""BERT and Swin in float64 NumPy, without masks or windows: who sees whom is listed."""

import jax
import numpy as np
from scipy.special import erf


def _dense(x, layer):
    return x @ layer["kernel"] + layer.get("bias", 0.0)


def _norm(x, layer, epsilon):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x * layer["scale"] + layer["bias"]


def _feed_forward(x, layer):
    x = _dense(x, layer["dense1"])
    return _dense(x * 0.5 * (1 + erf(x / 2**0.5)), layer["dense2"])


def _attention(x, layer, heads, bias):
    """`x` is `[L, D]`, `bias` `[heads, L, L]` with -inf where nothing is seen."""
    length, width = x.shape
    query, key, value = (
        _dense(x, layer[name]).reshape(length, heads, -1)
        for name in ("query", "key", "value")
    )
    out = np.empty((length, heads, width // heads))
    for head in range(heads):
        scores = query[:, head] @ key[:, head].T / (width // heads) ** 0.5
        scores = scores + bias[head]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out[:, head] = weights @ value[:, head]
    return _dense(out.reshape(length, width), layer["out"])


def bert(params, tokens, *, heads, pooling, epsilon=1e-12):
    """Logits `[B, C]`; each text alone, its padding cut out."""
    rows = []
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    tables = {n: params[n]["embedding"] for n in ("tokens", "positions", "types")}
    for text in np.asarray(tokens):
        at = np.flatnonzero(text)
        x = tables["tokens"][text[at]] + tables["positions"][at] + tables["types"][0]
        x = _norm(x, params["norm"], epsilon)
        none = np.zeros((heads, len(at), len(at)))
        for number in range(1, sum(name.startswith("layer") for name in params) + 1):
            layer = params[f"layer{number}"]
            y = _attention(x, layer["attention"], heads, none)
            x = _norm(x + y, layer["norm1"], epsilon)
            x = _norm(
                x + _feed_forward(x, layer["feed_forward"]), layer["norm2"], epsilon
            )
        if pooling == "first":
            rows.append(np.tanh(_dense(x[0], params["pooler"])))
        else:
            rows.append(x.mean(0))
    return _dense(np.stack(rows), params["head"])


def _position_bias(table, size, window, shift):
    """`[heads, H W, H W]`: a pixel sees those of its window on its side of the edge."""
    height, width = size

    def seen(n):
        at = np.arange(n)
        moved = shift if n > window else 0
        window_of, wrapped = (at - moved) % n // window, at < moved
        return (window_of[:, None] == window_of) & (wrapped[:, None] == wrapped)

    bias = np.full((table.shape[1], height, width, height, width), -np.inf)
    rows, columns = seen(height), seen(width)
    for i, k in np.argwhere(rows):
        for j, m in np.argwhere(columns):
            entry = (i - k + window - 1) * (2 * window - 1) + (j - m + window - 1)
            bias[:, i, j, k, m] = table[entry]
    return bias.reshape(len(bias), height * width, height * width)


def swin(params, images, *, stages, attention_heads, patch, window, epsilon=1e-5):
    """Logits `[B, C]`; sizes are multiples of patches, windows and merges."""
    rows = []
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    for image in np.asarray(images, float):
        height, width, _ = image.shape
        grid = (height // patch, width // patch)
        x = image.reshape(grid[0], patch, grid[1], patch, -1).swapaxes(1, 2)
        first = params["patches"]
        x = np.einsum("hwpqc,pqcd->hwd", x, first["kernel"]) + first["bias"]
        x = _norm(x, params["patches_norm"], epsilon)
        for stage, (blocks, own) in enumerate(zip(stages, attention_heads), start=1):
            if stage > 1:
                merge = params[f"stage{stage}_merge"]
                corners = [x[i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
                x = _norm(np.concatenate(corners, -1), merge["norm"], epsilon)
                x = _dense(x, merge["reduction"])
            size = x.shape[:2]
            x = x.reshape(size[0] * size[1], -1)
            for number in range(1, blocks + 1):
                block = params[f"stage{stage}_block{number}"]
                shift = window // 2 if number % 2 == 0 else 0
                bias = _position_bias(block["position_bias"], size, window, shift)
                y = _norm(x, block["norm1"], epsilon)
                x = x + _attention(y, block["attention"], own, bias)
                y = _norm(x, block["norm2"], epsilon)
                x = x + _feed_forward(y, block["feed_forward"])
            x = x.reshape(*size, -1)
        rows.append(_norm(x, params["norm"], epsilon).mean((0, 1)))
    return _dense(np.stack(rows), params["head"])
