"""Deep-ensemble equivalents: how many independent networks a row is worth.

The reference is the study's own deep ensemble, whose members' predictions were kept:
the calibrated NLL of its members alone, of two of them, and so on.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.store import PredictionsError
from churn_jax import metrics
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import Study
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.members import MEMBERS, MEMBERS_VALIDATION, load_members
from churn_jax.reports.summary import MethodSummary

FIRST_CHOICE = "teachers"
MOST_MEMBERS = 8  # of whose subsets all are taken: 255 of 8


@dataclasses.dataclass(frozen=True, eq=False)
class ReferenceCurve:
    """Calibrated NLL of deep ensembles by their size."""

    name: str  # row whose members they are
    label: str  # name for people
    nll: np.ndarray  # `[R, M]` of 1 to M members, the mean over subsets of a size

    @property
    def mean(self) -> np.ndarray:
        """`[M]`, over runs."""
        return self.nll.mean(axis=0)

    @property
    def std(self) -> np.ndarray:
        """`[M]`, deviation from run to run; NaN with one run."""
        if len(self.nll) < 2:
            return np.full(self.nll.shape[1], np.nan)
        return self.nll.std(axis=0, ddof=1)


_curve = jax.jit(metrics.ensemble_reference_curve, static_argnames="subsets")


def reference_curve(
    study: Study, summaries: Mapping[str, MethodSummary]
) -> ReferenceCurve | None:
    """The curve of the row that deep ensembles are read from, run by run."""
    # That called `teachers`, or else the largest ensemble that was trained without a
    # penalty or a teacher; it must have finished and kept its members' predictions.
    # Members that share weights are not deep ensembles.

    def usable(info: RowRecord) -> bool:
        folder = study.method_folder(info.name)
        there = (folder / name for name in (MEMBERS, MEMBERS_VALIDATION))
        kept = info.name in summaries and all(path.is_file() for path in there)
        model = info.spec.model or study.config.model
        return kept and (model.sharing is None or info.spec.separate)

    found = [info for info in study.methods if usable(info)]
    chosen = [info for info in found if info.name == FIRST_CHOICE]
    chosen = chosen or [info for info in found if info.method.is_independent]
    if not chosen:
        return None
    info = max(chosen, key=lambda info: info.members or 0)
    folder = study.method_folder(info.name)
    files = (folder / name for name in (MEMBERS, MEMBERS_VALIDATION))
    test, validation = map(load_members, files)
    a, b = test.logits.shape, validation.logits.shape
    if (a[0], a[1], a[3]) != (b[0], b[1], b[3]):
        raise PredictionsError(
            f"{folder}: members' logits {a} and those of validation {b} must be of the "
            "same runs, members and classes"
        )
    if a[2] < summaries[info.name].examples:
        return None  # of some examples alone
    labels, held_out = (of.labels.astype(np.int32) for of in (test, validation))
    curves = [
        _curve(
            test.logits[run],
            labels,
            validation_logits=validation.logits[run],
            validation_labels=held_out,
            subsets="all" if a[1] <= MOST_MEMBERS else "prefixes",
        )
        for run in summaries[info.name].runs
    ]
    nll = np.stack([np.asarray(curve, np.float64) for curve in curves])
    return ReferenceCurve(info.name, info.label, nll)


def equivalents(curve: ReferenceCurve, summary: MethodSummary) -> MethodSummary:
    """The summary, each run's calibrated NLL placed on the curve's mean over runs."""
    nll = summary.run_values.get("calibrated_nll")
    if nll is None or not np.isfinite(nll).all():
        return summary
    numbers = (jnp.asarray(x, jnp.float32) for x in (nll, curve.mean))
    found = jax.device_get(metrics.deep_ensemble_equivalent(*numbers))
    value = np.asarray(found.value, np.float64)
    most = bool(found.saturated.any())
    dee = dataclasses.replace(over_runs(value), at_least=most)
    values = {**summary.run_values, "dee": value}
    return dataclasses.replace(summary.having(dee=dee), run_values=values)
