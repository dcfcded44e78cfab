"""Two versions by the outcomes of their examples: scores, texts, values, rankings."""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.comparison.outcomes.compare import OutcomesResult, compare_outcomes
    from churn_jax.comparison.outcomes.estimates import Estimates, estimate
    from churn_jax.comparison.outcomes.noise import noise_floor
    from churn_jax.comparison.outcomes.reading import Outcomes, read_outcomes
    from churn_jax.comparison.outcomes.result import Change, MeasureFindings, Slice
    from churn_jax.comparison.outcomes.values import Measure

__all__ = [
    "Change",
    "Estimates",
    "Measure",
    "MeasureFindings",
    "Outcomes",
    "OutcomesResult",
    "Slice",
    "compare_outcomes",
    "estimate",
    "noise_floor",
    "read_outcomes",
]

_FILES = ("values", "result", "reading", "estimates", "compare", "noise")

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
