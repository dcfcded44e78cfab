"""Disagreements worked out by hand, their symmetries, ramps and refusals.

That the objective and its gradient equal the equations is in `test_every_method.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import ERM, Codistillation, codistillation
from churn_jax.methods.base import Ramp
from tests.methods.cases import batch_of, draw, known_logits, labels_of, loss_of

# Two peers on one example, [M=2, B=1, C=2]: a = (3/4, 1/4), b = (1/4, 3/4).
PAIR = np.log(np.array([[[0.75, 0.25]], [[0.25, 0.75]]], np.float32))


disagreement = jax.jit(codistillation.disagreement, static_argnums=0)
stale_disagreement = jax.jit(codistillation.stale_disagreement, static_argnums=0)


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


@pytest.mark.parametrize(
    ("kind", "update"), [("cross_entropy", "joint"), ("skl", "independent")]
)
def test_beta_zero_is_exactly_independent_training(kind, update):
    logits, batch = np.float32(draw(6, 2, 8, 5)), batch_of(labels_of(6))

    def of(method):
        loss = jax.value_and_grad(lambda z: loss_of(method, z, batch).loss)
        return jax.jit(loss)(logits)

    coupled = of(Codistillation(beta=0.0, divergence=kind, update=update))
    jax.tree.map(np.testing.assert_array_equal, coupled, of(ERM(members=2)))


@pytest.mark.parametrize(("step", "update"), [(0, "joint"), (5, "independent")])
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


def test_independent_updates_need_the_copies():
    method = Codistillation(update="independent", refresh_steps=3)
    assert method.stale_steps == 3 and Codistillation().stale_steps == 0
    with pytest.raises(ValueError, match="stale members' logits"):
        jax.eval_shape(
            lambda: method.loss(
                known_logits,
                {"params": jnp.asarray(PAIR)},
                batch_of([0]),
                teacher=None,
                step=0,
                key=None,
            )
        )
