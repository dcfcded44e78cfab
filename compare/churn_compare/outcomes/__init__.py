"""Two versions by the outcomes of their examples: scores, texts, values, rankings."""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use as _load_on_use

if TYPE_CHECKING:
    from churn_compare.comparison import compare_outcomes
    from churn_compare.display import OutcomesResult
    from churn_compare.measures import Measure
    from churn_compare.noise import noise_floor
    from churn_compare.pair import Table
    from churn_compare.reading.outcomes import read_outcomes
    from churn_compare.result import Change, MeasureFindings

__getattr__, __dir__, __all__ = _load_on_use(__name__)
