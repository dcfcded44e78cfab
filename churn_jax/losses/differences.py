"""Anti-distillation by differences of the members' outputs on each example.

One float32 scalar over the *global* batch, with masks and `axis_name` as in
`decorrelation.py`. Means over examples do not couple the examples; the reciprocal does.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from churn_jax._checks import check_logits, known_number
from churn_jax.losses.codistillation import cross_entropy_between
from churn_jax.losses.moments import (
    AxisName,
    MemberOutputs,
    gather_examples,
    sum_over_devices,
)
from churn_jax.typing import Array, Logits, Mask, Scalar


def _pairs(values: Array) -> tuple[Array, Array]:
    """Both sides of every unordered pair of members, `[P, B, K]` each."""
    first, second = np.triu_indices(values.shape[0], 1)
    return values[first], values[second]


def power(size: Array, order: float) -> Array:
    """`size^order` of what is at least 0, with derivative 0 at 0."""
    if not (order >= 1 and math.isfinite(order)):
        raise ValueError(f"order must be a finite number of at least 1; got {order}")
    if order == 2:
        return jnp.square(size)
    some = size > 0.0
    safe = jnp.where(some, size, 1.0)
    return jnp.where(some, safe if order == 1 else safe ** float(order), 0.0)


def difference_penalty(
    outputs: MemberOutputs,
    mask: Mask | None = None,
    axis_name: AxisName = None,
    order: float = 2,
) -> Scalar:
    """Minus the mean distance between two members' outputs.

    `L' = -1/(M^2 - M) sum_i sum_(j != i) sum_c 1/k sum_t |z_it - z_jt|^p`, `p = order`.

    Args:
        outputs: `[M, B, ...]` floating point, M at least 2 (the paper's J); trailing
            axes are classes c.
        mask: `[B]` valid examples; what a padded row holds, nan included, reaches
            neither value nor gradient.
        axis_name: mapped axes that share the batch.
        order: p, static, at least 1; 2 is Eq. 7.

    Returns:
        A float32 scalar, at most 0, unbounded below; 0 without a valid example.

    Raises:
        ValueError: fewer than two members, a mask that does not fit, or an order that
            is below 1 or not finite.
        TypeError: the outputs are not floating point.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> f"{difference_penalty(z):.4f} {difference_penalty(z, order=1):.4f}"
        '-6.5000 -2.5000'

    Notes:
        The prefactor of Eq. 7 is garbled in the text; it is read as the mean over the
        M^2 - M ordered pairs. The paper allows other norms without a formula: the sum
        of p-th powers, without the root, is ours. Where two outputs are equal the
        gradient is 0 for every order, so exactly equal members never part.

    References:
        [anti-distillation] Eq. 7
    """
    examples = gather_examples(outputs, mask, axis_name)
    a, b = _pairs(examples.values)
    # Padded rows are 0 for every member, so their differences add nothing.
    total = jnp.sum(power(jnp.abs(a - b), order)) / a.shape[0]
    return -sum_over_devices(total, axis_name) / examples.count


def inverse_difference_penalty(
    outputs: MemberOutputs,
    mask: Mask | None = None,
    axis_name: AxisName = None,
    order: float = 2,
    epsilon: ArrayLike = 1e-3,
) -> Scalar:
    """Reciprocal of the mean distance between two members' outputs.

    `1 / (|L'| + epsilon)`, `L'` as in `difference_penalty`.

    Args:
        outputs, mask, axis_name, order: as in `difference_penalty`.
        epsilon: above 0; `1 / epsilon` is the largest value.

    Returns:
        A float32 scalar in (0, 1 / epsilon].

    Raises:
        ValueError: as there, or an epsilon that is not above 0.
        TypeError: as there.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> f"{inverse_difference_penalty(z, epsilon=0.5):.4f}"
        '0.1429'

    Notes:
        The paper's "some small epsilon" is 1e-3 here, ours. The distance is taken over
        the global batch and all classes first, then inverted. Large gradients near
        equality, as the paper wants, and 0 at exact equality.

    References:
        [anti-distillation] Sec. 4
    """
    if not known_number(epsilon, 1.0) > 0:
        raise ValueError(f"epsilon must be above 0; got {epsilon}")
    # |L'| = -L', without the kink of the absolute value at 0.
    distance = -difference_penalty(outputs, mask, axis_name, order)
    return 1.0 / (distance + jnp.asarray(epsilon, jnp.float32))


def cross_entropy_difference_penalty(
    logits: Logits, mask: Mask | None = None, axis_name: AxisName = None
) -> Scalar:
    """Minus the mean cross-entropy between two members' predictions, in nats.

    `-1/(M^2 - M) sum_i sum_(j != i) 1/k sum_t H(p_it, p_jt)` with
    `H(p, q) = -sum_c p(c) log q(c)` and `p_it` the softmax of member i's logits.

    Args:
        logits: `[M, B, C]` (or `[M, B, ..., C]`: summed over what is between), M at
            least 2. For one score z per example pass `binary_logits(z)`.
        mask: `[B]` valid examples.
        axis_name: mapped axes that share the batch.

    Returns:
        A float32 scalar, at most 0, unbounded below; 0 without a valid example.

    Raises:
        ValueError: fewer than two members or classes, or a mask that does not fit.
        TypeError: the logits are not floating point.

    Example:
        >>> probs = jnp.array([[[0.5, 0.5]], [[0.8, 0.2]]])
        >>> f"{cross_entropy_difference_penalty(jnp.log(probs)):.4f}"
        '-0.8047'

    Notes:
        The paper names cross-entropy and gives no formula; this is ours, with gradients
        into both members. `H(p, q) = KL(p || q) + H(p)`, so it also rewards
        uncertain members. Where it is -inf (a member excludes a class that another
        allows) a study stops the replica.

    References:
        [anti-distillation] Sec. 4
    """
    if jnp.ndim(logits) < 3:
        raise ValueError(
            f"logits must be [M, B, ..., C]; got shape {jnp.shape(logits)}. For one "
            "binary score z per example use binary_logits(z) = [0, z]"
        )
    check_logits(logits=logits)
    examples = gather_examples(logits, mask, axis_name)
    a, b = _pairs(examples.values.reshape(jnp.shape(logits)))
    entropy = 0.5 * (
        cross_entropy_between(target_logits=a, logits=b)
        + cross_entropy_between(target_logits=b, logits=a)
    )
    per_example = jnp.sum(entropy, axis=(0, *range(2, entropy.ndim)))
    total = jnp.sum(jnp.where(examples.valid[0, :, 0], per_example, 0.0)) / a.shape[0]
    return -sum_over_devices(total, axis_name) / examples.count
