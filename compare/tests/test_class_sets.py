"""The logit of a class that a network does not know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_an_unknown_class_is_impossible_and_its_logit_finite(dtype):
    logits = jnp.asarray([3.0, -20.0, UNKNOWN_LOGIT], dtype)
    probs = jax.nn.softmax(logits.astype(jnp.float32))
    assert probs[2] == 0.0 and probs[1] > 0.0
    assert 0.0 * logits[2] == 0.0
    np.testing.assert_array_equal(known_classes(logits), [True, True, False])


def test_numpy_and_jax_agree_on_infinities_and_nan():
    logits = np.array([0.0, -np.inf, np.inf, np.nan, 0.5 * UNKNOWN_LOGIT, -4999.0])
    expected = [True, False, True, True, False, True]
    np.testing.assert_array_equal(known_classes(logits), expected)
    assert isinstance(known_classes(logits), np.ndarray)
    np.testing.assert_array_equal(jax.jit(known_classes)(logits), expected)
