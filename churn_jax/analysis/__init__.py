"""Questions asked of predictions: which differences are real; how losses look.

Also how a model does on foreign and on corrupted images, and whether a student answers
a change of the input as its teacher does.
"""

from churn_jax.analysis.corruption import (
    CorruptionSummary,
    Quartiles,
    corruption_summary,
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
from churn_jax.analysis.out_of_distribution import (
    EntropyHistogram,
    OutOfDistribution,
    entropy_histogram,
    out_of_distribution,
)
from churn_jax.analysis.significance import (
    Difference,
    holm,
    jackknife_stderr,
    leave_one_run_out,
    mcnemar_exact,
    paired_jackknife_test,
    paired_leave_one_out_test,
    paired_t_test,
)
from churn_jax.analysis.transfer import TransferredGuide, transferred_guide

__all__ = [
    "CorruptionSummary",
    "Difference",
    "DistillationExpansion",
    "EntropyHistogram",
    "GradientMoments",
    "OutOfDistribution",
    "Quartiles",
    "SimilarityROC",
    "TransferredGuide",
    "corruption_summary",
    "distillation_expansion",
    "entropy_histogram",
    "entropy_regularized_log_loss",
    "entropy_regularized_logistic_loss",
    "gradient_signal_to_noise",
    "holm",
    "jackknife_stderr",
    "jacobian_matching_gradient",
    "jacobian_matching_term",
    "jacobian_similarity",
    "leave_one_run_out",
    "matching_signal_to_noise",
    "mcnemar_exact",
    "out_of_distribution",
    "paired_jackknife_test",
    "paired_leave_one_out_test",
    "paired_t_test",
    "probability_jacobians",
    "similarity_roc",
    "tempered_logistic_loss",
    "transferred_guide",
]
