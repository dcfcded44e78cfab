"""Forward passes in float64 NumPy, written from the layers' definitions."""

import math

import jax
import numpy as np


def in_float64(tree):
    """The same tree of NumPy arrays: a stray JAX array would compute in float32."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def convolution(images, kernel, *, stride=1, padding=0):
    """`out[b, h, w, o] = sum_ijc in[b, s h + i - p, s w + j - p, c] k[i, j, c, o]`."""
    images = np.pad(
        np.asarray(images, np.float64),
        ((0, 0), (padding, padding), (padding, padding), (0, 0)),
    )
    kernel = np.asarray(kernel, np.float64)
    rows, columns = kernel.shape[:2]
    height = (images.shape[1] - rows) // stride + 1
    width = (images.shape[2] - columns) // stride + 1
    out = np.zeros((images.shape[0], height, width, kernel.shape[3]))
    for h in range(height):
        for w in range(width):
            window = images[
                :, stride * h : stride * h + rows, stride * w : stride * w + columns
            ]
            out[:, h, w] = np.tensordot(window, kernel, axes=3)
    return out


def activation(name, x, beta=1.0):
    """The activations from their definitions; `beta` as after the colon of a name."""
    erf = np.vectorize(math.erf)
    if name == "smelu":
        inside = [x <= -beta, x < beta]
        return np.select(inside, [0.0 * x, (x + beta) ** 2 / (4 * beta)], x)
    return {
        "relu": lambda: np.maximum(x, 0.0),
        "softplus": lambda: np.log1p(np.exp(beta * x)) / beta,
        "silu": lambda: x / (1 + np.exp(-beta * x)),
        "gelu": lambda: x * (1 + erf(beta * x / np.sqrt(2))) / 2,
    }[name]()


def average_pool(x):
    """Means of 2 x 2 pixels; a last odd row or column is dropped."""
    rows, columns = x.shape[1] // 2, x.shape[2] // 2
    out = np.zeros((x.shape[0], rows, columns, x.shape[3]))
    for h in range(rows):
        for w in range(columns):
            out[:, h, w] = x[:, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2].mean((1, 2))
    return out


def max_pool(x, size, *, stride, padding=0):
    """Maxima over `size` x `size` pixels; a window that sticks out is dropped."""
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    x = np.pad(x, around, constant_values=-np.inf)
    height = (x.shape[1] - size) // stride + 1
    width = (x.shape[2] - size) // stride + 1
    out = np.zeros((x.shape[0], height, width, x.shape[3]))
    for h in range(height):
        for w in range(width):
            rows = slice(stride * h, stride * h + size)
            columns = slice(stride * w, stride * w + size)
            out[:, h, w] = x[:, rows, columns].max((1, 2))
    return out


def adaptive_average_pool(x, size):
    """Means over a grid; a window is from the floor to the ceiling of its ends."""
    out = np.zeros((x.shape[0], size, size, x.shape[3]))
    rows, columns = (np.arange(size + 1) * n / size for n in x.shape[1:3])
    for h in range(size):
        for w in range(size):
            out[:, h, w] = x[
                :,
                int(np.floor(rows[h])) : int(np.ceil(rows[h + 1])),
                int(np.floor(columns[w])) : int(np.ceil(columns[w + 1])),
            ].mean((1, 2))
    return out


def relu(x):
    return np.maximum(x, 0)


def dense(x, params):
    return x @ params["kernel"] + params["bias"]


def lenet5(variables, images):
    params = variables["params"]
    x = convolution(images, params["conv1"]["kernel"], padding=2)
    x = average_pool(relu(x + params["conv1"]["bias"]))
    x = convolution(x, params["conv2"]["kernel"])
    x = average_pool(relu(x + params["conv2"]["bias"]))
    x = relu(dense(x.reshape(x.shape[0], -1), params["dense1"]))
    x = relu(dense(x, params["dense2"]))
    return dense(x, params["head"]), x


def batch_norm(x, params, mean=None, variance=None, epsilon=1e-5):
    """With the batch's own moments unless running ones are given."""
    mean = x.mean((0, 1, 2)) if mean is None else mean
    variance = x.var((0, 1, 2)) if variance is None else variance
    return (x - mean) / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]


def basic_block(params, x, *, stride):
    """Of a CIFAR ResNet, in train mode."""
    y = convolution(x, params["conv1"]["kernel"], stride=stride, padding=1)
    y = relu(batch_norm(y, params["norm1"]))
    y = convolution(y, params["conv2"]["kernel"], padding=1)
    y = batch_norm(y, params["norm2"])
    shortcut = np.zeros_like(y)
    shortcut[..., : x.shape[-1]] = x[:, ::stride, ::stride]
    return relu(y + shortcut)


def resnet(params, images):
    """Logits and features of a CIFAR ResNet of eight layers, in train mode."""
    x = convolution(images, params["stem"]["kernel"], padding=1)
    x = relu(batch_norm(x, params["stem_norm"]))
    for stage in (1, 2, 3):
        x = basic_block(params[f"stage{stage}_block1"], x, stride=min(stage, 2))
    x = x.mean((1, 2))
    return dense(x, params["head"]), x


def normalised(params, stats, x):
    """Batch norm with running moments, then ReLU."""
    return relu(batch_norm(x, params, stats["mean"], stats["var"]))


def imagenet_block(params, stats, x, *, strides):
    """After activation; `strides` are those of its two or three convolutions."""
    y = x
    for number, stride in enumerate(strides, start=1):
        kernel, norm = params[f"conv{number}"]["kernel"], f"norm{number}"
        y = convolution(y, kernel, stride=stride, padding=kernel.shape[0] // 2)
        y = batch_norm(y, params[norm], stats[norm]["mean"], stats[norm]["var"])
        y = relu(y) if number < len(strides) else y
    if "shortcut" in params:
        norm = stats["shortcut_norm"]
        x = convolution(x, params["shortcut"]["kernel"], stride=max(strides))
        x = batch_norm(x, params["shortcut_norm"], norm["mean"], norm["var"])
    return relu(x + y)


def imagenet_resnet(variables, images, strides):
    """Logits and features in evaluation, of two stages of a block each."""
    params, stats = variables["params"], variables["batch_stats"]
    x = convolution(images, params["stem"]["kernel"], stride=2, padding=3)
    x = max_pool(
        normalised(params["stem_norm"], stats["stem_norm"], x), 3, stride=2, padding=1
    )
    for stage, own in enumerate(([1] * len(strides), strides), start=1):
        name = f"stage{stage}_block1"
        x = imagenet_block(params[name], stats[name], x, strides=own)
    x = x.mean((1, 2))
    return dense(x, params["head"]), x


def densenet(variables, images, blocks):
    """Logits and features in evaluation."""
    params, stats = variables["params"], variables["batch_stats"]
    x = convolution(images, params["stem"]["kernel"], stride=2, padding=3)
    x = normalised(params["stem_norm"], stats["stem_norm"], x)
    x = max_pool(x, 3, stride=2, padding=1)
    for block, layers in enumerate(blocks, start=1):
        if block > 1:
            p, s = (tree[f"transition{block - 1}"] for tree in (params, stats))
            x = normalised(p["norm"], s["norm"], x)
            x = average_pool(convolution(x, p["conv"]["kernel"]))
        for layer in range(1, layers + 1):
            p, s = (tree[f"block{block}_layer{layer}"] for tree in (params, stats))
            y = normalised(p["norm1"], s["norm1"], x)
            y = convolution(y, p["conv1"]["kernel"])
            y = normalised(p["norm2"], s["norm2"], y)
            y = convolution(y, p["conv2"]["kernel"], padding=1)
            x = np.concatenate([x, y], -1)
    x = normalised(params["norm"], stats["norm"], x).mean((1, 2))
    return dense(x, params["head"]), x


def vgg(variables, images, stages, grid):
    """Logits and features in evaluation."""
    params, stats = variables["params"], variables.get("batch_stats")
    x = images
    for stage, convolutions in enumerate(stages, start=1):
        for number in range(1, convolutions + 1):
            p, conv, norm = params[f"stage{stage}"], f"conv{number}", f"norm{number}"
            x = convolution(x, p[conv]["kernel"], padding=1) + p[conv]["bias"]
            if stats is None:
                x = relu(x)
            else:
                x = normalised(p[norm], stats[f"stage{stage}"][norm], x)
        x = max_pool(x, 2, stride=2)
    x = adaptive_average_pool(x, grid).reshape(x.shape[0], -1)
    x = relu(dense(x, params["dense1"]))
    x = relu(dense(x, params["dense2"]))
    return dense(x, params["head"]), x


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
    a = relu(batch_norm(x, params["norm1"]))
    y = convolution(a, params["conv1"]["kernel"], stride=stride, padding=1)
    y = relu(batch_norm(y, params["norm2"]))
    y = convolution(y, params["conv2"]["kernel"], padding=1)
    if stride != 1 or x.shape[-1] != width:
        x = convolution(x, params["shortcut"]["kernel"], stride=stride)
    return x + y


def wide_resnet(params, x, *, blocks):
    """Logits in train mode."""
    x = convolution(x, params["stem"]["kernel"], padding=1)
    for stage in (1, 2, 3):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            x = wide_block(params[f"stage{stage}_block{block}"], x, stride=stride)
    x = relu(batch_norm(x, params["norm"]))
    return dense(x.mean((1, 2)), params["head"])
