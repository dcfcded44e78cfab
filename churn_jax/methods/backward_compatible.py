"""Backward-compatible training: an old classifier must understand new features."""

from __future__ import annotations

from churn_jax import losses
from churn_jax.methods.base import pytree
from churn_jax.methods.updating import Compatible

__all__ = ["BackwardCompatible"]


@pytree
class BackwardCompatible(Compatible):
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

    term = "old_cross_entropy"

    def compatibility(self, old, new, labels):
        """The old classifiers' cross-entropy."""
        del new
        return losses.backward_compatible(old, labels)
