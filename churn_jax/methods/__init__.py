"""Training methods: members plus losses plus, for some, a teacher. All pure."""

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
