"""Which examples churn: bounds, votes, and that the mean is the churn over pairs."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.metrics import ambiguity, churn, pairwise, summarize_pairs


def runs_of(R, N, C, seed=0):
    rng = np.random.default_rng(seed)
    base = 2 * rng.normal(size=(N, C))
    return (base + 2 * rng.normal(size=(R, N, C))).astype(np.float32)


@pytest.mark.parametrize("R", [2, 3, 7])
def test_its_mean_is_the_churn_over_all_pairs(R):
    logits = runs_of(R, 60, 5)
    pairs = [float(churn(a, b)) for a, b in itertools.combinations(logits, 2)]
    per_example = ambiguity(logits)
    assert per_example.shape == (60,)
    assert 0.05 < np.mean(pairs) < 0.95
    np.testing.assert_allclose(np.mean(per_example), np.mean(pairs), rtol=1e-6)
    summary = summarize_pairs(pairwise(churn, logits))
    np.testing.assert_allclose(np.mean(per_example), summary.mean, rtol=1e-6)


def test_it_counts_votes():
    votes = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]]).T  # [example, run].T
    logits = jnp.eye(4)[votes]
    expected = [1 - sum(v * (v - 1) for v in np.bincount(x)) / 6 for x in votes.T]
    np.testing.assert_allclose(ambiguity(logits), expected, rtol=1e-6)
    assert expected == pytest.approx([0, 2 / 3, 1, 1])


@pytest.mark.parametrize(("R", "most"), [(2, 1.0), (4, 2 / 3), (5, 0.6)])
def test_two_classes_have_a_largest_ambiguity(R, most):
    halves = jnp.eye(2)[jnp.arange(R) % 2][:, None]
    assert float(ambiguity(halves)[0]) == pytest.approx(most)


def test_any_axes_of_examples():
    logits = runs_of(3, 12, 4)
    reshaped = logits.reshape(3, 2, 6, 4)
    np.testing.assert_array_equal(
        ambiguity(reshaped), np.reshape(ambiguity(logits), (2, 6))
    )


def test_one_run_is_refused():
    with pytest.raises(ValueError, match="at least two models"):
        ambiguity(np.zeros((1, 5, 3), np.float32))
