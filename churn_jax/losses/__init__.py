"""Training losses: per example, float32, from logits.

Most leave averages, masks and `stop_gradient` to the caller, where a reader can see
them. The penalties between members take the mask and return one float32 scalar over the
global batch; `confusion_counts` takes the mask too.
Nothing heavier than JAX and optax is imported.
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.losses.bayesian_update import (
        bayesian_posterior,
        bayesian_update_targets,
        confusion_counts,
    )
    from churn_jax.losses.classification import (
        binary_logits,
        cross_entropy,
        focal,
        label_smoothing,
        squared_error,
    )
    from churn_jax.losses.codistillation import cross_entropy_between, l1, symmetric_kl
    from churn_jax.losses.compatibility import backward_compatible, ract
    from churn_jax.losses.decorrelation import (
        correlation_penalty,
        covariance_penalty,
        residual_correlation_penalty,
    )
    from churn_jax.losses.differences import (
        cross_entropy_difference_penalty,
        difference_penalty,
        inverse_difference_penalty,
    )
    from churn_jax.losses.distillation import dirichlet_nll, distillation_kl
    from churn_jax.losses.focal_distillation import (
        focal_kl,
        focal_logit_matching,
        focal_weights,
    )
    from churn_jax.losses.logit_difference import (
        logit_difference_inhibition,
        released_logit_difference,
    )
    from churn_jax.losses.moments import MomentState, running_correlation_penalty
    from churn_jax.losses.orthogonalization import (
        orthogonalize,
        orthogonalized_correlation_penalty,
    )
    from churn_jax.losses.regularizers import entropy, uniform_symmetric_kl

__getattr__, __dir__, __all__ = load_on_use(__name__)
