"""Backward-compatible training: an old classifier must understand new features."""

import jax.numpy as jnp
from flax import struct

from churn_jax import losses
from churn_jax.methods.base import LossOutput, Passes, coefficient, forward_outputs
from churn_jax.methods.updating import Updating, old_head_logits

__all__ = ["BackwardCompatible"]


@struct.dataclass
class BackwardCompatible(Updating):
    r"""Cross-entropy of the new classifier, and of the frozen old one (BCT).

    `L(w) + weight 1/n sum_i 1/O sum_o -log softmax(h_o(z_i))_(y_i)`, where `z_i` are
    the new model's features and `h_o` is the last layer of old model o. An example
    whose class that model does not know adds 0.

    Attributes:
        weight: of the old classifiers' cross-entropy; the paper does not give it, 1 is
            ours.

    Notes:
        Old models are not run: their last layers are, on the first columns of features
        that are wider than theirs, as in the public code. That code creates the old
        classifier and does not load its weights, so there it is a random one.

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
        """Cross-entropies of both classifiers on one network's features."""
        del step, key
        self.check_old_models(teacher)
        outputs, labels, model_state = forward_outputs(
            apply, variables, batch, ("features",)
        )
        old = old_head_logits(teacher, outputs.features)
        every = jnp.broadcast_to(labels, old.shape[:-1])
        compatible = jnp.mean(losses.backward_compatible(old, every), axis=0)
        cross_entropy = jnp.sum(
            batch.mean(losses.cross_entropy(outputs.logits, labels))
        )
        compatibility = jnp.sum(batch.mean(compatible))
        loss = cross_entropy + self.weight * compatibility
        terms = {"cross_entropy": cross_entropy, "old_cross_entropy": compatibility}
        return LossOutput(loss, terms, model_state)
