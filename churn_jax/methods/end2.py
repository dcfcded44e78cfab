"""Distillation of the distribution of an ensemble's predictions (END^2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from churn_jax import losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import LossOutput, coefficient, pytree
from churn_jax.methods.perturbing import Perturbing

if TYPE_CHECKING:
    from jax.typing import ArrayLike


__all__ = ["EnsembleDistributionDistillation"]


@pytree
class EnsembleDistributionDistillation(Perturbing):
    r"""A student's Dirichlet follows the predictions of a trained ensemble.

    `(1 - alpha) L(w) + alpha tau^2 1/n sum_i NLL_i(tau)`, where `NLL_i(tau)` is the
    negative log-likelihood of the teachers' tempered probabilities of example i under
    the Dirichlet with the concentrations `exp(f(x_i; w) / tau)`, its mean over
    teachers. `tau` falls linearly from `temperature` to 1 over `anneal_steps` updates
    and stays there. The student is a plain network, whose softmax is its Dirichlet's
    mean at tau = 1; where there are several, they are independent and summed.

    Attributes:
        alpha: weight of the teachers; 1 leaves the labels out.
        temperature: tau at the first update (the public code: 10).
        anneal_steps: updates until tau is 1; 0 keeps it as it is.
        smoothing: share of the uniform distribution in the teachers' probabilities.

    Notes:
        The factor tau^2 and the annealing are those of the public code; how long it
        lasts depends on the run, so there is no default. The code uses no labels
        (alpha = 1); how the diversity paper adapted the method is not printed.
        With a `perturbation`, which is ours here, the likelihood is taken on perturbed
        images and the cross-entropy on clean ones.

    References:
        [end2] Section 3 -- Malinin et al., Ensemble Distribution Distillation, ICLR
        2020. https://arxiv.org/abs/1905.00076
        [diversity] Table 5 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    alpha: float = coefficient(1.0)
    temperature: float = coefficient(10.0)
    anneal_steps: float = coefficient(0.0)
    smoothing: float = coefficient(1e-4)

    needs_teacher = True

    def annealed(self, step: ArrayLike) -> jax.Array:
        """`tau` at `step`, 0 at the first update."""
        start = jnp.asarray(self.temperature, jnp.float32)
        length = jnp.asarray(self.anneal_steps, jnp.float32)
        gone = jnp.asarray(step, jnp.float32) / jnp.maximum(length, 1.0)
        left = jnp.where(length > 0, jnp.maximum(1.0 - gone, 0.0), 1.0)
        return 1.0 + (start - 1.0) * left

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Likelihood of the teachers' predictions mixed with the labels'."""
        temperature = self.annealed(step)
        found = self.answers(
            apply, variables, batch, teacher=teacher, temperature=temperature, key=key
        )

        def likelihood(one: Any):
            return losses.dirichlet_nll(
                student_logits=one,
                teacher_logits=found.teachers,
                temperature=temperature,
                smoothing=self.smoothing,
            )

        cross_entropy = jnp.sum(
            batch.mean(losses.cross_entropy(found.clean, found.labels))
        )
        likelihoods = jnp.sum(batch.mean(jax.vmap(likelihood)(found.students)))
        distribution = jnp.square(temperature) * likelihoods
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * distribution
        terms = {"cross_entropy": cross_entropy, "distribution": distribution}
        return LossOutput(loss, terms, found.model_state)
