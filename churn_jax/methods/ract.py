"""Regression-alleviating compatible training, in its form for classification."""

import jax.numpy as jnp
from flax import struct

from churn_jax import losses
from churn_jax.methods.base import LossOutput, Passes, coefficient, forward_outputs
from churn_jax.methods.updating import Updating, old_head_logits

__all__ = ["RACT"]


@struct.dataclass
class RACT(Updating):
    r"""Cross-entropy, and the old classifier's against both classifiers' negatives.

    `L(w) + weight 1/n sum_i 1/O sum_o R_oi` with `R_oi = -log(e^(h_y) / (sum_c e^(h_c)
    + sum_(c != y) e^(n_c)))`: h are the logits that the last layer of old model o makes
    of the new model's features of example i, n the new model's own. An example whose
    class the old model does not know adds 0.

    Attributes:
        weight: of the second term; the paper does not give it, 1 is ours.

    Notes:
        Old models' last layers read the first columns of features that are wider than
        theirs. Gradients flow into the new classifier from its negatives too.

    References:
        [elodi] Table 1 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """

    weight: float = coefficient(1.0)

    @property
    def passes(self) -> Passes:
        """No old model is run."""
        return super().passes._replace(teachers=0)

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy plus the contrast of the old classifier's positives."""
        del step, key
        self.check_old_models(teacher)
        outputs, labels, model_state = forward_outputs(
            apply, variables, batch, ("features",)
        )
        old = old_head_logits(teacher, outputs.features)
        contrast = losses.ract(
            old_head_logits=old,
            new_logits=jnp.broadcast_to(outputs.logits, old.shape),
            labels=jnp.broadcast_to(labels, old.shape[:-1]),
        )
        cross_entropy = jnp.sum(
            batch.mean(losses.cross_entropy(outputs.logits, labels))
        )
        compatibility = jnp.sum(batch.mean(jnp.mean(contrast, axis=0)))
        loss = cross_entropy + self.weight * compatibility
        terms = {"cross_entropy": cross_entropy, "ract": compatibility}
        return LossOutput(loss, terms, model_state)
