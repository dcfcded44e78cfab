"""Members of an ensemble as stacked trees, and what to make of their outputs."""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

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

__getattr__, __dir__, __all__ = load_on_use(__name__)
