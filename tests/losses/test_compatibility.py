"""BCT and RACT by hand, their gradients, and classes that the old model lacks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import backward_compatible, cross_entropy, ract

pytestmark = pytest.mark.usefixtures("strict_dtypes")

OLD = jnp.log(jnp.array([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]]))
NEW = jnp.log(jnp.array([[5.0, 7.0, 2.0], [1.0, 6.0, 2.0]]))
LABELS = jnp.array([2, 0])


def test_backward_compatible_by_hand():
    value = backward_compatible(OLD, LABELS)
    np.testing.assert_allclose(value, np.log([2.0, 1.5]), rtol=1e-6)


def test_ract_by_hand():
    """(1 + 2 + 3 + 5 + 7) / 3 and (4 + 1 + 1 + 6 + 2) / 4."""
    value = ract(old_head_logits=OLD, new_logits=NEW, labels=LABELS)
    np.testing.assert_allclose(value, np.log([6.0, 3.5]), rtol=1e-6)


def test_ract_leaves_the_new_logit_of_the_label_alone():
    def total(new):
        return jnp.sum(ract(old_head_logits=OLD, new_logits=new, labels=LABELS))

    slope = jax.grad(total)(NEW)
    expected = np.exp(NEW) / np.array([[18.0], [14.0]])
    expected[[0, 1], LABELS] = 0.0
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_ract_without_new_negatives_is_backward_compatible():
    far = jnp.full_like(NEW, UNKNOWN_LOGIT)
    np.testing.assert_array_equal(
        ract(old_head_logits=OLD, new_logits=far, labels=LABELS),
        backward_compatible(OLD, LABELS),
    )


def test_a_class_the_old_model_does_not_know_costs_nothing_and_pulls_nothing():
    old = OLD.at[:, 2].set(UNKNOWN_LOGIT)  # the first example's class

    def totals(old, new):
        one = backward_compatible(old, LABELS)
        other = ract(old_head_logits=old, new_logits=new, labels=LABELS)
        return jnp.sum(one) + jnp.sum(other), (one, other)

    slopes, values = jax.grad(totals, argnums=(0, 1), has_aux=True)(old, NEW)
    np.testing.assert_allclose(values[0], [0.0, np.log(5 / 4)], rtol=1e-6)
    np.testing.assert_allclose(values[1], [0.0, np.log(13 / 4)], rtol=1e-6)
    for slope in slopes:
        np.testing.assert_array_equal(slope[0], np.zeros(3))
        assert np.all(np.isfinite(slope[1])) and np.any(slope[1] != 0)


def test_known_classes_alone_give_plain_cross_entropy():
    np.testing.assert_array_equal(
        backward_compatible(OLD, LABELS), cross_entropy(OLD, LABELS)
    )


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"labels must have.*\(2,\); got \(1,\)"):
        backward_compatible(OLD, LABELS[:1])
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 2\)"):
        ract(old_head_logits=OLD, new_logits=NEW[:, :2], labels=LABELS)
    with pytest.raises(TypeError, match="positional"):
        ract(OLD, NEW, LABELS)
