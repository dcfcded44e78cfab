"""Without coupling, ramps and refusals; `test_every_method.py` has the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import ERM, Codistillation
from churn_jax.methods.base import Ramp
from tests.methods.cases import batch_of, draw, known_logits, labels_of, loss_of

# Two peers on one example, [M=2, B=1, C=2]: a = (3/4, 1/4), b = (1/4, 3/4).
PAIR = np.log(np.array([[[0.75, 0.25]], [[0.25, 0.75]]], np.float32))


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
