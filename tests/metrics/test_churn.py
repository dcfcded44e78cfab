"""Churn of classes and names, its parts and bounds; flips of any two models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare import QUANTITIES, compare
from churn_jax import divergences, metrics
from tests import reference_metrics as ref
from tests.metrics.cases import make_inputs
from tests.refusals import refusals

A = np.log(np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], np.float32))
B = np.log(np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], np.float32))

churn = jax.jit(metrics.churn)
surrogate_churn = jax.jit(metrics.surrogate_churn)


ONE_HOT = np.eye(3, dtype=int)
NAMES = np.array(["cat", "dog", "owl"])


@pytest.mark.parametrize(
    "of",
    [
        lambda z: z.tolist(),
        lambda z: z.argmax(-1),
        lambda z: z.argmax(-1).tolist(),
        lambda z: jax.numpy.asarray(z.argmax(-1), "uint8"),
        lambda z: NAMES[z.argmax(-1)],
        lambda z: NAMES[z.argmax(-1)].tolist(),
        lambda z: NAMES[z.argmax(-1)].astype(object),
    ],
    ids=["logits", "classes", "listed", "device", "names", "named", "objects"],
)
def test_predicted_classes_and_lists_have_the_churn_of_their_logits(of):
    a, b, _ = make_inputs("labelled pair", 0).values()
    a, b = a[..., :3], b[..., :3]
    mask = np.arange(len(a)) % 3 > 0
    for valid in (None, mask, mask.tolist()):
        assert metrics.churn(of(a), of(b), valid) == metrics.churn(a, b, valid) > 0
    if not isinstance(of(a)[0], str):
        assert metrics.churn(of(a), b) == metrics.churn(a, of(b)) == churn(a, b)
    state = metrics.ChurnState.empty().update(of(a), of(b)).update(a, b)
    assert state.compute() == churn(a, b)
    state = metrics.ChurnState.empty().update(of(a), of(b), mask.tolist())
    assert state.compute() == churn(a, b, mask)


def test_predicted_classes_are_traced_and_have_any_axes():
    a, b = np.array([[0, 1, 2], [0, 0, 0]]), np.array([[0, 1, 1], [1, 0, 1]])
    assert churn(a, b) == metrics.churn(a, b) == 0.5
    np.testing.assert_allclose(jax.vmap(metrics.churn)(a, b), [1 / 3, 2 / 3])
    assert metrics.churn(a == 0, b == 0) == 0.5 - 1 / 6  # bools are two classes
    assert metrics.churn([2**40, 1], [2**41, 1]) == 0.5  # wider than int32
    assert jax.vmap(metrics.churn)(A, B).tolist() == [0, 1]
    assert np.isnan(metrics.churn([], []))


test_what_may_be_logits_or_classes_is_refused = refusals(
    ([0.0, 1.0], [0, 1], r"shape \(2,\) of float64. Pass classes as integers"),
    ([0, 1], [0, 1, 2], r"same shape; got \(2,\) and \(3,\)"),
    (A, [0, 1, 2], r"same shape; got \(2,\) and \(3,\)"),
    (A, A[:, :2], r"logits_a and logits_b must have the same shape; got \(2, 3\)"),
    (ONE_HOT, ONE_HOT[::-1], r"one-hot rows of shape \(3, 3\). Pass their argm"),
    (ONE_HOT > 0, ONE_HOT > 0, r"rows of shape \(3, 3\). Pass their argmax"),
    (A, ["cat", "owl"], "both have the numbers of classes or both their names"),
    ([None, "owl"], ["cat", "owl"], "classes as integers or names; got object"),
    ([2**32, 1], jnp.array([1, 1]), "int32 cannot hold are compared by NumPy alone"),
    call=metrics.churn,
    error=(TypeError, ValueError),
)


def test_float64_logits_of_numpy_keep_their_digits(rng):
    """Scores with offsets, of which float32 would make ties."""
    a = rng.normal(size=(2000, 4)) * 0.05 - rng.uniform(300, 3000, (2000, 1))
    b = a + rng.uniform(0, 1, (2000, 1))
    labels = a.argmax(axis=-1)
    assert metrics.churn(a, b) == metrics.churn(a, labels) == 0.0 < churn(a, b)
    assert metrics.churn(a.tolist(), b.tolist()) == 0.0
    assert metrics.accuracy(b, labels) == 1.0
    assert metrics.hamming_prediction_difference(np.stack([a, b])) == 0.0
    rates = metrics.flip_rates(old_logits=a, new_logits=b, labels=labels)
    assert rates.negative_flip_rate == 0.0


def test_surrogate_churn_of_extreme_logits_is_finite():
    a = np.float32([[0.0, -np.inf, 1e30], [3e38, -3e38, 0.0]])
    assert surrogate_churn(a, a) == 0.0 and np.isfinite(surrogate_churn(a, a[::-1]))


def test_models_of_an_update_may_know_different_classes():
    old, new, labels = make_inputs("update", 0).values()
    inputs = {"old_logits": old[:, :3], "new_logits": new, "labels": labels}
    expected = ref.flip_rates(**inputs)[0]
    np.testing.assert_allclose(metrics.negative_flip_rate(**inputs), expected, 1e-6)
    with pytest.raises(ValueError, match=r"new_logits.*\(47,\).*\(48,\)"):
        metrics.negative_flip_rate(**{**inputs, "new_logits": new[:47]})
    with pytest.raises(TypeError, match="positional"):
        metrics.negative_flip_rate(*inputs.values())
    with pytest.raises(ValueError, match=r"\(48, 3\).*\(48, 5\)"):
        metrics.flip_rank(**inputs)


def test_rank_of_a_flip_equals_sorting():
    inputs = make_inputs("update", 0)
    inputs["old_logits"] = np.round(inputs["old_logits"])  # many ties
    ranks = jax.jit(metrics.flip_rank)(**inputs)
    assert ranks.max() > 1 and ranks.dtype == np.int32
    np.testing.assert_array_equal(ranks, ref.flip_rank(**inputs))


# ---- the numbers of `churn_compare`


def test_values_equal_the_metrics():
    rng = np.random.default_rng(2)
    labels, signal = rng.integers(0, 6, 200), rng.normal(size=(200, 6))
    old, new = (signal + rng.normal(size=(r, 200, 6)) for r in (1, 2))
    found = compare(old, new, labels=labels, resamples=100).quantities
    expected = jax.jit(jax.vmap(_metrics, in_axes=(None, 0, None)))(
        old[0], new, jnp.asarray(labels)
    )
    for name, numbers in expected.items():
        got = found[name].value
        assert got == pytest.approx(float(np.mean(numbers)), rel=1e-5), name
    of_classes = [name for name, q in QUANTITIES.items() if not q.outcomes]
    assert list(found) == [name for name in of_classes if name != "within_old"]


def _metrics(old, new, labels):
    flips = metrics.flip_rates(old_logits=old, new_logits=new, labels=labels)
    return flips._asdict() | {
        "churn": metrics.churn(old, new),
        "surrogate_churn": metrics.surrogate_churn(old, new),
        "kl_divergence": jnp.mean(divergences.kl_divergence(old, new)),
        "accuracy_new": metrics.accuracy(new, labels),
        "nll_new": metrics.negative_log_likelihood(new, labels),
        "brier_new": metrics.brier_score(new, labels),
        "ece_old": metrics.expected_calibration_error(old, labels),
        "ece_new": metrics.expected_calibration_error(new, labels),
    }
