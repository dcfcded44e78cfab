"""Methods that learn from the models which they are to replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from churn_jax import losses
from churn_jax.lazy import jax, jnp
from churn_jax.methods.base import (
    Batch,
    LossOutput,
    Method,
    Passes,
    coefficient,
    forward_outputs,
    pytree,
)

if TYPE_CHECKING:
    from churn_jax.typing import Array, Labels, Logits


__all__ = ["Compatible", "Updating", "old_head_logits", "old_logits"]


@pytree
class Updating(Method):
    """Base of the methods that learn from old models and from nobody else."""

    needs_teacher = True
    old_models = "alone"

    def check_old_models(self, teacher: Any) -> int:
        """How many old models there are.

        Args:
            teacher: as `Method.loss` has it.

        Raises:
            ValueError: there is none, or there is a teacher beside them.
        """
        name = type(self).__name__
        if teacher is None or not teacher.olds:
            raise ValueError(f"{name} needs an old model; name one in teaching.old")
        if teacher.size:
            raise ValueError(
                f"{name} learns from old models alone; its row has a teacher too"
            )
        return teacher.olds


@pytree
class Compatible(Updating):
    """Base of the methods whose features an old model's last layer must understand.

    `L(w) + weight 1/n sum_i 1/O sum_o compatibility_oi`.

    Attributes:
        weight: of the second term.
    """

    weight: float = coefficient(1.0)

    # Under which name the second term is logged.
    term = ""

    @property
    def passes(self) -> Passes:
        """No old model is run."""
        return super().passes._replace(teachers=0)

    def compatibility(self, old: Logits, new: Logits, labels: Labels) -> Array:
        """What is asked of the new features, `[O, M, B]`.

        Args:
            old: what the old models' last layers make of them, `[O, M, B, C]`.
            new: the new models' own logits, likewise.
            labels: `[O, M, B]`.
        """
        raise TypeError(f"{type(self).__name__} defines no compatibility")

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Cross-entropy plus the mean over old models of what they ask."""
        del step, key
        self.check_old_models(teacher)
        outputs, labels, model_state = forward_outputs(
            apply, variables, batch, ("features",)
        )
        old = old_head_logits(teacher, outputs.features)
        new = jnp.broadcast_to(outputs.logits, old.shape)
        every = jnp.broadcast_to(labels, old.shape[:-1])
        asked = jnp.mean(self.compatibility(old, new, every), axis=0)
        cross_entropy = jnp.sum(
            batch.mean(losses.cross_entropy(outputs.logits, labels))
        )
        compatibility = jnp.sum(batch.mean(asked))
        loss = cross_entropy + self.weight * compatibility
        terms = {"cross_entropy": cross_entropy, self.term: compatibility}
        return LossOutput(loss, terms, model_state)


def old_logits(teacher: Any, batch: Batch) -> Logits:
    """What old models say to a batch, `[O, B, C]`; no gradient, padding hidden.

    Args:
        teacher: as `Method.loss` has it.
        batch: the batch.
    """
    answers = teacher.old(batch.hide(batch.images, axis=0))
    # They are in use and stay as they are.
    return jax.lax.stop_gradient(batch.hide(answers, axis=-2))


def old_head_logits(teacher: Any, features: Array | None) -> Logits:
    """What old models' last layers make of all members' features.

    Args:
        teacher: as `Method.loss` has it.
        features: `[M, B, D]`.

    Returns:
        `[O, M, B, C]`; gradients flow to the features, the layers are frozen.

    Raises:
        ValueError: the networks return no features.
    """
    if features is None:
        raise ValueError(
            "an old model's last layer needs networks whose outputs have .features; "
            "these have none"
        )
    members, examples = features.shape[:2]
    rows = features.reshape(members * examples, -1)
    logits = teacher.classify(rows)
    return jnp.reshape(logits, (logits.shape[0], members, examples, -1))
