"""Networks with K members, by a loop over explicit weight matrices in float64."""

import numpy as np

from tests.models import numpy_networks


def member_kernels(params):
    """`W * outer(r_m, s_m)` of every member, `[K, ..., D_in, D_out]`."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    return np.stack(
        [p["kernel"] * np.outer(r, s) for r, s in zip(p["fast_in"], p["fast_out"])]
    )


def member_biases(params, members, features):
    """One bias per member, whatever the layer shares; zeros where there is none."""
    bias = np.asarray(params.get("bias", np.zeros(features)), np.float64)
    return np.broadcast_to(bias, (members, features))


def batch_ensemble(params, x, product):
    """A layer's `[K * B, ...]`, each member with weights of its own.

    Args:
        params: of the layer.
        x: rows, member by member.
        product: `(rows, kernel) -> rows` of one member.
    """
    kernels = member_kernels(params)
    parts = np.split(np.asarray(x, np.float64), len(kernels))
    biases = member_biases(params, len(kernels), kernels.shape[-1])
    return np.concatenate(
        [product(part, k) + b for part, k, b in zip(parts, kernels, biases)]
    )


def dense_gradients(params, x, cotangent):
    """Of `sum(cotangent * y)` in the inputs and the parameters, by the chain rule."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    kernels = member_kernels(params)
    members = len(kernels)
    parts = np.split(np.asarray(x, np.float64), members)
    outer = np.split(np.asarray(cotangent, np.float64), members)
    found = {name: np.zeros_like(leaf) for name, leaf in p.items()}
    inputs = []
    for m in range(members):
        inputs.append(outer[m] @ kernels[m].T)
        own = parts[m].T @ outer[m]  # the gradient in W_m
        found["kernel"] += own * np.outer(p["fast_in"][m], p["fast_out"][m])
        found["fast_in"][m] = (own * p["kernel"]) @ p["fast_out"][m]
        found["fast_out"][m] = p["fast_in"][m] @ (own * p["kernel"])
        if "bias" in p:
            index = m if p["bias"].ndim == 2 else ...
            found["bias"][index] += outer[m].sum(0)
    return np.concatenate(inputs), found


def wide_block(params, x, *, stride):
    """A pre-activation block in train mode."""
    width = params["conv1"]["kernel"].shape[-1]
    a = numpy_networks.relu(numpy_networks.batch_norm(x, params["norm1"]))
    y = numpy_networks.convolution(
        a, params["conv1"]["kernel"], stride=stride, padding=1
    )
    y = numpy_networks.relu(numpy_networks.batch_norm(y, params["norm2"]))
    y = numpy_networks.convolution(y, params["conv2"]["kernel"], padding=1)
    if stride != 1 or x.shape[-1] != width:
        x = numpy_networks.convolution(x, params["shortcut"]["kernel"], stride=stride)
    return x + y


def wide_resnet(params, x, *, blocks):
    """Logits in train mode."""
    x = numpy_networks.convolution(x, params["stem"]["kernel"], padding=1)
    for stage in (1, 2, 3):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            x = wide_block(params[f"stage{stage}_block{block}"], x, stride=stride)
    x = numpy_networks.relu(numpy_networks.batch_norm(x, params["norm"]))
    return numpy_networks.dense(x.mean((1, 2)), params["head"])
