"""Prediction updates by Bayes' rule: the most likely class given several models.

A model is described by its confusions, the shares `P(predicted | true)`. Its prediction
of an example changes the belief about the example's class; a rule then decides whether
the prediction in use changes.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from churn_jax import divergences
from churn_jax._checks import check_mask, known_number
from churn_jax.setting_checks import check_choice
from churn_jax.typing import Array, Labels, Logits, Mask

UPDATE_RULES = ("mb", "mbme", "cr")
# Replaces a share of 0, so that one vote alone does not rule out a class for good.
_SMALLEST = 1e-30


def _check_integers(**named) -> None:
    for name, x in named.items():
        if not jnp.issubdtype(jnp.result_type(x), jnp.integer):
            raise TypeError(f"{name} must be class ids; got {jnp.result_type(x)}")


def confusion_counts(
    predictions: Labels, labels: Labels, num_classes: int, mask: Mask | None = None
) -> Array:
    """How often each class was predicted, for each right class.

    `N_ck = sum_i [y_i = c] [p_i = k]`.

    Args:
        predictions: `[B]` class ids.
        labels: `[B]` class ids.
        num_classes: C.
        mask: `[B]` valid examples.

    Returns:
        `[C, C]` float32, rows by label, columns by prediction. Sums of counts over
        devices or updates are counts.

    Raises:
        ValueError: the shapes are not `[B]` or differ.
        TypeError: predictions or labels are not integers.

    Example:
        >>> print(confusion_counts(jnp.array([0, 1, 1]), jnp.array([0, 0, 1]), 2))
        [[1. 1.]
         [0. 1.]]

    References:
        [bayesian-update] Confusion matrices -- Traeuble et al., Backward-Compatible
        Prediction Updates: A Probabilistic Approach, NeurIPS 2021.
        https://arxiv.org/abs/2107.01057
    """
    _check_integers(predictions=predictions, labels=labels)
    a, b = jnp.shape(predictions), jnp.shape(labels)
    if len(a) != 1 or a != b:
        raise ValueError(f"predictions and labels must both be [B]; got {a} and {b}")
    check_mask(mask, b)
    right, predicted = (  # in int32: narrow types cannot count all classes
        jax.nn.one_hot(jnp.asarray(x, jnp.int32), num_classes, dtype=jnp.float32)
        for x in (labels, predictions)
    )
    if mask is not None:
        right = jnp.where(jnp.asarray(mask).astype(jnp.bool_)[:, None], right, 0.0)
    return jnp.matmul(right.T, predicted, precision=jax.lax.Precision.HIGHEST)


def _votes(predictions: Labels, confusions: Array) -> tuple[Array, Array]:
    """The predictions, and the logarithms `[T, C, C]` by prediction, then label."""
    _check_integers(predictions=predictions)
    shape = jnp.shape(confusions)
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"confusions must be [T, C, C]; got shape {shape}")
    if jnp.ndim(predictions) < 1 or jnp.shape(predictions)[0] != shape[0]:
        raise ValueError(
            "predictions must have one row per model, [T, ...]; got shape "
            f"{jnp.shape(predictions)} for confusions {shape}"
        )
    shares = jnp.asarray(confusions).astype(jnp.float32)
    logarithms = jnp.log(jnp.maximum(shares, _SMALLEST))
    return jnp.asarray(predictions), jnp.swapaxes(logarithms, 1, 2)


def _log_prior(prior: Array | None, num_classes: int) -> Array:
    if prior is None:
        return jnp.zeros(num_classes, jnp.float32)
    if (shape := jnp.shape(prior)) != (num_classes,):
        raise ValueError(f"prior must be [C] = {(num_classes,)}; got shape {shape}")
    return jnp.log(jnp.maximum(jnp.asarray(prior).astype(jnp.float32), _SMALLEST))


def bayesian_posterior(
    predictions: Labels, confusions: Array, prior: Array | None = None
) -> Logits:
    """Belief about the right class after the votes of several models.

    `log P(c | p_1, .., p_T)`, proportional to `P(c) prod_t P_t(p_t | c)`: given the
    right class, models are taken to err independently.

    Args:
        predictions: `[T, ...]` class ids, one row per model. That they are from 0 to
            `C - 1` is not checked.
        confusions: `[T, C, C]` shares; rows by label, columns by prediction.
        prior: `[C]` shares of the classes; None for uniform.

    Returns:
        `[..., C]` float32 log-probabilities.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: predictions are not integers.

    Example:
        >>> confusion = jnp.array([[[0.8, 0.2], [0.4, 0.6]]])
        >>> belief = bayesian_posterior(jnp.array([[0]]), confusion)
        >>> [f"{x:.4f}" for x in jnp.exp(belief[0])]
        ['0.6667', '0.3333']

    Notes:
        Shares below 1e-30 count as 1e-30, so a vote never rules out every class.

    References:
        [bayesian-update] Posterior -- Traeuble et al., Backward-Compatible Prediction
        Updates: A Probabilistic Approach, NeurIPS 2021.
        https://arxiv.org/abs/2107.01057
    """
    predictions, logarithms = _votes(predictions, confusions)
    votes = jax.vmap(lambda table, ids: table[ids])(logarithms, predictions)
    belief = jnp.sum(votes, axis=0)
    prior = _log_prior(prior, belief.shape[-1])
    return jax.nn.log_softmax(belief + jnp.broadcast_to(prior, belief.shape), axis=-1)


def bayesian_update_targets(
    predictions: Labels,
    confusions: Array,
    rule: str = "cr",
    cost_ratio: ArrayLike = 2.5,
    prior: Array | None = None,
) -> Labels:
    """The prediction in use after the models have voted one after the other.

    The first model's prediction stands. Every further vote changes the posterior
    `b_(t-1)` to `b_t`, and the prediction in use u to `a = argmax_c b_t(c)`

    * `mb` (maximum belief): always;
    * `mbme` (and minimum entropy): where `H(b_t) < H(b_(t-1))`;
    * `cr` (cost ratio): where `a != u` and `b_t(a) / b_t(u) > cost_ratio`.

    Args:
        predictions, confusions, prior: oldest model first, as in `bayesian_posterior`.
        rule: `mb`, `mbme` or `cr`.
        cost_ratio: how much likelier a new class must be, for `cr`; may be traced
            (public code: 2.5).

    Returns:
        `[...]` int32 class ids.

    Raises:
        ValueError: the shapes do not fit, the rule is unknown, or the cost ratio is
            negative.
        TypeError: predictions are not integers.

    Example:
        >>> confusions = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.7, 0.3], [0.3, 0.7]]])
        >>> votes = jnp.array([[0], [1]])
        >>> for rule in ("mb", "mbme", "cr"):  # 0.39 and 0.61, surer than 0.6 and 0.4
        ...     print(bayesian_update_targets(votes, confusions, rule))
        [1]
        [1]
        [0]

    Notes:
        Every vote changes the belief, also where the prediction in use stays. The
        public code differs in three points: it takes the posterior's arg max for the
        first model too, its `mbme` forgets a vote that was not accepted, and its `cr`
        compares with the arg max of the previous belief and not with the prediction in
        use. For two models that are mostly right the results differ at ties only.

    References:
        [bayesian-update] Update rules -- Traeuble et al., Backward-Compatible
        Prediction Updates: A Probabilistic Approach, NeurIPS 2021.
        https://arxiv.org/abs/2107.01057
        [elodi] Table 1
    """
    check_choice("rule", rule, UPDATE_RULES)
    if not known_number(cost_ratio, 1.0) >= 0:
        raise ValueError(f"cost_ratio must be at least 0; got {cost_ratio}")
    predictions, logarithms = _votes(predictions, confusions)
    predictions = predictions.astype(jnp.int32)
    start = logarithms[0][predictions[0]]
    prior = jnp.broadcast_to(_log_prior(prior, start.shape[-1]), start.shape)
    belief = jax.nn.log_softmax(prior + start, axis=-1)
    threshold = jnp.log(jnp.asarray(cost_ratio, jnp.float32))

    def vote(state, model):
        before, used = state
        ids, table = model
        after = jax.nn.log_softmax(before + table[ids], axis=-1)
        best = jnp.argmax(after, axis=-1).astype(jnp.int32)
        if rule == "mb":
            accept = jnp.ones_like(best, jnp.bool_)
        elif rule == "mbme":
            accept = divergences.entropy(after) < divergences.entropy(before)
        else:
            mine = jnp.take_along_axis(after, used[..., None], axis=-1)[..., 0]
            accept = (best != used) & (jnp.max(after, axis=-1) - mine > threshold)
        return (after, jnp.where(accept, best, used)), None

    models = (predictions[1:], logarithms[1:])
    return jax.lax.scan(vote, (belief, predictions[0]), models)[0][1]
