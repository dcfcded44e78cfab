"""Distillation of a trained ensemble into students."""

from __future__ import annotations

from churn_jax import ensembles, losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import LossOutput, coefficient, pytree, static
from churn_jax.methods.perturbing import Perturbing

__all__ = ["EnsembleDistillation"]


@pytree
class EnsembleDistillation(Perturbing):
    r"""A student follows the averaged prediction of a trained ensemble.

    `(1 - alpha) L(w) + alpha tau^2 1/n sum_i KL(g_tau(x_i) || f_tau(x_i; w))`, where
    `g` is the teacher ensemble's mean and the subscript is the softmax temperature.
    Replica r is taught by replica r of the teacher method, so replicas stay
    independent. With a `perturbation` the divergence is taken on perturbed images and
    the cross-entropy on clean ones, as `OneToOneDistillation` has it.

    Attributes:
        alpha: weight of the teacher. The paper does not give it; 0.9 is ours.
        temperature: tau (paper: 3 on CIFAR-10, 4 on CIFAR-100, 1 on ImageNet).
        average: `probs` or `logits`, how the teacher's members are averaged.

    Notes:
        Whether the paper multiplies by tau^2 is not stated; we do, so that the
        gradient's scale does not depend on tau (Hinton et al., 2015).

    References:
        [reproducibility] Table 2 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
        [diversity] Eq. 1 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    alpha: float = coefficient(0.9)
    temperature: float = coefficient(3.0)
    average: str = static("probs")

    needs_teacher = True

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        if self.average not in ("probs", "logits"):
            raise ValueError(f"average must be probs or logits; got {self.average!r}")

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy on the labels mixed with the teacher's KL."""
        del step
        found = self.answers(
            apply,
            variables,
            batch,
            teacher=teacher,
            temperature=self.temperature,
            key=key,
        )
        average = (
            ensembles.average_probs
            if self.average == "probs"
            else ensembles.average_logits
        )
        target = average(found.teachers)
        cross_entropy = jnp.sum(
            batch.mean(losses.cross_entropy(found.clean, found.labels))
        )
        distillation = jnp.sum(
            batch.mean(
                losses.distillation_kl(
                    student_logits=found.students,
                    teacher_logits=jnp.broadcast_to(target, found.students.shape),
                    temperature=self.temperature,
                )
            )
        )
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * distillation
        terms = {"cross_entropy": cross_entropy, "distillation": distillation}
        return LossOutput(loss, terms, found.model_state)
