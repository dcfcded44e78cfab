"""The cost of a study on a TPU slice, by the TPU compiler and without a TPU."""

from churn_jax.planning.chips import CHIPS, Chip, NoCompilerError, Slice, check_compiler
from churn_jax.planning.compile import (
    Communication,
    Plan,
    check_mesh,
    default_mesh,
    default_row,
    mesh_name,
    plan,
    plan_text,
)
from churn_jax.planning.process import CompilerDiedError, plan_apart

__all__ = [
    "CHIPS",
    "Chip",
    "Communication",
    "CompilerDiedError",
    "NoCompilerError",
    "Plan",
    "Slice",
    "check_compiler",
    "check_mesh",
    "default_mesh",
    "default_row",
    "mesh_name",
    "plan",
    "plan_apart",
    "plan_text",
]
