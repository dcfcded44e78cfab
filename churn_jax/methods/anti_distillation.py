"""Anti-distillation: training pushes the components of an ensemble apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from churn_compare.class_sets import known_classes
from churn_jax import losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import Method, Ramp, deploy
from churn_jax.methods.batch import Batch, LossOutput, forward_outputs
from churn_jax.methods.fields import coefficient, pytree, static
from churn_jax.registry import Registry
from churn_jax.setting_checks import check_none

if TYPE_CHECKING:
    from churn_jax.typing import Logits


PENALTIES = Registry(
    "penalty",
    {
        "correlation": "churn_jax.losses:correlation_penalty",
        "covariance": "churn_jax.losses:covariance_penalty",
        "residual_correlation": "churn_jax.losses:residual_correlation_penalty",
        "orthogonalized": "churn_jax.losses:orthogonalized_correlation_penalty",
        "difference": "churn_jax.losses:difference_penalty",
        "inverse_difference": "churn_jax.losses:inverse_difference_penalty",
        "cross_entropy_difference": "churn_jax.losses:cross_entropy_difference_penalty",
    },
)
"""Functions of all components' signals `[M, B, ...]`, `mask` and `axis_name`."""
LABEL_LOSSES = ("cross_entropy", "label_smoothing", "squared_error", "focal")


@pytree
class AntiDistillation(Method):
    r"""An ensemble whose components are trained apart from each other.

    `L = sum_m L_label(w_m) + lambda(t) L_AD(z_1, ..., z_M)` (Eq. 6), where the penalty
    `L_AD` reads one signal of every component over the whole global batch, one penalty
    per class, summed. Inference does not change: the components' predictions are
    averaged as `deploy` says, in probability (Output 1 of the paper's figure), in
    logits (Output 2) or by a learned gate.

    Attributes:
        strength: lambda. The paper: 0.02 to 1 on MNIST, 0.5 to 5 on clicks.
        label_reduction: how `L_label` is taken over the B examples of the global batch,
            which the paper does not say: the `mean`, or the `sum`. With `sum` the
            objective is `1/B (sum L_label + lambda L_AD)`, so that a learning rate
            means the same in both. Of a last batch with n < B examples it is
            `1/n sum L_label + lambda/B L_AD`. The presets of the paper's tables take
            the sum, since the paper's lambdas fit that reading.
        penalty: `correlation` (Eqs. 2 and 5), `covariance` (Eq. 3),
            `residual_correlation` (Eq. 4), `orthogonalized` (Gram-Schmidt before the
            correlation), `difference` (Eq. 7), `inverse_difference` (its reciprocal)
            or `cross_entropy_difference`; see the losses of these names. Or your own
            function `(signals [M, B, ...], *, mask, axis_name) -> scalar`, or its name
            `package.module:name`, which records keep.
        on: outputs that are penalised: `logits`, `probabilities` (the paper found no
            gain), `part`, the output of a part of every network (`Outputs.part`), or
            `features`.
        order: p of the norm of the differences.
        epsilon: epsilon of `inverse_difference`.
        ramp: how lambda grows.
        train_on: outputs that the label loss reads: `components`, each its own, so that
            no gradient passes from the ensemble's output to them; `ensemble`, the
            deployed output; `both`, their sum.
        component_losses: the label loss of each component, M of `cross_entropy`,
            `label_smoothing`, `squared_error` and `focal`; empty is cross-entropy for
            all. The ensemble's output is trained by cross-entropy.
        common_only: whether the penalty reads only the examples that are in every
            component's sample, instead of the whole batch.
        running: decay of the correlation's (or covariance's) estimate across
            mini-batches, in [0, 1); 0 is the current batch alone.
        gate: what the weights of `deploy="gate"` depend on: the `input`, or nothing
            (`constant`). A study builds that gate; a `Run` brings its own.
        member_sample: `shared`, or `bootstrap` or `subset` for a separate sample per
            component; see `ERM`.
        member_share: share of each member with `subset`.
        input_scale: s, the factor of the variance of the weights that see the input.

    Notes:
        A sum over components, as Eq. 6 is the loss "of the ensemble component" and
        components train on their own: each trains as it would alone where lambda is 0.
        A gate is trained by the cross-entropy of the ensemble's output, from which no
        gradient reaches the components unless `train_on` says so; the paper says
        nothing of how a gate is trained.
        The correlation penalty grows with the fourth power of the logits. With
        momentum SGD it diverges at the paper's lambda; the paper uses AdaGrad. A
        replica that diverges is stopped and the penalty named.
        `residual_correlation` as printed pulls components together: see the loss.
        Components with samples of their own need "a non-empty intersection training
        set, on which AD training loss can be applied"; a penalty needs no label, so by
        default it is over every example of the batch, and over the intersection with
        `common_only`. A batch whose intersection is empty has no penalty.

    References:
        [anti-distillation] Eq. 6
        [anti-distillation] Sec. 2
    """

    members: int = static(2, of=2)
    strength: float = coefficient(0.1, "at least 0")
    label_reduction: str = static("mean", of=("mean", "sum"))
    penalty: str = static("correlation")
    on: str = static("logits", of=("logits", "probabilities", "part", "features"))
    order: float = static(2, of=1)
    epsilon: float = static(1e-3)
    ramp: Ramp = Ramp()
    train_on: str = static("components", of=("components", "ensemble", "both"))
    component_losses: tuple[str, ...] = static(())
    common_only: bool = static(False)
    running: float = static(0.0, of="share")
    gate: str = static("input", of=("input", "constant"))
    member_sample: str = static("shared", of=("shared", "bootstrap", "subset"))
    member_share: float = static(1.0)
    input_scale: float = coefficient(1.0, "at least 0")

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        penalty = PENALTIES.record_name(self.penalty)
        if penalty not in PENALTIES:
            PENALTIES.find(penalty)  # says why not
        object.__setattr__(self, "penalty", penalty)
        given, on, trained = self.component_losses, self.on, self.train_on
        norms = ("difference", "inverse_difference")
        moments = penalty in ("correlation", "covariance")
        sample = self.member_sample
        check_none(
            "",
            (
                isinstance(given, str) or not set(given) <= set(LABEL_LOSSES),
                f"component_losses must be some of {', '.join(LABEL_LOSSES)}; got "
                f"{given!r}",
            ),
            (
                given and len(given) != self.members,
                f"component_losses must name one loss per member, {self.members}; got "
                f"{len(given)}",
            ),
            (
                given and trained == "ensemble",
                "component_losses are for components that train on their own labels; "
                "train_on='ensemble' trains their mixture",
            ),
            (
                penalty == "cross_entropy_difference" and on != "logits",
                "cross_entropy_difference is between predictions and needs "
                f"on='logits'; got {on!r}",
            ),
            (not self.epsilon > 0, f"epsilon must be above 0; got {self.epsilon}"),
            (
                (self.order != 2 and penalty not in norms)
                or (self.epsilon != 1e-3 and penalty != norms[1]),
                f"order is of {' and '.join(norms)}, epsilon of {norms[1]}; got "
                f"{self.order} and {self.epsilon} with penalty={penalty!r}",
            ),
            (
                self.running and not (moments and on in ("logits", "probabilities")),
                "running moments are for the correlation or covariance of logits or "
                f"probabilities; got penalty={penalty!r}, on={on!r}",
            ),
            (
                self.common_only and sample == "shared",
                "common_only is for members with samples of their own; with "
                "member_sample='shared' all examples are common",
            ),
            (
                sample != "shared" and trained != "components",
                f"member_sample={sample!r} needs train_on='components': the ensemble's "
                "output is trained on the whole batch",
            ),
            (
                self.deploy == "member" and trained != "components",
                f"train_on={trained!r} trains the ensemble's output, but "
                "deploy='member' has none",
            ),
            (
                self.gate != "input" and self.deploy != "gate",
                f"gate={self.gate!r} needs deploy='gate'; got {self.deploy!r}",
            ),
        )

    def init_memory(self, num_classes):
        """The running moments before the first batch, if the penalty has any."""
        if not self.running:
            return ()
        return losses.MomentState.empty(self.members, (num_classes,))

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Label losses plus the penalty, of one replica."""
        del teacher, key
        extras = (self.on,) if self.on in ("part", "features") else ()
        outputs, labels, model_state = forward_outputs(apply, variables, batch, extras)
        loss, terms = self._label_losses(outputs, labels, batch)
        penalty, memory = self._penalty(self._signal(outputs), batch)
        weight = self.ramp(self.strength, step)
        if self.label_reduction == "sum":
            weight = weight / batch.size
        loss = loss + weight * penalty
        name = self.penalty.rpartition(":")[2]
        return LossOutput(loss, {**terms, name: penalty}, model_state, memory)

    def _label_losses(self, outputs, labels, batch: Batch):
        """`(sum of the label losses, terms)`."""
        logits, log_weights, terms = outputs.logits, outputs.gate, {}
        total = jnp.float32(0.0)
        if self.train_on != "ensemble":
            values = component_values(self.component_losses, logits, labels)
            plain = set(self.component_losses) <= {"cross_entropy"}
            name = "cross_entropy" if plain else "label_loss"
            terms[name] = jnp.sum(batch.member_mean(values))
            total = total + terms[name]
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
        """The signals that are penalised, `[M, B, ...]`."""
        if self.on == "probabilities":
            return jax.nn.softmax(outputs.logits.astype(jnp.float32), axis=-1)
        signal = getattr(outputs, self.on)
        if signal is None:
            raise ValueError(
                f"on={self.on!r} needs networks whose outputs have .{self.on}; these "
                "have none"
            )
        if self.on == "logits":  # a class that no component knows varies with none
            return jnp.where(known_classes(signal), signal, 0.0)
        return signal

    def _penalty(self, signal, batch: Batch):
        """`(L_AD over the global batch, memory)`."""
        mask = batch.mask
        if self.common_only and batch.member_weights is not None:
            mask = mask * jnp.all(batch.member_weights > 0, axis=0)
        options: dict[str, Any] = {"mask": mask, "axis_name": batch.axis_name}
        if self.running:
            memory = self.memory_of(batch, losses.MomentState)
            centred = self.penalty == "covariance"
            return losses.running_correlation_penalty(
                signal, memory, self.running, centred=centred, **options
            )
        if self.penalty in ("difference", "inverse_difference"):
            options["order"] = self.order
        if self.penalty == "inverse_difference":
            options["epsilon"] = self.epsilon
        return PENALTIES.find(self.penalty)(signal, **options), ()


def component_values(
    names: tuple[str, ...], logits: Logits, labels: jax.Array
) -> jax.Array:
    """Every component's own label loss, `[M, B]`; cross-entropy without names."""
    if not names:
        return losses.cross_entropy(logits, labels)
    kinds = sorted(set(names))
    rows = [np.flatnonzero([n == kind for n in names]) for kind in kinds]
    parts = [getattr(losses, k)(logits[r], labels[r]) for k, r in zip(kinds, rows)]
    # Back to the components' order.
    return jnp.concatenate(parts)[np.argsort(np.concatenate(rows))]
