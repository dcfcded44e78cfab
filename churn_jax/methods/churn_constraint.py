"""Training under a limit on the divergence from the model in use."""

from __future__ import annotations

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax import ensembles, losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import Method
from churn_jax.methods.batch import LossOutput, forward, teacher_logits
from churn_jax.methods.fields import coefficient, pytree, static


@pytree
class ChurnConstraint(Method):
    r"""Cross-entropy under a limit on the divergence from the deployed model.

    `min L(w)` such that `D(w) = 1/n sum_i v_i KL(g(x_i) || f(x_i; w)) <= limit`, where
    `g` is the mean probability of the teacher's members. Each update descends
    `(L + l D) / (1 + l)` and ascends the multiplier: `l <- max(l + rate (D - limit),
    0)` with the batch's D. At a fixed multiplier this is `EnsembleDistillation(alpha=l
    / (1 + l), temperature=1)`; here the limit finds it.

    Attributes:
        limit: largest divergence in nats; 0 imitates the deployed model.
        rate: step of the multiplier; 0 keeps it.
        start: the multiplier before the first update.
        examples: which examples are weighted: `all` (v = 1), or `right`, those that the
            deployed model gets right (v = 1, else 0), so that its mistakes may change.

    Notes:
        The paper shows that minimising the loss under such a constraint and distilling
        with a mixed label have the same minimum, and distils. The dual ascent, the
        division by `1 + l`, which keeps the size of the gradient, and the weights
        are ours; the paper was read in its abstract. The multiplier sees one batch at
        a time, so its steps are noisy: a smaller `rate` averages over more updates. A
        teacher that deploys one of its members, or the mean of their logits, is
        followed by its mean probability, too.

    References:
        [churn-distillation] Constrained form -- Jiang et al., Churn Reduction via
        Distillation, ICLR 2022. https://arxiv.org/abs/2106.02654
    """

    limit: float = coefficient(0.1, "at least 0")
    rate: float = coefficient(0.1, "at least 0")
    start: float = coefficient(1.0, "at least 0")
    examples: str = static("all", of=("all", "right"))

    needs_teacher = True
    teacher_average = "probs"

    def init_memory(self, num_classes):
        """How far each member's multiplier has come from `start`, `[M]`."""
        del num_classes
        return jnp.zeros(self.members, jnp.float32)

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Sum over members of the cross-entropy and the weighted divergence."""
        del step, key
        if teacher is None:
            raise ValueError("ChurnConstraint needs a teacher, the model in use")
        target = ensembles.average_probs(teacher_logits(teacher, batch))
        memory = self.memory_of(batch, jax.Array)
        logits, labels, model_state = forward(apply, variables, batch)
        # Classes that the student does not have are ignored.
        known = jnp.where(known_classes(logits), target, UNKNOWN_LOGIT)
        away = losses.distillation_kl(student_logits=logits, teacher_logits=known)
        if self.examples == "right":
            right = jnp.argmax(target, axis=-1) == batch.labels
            away = jnp.where(right[None], away, 0.0)
        divergence = batch.mean(away)
        multiplier = jnp.maximum(self.start + memory, 0.0)
        cross_entropy = batch.mean(losses.cross_entropy(logits, labels))
        each = (cross_entropy + multiplier * divergence) / (1.0 + multiplier)
        moved = multiplier + self.rate * jax.lax.stop_gradient(divergence - self.limit)
        terms = {
            "cross_entropy": jnp.sum(cross_entropy),
            "divergence": jnp.sum(divergence),
            "multiplier": jnp.mean(multiplier),
        }
        memory = jnp.maximum(moved, 0.0) - self.start
        return LossOutput(jnp.sum(each), terms, model_state, memory)
