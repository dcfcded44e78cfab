import numpy as np
import pytest

from churn_jax.methods import ERM, MinimumEntropy
from churn_jax.methods.base import Ramp
from tests.methods.cases import batch_of, draw, labels_of, loss_of

HALF = np.log(np.array([[[0.5, 0.25, 0.25]]], np.float32))  # [M=1, B=1, C=3]


def test_cross_entropy_worked_out_by_hand():
    """-log 1/2 and -log 1/4 average to 1.5 log 2."""
    logits = np.repeat(HALF, 2, axis=1)
    out = loss_of(ERM(), logits, batch_of([0, 2]))
    np.testing.assert_allclose(out.loss, 1.5 * np.log(2), rtol=1e-6)


def test_minimum_entropy_worked_out_by_hand():
    """H(1/2, 1/4, 1/4) = 1.5 log 2; Eq. 6 with alpha 1/4: (3/4 + 3/8) log 2."""
    out = loss_of(MinimumEntropy(alpha=0.25), HALF, batch_of([0]))
    np.testing.assert_allclose(out.loss, 1.125 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(out.terms["entropy"], 1.5 * np.log(2), rtol=1e-6)


def test_distance_from_uniform_worked_out_by_hand():
    """sum_j (f_j - 1/3) log f_j = -(1/6) log 2 + (1/6) 2 log 2 = (1/6) log 2."""
    method = MinimumEntropy(alpha=0.25, kind="uniform_skl")
    out = loss_of(method, HALF, batch_of([0]))
    np.testing.assert_allclose(out.terms["uniform_skl"], -np.log(2) / 6, rtol=1e-5)
    np.testing.assert_allclose(out.loss, (0.75 - 0.25 / 6) * np.log(2), rtol=1e-5)


@pytest.mark.parametrize("step", [0, 30])
def test_alpha_ramps_on_both_sides_of_the_convex_combination(step):
    logits, labels = draw(1, 1, 8, 5).astype(np.float32), labels_of(1)
    ramped = MinimumEntropy(alpha=0.4, ramp=Ramp("linear", 10.0))
    fixed = MinimumEntropy(alpha=0.4 * min((step + 1) / 10, 1.0))
    got = loss_of(ramped, logits, batch_of(labels), step=step)
    expected = loss_of(fixed, logits, batch_of(labels))
    np.testing.assert_allclose(got.loss, expected.loss, rtol=1e-6)
