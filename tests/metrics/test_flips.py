"""Flip rates of an update by hand, their identities, and ranks of flips."""

import jax
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

ONE_HOT = np.eye(4, dtype=np.float32)
# Labels 0. Both right: 3, negative flips: 1, positive flips: 2, both wrong: 2.
OLD = ONE_HOT[[0, 0, 0, 0, 1, 2, 1, 3]]
NEW = ONE_HOT[[0, 0, 0, 2, 0, 0, 1, 1]]
LABELS = np.zeros(8, int)
flip_rank = jax.jit(metrics.flip_rank)


@jax.jit
def program(old, new, labels):
    inputs = {"old_logits": old, "new_logits": new, "labels": labels}
    names = metrics.FlipRates._fields
    gain = metrics.accuracy(new, labels) - metrics.accuracy(old, labels)
    return [getattr(metrics, name)(**inputs) for name in names], gain


def rates(old, new, labels=LABELS):
    return metrics.FlipRates(*map(float, program(old, new, labels)[0]))


def test_by_hand():
    found = rates(OLD, NEW)
    assert found.negative_flip_rate == 1 / 8
    assert found.positive_flip_rate == 2 / 8
    # ER_old = 4/8, ER_new = 3/8: (1/8) / (1/2 * 3/8) = 2/3
    np.testing.assert_allclose(found.relative_negative_flip_rate, 2 / 3, rtol=1e-6)
    assert found.backward_trust_compatibility == 3 / 4
    np.testing.assert_allclose(found.backward_error_compatibility, 2 / 3, rtol=1e-6)
    assert rates(NEW, OLD).negative_flip_rate == found.positive_flip_rate


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_gain_is_positive_minus_negative(seed):
    found, gain = program(*make_inputs("update", seed).values())
    found = metrics.FlipRates(*found)
    flips = found.positive_flip_rate - found.negative_flip_rate
    np.testing.assert_allclose(flips, gain, atol=2e-7)


def test_independent_errors_have_relative_rate_one():
    # Every combination of right and wrong, in proportion 3:1 by 1:1.
    found = rates(ONE_HOT[[0, 0, 0, 1] * 2], ONE_HOT[[0] * 4 + [1] * 4])
    assert found.relative_negative_flip_rate == 1.0


def test_empty_groups_have_documented_values():
    found = rates(ONE_HOT[[1] * 8], ONE_HOT[[0] * 8])
    assert found.relative_negative_flip_rate == 0.0
    assert found.backward_trust_compatibility == 1.0
    assert found.backward_error_compatibility == 1.0


def test_models_may_know_different_classes():
    narrow = OLD[:, :3] - 0.5 * ONE_HOT[7 * [1] + [2], :3]
    inputs = {"old_logits": narrow, "new_logits": NEW, "labels": LABELS}
    expected = ref.negative_flip_rate(**inputs)
    assert metrics.negative_flip_rate(**inputs) == expected
    with pytest.raises(ValueError, match=r"new_logits.*\(7,\).*\(8,\)"):
        metrics.negative_flip_rate(**{**inputs, "new_logits": NEW[:7]})
    with pytest.raises(TypeError, match="positional"):
        metrics.negative_flip_rate(*inputs.values())


def test_rank_of_a_flip_by_hand():
    old = np.array([[4.0, 1, 3, 2], [4, 1, 3, 2], [1, 4, 0, 0]], np.float32)
    new = ONE_HOT[[1, 0, 2]]  # a flip to the last, no flip, wrong before and after
    ranks = flip_rank(old_logits=old, new_logits=new, labels=np.zeros(3, int))
    assert ranks.tolist() == [4, 0, 0] and ranks.dtype == np.int32
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 3\)"):
        metrics.flip_rank(old_logits=old, new_logits=new[:, :3], labels=LABELS[:3])


@pytest.mark.parametrize("seed", range(3))
def test_rank_of_a_flip_equals_sorting(seed):
    inputs = make_inputs("update", seed)
    inputs["old_logits"] = np.round(inputs["old_logits"])  # many ties
    ranks = flip_rank(**inputs)
    assert ranks.max() > 1
    np.testing.assert_array_equal(ranks, ref.flip_rank(**inputs))
