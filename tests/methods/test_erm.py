import numpy as np
import pytest

from churn_jax.methods import ERM, MinimumEntropy
from churn_jax.methods.base import Ramp
from tests.methods.cases import CASES, batch_of, draw, evaluate, labels_of, loss_of

HALF = np.log(np.array([[[0.5, 0.25, 0.25]]], np.float32))  # [M=1, B=1, C=3]


def test_cross_entropy_worked_out_by_hand():
    """-log 1/2 and -log 1/4 average to 1.5 log 2."""
    logits = np.repeat(HALF, 2, axis=1)
    out = loss_of(ERM(), logits, batch_of([0, 2]))
    np.testing.assert_allclose(out.loss, 1.5 * np.log(2), rtol=1e-6)


def test_members_are_summed_and_not_averaged():
    out = loss_of(ERM(members=3), np.repeat(HALF, 3, axis=0), batch_of([0]))
    np.testing.assert_allclose(out.loss, 3 * np.log(2), rtol=1e-6)


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


def test_top_k_keeps_the_most_likely_classes():
    """-1/2 log 1/2 is all of the entropy that the first class holds."""
    out = loss_of(MinimumEntropy(alpha=1.0, top_k=1), HALF, batch_of([1]))
    np.testing.assert_allclose(out.loss, 0.5 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("kind", ["entropy", "uniform_skl"])
def test_alpha_zero_is_plain_training(kind):
    logits = draw(0, 2, 4, 5).astype(np.float32)
    plain = loss_of(ERM(members=2), logits, batch_of(np.arange(4)))
    method = MinimumEntropy(members=2, alpha=0.0, kind=kind)
    regular = loss_of(method, logits, batch_of(np.arange(4)))
    np.testing.assert_array_equal(regular.loss, plain.loss)


@pytest.mark.parametrize("kind", ["entropy", "uniform_skl"])
def test_both_regularisers_raise_the_confidence(kind):
    """One step against the regulariser's gradient widens the gap of the top two."""
    logits = np.array([[[1.0, 0.5, 0.0]]], np.float32)
    for case in CASES:
        if case.name == f"MinimumEntropy {kind} top_k=None M={case.method.members}":
            method = MinimumEntropy(alpha=1.0, kind=kind)
            _, gradient = evaluate(case, logits, np.array([2]), [1.0], method=method)
            moved = logits - 0.1 * np.asarray(gradient)
            assert moved[0, 0, 0] - moved[0, 0, 1] > 0.5
            return
    raise AssertionError("the table has no such case")


@pytest.mark.parametrize("step", [0, 4, 9, 30])
def test_alpha_ramps_on_both_sides_of_the_convex_combination(step):
    logits, labels = draw(1, 1, 8, 5).astype(np.float32), labels_of(1)
    ramped = MinimumEntropy(alpha=0.4, ramp=Ramp("linear", 10.0))
    fixed = MinimumEntropy(alpha=0.4 * min((step + 1) / 10, 1.0))
    got = loss_of(ramped, logits, batch_of(labels), step=step)
    expected = loss_of(fixed, logits, batch_of(labels))
    np.testing.assert_allclose(got.loss, expected.loss, rtol=1e-6)


def test_unknown_regulariser_is_refused():
    with pytest.raises(ValueError, match="entropy, uniform_skl; got 'gini'"):
        MinimumEntropy(kind="gini")
