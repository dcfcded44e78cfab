"""Two versions by the outcomes of their examples: scores, texts, values, rankings."""

from churn_compare.outcomes.compare import compare_outcomes
from churn_compare.outcomes.estimates import Estimates, estimate
from churn_compare.outcomes.noise import noise_floor
from churn_compare.outcomes.reading import Outcomes, read_outcomes
from churn_compare.outcomes.result import Change, MeasureFindings, OutcomesResult
from churn_compare.outcomes.values import Measure

__all__ = [
    "Change",
    "Estimates",
    "Measure",
    "MeasureFindings",
    "Outcomes",
    "OutcomesResult",
    "compare_outcomes",
    "estimate",
    "noise_floor",
    "read_outcomes",
]
