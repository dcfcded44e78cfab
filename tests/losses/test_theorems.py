"""What [reproducibility] proves or uses of its losses, on random and extreme logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.losses import (
    cross_entropy_between,
    distillation_kl,
    entropy,
    l1,
    symmetric_kl,
    uniform_symmetric_kl,
)
from churn_jax.metrics import prediction_confidence
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

scales = pytest.mark.parametrize("scale", [0.1, 2.0, 30.0, 1e4])


def two_models(rng, scale, classes=10):
    return rng.normal(scale=scale, size=(2, 200, classes)).astype(np.float32)


@jax.jit
def certainty(z):
    """Entropy, distance from uniform and confidence; Theorem 3 is about these."""
    return entropy(z), uniform_symmetric_kl(z), prediction_confidence(z)


@jax.jit
def distances(a, b):
    """Every distance between two models, both ways where it has a direction."""

    def kl(t, z):
        return distillation_kl(teacher_logits=t, student_logits=z)

    def cross(t, z):
        return cross_entropy_between(target_logits=t, logits=z)

    return {
        "kl": (kl(a, b), kl(b, a)),
        "cross": (cross(a, b), cross(b, a)),
        "skl": symmetric_kl(a, b),
        "l1": l1(a, b),
        "entropy": (entropy(a), entropy(b)),
        "gradients": (
            jax.grad(lambda z: jnp.sum(kl(a, z)))(b),
            jax.grad(lambda z: jnp.sum(cross(a, z)))(b),
        ),
    }


@scales
def test_theorem_3_orders_any_two_binary_models_alike(rng, scale):
    """H(f) <= H(f'), or SKL(f, Unif) >= SKL(f', Unif), implies gamma >= gamma'."""
    f, g = (jax.device_get(certainty(z)) for z in two_models(rng, scale, classes=2))
    sure = f[2] - g[2]
    # One model counts as the lower in entropy where rounding cannot have decided it:
    # the quantities are near 1 (entropy, confidence) or relative to their size (SKL).
    lower, further = g[0] - f[0], f[1] / g[1] - 1.0
    for evidence, margin in ((lower, 1e-5), (further, 1e-4)):
        clear = np.abs(evidence) > margin
        if evidence is further or scale < 1e4:  # there all entropies are 0
            assert np.mean(clear) > 0.3
        # Confidence saturates at 1, where SKL still grows: never the other way round.
        assert np.all(np.where(evidence > 0, sure, -sure)[clear] >= -1e-6)
    # Where both have an opinion, it is the same one.
    both = (np.abs(lower) > 1e-5) & (np.abs(further) > 1e-4)
    np.testing.assert_array_equal(np.sign(lower[both]), np.sign(further[both]))


def test_theorem_3_the_three_are_monotone_in_the_logit_gap():
    """Strictly so where float32 resolves it, on either side of the boundary."""
    gap = np.linspace(0.0, 12.0, 481)
    far = np.array([10.0, 30.0, 300.0, 1e4, 1e6])
    for sign in (1.0, -1.0):
        gaps = sign * np.concatenate([gap, far])
        z = np.stack([gaps, np.zeros_like(gaps)], -1).astype(np.float32)
        h, skl, gamma = (np.asarray(x) for x in certainty(z))
        assert np.all(np.diff(h[:481])[1:] < 0) and np.all(np.diff(h[481:]) <= 0)
        assert np.all(np.diff(skl[:481])[1:] > 0) and np.all(np.diff(skl[481:]) > 0)
        assert np.all(np.diff(gamma[:481])[1:] > 0)
        assert np.all(np.diff(gamma[481:]) >= 0)


def test_theorem_3_needs_two_classes():
    """Of three classes the model of lower entropy can be the less confident one."""
    probs = np.float32([[0.5, 0.5 - 1e-6, 1e-6], [0.6, 0.2, 0.2]])
    h, _, gamma = certainty(np.log(probs))
    assert h[0] < h[1] - 0.2 and gamma[0] < gamma[1] - 0.2


@scales
def test_gradients_of_eqs_17_and_18_are_equal(rng, scale):
    """KL to a fixed target and cross-entropy to it; both are f - t in the logits."""
    target, logits = two_models(rng, scale)
    found = distances(target, logits)
    truth = reference.softmax(logits) - reference.softmax(target)
    for gradient in found["gradients"]:
        np.testing.assert_allclose(gradient, truth, atol=1e-6)
    assert np.max(np.abs(truth)) > 0.05
    # And the values differ by what does not depend on the logits.
    values = found["kl"][0] + found["entropy"][0]
    np.testing.assert_allclose(found["cross"][0], values, rtol=2e-6, atol=2e-6)
