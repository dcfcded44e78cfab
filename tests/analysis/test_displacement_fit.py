"""The simulated distribution against known ones, and a test of fit that is honest."""

import jax
import numpy as np
import pytest
from scipy import stats

from churn_jax.analysis import (
    displacement_distribution,
    goodness_of_fit,
    kolmogorov_smirnov,
    simulate_displacement_norms,
)
from churn_jax.analysis.displacement_fit import _compared

KEY = jax.random.key(0)


def test_norms_of_unit_normals_are_chi_distributed():
    norms = simulate_displacement_norms(
        np.zeros(3), np.eye(3), size=1, draws=4000, key=KEY
    )
    assert stats.kstest(norms, stats.chi(3).cdf).pvalue > 0.01
    # Of four members half as long, draw by draw.
    quarter = simulate_displacement_norms(
        np.zeros(3), np.eye(3), size=4, draws=4000, key=KEY
    )
    np.testing.assert_allclose(quarter, norms / 2, rtol=1e-12)


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


def test_axes_of_singular_values_and_of_eigenvalues_give_one_distribution(rng):
    # More classes than networks: the root has fewer axes than the covariance.
    a, b = rng.normal(size=(3, 2, 9)), 1 + rng.normal(size=(4, 2, 9))
    mean, covariance = displacement_distribution(a, b)
    normals = np.random.default_rng(1).standard_normal((7, 4000))
    weights = [np.full((4000, len(side)), 1 / len(side)) for side in (a, b)]
    _, simulated, _ = _compared([a, b], weights, 2, normals)
    norms = simulate_displacement_norms(mean, covariance, size=2, draws=4000, key=KEY)
    error = norms.std(axis=0) * np.sqrt(2 / 4000)
    assert (np.abs(simulated - norms.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("ties", [False, True])
def test_distance_is_that_of_scipy(rng, ties):
    a, b = rng.normal(size=50), 0.5 + rng.normal(size=80)
    if ties:
        a, b = a.round(), b.round()
    wanted = stats.ks_2samp(a, b).statistic
    np.testing.assert_allclose(kolmogorov_smirnov(a, b), wanted, rtol=1e-12)
    assert kolmogorov_smirnov(a, a[::-1]) == 0


def networks(rng, kind=None, runs=24):
    """`[R, 2, 4]` correlated normal networks, or such with rare large values."""
    root = np.array([[2, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, -1], [0, 0, 0, 0.2]])
    draw = rng.normal if kind is None else lambda size: rng.standard_t(1.5, size)
    return 5 * np.ones(4) + draw(size=(runs, 2, 4)) @ root


def fit(a, b=None, size=1, seed=0, resamples=19):
    key = jax.random.key(seed)
    return goodness_of_fit(a, b, size=size, draws=300, key=key, resamples=resamples)


def test_p_values_of_normal_networks_are_uniform_and_draws_are_no_observations():
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        a = networks(rng)
        b = 1 + networks(rng) if seed % 2 else None
        found.append(fit(a, b, size=1 + seed % 3 * 3, seed=seed))
    p = np.array([f.mean_p for f in found])
    # One in ten of 60 is 6, its standard deviation 2.3.
    assert np.sum(p <= 0.1) <= 14 and 0.35 < p.mean() < 0.65
    # The usual table would refuse most of them.
    usual = [
        stats.kstwo.sf(f.distance, 150).min() for f in found
    ]  # 300 against 300 draws count as 150
    assert np.mean(np.array(usual) <= 0.1) > 0.5
    expected = np.mean([f.expected_distance for f in found])
    assert np.mean([f.mean_distance for f in found]) == pytest.approx(expected, rel=0.2)


def test_networks_that_are_not_normal_are_found():
    found = fit(networks(np.random.default_rng(0), kind="rare", runs=64))
    assert found.mean_p == 0.05 and found.mean_distance > 2 * found.expected_distance


def test_numbers_are_those_of_the_two_samples_and_of_each_image(rng):
    a, b = networks(rng), 2 + networks(rng)
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


def test_networks_that_are_all_one_fit():
    found = fit(np.ones((8, 3)), size=2)
    assert found.mean_p == 1 and found.observed[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kolmogorov_smirnov([], [1.0]), "(0,)"),
        (lambda: simulate(np.ones(3), np.eye(2)), "(2, 2)"),
        (lambda: simulate(np.ones(3), np.eye(3), size=0), "at least 1"),
        (lambda: fit(np.ones((4, 2, 3)), size=3), "at most the 2 networks"),
        (lambda: fit(np.ones((4, 2, 3, 3))), "[R, N, C]"),
        (lambda: fit(np.ones((4, 2, 3)), np.ones((4, 1, 3))), "(4, 1, 3)"),
        (lambda: fit(np.ones((4, 3)), np.ones((1, 3))), "at least 2 networks"),
        (lambda: fit(np.ones((4, 3)), resamples=0), "resamples"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def simulate(mean, covariance, size=1):
    return simulate_displacement_norms(mean, covariance, size=size, draws=2, key=KEY)
