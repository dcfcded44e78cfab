"""Co-distillation: members that train together and are pulled towards each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from churn_jax import losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import Method, Ramp
from churn_jax.methods.batch import LossOutput, forward, teacher_logits
from churn_jax.methods.erm import REGULARIZERS, regularizer
from churn_jax.methods.fields import coefficient, pytree, static

if TYPE_CHECKING:
    from churn_jax.typing import Logits, PerExample


DISAGREEMENTS = ("skl", "l1", "kl", "cross_entropy", "joint_cross_entropy")


def disagreement(kind: str, logits: Logits) -> PerExample:
    """Disagreement summed over unordered pairs of members, `[M, B, C]` to `[B]`."""
    # `skl` (Eq. 9) and `l1` (Eq. 8) are symmetric. `cross_entropy` is
    # `H(stop(f_j), f_i) + H(stop(f_i), f_j)`; `kl` subtracts the targets' entropy, with
    # an equal gradient. `joint_cross_entropy` has no stops: SKL plus both entropies.
    stop = jax.lax.stop_gradient
    rows, columns = jnp.triu_indices(logits.shape[0], k=1)
    a, b = logits[rows], logits[columns]
    if kind in ("skl", "l1"):
        pairs = _distance(kind, b, a)
    else:
        # Anil et al. train each model against the other's prediction as a label, so
        # the target side is stopped; the joint form lets the gradient into both.
        joint = kind == "joint_cross_entropy"
        for_a, for_b = (b, a) if joint else (stop(b), stop(a))
        pairs = _distance(kind, for_a, a) + _distance(kind, for_b, b)
    return jnp.sum(pairs, axis=0)


def stale_disagreement(kind: str, logits: Logits, stale: Logits) -> PerExample:
    """`sum_m sum_{l != m} D(g_l, f_m)` of members f and stale copies g, `[B]`."""
    # The copies of Eqs. 17 and 18 are not optimised: `teacher_logits` has stopped them.
    rows, columns = np.nonzero(~np.eye(logits.shape[0], dtype=bool))
    return jnp.sum(_distance(kind, stale[columns], logits[rows]), axis=0)


def _distance(kind: str, target: Logits, logits: Logits) -> PerExample:
    """`D(target, logits)` per pair and example, without stopped gradients."""
    if kind == "skl":
        return losses.symmetric_kl(logits, target)
    if kind == "l1":
        return losses.l1(logits, target)
    if kind == "kl":
        return losses.distillation_kl(student_logits=logits, teacher_logits=target)
    return losses.cross_entropy_between(target_logits=target, logits=logits)


@pytree
class Codistillation(Method):
    r"""Training of M peers that penalises their disagreement.

    Joint updates: `sum_m L(w_m) + beta(t) 1/n sum_i sum_{m<l} D(f(x_i; w_m),
    f(x_i; w_l)) + alpha(t) 1/n sum_i sum_m EReg(f(x_i; w_m))`. With M = 2 and
    `alpha = 0`, Eq. 8 (`l1`) or Eq. 9 (`skl`); with `alpha > 0` the combined objective,
    Eq. 19, which has no `(1 - alpha)` on the cross-entropy.

    Independent updates (Anil et al.): member m minimises `L(w_m) + beta(t) 1/n sum_i
    sum_{l != m} D(f(x_i; w_l^s), f(x_i; w_m))`, where `w_l^s` is a copy of peer l that
    is refreshed every `refresh_steps` updates and receives no gradient. With M = 2,
    Eq. 17 (`kl`) and Eq. 18 (`cross_entropy`), whose gradients are equal.

    With `member_sample="bootstrap"` each `L(w_m)` is over member m's own bootstrap of
    the training set and the disagreement over the whole common batch: with `skl`, a
    twin bootstrap. One peer is deployed, unless `deploy` says otherwise.

    Attributes:
        beta: weight of the disagreement.
        alpha: weight of the minimum-entropy regulariser.
        divergence: `skl`, `l1`, `kl`, `cross_entropy` or `joint_cross_entropy`.
        kind: the regulariser, `entropy` or `uniform_skl`.
        top_k: for the regulariser.
        beta_ramp: how beta grows; the paper finds a linear ramp better than a step.
        alpha_ramp: how alpha grows.
        update: `joint`, or `independent` against stale copies.
        refresh_steps: T. Update t (from 0) reads the copies made before update
            `T floor(t / T)`: they are 0 to T - 1 updates old, and with T = 1 they are
            the peers' weights at the start of the update.
        member_sample: `shared`, or `bootstrap`; see `ERM`.

    Notes:
        Jointly, `cross_entropy` and `kl` take each other's current predictions as
        fixed targets: Eqs. 17 and 18 without delay. The stale copies run in eval mode,
        with the running batch statistics of when they were made, on the images that
        the members see; the paper specifies neither. Eqs. 17 and 18 write
        `t - T`, a delay that is constant; with copies refreshed every T updates, as
        Anil et al. exchange checkpoints, it grows from 0 to T - 1.
        The paper has two peers; the sum over the pairs of more is ours. A member's
        pull is the sum over its M - 1 peers, jointly and independently alike (beta
        divided by M - 1 makes it their mean), so that beta means the same in both. The
        logged disagreement counts each pair twice in independent updates, once from
        either end, and once in joint ones for `skl` and `l1`.

    References:
        [reproducibility] Eqs. 8, 9, 17, 18, 19
    """

    members: int = static(2, of=2)
    deploy: str = static("member")
    beta: float = coefficient(0.1)
    alpha: float = coefficient(0.0)
    divergence: str = static("skl", of=DISAGREEMENTS)
    kind: str = static("entropy", of=REGULARIZERS)
    top_k: int | None = static(None)
    beta_ramp: Ramp = Ramp()
    alpha_ramp: Ramp = Ramp()
    update: str = static("joint", of=("joint", "independent"))
    refresh_steps: int = static(1, of=1)
    member_sample: str = static("shared", of=("shared", "bootstrap"))

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        if self.update == "joint" and self.refresh_steps != 1:
            raise ValueError(
                f"refresh_steps={self.refresh_steps} needs update='independent': joint "
                "updates have no stale copies"
            )
        if self.update == "independent" and self.divergence == "joint_cross_entropy":
            raise ValueError(
                "joint_cross_entropy sends gradients into both peers, so it needs "
                "update='joint'; independent updates have cross_entropy"
            )

    @property
    def is_plain(self) -> bool:
        """The first peer, which starts as one network would, without any coupling."""
        first = self.deploy == "member" and self.deployed_member == 0
        shared = self.member_sample == "shared"
        return first and shared and self.beta == 0 and self.alpha == 0

    @property
    def stale_steps(self) -> int:
        """T of independent updates, 0 for joint ones."""
        return int(self.refresh_steps) if self.update == "independent" else 0

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """The coupled objective of one replica; `teacher` gives the stale members."""
        del key
        logits, labels, model_state = forward(apply, variables, batch)
        cross_entropy = jnp.sum(batch.member_mean(losses.cross_entropy(logits, labels)))
        if self.update == "independent":
            if teacher is None:
                raise ValueError("independent updates need the stale members' logits")
            stale = teacher_logits(teacher, batch)
            coupling = batch.mean(stale_disagreement(self.divergence, logits, stale))
        else:
            coupling = batch.mean(disagreement(self.divergence, logits))
        penalty = batch.total(regularizer(self.kind, logits, self.top_k))
        beta = self.beta_ramp(self.beta, step)
        alpha = self.alpha_ramp(self.alpha, step)
        loss = cross_entropy + beta * coupling + alpha * penalty
        divergence = self.divergence
        if divergence == "cross_entropy":  # the name is taken by the labels'
            divergence = "peer_cross_entropy"
        terms = {
            "cross_entropy": cross_entropy,
            divergence: coupling,
            self.kind: penalty,
        }
        return LossOutput(loss, terms, model_state)
