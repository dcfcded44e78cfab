"""Entropy and distance from uniform: worked examples, bounds, both top-k readings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from churn_jax.losses import (
    entropy,
    renormalized_entropy,
    renormalized_uniform_symmetric_kl,
    uniform_symmetric_kl,
)

pytestmark = pytest.mark.usefixtures("strict_dtypes")

LOG2, LOG3 = np.log(2.0), np.log(3.0)

# Probabilities (1/2, 1/4, 1/8, 1/8).
DYADIC = jnp.log(jnp.array([4.0, 2.0, 1.0, 1.0]))


def test_entropy_by_hand():
    # 1/2 log 2 + 1/4 log 4 + 2/8 log 8 = (1/2 + 1/2 + 3/4) log 2.
    np.testing.assert_allclose(entropy(DYADIC), 1.75 * LOG2, rtol=1e-6)
    np.testing.assert_allclose(entropy(DYADIC, top_k=2), LOG2, rtol=1e-6)
    np.testing.assert_allclose(entropy(DYADIC, top_k=1), 0.5 * LOG2, rtol=1e-6)


def test_renormalized_entropy_by_hand():
    # The two kept classes are (2/3, 1/3): log 3 - 2/3 log 2.
    expected = LOG3 - 2.0 / 3.0 * LOG2
    np.testing.assert_allclose(renormalized_entropy(DYADIC, 2), expected, rtol=1e-6)


def test_uniform_symmetric_kl_by_hand():
    # (f - 1/4) log 4f: 1/4 log 2 + 0 + 2 (-1/8)(-log 2) = 1/2 log 2.
    np.testing.assert_allclose(uniform_symmetric_kl(DYADIC), 0.5 * LOG2, rtol=1e-6)
    top2 = uniform_symmetric_kl(DYADIC, top_k=2)
    np.testing.assert_allclose(top2, 0.25 * LOG2, rtol=1e-6)
    top3 = uniform_symmetric_kl(DYADIC, top_k=3)
    np.testing.assert_allclose(top3, 0.375 * LOG2, rtol=1e-6)


def test_renormalized_uniform_symmetric_kl_by_hand():
    # (2/3 - 1/2) log 4/3 + (1/3 - 1/2) log 2/3 = 1/6 log 2.
    value = renormalized_uniform_symmetric_kl(DYADIC, 2)
    np.testing.assert_allclose(value, LOG2 / 6.0, rtol=2e-6)


def test_entropies_equal_scipy(rng):
    z = rng.normal(scale=3, size=(64, 20)).astype(np.float32)
    p = scipy.special.softmax(z.astype(np.float64), axis=-1)
    uniform = np.full_like(p, 0.05)
    expected = scipy.stats.entropy(p, uniform, axis=-1) + scipy.stats.entropy(
        uniform, p, axis=-1
    )
    np.testing.assert_allclose(
        entropy(jnp.asarray(z)), scipy.stats.entropy(p, axis=-1), rtol=3e-6
    )
    np.testing.assert_allclose(
        uniform_symmetric_kl(jnp.asarray(z)), expected, rtol=3e-6
    )
    kept = np.sort(p, axis=-1)[:, -4:]  # scipy renormalises what it is given
    np.testing.assert_allclose(
        renormalized_entropy(jnp.asarray(z), 4),
        scipy.stats.entropy(kept, axis=-1),
        rtol=3e-6,
    )


@pytest.mark.parametrize("top_k", [None, 1, 2, 5, 10])
def test_bounds(rng, top_k):
    z = jnp.asarray(rng.normal(scale=4, size=(256, 10)), jnp.float32)
    h, skl = entropy(z, top_k), uniform_symmetric_kl(z, top_k)
    assert jnp.all((h >= 0) & (h <= np.log(10.0) + 1e-6))
    assert jnp.all(skl >= 0)


def test_uniform_is_the_extreme_of_both():
    z = jnp.full((3, 8), 7.0)
    np.testing.assert_allclose(entropy(z), np.full(3, np.log(8.0)), rtol=1e-6)
    np.testing.assert_allclose(uniform_symmetric_kl(z), np.zeros(3), atol=1e-7)
    np.testing.assert_allclose(
        renormalized_entropy(z, 4), np.full(3, np.log(4.0)), rtol=1e-6
    )


def test_one_hot_has_no_entropy_and_skl_grows_without_bound():
    one_hot = jnp.eye(4)[0]
    h = jnp.stack([entropy(s * one_hot) for s in (10.0, 100.0, 1e4)])
    assert jnp.all(h[1:] == 0.0)
    assert 0.0 < h[0] < 2e-3
    skl = jnp.stack([uniform_symmetric_kl(s * one_hot) for s in (10.0, 100.0, 1e4)])
    # log f = -s for three of four classes: 3/4 (s - log 4) + 3/4 log 4 = 3/4 s.
    np.testing.assert_allclose(skl[1:], [75.0, 7500.0], rtol=1e-5)
    assert skl[0] < skl[1] < skl[2]


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("top_k", [None, 3])
def test_skl_is_unbounded_but_its_gradient_is_bounded(rng, size, top_k):
    z = jnp.asarray(size * rng.normal(size=(64, 10)), jnp.float32)
    grad = jax.grad(lambda z: jnp.sum(uniform_symmetric_kl(z, top_k)))(z)
    assert jnp.max(jnp.abs(grad)) <= 1.0 + np.log(10.0)
    if top_k is None:
        log_f = jax.nn.log_softmax(z)
        f = jnp.exp(log_f)
        closed_form = f * (log_f + entropy(z)[:, None]) + f - 0.1
        np.testing.assert_allclose(grad, closed_form, atol=2e-6)


def test_both_point_the_same_way(rng):
    """Theorem 3: for two classes a lower entropy is a higher SKL and confidence."""
    z = jnp.asarray(rng.normal(scale=3, size=(200, 2)), jnp.float32)
    gap = jnp.abs(z[:, 0] - z[:, 1])
    order = np.argsort(gap)
    assert jnp.all(jnp.diff(entropy(z)[order]) <= 1e-6)
    assert jnp.all(jnp.diff(uniform_symmetric_kl(z)[order]) >= -1e-6)


@pytest.mark.parametrize("loss", [entropy, uniform_symmetric_kl])
def test_top_k_of_all_classes_is_the_full_sum(rng, loss):
    z = jnp.asarray(rng.normal(size=(16, 9)), jnp.float32)
    np.testing.assert_allclose(loss(z, top_k=9), loss(z), rtol=2e-6, atol=1e-7)


def test_top_k_terms_add_up(rng):
    z = jnp.asarray(rng.normal(size=(16, 9)), jnp.float32)
    for loss in (entropy, uniform_symmetric_kl):
        sums = jnp.stack([loss(z, top_k=k) for k in range(1, 10)])
        assert jnp.all(jnp.diff(sums, axis=0) >= 0)  # every term is non-negative


def test_renormalized_forms_ignore_the_tail(rng):
    head = jnp.asarray(rng.normal(size=(16, 3)), jnp.float32) + 10.0
    tails = [jnp.asarray(rng.normal(size=(16, 6)), jnp.float32) for _ in range(2)]
    one, two = (jnp.concatenate([head, tail], -1) for tail in tails)
    for loss in (renormalized_entropy, renormalized_uniform_symmetric_kl):
        np.testing.assert_allclose(loss(one, 3), loss(two, 3), rtol=1e-5, atol=1e-6)
        grad = jax.grad(lambda z, loss=loss: jnp.sum(loss(z, 3)))(one)
        np.testing.assert_allclose(grad[:, 3:], np.zeros((16, 6)), atol=1e-7)
    assert jnp.max(jnp.abs(entropy(one, 3) - entropy(two, 3))) > 1e-5


def test_plain_top_k_moves_the_tail(rng):
    z = jnp.asarray(rng.normal(size=(16, 9)), jnp.float32)
    grad = jax.grad(lambda z: jnp.sum(uniform_symmetric_kl(z, top_k=3)))(z)
    kept = z >= jnp.sort(z, axis=-1)[:, -3:][:, :1]
    assert jnp.all(jnp.where(kept, 1.0, jnp.abs(grad)) > 0.0)


def test_impossible_classes_add_nothing_to_entropy():
    z = jnp.array([1.0, 0.0, -jnp.inf, -jnp.inf])
    for top_k in (None, 2, 4):
        value, grad = jax.value_and_grad(lambda z, k=top_k: entropy(z, k))(z)
        np.testing.assert_allclose(value, entropy(z[:2]), rtol=1e-6)
        assert jnp.all(jnp.isfinite(grad))
    assert uniform_symmetric_kl(z) == jnp.inf
    value, grad = jax.value_and_grad(lambda z: uniform_symmetric_kl(z, top_k=2))(z)
    assert jnp.isfinite(value) and jnp.all(jnp.isfinite(grad))


@pytest.mark.parametrize("top_k", [0, -1, 6])
def test_top_k_outside_the_classes_is_an_error(top_k):
    for loss in (
        entropy,
        uniform_symmetric_kl,
        renormalized_entropy,
        renormalized_uniform_symmetric_kl,
    ):
        with pytest.raises(ValueError, match=f"number of classes, 5; got {top_k}"):
            loss(jnp.zeros((3, 5)), top_k=top_k)


def test_top_k_must_be_an_integer_and_renormalised_at_least_two():
    with pytest.raises(TypeError, match=r"Python int.*got float"):
        entropy(jnp.zeros((3, 5)), top_k=2.0)
    with pytest.raises(TypeError, match=r"Python int.*got bool"):
        uniform_symmetric_kl(jnp.zeros((3, 5)), top_k=True)
    with pytest.raises(ValueError, match="between 2 and the number of classes, 5"):
        renormalized_entropy(jnp.zeros((3, 5)), top_k=1)
