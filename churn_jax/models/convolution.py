"""Convolutions in the forms that are fast on a CPU.

XLA's are slow there for a handful of channels, slower still when they are vmapped over
networks, and their weight gradient is slower by far inside a loop primitive. A dense
product (`banded_convolution`) has none of these troubles.
"""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.lax import conv_general_dilated

from churn_jax._jax import to_varying, varying_axes
from churn_jax.typing import Array

_LAYOUT = ("NHWC", "HWIO", "NHWC")
_REST = ("precision", "preferred_element_type")  # options that gradients have, too

# A kernel's gradient is a convolution of copies with the batch as channels. It is
# faster for a part of the batch, which stays in the caches; every part has to be
# compiled, so there are few.
_PART = 16  # images at least
_PARTS = 8  # at most

# Few channels leave vector registers empty. Several pixels of a row as one are that
# many times the channels, for a kernel that is wider by zeros. How many by the channels
# that come out, where no more than `_FEW` go in; of a kernel's gradient fewer, for its
# own size grows, too.
_FEW = 16
_PIXELS = ((6, 4), (16, 2))
_PIXELS_OF_A_KERNEL = ((16, 2),)
_IMAGE = 4  # channels at most
_PIXELS_OF_AN_IMAGE = ((32, 4), (64, 2))
_PIXELS_OF_AN_IMAGES_KERNEL = ((8, 4), (32, 2))
_LARGEST_BLOCK = 8  # output columns; measured 1.0 to 1.3 times as fast as whole rows


def cpu_convolution(images: Array, kernel: Array, strides, padding, **options) -> Array:
    """`jax.lax.conv_general_dilated`, up to six times as fast on a CPU.

    In two dimensions, without groups and dilation and in float32

    * both gradients are convolutions as XLA's CPU library takes them, batch first and
      channels last. XLA rewrites others to this form, but not those in a loop, where
      they are many times slower;
    * the kernel's gradient is a sum over parts of the batch, of at least 16 images;
    * with stride 1 and few channels two or four pixels of a row are read and computed
      as the channels of one; so are both gradients. This takes a kernel that is
      wider by zeros. They are multiplied too: a pixel that is not finite reaches up to
      six columns further, in its own example alone.

    Args:
        images: `[B, H, W, C]`.
        kernel: `[KH, KW, C, O]`.
        strides: down and across.
        padding: zeros on both sides of height and width, or their rule's name.
        options: as `jax.lax.conv_general_dilated` takes them.
    """
    others = [options.get(f"{of}_group_count", 1) for of in ("feature", "batch")]
    others += options.get("lhs_dilation") or ()
    others += options.get("rhs_dilation") or ()
    floats = images.dtype == kernel.dtype == jnp.float32
    if images.ndim != 4 or any(one != 1 for one in others) or not floats:
        return conv_general_dilated(images, kernel, strides, padding, **options)
    if isinstance(padding, str):
        window = kernel.shape[:2], strides
        padding = jax.lax.padtype_to_pads(images.shape[1:3], *window, padding)
    rest = {name: options[name] for name in _REST if name in options}
    form = _Form(tuple(strides), tuple(map(tuple, padding)), rest)
    # What a convolution reads is computed once, and not again by all that reads it,
    # where the compiler is told to keep barriers (`make_step`).
    images = jax.lax.optimization_barrier(images)
    product = jax.custom_jvp(form.product)

    @partial(product.defjvp, symbolic_zeros=True)
    def along(primals, tangents):
        images, kernel = primals
        along_images, along_kernel = tangents
        out = product(images, kernel)
        tangent = jnp.zeros_like(out)
        if not isinstance(along_images, SymbolicZero):
            gradient = partial(form.gradient_in_images, kernel, images.shape)
            tangent += _transposed(gradient, out, along_images)
        if not isinstance(along_kernel, SymbolicZero):
            gradient = partial(form.gradient_in_kernel, images, kernel.shape)
            tangent += _transposed(gradient, out, along_kernel)
        return out, jax.lax.optimization_barrier(tangent)

    return product(images, kernel)


def _transposed(gradient, out: Array, tangent: Array) -> Array:
    """A tangent's part of `out`, by the gradient; a backward pass takes it back."""
    own = varying_axes(out) - varying_axes(tangent)  # of devices that share the weights
    tangent = to_varying(tangent, tuple(own)) if own else tangent
    return jax.linear_transpose(gradient, out)(tangent)[0]


@dataclasses.dataclass(frozen=True)
class _Form:
    """A convolution and its gradients, in the form of XLA's CPU library."""

    strides: tuple[int, int]
    pads: tuple[tuple[int, ...], ...]
    rest: dict[str, Any]

    def product(self, images: Array, kernel: Array) -> Array:
        if self.strides == (1, 1):
            return _of_stride_one(images, kernel, self.pads, self.rest)
        return _convolve(images, kernel, self.strides, self.pads, **self.rest)

    def gradient_in_images(self, kernel: Array, shape, cotangent: Array) -> Array:
        turned = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
        pads = tuple(
            (size - 1 - before, length + before - 1 - (steps - 1) * stride)
            for size, length, steps, stride, (before, _) in self._sizes(
                kernel.shape, shape, cotangent.shape
            )
        )
        if self.strides == (1, 1):
            return _of_stride_one(cotangent, turned, pads, self.rest)
        apart = self.strides
        return _convolve(
            cotangent, turned, (1, 1), pads, lhs_dilation=apart, **self.rest
        )

    def gradient_in_kernel(self, images: Array, shape, cotangent: Array) -> Array:
        height, size, channels, features = shape
        width = cotangent.shape[2]
        pixels = _pixels(width, channels, features, of_kernel=True)
        if self.strides != (1, 1) or pixels == 1:
            return self._gradient_of_parts(images, shape, cotangent)
        images, span = _grouped(images, pixels, size, self.pads[1])
        cotangent = cotangent.reshape(*cotangent.shape[:2], -1, pixels * features)
        form = dataclasses.replace(self, pads=(self.pads[0], (0, 0)))
        wide = height, span // pixels, pixels * channels, pixels * features
        found = form._gradient_of_parts(images, wide, cotangent)
        found = found.reshape(height, span, channels, pixels, features)
        moved = [found[:, i : i + size, :, i] for i in range(pixels)]
        return sum(moved[1:], moved[0])

    def _gradient_of_parts(self, images: Array, shape, cotangent: Array) -> Array:
        batch = images.shape[0]
        size = max(_PART, -(-batch // _PARTS))
        parts = [
            self._gradient_of_part(images[i : i + size], shape, cotangent[i : i + size])
            for i in range(0, batch, size)
        ]
        return sum(parts[1:], parts[0])

    def _gradient_of_part(self, images: Array, shape, cotangent: Array) -> Array:
        lengths = self._sizes(shape, images.shape, cotangent.shape)
        # What lies after the last pixel that the convolution reads may be negative.
        pads = [
            (before, (steps - 1) * stride + size - length - before)
            for size, length, steps, stride, (before, _) in lengths
        ]
        columns = jax.lax.optimization_barrier(images.transpose(1, 2, 0, 3))
        columns = columns.transpose(3, 0, 1, 2)
        window = cotangent.transpose(1, 2, 0, 3)
        apart = {} if self.strides == (1, 1) else {"rhs_dilation": self.strides}
        out = _convolve(columns, window, (1, 1), pads, **apart, **self.rest)
        return out.transpose(1, 2, 0, 3)

    def _sizes(self, kernel, images, out):
        """Of both dimensions the lengths of kernel, image and output, and the rest."""
        lengths = kernel[:2], images[1:3], out[1:3]
        return tuple(zip(*lengths, self.strides, self.pads, strict=True))


def _convolve(images, kernel, strides, pads, **options) -> Array:
    if math.prod(kernel.shape[:2]) > math.prod(images.shape[1:3]):
        # XLA would take the kernel for the images, which leaves the library's form.
        apart = options.pop("lhs_dilation", (1, 1))
        sides = [(*pad, stride - 1) for pad, stride in zip(pads, apart)]
        zero = jnp.zeros((), images.dtype)
        images = jax.lax.pad(images, zero, [(0, 0, 0), *sides, (0, 0, 0)])
        images, pads = jax.lax.optimization_barrier(images), ((0, 0), (0, 0))
    return conv_general_dilated(
        images, kernel, strides, pads, dimension_numbers=_LAYOUT, **options
    )


def _of_stride_one(images: Array, kernel: Array, pads, rest) -> Array:
    """The convolution, several pixels of a row as one."""
    height, size, channels, features = kernel.shape
    width = images.shape[2] + sum(pads[1]) - size + 1
    pixels = _pixels(width, channels, features)
    if pixels == 1:
        return _convolve(images, kernel, (1, 1), pads, **rest)
    images, span = _grouped(images, pixels, size, pads[1])
    moved = [
        jnp.pad(kernel, ((0, 0), (i, span - size - i), (0, 0), (0, 0)))
        for i in range(pixels)
    ]
    kernel = jnp.concatenate(moved, axis=-1)
    kernel = kernel.reshape(height, -1, pixels * channels, pixels * features)
    out = _convolve(images, kernel, (1, 1), (pads[0], (0, 0)), **rest)
    return out.reshape(*out.shape[:2], width, features)


def _grouped(images: Array, pixels: int, size: int, pad) -> tuple[Array, int]:
    """Padded rows with so many pixels as one, and those that the wider kernel reads."""
    span = -(-(pixels + size - 1) // pixels) * pixels
    sides = (pad[0], pad[1] + span - pixels - size + 1, 0)
    zero = jnp.zeros((), images.dtype)
    images = jax.lax.pad(images, zero, ((0, 0, 0), (0, 0, 0), sides, (0, 0, 0)))
    return images.reshape(*images.shape[:2], -1, pixels * images.shape[3]), span


def _pixels(width: int, channels: int, features: int, of_kernel: bool = False) -> int:
    """How many of a row are computed as one."""
    table = _PIXELS_OF_A_KERNEL if of_kernel else _PIXELS
    if channels <= _IMAGE:
        table = _PIXELS_OF_AN_IMAGES_KERNEL if of_kernel else _PIXELS_OF_AN_IMAGE
    most = next((m for few, m in table if features <= few), 1)
    return math.gcd(width, most) if channels <= _FEW else 1


def banded_convolution(images: Array, kernel: Array, *, padding: int = 0) -> Array:
    """Convolution of stride 1, as blocks of output columns times a banded matrix.

    `out[b, h, w, o] = sum_{i, j, c} images[b, h + i - p, w + j - p, c]
    kernel[i, j, c, o]`: what `jax.lax.conv_general_dilated` computes, padding with
    zeros. A row of the output is cut into blocks of at most eight columns; a block
    depends on `KH` strips of `block + KW - 1` pixels, and the dependence is one
    matrix `[KH * (block + KW - 1) * C, block * O]` whose entries are the kernel's
    weights on a band and zeros elsewhere. It costs up to `(block + KW - 1) / KW` times
    the multiplications of a convolution and writes `(block + KW - 1) / block` times
    `KH` copies of the input.

    Args:
        images: `[B, H, W, C]`, floating point.
        kernel: `[KH, KW, C, O]`, of the same dtype.
        padding: zeros added on each side of height and width, in pixels.

    Returns:
        `[B, H + 2 padding - KH + 1, W + 2 padding - KW + 1, O]`.

    Raises:
        ValueError: the kernel does not fit the images; both shapes are in the message.

    Notes:
        The band's zeros are multiplied too, so a pixel that is not finite reaches up
        to seven columns further than in `conv_general_dilated`. It stays in its own
        example and its own row band.

    Example:
        >>> images = jnp.arange(9.0).reshape(1, 3, 3, 1)
        >>> banded_convolution(images, jnp.ones((2, 2, 1, 1)))[0, :, :, 0]
        Array([[ 8., 12.],
               [20., 24.]], dtype=float32)
    """
    kernel_h, kernel_w, channels, features = kernel.shape
    batch, height, width, _ = images.shape
    out_h = height + 2 * padding - kernel_h + 1
    out_w = width + 2 * padding - kernel_w + 1
    if images.shape[-1] != channels or out_h < 1 or out_w < 1:
        raise ValueError(
            f"a kernel of shape {kernel.shape} does not fit images of shape "
            f"{images.shape} with padding {padding}"
        )
    blocks = -(-out_w // _LARGEST_BLOCK)
    block = -(-out_w // blocks)
    strip = block + kernel_w - 1
    overhang = blocks * block - out_w  # columns computed and thrown away
    images = jnp.pad(
        images, ((0, 0), (padding, padding), (padding, padding + overhang), (0, 0))
    )
    patches = jnp.stack(
        [
            images[:, row : row + out_h, start : start + strip]
            for start in range(0, blocks * block, block)
            for row in range(kernel_h)
        ],
        axis=2,
    )
    # shift[j, column of the strip, column of the block]: does tap j join the two?
    shift = np.stack([np.eye(strip, block, -tap) for tap in range(kernel_w)])
    band = jnp.einsum(
        "jsw,ijco->iscwo",
        jnp.asarray(shift, kernel.dtype),
        kernel,
        precision=jax.lax.Precision.HIGHEST,  # it copies weights: nothing may round
    )
    out = patches.reshape(batch * out_h * blocks, -1) @ band.reshape(
        kernel_h * strip * channels, block * features
    )
    return out.reshape(batch, out_h, blocks * block, features)[:, :, :out_w]
