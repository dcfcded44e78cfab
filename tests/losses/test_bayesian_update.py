"""Confusions, beliefs and the three update rules against a loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.losses import (
    bayesian_posterior,
    bayesian_update_targets,
    confusion_counts,
)
from tests import reference_losses as reference
from tests.devices import over_devices

pytestmark = pytest.mark.usefixtures("strict_dtypes")

MODELS, CLASSES, EXAMPLES = 4, 3, 64
RULES = ["mb", "mbme", "cr"]
# Compiled once per shape; the loop over models would be compiled at every plain call.
posterior = jax.jit(bayesian_posterior)
targets = jax.jit(bayesian_update_targets, static_argnames="rule")
counts_of = jax.jit(confusion_counts, static_argnums=2)


@pytest.fixture
def drawn(rng):
    predictions = rng.integers(0, CLASSES, (MODELS, EXAMPLES))
    noise = rng.dirichlet(np.ones(CLASSES), (MODELS, CLASSES))
    confusions = 0.5 * np.eye(CLASSES) + 0.5 * noise
    return predictions.astype(np.int32), confusions.astype(np.float32)


def test_counts_are_those_of_the_valid_examples(rng):
    # Of a type that cannot count the classes.
    predictions, labels = rng.integers(0, 256, (2, 32)).astype(np.uint8)
    mask = rng.choice(np.float32([-1.0, 0.0, 0.25, 1.0]), 32)
    for given, valid in ((None, slice(None)), (mask, mask != 0)):
        expected = np.zeros((300, 300))
        np.add.at(expected, (labels[valid], predictions[valid]), 1)
        found = counts_of(predictions, labels, 300, given)
        np.testing.assert_array_equal(found, expected)


def test_posterior_by_hand():
    """Votes 0 and 1: (0.8 * 0.3, 0.4 * 0.9) is 2 to 3; with prior 3 to 1, 2 to 1."""
    confusions = np.float32([[[0.8, 0.2], [0.4, 0.6]], [[0.7, 0.3], [0.1, 0.9]]])
    votes, prior = np.array([[0], [1]]), np.float32([0.75, 0.25])
    belief = posterior(votes, confusions, prior=np.float32([0.5, 0.5]))
    np.testing.assert_allclose(np.exp(belief), [[0.4, 0.6]], rtol=1e-6)
    belief = posterior(votes, confusions, prior=prior)
    np.testing.assert_allclose(np.exp(belief), [[2 / 3, 1 / 3]], rtol=1e-6)
    # Shares of zero stay finite.
    belief = posterior(votes, np.stack([np.eye(2, dtype=np.float32)] * 2), prior=prior)
    np.testing.assert_allclose(np.exp(belief), [[0.75, 0.25]], rtol=3e-6)


@pytest.mark.parametrize("prior", [None, [0.2, 0.3, 0.5]])
def test_equals_the_float64_reference(drawn, prior):
    weights = None if prior is None else np.float32(prior)
    belief = posterior(*drawn, prior=weights)
    expected = reference.bayesian_posterior(*drawn, prior)
    np.testing.assert_allclose(np.exp(belief), expected, rtol=3e-6)
    changed = 0
    for rule in RULES if prior is None else ["cr"]:
        used = targets(*drawn, rule=rule, prior=weights)
        assert used.dtype == jnp.int32
        wanted = reference.bayesian_update_targets(*drawn, rule=rule, prior=prior)
        np.testing.assert_array_equal(used, wanted)
        changed += int(np.sum(wanted != np.asarray(drawn[0][0])))
    assert changed >= 20


def test_the_rules_differ_and_a_dearer_flip_is_rarer(drawn):
    used = {rule: np.asarray(targets(*drawn, rule=rule)) for rule in RULES}
    assert np.any(used["mb"] != used["mbme"]) and np.any(used["mb"] != used["cr"])
    ratios = (1.0, 2.5, 10.0, 1e6)
    used = [np.asarray(targets(*drawn, cost_ratio=ratio)) for ratio in ratios]
    for found, ratio in zip(used, ratios):
        wanted = reference.bayesian_update_targets(*drawn, cost_ratio=ratio)
        np.testing.assert_array_equal(found, wanted)
    flips = [np.sum(x != drawn[0][0]) for x in used]
    assert flips == sorted(flips, reverse=True) and flips[0] > flips[1] > flips[3] == 0
    # With no extra cost the prediction in use is the likeliest class.
    np.testing.assert_array_equal(used[0], np.argmax(posterior(*drawn), -1))


@pytest.mark.parametrize("rule", RULES)
def test_one_model_keeps_its_prediction_whatever_its_confusions(rule):
    liar = np.float32([[[0.1, 0.9], [0.9, 0.1]]])
    used = targets(np.array([[0, 1]]), liar, rule=rule)
    np.testing.assert_array_equal(used, [0, 1])


def test_transforms_agree(drawn):
    """More axes, under `vmap` over examples, on eight devices."""
    predictions, confusions = drawn
    expected = targets(predictions, confusions)
    assert np.any(expected != predictions[0])
    more = targets(predictions.reshape(MODELS, 8, 8), confusions)
    np.testing.assert_array_equal(more.reshape(-1), expected)
    mapped = jax.vmap(targets, in_axes=(1, None))
    np.testing.assert_array_equal(mapped(predictions, confusions), expected)
    sharded = over_devices(bayesian_update_targets, P(None, "data"), P(), out=P("data"))
    np.testing.assert_array_equal(sharded(predictions, confusions), expected)
