"""Anti-distillation by decorrelation of the members' outputs over the batch.

Batch-coupled: one float32 scalar over the *global* batch, one penalty per class,
summed. Under `jit` with sharded arrays nothing is needed; in `shard_map`, `pmap` or
`vmap(axis_name=)` the moments are added over `axis_name`. The mean of per-device
penalties would be a different number.

The penalties grow with the fourth power of the outputs. Outputs of 1e10 and more give
`inf`, from about 1e19 on (where a square overflows) `inf` or `nan`; a study stops the
replica at either.
"""

import jax.numpy as jnp

from churn_jax.losses.moments import (
    AxisName,
    MemberOutputs,
    batch_mean,
    covariances,
    gather_examples,
    half_squared_off_diagonal,
    second_moments,
)
from churn_jax.typing import Mask, Scalar


def correlation_penalty(
    outputs: MemberOutputs, mask: Mask | None = None, axis_name: AxisName = None
) -> Scalar:
    """Half the sum of squared correlations between different members' outputs.

    `L = 1/2 sum_c (||C||_F^2 - ||diag(C)||_F^2)` with `C_ij = 1/k sum_t z_it z_jt` for
    every class c; `z = outputs`, `k` the number of valid examples of the global batch.

    Args:
        outputs: `[M, B, ...]` floating point, M at least 2 (the paper's J); trailing
            axes are classes. Usually logits.
        mask: `[B]` valid examples; what a padded row holds, nan included, reaches
            neither value nor gradient.
        axis_name: mapped axes that share the batch.

    Returns:
        A float32 scalar, at least 0; 0 without a valid example.

    Raises:
        ValueError: fewer than two members, or a mask that does not fit.
        TypeError: the outputs are not floating point.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> f"{correlation_penalty(z):.4f}"
        '0.2500'

    Notes:
        `C` is the uncentred second moment, not Pearson's correlation: the penalty
        falls when outputs shrink. The prefactor of Eq. 5 is garbled in the text and
        read as one half, as in the DeCov loss it builds on.

        Where the batch is mapped and the gradient is taken inside, `shard_map` with
        `check_vma=True` returns the gradient itself. `pmap`, `vmap` and `shard_map`
        without the check return a part on each device, whose average over the axis
        (`pmean`) is the gradient, which changes nothing with the check.

    References:
        [anti-distillation] Eqs. 2, 5
    """
    examples = gather_examples(outputs, mask, axis_name)
    correlation = second_moments(examples.values, examples.count, axis_name)
    return half_squared_off_diagonal(correlation)


def covariance_penalty(
    outputs: MemberOutputs, mask: Mask | None = None, axis_name: AxisName = None
) -> Scalar:
    """Half the sum of squared covariances between different members' outputs.

    As `correlation_penalty` with `S_ij = 1/k sum_t (z_it - mu_i)(z_jt - mu_j)`,
    `mu_i = 1/k sum_t z_it`.

    Args:
        outputs, mask, axis_name: as in `correlation_penalty`; errors as there.

    Returns:
        A float32 scalar, at least 0; 0 for fewer than two valid examples.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> f"{covariance_penalty(z):.4f}"
        '1.0000'

    Notes:
        Divided by k, not k - 1, as the paper does. The global mean is subtracted
        before anything is squared, so a large common offset costs no digits. Blind to
        what all examples of a batch share; the paper's case is a batch of ads of one
        query.

    References:
        [anti-distillation] Eqs. 3, 5
    """
    examples = gather_examples(outputs, mask, axis_name)
    mean = batch_mean(examples, axis_name)
    return half_squared_off_diagonal(covariances(examples, mean, axis_name))


def residual_correlation_penalty(
    outputs: MemberOutputs, mask: Mask | None = None, axis_name: AxisName = None
) -> Scalar:
    """Half the sum of squared correlations of the members' deviations from their mean.

    As `correlation_penalty` with `C_ij = 1/k sum_t (z_it - m_t)(z_jt - m_t)`,
    `m_t = 1/M sum_j z_jt` the ensemble's average output for example t.

    Args:
        outputs, mask, axis_name: as in `correlation_penalty`; errors as there.

    Returns:
        A float32 scalar, at least 0; exactly 0 where all members are equal.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> f"{residual_correlation_penalty(z):.4f}"
        '2.6406'

    Notes:
        As printed this is *smallest when all members are equal*: the deviations of M
        members sum to zero, so they always correlate negatively, and for two members
        the penalty is `(1/k sum_t (z_1t - z_2t)^2 / 4)^2`, which pulls them together.
        It repels only where `m_t` is a contribution that the members share and cannot
        change, as in the paper's case of shared linear parts; then subtract that part
        and pass the rest to `correlation_penalty`.

    References:
        [anti-distillation] Eqs. 4, 5
    """
    examples = gather_examples(outputs, mask, axis_name)
    # From the first member on, so that what is left of equal members is exactly 0.
    residual = examples.values - examples.values[:1]
    residual = residual - jnp.mean(residual, axis=0, keepdims=True)
    correlation = second_moments(residual, examples.count, axis_name)
    return half_squared_off_diagonal(correlation)
