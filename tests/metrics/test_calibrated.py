"""Calibrated scores, with a validation split and by two folds of the test split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs

FIELDS = metrics.CalibratedScores._fields
scores_of = jax.jit(metrics.calibrated_scores)


def split(seed, n=48):
    inputs = make_inputs("labelled", seed, n)
    return inputs["logits"], inputs["labels"]


def test_by_hand():
    # Right 3 times in 4, so T makes the probability 3/4, the right one on average.
    z, labels = np.array([[2.0, 0.0]] * 4, np.float32), np.array([0, 0, 0, 1])
    found = scores_of(z, labels, validation_logits=z, validation_labels=labels)
    entropy = -0.75 * np.log(0.75) - 0.25 * np.log(0.25)
    expected = (2 / np.log(3), entropy, 0.375, 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_each_score_alone_is_that_of_all_together():
    (z, y), (vz, vy) = split(0), split(1)
    fixed = {"validation_logits": vz, "validation_labels": vy}
    alone = {name: getattr(metrics, f"calibrated_{name}") for name in FIELDS[1:]}
    found = jax.jit(lambda: {k: f(z, y, **fixed) for k, f in alone.items()})()
    together = scores_of(z, y, **fixed)
    for name, value in found.items():
        np.testing.assert_allclose(value, getattr(together, name), rtol=1e-6)
    # They are the plain scores of what the temperature makes of the logits.
    expected = ref.calibrated_scores(z, y, vz, vy)
    np.testing.assert_allclose(together, expected, rtol=1e-5)


def test_sharper_logits_need_a_higher_temperature_and_score_the_same():
    (z, y), (vz, vy) = split(2), split(3)
    once = scores_of(z, y, validation_logits=vz, validation_labels=vy)
    sharper = scores_of(3 * z, y, validation_logits=3 * vz, validation_labels=vy)
    np.testing.assert_allclose(sharper[0], 3 * once[0], rtol=1e-5)
    np.testing.assert_allclose(sharper[1:], once[1:], rtol=1e-5)


def test_no_temperature_does_better_on_the_split_it_was_fitted_on():
    z, y = split(4, n=200)
    found = scores_of(5 * z, y, validation_logits=5 * z, validation_labels=y)
    factors = found.temperature * np.array([0.2, 0.9, 1.1, 5.0], np.float32)
    for temperature in (1.0, *factors):
        worse = ref.negative_log_likelihood(5 * z / temperature, y)
        assert found.negative_log_likelihood < worse
    scaled = 5 * z / found.temperature
    assert metrics.accuracy(scaled, y) == metrics.accuracy(z, y)


def test_every_replica_has_its_own_temperature():
    runs = [(split(seed), split(seed + 10)) for seed in (5, 6, 7)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *runs)
    (z, y), (vz, vy) = stacked
    z[1], vz[1] = 4 * z[1], 4 * vz[1]
    one = metrics.calibrated_scores
    found = jax.jit(
        jax.vmap(lambda z, y, a, b: one(z, y, validation_logits=a, validation_labels=b))
    )(z, y, vz, vy)
    assert len(set(found.temperature.tolist())) == 3
    for r in range(3):
        alone = scores_of(z[r], y[r], validation_logits=vz[r], validation_labels=vy[r])
        np.testing.assert_allclose([x[r] for x in found], alone, rtol=2e-6)


def test_padding_of_the_validation_split_is_ignored():
    (z, y), (vz, vy) = split(8), split(9)
    mask = np.arange(48) % 3 > 0
    expected = scores_of(z, y, validation_logits=vz[mask], validation_labels=vy[mask])
    vz[~mask], vy[~mask] = np.nan, -1
    padded = {"validation_logits": vz, "validation_labels": vy}
    found = scores_of(z, y, **padded, validation_mask=mask)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    nothing = scores_of(z, y, **padded, validation_mask=np.zeros(48, bool))
    assert np.isnan(nothing).all()


def test_the_gradient_takes_the_temperature_as_a_constant():
    (z, y), (vz, vy) = split(10, n=6), split(11, n=12)

    def nll(z, vz):
        return metrics.calibrated_negative_log_likelihood(
            z, y, validation_logits=vz, validation_labels=vy
        )

    of_logits, of_validation = jax.jit(jax.grad(nll, argnums=(0, 1)))(z, vz)
    temperature = ref.fit_temperature(vz, vy)
    p, one_hot = ref.softmax(z / temperature), np.eye(5)[y]
    expected = (p - one_hot) / len(y) / temperature
    np.testing.assert_allclose(of_logits, expected, rtol=1e-4, atol=1e-6)
    assert not np.any(of_validation)


def test_splits_that_do_not_fit_are_refused():
    (z, y), (vz, vy) = split(0), split(1)
    with pytest.raises(ValueError, match=r"classes.*\(48, 5\).*\(48, 4\)"):
        metrics.calibrated_scores(
            z, y, validation_logits=vz[:, :4], validation_labels=vy
        )
    with pytest.raises(ValueError, match=r"validation_logits.*\(48,\).*\(47,\)"):
        metrics.calibrated_brier_score(
            z, y, validation_logits=vz, validation_labels=vy[:-1]
        )


two_fold = jax.jit(
    metrics.two_fold_calibrated_scores, static_argnames=("repeats", "num_bins")
)


def two_fold_reference(logits, labels, key, repeats):
    folds = []
    for one in jax.random.split(key, repeats):
        order = np.argsort(jax.random.uniform(one, labels.shape))
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        for fitted, scored in (halves, halves[::-1]):
            folds.append(
                ref.calibrated_scores(
                    logits[scored], labels[scored], logits[fitted], labels[fitted]
                )
            )
    return np.mean(folds, axis=0)


def test_two_folds_by_hand_of_the_only_two_halves():
    # Whatever is drawn, one example is fitted on and the other is scored: the
    # temperature is the lower end where it is right and the upper one where it is not.
    z, labels = np.array([[1.0, 0.0], [3.0, 0.0]], np.float32), np.array([0, 1])
    low, high = np.exp(-7), np.exp(7)
    found = two_fold(z, labels, jax.random.key(0), repeats=1)
    np.testing.assert_allclose(found.temperature, (low + high) / 2, rtol=1e-5)
    nll = (3 / low + np.log1p(np.exp(-1 / high))) / 2
    np.testing.assert_allclose(found.negative_log_likelihood, nll, rtol=1e-5)


def test_two_folds_equal_the_float64_reference():
    z, y = split(12, n=41)  # odd: one half has one example more
    key = jax.random.key(1)
    found = two_fold(z, y, key, repeats=3)
    np.testing.assert_allclose(found, two_fold_reference(z, y, key, 3), rtol=1e-5)


def test_two_folds_halve_the_valid_examples_only():
    z, y = split(13, n=40)
    z = np.concatenate([z, np.full_like(z, np.nan)])[::-1]
    y = np.concatenate([y, np.full_like(y, -1)])[::-1]
    valid = np.arange(80) >= 40
    found = two_fold(z, y, jax.random.key(2), repeats=3, mask=valid)
    assert np.isfinite(found).all()
    plain = two_fold(z[40:], y[40:], jax.random.key(2), repeats=3)
    # Other halves of the same examples: near, not equal.
    np.testing.assert_allclose(found[1:3], plain[1:3], rtol=0.2)
    one = two_fold(z, y, jax.random.key(2), repeats=3, mask=np.arange(80) == 50)
    assert np.isnan(one).all()


def test_more_halvings_are_other_halves():
    z, y = split(14, n=40)
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    a, b, c = (two_fold(z, y, key, repeats=3) for key in keys)
    assert a == b
    assert a.temperature != c.temperature


def test_two_folds_need_a_halving():
    with pytest.raises(ValueError, match=r"repeats.*0"):
        metrics.two_fold_calibrated_scores(*split(0), jax.random.key(0), repeats=0)
    with pytest.raises(ValueError, match=r"labels.*\(48,\).*\(47,\)"):
        z, y = split(0)
        metrics.two_fold_calibrated_scores(z, y[:-1], jax.random.key(0))


def test_bfloat16_logits_are_scaled_in_float32():
    (z, y), (vz, vy) = split(15), split(16)
    low, v_low = jnp.asarray(z, jnp.bfloat16), jnp.asarray(vz, jnp.bfloat16)
    found = scores_of(low, y, validation_logits=v_low, validation_labels=vy)
    up = [np.asarray(x.astype(jnp.float32)) for x in (low, v_low)]
    expected = ref.calibrated_scores(up[0], y, up[1], vy)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert all(x.dtype == jnp.float32 for x in found)
