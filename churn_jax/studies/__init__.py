"""Many methods times many replicas: studies and their presets."""

from churn_jax.studies.config import DataConfig, MethodSpec, ModelConfig, StudyConfig
from churn_jax.studies.presets import PRESETS, preset
from churn_jax.studies.study import StudyError, run_study

__all__ = [
    "PRESETS",
    "DataConfig",
    "MethodSpec",
    "ModelConfig",
    "StudyConfig",
    "StudyError",
    "preset",
    "run_study",
]
