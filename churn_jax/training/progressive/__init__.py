"""One pass over a stream: score, then learn; tables of which only rows are touched.

Names are loaded when they are first used, so that importing a configuration loads no
checkpoints.

Example:
    >>> from churn_jax.training import progressive
    >>> progressive.StreamConfig(replicas=2, warm_examples=10_000).warm_windows
    2
"""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.configuration.streams import StreamConfig
    from churn_jax.training.progressive.config import StreamRun, stream_identity
    from churn_jax.training.progressive.loop import StreamProgress, run_stream
    from churn_jax.training.progressive.metrics import (
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

_FILES = ("..configuration.streams", "config", "metrics", "loop")

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
