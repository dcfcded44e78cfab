"""Two versions by the outcomes of their examples: scores, texts, values, rankings."""

from churn_compare.comparison import compare_outcomes
from churn_compare.display import OutcomesResult
from churn_compare.measures import Measure
from churn_compare.noise import noise_floor
from churn_compare.pair import Table
from churn_compare.reading.outcomes import read_outcomes
from churn_compare.result import Change, MeasureFindings

__all__ = [
    "Change",
    "Measure",
    "MeasureFindings",
    "OutcomesResult",
    "Table",
    "compare_outcomes",
    "noise_floor",
    "read_outcomes",
]
