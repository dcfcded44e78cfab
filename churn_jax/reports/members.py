"""Predictions of the members of an ensemble: `members.npz`.

A row that deploys the mean of its members leaves the members' logits too, so that a
report can say how much they differ and what smaller ensembles of them would do. Where
they would be too many numbers, they are of evenly spaced examples.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from churn_compare.array_files import NpzArrays, replace_file
from churn_compare.store import PredictionsError
from churn_jax import metrics
from churn_jax.methods import Method, deploy

MEMBERS, MEMBERS_VALIDATION = "members.npz", "members-validation.npz"
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


class Agreement(NamedTuple):
    """How much the members of each run differ (`metrics.member_diversity`)."""

    members: int  # M
    examples: int  # that were looked at
    mean_kl: np.ndarray  # `[R]` mean KL divergence of ordered pairs of members, nats
    # `[R]` share of examples that two members predict differently, averaged over pairs
    disagreement: np.ndarray
    member_accuracy: np.ndarray  # `[R]` mean accuracy of the members alone
    ensemble_accuracy: np.ndarray  # `[R]` accuracy of the mean that is served


@jax.jit
def _diversity(logits, labels):
    return metrics.member_diversity(logits, labels)


def agreement_of(
    members: Members, method: Method, runs: Sequence[int] | None = None
) -> Agreement:
    """The diagnostics of runs, all by default; the mean is the one that is served."""
    labels: Any = members.labels.astype(np.int32)
    total, count, examples, _ = members.logits.shape
    if max(runs := range(total) if runs is None else runs) >= total:
        raise PredictionsError(f"run {max(runs)} is missing among members of {total}")
    logits = [members.logits[run] for run in runs]
    each = [jax.device_get(_diversity(run, labels)) for run in logits]

    def numbers(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in each], np.float64)

    served = numbers("ensemble_accuracy")
    if method.deploy == "mean_logits":
        found = [metrics.accuracy(deploy(method, run), labels) for run in logits]
        served = np.array(found, np.float64)
    kl, disagreement = numbers("mean_kl"), numbers("disagreement")
    own = numbers("mean_member_accuracy")
    return Agreement(count, examples, kl, disagreement, own, served)
