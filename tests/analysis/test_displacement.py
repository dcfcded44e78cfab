"""Displacements and their norms, against loops written from the equations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.analysis import (
    displacement_distribution,
    ensemble_displacement_norms,
    logit_displacement,
    top_k_share,
)
from experiments.elodi.displacement_numbers import (
    averaged_feature_agreement,
    averaged_feature_logits,
)

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


@pytest.mark.parametrize("seed", [0, 1])
def test_distribution_equals_sums_over_networks(seed):
    rng = np.random.default_rng(seed)
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
    # Displacements that do not know the ranks: K / C on average.
    old, new = rng.normal(size=(2, 4000, 5))
    same = top_k_share(old_logits=old, new_logits=old + new, top_k=2)
    np.testing.assert_allclose(same.mean(), 2 / 5, atol=0.02)


def test_averaged_features_are_averaged_logits_under_one_head(rng):
    features = rng.normal(size=(3, 4, 6))
    kernel, bias = rng.normal(size=(5, 2)), rng.normal(size=2)
    own = np.stack([f[:, :5] @ kernel + bias for f in features])  # the first 5 of 6
    averaged = averaged_feature_logits(features, kernel, bias)
    np.testing.assert_allclose(averaged, own.mean(0), rtol=1e-12)
    found = averaged_feature_agreement(features, own, kernel, bias)
    assert found.agreement == 1 and found.distance < 1e-12
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: logit_displacement(old_logits=[1.0], new_logits=[1.0, 2.0]), "(2,)"),
        (lambda: displacement_distribution(np.ones((2, 3)), np.ones((2, 4))), "(2, 4)"),
        (lambda: displacement_distribution(np.ones((1, 3))), "at least 2 networks"),
        (lambda: displacement_distribution(np.ones(3)), "[R, ..., C]"),
        (lambda: norms(np.ones((1, 3))), "at least 2 networks to be split"),
        (lambda: norms(np.ones((6, 3)), size=4), "at most the 3 networks"),
        (lambda: norms(np.ones((6, 3)), draws=0), "draws must be at least 1"),
        (lambda: norms(np.ones((6, 3)), order=0.5), "order must be at least 1"),
        (lambda: share(top_k=4), "from 1 to the 3 classes"),
        (lambda: share(top_k=1, order=np.inf), "finite"),
    ],
)
def test_bad_input_is_told_with_its_shape(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_what_is_no_number_or_no_key_is_refused():
    with pytest.raises(TypeError, match="real numbers"):
        displacement_distribution(np.array([["a", "b"]] * 2))
    for key in (0, np.random.default_rng(0), jax.random.split(KEY)):
        with pytest.raises(TypeError, match=r"jax\.random\.key"):
            norms(np.ones((4, 3)), key=key)


def norms(a, size=1, draws=2, key=KEY, **options):
    return ensemble_displacement_norms(a, size=size, draws=draws, key=key, **options)


def share(**options):
    return top_k_share(old_logits=np.eye(3), new_logits=np.ones((3, 3)), **options)
