"""Questions asked of predictions: which differences are real."""

from churn_jax.analysis.significance import (
    Difference,
    holm,
    jackknife_stderr,
    leave_one_run_out,
    mcnemar_exact,
    paired_jackknife_test,
    paired_t_test,
)

__all__ = [
    "Difference",
    "holm",
    "jackknife_stderr",
    "leave_one_run_out",
    "mcnemar_exact",
    "paired_jackknife_test",
    "paired_t_test",
]
