"""Focal distillation: a new model follows an old one most where that is right."""

from __future__ import annotations

from churn_compare.class_sets import known_classes
from churn_jax import ensembles, losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import Method
from churn_jax.methods.batch import LossOutput, forward, old_logits, teacher_logits
from churn_jax.methods.fields import coefficient, pytree, share, static


@pytree
class FocalDistillation(Method):
    r"""Cross-entropy, and old models' predictions, weighted by whether they are right.

    `(1 - alpha) L(w) + alpha 1/n sum_i 1/J sum_j w_ij D(f(x_i; w), o_j(x_i))` over the
    J models that are followed, with `w_ij = focal_base + focal_beta [o_j is right about
    x_i]`. D is `tau^2 KL(o_tau || f_tau)` (FD-KL) or the mean over classes of squared
    logit differences (FD-LM).

    The models followed are the old models and, where the row has a teacher, the average
    of its logits, as one model. An ensemble of the student's own kind alone is the
    paper's "Ensemble w/ FD"; several old versions are its "fully connected" chain.

    With a `margin` the logits of classes that no old model knows are raised by it in
    `L(w)` alone: an old class must win against them by that much in training, so that
    they take fewer of its examples (MPT, which follows the old model and an independent
    new one, the row's teacher).

    Attributes:
        alpha: weight of the old models (public code: 0.9).
        temperature: tau of `kl` (public code: 100).
        focal_base: weight of every example (public code: 1).
        focal_beta: added weight where the followed model is right (public code: 5); 0
            is plain distillation.
        divergence: `kl` or `logits`.
        margin: added to the logits of new classes (public code of MPT: 4).

    Notes:
        Every followed model has its own weights `w_ij`. Classes that it does not know
        are left out of its term. The mean over models is ours: with one old model, the
        usual case, it is that model's term. MPT was read in its abstract and in the
        authors' code, which adds the terms without alpha, at temperature 5.

    References:
        [elodi] Table 1
        [elodi] Table 5
        [elodi] Table 10
        [mpt] Margin-calibrated loss -- Ricci et al., Mitigating Negative Flips via
        Margin Preserving Training, AAAI 2026. https://arxiv.org/abs/2511.08322
    """

    alpha: float = share(0.9)
    temperature: float = coefficient(100.0, "above 0")
    focal_base: float = coefficient(1.0, "at least 0")
    focal_beta: float = coefficient(5.0, "at least 0")
    divergence: str = static("kl", of=("kl", "logits"))
    margin: float = coefficient(0.0, "at least 0")

    needs_teacher = True
    old_models = "allowed"

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy mixed with the focal divergence from all followed models."""
        del step, key
        if teacher is None:
            raise ValueError("FocalDistillation needs an old model or a teacher")
        logits, labels, model_state = forward(apply, variables, batch)
        followed = []
        raised = logits
        if teacher.olds:
            followed.append(old_logits(teacher, batch))
            new = ~jnp.any(known_classes(followed[0]), axis=0)
            raised = logits + jnp.where(new, self.margin, 0.0)[None]
        if teacher.size:
            answers = teacher_logits(teacher, batch)
            followed.append(ensembles.average_logits(answers)[None])
        old = jnp.concatenate(followed)[:, None]
        shape = (old.shape[0], *logits.shape)
        roles = {
            "student_logits": jnp.broadcast_to(logits, shape),
            "old_logits": jnp.broadcast_to(old, shape),
            "labels": jnp.broadcast_to(labels, shape[:-1]),
            "alpha": self.focal_base,
            "beta": self.focal_beta,
        }
        if self.divergence == "kl":
            each = losses.focal_kl(**roles, temperature=self.temperature)
        else:
            each = losses.focal_logit_matching(**roles)
        focal = batch.total(jnp.mean(each, axis=0))
        cross_entropy = batch.total(losses.cross_entropy(raised, labels))
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * focal
        terms = {"cross_entropy": cross_entropy, f"focal_{self.divergence}": focal}
        return LossOutput(loss, terms, model_state)
