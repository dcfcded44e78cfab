"""Methods that learn from the models which they are to replace."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from churn_jax.methods.base import Batch, Method
from churn_jax.typing import Array, Logits

__all__ = ["Updating", "old_head_logits", "old_logits"]


@struct.dataclass
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
