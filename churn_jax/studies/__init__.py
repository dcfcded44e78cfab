"""Many methods times many replicas: studies and their presets."""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.configuration.network import ModelConfig, Sharing
    from churn_jax.configuration.record import StudyError
    from churn_jax.configuration.rows import MethodSpec, Teaching
    from churn_jax.configuration.study import DataConfig, StudyConfig, Update
    from churn_jax.studies.grid import Axis
    from churn_jax.studies.own_data import own_study
    from churn_jax.studies.presets import PRESETS, preset
    from churn_jax.studies.study import run_study, run_sweep

__getattr__, __dir__, __all__ = load_on_use(__name__)
