"""What a study would take on a TPU slice, by the TPU compiler and without a TPU."""

from churn_jax.planning.chips import CHIPS, Chip, NoCompilerError, Slice
from churn_jax.planning.estimate import Communication, Plan
from churn_jax.planning.planned import default_row, plan
from churn_jax.planning.rules import Check

__all__ = [
    "CHIPS",
    "Check",
    "Chip",
    "Communication",
    "NoCompilerError",
    "Plan",
    "Slice",
    "default_row",
    "plan",
]
