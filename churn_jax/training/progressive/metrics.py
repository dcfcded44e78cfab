"""What progressive validation measures, as sums over the stream."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax.metrics import AUCState, CalibrationRatioState, NLLState
from churn_jax.metrics.state import AdditiveState, MeanState
from churn_jax.typing import Array

__all__ = ["DIFFERENCES", "StreamMetrics", "score_differences"]

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
        chosen: `[R]` bool; scores of the others are not looked at.

    Returns:
        `[5, N]` float32 in the order of `DIFFERENCES`; nan where fewer than two are
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
    """Sums over the scored part of a stream; its size does not depend on the length.

    Attributes:
        nll: leaves `[R]`.
        auc: leaves `[R, ...]`, histograms of the scores.
        calibration: leaves `[R]`.
        differences: leaves `[1 + R, 5]`: of all replicas, then without each in turn.
    """

    nll: NLLState
    auc: AUCState
    calibration: CalibrationRatioState
    differences: MeanState

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
        """Adds a window.

        Args:
            scores: `[R, W]`, logit of the positive label.
            labels: `[W]` in {0, 1}.
            mask: `[W]`, 1 for examples that count.
            alive: `[R]` bool; stopped replicas are left out.
        """
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
