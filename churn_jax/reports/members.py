"""Predictions of the members of an ensemble, and how many networks a row is worth.

A row that deploys the mean of its members leaves the members' logits too, `members.npz`
(of evenly spaced examples where they would be too many numbers), so that a report can
say how much they differ. Deep-ensemble equivalents are read from the calibrated NLL of
one member of the study's own deep ensemble, of two of them, and so on.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.array_files import NpzArrays, replace_file
from churn_compare.example_ids import PredictionsError, as_ids
from churn_jax import metrics
from churn_jax.configuration.record import RowRecord
from churn_jax.methods import Method, deploy
from churn_jax.metrics.diversity import MemberDiversity
from churn_jax.reports.artefacts import Study
from churn_jax.reports.estimates import over_runs, untestable
from churn_jax.reports.summary import MethodSummary

MEMBERS = {"test": "members.npz", "validation": "members-validation.npz"}
MOST_NUMBERS = 50_000_000  # logits of one split that are kept: 200 MB
_FIRST_CHOICE = "teachers"
_MOST_MEMBERS = 8  # up to so many, all subsets are taken (255 of 8)


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """Logits of the M members of `R` runs on `N` examples."""

    ids: np.ndarray  # `[N]`, as in the predictions
    labels: np.ndarray  # `[N]` class ids
    logits: np.ndarray  # `[R, M, N, C]` float32

    def __post_init__(self):
        """Checks the shapes."""
        ids, labels, logits = map(np.asarray, (self.ids, self.labels, self.logits))
        if logits.ndim != 4 or logits.shape[1] < 2 or 0 in logits.shape:
            raise PredictionsError(
                "logits of members must have shape [R, M, N, C] with at least one run, "
                f"two members and one example; got {logits.shape}"
            )
        if not ids.shape == labels.shape == logits.shape[2:3]:
            raise PredictionsError(
                f"ids {ids.shape} and labels {labels.shape} must be of the "
                f"{logits.shape[2]} examples of the logits"
            )
        labels, logits = labels.astype(np.int64), logits.astype(np.float32, copy=False)
        vars(self).update(ids=as_ids(ids), labels=labels, logits=logits)


def save_members(path: str | os.PathLike, members: Members) -> Path:
    """Writes members' logits, whole or not at all."""
    path = Path(path)
    with replace_file(path) as file:
        np.savez(file, **vars(members))  # no copy of the logits
    return path


def load_members(path: str | os.PathLike) -> Members:
    """Read members' logits."""
    path = Path(path)
    names = [field.name for field in dataclasses.fields(Members)]
    try:
        archive = NpzArrays(path)
        if missing := [name for name in names if name not in archive]:
            raise PredictionsError(f"{', '.join(missing)} missing")
        return Members(**{name: archive[name] for name in names})
    except (OSError, ValueError) as error:
        raise PredictionsError(
            f"{path}: cannot read the members' predictions, {error}"
        ) from error


class Agreement(NamedTuple):
    """How much the members of each run differ."""

    members: int  # M
    examples: int  # that were looked at
    of_runs: MemberDiversity  # each [R]; the ensemble is the mean that is served


_diversity = jax.jit(metrics.member_diversity)


def agreement_of(
    members: Members, method: Method, runs: Sequence[int] | None = None
) -> Agreement:
    """The diagnostics of runs, all by default."""
    labels: Any = members.labels.astype(np.int32)
    total, count, examples, _ = members.logits.shape
    if max(runs := range(total) if runs is None else runs) >= total:
        raise PredictionsError(f"run {max(runs)} is missing among members of {total}")
    logits = [members.logits[run] for run in runs]
    each = [jax.device_get(_diversity(run, labels)) for run in logits]
    found = jax.tree.map(lambda *values: np.array(values, np.float64), *each)
    if method.deploy == "mean_logits":
        served = [metrics.accuracy(deploy(method, run), labels) for run in logits]
        found = found._replace(ensemble_accuracy=np.array(served, np.float64))
    return Agreement(count, examples, found)


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
    # penalty or a teacher; it must be calibrated and have its members' predictions.
    # Members that share weights are not deep ensembles.

    def usable(info: RowRecord) -> bool:
        folder = study.method_folder(info.name)
        there = (folder / name for name in MEMBERS.values())
        kept = info.name in fitted and all(path.is_file() for path in there)
        model = info.spec.model or study.config.model
        return kept and (model.sharing is None or info.spec.separate)

    fitted = {n for n, of in summaries.items() if "calibrated_nll" in of.run_values}
    found = [info for info in study.methods if usable(info)]
    chosen = [info for info in found if info.name == _FIRST_CHOICE]
    chosen = chosen or [info for info in found if info.method.is_independent]
    if not chosen:
        return None
    info = max(chosen, key=lambda info: info.members or 0)
    folder = study.method_folder(info.name)
    test, validation = (load_members(folder / name) for name in MEMBERS.values())
    a, b = test.logits.shape, validation.logits.shape
    runs = summaries[info.name].runs
    if (a[0], a[1], a[3]) != (b[0], b[1], b[3]) or max(runs) >= a[0]:
        raise PredictionsError(
            f"{folder}: members' logits {a} and those of validation {b} must be of the "
            "row's runs and of the same members and classes"
        )
    if a[2] < summaries[info.name].examples:
        return None  # of some examples alone
    labels, held_out = (of.labels.astype(np.int32) for of in (test, validation))
    known = np.flatnonzero(summaries[info.name].known)
    curves = [
        _curve(
            test.logits[run],
            labels,
            validation_logits=validation.logits[run],
            validation_labels=held_out,
            subsets="all" if a[1] <= _MOST_MEMBERS else "prefixes",
            validation_mask=np.isin(held_out, known),
            mask=np.isin(labels, known),
        )
        for run in runs
    ]
    nll = np.stack([np.asarray(curve, np.float64) for curve in curves])
    if not np.isfinite(nll).all():
        raise PredictionsError(
            f"{folder}: members' logits are NaN, or -inf at an example's label, so the "
            "NLL of an ensemble is not finite; leave such examples out"
        )
    return ReferenceCurve(info.name, info.label, nll)


def equivalents(
    curve: ReferenceCurve, summary: MethodSummary, own: MethodSummary
) -> MethodSummary:
    """The summary, each run's calibrated NLL placed on the mean curve of row `own`."""
    nll = summary.run_values.get("calibrated_nll", np.full(1, np.nan))
    if untestable("calibrated_nll", summary, own) or not np.isfinite(nll).all():
        return summary
    numbers = (jnp.asarray(x, jnp.float32) for x in (nll, curve.mean))
    found = jax.device_get(metrics.deep_ensemble_equivalent(*numbers))
    value = np.asarray(found.value, np.float64)
    most = bool(found.saturated.any())
    dee = dataclasses.replace(over_runs(value), at_least=most)
    return summary.with_runs({"dee": value}).having(dee=dee)
