"""Comparison of two versions of a model by their predictions, of any framework.

`compare` runs the whole comparison, from `read_side` and `join` (files to one pair) and
`scan` (one pass over the scores) to the reports of `CompareResult`. `compare_outcomes`
is the same for scores, texts, values, sets and rankings.
"""

import importlib
from typing import TYPE_CHECKING, Any

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

__all__ = [
    "QUANTITIES",
    "CompareResult",
    "Gate",
    "GateError",
    "Group",
    "Interval",
    "Measured",
    "Quantity",
    "Regression",
    "Rule",
    "VersionsResult",
    "Waiver",
    "__version__",
    "apply",
    "compare",
    "compare_outcomes",
    "compare_pair",
    "compare_suite",
    "compare_versions",
    "join",
    "label_queue",
    "read_gates",
    "read_side",
    "read_suite",
    "read_waivers",
    "repair",
    "scan",
    "size",
]

_HOMES = {
    "comparison": "compare compare_pair",
    "display": "CompareResult VersionsResult",
    "gates": "Gate GateError read_gates read_waivers",
    "outcomes": "OutcomesResult compare_outcomes",
    "quantities": "QUANTITIES Quantity",
    "queue": "Queue label_queue",
    "reading.join": "join",
    "reading.sides": "read_side",
    "result": "GateOutcome Group Interval Measured Regression Waiver",
    "scanning": "scan",
    "serving": "RepairResult Rule apply repair",
    "sizing": "SizeResult size",
    "suite": "Suite SuiteResult compare_suite read_suite",
    "versions": "compare_versions",
}


def __getattr__(name: str) -> Any:
    """Loads a name when it is first used, so that the command starts at once."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("churn-compare")
        except PackageNotFoundError:
            return "0.0.0"  # a source tree that was never installed
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
