"""What a study would take on a TPU slice, by the TPU compiler and without a TPU."""

from churn_jax.planning.chips import CHIPS, Chip, NoCompilerError, Slice, check_compiler
from churn_jax.planning.compile import (
    CompilerDiedError,
    Search,
    check_mesh,
    default_row,
    likely_meshes,
    plan,
    plan_apart,
    search,
)
from churn_jax.planning.estimate import Communication, Plan
from churn_jax.planning.meshes import mesh_name
from churn_jax.planning.report import (
    as_text,
    comparison,
    comparison_table,
    plan_document,
    plan_text,
)
from churn_jax.planning.rules import Check
from churn_jax.planning.scaling import (
    Point,
    scaling,
    scaling_document,
    scaling_svg,
    scaling_text,
)

__all__ = [
    "CHIPS",
    "Check",
    "Chip",
    "Communication",
    "CompilerDiedError",
    "NoCompilerError",
    "Plan",
    "Point",
    "Search",
    "Slice",
    "as_text",
    "check_compiler",
    "check_mesh",
    "comparison",
    "comparison_table",
    "default_row",
    "likely_meshes",
    "mesh_name",
    "plan",
    "plan_apart",
    "plan_document",
    "plan_text",
    "scaling",
    "scaling_document",
    "scaling_svg",
    "scaling_text",
    "search",
]
