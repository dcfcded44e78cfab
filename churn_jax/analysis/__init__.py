"""Analyses of predictions: which differences are real, how far logits move.

Also how a model does on foreign and on corrupted images, and whether a student answers
a change of the input as its teacher does, and how far logits move at an update.
"""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_compare.significance import holm, mcnemar_exact, sign_flip_exact
    from churn_jax.analysis.corruption import (
        CorruptionSummary,
        Quartiles,
        corruption_summary,
    )
    from churn_jax.analysis.displacement import (
        DisplacementDistribution,
        displacement_distribution,
        ensemble_displacement_norms,
        few_classes,
        logit_displacement,
        top_k_share,
    )
    from churn_jax.analysis.displacement_features import (
        FeatureAgreement,
        averaged_feature_agreement,
        averaged_feature_logits,
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
    from churn_jax.analysis.foreign_examples import (
        EntropyHistogram,
        OutOfDistribution,
        entropy_histogram,
        out_of_distribution,
    )
    from churn_jax.analysis.jacobian_matching import (
        DistillationExpansion,
        GradientMoments,
        distillation_expansion,
        gradient_signal_to_noise,
        jacobian_matching_gradient,
        jacobian_matching_term,
        matching_signal_to_noise,
    )
    from churn_jax.analysis.jacobians import (
        SimilarityROC,
        jacobian_similarity,
        probability_jacobians,
        similarity_roc,
    )
    from churn_jax.analysis.landscapes import (
        entropy_regularized_log_loss,
        entropy_regularized_logistic_loss,
        tempered_logistic_loss,
    )
    from churn_jax.analysis.significance import (
        Difference,
        jackknife_stderr,
        leave_one_run_out,
        paired_jackknife_test,
        paired_leave_one_out_test,
        paired_t_test,
    )
    from churn_jax.analysis.transfer import TransferredGuide, transferred_guide

__all__ = [
    "CorruptionSummary",
    "Difference",
    "DisplacementDistribution",
    "DistillationExpansion",
    "EntropyHistogram",
    "FeatureAgreement",
    "GoodnessOfFit",
    "GradientMoments",
    "OutOfDistribution",
    "Quartiles",
    "SimilarityROC",
    "TransferredGuide",
    "UpdatesBySize",
    "averaged_feature_agreement",
    "averaged_feature_logits",
    "corruption_summary",
    "displacement_distribution",
    "distillation_expansion",
    "ensemble_displacement_norms",
    "entropy_histogram",
    "entropy_regularized_log_loss",
    "entropy_regularized_logistic_loss",
    "er_nfr_by_ensemble_size",
    "few_classes",
    "flip_rank_counts",
    "goodness_of_fit",
    "gradient_signal_to_noise",
    "holm",
    "jackknife_stderr",
    "jacobian_matching_gradient",
    "jacobian_matching_term",
    "jacobian_similarity",
    "kolmogorov_smirnov",
    "leave_one_run_out",
    "logit_displacement",
    "matching_signal_to_noise",
    "mcnemar_exact",
    "mixed_sides",
    "out_of_distribution",
    "paired_jackknife_test",
    "paired_leave_one_out_test",
    "paired_t_test",
    "probability_jacobians",
    "sign_flip_exact",
    "similarity_roc",
    "simulate_displacement_norms",
    "tempered_logistic_loss",
    "top_k_share",
    "transferred_guide",
]

# Looked through in this order: the first needs no JAX, which takes a second to load.
_FILES = (
    "significance",
    "churn_compare.significance",
    "corruption",
    "displacement",
    "displacement_features",
    "displacement_fit",
    "displacement_updates",
    "foreign_examples",
    "jacobian_matching",
    "jacobians",
    "landscapes",
    "transfer",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
