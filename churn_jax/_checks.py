"""Argument checks under `jit`: shapes, dtypes and numbers that are not traced."""

import jax
import jax.numpy as jnp
import numpy as np


def _dtype(name: str, x):
    if isinstance(x, (list, tuple)):
        raise TypeError(
            f"{name} must be an array; got a {type(x).__name__}. Pass "
            f"jnp.asarray({name})"
        )
    return jnp.result_type(x)


def known_number(x, otherwise: float) -> float:
    """The number as a float; `otherwise` if it is traced or an array."""
    unknown = jnp.ndim(x) > 0 or isinstance(x, jax.core.Tracer)
    return otherwise if unknown else float(x)


def check_batch(images, **per_example) -> None:
    """Refuses images that are not floating-point rows, and other numbers of rows."""
    shape = jnp.shape(images)
    if len(shape) < 2:
        raise ValueError(f"images must be a batch [B, ...]; got shape {shape}")
    if not jnp.issubdtype(dtype := jnp.result_type(images), jnp.floating):
        raise TypeError(f"images must be floating-point pixels; got {dtype}")
    for name, rows in per_example.items():
        if jnp.shape(rows)[:1] != shape[:1]:
            raise ValueError(
                f"{name} must have one row per image, {shape[0]}; got shape "
                f"{jnp.shape(rows)} (images: {shape})"
            )


def check_logits(**named) -> None:
    """Refuses logits that are not floats, have one class or differ in shape."""
    for name, x in named.items():
        dtype, shape = _dtype(name, x), jnp.shape(x)
        if not shape:
            raise ValueError(f"{name} must have a class axis [..., C]; got a scalar")
        if shape[-1] < 2:
            raise ValueError(
                f"{name} must have at least two classes on its last axis; got shape "
                f"{shape}. For one binary score z use binary_logits(z) = [0, z]"
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"{name} must be floating-point logits; got {dtype}")
    check_same_shape(**named)


def check_same_shape(**named) -> None:
    """Refuses arguments of different shapes."""
    (first, shape), *rest = ((name, jnp.shape(x)) for name, x in named.items())
    for name, other in rest:
        if other != shape:
            both = f"{first} and {name} must have the same shape"
            raise ValueError(f"{both}; got {shape} and {other}")


def check_labels(labels, logits, *, logits_name: str = "logits") -> None:
    """Refuses labels that are not integers shaped like logits without classes."""
    expected, dtype = jnp.shape(logits)[:-1], _dtype("labels", labels)
    if jnp.shape(labels) != expected:
        raise ValueError(
            f"labels must have the shape of {logits_name} without the class axis, "
            f"{expected}; got {jnp.shape(labels)} ({logits_name}: {jnp.shape(logits)})"
        )
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"labels must be integers; got {dtype}")


def check_mask(mask, shape: tuple[int, ...]) -> None:
    """Refuses a mask of another shape, since none is broadcast, or of other values."""
    if mask is None:
        return
    dtype = _dtype("mask", mask)
    if (own := jnp.shape(mask)) != shape:
        right = f"the shape of the examples, {shape}"
        raise ValueError(f"mask must have {right}; got {own}")
    if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_):
        raise TypeError(f"mask must be bool or 0/1 numbers; got {dtype}")
    if dtype == jnp.bool_ or isinstance(mask, jax.core.Tracer):
        return
    if getattr(mask, "is_fully_addressable", True):  # all of it is in this process
        values = np.asarray(mask)
        if (others := values[(values != 0) & (values != 1)]).size:
            raise ValueError(
                f"mask must be bool or 0/1 numbers; got {others[0]}. Examples have no "
                "weights: pass mask != 0 for those that count"
            )


def check_members(logits, *, name: str = "logits", axes: str = "[M, N, C]") -> None:
    """Refuses logits without a leading axis of at least two models."""
    shape = jnp.shape(logits)
    if len(shape) < axes.count(",") + 1 - axes.count("...") or shape[0] < 2:
        raise ValueError(
            f"{name} must be {axes} with at least two models on the first axis; got "
            f"shape {shape}"
        )
