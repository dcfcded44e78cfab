"""Forward passes in float64 NumPy, written from the layers' definitions."""

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


def average_pool(x):
    """Means of 2 x 2 pixels; a last odd row or column is dropped."""
    rows, columns = x.shape[1] // 2, x.shape[2] // 2
    out = np.zeros((x.shape[0], rows, columns, x.shape[3]))
    for h in range(rows):
        for w in range(columns):
            out[:, h, w] = x[:, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2].mean((1, 2))
    return out


def relu(x):
    return np.maximum(x, 0)


def dense(x, params):
    return x @ params["kernel"] + params["bias"]


def lenet5(params, images):
    x = convolution(images, params["conv1"]["kernel"], padding=2)
    x = average_pool(relu(x + params["conv1"]["bias"]))
    x = convolution(x, params["conv2"]["kernel"])
    x = average_pool(relu(x + params["conv2"]["bias"]))
    x = relu(dense(x.reshape(x.shape[0], -1), params["dense1"]))
    x = relu(dense(x, params["dense2"]))
    return dense(x, params["head"])


def batch_norm(x, params, mean=None, variance=None, epsilon=1e-5):
    """With the batch's own moments unless running ones are given."""
    mean = x.mean((0, 1, 2)) if mean is None else mean
    variance = x.var((0, 1, 2)) if variance is None else variance
    return (x - mean) / np.sqrt(variance + epsilon) * params["scale"] + params["bias"]


def basic_block(params, x, *, stride):
    """In train mode."""
    y = convolution(x, params["conv1"]["kernel"], stride=stride, padding=1)
    y = relu(batch_norm(y, params["norm1"]))
    y = convolution(y, params["conv2"]["kernel"], padding=1)
    y = batch_norm(y, params["norm2"])
    shortcut = np.zeros_like(y)
    shortcut[..., : x.shape[-1]] = x[:, ::stride, ::stride]
    return relu(y + shortcut)
