"""Co-distillation: members that train together and are pulled towards each other."""

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax import losses
from churn_jax.methods.base import (
    LossOutput,
    Method,
    Ramp,
    coefficient,
    forward,
    static,
)
from churn_jax.methods.erm import REGULARIZERS, regularizer
from churn_jax.typing import Logits, PerExample

__all__ = ["DISAGREEMENTS", "Codistillation", "disagreement"]

DISAGREEMENTS = ("skl", "l1", "cross_entropy", "joint_cross_entropy")


def disagreement(kind: str, logits: Logits) -> PerExample:
    """Sum over unordered pairs of members of their disagreement, `[M, B, C]` to `[B]`.

    Args:
        kind: `skl` (Eq. 9) and `l1` (Eq. 8) are symmetric, gradients flow to both
            members. `cross_entropy` is `H(stop(f_j), f_i) + H(stop(f_i), f_j)`: each
            member follows the other's current prediction as a fixed target.
            `joint_cross_entropy` is the same without the stops, which equals SKL plus
            both entropies.
        logits: `[M, B, C]` with M at least 2.

    Returns:
        `[B]` float32.
    """
    stop = jax.lax.stop_gradient
    rows, columns = jnp.triu_indices(logits.shape[0], k=1)
    a, b = logits[rows], logits[columns]
    if kind == "skl":
        pairs = losses.symmetric_kl(a, b)
    elif kind == "l1":
        pairs = losses.l1(a, b)
    else:
        # Anil et al. train each model against the other's prediction as a label, so
        # the target side is stopped; the joint form lets the gradient into both.
        for_a, for_b = (stop(b), stop(a)) if kind == "cross_entropy" else (b, a)
        pairs = losses.cross_entropy_between(
            target_logits=for_a, logits=a
        ) + losses.cross_entropy_between(target_logits=for_b, logits=b)
    return jnp.sum(pairs, axis=0)


@struct.dataclass
class Codistillation(Method):
    r"""Joint training of M peers that penalises their disagreement.

    `sum_m L(w_m) + beta(t) 1/n sum_i sum_{m<l} D(f(x_i; w_m), f(x_i; w_l))
    + alpha(t) 1/n sum_i sum_m EReg(f(x_i; w_m))`.

    With M = 2 and `alpha = 0`, Eq. 8 (`l1`) or Eq. 9 (`skl`); with `alpha > 0` the
    combined objective, Eq. 19, which has no `(1 - alpha)` on the cross-entropy. One
    peer is deployed.

    Attributes:
        beta: weight of the disagreement.
        alpha: weight of the minimum-entropy regulariser.
        divergence: `skl`, `l1`, `cross_entropy` or `joint_cross_entropy`.
        kind: the regulariser, `entropy` or `uniform_skl`.
        top_k: for the regulariser.
        beta_ramp: how beta grows; the paper finds a linear ramp better than a step.
        alpha_ramp: how alpha grows.

    Notes:
        `cross_entropy` updates both peers jointly with each other's current
        predictions as fixed targets: Eq. 18 with T = 0. More than two peers: the sum
        over unordered pairs, ours; the paper has two.

    References:
        [reproducibility] Eq. 8 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
        [reproducibility] Eq. 9 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
        [reproducibility] Eq. 19 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """

    members: int = static(2)
    beta: float = coefficient(0.1)
    alpha: float = coefficient(0.0)
    divergence: str = static("skl")
    kind: str = static("entropy")
    top_k: int | None = static(None)
    beta_ramp: Ramp = Ramp()
    alpha_ramp: Ramp = Ramp()

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        if self.members < 2:
            raise ValueError(
                f"co-distillation needs at least two members; got {self.members}"
            )
        if self.divergence not in DISAGREEMENTS:
            raise ValueError(
                f"divergence must be one of {', '.join(DISAGREEMENTS)}; got "
                f"{self.divergence!r}"
            )
        if self.kind not in REGULARIZERS:
            raise ValueError(
                f"kind must be one of {', '.join(REGULARIZERS)}; got {self.kind!r}"
            )

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """The coupled objective of one replica."""
        del teacher, key
        logits, labels, model_state = forward(apply, variables, batch)
        cross_entropy = jnp.sum(batch.mean(losses.cross_entropy(logits, labels)))
        apart = batch.mean(disagreement(self.divergence, logits))
        penalty = jnp.sum(batch.mean(regularizer(self.kind, logits, self.top_k)))
        beta = self.beta_ramp(self.beta, step)
        alpha = self.alpha_ramp(self.alpha, step)
        loss = cross_entropy + beta * apart + alpha * penalty
        divergence = self.divergence
        if divergence == "cross_entropy":  # the name is taken by the labels'
            divergence = "peer_cross_entropy"
        terms = {"cross_entropy": cross_entropy, divergence: apart, self.kind: penalty}
        return LossOutput(loss, terms, model_state)
