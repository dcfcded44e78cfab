"""Members of an ensemble: their diversity, and how many networks a model is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.devices import spread
from tests.metrics.cases import M, N, make_inputs

plot_of = jax.jit(metrics.diversity_by_confidence, static_argnums=1)
diversity_of = jax.jit(metrics.member_diversity)


def members(seed):
    inputs = make_inputs("labelled members", seed)
    return inputs["member_logits"], inputs["labels"]


def close_to_reference(found, expected, rtol=2e-6):
    counts, means, quartiles, mean = expected
    assert found.counts.tolist() == counts.tolist()
    np.testing.assert_allclose(found.bin_mean_kl, means, rtol)
    np.testing.assert_allclose(found.quartiles, quartiles, rtol)
    np.testing.assert_allclose(found.mean_kl, mean, rtol)


def test_the_least_sure_member_says_which_bin():
    # Least confidences .75 (top of bin 3 of 4), .5 (top of bin 2) and .8.
    p = np.array([[0.99, 0.5, 0.2], [0.75, 0.9, 0.1]])
    logits = np.log(np.stack([p, 1 - p], -1)).astype(np.float32)
    found = plot_of(logits, 4)
    assert found.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert found.counts.tolist() == [0, 1, 1, 1]
    kl = ref.pairwise_kl(logits)
    np.testing.assert_allclose(found.bin_mean_kl[1:], kl[[1, 0, 2]], rtol=1e-5)
    assert np.isnan(found.bin_mean_kl[0])
    assert np.isnan(found.quartiles[:, 0]).all()
    nothing = plot_of(logits[:, :0], 4)
    assert np.isnan(nothing.quartiles).all() and nothing.quartiles.shape == (5, 4)


def test_quartiles_equal_those_of_numpy_whatever_the_padding_holds():
    for seed in (0, 1):
        z, _ = members(seed)
        mask = np.random.default_rng(seed).random(N) < 0.7
        expected = ref.diversity_by_confidence(z[:, mask])
        z[:, ~mask] = np.nan
        found = plot_of(z, 10, mask)
        # Linear between two values, each correct to a few times 1e-7.
        close_to_reference(found, expected, rtol=5e-6)


def test_vmapped_over_replicas_and_sharded_over_examples():
    runs = np.stack([members(3)[0], members(4)[0]])
    placed = spread(runs, PartitionSpec(None, None, "data"), "Explicit")
    mapped = jax.jit(jax.vmap(metrics.diversity_by_confidence))(placed)
    for r in range(2):
        one = jax.tree.map(lambda x, r=r: x[r], mapped)
        close_to_reference(one, ref.diversity_by_confidence(runs[r]), rtol=5e-6)


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
    found = plot_of(z, 1)
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


dee = jax.jit(metrics.deep_ensemble_equivalent)
curve_of = jax.jit(metrics.ensemble_reference_curve, static_argnames="subsets")
CURVE = np.array([0.789, 0.708, 0.673, 0.655], np.float32)


PUBLISHED = [0.789, 0.708, 0.673, 0.655, 0.750, 0.760, 0.682, 0.665]
WAVY = [1.0, 0.5, 0.75, 0.25, 0.25, 0.0]


@pytest.mark.parametrize(
    ("curve", "nlls", "value", "below", "saturated"),
    [
        # Calibrated NLL of BatchEnsemble students of WideResNet-28-10, as published.
        (CURVE, PUBLISHED, [1, 2, 3, 4, 1.48, 1.36, 2.74, 3.44], [], []),
        # Beyond both ends.
        (CURVE, [0.7891, 0.6549, np.inf, -np.inf], [1, 4, 1, 4], [0, 2], [1, 3]),
        # Where it rises again the first time counts.
        (WAVY, [0.5, 0.6, 0.375, 0.25, 0.125], [2, 1.8, 3.75, 4, 5.5], [], []),
        ([1.0, 2.0], [1.5, 1.0, 0.5], [1, 1, 2], [0], [2]),
    ],
)
def test_equivalents_by_hand(curve, nlls, value, below, saturated):
    found = dee(np.array(nlls), np.float32(curve))
    np.testing.assert_allclose(found.value, value, atol=0.005 * (nlls is PUBLISHED))
    assert np.flatnonzero(found.below).tolist() == below
    assert np.flatnonzero(found.saturated).tolist() == saturated


def test_equals_the_float64_reference_on_any_curve():
    rng = np.random.default_rng(0)
    curves = np.sort(rng.random((3, 5)), -1)[:, ::-1] + 0.1 * rng.random((3, 5))
    nlls = rng.uniform(-0.1, 1.2, (3, 2, 40)).astype(np.float32)
    curves = curves.astype(np.float32)
    found = jax.jit(jax.vmap(metrics.deep_ensemble_equivalent))(nlls, curves)
    assert found.value.shape == found.below.shape == nlls.shape
    for c, *index in np.ndindex(nlls.shape):
        expected = ref.deep_ensemble_equivalent(nlls[c, *index], curves[c])
        np.testing.assert_allclose(found.value[c, *index], expected, rtol=1e-5)


def test_gradient_is_the_slope_of_the_segment_and_finite_everywhere():
    flat = np.array([1.0, 0.5, 0.5, 0.25], np.float32)

    def total(nlls, curve):
        return jnp.sum(metrics.deep_ensemble_equivalent(nlls, curve).value)

    nlls = np.array([0.75, 0.5, 0.375, 2.0, 0.1], np.float32)
    of_nlls, of_curve = jax.jit(jax.grad(total, argnums=(0, 1)))(nlls, flat)
    assert of_nlls.tolist() == [-2, -2, -4, 0, 0]
    assert np.isfinite(of_curve).all()


def test_what_is_not_a_number_stays_so():
    found = dee(np.array([np.nan, 0.7], np.float32), CURVE)
    assert np.isnan(found.value).tolist() == [True, False]
    assert not found.below[0] and not found.saturated[0]
    unknown = dee(np.array([0.7, 0.9], np.float32), np.append(CURVE[:3], np.nan))
    assert np.isnan(unknown.value).all()


def test_calibrated_curve_equals_the_float64_reference():
    (z, y), (vz, vy) = members(0), members(1)
    validation = {"validation_logits": 3 * vz, "validation_labels": vy}
    found = curve_of(3 * z, y, **validation)
    expected = ref.ensemble_reference_curve(3 * z, y, 3 * vz, vy)
    np.testing.assert_allclose(found, expected, rtol=5e-6)
    # Every ensemble has its own temperature; one for all would be another curve.
    plain = ref.ensemble_reference_curve(3 * z, y)
    assert np.all(found < plain)
    # The members' order does not matter, and padding of the validation split neither.
    mask = np.arange(N) % 4 > 0
    masked = {"validation_logits": 3 * vz[::-1], "validation_labels": vy}
    masked = curve_of(3 * z[::-1], y, **masked, validation_mask=mask)
    kept = ref.ensemble_reference_curve(3 * z, y, 3 * vz[:, mask], vy[mask])
    np.testing.assert_allclose(masked, kept, rtol=5e-6)


def test_memory_is_that_of_the_members_and_not_of_the_subsets():
    z = jax.ShapeDtypeStruct((8, 512, 16), jnp.float32)
    y = jax.ShapeDtypeStruct((512,), jnp.int32)
    analysis = curve_of.lower(z, y).compile().memory_analysis()
    size = 8 * 512 * 16 * 4
    assert analysis.temp_size_in_bytes < 8 * size  # 255 ensembles are 32 times size
