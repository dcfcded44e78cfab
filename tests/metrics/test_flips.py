import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

ONE_HOT = np.eye(4, dtype=np.float32)
# Labels 0. Both right: 3, negative flips: 1, positive flips: 2, both wrong: 2.
OLD = ONE_HOT[[0, 0, 0, 0, 1, 2, 1, 3]]
NEW = ONE_HOT[[0, 0, 0, 2, 0, 0, 1, 1]]
UPDATE = {"old_logits": OLD, "new_logits": NEW, "labels": np.zeros(8, int)}


def rate(name, **inputs):
    return float(getattr(metrics, name)(**inputs))


def test_by_hand():
    assert rate("negative_flip_rate", **UPDATE) == 1 / 8
    assert rate("positive_flip_rate", **UPDATE) == 2 / 8
    # ER_old = 4/8, ER_new = 3/8: (1/8) / (1/2 * 3/8) = 2/3
    relative = rate("relative_negative_flip_rate", **UPDATE)
    np.testing.assert_allclose(relative, 2 / 3, rtol=1e-6)
    assert rate("backward_trust_compatibility", **UPDATE) == 3 / 4
    np.testing.assert_allclose(
        rate("backward_error_compatibility", **UPDATE), 2 / 3, rtol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_gain_is_positive_minus_negative(seed):
    inputs = make_inputs("update", seed)
    gain = metrics.accuracy(inputs["new_logits"], inputs["labels"]) - metrics.accuracy(
        inputs["old_logits"], inputs["labels"]
    )
    flips = rate("positive_flip_rate", **inputs) - rate("negative_flip_rate", **inputs)
    np.testing.assert_allclose(flips, gain, atol=2e-7)


def test_negative_flips_of_the_reverse_update_are_positive_flips():
    swapped = {**UPDATE, "old_logits": NEW, "new_logits": OLD}
    assert rate("negative_flip_rate", **swapped) == rate("positive_flip_rate", **UPDATE)


def test_independent_errors_have_relative_rate_one():
    # Every combination of right and wrong, in proportion 3:1 by 1:1.
    old, new = ONE_HOT[[0, 0, 0, 1] * 2], ONE_HOT[[0] * 4 + [1] * 4]
    inputs = {"old_logits": old, "new_logits": new, "labels": np.zeros(8, int)}
    assert rate("relative_negative_flip_rate", **inputs) == 1.0


def test_empty_groups_have_documented_values():
    right, wrong = ONE_HOT[[0, 0]], ONE_HOT[[1, 1]]
    labels = np.zeros(2, int)
    perfect = {"old_logits": wrong, "new_logits": right, "labels": labels}
    assert rate("relative_negative_flip_rate", **perfect) == 0.0
    assert rate("backward_trust_compatibility", **perfect) == 1.0
    assert rate("backward_error_compatibility", **perfect) == 1.0


def test_models_may_know_different_classes():
    narrow = {**UPDATE, "old_logits": OLD[:, :3] - 0.5 * ONE_HOT[7 * [1] + [2], :3]}
    expected = ref.negative_flip_rate(**narrow)
    assert rate("negative_flip_rate", **narrow) == expected


def test_roles_cannot_be_swapped_by_position():
    with pytest.raises(TypeError, match="positional"):
        metrics.negative_flip_rate(OLD, NEW, UPDATE["labels"])


def test_errors_name_both_shapes():
    with pytest.raises(ValueError, match=r"new_logits.*\(7,\).*\(8,\)"):
        metrics.negative_flip_rate(**{**UPDATE, "new_logits": NEW[:7]})
    with pytest.raises(ValueError, match=r"\(8, 4\).*\(8, 3\)"):
        metrics.flip_rank(**{**UPDATE, "new_logits": NEW[:, :3]})


class TestFlipRank:
    def test_by_hand(self):
        old = np.array([[4.0, 1, 3, 2], [4, 1, 3, 2], [1, 4, 0, 0]], np.float32)
        new = ONE_HOT[[1, 0, 2]]  # a flip to the last, no flip, wrong before and after
        ranks = metrics.flip_rank(
            old_logits=old, new_logits=new, labels=np.zeros(3, int)
        )
        assert ranks.tolist() == [4, 0, 0] and ranks.dtype == np.int32

    @pytest.mark.parametrize("seed", range(3))
    def test_equals_sorting(self, seed):
        inputs = make_inputs("update", seed)
        inputs["old_logits"] = np.round(inputs["old_logits"])  # many ties
        ranks = metrics.flip_rank(**inputs)
        assert ranks.max() > 1
        np.testing.assert_array_equal(ranks, ref.flip_rank(**inputs))
