"""Which backend a network is compiled for: the running one, unless it is said."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

__all__ = ["backend", "compiling_for"]

_TARGET: contextvars.ContextVar[str] = contextvars.ContextVar("_TARGET", default="")


def backend() -> str:
    """`cpu`, `gpu` or `tpu`: what layers that have several forms choose by."""
    return _TARGET.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Networks traced inside are those of another backend than the running one.

    Args:
        platform: `cpu`, `gpu` or `tpu`.

    Example:
        >>> with compiling_for("tpu"):
        ...     backend()
        'tpu'
    """
    before = _TARGET.set(platform)
    try:
        yield
    finally:
        _TARGET.reset(before)
