"""A metric of M models without each model in turn, for standard errors over models."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from churn_jax.typing import Array

__all__ = ["leave_one_model_out"]


def leave_one_model_out(metric: Callable, logits: Array, **inputs: Any) -> Any:
    """`metric(logits without model m, **inputs)` for every m.

    With `t_m` these values and `t` their mean, `sqrt((M - 1) / M sum_m (t_m - t)^2)` is
    the jackknife standard error of `metric(logits)` over models.

    Args:
        metric: a function of M - 1 models that JAX can trace, such as
            `prediction_difference` or `functools.partial(prediction_difference,
            order=2)`. It may return a tree, a State among them: then the result is a
            stack of States, whose `merge` and `compute` work on all M at once.
        logits: `[M, ...]`, M at least 3. Scores likewise.
        **inputs: what else the metric takes, by name; the same for every model.

    Returns:
        The metric's result with a leading axis `M`; `[M]` for a scalar.

    Raises:
        ValueError: fewer than three models, of which one less is no set to compare.

    Notes:
        One model after another, so memory is that of one call and one copy of the
        logits. Works under `jit`. A subset of models is plain indexing,
        `metric(logits[[0, 2, 3]])`.

    Example:
        >>> import jax.numpy as jnp
        >>> from churn_jax.metrics import hamming_prediction_difference
        >>> models = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
        >>> leave_one_model_out(hamming_prediction_difference, models).tolist()
        [1.0, 0.0, 1.0]

    References:
        [anti-distillation] Sec. 3 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """
    logits = jnp.asarray(logits)
    M = logits.shape[0] if logits.ndim else 0
    if M < 3:
        raise ValueError(
            "leaving one model out needs at least three on the first axis; got shape "
            f"{tuple(logits.shape)}"
        )

    def without(m):
        others = jnp.arange(M - 1, dtype=jnp.int32)
        others = others + (others >= m).astype(jnp.int32)
        return metric(jnp.take(logits, others, axis=0), **inputs)

    return jax.lax.map(without, jnp.arange(M, dtype=jnp.int32))
