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

pytestmark = pytest.mark.usefixtures("strict_dtypes")

SCALES = [0.1, 2.0, 30.0, 1e4]


def two_models(rng, scale, classes=10):
    return tuple(jnp.asarray(rng.normal(scale=scale, size=(2, 200, classes)), "f4"))


def both_kl(a, b):
    """`KL(a || b)` and `KL(b || a)`."""
    return (
        distillation_kl(teacher_logits=a, student_logits=b),
        distillation_kl(teacher_logits=b, student_logits=a),
    )


@pytest.mark.parametrize("scale", SCALES)
def test_theorem_3_orders_any_two_binary_models_alike(rng, scale):
    """H(f) <= H(f'), or SKL(f, Unif) >= SKL(f', Unif), implies gamma >= gamma'."""
    f, g = two_models(rng, scale, classes=2)
    sure = prediction_confidence(f) - prediction_confidence(g)
    # One model counts as the lower in entropy where rounding cannot have decided it:
    # the quantities are near 1 (entropy, confidence) or relative to their size (SKL).
    lower = entropy(g) - entropy(f)
    further = uniform_symmetric_kl(f) / uniform_symmetric_kl(g) - 1.0
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
    gap = jnp.linspace(0.0, 12.0, 481, dtype=jnp.float32)
    for sign in (1.0, -1.0):
        z = jnp.stack([gap * jnp.float32(sign), jnp.zeros_like(gap)], axis=-1)
        assert np.all(np.diff(entropy(z))[1:] < 0)
        assert np.all(np.diff(uniform_symmetric_kl(z))[1:] > 0)
        assert np.all(np.diff(prediction_confidence(z))[1:] > 0)
    far = jnp.float32([[10.0, 0.0], [30.0, 0.0], [300.0, 0.0], [1e4, 0.0], [1e6, 0.0]])
    assert np.all(np.diff(entropy(far)) <= 0)
    assert np.all(np.diff(prediction_confidence(far)) >= 0)
    assert np.all(np.diff(uniform_symmetric_kl(far)) > 0)


def test_theorem_3_needs_two_classes():
    """Of three classes the model of lower entropy can be the less confident one."""
    z = jnp.log(jnp.float32([[0.5, 0.5 - 1e-6, 1e-6], [0.6, 0.2, 0.2]]))
    h, gamma = entropy(z), prediction_confidence(z)
    assert h[0] < h[1] - 0.2 and gamma[0] < gamma[1] - 0.2


@pytest.mark.parametrize("scale", SCALES)
def test_gradients_of_eqs_17_and_18_are_equal(rng, scale):
    """KL to a fixed target and cross-entropy to it; both are f - t in the logits."""
    target, logits = two_models(rng, scale)

    def kl(z):
        return jnp.sum(distillation_kl(teacher_logits=target, student_logits=z))

    def cross(z):
        return jnp.sum(cross_entropy_between(target_logits=target, logits=z))

    ours, theirs = jax.grad(kl)(logits), jax.grad(cross)(logits)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    truth = jax.nn.softmax(logits) - jax.nn.softmax(target)
    np.testing.assert_allclose(ours, truth, atol=1e-6)
    assert np.max(np.abs(truth)) > 0.05
    # And the values differ by what does not depend on the logits.
    np.testing.assert_allclose(
        cross_entropy_between(target_logits=target, logits=logits),
        distillation_kl(teacher_logits=target, student_logits=logits) + entropy(target),
        rtol=2e-6,
        atol=2e-6,
    )


@pytest.mark.parametrize("scale", SCALES)
def test_both_cross_entropies_are_skl_and_both_entropies(rng, scale):
    a, b = two_models(rng, scale)
    both = cross_entropy_between(target_logits=a, logits=b) + cross_entropy_between(
        target_logits=b, logits=a
    )
    whole = symmetric_kl(a, b) + entropy(a) + entropy(b)
    # Sums of ten terms as large as the logits: a few ulp of the result.
    np.testing.assert_allclose(both, whole, rtol=3e-6, atol=1e-6)
    assert np.all(both >= symmetric_kl(a, b) * (1 - 3e-6))


@pytest.mark.parametrize("scale", SCALES)
def test_symmetric_kl_is_both_directions(rng, scale):
    a, b = two_models(rng, scale)
    np.testing.assert_allclose(
        symmetric_kl(a, b), sum(both_kl(a, b)), rtol=3e-6, atol=1e-6
    )


@pytest.mark.parametrize("scale", SCALES)
def test_pinsker_bounds_l1_by_either_direction(rng, scale):
    """L1 <= sqrt(2 KL(a || b)) and <= sqrt(2 KL(b || a)); so L1^2 <= SKL."""
    a, b = two_models(rng, scale)
    distance = l1(a, b)
    for kl in both_kl(a, b):
        assert np.all(distance <= np.sqrt(2 * np.maximum(kl, 0)) + 1e-5)
    assert np.all(distance**2 <= symmetric_kl(a, b) + 1e-5)
    assert np.max(distance) > 0.05


def test_pinsker_is_nearly_tight_for_close_binary_models():
    """Around the uniform prediction KL is half the squared L1, to third order."""
    a = jnp.float32([[0.05, 0.0]])
    b = jnp.zeros_like(a)
    for kl in both_kl(a, b):
        np.testing.assert_allclose(l1(a, b), np.sqrt(2 * kl), rtol=1e-3)
