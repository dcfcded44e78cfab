"""The numbers of `churn_compare` are those of `churn_jax.metrics`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare import QUANTITIES, compare
from churn_jax import divergences, metrics


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
