"""What a study would take on a TPU slice, by the TPU compiler and without a TPU."""

from churn_jax.planning.chips import CHIPS, Chip, NoCompilerError, Slice, check_compiler
from churn_jax.planning.compile import (
    CompilerDiedError,
    check_mesh,
    default_mesh,
    default_row,
    mesh_name,
    plan,
    plan_apart,
)
from churn_jax.planning.estimate import Communication, Plan
from churn_jax.planning.report import as_text, plan_document, plan_text
from churn_jax.planning.rules import Check

__all__ = [
    "CHIPS",
    "Check",
    "Chip",
    "Communication",
    "CompilerDiedError",
    "NoCompilerError",
    "Plan",
    "Slice",
    "as_text",
    "check_compiler",
    "check_mesh",
    "default_mesh",
    "default_row",
    "mesh_name",
    "plan",
    "plan_apart",
    "plan_document",
    "plan_text",
]
