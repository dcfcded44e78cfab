"""One pass over a stream: score, then learn; tables of which only rows are touched.

Loaded when first used, so that importing a configuration loads no checkpoints.

Example:
    >>> from churn_jax.training import progressive
    >>> progressive.StreamConfig(replicas=2, warm_examples=10_000).warm_windows
    2
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from churn_jax.configuration.streams import StreamConfig
    from churn_jax.training.progressive.config import StreamRun, stream_identity
    from churn_jax.training.progressive.loop import StreamProgress, run_stream
    from churn_jax.training.progressive.result import (
        StreamResult,
        load_result,
        save_result,
    )

__all__ = [
    "StreamConfig",
    "StreamProgress",
    "StreamResult",
    "StreamRun",
    "load_result",
    "run_stream",
    "save_result",
    "stream_identity",
]

_HOMES = {
    "StreamConfig": "..configuration.streams",
    "StreamProgress": "loop",
    "StreamResult": "result",
    "StreamRun": "config",
    "load_result": "result",
    "run_stream": "loop",
    "save_result": "result",
    "stream_identity": "config",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
