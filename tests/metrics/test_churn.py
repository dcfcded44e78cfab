import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from tests.metrics.cases import make_inputs

A = np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], np.float32))
B = np.log(np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], np.float32))


def test_by_hand():
    assert float(metrics.churn(A, B)) == 0.5
    # Second example: |1/2 - 1| + |1 - 1/2| + |1/2 - 1/2| = 1; halved, then averaged.
    np.testing.assert_allclose(metrics.surrogate_churn(A, B), 0.25, rtol=1e-6)
    # alpha 2: |1/4 - 1| + |1 - 1/4| = 1.5
    squared = metrics.surrogate_churn(A, B, alpha=2.0)
    np.testing.assert_allclose(squared, 0.375, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_symmetric_zero_at_equality_and_bounded(seed):
    pair = make_inputs("pair", seed)
    a, b = pair.values()
    for metric, bound in ((metrics.churn, 1.0), (metrics.surrogate_churn, 5 / 2)):
        assert float(metric(a, b)) == float(metric(b, a))
        assert float(metric(a, a)) == 0.0
        assert 0.0 < float(metric(a, b)) <= bound


def test_surrogate_churn_tends_to_churn():
    a, b = make_inputs("pair", 0).values()
    target = float(metrics.churn(a, b))
    gaps = [
        abs(float(metrics.surrogate_churn(a, b, alpha=alpha)) - target)
        for alpha in (1.0, 10.0, 100.0, 1e5)
    ]
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 0.05 and gaps[-1] < 1e-6


def test_ties_follow_argmax_order():
    tie, first, second = [[1.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]]
    tie, first, second = (jnp.array(x) for x in (tie, first, second))
    assert float(metrics.churn(tie, first)) == 0.0
    assert float(metrics.churn(tie, second)) == 1.0


def test_extreme_logits_stay_finite():
    a = jnp.array([[0.0, -jnp.inf, 1e30], [3e38, -3e38, 0.0]])
    assert float(metrics.surrogate_churn(a, a)) == 0.0
    assert np.isfinite(metrics.surrogate_churn(a, a[::-1]))


class TestChurnByCorrectness:
    def identity(self, a, b, labels, mask=None):
        parts = metrics.churn_by_correctness(a, b, labels, mask)
        accuracy = float(metrics.accuracy(a, labels, mask))
        mixed = accuracy * float(parts.correct) + (1 - accuracy) * float(
            parts.incorrect
        )
        # Rounding of three float32 quotients and nothing else.
        assert abs(mixed - float(metrics.churn(a, b, mask))) < 2e-7
        return parts

    @pytest.mark.parametrize("seed", range(5))
    def test_parts_add_up_to_churn(self, seed):
        inputs = make_inputs("labelled pair", seed, n=40 + seed)
        self.identity(*inputs.values())
        mask = np.random.default_rng(seed).random(40 + seed) < 0.5
        self.identity(*inputs.values(), mask)

    def test_parts_add_up_when_a_group_is_empty(self):
        a, b = make_inputs("pair", 0).values()
        best, worst = np.argmax(a, -1), np.argmin(a, -1)
        assert float(self.identity(a, b, best).incorrect) == 0.0
        assert float(self.identity(a, b, worst).correct) == 0.0

    def test_groups_are_those_of_the_first_model(self):
        labels = np.array([0, 0])  # A: right, wrong. B: right, right.
        assert tuple(map(float, metrics.churn_by_correctness(A, B, labels))) == (0, 1)
        assert tuple(map(float, metrics.churn_by_correctness(B, A, labels))) == (0.5, 0)
