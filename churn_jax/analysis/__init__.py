"""Questions asked of predictions: which differences are real; how losses look."""

from churn_jax.analysis.landscapes import (
    entropy_regularized_log_loss,
    entropy_regularized_logistic_loss,
    tempered_logistic_loss,
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
    "Difference",
    "entropy_regularized_log_loss",
    "entropy_regularized_logistic_loss",
    "holm",
    "jackknife_stderr",
    "leave_one_run_out",
    "mcnemar_exact",
    "paired_jackknife_test",
    "paired_leave_one_out_test",
    "paired_t_test",
    "tempered_logistic_loss",
]
