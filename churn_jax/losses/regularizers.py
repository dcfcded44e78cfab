"""Minimum-entropy regularisers: how far a prediction is from uniform.

Both grow the gap between the two most likely classes. `entropy` is minimised and
`uniform_symmetric_kl` is maximised; the method sets the signs and the weights.
"""

import jax
import jax.numpy as jnp

from churn_jax import divergences
from churn_jax._checks import check_logits
from churn_jax.typing import Array, Logits, PerExample


def _kept(logits: Logits, top_k: int | None) -> tuple[Logits, Array]:
    """Log-probabilities and `modelled`, of the `top_k` likeliest classes or of all."""
    check_logits(logits=logits)
    log_p, modelled = divergences.log_probs(logits), divergences.modelled(logits)
    if top_k is None:
        return log_p, modelled
    if isinstance(top_k, bool) or not isinstance(top_k, int):
        raise TypeError(
            f"top_k must be a Python int (it sets a shape); got {type(top_k).__name__}"
        )
    classes = log_p.shape[-1]
    if not 1 <= top_k <= classes:
        raise ValueError(
            f"top_k must be between 1 and the number of classes, {classes}; got {top_k}"
        )
    kept, places = jax.lax.top_k(log_p, top_k)
    return kept, jnp.take_along_axis(modelled, places, axis=-1)


def entropy(logits: Logits, top_k: int | None = None) -> PerExample:
    """Entropy of the prediction in nats, `H = -sum_j f_j log f_j`.

    With `top_k` the sum runs over the `top_k` most likely classes only; their
    probabilities are not renormalised.

    Args:
        logits: `[..., C]`, floating point.
        top_k: number of classes to keep, 1 to `C`; None keeps all.

    Returns:
        `[...]` float32, from 0 to `log C`.

    Raises:
        ValueError: no class axis, or `top_k` outside 1 to `C`.
        TypeError: logits are not floating point, or `top_k` is not an int.

    Example:
        >>> logits = jnp.log(jnp.array([0.5, 0.25, 0.25]))
        >>> f"{entropy(logits):.4f} {entropy(logits, top_k=2):.4f}"
        '1.0397 0.6931'

    Notes:
        The paper says that on ImageNet the regularisers act "only on the top k
        predictions, with k = 10" and not how: the plain sum is our reading. Of tied
        classes the first are kept. A logit of `-inf` (impossible) adds nothing.

    References:
        [reproducibility] Eq. 6
    """
    log_p, _ = _kept(logits, top_k)
    return -jnp.sum(divergences.weighted(log_p, log_p), axis=-1)


def uniform_symmetric_kl(logits: Logits, top_k: int | None = None) -> PerExample:
    """Symmetric KL divergence of the prediction from uniform.

    `SKL(f, Unif) = KL(f || Unif) + KL(Unif || f) = sum_j (f_j - 1/C) log(C f_j)`, as
    in the paper's proof of Theorem 3. With `top_k` the sum runs over the `top_k` most
    likely classes only, still against `1/C`.

    Args:
        logits, top_k: as in `entropy`; errors as there.

    Returns:
        `[...]` float32, at least 0: every term of the sum is. Unbounded above.

    Example:
        >>> logits = jnp.log(jnp.array([0.5, 0.25, 0.25]))
        >>> f"{uniform_symmetric_kl(logits):.4f}"
        '0.1155'
        >>> f"{uniform_symmetric_kl(logits, top_k=1):.4f}"
        '0.0676'

    Notes:
        The objective subtracts it, so that objective is unbounded below. The gradient
        in a logit is `f_i (log f_i + H(f)) + f_i - 1/C`: at most `1 + log C` in size.
        A kept logit of `-inf` makes the value infinite, as the equation says. C counts
        no class with `UNKNOWN_LOGIT`, and the sum has no term of one. The plain sum
        over the top k is our reading of the paper (see `entropy`).

    References:
        [reproducibility] Eq. 7
    """
    log_p, kept = _kept(logits, top_k)
    modelled = divergences.modelled(logits)
    classes = jnp.sum(modelled, axis=-1, keepdims=True, dtype=jnp.float32)
    terms = (jnp.exp(log_p) - 1.0 / classes) * (log_p + jnp.log(classes))
    return jnp.sum(terms, axis=-1, where=kept)
