"""Training methods: members plus losses plus, for some, a teacher. All pure."""

from typing import TYPE_CHECKING, Any

from churn_jax.lazy import load_on_use
from churn_jax.methods.base import register

if TYPE_CHECKING:
    from churn_jax.methods.anti_distillation import AntiDistillation
    from churn_jax.methods.backward_compatible import BackwardCompatible
    from churn_jax.methods.base import Batch, LossOutput, Method, Passes, Ramp, deploy
    from churn_jax.methods.bayesian_update import BayesianUpdate
    from churn_jax.methods.codistillation import Codistillation
    from churn_jax.methods.elodi import ELODI
    from churn_jax.methods.end2 import EnsembleDistributionDistillation
    from churn_jax.methods.ensemble_distillation import EnsembleDistillation
    from churn_jax.methods.erm import ERM, MinimumEntropy
    from churn_jax.methods.focal_distillation import FocalDistillation
    from churn_jax.methods.one_to_one import OneToOneDistillation
    from churn_jax.methods.perturbing import Perturbing
    from churn_jax.methods.ract import RACT


__all__ = [
    "ELODI",
    "ERM",
    "RACT",
    "AntiDistillation",
    "BackwardCompatible",
    "Batch",
    "BayesianUpdate",
    "Codistillation",
    "EnsembleDistillation",
    "EnsembleDistributionDistillation",
    "FocalDistillation",
    "LossOutput",
    "Method",
    "MinimumEntropy",
    "OneToOneDistillation",
    "Passes",
    "Perturbing",
    "Ramp",
    "deploy",
]

_FILES = (
    "anti_distillation",
    "backward_compatible",
    "base",
    "bayesian_update",
    "codistillation",
    "elodi",
    "end2",
    "ensemble_distillation",
    "erm",
    "focal_distillation",
    "one_to_one",
    "perturbing",
    "ract",
)

_find, __dir__ = load_on_use(__name__, __all__, _FILES)


def __getattr__(name: str) -> Any:
    """The name, after all classes have become pytrees, which loads JAX."""
    found = _find(name)
    register()
    return found
