"""Questions asked of predictions: which differences are real; how losses look.

Also how a model does on foreign and on corrupted images.
"""

from churn_jax.analysis.corruption import (
    CorruptionSummary,
    Quartiles,
    corruption_summary,
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

__all__ = [
    "CorruptionSummary",
    "Difference",
    "EntropyHistogram",
    "OutOfDistribution",
    "Quartiles",
    "corruption_summary",
    "entropy_histogram",
    "entropy_regularized_log_loss",
    "entropy_regularized_logistic_loss",
    "holm",
    "jackknife_stderr",
    "leave_one_run_out",
    "mcnemar_exact",
    "out_of_distribution",
    "paired_jackknife_test",
    "paired_leave_one_out_test",
    "paired_t_test",
    "tempered_logistic_loss",
]
