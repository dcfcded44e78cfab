"""Weights and images that any environment can draw again, with or without torch.

A public model and ours are given the same numbers: each array is drawn from its
PyTorch name and shape alone. Raw words of PCG64 are used because NumPy promises their
stream, and does not promise that of its distributions.
"""

import hashlib
import zlib

import numpy as np

IMAGES = (2, 72, 56, 3)  # 36 x 28, 18 x 14, 9 x 7, 5 x 4, 3 x 2: odd sizes too


def uniform(name, shape, low, high):
    """float32 in `[low, high)`, a pure function of name and shape."""
    words = np.random.PCG64(zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
    unit = (words >> 40).astype(np.float32) * np.float32(2**-24)
    return (np.float32(low) + np.float32(high - low) * unit).reshape(shape)


def images(shape=IMAGES):
    """`[B, H, W, C]`, of mean zero and variance one."""
    return uniform("images", shape, -(3**0.5), 3**0.5)


def weights(shapes):
    """PyTorch's name to array, from its name to shape.

    Kernels keep a ReLU network's activations of order one. Batch norm's parameters
    and statistics are far from their defaults, so that none of them can be left out.
    """
    drawn = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            bound = (6 / np.prod(shape[1:])) ** 0.5
            drawn[name] = uniform(name, shape, -bound, bound)
        elif name.endswith("running_var"):
            drawn[name] = uniform(name, shape, 1.0, 4.0)
        elif name.endswith("weight"):
            drawn[name] = uniform(name, shape, 0.5, 1.5)
        else:
            drawn[name] = uniform(name, shape, -0.3, 0.3)
    return drawn


def fingerprint(shapes):
    """Of all names and shapes."""
    lines = sorted(f"{name} {tuple(shape)}" for name, shape in shapes.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
