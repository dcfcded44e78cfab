"""Entropy and distance from uniform: worked examples, bounds, both top-k readings."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from churn_jax.losses import (
    entropy,
    renormalized_entropy,
    renormalized_uniform_symmetric_kl,
    uniform_symmetric_kl,
)

pytestmark = pytest.mark.usefixtures("strict_dtypes")

LOG2, LOG3 = np.log(2.0), np.log(3.0)
LOSSES = {
    "entropy": entropy,
    "skl": uniform_symmetric_kl,
    "entropy of kept": renormalized_entropy,
    "skl of kept": renormalized_uniform_symmetric_kl,
}


@functools.partial(jax.jit, static_argnums=1)
def program(z, top_k):
    found = {}
    for name, loss in LOSSES.items():
        if "kept" in name and (top_k or 0) < 2:
            continue
        value, pull = jax.vjp(lambda z, loss=loss: loss(z, top_k), z)
        found[name] = (value, pull(jnp.ones_like(value))[0])
    return found


def run(z, top_k=None):
    """Value and gradient of every regulariser of the rows `[B, C]`."""
    return jax.device_get(program(np.float32(z), top_k))


# Probabilities (1/2, 1/4, 1/8, 1/8).
DYADIC = np.log([[4.0, 2.0, 1.0, 1.0]])


@pytest.mark.parametrize(
    ("top_k", "name", "expected"),
    [
        # 1/2 log 2 + 1/4 log 4 + 2/8 log 8 = (1/2 + 1/2 + 3/4) log 2.
        (None, "entropy", 1.75 * LOG2),
        (2, "entropy", LOG2),
        (1, "entropy", 0.5 * LOG2),
        # The two kept classes are (2/3, 1/3): log 3 - 2/3 log 2.
        (2, "entropy of kept", LOG3 - 2 / 3 * LOG2),
        # (f - 1/4) log 4f: 1/4 log 2 + 0 + 2 (-1/8)(-log 2) = 1/2 log 2.
        (None, "skl", 0.5 * LOG2),
        (2, "skl", 0.25 * LOG2),
        (3, "skl", 0.375 * LOG2),
        # (2/3 - 1/2) log 4/3 + (1/3 - 1/2) log 2/3 = 1/6 log 2.
        (2, "skl of kept", LOG2 / 6),
    ],
)
def test_by_hand(top_k, name, expected):
    np.testing.assert_allclose(run(DYADIC, top_k)[name][0], [expected], rtol=2e-6)


def test_top_k_terms_add_up_to_the_full_sum(rng):
    z = rng.normal(scale=4, size=(64, 4))
    by_k = [run(z, top_k) for top_k in (1, 2, 3, 4, None)]
    for name in ("entropy", "skl"):
        *sums, full = (found[name][0] for found in by_k)
        assert np.all(sums[0] >= 0) and np.all(np.diff(sums, axis=0) >= 0)
        np.testing.assert_allclose(sums[-1], full, rtol=2e-6, atol=1e-7)
    assert np.all(by_k[-1]["entropy"][0] <= np.log(4.0) + 1e-6)


def test_uniform_is_the_extreme_of_both_and_one_hot_the_other():
    sizes = [0.0, 10.0, 100.0, 1e4]
    z = 7.0 + np.array(sizes)[:, None] * np.eye(4)[0]
    h, skl = (run(z)[name][0] for name in ("entropy", "skl"))
    np.testing.assert_allclose(h[0], np.log(4.0), rtol=1e-6)
    np.testing.assert_allclose(skl[0], 0.0, atol=1e-7)
    np.testing.assert_allclose(run(z, 2)["entropy of kept"][0][0], LOG2, rtol=1e-6)
    assert 0.0 < h[1] < 2e-3 and not np.any(h[2:])
    # log f = -s for three of four classes: 3/4 (s - log 4) + 3/4 log 4 = 3/4 s.
    np.testing.assert_allclose(skl[2:], [75.0, 7500.0], rtol=1e-5)
    assert 0 < skl[1] < skl[2]


@pytest.mark.parametrize("top_k", [None, 3])
def test_skl_is_unbounded_but_its_gradient_is_bounded(rng, top_k):
    for size in (0.0, 1.0, 30.0, 1e3, 1e4):
        z = (size * rng.normal(size=(64, 4))).astype(np.float32)
        found = run(z, top_k)
        grad = found["skl"][1]
        assert np.max(np.abs(grad)) <= 1.0 + np.log(4.0)
        if top_k is None:
            log_f = log_softmax(np.float64(z), -1)
            f, h = np.exp(log_f), found["entropy"][0][:, None]
            np.testing.assert_allclose(grad, f * (log_f + h) + f - 0.25, atol=2e-6)


def test_renormalized_forms_ignore_the_tail_and_the_plain_ones_do_not(rng):
    head = rng.normal(size=(16, 3)) + 10.0
    one, two = (
        run(np.concatenate([head, rng.normal(size=(16, 6))], -1), 3) for _ in range(2)
    )
    for name in ("entropy of kept", "skl of kept"):
        np.testing.assert_allclose(one[name][0], two[name][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one[name][1][:, 3:], np.zeros((16, 6)), atol=1e-7)
    assert np.max(np.abs(one["entropy"][0] - two["entropy"][0])) > 1e-5
    assert np.all(np.abs(one["skl"][1][:, 3:]) > 0.0)


def test_impossible_classes_add_nothing_to_entropy():
    z, expected = [[1.0, 0.0, -np.inf, -np.inf]], run([[1.0, 0.0]])["entropy"][0]
    for top_k in (None, 2, 4):
        found = run(z, top_k)
        np.testing.assert_allclose(found["entropy"][0], expected, rtol=1e-6)
        assert np.all(np.isfinite(found["entropy"][1]))
        value, grad = found["skl"]
        assert np.all(np.isfinite(grad)) if top_k == 2 else np.isposinf(value)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_top_k_is_checked(loss):
    z = np.zeros((3, 5), np.float32)
    for top_k in (0, -1, 6):
        with pytest.raises(ValueError, match=f"number of classes, 5; got {top_k}"):
            loss(z, top_k=top_k)
    for top_k in (2.0, True):
        with pytest.raises(TypeError, match=r"Python int.*got (float|bool)"):
            loss(z, top_k=top_k)
    if "renormalized" in loss.__name__:
        with pytest.raises(ValueError, match="between 2 and the number of classes, 5"):
            loss(z, top_k=1)
