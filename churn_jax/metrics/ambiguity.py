"""Which examples churn: disagreement of many runs, example by example."""

import jax
import jax.numpy as jnp

from churn_jax._checks import check_logits, check_members
from churn_jax.typing import Logits, PerExample

__all__ = ["ambiguity"]


def ambiguity(logits: Logits) -> PerExample:
    """Share of pairs of runs that predict an example differently, per example.

    `1 - sum_c v_c (v_c - 1) / (R (R - 1))` with `v_c` of the R runs voting for class c:
    0 where all agree, 1 where no two do. Its mean over examples is the churn averaged
    over all pairs of runs, so it says which examples carry that churn.

    Args:
        logits: `[R, ..., C]` of at least two runs on the same examples.

    Returns:
        `[...]` float32 in [0, 1]. With two classes at most `R / (2 (R - 1))`, or
        `(R + 1) / (2 R)` for odd R.

    Raises:
        ValueError: there are fewer than two runs or two classes.

    Notes:
        Ours: the paper averages over examples at once. The name is that of predictive
        multiplicity, where an example is ambiguous if near-equal models disagree on it;
        here it is how often they do.

    Example:
        >>> import jax.numpy as jnp
        >>> runs = jnp.eye(2)[jnp.array([[0, 0], [0, 1], [0, 0]])]  # 3 runs, 2 examples
        >>> [round(float(a), 4) for a in ambiguity(runs)]
        [0.0, 0.6667]

    References:
        [reproducibility] Eq. 3 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    check_logits(logits=logits)
    check_members(logits, name="logits", axes="[R, C]")
    predictions = jnp.argmax(logits, axis=-1)
    runs = predictions.shape[0]
    # One run against all at a time: no [R, R, ...] and no [..., C] of votes.
    differ = jax.lax.map(
        lambda one: jnp.sum(one[None] != predictions, axis=0, dtype=jnp.int32),
        predictions,
    )
    ordered_pairs = jnp.sum(differ, axis=0).astype(jnp.float32)
    return ordered_pairs / (runs * (runs - 1))
