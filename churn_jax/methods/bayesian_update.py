"""Bayesian update: a new model learns the most likely class given all models."""

from __future__ import annotations

from churn_compare.class_sets import known_classes
from churn_jax import losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import Updating
from churn_jax.methods.batch import LossOutput, forward, old_logits
from churn_jax.methods.fields import coefficient, pytree, share, static


@pytree
class BayesianUpdate(Updating):
    r"""Cross-entropy with the prediction that a Bayesian update would keep in use (BU).

    `(1 - alpha) L(w) + alpha 1/n sum_i -log softmax(f(x_i; w))_(u_i)`, where `u_i` is
    the update of the old models' predictions of `x_i`, oldest first, by the new model's
    own: see `churn_jax.losses.bayesian_update_targets`. The update needs every model's
    confusions; they are counted on the training batches as they pass, the new model's
    while it changes.

    Attributes:
        alpha: weight of the target; 1 leaves the labels out, but for the confusions.
        cost_ratio: how much likelier a new class must be, for `cr` (public code: 2.5).
        rule: `mb` (maximum belief), `mbme` (and minimum entropy) or `cr` (cost ratio).
        olds: O, the number of old models; the memory is made before they are known.

    Notes:
        The paper's footnote 2 says only that the new model is trained online against
        the target of the cost ratio, where the original method updates stored
        predictions offline. Our choices: alpha = 1; confusions counted on the training
        batches before this one; and before the first batch a prior of two examples per
        class, one right and one spread over all classes. The target is an integer, so
        no gradient flows through it. Memory grows with the square of the number of
        classes: `(O + M) C^2` numbers per replica.

    References:
        [elodi] Table 1
    """

    alpha: float = share(1.0)
    cost_ratio: float = coefficient(2.5, "at least 0")
    rule: str = static("cr", of=("mb", "mbme", "cr"))
    olds: int = static(1, of=1)

    def init_memory(self, num_classes):
        """Confusion counts, `[O + M, C, C]`: of the old models, then of the members."""
        guess = jnp.eye(num_classes, dtype=jnp.float32) + 1.0 / num_classes
        return jnp.stack([guess] * (self.olds + self.members))

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropies with the labels and with the updated predictions."""
        del step, key
        if (found := self.check_old_models(teacher)) != self.olds:
            raise ValueError(f"olds={self.olds}, but the row has {found} old models")
        counts = self.memory_of(batch, jax.Array)
        logits, labels, model_state = forward(apply, variables, batch)
        old = jnp.argmax(old_logits(teacher, batch), axis=-1)
        own = jnp.argmax(logits, axis=-1)
        shares = counts / jnp.sum(counts, axis=-1, keepdims=True)

        def target(prediction, confusion):
            return losses.bayesian_update_targets(
                jnp.concatenate([old, prediction[None]]),
                jnp.concatenate([shares[: self.olds], confusion[None]]),
                rule=self.rule,
                cost_ratio=self.cost_ratio,
            )

        targets = jax.vmap(target)(own, shares[self.olds :])
        # A class that only an old model knows cannot be learnt.
        at_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        targets = jnp.where(known_classes(at_target), targets, labels)
        cross_entropy = batch.total(losses.cross_entropy(logits, labels))
        updated = batch.total(losses.cross_entropy(logits, targets))
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * updated
        terms = {"cross_entropy": cross_entropy, "updated_cross_entropy": updated}

        def count(prediction):
            right, classes = batch.labels, counts.shape[-1]
            return losses.confusion_counts(prediction, right, classes, batch.mask)

        seen = jax.vmap(count)(jnp.concatenate([old, own]))
        if batch.axis_name is not None:  # `Batch.sum` would need a count per example
            seen = jax.lax.psum(seen, batch.axis_name)
        return LossOutput(loss, terms, model_state, counts + seen)
