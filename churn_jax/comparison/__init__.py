"""Decide on an update: two versions compared by their predictions, of any framework.

`compare` does everything; the parts are `read_side` and `join` (files into one `Pair`),
`scan` (one pass over the scores), `intervals` (numbers with their uncertainty), `judge`
(gates) and the pages of `CompareResult`. `compare_outcomes` does the same for scores,
texts, values, sets and rankings.
"""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.comparison.compare import compare, compare_pair
    from churn_jax.comparison.display import CompareResult, VersionsResult
    from churn_jax.comparison.gate_file import read_gates, read_waivers
    from churn_jax.comparison.gate_outcomes import judge
    from churn_jax.comparison.gates import Gate, GateError
    from churn_jax.comparison.intervals import intervals, mcnemar_test
    from churn_jax.comparison.noise import noise_test
    from churn_jax.comparison.outcomes import OutcomesResult, compare_outcomes
    from churn_jax.comparison.pair import Pair, Scanned, ScannedSide, Side
    from churn_jax.comparison.quantities import QUANTITIES, Quantity
    from churn_jax.comparison.reading.join import join
    from churn_jax.comparison.reading.sides import read_side
    from churn_jax.comparison.result import (
        Clusters,
        Curve,
        Flow,
        GateOutcome,
        Group,
        Interval,
        McNemar,
        Noise,
        Points,
        Pooled,
        Precision,
        Regression,
        Version,
        Waived,
        Waiver,
    )
    from churn_jax.comparison.scanning.scan import scan
    from churn_jax.comparison.versions import compare_versions

__all__ = [
    "QUANTITIES",
    "Clusters",
    "CompareResult",
    "Curve",
    "Flow",
    "Gate",
    "GateError",
    "GateOutcome",
    "Group",
    "Interval",
    "McNemar",
    "Noise",
    "OutcomesResult",
    "Pair",
    "Points",
    "Pooled",
    "Precision",
    "Quantity",
    "Regression",
    "Scanned",
    "ScannedSide",
    "Side",
    "Version",
    "VersionsResult",
    "Waived",
    "Waiver",
    "compare",
    "compare_outcomes",
    "compare_pair",
    "compare_versions",
    "intervals",
    "join",
    "judge",
    "mcnemar_test",
    "noise_test",
    "read_gates",
    "read_side",
    "read_waivers",
    "scan",
]

_FILES = (
    "quantities",
    "result",
    "pair",
    "gates",
    "gate_file",
    "gate_outcomes",
    "intervals",
    "noise",
    "reading.sides",
    "reading.join",
    "scanning.scan",
    "compare",
    "versions",
    "outcomes",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
