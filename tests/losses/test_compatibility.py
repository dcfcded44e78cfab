"""BCT and RACT by hand, their gradients, and classes that the old model lacks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import backward_compatible, ract

pytestmark = pytest.mark.usefixtures("strict_dtypes")

OLD = np.log(np.float32([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]]))
NEW = np.log(np.float32([[5.0, 7.0, 2.0], [1.0, 6.0, 2.0]]))
LABELS = np.array([2, 0])


@jax.jit
def both(old, new):
    """Both losses of every example, and the gradient of RACT's sum in both logits."""
    value, pull = jax.vjp(
        lambda o, n: ract(old_head_logits=o, new_logits=n, labels=LABELS), old, new
    )
    return backward_compatible(old, LABELS), value, pull(jnp.ones_like(value))


def test_by_hand():
    """RACT: (1 + 2 + 3 + 5 + 7) / 3 and (4 + 1 + 1 + 6 + 2) / 4."""
    bct, value, (_, of_new) = both(OLD, NEW)
    np.testing.assert_allclose(bct, np.log([2.0, 1.5]), rtol=1e-6)
    np.testing.assert_allclose(value, np.log([6.0, 3.5]), rtol=1e-6)
    # The new logit of the label is left alone.
    expected = np.exp(NEW) / np.array([[18.0], [14.0]])
    expected[[0, 1], LABELS] = 0.0
    np.testing.assert_allclose(of_new, expected, rtol=1e-6)


def test_ract_without_new_negatives_is_backward_compatible():
    bct, value, _ = both(OLD, np.full_like(NEW, UNKNOWN_LOGIT))
    np.testing.assert_array_equal(value, bct)


def test_a_class_the_old_model_does_not_know_costs_nothing_and_pulls_nothing():
    old = OLD.copy()
    old[:, 2] = UNKNOWN_LOGIT  # the first example's class
    bct, value, slopes = both(old, NEW)
    np.testing.assert_allclose(bct, [0.0, np.log(5 / 4)], rtol=1e-6)
    np.testing.assert_allclose(value, [0.0, np.log(13 / 4)], rtol=1e-6)
    of_bct = jax.jit(jax.grad(lambda o: jnp.sum(backward_compatible(o, LABELS))))(old)
    for slope in (*slopes, of_bct):
        np.testing.assert_array_equal(slope[0], np.zeros(3))
        assert np.all(np.isfinite(slope[1])) and np.any(slope[1] != 0)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"labels must have.*\(2,\); got \(1,\)"):
        backward_compatible(OLD, LABELS[:1])
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 2\)"):
        ract(old_head_logits=OLD, new_logits=NEW[:, :2], labels=LABELS)
    with pytest.raises(TypeError, match="positional"):
        ract(OLD, NEW, LABELS)
