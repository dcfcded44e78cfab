"""Environments of processes that tests start."""

import os

# What conftest.py sets so that tests compile quickly.
QUICK = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")


def as_users_have_it() -> dict[str, str]:
    """The environment without it: XLA with its optimisations."""
    return {k: v for k, v in os.environ.items() if k not in QUICK}
