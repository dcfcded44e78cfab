"""Displacements, their norms and their updates, against loops and known truths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from churn_jax.analysis import (
    displacement_distribution,
    ensemble_displacement_norms,
    er_nfr_by_ensemble_size,
    few_classes,
    flip_rank_counts,
    goodness_of_fit,
    kolmogorov_smirnov,
    logit_displacement,
    mixed_sides,
    simulate_displacement_norms,
    top_k_share,
)
from experiments.elodi.displacement_numbers import (
    averaged_feature_agreement,
    averaged_feature_logits,
)
from tests.refusals import refusals

KEY = jax.random.key(3)


def all_norms(a, b, size, order=2):
    """Norms of every pair of ensembles, by loops over their members."""
    found = []
    for old in itertools.combinations(range(len(a)), size):
        for new in itertools.combinations(range(len(b)), size):
            moved = sum(a[i] for i in old) / size - sum(b[j] for j in new) / size
            found.append(np.sum(np.abs(moved) ** order, axis=-1) ** (1 / order))
    return np.array(found)


@pytest.mark.parametrize(("size", "order"), [(1, 2), (2, 1), (3, 2)])
def test_norms_are_those_of_pairs_of_ensembles_and_all_pairs_come(rng, size, order):
    a, b = rng.normal(size=(3, 2, 5)), rng.normal(size=(4, 2, 5))
    norms = ensemble_displacement_norms(
        a, b, size=size, draws=300, key=KEY, order=order
    )
    assert norms.shape == (300, 2) and norms.dtype == np.float64
    for image in range(2):
        wanted = np.sort(all_norms(a, b, size, order)[:, image])
        found, counts = np.unique(norms[:, image].round(10), return_counts=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
        # Every pair of ensembles is as likely: 5 standard deviations of a count.
        mean = 300 / len(wanted)
        assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_one_kind_is_split_into_halves_that_share_no_network(rng):
    a = rng.normal(size=(7, 4))
    norms = ensemble_displacement_norms(a, size=2, draws=200, key=KEY)
    wanted = all_norms(a[:3], a[3:], 2)
    np.testing.assert_allclose(np.unique(norms.round(10)), np.sort(wanted), rtol=1e-8)
    again = ensemble_displacement_norms(a, size=2, draws=200, key=KEY)
    np.testing.assert_array_equal(norms, again)


def test_one_draw_is_the_same_ensembles_for_all_images(rng):
    a = np.repeat(rng.normal(size=(6, 1, 4)), 3, axis=1)
    norms = ensemble_displacement_norms(a, size=2, draws=9, key=KEY)
    np.testing.assert_array_equal(norms, norms[:, :1].repeat(3, axis=1))


def test_distribution_equals_sums_over_networks(rng):
    a, b = rng.normal(size=(5, 2, 3)), rng.normal(size=(4, 2, 3))
    found = displacement_distribution(a, b)
    for n in range(2):
        wanted = np.zeros((3, 3))
        for side in (a, b):
            for network in side:
                d = network[n] - side[:, n].mean(0)
                wanted += np.outer(d, d) / (len(side) - 1)
        np.testing.assert_allclose(found.covariance[n], wanted, rtol=1e-12)
    np.testing.assert_allclose(found.mean, a.mean(0) - b.mean(0), rtol=1e-12)
    own = displacement_distribution(a)
    assert not own.mean.any()
    np.testing.assert_allclose(own.covariance[0], 2 * np.cov(a[:, 0].T), rtol=1e-12)


def test_a_worked_case_of_the_top_classes():
    # |d| = 3, 0, 4: powers 9, 0, 16. The old model ranks 0, 1, 2.
    old, new = [3.0, 2.0, 0.0], [0.0, 2.0, 4.0]
    logits = {"old_logits": old, "new_logits": new}
    shares = [float(top_k_share(**logits, top_k=k)) for k in (1, 2, 3)]
    np.testing.assert_allclose(shares, [9 / 25, 9 / 25, 1])
    np.testing.assert_allclose(top_k_share(**logits, top_k=1, order=1), 3 / 7)
    swapped = top_k_share(old_logits=new, new_logits=old, top_k=1)
    np.testing.assert_allclose(swapped, 16 / 25)
    np.testing.assert_array_equal(logit_displacement(**logits), [3, 0, -4])


def test_share_of_the_top_classes_grows_with_k_and_forgets_the_scale(rng):
    old, new = rng.normal(size=(2, 20, 6))
    shares = [top_k_share(old_logits=old, new_logits=new, top_k=k) for k in range(1, 7)]
    assert (np.diff(shares, axis=0) >= 0).all()
    np.testing.assert_allclose(shares[-1], 1)
    large = top_k_share(old_logits=1e200 * old, new_logits=1e200 * new, top_k=2)
    np.testing.assert_allclose(large, shares[1], rtol=1e-9)
    assert np.isnan(top_k_share(old_logits=old, new_logits=old, top_k=2)).all()


def test_averaged_features_are_averaged_logits_under_one_head(rng):
    features = rng.normal(size=(3, 4, 6))
    kernel, bias = rng.normal(size=(5, 2)), rng.normal(size=2)
    own = np.stack([f[:, :5] @ kernel + bias for f in features])  # the first 5 of 6
    averaged = averaged_feature_logits(features, kernel, bias)
    np.testing.assert_allclose(averaged, own.mean(0), rtol=1e-12)
    found = averaged_feature_agreement(features, own, kernel, bias)
    assert found.agreement == 1 and found.relative_distance < 1e-12
    # Another constant for all classes changes no prediction, another class does.
    shifted = averaged_feature_agreement(features, own + 7, kernel, bias)
    assert shifted.relative_distance < 1e-12
    turned = averaged_feature_agreement(features, own[..., ::-1], kernel, bias)
    assert turned.agreement == 0 and turned.relative_distance == pytest.approx(2)


def test_bfloat16_networks_are_taken_and_numbers_are_float64(rng):
    a = jnp.asarray(rng.normal(size=(4, 3)), jnp.bfloat16)
    found = displacement_distribution(a)
    assert found.covariance.dtype == np.float64
    wanted = displacement_distribution(np.asarray(a, np.float64))
    np.testing.assert_array_equal(found.covariance, wanted.covariance)


# ---- simulated distributions, and a test of fit that is honest


def test_norms_equal_those_of_normals_drawn_class_by_class(rng):
    root = rng.normal(size=(2, 2, 4))  # rank 2 of 4 classes, two images
    mean = 3 * rng.normal(size=(2, 4))
    covariance = np.swapaxes(root, -1, -2) @ root
    norms = simulate_displacement_norms(mean, covariance, size=2, draws=4000, key=KEY)
    assert norms.shape == (4000, 2)
    for image in range(2):
        plain = mean[image] + rng.normal(size=(4000, 2)) @ root[image] / np.sqrt(2)
        plain = np.linalg.norm(plain, axis=-1)
        assert stats.ks_2samp(norms[:, image], plain).pvalue > 0.01
    # E ||v||^2 = ||mean||^2 + trace(covariance) / m.
    second = np.sum(mean**2, -1) + np.trace(covariance, axis1=1, axis2=2) / 2
    np.testing.assert_allclose(np.mean(norms**2, axis=0), second, rtol=0.05)


@pytest.mark.parametrize("ties", [False, True])
def test_distance_is_that_of_scipy(rng, ties):
    a, b = rng.normal(size=50), 0.5 + rng.normal(size=80)
    if ties:
        a, b = a.round(), b.round()
    wanted = stats.ks_2samp(a, b).statistic
    np.testing.assert_allclose(kolmogorov_smirnov(a, b), wanted, rtol=1e-12)
    assert kolmogorov_smirnov(a, a[::-1]) == 0


def correlated(rng, kind=None, runs=24):
    """`[R, 2, 4]` correlated normal networks, or such with rare large values."""
    root = np.array([[2, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, -1], [0, 0, 0, 0.2]])
    draw = rng.normal if kind is None else lambda size: rng.standard_t(1.5, size)
    return 5 * np.ones(4) + draw(size=(runs, 2, 4)) @ root


def fit(a, b=None, size=1, seed=0, resamples=19):
    key = jax.random.key(seed)
    return goodness_of_fit(a, b, size=size, draws=300, key=key, resamples=resamples)


def test_p_values_of_normal_networks_are_uniform():
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        a = correlated(rng)
        b = 1 + correlated(rng) if seed % 2 else None
        found.append(fit(a, b, size=1 + seed % 3 * 3, seed=seed))
    p = np.array([f.mean_p for f in found])
    # One in ten of 60 is 6, its standard deviation 2.3.
    assert np.sum(p <= 0.1) <= 14 and 0.35 < p.mean() < 0.65
    expected = np.mean([f.expected_distance for f in found])
    assert np.mean([f.mean_distance for f in found]) == pytest.approx(expected, rel=0.2)


def test_networks_that_are_not_normal_are_found():
    found = fit(correlated(np.random.default_rng(0), kind="rare", runs=64))
    assert found.mean_p == 0.05 and found.mean_distance > 2 * found.expected_distance


def test_numbers_are_those_of_the_two_samples_and_of_each_image(rng):
    a, b = correlated(rng), 2 + correlated(rng)
    found = fit(a, b, size=4)
    assert found.networks == (24, 24) and found.size == 4
    assert found.distance.shape == found.p.shape == (2,)
    assert found.mean_distance == pytest.approx(found.distance.mean())
    mean, covariance = displacement_distribution(a, b)
    norms = simulate_displacement_norms(mean, covariance, size=4, draws=9000, key=KEY)
    np.testing.assert_allclose(found.simulated, norms.mean(axis=0), rtol=0.05)
    np.testing.assert_allclose(found.observed, found.simulated, rtol=0.1)
    one = fit(a[:, 0], size=4)
    assert one.distance.shape == (1,) and one.networks == (24,)


def test_few_networks_of_many_classes_are_simulated_along_their_axes(rng):
    a, b = rng.normal(size=(3, 2, 9)), 1 + rng.normal(size=(4, 2, 9))
    draws = {"size": 2, "draws": 4000, "key": KEY}
    norms = simulate_displacement_norms(*displacement_distribution(a, b), **draws)
    found = goodness_of_fit(a, b, **draws, resamples=1)
    error = norms.std(axis=0) * np.sqrt(2 / 4000)
    assert (np.abs(found.simulated - norms.mean(axis=0)) < 4 * error).all()


def test_networks_that_are_all_one_fit():
    found = fit(np.ones((8, 3)), size=2)
    assert found.mean_p == 1 and found.observed[0] == pytest.approx(0, abs=1e-12)


# ---- errors, flips and ranks of flips by the size of ensembles


def updates(old, new, labels, size):
    """`(ER old, ER new, NFR)` of every pair of ensembles, by loops."""
    found = []
    for a in itertools.combinations(range(len(old)), size):
        for b in itertools.combinations(range(len(new)), size):
            was = old[list(a)].mean(0).argmax(-1) == labels
            now = new[list(b)].mean(0).argmax(-1) == labels
            found.append((1 - was.mean(), 1 - now.mean(), (was & ~now).mean()))
    return found


def rounded(rows):
    return {tuple(row) for row in np.round(rows, 9)}


def test_rates_are_those_of_pairs_of_ensembles(rng):
    labels = rng.integers(0, 4, 30)
    old, new = rng.normal(size=(2, 3, 30, 4)) + np.eye(4)[labels]
    sizes = {"sizes": (1, 2, 3), "draws": 80, "key": KEY}
    found = er_nfr_by_ensemble_size(old, new, labels, **sizes)
    for s, size in enumerate(found.sizes):
        parts = (found.old_error, found.new_error, found.negative_flip_rate)
        drawn = np.stack([x[s] for x in parts], axis=-1)
        assert rounded(drawn) == rounded(updates(old, new, labels, size))
    chance = (1 - found.old_error) * found.new_error
    np.testing.assert_allclose(
        found.relative_negative_flip_rate * chance, found.negative_flip_rate
    )


def test_where_nothing_can_flip_the_relative_rate_is_not_a_number():
    networks = np.tile([[5.0, 0.0]], (2, 3, 1))
    found = rates(networks, np.zeros(3, int))
    assert np.isnan(found.relative_negative_flip_rate).all()
    assert not found.negative_flip_rate.any()


def test_ranks_are_those_of_every_negative_flip(rng):
    labels = rng.integers(0, 4, 40)
    old, new = rng.normal(size=(2, 2, 40, 4)) + np.eye(4)[labels]
    counts = flip_rank_counts(old, new, labels, size=2, draws=2, key=KEY)
    wanted = np.zeros(4, int)  # size 2 of 2 networks: every draw is the same update
    was, now = old.mean(0), new.mean(0)
    for n, label in enumerate(labels):
        wrong = now[n].argmax()
        if was[n].argmax() == label != wrong:
            wanted[np.sum(was[n] > was[n, wrong])] += 2
    np.testing.assert_array_equal(counts, wanted)
    assert counts.sum() > 0 and counts[0] == 0


def test_both_sides_of_a_mixture_have_the_same_rows_and_share_no_network(rng):
    rows = [rng.normal(size=(runs, 3, 2)) for runs in (2, 5, 4)]
    old, new = mixed_sides(rows)
    np.testing.assert_array_equal(old, np.concatenate([r[: len(r) // 2] for r in rows]))
    wanted = [r[len(r) // 2 : 2 * (len(r) // 2)] for r in rows]
    np.testing.assert_array_equal(new, np.concatenate(wanted))


# ---- what is refused


def norms(a, size=1, draws=2, key=KEY, **options):
    return ensemble_displacement_norms(a, size=size, draws=draws, key=key, **options)


def share(**options):
    return top_k_share(old_logits=np.eye(3), new_logits=np.ones((3, 3)), **options)


def simulate(mean, covariance, size=1):
    return simulate_displacement_norms(mean, covariance, size=size, draws=2, key=KEY)


def rates(networks, labels, sizes=(1,)):
    return er_nfr_by_ensemble_size(
        networks, None, labels, sizes=sizes, draws=1, key=KEY
    )


test_bad_input_is_told_with_its_shape = refusals(
    (lambda: logit_displacement(old_logits=[1.0], new_logits=[1.0, 2.0]), r"\(2,\)"),
    (lambda: displacement_distribution(np.ones((2, 3)), np.ones((2, 4))), r"\(2, 4\)"),
    (lambda: displacement_distribution(np.ones((1, 3))), "at least 2 networks"),
    (lambda: displacement_distribution(np.ones(3)), r"\[R, \.\.\., C\]"),
    (lambda: norms(np.ones((1, 3))), "at least 2 networks to be split"),
    (lambda: norms(np.ones((6, 3)), size=4), "at most the 3 networks"),
    (lambda: norms(np.ones((6, 3)), draws=0), "draws must be at least 1"),
    (lambda: norms(np.ones((6, 3)), order=0.5), "order must be at least 1"),
    (lambda: share(top_k=4), "from 1 to the 3 classes"),
    (lambda: few_classes(np.eye(3), range(3), 5), "from 2 to 3; got 5"),
    (lambda: share(top_k=1, order=np.inf), "finite"),
    (lambda: kolmogorov_smirnov([], [1.0]), r"\(0,\)"),
    (lambda: simulate(np.ones(3), np.eye(2)), r"\(2, 2\)"),
    (lambda: simulate(np.ones(3), np.eye(3), size=0), "at least 1"),
    (lambda: fit(np.ones((4, 2, 3)), size=3), "at most the 2 networks"),
    (lambda: fit(np.ones((4, 2, 3, 3))), r"\[R, N, C\]"),
    (lambda: fit(np.ones((4, 2, 3)), np.ones((4, 1, 3))), r"\(4, 1, 3\)"),
    (lambda: fit(np.ones((4, 3)), np.ones((1, 3))), "at least 2 networks"),
    (lambda: fit(np.ones((4, 3)), resamples=0), "resamples"),
    (lambda: mixed_sides([np.ones((2, 3))]), "at least 2 rows"),
    (lambda: mixed_sides([np.ones((2, 3)), np.ones((1, 3))]), r"\(1, 3\)"),
    (lambda: mixed_sides([np.ones((2, 3)), np.ones((2, 4))]), r"\(2, 4\)"),
    (lambda: rates(np.ones((4, 3, 2)), np.zeros(2, int)), r"\(2,\)"),
    (lambda: rates(np.ones((4, 3)), np.zeros(3, int)), r"\[R, N, C\]"),
    (lambda: rates(np.ones((4, 3, 2)), np.zeros(3, int), sizes=(1, 3)), "got 3"),
)


def test_what_is_no_number_or_no_key_is_refused():
    with pytest.raises(TypeError, match="real numbers"):
        displacement_distribution(np.array([["a", "b"]] * 2))
    for key in (0, np.random.default_rng(0), jax.random.split(KEY)):
        with pytest.raises(TypeError, match=r"jax\.random\.key"):
            norms(np.ones((4, 3)), key=key)
