"""One-to-one distillation: teacher m teaches member m of a network with many heads."""

from __future__ import annotations

from churn_jax import losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import LossOutput, coefficient, pytree, static
from churn_jax.methods.perturbing import Perturbing

__all__ = ["OneToOneDistillation"]


@pytree
class OneToOneDistillation(Perturbing):
    r"""Every member follows one member of a trained deep ensemble.

    `1/M sum_m 1/n sum_i (1 - alpha) CE(y_i, S_m(x_i)) + alpha tau^2 KL(T_m(x~_i) ||
    S_m(x~_i))`, both tempered in the divergence: cross-entropy on the clean image,
    distillation on the perturbed one `x~`, the same for all members, along a direction
    of one teacher drawn for the batch. Without a perturbation one forward pass serves
    both. A mean over the M n rows, unlike the coupled objectives, which are sums.

    Attributes:
        alpha: weight of the teachers (paper: 0.9).
        temperature: tau (paper: 4 on CIFAR-10, 1 on CIFAR-100 and TinyImageNet).
        member_sample: `shared`, or `split` for a network whose members split the batch.

    Notes:
        Eq. 2 is without a perturbation. With one, the students' two passes are both in
        training mode, so running batch statistics see both, as in the public code.

    References:
        [diversity] Eq. 5 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
        [diversity] Eq. 2 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    alpha: float = coefficient(0.9)
    temperature: float = coefficient(4.0)
    member_sample: str = static("shared")

    needs_teacher = True

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Mean over members of the mixed objective."""
        del step
        found = self.answers(
            apply,
            variables,
            batch,
            teacher=teacher,
            temperature=self.temperature,
            key=key,
        )
        members, teachers = found.students.shape[0], found.teachers.shape[0]
        if members != teachers:
            raise ValueError(
                f"{members} members need a teacher each and {self.external_teachers} "
                f"external ones; got {teachers + self.external_teachers} teachers"
            )
        cross_entropy = jnp.mean(
            batch.member_mean(losses.cross_entropy(found.clean, found.labels))
        )
        distillation = jnp.mean(
            batch.member_mean(
                losses.distillation_kl(
                    student_logits=found.students,
                    teacher_logits=found.teachers,
                    temperature=self.temperature,
                )
            )
        )
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * distillation
        terms = {"cross_entropy": cross_entropy, "distillation": distillation}
        return LossOutput(loss, terms, found.model_state)
