"""The cost of a study on a TPU slice, by the TPU compiler and without a TPU."""

from churn_jax.planning.compile import Plan, Slice, plan

__all__ = ["Plan", "Slice", "plan"]
