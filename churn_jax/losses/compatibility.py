"""Compatible training: an old model's last layer reads the new model's features."""

import jax.numpy as jnp

from churn_compare.class_sets import known_classes
from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.losses.classification import cross_entropy, is_label
from churn_jax.typing import Array, Labels, Logits, PerExample


def _knows_label(logits: Logits, labels: Labels) -> Array:
    """True if the label's class is among the known ones, `[...]` bool."""
    known = known_classes(jnp.asarray(logits))
    labels = jnp.asarray(labels)[..., None]
    return jnp.take_along_axis(known, labels, axis=-1)[..., 0]


def backward_compatible(old_head_logits: Logits, labels: Labels) -> PerExample:
    """Cross-entropy of new features read by the frozen old classifier (BCT), in nats.

    `-log softmax(h_old(z))_y` with the new model's features z; 0 where the old
    classifier does not know the class y.

    Args:
        old_head_logits: `h_old(z)`, `[..., C]`, floating point.
        labels: y, `[...]`, integers from 0 to `C - 1`.

    Returns:
        `[...]` float32, at least 0.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: logits are not floating point, or labels are not integers.

    Example:
        >>> from churn_compare.class_sets import UNKNOWN_LOGIT
        >>> logits = jnp.array([[1.0, 1.0, UNKNOWN_LOGIT]] * 2)
        >>> loss = backward_compatible(logits, jnp.array([0, 2]))
        >>> [f"{x:.4f}" for x in loss]
        ['0.6931', '0.0000']

    Notes:
        The method adds the new model's own cross-entropy and sets the weight. Examples
        of new classes add nothing; the paper's synthesised classifier, which would
        cover them, is not implemented.

    References:
        [bct] Influence loss -- Shen et al., Towards Backward-Compatible Representation
        Learning, CVPR 2020. https://arxiv.org/abs/2003.11942
        [elodi] Table 1
    """
    loss = cross_entropy(old_head_logits, labels)
    return jnp.where(_knows_label(old_head_logits, labels), loss, 0.0)


def ract(*, old_head_logits: Logits, new_logits: Logits, labels: Labels) -> PerExample:
    """Old classifier's cross-entropy against the negatives of both classifiers (RACT).

    `-log(exp(o_y) / (sum_c exp(o_c) + sum_(c != y) exp(n_c)))` with `o = h_old(z)` and
    `n = h_new(z)` of the new model's features z; 0 where the old classifier does not
    know the class y.

    Args:
        old_head_logits: o, `[..., C]`, floating point.
        new_logits: n, `[..., C]`.
        labels: as in `backward_compatible`; errors as there.

    Returns:
        `[...]` float32, at least `backward_compatible`.

    Example:
        >>> old, new = jnp.log(jnp.array([[4.0, 1.0], [9.0, 3.0]]))
        >>> loss = ract(old_head_logits=old, new_logits=new, labels=jnp.array(0))
        >>> f"{loss:.4f}"  # log (4 + 1 + 3) / 4
        '0.6931'

    Notes:
        The paper compares a query's features with a gallery's; this is the form for
        classification in its public code, where class weights stand for the gallery.

    References:
        [ract] Regression-alleviating loss -- Zhang et al., Hot-Refresh Model Upgrades
        with Regression-Alleviating Compatible Training in Image Retrieval, ICLR 2022.
        https://arxiv.org/abs/2201.09724
        [elodi] Table 1
    """
    check_logits(old_head_logits=old_head_logits, new_logits=new_logits)
    check_labels(labels, new_logits, logits_name="new_logits")
    old = jnp.asarray(old_head_logits).astype(jnp.float32)
    new = jnp.asarray(new_logits).astype(jnp.float32)
    mine = is_label(labels, new.shape[-1])
    # The new classifier's logit of the label is a positive too: neither pushed nor
    # pulled here.
    both = jnp.concatenate([old, jnp.where(mine, -jnp.inf, new)], axis=-1)
    log_old = log_probs(both)[..., : old.shape[-1]]
    loss = -jnp.take_along_axis(log_old, jnp.asarray(labels)[..., None], -1)[..., 0]
    return jnp.where(_knows_label(old, labels), loss, 0.0)
