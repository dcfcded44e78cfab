import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.metrics import (
    ChurnState,
    LongSum,
    MeanState,
    PredictionDifferenceState,
    RateState,
)
from churn_jax.metrics.state import masked_mean


def test_ten_million_small_terms_do_not_get_lost():
    term, steps = np.float32(0.1), 10_000_000

    def body(_, sums):
        long, plain = sums
        return long.add(jnp.float32(term)), plain + jnp.float32(term)

    start = (LongSum.zeros(), jnp.zeros(()))
    long, plain = jax.jit(lambda: jax.lax.fori_loop(0, steps, body, start))()
    expected = float(term) * steps
    assert abs(float(plain) / expected - 1) > 0.05  # why LongSum exists
    # Each addition rounds `rest`, which is below one: at most 6e-8 absolute.
    assert abs(float(long.value()) / expected - 1) < 6e-7


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


def test_long_sum_holds_large_negative_and_tiny_values():
    for x in (3.5e9, -3.5e9, 1e12, -1e-20, 1e-30, 2.0**45, 1e20, -0.75):
        total = LongSum.zeros().add(jnp.float32(x))
        np.testing.assert_allclose(total.value(), np.float32(x), rtol=1e-7)
    many = LongSum.zeros()
    for _ in range(5):
        many = many.add(jnp.float32(2.0**31)).add(jnp.float32(-0.25))
    np.testing.assert_allclose(many.value(), 5 * 2.0**31 - 1.25, rtol=1e-7)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_long_sum_keeps_non_finite_values_visible(bad):
    total = LongSum.zeros().add(jnp.float32(1.0)).add(jnp.float32(bad))
    np.testing.assert_equal(float(total.add(jnp.float32(2.0)).value()), bad)


def test_gradient_through_long_sum_is_one():
    def f(x):
        return LongSum.zeros().add(x).add(3.0 * x).value()

    assert float(jax.grad(f)(jnp.float32(7.7))) == 4.0


def test_counts_beyond_two_to_the_24_stay_exact():
    state = RateState(jnp.int32(2**24), jnp.int32(2**25))
    state = state.add(jnp.array([True, False, True]), jnp.array([1, 1, 0]))
    assert int(state.hits) == 2**24 + 1 and int(state.examples) == 2**25 + 2


def test_states_with_other_settings_do_not_merge():
    one, two = (PredictionDifferenceState.empty(order=o) for o in (1, 2))
    with pytest.raises(ValueError, match=r"order=1.*order=2"):
        one.merge(two)
    with pytest.raises(ValueError, match="ChurnState"):
        one.merge(ChurnState.empty())


def test_states_are_valid_scan_carries():
    logits = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype(np.float32)

    def step(state, batch):
        return state.update(*batch), None

    state, _ = jax.lax.scan(step, ChurnState.empty(), (logits[0], logits[1]))
    assert int(state.examples) == 24


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_masks_may_be_bools_or_numbers(dtype):
    mask = np.array([1, 0, 1], dtype)
    values = jnp.array([1.0, jnp.nan, 2.0])
    assert float(masked_mean(values, mask)) == 1.5
    assert float(MeanState.empty().add(values, mask).compute()) == 1.5
    assert float(RateState.empty().add(values > 1.5, mask).compute()) == 0.5
