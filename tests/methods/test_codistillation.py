import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import ERM, Codistillation
from churn_jax.methods.base import Ramp
from churn_jax.methods.codistillation import disagreement, stale_disagreement
from tests import reference_losses as reference
from tests.methods import reference as objectives
from tests.methods.cases import STALE, batch_of, draw, known_logits, labels_of, loss_of

# Two peers on one example, [M=2, B=1, C=2]: a = (3/4, 1/4), b = (1/4, 3/4).
PAIR = np.log(np.array([[[0.75, 0.25]], [[0.25, 0.75]]], np.float32))


def gradient_of(kind, logits):
    return jax.grad(lambda z: jnp.sum(disagreement(kind, z)))(jnp.asarray(logits))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("skl", np.log(3)),  # twice (1/2) log 3
        ("l1", 1.0),  # 1/2 + 1/2
        ("kl", np.log(3)),  # (1/2) log 3 either way
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


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("skl", np.log(3)),  # of the second member alone: the first copy is the first
        ("l1", 1.0),
        ("kl", 0.5 * np.log(3)),
        ("cross_entropy", np.log(4) - 0.25 * np.log(3)),
    ],
)
def test_stale_disagreement_worked_out_by_hand(kind, value):
    """The first member has come to where the second one's copy is: only one is off."""
    logits = PAIR[[1, 1]]
    entropy = np.log(4) - 0.75 * np.log(3)
    own = entropy if kind == "cross_entropy" else 0.0
    got = stale_disagreement(kind, logits, PAIR)
    np.testing.assert_allclose(got, [own + value], rtol=1e-6)


def test_stale_disagreement_is_the_sum_over_ordered_pairs():
    """Of the fourth divergence; the others are rows of the table in `cases.py`."""
    logits, stale = np.float32(draw(8, 2, 3, 6, 5))
    got = stale_disagreement("kl", logits, stale)
    expected = objectives.stale_disagreement(logits.astype(float), stale, "kl")
    np.testing.assert_allclose(got, expected, rtol=3e-6)


@pytest.mark.parametrize("kind", ["skl", "l1", "kl", "cross_entropy"])
def test_fresh_copies_pull_a_member_as_its_live_peers_do(kind):
    """Without delay both updates have one gradient, so beta means the same in both."""
    logits = jnp.asarray(draw(9, 3, 4, 5), jnp.float32)

    @jax.jit
    def both(logits):
        fresh = jax.grad(lambda z: jnp.sum(stale_disagreement(kind, z, logits)))
        return fresh(logits), gradient_of(kind, logits)

    fresh, live = both(logits)
    np.testing.assert_allclose(fresh, live, atol=5e-6)
    assert np.max(np.abs(fresh)) > 0.1


@pytest.mark.parametrize("kind", ["skl", "cross_entropy"])
def test_no_gradient_reaches_a_copy(kind):
    logits, stale = jnp.asarray(draw(10, 2, 3, 4, 5), jnp.float32)
    gradients = jax.grad(
        lambda z, s: jnp.sum(stale_disagreement(kind, z, s)), argnums=(0, 1)
    )
    own, copies = jax.jit(gradients)(logits, stale)
    np.testing.assert_array_equal(copies, jnp.zeros_like(copies))
    assert np.max(np.abs(own)) > 0.1


def test_a_member_follows_the_copies_of_the_others_and_not_its_own():
    logits, stale = np.float32(draw(11, 2, 3, 4, 5))

    @jax.jit
    def gradient(stale):
        return jax.grad(
            lambda z: jnp.sum(stale_disagreement("cross_entropy", z, stale))
        )(jnp.asarray(logits))

    before, moved = gradient(stale), stale.copy()
    moved[1] = draw(12, 4, 5)
    after = gradient(moved)
    np.testing.assert_array_equal(after[1], before[1])
    for m in (0, 2):
        assert np.max(np.abs(after[m] - before[m])) > 0.1


def test_both_forms_of_the_independent_update_have_equal_gradients():
    """Eqs. 17 and 18 differ by the entropy of the targets, which is fixed."""
    logits, batch = np.float32(draw(13, 2, 8, 5)), batch_of(labels_of(13))

    def of(kind):
        method = Codistillation(beta=0.3, update="independent", divergence=kind)
        return jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)(logits)

    (kl, kl_gradient), (cross, cross_gradient) = of("kl"), of("cross_entropy")
    np.testing.assert_allclose(kl_gradient, cross_gradient, atol=1e-6)
    entropies = sum(np.mean(reference.entropy(s)) for s in STALE[:2])
    np.testing.assert_allclose(cross - kl, 0.3 * entropies, rtol=1e-5)
    # Eq. 17a by hand, for the first member.
    f, g = reference.softmax(logits[0]), reference.softmax(STALE[1])
    labels = np.eye(5)[labels_of(13)]
    expected = ((f - labels) + 0.3 * (f - g)) / 8
    np.testing.assert_allclose(kl_gradient[0], expected, atol=1e-6)


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


@pytest.mark.parametrize(
    ("kind", "update"),
    [("skl", "joint"), ("cross_entropy", "joint"), ("skl", "independent")],
)
def test_beta_zero_is_exactly_independent_training(kind, update):
    logits, batch = np.float32(draw(6, 2, 8, 5)), batch_of(labels_of(6))

    def of(method):
        return jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)(logits)

    coupled = of(Codistillation(beta=0.0, divergence=kind, update=update))
    jax.tree.map(np.testing.assert_array_equal, coupled, of(ERM(members=2)))


@pytest.mark.parametrize(
    ("step", "update"), [(0, "joint"), (5, "joint"), (30, "joint"), (5, "independent")]
)
def test_both_ramps_act_on_their_own_coefficient(step, update):
    logits, batch = np.float32(draw(7, 2, 8, 5)), batch_of(labels_of(7))
    ramped = Codistillation(
        beta=0.3,
        alpha=0.2,
        beta_ramp=Ramp("linear", 20.0),
        alpha_ramp=Ramp("step", 4.0),
        update=update,
    )
    fixed = Codistillation(
        beta=0.3 * min((step + 1) / 20, 1),
        alpha=0.2 if step >= 4 else 0.0,
        update=update,
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
        ({"update": "async"}, "joint, independent; got 'async'"),
        ({"update": "independent", "refresh_steps": 0}, "at least 1; got 0"),
        ({"update": "independent", "refresh_steps": 2.0}, "whole number; got 2.0"),
        ({"refresh_steps": 5}, "refresh_steps=5 needs update='independent'"),
        (
            {"update": "independent", "divergence": "joint_cross_entropy"},
            "gradients into both peers",
        ),
        ({"member_sample": "bag"}, "shared, bootstrap, subset, split; got 'bag'"),
    ],
)
def test_structure_is_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Codistillation(**options)


def test_independent_updates_need_the_copies():
    method = Codistillation(update="independent", refresh_steps=3)
    assert method.stale_steps == 3 and Codistillation().stale_steps == 0
    with pytest.raises(ValueError, match="stale members' logits"):
        loss_without_teacher(method)


def loss_without_teacher(method):
    return method.loss(
        known_logits,
        {"params": jnp.asarray(PAIR)},
        batch_of([0]),
        teacher=None,
        step=0,
        key=None,
    )
