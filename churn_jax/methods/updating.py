"""Methods that learn from the models that they replace; BCT and RACT are two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn_jax import losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import Passes, Updating
from churn_jax.methods.batch import LossOutput, Teacher, forward_outputs
from churn_jax.methods.fields import coefficient, pytree

if TYPE_CHECKING:
    from churn_jax.typing import Array, Labels, Logits


@pytree
class Compatible(Updating):
    """Base of methods that minimise `L(w) + weight 1/n sum_i 1/O sum_o c_oi`.

    `c` is `compatibility`: an old model's last layer must understand new features.
    """

    weight: float = coefficient(1.0, "at least 0")

    # The name of the second term in logs.
    term = ""

    @property
    def passes(self) -> Passes:
        """Of old models only the last layers run."""
        return super().passes._replace(teachers=0)

    def compatibility(self, old: Logits, new: Logits, labels: Labels) -> Array:
        """`[O, M, B]` of old layers' logits of new features and of new logits."""
        raise TypeError(f"{type(self).__name__} defines no compatibility")

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy plus the mean over old models of their compatibility."""
        del step, key
        self.check_old_models(teacher)
        needed = ("features",)
        outputs, labels, state = forward_outputs(apply, variables, batch, needed)
        old = old_head_logits(teacher, outputs.features)
        new = jnp.broadcast_to(outputs.logits, old.shape)
        every = jnp.broadcast_to(labels, old.shape[:-1])
        each = jnp.mean(self.compatibility(old, new, every), axis=0)
        cross_entropy = batch.total(losses.cross_entropy(outputs.logits, labels))
        compatibility = batch.total(each)
        loss = cross_entropy + self.weight * compatibility
        terms = {"cross_entropy": cross_entropy, self.term: compatibility}
        return LossOutput(loss, terms, state)


@pytree
class BackwardCompatible(Compatible):
    r"""Cross-entropy of the new classifier, and of the frozen old one (BCT).

    `L(w) + weight 1/n sum_i 1/O sum_o -log softmax(h_o(z_i))_(y_i)`, where `z_i` are
    the new model's features and `h_o` is the last layer of old model o. An example
    whose class that model does not know adds 0.

    Attributes:
        weight: weight of the old classifiers' cross-entropy; the paper does not give
            it, 1 is ours.

    Notes:
        Old models are not run: their last layers are, on the first columns of features
        that are wider than theirs, as in the public code. That code creates the old
        classifier and does not load its weights, so there it is a random one.

    References:
        [elodi] Table 1
    """

    term = "old_cross_entropy"

    def compatibility(self, old, new, labels):
        """The old classifiers' cross-entropy."""
        del new
        return losses.backward_compatible(old, labels)


@pytree
class RACT(Compatible):
    r"""Cross-entropy, and the old classifier's against both classifiers' negatives.

    `L(w) + weight 1/n sum_i 1/O sum_o R_oi` with `R_oi = -log(e^(h_y) / (sum_c e^(h_c)
    + sum_(c != y) e^(n_c)))`: h are the logits that the last layer of old model o makes
    of the new model's features of example i, n the new model's own. An example whose
    class the old model does not know adds 0.

    Attributes:
        weight: weight of the second term; the paper does not give it, 1 is ours.

    Notes:
        Old models' last layers read the first columns of features that are wider than
        theirs. Gradients flow into the new classifier from its negatives too.

    References:
        [elodi] Table 1
    """

    term = "ract"

    def compatibility(self, old, new, labels):
        """The contrast of the old classifiers' positives."""
        return losses.ract(old_head_logits=old, new_logits=new, labels=labels)


def old_head_logits(teacher: Teacher, features: Array | None) -> Logits:
    """Frozen old last layers on new features, `[M, B, D]` to `[O, M, B, C]`."""
    if features is None:
        raise ValueError(
            "an old model's last layer needs networks whose outputs have .features; "
            "these have none"
        )
    members, examples = features.shape[:2]
    rows = features.reshape(members * examples, -1)
    logits = teacher.classify(rows)
    return jnp.reshape(logits, (logits.shape[0], members, examples, -1))
