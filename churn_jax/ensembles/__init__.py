"""Members of an ensemble as stacked trees, and what to make of their outputs."""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.ensembles.aggregate import (
        average_logits,
        average_probs,
        average_weights,
        diagonal_fisher,
        gate,
        interpolate_weights,
    )
    from churn_jax.ensembles.linen import from_linen
    from churn_jax.ensembles.members import (
        Group,
        apply_committee,
        apply_members,
        stack,
        take_member,
    )
    from churn_jax.ensembles.network import (
        Network,
        NetworkError,
        Outputs,
        from_function,
    )
    from churn_jax.ensembles.nnx import as_network, from_nnx
    from churn_jax.ensembles.wrappers import starting_from, with_classes, with_inputs


__all__ = [
    "Group",
    "Network",
    "NetworkError",
    "Outputs",
    "apply_committee",
    "apply_members",
    "as_network",
    "average_logits",
    "average_probs",
    "average_weights",
    "diagonal_fisher",
    "from_function",
    "from_linen",
    "from_nnx",
    "gate",
    "interpolate_weights",
    "stack",
    "starting_from",
    "take_member",
    "with_classes",
    "with_inputs",
]

_FILES = ("network", "wrappers", "aggregate", "members", "linen", "nnx")

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
