"""Forward passes in float64 NumPy, written from the layers' definitions."""

import math

import jax
import numpy as np


def in_float64(tree):
    """The same tree of NumPy arrays: a stray JAX array would compute in float32."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def windows(x, size, *, stride=1, padding=0, fill=0.0):
    """Of every output pixel what it sees of each channel, `[B, H', W', C, KH, KW]`."""
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    x = np.pad(np.asarray(x, np.float64), around, constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))
    return seen[:, ::stride, ::stride]


def convolution(images, kernel, *, stride=1, padding=0):
    """`out[b, h, w, o] = sum_ijc in[b, s h + i - p, s w + j - p, c] k[i, j, c, o]`."""
    kernel = np.asarray(kernel, np.float64)
    seen = windows(images, kernel.shape[:2], stride=stride, padding=padding)
    return np.einsum("bhwcij,ijco->bhwo", seen, kernel)


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
    return windows(x, (2, 2), stride=2).mean((-2, -1))


def max_pool(x, size, *, stride, padding=0):
    """Maxima over `size` x `size` pixels; a window that sticks out is dropped."""
    seen = windows(x, (size, size), stride=stride, padding=padding, fill=-np.inf)
    return seen.max((-2, -1))


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


def batch_norm(x, params, mean=None, variance=None, epsilon=1e-5):
    """With the batch's own moments unless running ones are given."""
    mean = x.mean((0, 1, 2)) if mean is None else mean
    variance = x.var((0, 1, 2)) if variance is None else variance
    return (x - mean) / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]


class Layers:
    """Layers by their names; without running moments batch norm takes the batch's."""

    def __init__(self, params, stats=None):
        self.params, self.stats = params, stats or {}

    def below(self, name):
        """Those of a block."""
        return Layers(self.params[name], self.stats.get(name))

    def conv(self, name, x, stride=1, padding=None):
        """Padded by half the kernel, if not said otherwise."""
        kernel = self.params[name]["kernel"]
        padding = len(kernel) // 2 if padding is None else padding
        y = convolution(x, kernel, stride=stride, padding=padding)
        return y + self.params[name].get("bias", 0.0)

    def norm(self, name, x):
        moments = self.stats.get(name, {})
        return batch_norm(x, self.params[name], moments.get("mean"), moments.get("var"))

    def activated(self, name, x):
        """Batch norm, then ReLU."""
        return relu(self.norm(name, x))

    def dense(self, name, x):
        return dense(x, self.params[name])


def layers_of(variables):
    return Layers(variables["params"], variables.get("batch_stats"))


def lenet5(variables, images):
    net = layers_of(variables)
    x = average_pool(relu(net.conv("conv1", images)))
    x = average_pool(relu(net.conv("conv2", x, padding=0)))
    x = relu(net.dense("dense1", x.reshape(x.shape[0], -1)))
    x = relu(net.dense("dense2", x))
    return net.dense("head", x), x


def block(net, x, strides):
    """After activation; `strides` are those of its two or three convolutions."""
    y, stride = x, max(strides)
    for number, own in enumerate(strides, start=1):
        y = net.norm(f"norm{number}", net.conv(f"conv{number}", y, own))
        y = relu(y) if number < len(strides) else y
    if "shortcut" in net.params:
        x = net.norm("shortcut_norm", net.conv("shortcut", x, stride))
    else:
        missing = y.shape[-1] - x.shape[-1]
        x = np.pad(x[:, ::stride, ::stride], ((0, 0),) * 3 + ((0, missing),))
    return relu(x + y)


def resnet(variables, images):
    """Logits and features of a CIFAR ResNet of eight layers."""
    net = layers_of(variables)
    x = net.activated("stem_norm", net.conv("stem", images))
    for stage in (1, 2, 3):
        x = block(net.below(f"stage{stage}_block1"), x, (min(stage, 2), 1))
    x = x.mean((1, 2))
    return net.dense("head", x), x


def wide_resnet(variables, images):
    """Logits and features of a wide ResNet of ten layers, before activation."""
    net = layers_of(variables)
    x = net.conv("stem", images)
    for stage in (1, 2, 3):
        own, stride = net.below(f"stage{stage}_block1"), min(stage, 2)
        y = own.conv("conv1", own.activated("norm1", x), stride)
        y = own.conv("conv2", own.activated("norm2", y))
        x = y + (own.conv("shortcut", x, stride) if "shortcut" in own.params else x)
    x = net.activated("norm", x).mean((1, 2))
    return net.dense("head", x), x


def stem(net, images):
    """A quarter of the pixels."""
    x = net.activated("stem_norm", net.conv("stem", images, 2))
    return max_pool(x, 3, stride=2, padding=1)


def imagenet_resnet(variables, images, strides):
    """Logits and features of two stages of a block each."""
    net = layers_of(variables)
    x = block(net.below("stage1_block1"), stem(net, images), [1] * len(strides))
    x = block(net.below("stage2_block1"), x, strides).mean((1, 2))
    return net.dense("head", x), x


def densenet(variables, images, blocks):
    """Logits and features."""
    net = layers_of(variables)
    x = stem(net, images)
    for number, layers in enumerate(blocks, start=1):
        if number > 1:
            own = net.below(f"transition{number - 1}")
            x = average_pool(own.conv("conv", own.activated("norm", x)))
        for layer in range(1, layers + 1):
            own = net.below(f"block{number}_layer{layer}")
            y = own.conv("conv1", own.activated("norm1", x))
            y = own.conv("conv2", own.activated("norm2", y))
            x = np.concatenate([x, y], -1)
    x = net.activated("norm", x).mean((1, 2))
    return net.dense("head", x), x


def vgg(variables, images, stages, grid):
    """Logits and features."""
    net, x = layers_of(variables), images
    for stage, convolutions in enumerate(stages, start=1):
        own = net.below(f"stage{stage}")
        for number in range(1, convolutions + 1):
            x = own.conv(f"conv{number}", x)
            x = own.norm(f"norm{number}", x) if net.stats else x
            x = relu(x)
        x = max_pool(x, 2, stride=2)
    x = adaptive_average_pool(x, grid).reshape(x.shape[0], -1)
    x = relu(net.dense("dense2", relu(net.dense("dense1", x))))
    return net.dense("head", x), x


def member_kernels(params):
    """`W * outer(r_m, s_m)` of every member, `[K, ..., D_in, D_out]`."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    return np.stack(
        [p["kernel"] * np.outer(r, s) for r, s in zip(p["fast_in"], p["fast_out"])]
    )


def batch_ensemble(params, x, product):
    """A layer's `[K * B, ...]`, each member with weights of its own.

    Args:
        params: of the layer.
        x: rows, member by member.
        product: `(rows, kernel) -> rows` of one member.
    """
    kernels = member_kernels(params)
    parts = np.split(np.asarray(x, np.float64), len(kernels))
    # One per member, whatever the layer shares.
    biases = np.asarray(params.get("bias", 0.0), np.float64)
    biases = np.broadcast_to(biases, (len(kernels), kernels.shape[-1]))
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
