"""Many rows over one stream of clicks: progressive validation and its presets."""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.configuration.streams import (
        StreamData,
        StreamSpec,
        StreamStudyConfig,
        TowerConfig,
    )
    from churn_jax.studies.streams.presets import (
        STREAM_PRESETS,
        is_stream,
        stream_preset,
    )
    from churn_jax.studies.streams.run import run_stream_study


__all__ = [
    "STREAM_PRESETS",
    "StreamData",
    "StreamSpec",
    "StreamStudyConfig",
    "TowerConfig",
    "is_stream",
    "run_stream_study",
    "stream_preset",
]

_FILES = (
    "..configuration.streams",
    "presets",
    "run",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
