import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from churn_jax import metrics
from tests import reference_metrics as ref

roc_auc = jax.jit(metrics.roc_auc)


def as_logits(scores):
    scores = np.asarray(scores, np.float32)
    return np.stack([np.zeros_like(scores), scores], -1)


def make_clicks(seed, n, spread=1.0, decimals=None):
    """Rare clicks with related scores; `decimals` rounds them, which makes ties."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.2).astype(np.int32)
    scores = spread * (rng.normal(size=n) + labels) - 2
    if decimals is not None:
        scores = np.round(scores, decimals)
    return scores.astype(np.float32), labels


def test_by_hand():
    # Positives 1, 2, 2; negatives 0, 2: of six pairs 1 > 0, 2 > 0, 2 > 0, 1 < 2 and
    # two ties, 3 + 2 / 2 = 4.
    z, labels = np.array([2.0, 0.0, 1.0, 2.0, 2.0]), np.array([1, 0, 1, 0, 1])
    np.testing.assert_allclose(roc_auc(as_logits(z), labels), 4 / 6, rtol=1e-6)
    probs = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], np.float32)
    ratio = metrics.calibration_ratio(np.log(probs), np.array([0, 1, 0]))
    np.testing.assert_allclose(ratio, 1.5, rtol=1e-6)


@pytest.mark.parametrize("decimals", [None, 1])
def test_agree_with_scikit_learn(decimals):
    z, labels = make_clicks(0, 3000, decimals=decimals)
    expected = sklearn.metrics.roc_auc_score(labels, z)
    np.testing.assert_allclose(roc_auc(as_logits(z), labels), expected, rtol=1e-6)
    probs = ref.softmax(as_logits(z))
    expected = sklearn.metrics.log_loss(labels, probs)
    actual = metrics.log_loss(as_logits(z), labels)
    np.testing.assert_allclose(actual, expected, rtol=2e-6)
    state = metrics.NLLState.empty().update(as_logits(z), labels)
    assert float(state.compute()) == float(actual)


def test_order_alone_decides_the_area():
    z, labels = make_clicks(1, 200)
    area = float(roc_auc(as_logits(z), labels))
    assert float(roc_auc(as_logits(np.arctan(z)), labels)) == area
    np.testing.assert_allclose(roc_auc(as_logits(-z), labels), 1 - area, rtol=1e-6)
    np.testing.assert_allclose(roc_auc(as_logits(z), 1 - labels), 1 - area, rtol=1e-6)
    assert float(roc_auc(as_logits(0 * z), labels)) == 0.5
    assert float(roc_auc(as_logits(np.float32(labels)), labels)) == 1.0
    sure = np.where(labels == 1, np.inf, -np.inf)
    assert float(roc_auc(as_logits(sure), labels)) == 1.0
    assert float(roc_auc(as_logits(np.full(200, np.inf)), labels)) == 0.5


@pytest.mark.parametrize(
    ("spread", "num_bins", "limit"),
    [(1.0, 2**14, 16.0), (1.0, 7, 3.0), (1e3, 64, 4.0), (1e-4, 64, 4.0), (1.0, 1, 1.0)],
)
def test_histogram_is_within_its_bound_of_the_exact_area(spread, num_bins, limit):
    for decimals in (None, 1):
        z, labels = make_clicks(2, 3000, spread, decimals)
        logits = as_logits(z)
        state = metrics.AUCState.empty(num_bins=num_bins, limit=limit)
        state = state.update(logits, labels)
        error = abs(float(state.compute()) - float(roc_auc(logits, labels)))
        bound = float(state.error_bound())
        assert error <= bound + 1e-6
        if num_bins == 2**14 and decimals is None:
            assert bound < 4e-4 and error < 1e-4
        if num_bins == 1:
            assert (float(state.compute()), bound) == (0.5, 0.5)


def test_bound_is_reached_where_every_pair_of_a_bin_is_ordered():
    # Both examples lie in the bin [0, 1): a tie for the histogram, 1 exactly.
    logits, labels = as_logits([0.2, 0.8]), np.array([0, 1])
    state = metrics.AUCState.empty(num_bins=2, limit=1.0).update(logits, labels)
    assert float(state.compute()) == float(state.error_bound()) == 0.5
    assert float(roc_auc(logits, labels)) == 1.0


def test_counts_stay_exact_for_two_billion_examples():
    counts = jnp.array([2**30 - 1, 2**30 - 1, 0, 1], jnp.int32)
    state = metrics.AUCState(counts[::-1], counts, jnp.int32(0), limit=1.0)
    state = state.merge(metrics.AUCState.empty(num_bins=4, limit=1.0))
    assert state.negatives.tolist() == counts.tolist()
    n = np.asarray(counts, np.float64)
    p, before = n[::-1], np.cumsum(n) - n
    expected = np.sum(p * (before + n / 2)) / n.sum() ** 2
    np.testing.assert_allclose(state.compute(), expected, rtol=1e-6)


def test_replicas_may_be_mapped():
    z, labels = make_clicks(3, 120)
    logits = np.stack([as_logits(s * z) for s in (1.0, -1.0, 0.0)])
    states = jax.vmap(lambda _: metrics.AUCState.empty(64))(jnp.arange(3))
    update = jax.jit(jax.vmap(lambda s, x: s.update(x, labels)))
    for _ in range(2):
        states = update(states, logits)
    areas = jax.vmap(lambda s: s.compute())(states)
    exact = [ref.roc_auc(x, labels) for x in logits]
    mapped = jax.vmap(lambda x: metrics.roc_auc(x, labels))(logits)
    np.testing.assert_allclose(mapped, exact, rtol=1e-6)
    bounds = jax.vmap(lambda s: s.error_bound())(states)
    assert (np.abs(areas - np.array(exact)) <= bounds + 1e-6).all()


def test_what_cannot_be_ranked_is_nan_not_a_number():
    z, labels = make_clicks(4, 20)
    empty = metrics.AUCState.empty(8)
    for x, y in (
        (z, 0 * labels),
        (z, 0 * labels + 1),
        (np.where(np.arange(20) == 3, np.nan, z), labels),
        (z, np.where(np.arange(20) == 3, 2, labels)),
        (z, np.where(np.arange(20) == 3, -1, labels)),
    ):
        state = empty.update(as_logits(x), y)
        assert np.isnan(roc_auc(as_logits(x), y))
        assert np.isnan(state.compute()) and np.isnan(state.error_bound())
    nobody = np.zeros((0, 2), np.float32)
    assert np.isnan(metrics.roc_auc(nobody, np.zeros(0, np.int32)))
    # A masked row may hold anything; predictions without a click are all too many.
    last = np.arange(20) < 19
    x, y = as_logits(np.where(last, z, np.nan)), np.where(last, labels, 9)
    expected = ref.roc_auc(as_logits(z)[:19], labels[:19])
    np.testing.assert_allclose(roc_auc(x, y, last), expected, rtol=1e-6)
    assert np.isposinf(metrics.calibration_ratio(as_logits(z), 0 * labels))
    assert np.isnan(metrics.calibration_ratio(as_logits(z), 0 * labels - 1))


def test_errors():
    labels = np.zeros(4, np.int32)
    for metric in (metrics.roc_auc, metrics.calibration_ratio):
        with pytest.raises(ValueError, match=r"\[\.\.\., N, 2\].*\(4, 3\).*\[0, z\]"):
            metric(np.zeros((4, 3), np.float32), labels)
    with pytest.raises(ValueError, match=r"num_bins.*0"):
        metrics.AUCState.empty(0)
    for limit in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="limit must be positive and finite"):
            metrics.AUCState.empty(8, limit=limit)
    with pytest.raises(ValueError, match="one kind and setting"):
        metrics.AUCState.empty(8).merge(metrics.AUCState.empty(8, limit=4.0))
    with pytest.raises(ValueError, match=r"one shape.*\(8,\).*\(4,\)"):
        metrics.AUCState.empty(8).merge(metrics.AUCState.empty(4))
