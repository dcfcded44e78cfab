"""Analyses of predictions: which differences are real, how far logits move."""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

if TYPE_CHECKING:
    from churn_compare.significance import holm, mcnemar_exact, sign_flip_exact
    from churn_jax.analysis.displacement import (
        displacement_distribution,
        ensemble_displacement_norms,
        few_classes,
        logit_displacement,
        top_k_share,
    )
    from churn_jax.analysis.displacement_fit import (
        GoodnessOfFit,
        goodness_of_fit,
        kolmogorov_smirnov,
        simulate_displacement_norms,
    )
    from churn_jax.analysis.displacement_updates import (
        UpdatesBySize,
        er_nfr_by_ensemble_size,
        flip_rank_counts,
        mixed_sides,
    )
    from churn_jax.analysis.selection import (
        Selection,
        cross_fitted_selection,
        nearest_to_mean,
    )
    from churn_jax.analysis.significance import (
        Difference,
        jackknife_stderr,
        paired_jackknife_test,
        paired_leave_one_out_test,
        paired_t_test,
    )

__getattr__, __dir__, __all__ = load_on_use(__name__)
