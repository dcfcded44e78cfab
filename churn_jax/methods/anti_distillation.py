"""Anti-distillation: components of an ensemble that are pushed apart in training."""

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax import losses
from churn_jax.methods.base import (
    Batch,
    LossOutput,
    Method,
    Ramp,
    coefficient,
    deploy,
    forward_outputs,
    static,
)
from churn_jax.typing import Logits

__all__ = ["GATES", "PENALTIES", "POINTS", "TRAIN_ON", "AntiDistillation"]

PENALTIES = (
    "correlation",
    "covariance",
    "residual_correlation",
    "difference",
    "inverse_difference",
    "orthogonalized",
)
POINTS = ("logits", "probabilities", "part", "features")
TRAIN_ON = ("components", "ensemble", "both")
GATES = ("input", "constant")


@struct.dataclass
class AntiDistillation(Method):
    r"""An ensemble whose components are trained apart from each other.

    `L = sum_m L_label(w_m) + lambda(t) L_AD(z_1, ..., z_M)` (Eq. 6), where the penalty
    `L_AD` reads one signal of every component over the whole global batch, one penalty
    per class, summed. Inference does not change: the components' predictions are
    averaged as `deploy` says, in probability (Output 1 of the paper's figure), in
    logits (Output 2) or by a learned gate.

    Attributes:
        strength: lambda. The paper: 0.02 to 1 on MNIST, 0.5 to 5 on clicks.
        penalty: `correlation` (Eqs. 2 and 5), `covariance` (Eq. 3),
            `residual_correlation` (Eq. 4), `difference` (Eq. 7), `inverse_difference`
            (its reciprocal), `orthogonalized` (Gram-Schmidt, then the correlation).
        on: what is penalised: `logits`, `probabilities` (the paper found no gain),
            `part`, the output of a part of every network (`Outputs.part`), or
            `features`.
        order: p of the norm of the differences.
        epsilon: of `inverse_difference`.
        ramp: how lambda grows.
        train_on: what the label loss is of: `components`, each of its own output, so
            that no gradient passes from the ensemble's output to them; `ensemble`, the
            deployed output; `both`, their sum.
        gate: what the weights of `deploy="gate"` depend on: the `input`, or nothing
            (`constant`). A study builds that gate; a `Run` brings its own.

    Notes:
        A sum over components, as Eq. 6 is the loss "of the ensemble component" and
        components train on their own: each trains as it would alone where lambda is 0.
        A gate is trained by the cross-entropy of the ensemble's output, from which no
        gradient reaches the components unless `train_on` says so; the paper says
        nothing of how a gate is trained.
        The correlation penalty grows with the fourth power of the logits. With
        momentum SGD it diverges at the paper's lambda; the paper uses AdaGrad. A
        replica that diverges is stopped and the penalty named.

    References:
        [anti-distillation] Eq. 6 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
        [anti-distillation] Section 2 -- Shamir and Coviello, Anti-Distillation:
        Improving Reproducibility of Deep Networks, 2020.
        https://arxiv.org/abs/2010.09923
    """

    members: int = static(2)
    deploy: str = static("mean_probs")
    strength: float = coefficient(0.1)
    penalty: str = static("correlation")
    on: str = static("logits")
    order: float = static(2)
    epsilon: float = static(1e-3)
    ramp: Ramp = Ramp()
    train_on: str = static("components")
    gate: str = static("input")
    member_sample: str = static("shared")

    trains_gate = True

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        if self.members < 2:
            raise ValueError(
                "anti-distillation pushes members apart, so it needs at least two; got "
                f"{self.members} (ERM trains one alone)"
            )
        for name, allowed in (
            ("penalty", PENALTIES),
            ("on", POINTS),
            ("train_on", TRAIN_ON),
            ("gate", GATES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}; got "
                    f"{getattr(self, name)!r}"
                )
        if self.deploy == "member" and self.train_on != "components":
            raise ValueError(
                f"train_on={self.train_on!r} trains the ensemble's output, but "
                "deploy='member' has none"
            )

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Label losses plus the penalty, of one replica."""
        del teacher, key
        extras = (self.on,) if self.on in ("part", "features") else ()
        outputs, labels, model_state = forward_outputs(apply, variables, batch, extras)
        loss, terms = self._label_losses(outputs, labels, batch)
        apart = self._penalty(self._signal(outputs), batch)
        loss = loss + self.ramp(self.strength, step) * apart
        return LossOutput(loss, {**terms, self.penalty: apart}, model_state)

    def _label_losses(self, outputs, labels, batch: Batch):
        """`(sum of the label losses, terms)`."""
        logits, log_weights, terms = outputs.logits, outputs.gate, {}
        total = jnp.float32(0.0)
        if self.train_on != "ensemble":
            values = losses.cross_entropy(logits, labels)
            terms["cross_entropy"] = jnp.sum(batch.member_mean(values))
            total = total + terms["cross_entropy"]
        if self.train_on != "components" or self.deploy == "gate":
            # Section 2: "gradients are normally not allowed to propagate from the
            # ensemble output to each component".
            own = self.train_on == "components"
            mixed = jax.lax.stop_gradient(logits) if own else logits
            output = deploy(self, mixed, log_weights)
            values = losses.cross_entropy(output, batch.labels)
            terms["ensemble_cross_entropy"] = batch.mean(values)
            total = total + terms["ensemble_cross_entropy"]
        return total, terms

    def _signal(self, outputs) -> Logits:
        """What is penalised, `[M, B, ...]`."""
        if self.on == "probabilities":
            return jax.nn.softmax(outputs.logits.astype(jnp.float32), axis=-1)
        signal = getattr(outputs, self.on)
        if signal is None:
            raise ValueError(
                f"on={self.on!r} needs networks whose outputs have .{self.on}; these "
                "have none"
            )
        return signal

    def _penalty(self, signal, batch: Batch) -> jax.Array:
        """`L_AD` over the global batch, a scalar."""
        where = {"mask": batch.mask, "axis_name": batch.axis_name}
        if self.penalty == "orthogonalized":
            signal = losses.orthogonalize(signal, **where)
            return losses.correlation_penalty(signal, **where)
        if self.penalty == "difference":
            return losses.difference_penalty(signal, order=self.order, **where)
        if self.penalty == "inverse_difference":
            return losses.inverse_difference_penalty(
                signal, order=self.order, epsilon=self.epsilon, **where
            )
        return getattr(losses, f"{self.penalty}_penalty")(signal, **where)
