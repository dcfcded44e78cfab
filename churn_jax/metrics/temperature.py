"""The one number that best rescales logits: temperature scaling."""

import jax
import jax.numpy as jnp

from churn_jax._checks import check_labels, check_logits
from churn_jax.metrics.state import valid_examples
from churn_jax.typing import Labels, Logits, Mask, Scalar

__all__ = ["fit_temperature"]

# exp(-7) to exp(7): beyond it the model is right everywhere, or knows nothing.
_LOG_RANGE = 7.0
_HALVINGS = 32  # of a range of 14: to 3e-9, finer than float32 tells apart


def fit_temperature(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    r"""The temperature T that minimises the negative log-likelihood of `logits / T`.

    In the inverse temperature a = 1/T the likelihood is convex, so its minimum is
    where the derivative `1/N sum_n (E_{softmax(a z_n)}[z_n] - z_n(y_n))` crosses zero:
    found by bisection, without a learning rate and without a starting point.

    Args:
        logits: `[..., C]` of a split that nothing else is chosen on (validation).
        labels: `[...]` class ids.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in `[exp(-7), exp(7)]`. The lower end says that no wrong
        prediction is there to learn from, the upper one that the logits know nothing;
        nan without a valid example. Divide other logits of the same model by it.

    Raises:
        ValueError: labels or mask do not fit the logits.

    Notes:
        Log-probabilities of an ensemble (`average_probs`) are logits here as anywhere.
        A logit of -inf keeps its probability 0 at every temperature.

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> labels = jnp.array([0, 0, 0, 1])  # right 3 times in 4: log 3 = 2 / T
        >>> f"{fit_temperature(z, labels):.4f}"
        '1.8205'

    References:
        [diversity] Eq. 16 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """
    check_logits(logits=logits)
    labels = jnp.asarray(labels)
    check_labels(labels, logits)
    valid = valid_examples(mask, labels.shape)
    z = jnp.asarray(logits).astype(jnp.float32)
    possible = z > -jnp.inf
    # Shifted so that the largest is 0: the same distribution, and no large terms.
    z = z - jnp.max(z, axis=-1, keepdims=True)
    finite = jnp.where(possible, z, 0.0)
    at_label = jnp.take_along_axis(finite, labels[..., None], axis=-1)[..., 0]

    def slope(log_inverse):
        scaled = jnp.where(possible, jnp.exp(log_inverse) * finite, -jnp.inf)
        expected = jnp.sum(jax.nn.softmax(scaled, axis=-1) * finite, axis=-1)
        return jnp.sum(jnp.where(valid, expected - at_label, 0.0))

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        above = slope(middle) > 0.0  # the minimum is at a smaller inverse temperature
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    start = (jnp.float32(-_LOG_RANGE), jnp.float32(_LOG_RANGE))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, start)
    temperature = jnp.exp(-0.5 * (low + high))
    return jnp.where(jnp.any(valid), temperature, jnp.nan)
