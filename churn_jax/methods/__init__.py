"""Training methods: members plus losses plus, for some, a teacher. All pure."""

from typing import TYPE_CHECKING, Any

from churn_compare.lazy import load_on_use
from churn_jax.methods import fields

if TYPE_CHECKING:
    from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
    from churn_jax.methods.anti_distillation import PENALTIES, AntiDistillation
    from churn_jax.methods.base import METHODS, Method, Ramp, Updating, deploy
    from churn_jax.methods.batch import (
        Batch,
        LossOutput,
        Teacher,
        forward,
        forward_outputs,
        old_logits,
        teacher_logits,
        with_state,
    )
    from churn_jax.methods.bayesian_update import BayesianUpdate
    from churn_jax.methods.churn_constraint import ChurnConstraint
    from churn_jax.methods.codistillation import Codistillation
    from churn_jax.methods.elodi import ELODI
    from churn_jax.methods.ensemble_distillation import (
        EnsembleDistillation,
        EnsembleDistributionDistillation,
        OneToOneDistillation,
    )
    from churn_jax.methods.erm import ERM, MinimumEntropy
    from churn_jax.methods.fields import coefficient, pytree, share, static
    from churn_jax.methods.focal_distillation import FocalDistillation
    from churn_jax.methods.neighbours import neighbour_targets
    from churn_jax.methods.perturbing import Perturbing
    from churn_jax.methods.updating import RACT, BackwardCompatible, old_head_logits
    from churn_jax.setting_checks import check_settings

_find, __dir__, __all__ = load_on_use(__name__)


def __getattr__(name: str) -> Any:
    """The name, after all classes have become pytrees, which loads JAX."""
    found = _find(name)
    fields.register()
    return found
