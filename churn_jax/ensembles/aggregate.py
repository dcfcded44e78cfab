"""One prediction from members' logits, and one model from several models' weights."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax._checks import check_logits
from churn_jax.divergences import log_probs
from churn_jax.typing import Array, Logits


def average_probs(logits: Logits) -> Logits:
    r"""Log of the mean of the members' probabilities.

    `log (1/M sum_m softmax(z_m)) = logsumexp_m(log softmax(z_m)) - log M`, which is
    a set of logits again and never takes the log of a rounded probability.

    Args:
        logits: `[M, ..., C]`, members first.

    Returns:
        `[..., C]` float32 log-probabilities.

    Example:
        >>> z = jnp.log(jnp.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
        >>> [round(float(p), 3) for p in jnp.exp(average_probs(z))[0]]
        [0.7, 0.3]

    References:
        [anti-distillation] Sec. 2
    """
    check_logits(logits=logits)
    return jax.nn.logsumexp(log_probs(logits), axis=0) - jnp.log(logits.shape[0])


def average_logits(logits: Logits) -> Logits:
    """Mean of the members' logits, float32.

    Args:
        logits: `[M, ..., C]`, members first.

    Returns:
        `[..., C]`.

    References:
        [elodi] Sec. 3.2
    """
    check_logits(logits=logits)
    return jnp.mean(jnp.asarray(logits).astype(jnp.float32), axis=0)


def gate(logits: Logits, log_weights: jax.Array) -> Logits:
    """Mixture of the members' probabilities with the given log-weights.

    `log sum_m w_m softmax(z_m)`; `log_weights` are normalised over members.

    Args:
        logits: `[M, ..., C]`.
        log_weights: `[M]`, or `[M, ...]` to weight every example differently.

    Returns:
        `[..., C]` float32 log-probabilities.

    Raises:
        ValueError: `log_weights` fits neither form.
    """
    check_logits(logits=logits)
    weights = jnp.asarray(log_weights).astype(jnp.float32)
    if weights.shape not in (logits.shape[:1], logits.shape[:-1]):
        raise ValueError(
            f"log_weights must be {logits.shape[:1]} or {logits.shape[:-1]}; got "
            f"{weights.shape}"
        )
    weights = jax.nn.log_softmax(weights, axis=0)
    weights = weights.reshape(weights.shape + (1,) * (logits.ndim - weights.ndim))
    return jax.nn.logsumexp(log_probs(logits) + weights, axis=0)


def interpolate_weights(new: PyTree, old: PyTree, share: float | Array) -> PyTree:
    """The old model's weights mixed into the new one's, which was trained from them.

    `share * old + (1 - share) * new`, leaf by leaf. The new model must have been
    fine-tuned from the old one: weights of independent trainings lie apart.

    Args:
        new: variables of the new model, any tree; its dtypes are kept.
        old: the same tree of the old model.
        share: w, from 0 (the new model) to 1 (the old one); may be traced.

    Returns:
        The mixed tree. Leaves that are not floating point are the new model's.

    Raises:
        ValueError: trees or shapes differ, or `share` is not a number from 0 to 1.

    Example:
        >>> mixed = interpolate_weights({"w": jnp.ones(2)}, {"w": jnp.zeros(2)}, 0.25)
        >>> mixed["w"].tolist()
        [0.75, 0.75]

    Notes:
        Batch statistics in the tree are interpolated as the weights are; recomputing
        them on training data afterwards is more exact.

    References:
        [bcwi] Sec. 3 -- Schumann et al., Backward Compatibility During Data Updates
        by Weight Interpolation, EACL 2024. https://arxiv.org/abs/2301.10546
    """
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise ValueError("old and new weights are different trees")
    if jnp.shape(share) or not (isinstance(share, jax.core.Tracer) or 0 <= share <= 1):
        raise ValueError(f"share must be one number, from 0 to 1; got {share}")

    def mix(a, b):
        ours, theirs = jnp.shape(a), jnp.shape(b)
        if ours != theirs:
            raise ValueError(f"old and new weights differ in shape: {theirs}, {ours}")
        dtype = jnp.result_type(a)
        if not jnp.issubdtype(dtype, jnp.floating):
            return a
        a, b = (jnp.asarray(x, jnp.promote_types(dtype, jnp.float32)) for x in (a, b))
        return (share * b + (1.0 - share) * a).astype(dtype)

    return jax.tree.map(mix, new, old)


def average_weights(
    weights: Sequence[PyTree], importance: Sequence[PyTree] | None = None
) -> PyTree:
    """One model with the mean weights of several that were trained from one start.

    `1/K sum_k w_k` (a soup), or `sum_k f_k w_k / sum_k f_k`, leaf by leaf and weight by
    weight, where every model counts by its importance, such as its `diagonal_fisher`.

    Args:
        weights: the K models' variables, trees alike; dtypes of the first are kept.
        importance: one tree `f` for each, of the same shapes, none negative; a number
            times a Fisher weighs a whole model. Where all K are 0 the plain mean is
            taken. None weighs all alike.

    Returns:
        The tree of means. Leaves that are not floating point are the first model's.

    Raises:
        ValueError: no model is given, or trees or shapes differ.

    Example:
        >>> old, new = {"w": jnp.zeros(2)}, {"w": jnp.ones(2)}
        >>> average_weights([old, new])["w"].tolist()
        [0.5, 0.5]
        >>> known = {"w": jnp.array([3.0, 0.0])}, {"w": jnp.array([1.0, 0.0])}
        >>> average_weights([old, new], known)["w"].tolist()
        [0.25, 0.5]

    Notes:
        Averaging several new models and weighing old and new by Fisher information are
        named in the abstract of BCWI; the formulas are those of soups and of Fisher
        merging.

    References:
        [bcwi] Soup and Fisher -- Schumann et al., Backward Compatibility During Data
        Updates by Weight Interpolation, EACL 2024. https://arxiv.org/abs/2301.10546
    """
    trees, count = [*weights, *(importance or ())], len(weights)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in trees]
    wanted = count if importance is None else 2 * count
    if not count or len(trees) != wanted or any(s != shapes[0] for s in shapes):
        raise ValueError(
            "average_weights needs models, and as many importances if any, with equal "
            f"trees and shapes; got {count} and {len(trees) - count}"
        )

    def mean(first, *others):
        if not jnp.issubdtype(jnp.result_type(first), jnp.floating):
            return first
        leaves = jnp.stack([jnp.asarray(x, jnp.float32) for x in (first, *others)])
        w = leaves[:count]
        f = jnp.ones_like(w) if importance is None else leaves[count:]
        f = jnp.where(jnp.sum(f, axis=0, keepdims=True) == 0, 1.0, f)
        mixed = jnp.sum(f * w, axis=0) / jnp.sum(f, axis=0)
        return mixed.astype(jnp.result_type(first))

    return jax.tree.map(mean, *trees)


def diagonal_fisher(
    apply: Callable[[PyTree, Array], Logits], params: PyTree, inputs: Array
) -> PyTree:
    """The diagonal of the Fisher information of a classifier's weights.

    `1/N sum_i sum_c p_c(x_i) (d log p_c(x_i) / d w)^2`, with the expectation over the
    classes that the model predicts, not over labels. One example at a time, so memory
    is that of C gradients.

    Args:
        apply: `(params, inputs [B, ...]) -> logits [B, C]`, in evaluation mode.
        params: weights of one network.
        inputs: `[N, ...]`.

    Returns:
        A tree like `params`, float32, none negative.

    Raises:
        ValueError: if there are no examples.

    Example:
        >>> apply = lambda w, x: jnp.stack([x * w, jnp.zeros_like(x)], axis=-1)
        >>> print(diagonal_fisher(apply, jnp.float32(0.0), jnp.array([2.0])))  # x^2 p q
        1.0

    References:
        [fisher-merging] Diagonal Fisher -- Matena and Raffel, Merging Models with
        Fisher-Weighted Averaging, NeurIPS 2022. https://arxiv.org/abs/2111.09832
    """
    if not len(inputs):
        raise ValueError("diagonal_fisher needs at least one example; got none")

    def add(total, one):
        def scores(w):
            log_p = log_probs(apply(w, one[None]))[0]
            return log_p, jnp.exp(log_p)

        slopes, p = jax.jacrev(scores, has_aux=True)(params)

        def seen(slope):
            square = jnp.square(slope.astype(jnp.float32))
            return jnp.einsum("c,c...->...", p, square, precision="highest")

        return jax.tree.map(lambda t, s: t + seen(s), total, slopes), None

    zeros = jax.tree.map(lambda w: jnp.zeros(jnp.shape(w), jnp.float32), params)
    total, _ = jax.lax.scan(add, zeros, inputs)
    return jax.tree.map(lambda t: t / len(inputs), total)
