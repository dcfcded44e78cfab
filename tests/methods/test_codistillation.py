import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import ERM, Codistillation
from churn_jax.methods.base import Ramp
from churn_jax.methods.codistillation import disagreement
from tests import reference_losses as reference
from tests.methods.cases import batch_of, draw, labels_of, loss_of

# Two peers on one example, [M=2, B=1, C=2]: a = (3/4, 1/4), b = (1/4, 3/4).
PAIR = np.log(np.array([[[0.75, 0.25]], [[0.25, 0.75]]], np.float32))


def gradient_of(kind, logits):
    return jax.grad(lambda z: jnp.sum(disagreement(kind, z)))(jnp.asarray(logits))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("skl", np.log(3)),  # twice (1/2) log 3
        ("l1", 1.0),  # 1/2 + 1/2
        # H(b, a) + H(a, b), each log 4 - (1/4) log 3
        ("cross_entropy", 2 * np.log(4) - 0.5 * np.log(3)),
        ("joint_cross_entropy", 2 * np.log(4) - 0.5 * np.log(3)),
    ],
)
def test_disagreement_worked_out_by_hand(kind, value):
    np.testing.assert_allclose(disagreement(kind, PAIR), [value], rtol=1e-6)


def test_objective_worked_out_by_hand():
    """Eq. 9, label 0, beta 1/2: log 4/3 + log 4 + (1/2) log 3."""
    out = loss_of(Codistillation(beta=0.5), PAIR, batch_of([0]))
    expected = np.log(4 / 3) + np.log(4) + 0.5 * np.log(3)
    np.testing.assert_allclose(out.loss, expected, rtol=1e-6)


def test_combined_objective_has_no_one_minus_alpha():
    """Eq. 19 adds alpha times both entropies, each log 4 - (3/4) log 3."""
    batch = batch_of([0])
    plain = loss_of(Codistillation(beta=0.5), PAIR, batch).loss
    both = loss_of(Codistillation(beta=0.5, alpha=0.2), PAIR, batch).loss
    expected = 0.2 * 2 * (np.log(4) - 0.75 * np.log(3))
    np.testing.assert_allclose(both - plain, expected, rtol=1e-5)


def test_three_peers_have_three_pairs():
    third = np.log(np.array([[[0.5, 0.5]]], np.float32))
    logits = np.concatenate([PAIR, third])
    np.testing.assert_allclose(disagreement("l1", logits), [1.0 + 0.5 + 0.5], rtol=1e-6)


def test_symmetric_kl_gradient_enters_both_peers():
    """d/dz_a = a (log a/b - KL(a||b)) + (a - b), and the other way round for b."""
    logits = draw(0, 2, 4, 5)
    a, b = reference.softmax(logits[0]), reference.softmax(logits[1])

    def analytic(a, b):
        centred = np.log(a / b) - reference.kl(a, b)[:, None]
        return a * centred + a - b

    gradient = gradient_of("skl", np.float32(logits))
    np.testing.assert_allclose(gradient[0], analytic(a, b), atol=3e-6)
    np.testing.assert_allclose(gradient[1], analytic(b, a), atol=3e-6)


def test_cross_entropy_gradient_enters_only_the_followed_side():
    """Eq. 18: with the target fixed, d H(t, f)/dz = f - t, and so for KL (Eq. 17)."""
    logits = draw(1, 2, 4, 5)
    a, b = reference.softmax(logits[0]), reference.softmax(logits[1])
    gradient = gradient_of("cross_entropy", np.float32(logits))
    np.testing.assert_allclose(gradient[0], a - b, atol=1e-6)
    np.testing.assert_allclose(gradient[1], b - a, atol=1e-6)


def test_joint_cross_entropy_is_symmetric_kl_and_both_entropies():
    logits = np.float32(draw(2, 2, 4, 5))

    def total(z):
        return jnp.sum(disagreement("joint_cross_entropy", z))

    def parts(z):
        p = jax.nn.log_softmax(z)
        entropies = -jnp.sum(jnp.exp(p) * p)
        return jnp.sum(disagreement("skl", z)) + entropies

    np.testing.assert_allclose(total(logits), parts(logits), rtol=1e-6)
    got, expected = jax.grad(total)(logits), jax.grad(parts)(logits)
    np.testing.assert_allclose(got, expected, atol=3e-6)


def test_stopping_the_target_changes_the_gradient_and_not_the_value():
    logits = np.float32(draw(3, 2, 4, 5))
    stopped, joint = "cross_entropy", "joint_cross_entropy"
    np.testing.assert_array_equal(
        disagreement(stopped, logits), disagreement(joint, logits)
    )
    gap = gradient_of(stopped, logits) - gradient_of(joint, logits)
    assert np.max(np.abs(gap)) > 0.1


@pytest.mark.parametrize("kind", ["skl", "l1", "cross_entropy"])
def test_equal_peers_are_not_moved(kind):
    logits = np.repeat(np.float32(draw(4, 1, 4, 5)), 3, axis=0)
    np.testing.assert_allclose(
        gradient_of(kind, logits), np.zeros((3, 4, 5)), atol=1e-6
    )


@pytest.mark.parametrize("kind", ["skl", "l1", "cross_entropy", "joint_cross_entropy"])
def test_order_of_the_peers_does_not_matter(kind):
    logits = np.float32(draw(5, 3, 4, 5))
    np.testing.assert_allclose(
        disagreement(kind, logits[[2, 0, 1]]), disagreement(kind, logits), rtol=3e-6
    )


@pytest.mark.parametrize("kind", ["skl", "cross_entropy"])
def test_beta_zero_is_exactly_independent_training(kind):
    logits, batch = np.float32(draw(6, 2, 8, 5)), batch_of(labels_of(6))

    def of(method):
        return jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)(logits)

    coupled = of(Codistillation(beta=0.0, divergence=kind))
    jax.tree.map(np.testing.assert_array_equal, coupled, of(ERM(members=2)))


@pytest.mark.parametrize("step", [0, 5, 30])
def test_both_ramps_act_on_their_own_coefficient(step):
    logits, batch = np.float32(draw(7, 2, 8, 5)), batch_of(labels_of(7))
    ramped = Codistillation(
        beta=0.3,
        alpha=0.2,
        beta_ramp=Ramp("linear", 20.0),
        alpha_ramp=Ramp("step", 4.0),
    )
    fixed = Codistillation(
        beta=0.3 * min((step + 1) / 20, 1), alpha=0.2 if step >= 4 else 0.0
    )
    got = jax.jit(lambda s: loss_of(ramped, logits, batch, step=s).loss)(step)
    np.testing.assert_allclose(got, loss_of(fixed, logits, batch).loss, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 1}, "at least two members; got 1"),
        ({"divergence": "js"}, "joint_cross_entropy; got 'js'"),
        ({"kind": "gini"}, "entropy, uniform_skl; got 'gini'"),
        ({"deployed_member": 2}, "below members=2; got 2"),
    ],
)
def test_structure_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Codistillation(**options)
