"""Regression-alleviating compatible training, in its form for classification."""

from __future__ import annotations

from churn_jax import losses
from churn_jax.methods.base import pytree
from churn_jax.methods.updating import Compatible

__all__ = ["RACT"]


@pytree
class RACT(Compatible):
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

    term = "ract"

    def compatibility(self, old, new, labels):
        """The contrast of the old classifiers' positives."""
        return losses.ract(old_head_logits=old, new_logits=new, labels=labels)
