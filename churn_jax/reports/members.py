"""Predictions of the members of an ensemble: `members.npz`.

A row that deploys the mean of its members leaves the members' logits too, so that a
report can say how much they differ and what smaller ensembles of them would do. Where
they would be too many numbers, `members.json` has the diagnostics alone.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_compare.array_files import NpzArrays, replace_file, write_file
from churn_compare.store import PredictionsError
from churn_jax import metrics
from churn_jax.methods import Method, deploy

MEMBERS, MEMBERS_VALIDATION = "members.npz", "members-validation.npz"
DIAGNOSTICS = "members.json"
MOST_NUMBERS = 50_000_000  # logits of one split that are kept: 200 MB


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
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "labels", labels.astype(np.int64))
        object.__setattr__(self, "logits", logits.astype(np.float32, copy=False))


def save_members(path: str | os.PathLike, members: Members) -> Path:
    """Writes members' logits, whole or not at all."""
    path = Path(path)
    with replace_file(path) as file:
        np.savez(file, **dataclasses.asdict(members))
    return path


def load_members(path: str | os.PathLike) -> Members:
    """Read members' logits."""
    path = Path(path)
    if not path.is_file():
        raise PredictionsError(f"{path}: the members file does not exist")
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


@dataclasses.dataclass(frozen=True, eq=False)
class Agreement:
    """How much the members of each run differ (`metrics.member_diversity`)."""

    members: int  # M
    examples: int  # that were looked at
    total: int  # examples of the split
    mean_kl: np.ndarray  # `[R]` mean KL divergence of ordered pairs of members, nats
    # `[R]` share of examples that two members predict differently, averaged over pairs
    disagreement: np.ndarray
    member_accuracy: np.ndarray  # `[R]` mean accuracy of the members alone
    ensemble_accuracy: np.ndarray  # `[R]` accuracy of the mean that is served

    def of_runs(self, runs: Sequence[int]) -> "Agreement":
        """Of some runs alone."""
        index = list(runs)
        if max(index, default=0) >= len(self.mean_kl):
            raise PredictionsError(
                f"run {max(index)} is missing among members of {len(self.mean_kl)} runs"
            )
        picked = {name: getattr(self, name)[index] for name in _PER_RUN}
        return dataclasses.replace(self, **picked)


# Fields of an `Agreement` and those of the metric.
_PER_RUN: Mapping[str, str] = {
    "mean_kl": "mean_kl",
    "disagreement": "disagreement",
    "member_accuracy": "mean_member_accuracy",
    "ensemble_accuracy": "ensemble_accuracy",
}


@jax.jit
def _diversity(logits, labels):
    return metrics.member_diversity(logits, labels)


def agreement_of(
    members: Members, method: Method, total: int | None = None
) -> Agreement:
    """The diagnostics of every run; the mean is the one that the method serves."""
    labels: Any = members.labels.astype(np.int32)
    runs = [jax.device_get(_diversity(run, labels)) for run in members.logits]
    values = {
        name: np.array([getattr(run, field) for run in runs], np.float64)
        for name, field in _PER_RUN.items()
    }
    if method.deploy == "mean_logits":
        served = [metrics.accuracy(deploy(method, z), labels) for z in members.logits]
        values["ensemble_accuracy"] = np.array(served, np.float64)
    examples = len(labels)
    return Agreement(members.logits.shape[1], examples, total or examples, **values)


def save_agreement(path: str | os.PathLike, agreement: Agreement) -> Path:
    """Write the diagnostics as JSON, whole or not at all; NaN becomes null."""
    path = Path(path)
    record: dict[str, Any] = dataclasses.asdict(agreement)
    for name in _PER_RUN:
        record[name] = [v if np.isfinite(v) else None for v in record[name].tolist()]
    write_file(path, json.dumps(record, indent=2) + "\n")
    return path


def load_agreement(path: str | os.PathLike) -> Agreement:
    """Read the diagnostics."""
    path = Path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found: dict[str, Any] = {
            name: int(record[name]) for name in ("members", "examples", "total")
        }
        found |= {name: np.array(record[name], np.float64) for name in _PER_RUN}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PredictionsError(
            f"{path}: cannot read the members' diagnostics ({error!r})"
        ) from error
    return Agreement(**found)
