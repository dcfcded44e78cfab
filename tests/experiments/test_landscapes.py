"""The binary losses of Figures 4 and 5 against the losses that train, and at limits."""

import jax
import numpy as np
import pytest

from churn_jax import losses
from experiments.reproducibility.landscapes import (
    ALPHAS,
    TEMPERATURES,
    entropy_regularized_log_loss,
    entropy_regularized_logistic_loss,
    save_landscapes,
    tempered_logistic_loss,
)

SCORES = np.linspace(-8.0, 8.0, 33)
WEIGHTS = (0.0, 0.05, 0.5, 1.0)
ENTROPY = jax.jit(losses.entropy)


def sigmoid(f):
    return 1.0 / (1.0 + np.exp(-f))


@pytest.mark.parametrize("alpha", WEIGHTS)
def test_both_forms_are_one_loss_and_that_which_trains(alpha):
    p = sigmoid(SCORES)
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    expected = (1 - alpha) * -np.log(p) + alpha * entropy
    np.testing.assert_allclose(entropy_regularized_log_loss(p, alpha), expected)
    found = entropy_regularized_logistic_loss(SCORES, alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    logits = np.stack([np.zeros_like(SCORES), SCORES], -1).astype(np.float32)
    trained = (1 - alpha) * np.logaddexp(0.0, -SCORES) + alpha * ENTROPY(logits)
    np.testing.assert_allclose(found, trained, rtol=1e-4, atol=1e-6)  # float32


def test_far_scores_have_finite_losses_and_the_right_slope():
    far = np.array([-1e308, -1e4, 1e4, 1e308])
    for alpha in WEIGHTS:
        loss = entropy_regularized_logistic_loss(far, alpha)
        assert np.isfinite(loss).all() and (loss[2:] == 0).all()
        np.testing.assert_allclose(loss[1], (1 - alpha) * 1e4, atol=1e-9)
    assert tempered_logistic_loss(far, 4.0)[1] == 2500.0
    assert np.isfinite(tempered_logistic_loss(far, 4.0)).all()


def test_probabilities_at_the_border():
    assert entropy_regularized_log_loss([0.0, 1.0], 0.5).tolist() == [np.inf, 0.0]
    assert entropy_regularized_log_loss([0.0, 1.0], 1.0).tolist() == [0.0, 0.0]


def test_temperature_divides_the_score():
    found = tempered_logistic_loss(SCORES, 2.5)
    np.testing.assert_allclose(found, -np.log(sigmoid(SCORES / 2.5)), rtol=1e-12)


def test_every_curve_is_in_the_image(tmp_path, drawn):
    out = tmp_path / "new" / "landscapes.png"
    assert save_landscapes(out) == out
    assert out.read_bytes().startswith(b"\x89PNG")
    labels = [style["label"] for _, style in drawn["plot"]]
    alphas = [f"α = {alpha:g}" for alpha in ALPHAS]
    assert labels == [*alphas, *alphas, *(f"τ = {tau:g}" for tau in TEMPERATURES)]
    # Alpha 1 is the entropy alone, which is 0 where the loss alone is highest.
    first, last = (drawn["plot"][i][0][1] for i in (len(ALPHAS), 2 * len(ALPHAS) - 1))
    assert first[0] > 6 and last[0] < 0.02
