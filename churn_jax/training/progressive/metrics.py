"""What progressive validation measures: sums over the stream, and the result's file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh

from churn_compare.array_files import write_file
from churn_jax.configuration.record import Stopped
from churn_jax.metrics import AUCState, CalibrationRatioState, NLLState
from churn_jax.metrics.state import AdditiveState, MeanState
from churn_jax.training.partition import replicate
from churn_jax.training.writers import as_json
from churn_jax.typing import Array

DIFFERENCES = ("relative_pd", "pd_1", "pd_2", "hamming", "label_pd")


def score_differences(scores: Array, labels: Array, chosen: Array) -> Array:
    r"""Prediction differences of some replicas' binary scores, example by example.

    With `P_m = sigmoid(z_m)` and `Pbar` its mean over the chosen replicas:
    `2 |P_m - Pbar| / Pbar` (Delta^r_1), `2 |P_m - Pbar|` (Delta_1), `sqrt(2)
    |P_m - Pbar|` (Delta_2), disagreement of pairs (Delta^H) and `|P_m(l) - Pbar(l)| /
    Pbar(l)` at the label (Delta^L), each averaged over the chosen replicas.

    Args:
        scores: `[R, N]`, logit of the positive label.
        labels: `[N]` in {0, 1}.
        chosen: `[R]` bool; scores of the others are ignored.

    Returns:
        `[5, N]` float32 in the order of `DIFFERENCES`; nan if fewer than two are
        chosen.

    Notes:
        The quantities of `churn_jax.metrics` for two classes. They are written for
        one score per example here because which replicas count is known only while
        the stream runs: one that stops is left out, and every replica is left out once
        for the jackknife, all in one compiled program.

    References:
        [anti-distillation] Sec. 3 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    use = chosen[:, None]
    # Scores of stopped replicas may not be finite.
    scores = jnp.where(use, scores.astype(jnp.float32), 0.0)
    count = jnp.sum(chosen.astype(jnp.float32))

    def mean(values):
        return jnp.sum(jnp.where(use, values, 0.0), axis=0, keepdims=True) / count

    def largest(values):
        return jnp.max(jnp.where(use, values, -jnp.inf), axis=0, keepdims=True)

    # Means are taken from the largest, so that those of equal numbers are exact: equal
    # predictions have no difference at all.
    def relative(log_p):
        top = largest(log_p)
        log_mean = top + jnp.log1p(mean(jnp.expm1(log_p - top)))
        return mean(jnp.abs(jnp.expm1(log_p - log_mean)))[0]

    positive = jax.nn.sigmoid(scores)
    top = largest(positive)
    distance = mean(jnp.abs(positive - (top + mean(positive - top))))[0]
    ones = jnp.sum((use & (scores > 0.0)).astype(jnp.float32), axis=0)
    at_label = jnp.where(labels[None] > 0, scores, -scores)
    values = jnp.stack(
        [
            2.0 * relative(jax.nn.log_sigmoid(scores)),
            2.0 * distance,
            np.float32(np.sqrt(2.0)) * distance,
            2.0 * ones * (count - ones) / (count * (count - 1.0)),
            relative(jax.nn.log_sigmoid(at_label)),
        ]
    )
    return jnp.where(count > 1.0, values, jnp.nan)


def _stacked(state, *lead: int):
    return jax.tree.map(lambda leaf: jnp.zeros((*lead, *leaf.shape), leaf.dtype), state)


@struct.dataclass
class StreamMetrics(AdditiveState):
    """Sums over the scored part of a stream; its size does not depend on the length."""

    nll: NLLState  # leaves [R]
    auc: AUCState  # leaves [R, ...], histograms of the scores
    calibration: CalibrationRatioState  # leaves [R]
    differences: MeanState  # leaves [1 + R, 5]: of all replicas, then without each

    @classmethod
    def empty(cls, replicas: int) -> "StreamMetrics":
        """Nothing scored yet."""
        return cls(
            nll=_stacked(NLLState.empty(), replicas),
            auc=_stacked(AUCState.empty(), replicas),
            calibration=_stacked(CalibrationRatioState.empty(), replicas),
            differences=_stacked(MeanState.empty(), 1 + replicas, len(DIFFERENCES)),
        )

    def update(
        self, scores: Array, labels: Array, mask: Array, alive: Array
    ) -> "StreamMetrics":
        """Adds the scores `[R, W]` of a window; stopped replicas are left out."""
        replicas = scores.shape[0]
        own = (mask > 0)[None] & alive[:, None]
        logits = jnp.stack([jnp.zeros_like(scores), scores], axis=-1)

        def add(states):
            return jax.vmap(lambda state, z, m: state.update(z, labels, m))(
                states, logits, own
            )

        without = ~jnp.eye(replicas, dtype=bool)
        sets = jnp.concatenate([jnp.ones((1, replicas), bool), without])
        sets = sets & alive[None]

        def add_set(given):
            state, chosen = given
            values = score_differences(scores, labels, chosen)
            valid = (mask > 0) & (jnp.sum(chosen) > 1)
            return jax.vmap(MeanState.add, (0, 0, None))(state, values, valid)

        return StreamMetrics(
            nll=add(self.nll),
            auc=add(self.auc),
            calibration=add(self.calibration),
            # One set after another: never [R, R, W].
            differences=jax.lax.map(add_set, (self.differences, sets)),
        )

    def compute(self) -> dict[str, Array]:
        """All figures by name; see `StreamResult.totals`."""
        differences = jax.vmap(jax.vmap(MeanState.compute))(self.differences)
        figures = {
            "log_loss": jax.vmap(NLLState.compute)(self.nll),
            "auc": jax.vmap(AUCState.compute)(self.auc),
            "auc_error": jax.vmap(AUCState.error_bound)(self.auc),
            "calibration": jax.vmap(CalibrationRatioState.compute)(self.calibration),
        }
        for column, name in enumerate(DIFFERENCES):
            figures[name] = differences[0, column]
            figures[f"{name}_loo"] = differences[1:, column]
        return figures


def empty_metrics(replicas: int, mesh: Mesh) -> StreamMetrics:
    """No sums on the mesh, each in memory of its own: the step is donated them."""
    shapes = jax.eval_shape(lambda: StreamMetrics.empty(replicas))
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    return replicate(zeros, mesh)


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """What progressive validation measured.

    Attributes:
        examples: number of examples in the stream, all of them learned.
        counted: how many of them are scored in the totals: those after the warm start.
        seconds: over all launches.
        parameters: trained numbers per replica.
        stopped: replicas frozen because something was not finite; from that window on
            the prediction differences ignore them, and their own numbers are nan.
        totals: after the warm start. Per replica `log_loss`, `auc`, `auc_error` (how
            far the AUC's bins can be off at most) and `calibration`, all `[R]`; over
            replicas `relative_pd`, `pd_1`, `pd_2`, `hamming`, `label_pd`, each with
            `<name>_loo [R]`, the value without replica r.
        curve: the same for each segment of the stream, with `examples` learned by
            its end and `counted`, those scored in it; terms of the loss under
            `term/<name>`.
        holdout: the same on the part of the stream that is held out; `{}` without one.
        identity: what it was trained as.
    """

    examples: int
    counted: int
    seconds: float
    parameters: int
    stopped: tuple[Stopped, ...]
    totals: dict[str, np.ndarray]
    curve: list[dict[str, Any]]
    holdout: dict[str, np.ndarray]
    identity: str = ""


def without_stopped(figures: dict[str, Any], alive: np.ndarray) -> dict[str, Any]:
    """Figures by replica with nan for those that stopped."""
    kept: dict[str, Any] = {}
    for name, value in figures.items():
        value = np.asarray(value, np.float64)
        kept[name] = np.where(alive, value, np.nan) if value.ndim else float(value)
    return kept


def curve_entry(record: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics as an entry of `StreamResult.curve`."""
    entry: dict[str, Any] = {
        "examples": int(record["examples"]),
        "counted": int(record["counted"]),
    }
    for part in ("train", "validation"):
        for name, value in record[part].items():
            array = np.asarray(value, np.float64)  # null is nan
            entry[name] = array if array.ndim else float(array)
    return entry


def save_result(path: Path, result: StreamResult) -> None:
    """Writes a result as JSON, whole or not at all; nan is null."""
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    fields["stopped"] = [dataclasses.asdict(s) for s in result.stopped]
    write_file(path, json.dumps(as_json(fields), indent=1) + "\n")


def load_result(path: Path) -> StreamResult:
    """Reads what `save_result` wrote.

    Raises:
        ValueError: the file is missing or no such result.
    """
    try:
        fields = json.loads(Path(path).read_text())
        fields["stopped"] = tuple(Stopped(**s) for s in fields["stopped"])
        for name in ("totals", "holdout"):
            fields[name] = _arrays(fields[name])
        fields["curve"] = [_arrays(entry) for entry in fields["curve"]]
        return StreamResult(**fields)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the result of a stream ({error})") from error


def _arrays(entry: dict[str, Any]) -> dict[str, Any]:
    """Lists as float64 arrays, null as nan, counts as they are."""

    def restored(value):
        if isinstance(value, list):
            return np.asarray(value, np.float64)
        return np.nan if value is None else value

    return {name: restored(value) for name, value in entry.items()}
