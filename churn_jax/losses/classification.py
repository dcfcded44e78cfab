"""The classification risk and the logits of binary, single-score models."""

import jax.numpy as jnp
import optax

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.typing import Array, Labels, Logits, PerExample

__all__ = ["binary_logits", "cross_entropy"]


def cross_entropy(logits: Logits, labels: Labels) -> PerExample:
    """Cross-entropy of the predicted distribution with the label, in nats.

    `-log f_y` with `f = softmax(logits)`: the surrogate `l(y, f(x))` inside the
    empirical risk `L(w; S)`.

    Args:
        logits: `[..., C]`, floating point.
        labels: `[...]`, integers from 0 to `C - 1`.

    Returns:
        `[...]` float32, at least 0.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> import jax.numpy as jnp
        >>> logits = jnp.log(jnp.array([[0.5, 0.25, 0.25]]))
        >>> f"{cross_entropy(logits, jnp.array([1]))[0]:.4f}"
        '1.3863'

    Notes:
        The mean over examples is the caller's. Values of labels are not checked, as
        they are unknown under `jit`: as in optax, a label of `C` or more yields NaN and
        a negative one counts from the end.

    References:
        [reproducibility] Eq. 2 -- Bhojanapalli et al., On the Reproducibility of Neural
        Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    check_logits(logits=logits)
    check_labels(labels, logits)
    # Normalised first: optax subtracts log-sum-exp and the label's logit, two numbers
    # as large as the logits, which costs three digits when these are near 1e4.
    return optax.softmax_cross_entropy_with_integer_labels(
        log_probs(logits), jnp.asarray(labels)
    )


def binary_logits(scores: Array) -> Logits:
    """Two-class logits `[0, z]` of a binary model's score `z`.

    `softmax([0, z])_1 = sigmoid(z)`, so every loss and metric of this library reads a
    single-score (click, logistic) model after this call.

    Args:
        scores: `[...]`, floating point; the log-odds of class 1.

    Returns:
        `[..., 2]` float32.

    Raises:
        TypeError: scores are not floating point (probabilities need `logit` first).

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([2.0])
        >>> print(binary_logits(z))
        [[0. 2.]]
        >>> f"{cross_entropy(binary_logits(z), jnp.array([1]))[0]:.4f}"
        '0.1269'

    References:
        [reproducibility] App. F -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """
    if not jnp.issubdtype(jnp.result_type(scores), jnp.floating):
        raise TypeError(
            f"scores must be floating-point log-odds; got {jnp.result_type(scores)}"
        )
    z = jnp.asarray(scores).astype(jnp.float32)
    return jnp.stack([jnp.zeros_like(z), z], axis=-1)
