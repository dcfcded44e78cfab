"""Training losses: per example, float32, from logits.

No function here averages, masks or stops a gradient; the caller does, where a reader
can see it. Nothing heavier than JAX and optax is imported.
"""

from churn_jax.losses.classification import binary_logits, cross_entropy
from churn_jax.losses.codistillation import cross_entropy_between, l1, symmetric_kl
from churn_jax.losses.distillation import distillation_kl
from churn_jax.losses.regularizers import (
    entropy,
    renormalized_entropy,
    renormalized_uniform_symmetric_kl,
    uniform_symmetric_kl,
)

__all__ = [
    "binary_logits",
    "cross_entropy",
    "cross_entropy_between",
    "distillation_kl",
    "entropy",
    "l1",
    "renormalized_entropy",
    "renormalized_uniform_symmetric_kl",
    "symmetric_kl",
    "uniform_symmetric_kl",
]
