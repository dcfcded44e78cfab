"""Decide on an update: two versions compared by their predictions, of any framework.

`compare` does everything; the parts are `read_side` and `join` (files into one `Pair`),
`scan` (one pass over the scores), `intervals` (numbers with their uncertainty), `judge`
(gates) and the pages of `CompareResult`.
"""

from churn_jax.comparison.compare import compare, compare_pair
from churn_jax.comparison.gates.conditions import Gate, GateError
from churn_jax.comparison.gates.gate_file import read_gates
from churn_jax.comparison.gates.judging import judge
from churn_jax.comparison.pair import Pair
from churn_jax.comparison.quantities import QUANTITIES, Quantity
from churn_jax.comparison.reading.join import join
from churn_jax.comparison.reading.sides import read_side
from churn_jax.comparison.result import (
    CompareResult,
    Curve,
    Flow,
    GateOutcome,
    Group,
    Interval,
    McNemar,
    Noise,
    Points,
    Regression,
    Version,
)
from churn_jax.comparison.scanned import Scanned, ScannedSide
from churn_jax.comparison.scanning.scan import scan
from churn_jax.comparison.side import Side
from churn_jax.comparison.statistics.estimating import (
    intervals,
    mcnemar_test,
    noise_test,
)
from churn_jax.comparison.versions.comparing import compare_versions
from churn_jax.comparison.versions.versions_result import VersionsResult

__all__ = [
    "QUANTITIES",
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
    "Pair",
    "Points",
    "Quantity",
    "Regression",
    "Scanned",
    "ScannedSide",
    "Side",
    "Version",
    "VersionsResult",
    "compare",
    "compare_pair",
    "compare_versions",
    "intervals",
    "join",
    "judge",
    "mcnemar_test",
    "noise_test",
    "read_gates",
    "read_side",
    "scan",
]
