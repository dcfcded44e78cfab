"""Comparison of two versions of a model by their predictions, of any framework.

`compare` runs the whole comparison, from `read_side` and `join` (files to one pair) and
`scan` (one pass over the scores) to the reports of `CompareResult`. `compare_outcomes`
is the same for scores, texts, values, sets and rankings.
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use as _load_on_use

if TYPE_CHECKING:
    __version__: str
    from churn_compare.comparison import compare, compare_pair
    from churn_compare.display import CompareResult, VersionsResult
    from churn_compare.gates import Gate, GateError, read_gates, read_waivers
    from churn_compare.outcomes import compare_outcomes
    from churn_compare.quantities import QUANTITIES, Quantity
    from churn_compare.queue import label_queue
    from churn_compare.reading.join import join
    from churn_compare.reading.sides import read_side
    from churn_compare.result import Group, Interval, Measured, Regression, Waiver
    from churn_compare.scanning import scan
    from churn_compare.serving import Rule, apply, repair
    from churn_compare.sizing import size
    from churn_compare.suite import compare_suite, read_suite
    from churn_compare.versions import compare_versions

__getattr__, __dir__, __all__ = _load_on_use(__name__, ["__version__"])
