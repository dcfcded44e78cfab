"""Sums that do not lose small terms, and the states of means and rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.metrics import FlipState, MeanState, RateState
from churn_jax.metrics.state import LongSum, masked_mean


def test_merging_ten_thousand_batches_is_as_good_as_one_sum():
    values = np.random.default_rng(0).random((10_000, 1_000)).astype(np.float32)

    @jax.jit
    def total(values):
        def step(state, batch):
            return state.merge(MeanState.empty().add(batch)), None

        return jax.lax.scan(step, MeanState.empty(), values)[0]

    state = total(values)
    assert int(state.examples) == 10_000_000
    expected = values.astype(np.float64).mean()
    np.testing.assert_allclose(state.compute(), expected, rtol=1.2e-7)


@jax.jit
def total_of(values):
    """`LongSum` of a few numbers, one after the other."""
    start = LongSum.zeros()
    return jax.lax.scan(lambda t, x: (t.add(x), None), start, values)[0].value()


def test_long_sum_holds_large_negative_and_tiny_values_and_what_is_not_finite():
    for x in (3.5e9, -3.5e9, 1e12, -1e-20, 1e-30, 2.0**45, 1e20, -0.75):
        found = total_of(np.float32([x] + [0] * 9))
        np.testing.assert_allclose(found, np.float32(x), rtol=1e-7)
    found = total_of(np.float32([2.0**31, -0.25] * 5))
    np.testing.assert_allclose(found, 5 * 2.0**31 - 1.25, rtol=1e-7)
    for bad in (np.inf, -np.inf, np.nan):
        np.testing.assert_equal(float(total_of(np.float32([1, bad, 2] + [0] * 7))), bad)


def test_counts_beyond_two_to_the_24_stay_exact():
    state = RateState(jnp.int32(2**24), jnp.int32(0), jnp.int32(2**25))
    state = state.add(jnp.array([True, False, True]), jnp.array([1, 1, 0]))
    assert int(state.hits) == 2**24 + 1 and int(state.examples) == 2**25 + 2
    *right, number = (jnp.int32(2**30 + n) for n in (0, 101, 77, 1001))
    flips = FlipState(*right, jnp.int32(0), number).compute()  # both, old, new
    np.testing.assert_allclose(flips.negative_flip_rate, 101 / (2**30 + 1001), 1e-6)
    np.testing.assert_allclose(flips.backward_error_compatibility, 823 / 924, 1e-6)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_masks_may_be_bools_or_numbers(dtype):
    @jax.jit
    def means(values, mask):
        rate = RateState.empty().add(values > 1.5, mask)
        mean = MeanState.empty().add(values, mask)
        return masked_mean(values, mask), mean.compute(), rate.compute()

    values, mask = np.float32([1.0, np.nan, 2.0]), np.array([1, 0, 1], dtype)
    assert means(values, mask) == (1.5, 1.5, 0.5)
