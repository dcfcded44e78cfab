"""Members' diversity: per example, by confidence, and what the mean gains by it."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import M, N, make_inputs

plot_of = jax.jit(metrics.diversity_by_confidence, static_argnums=1)
diversity_of = jax.jit(metrics.member_diversity)


def members(seed):
    inputs = make_inputs("labelled members", seed)
    return inputs["member_logits"], inputs["labels"]


def two_class(*top):
    """Logits `[M, N, 2]` whose class 0 has the given probabilities `[M, N]`."""
    p = np.array(top)
    return np.log(np.stack([p, 1 - p], -1)).astype(np.float32)


def close_to_reference(found, expected, rtol=2e-6):
    counts, means, quartiles, mean = expected
    assert found.counts.tolist() == counts.tolist()
    np.testing.assert_allclose(found.bin_mean_kl, means, rtol)
    np.testing.assert_allclose(found.quartiles, quartiles, rtol)
    np.testing.assert_allclose(found.mean_kl, mean, rtol)


def test_the_least_sure_member_says_which_bin():
    # Least confidences .75 (top of bin 3 of 4), .5 (top of bin 2) and .8.
    logits = two_class([0.99, 0.5, 0.2], [0.75, 0.9, 0.1])
    found = plot_of(logits, 4)
    assert found.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.counts.tolist() == [0, 1, 1, 1]
    kl = ref.pairwise_kl(logits)
    np.testing.assert_allclose(found.bin_mean_kl[1:], kl[[1, 0, 2]], rtol=1e-5)
    assert np.isnan(found.bin_mean_kl[0])
    assert np.isnan(found.quartiles[:, 0]).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_quartiles_equal_those_of_numpy_whatever_the_padding_holds(seed):
    z, _ = members(seed)
    mask = np.random.default_rng(seed).random(N) < 0.7
    expected = ref.diversity_by_confidence(z[:, mask])
    z[:, ~mask] = np.nan
    found = plot_of(z, 10, mask)
    # Linear between two values, each correct to a few times 1e-7.
    close_to_reference(found, expected, rtol=5e-6)


def test_vmapped_over_replicas_and_sharded_over_examples():
    runs = np.stack([members(3)[0], members(4)[0]])
    mapped = jax.jit(jax.vmap(metrics.diversity_by_confidence))(runs)
    for r in range(2):
        one = jax.tree.map(lambda x, r=r: x[r], mapped)
        close_to_reference(one, ref.diversity_by_confidence(runs[r]), rtol=5e-6)
    mesh = jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Explicit,))
    placed = jax.device_put(runs[0], NamedSharding(mesh, PartitionSpec(None, "data")))
    expected = ref.diversity_by_confidence(runs[0])
    close_to_reference(plot_of(placed, 10), expected, rtol=5e-6)


def test_infinite_divergence_and_nan_are_seen_where_they_are():
    z, _ = members(5)
    plain = plot_of(z, 1)
    z[0, 3, np.argmin(z[0, 3])] = -np.inf
    found = plot_of(z, 1)
    assert np.isposinf(found.mean_kl)
    assert np.isposinf(found.quartiles[4, 0])
    assert np.isfinite(found.quartiles[:4]).all()
    assert np.all(found.quartiles[:4] >= plain.quartiles[:4])
    z[1, 4] = np.nan
    found = plot_of(z, 10)
    assert np.isnan(found.mean_kl)
    assert np.isnan(found.bin_mean_kl[0])
    assert found.counts.sum() == N


def test_equal_members_bring_nothing():
    z, y = members(6)
    found = diversity_of(np.repeat(z[:1], M, axis=0), y)
    assert (found.mean_kl, found.disagreement, found.variance_share) == (0, 0, 0)
    np.testing.assert_allclose(found.ensemble_nll, found.mean_member_nll, rtol=1e-6)
    assert found.ensemble_accuracy == found.mean_member_accuracy


def test_variance_share_at_its_ends():
    sure = np.float32(200) * np.eye(5, dtype=np.float32)
    labels = np.zeros(1, int)
    apart = diversity_of(sure[:3, None], labels)
    np.testing.assert_allclose(apart.variance_share, 1.0, rtol=1e-6)
    # All certain of the same class: nothing varies, so no part of it does.
    together = diversity_of(np.repeat(sure[:1, None], 3, axis=0), labels)
    assert together.variance_share == 0.0


def test_a_class_that_one_model_alone_rules_out():
    z = make_inputs("models", 6)["logits"]
    z[0, 0, 0] = -np.inf
    assert np.isposinf(metrics.kl_prediction_difference(z))  # beyond all bounds
    assert 0 < metrics.js_prediction_difference(z) < np.log(M)
