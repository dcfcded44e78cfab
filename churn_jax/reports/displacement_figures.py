"""Where a stored notebook finds `few_classes`; goes when that is run again."""

from churn_jax.analysis import few_classes

__all__ = ["few_classes"]
