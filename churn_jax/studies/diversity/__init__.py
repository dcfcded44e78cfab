"""Analyses of a finished study of learning from ensembles: `churn-jax diversity`."""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use
from churn_jax.reports.diversity_record import SECTIONS

if TYPE_CHECKING:
    from churn_jax.studies.diversity.options import DiversityOptions
    from churn_jax.studies.diversity.run import run_diversity


__all__ = ["SECTIONS", "DiversityOptions", "run_diversity"]

_FILES = (
    "options",
    "run",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
