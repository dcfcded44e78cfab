"""What a finished study of learning from ensembles is asked: `churn-jax diversity`."""

from churn_jax.reports.diversity_record import SECTIONS
from churn_jax.studies.diversity.opened import DiversityOptions
from churn_jax.studies.diversity.run import run_diversity

__all__ = ["SECTIONS", "DiversityOptions", "run_diversity"]
