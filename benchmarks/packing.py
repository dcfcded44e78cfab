"""Other forms of the convolutions of vmapped replicas, as layers of the zoo's networks.

`vmap` makes a grouped convolution out of those of several replicas, which GPUs compute
slowly. Here are two others, which `replicas.py --mappings packed patches` measures with
the engine as it is:

* `Packed`: kernels of several replicas on the diagonal of one dense kernel, so that
  four convolutions of 16 channels are one of 64. It multiplies four times as much, of
  which a matrix unit that is 64 channels wide would have idled three quarters.
* `Patches`: all pixels under the kernel side by side, then one batched product.

`python benchmarks/packing.py` compares their gradients with those of `vmap`.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models import Layers, create

__all__ = ["Packed", "Patches", "packed"]

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def _plain(x, kernel, strides, padding):
    return jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=_LAYOUT
    )


def packed(x, kernels, *, strides, padding, width: int):
    """Convolutions `[R, B, H, W, C]` by `[R, KH, KW, C, O]`, several at a time.

    As many as give `width` channels out, and divide R, share a dense convolution.
    """
    replicas, channels = kernels.shape[0], kernels.shape[-1]
    fit = max(1, width // channels)
    together = max(n for n in range(1, fit + 1) if replicas % n == 0)
    outputs = []
    for first in range(0, replicas, together):
        part = slice(first, first + together)
        images = jnp.moveaxis(x[part], 0, 3)  # [B, H, W, n, C]
        blocks = jnp.einsum("nhwco,nm->hwncmo", kernels[part], jnp.eye(together))
        y = _plain(
            images.reshape(*images.shape[:3], -1),
            blocks.astype(x.dtype).reshape(
                *blocks.shape[:2], together * blocks.shape[3], -1
            ),
            strides,
            padding,
        )
        y = y.reshape(*y.shape[:3], together, channels)
        outputs.append(jnp.moveaxis(y, 3, 0))
    return jnp.concatenate(outputs)


@functools.cache
def _packing(strides, padding, width: int):
    """A convolution whose vmapped form is `packed`, and so is that of its gradients."""
    plain = functools.partial(_plain, strides=strides, padding=padding)
    dense = functools.partial(packed, strides=strides, padding=padding, width=width)

    def mapped(function, dense_form):
        batched = jax.custom_batching.custom_vmap(function)

        @batched.def_vmap
        def rule(size, is_batched, *arguments):
            spread = [
                a if b else jnp.broadcast_to(a, (size, *a.shape))
                for a, b in zip(arguments, is_batched, strict=True)
            ]
            found = dense_form(*spread)
            return found, jax.tree.map(lambda _: True, found)

        return batched

    def gradients(form):
        return lambda x, kernel, change: jax.vjp(form, x, kernel)[1](change)

    forward = mapped(plain, dense)
    backward = mapped(gradients(plain), gradients(dense))
    convolve = jax.custom_vjp(forward)
    convolve.defvjp(
        lambda x, kernel: (forward(x, kernel), (x, kernel)),
        lambda kept, change: backward(*kept, change),
    )
    return convolve


def _patches(x, kernel, strides, padding):
    (top, bottom), (left, right) = padding
    x = jnp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = (
        (size - k) // stride + 1
        for size, k, stride in zip(x.shape[1:3], kernel.shape, strides)
    )
    under = [
        x[:, i : i + strides[0] * rows : strides[0]][
            :, :, j : j + strides[1] * columns : strides[1]
        ]
        for i in range(kernel.shape[0])
        for j in range(kernel.shape[1])
    ]
    flat = jnp.concatenate(under, axis=-1).reshape(x.shape[0] * rows * columns, -1)
    y = flat @ kernel.reshape(-1, kernel.shape[-1])
    return y.reshape(x.shape[0], rows, columns, -1)


@dataclasses.dataclass(frozen=True)
class Patches(Layers):
    """Convolutions by one product of patches."""

    def by(self, x, kernel, strides, padding, **same: Any):
        """What `flax.linen.Conv` calls; `same` is what all convolutions here share."""
        del same
        return _patches(x, kernel, tuple(strides), tuple(padding))

    def conv(self, features, size, *, stride, padding, **options):
        """As in `Layers`, without a convolution of one's own."""
        options.pop("convolve", None)
        return nn.Conv(
            features,
            (size, size),
            strides=(stride, stride),
            padding=((padding, padding),) * 2,
            use_bias=False,
            conv_general_dilated=self.by,
            **options,
        )


@dataclasses.dataclass(frozen=True)
class Packed(Patches):
    """Convolutions of which several vmapped ones are one dense one.

    Attributes:
        width: channels out that a dense one has at least, where there are so many.
    """

    width: int = 64

    def by(self, x, kernel, strides, padding, **same: Any):
        """As in `Patches`."""
        del same
        return _packing(tuple(strides), tuple(padding), self.width)(x, kernel)


def main() -> None:
    """Prints the largest difference of a gradient of ResNet-8, four replicas."""
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(jax.random.key(1), (4, 2, 16, 16, 3))
    variables = jax.vmap(create("resnet8", num_classes=10).init, (0, None))(keys, x[0])

    def gradients(**layers):
        network = create("resnet8", num_classes=10, **layers)

        def loss(params, stats, x):
            given = {"params": params, "batch_stats": stats}
            output, _ = network.apply(given, x, train=True, mutable=["batch_stats"])
            return jnp.sum(jnp.sin(output.logits))

        each = jax.jit(jax.vmap(jax.grad(loss)))
        return each(variables["params"], variables["batch_stats"], x)

    def difference(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))

    expected = gradients()
    for layers in (Packed(), Patches()):
        found = jax.tree.map(difference, gradients(layers=layers), expected)
        print(layers, f"{max(jax.tree.leaves(found)):.1e} of the largest entry")


if __name__ == "__main__":
    main()
