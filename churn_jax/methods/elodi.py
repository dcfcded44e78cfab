"""ELODI: a network learns its own ensemble's logits, and those of an old model."""

from __future__ import annotations

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax import ensembles, losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import Method
from churn_jax.methods.batch import LossOutput, forward, old_logits, teacher_logits
from churn_jax.methods.fields import coefficient, pytree, share, static


@pytree
class ELODI(Method):
    r"""Cross-entropy, and the logits of a reference ensemble on its highest classes.

    `(1 - alpha) CE(y, z) + alpha L`, with `L = lambda LDI(z, z_ens) + (1 - lambda)
    LDI(z, z_old)`: `z_ens` is the average of the teacher's logits, an ensemble of m
    networks of the student's own architecture; `z_old` are the logits of a model in
    use, where there is one (of several, the mean of their LDI). `LDI` sums
    `|z_k - z'_k|^p` over the K classes that are highest in `z'`.

    Attributes:
        alpha: weight of the logit differences (paper: 0.8).
        mix: lambda, weight of the ensemble against old models; without an old model, or
            without a teacher, it has no effect (the paper does not print its value;
            0.5 is ours).
        top_k: K (paper: 10); 0 is all classes.
        order: p (paper: 2).
        rank_by: whose highest classes, `teacher` (Eq. 5) or `student` (the pseudocode).
        margin: differences up to it are not penalised (the method's earlier version).
        form: `paper`, or `release`: the mean over all classes but the label's, as the
            public code computes it; `top_k`, `rank_by` and `order` have no effect.

    Notes:
        A sum over K classes is C / K times a mean over all in size, so alpha means
        another thing in the two forms.
        All members of a row learn from the same teachers; the objective is their sum.

    References:
        [elodi] Sec. 4.2
        [elodi] Eqs. 6, 9
    """

    alpha: float = share(0.8)
    mix: float = coefficient(0.5, "from 0 to 1")
    margin: float = coefficient(0.0, "at least 0")
    top_k: int = static(10, of=0)
    order: float = static(2.0, of=1)
    rank_by: str = static("teacher", of=("teacher", "student"))
    form: str = static("paper", of=("paper", "release"))

    needs_teacher = True
    old_models = "allowed"

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy mixed with the differences from ensemble and old models."""
        del step, key
        if teacher is None:
            raise ValueError("ELODI needs a teacher; none was given")
        logits, labels, model_state = forward(apply, variables, batch)

        def difference(target):
            # Classes that the student does not have are ignored.
            target = jnp.where(known_classes(logits), target, UNKNOWN_LOGIT)
            return batch.total(self._difference(logits, target, labels))

        cross_entropy = batch.total(losses.cross_entropy(logits, labels))
        terms = {"cross_entropy": cross_entropy}
        total = jnp.zeros((), jnp.float32)
        old = old_logits(teacher, batch) if teacher.olds else None
        if teacher.size:
            answers = teacher_logits(teacher, batch)
            ensemble = difference(ensembles.average_logits(answers))
            terms["ldi_ensemble"] = ensemble
            total = ensemble if old is None else self.mix * ensemble
        if old is not None:
            legacy = jnp.mean(jnp.stack([difference(one) for one in old]))
            terms["ldi_old"] = legacy
            total = total + ((1.0 - self.mix) * legacy if teacher.size else legacy)
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * total
        return LossOutput(loss, terms, model_state)

    def _difference(self, student, teacher, labels):
        roles = {"student_logits": student, "teacher_logits": teacher}
        roles["margin"] = self.margin
        if self.form == "release":
            return losses.released_logit_difference(**roles, labels=labels)
        return losses.logit_difference_inhibition(
            **roles, top_k=self.top_k, order=self.order, rank_by=self.rank_by
        )
