import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.methods import EnsembleDistillation
from tests import reference_losses as reference
from tests.methods.cases import batch_of, draw, loss_of

# Two teachers, one example: (0.9, 0.1) and (0.5, 0.5) average to (0.7, 0.3).
TEACHERS = np.log(np.array([[[0.9, 0.1]], [[0.5, 0.5]]], np.float32))
UNIFORM = np.zeros((1, 1, 2), np.float32)


def test_loss_worked_out_by_hand():
    """alpha 1, tau 1: KL((0.7, 0.3) || (1/2, 1/2)) = log 2 - H(0.7, 0.3)."""
    method = EnsembleDistillation(alpha=1.0, temperature=1.0)
    out = loss_of(method, UNIFORM, batch_of([0]), teacher=TEACHERS)
    expected = np.log(2) + 0.7 * np.log(0.7) + 0.3 * np.log(0.3)
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


def test_temperature_flattens_the_teacher_and_multiplies_by_its_square():
    """tau 2 turns (0.7, 0.3) into its square roots, normalised; and 2^2 = 4."""
    method = EnsembleDistillation(alpha=1.0, temperature=2.0)
    out = loss_of(method, UNIFORM, batch_of([0]), teacher=TEACHERS)
    p = np.sqrt([0.7, 0.3]) / np.sum(np.sqrt([0.7, 0.3]))
    np.testing.assert_allclose(
        out.loss, 4 * (np.log(2) + np.sum(p * np.log(p))), rtol=1e-5
    )


def test_tempered_probabilities_are_averaged_after_tempering():
    """tau 2: (3/4, 1/4) of (0.9, 0.1) and (1/2, 1/2) average to (5/8, 3/8)."""
    method = EnsembleDistillation(alpha=1.0, temperature=2.0, average="tempered_probs")
    out = loss_of(method, UNIFORM, batch_of([0]), teacher=TEACHERS)
    p = np.array([5, 3]) / 8
    np.testing.assert_allclose(
        out.loss, 4 * (np.log(2) + np.sum(p * np.log(p))), rtol=1e-5
    )


@pytest.mark.parametrize("average", ["probs", "logits"])
def test_student_that_equals_the_teacher_is_not_moved(average):
    teacher = draw(0, 2, 4, 5).astype(np.float32)
    mean = np.mean(reference.softmax(teacher), axis=0)
    student = np.log(mean) if average == "probs" else np.mean(teacher, axis=0)
    method = EnsembleDistillation(alpha=1.0, temperature=3.0, average=average)
    loss, gradient = jax.value_and_grad(
        lambda z: loss_of(method, z, batch_of(np.zeros(4)), teacher=teacher).loss
    )(np.float32(student)[None])
    np.testing.assert_allclose(loss, 0.0, atol=2e-6)
    np.testing.assert_allclose(gradient, np.zeros((1, 4, 5)), atol=2e-6)


def test_nothing_flows_into_the_teacher():
    student, teacher = draw(1, 1, 4, 5), draw(2, 2, 4, 5)
    gradient = jax.grad(
        lambda t: (
            loss_of(
                EnsembleDistillation(),
                np.float32(student),
                batch_of(np.zeros(4)),
                teacher=t,
            ).loss
        )
    )(jnp.float32(teacher))
    np.testing.assert_array_equal(gradient, np.zeros((2, 4, 5)))


def test_temperature_square_keeps_the_gradient_when_tau_grows():
    """Hinton et al.: as tau grows the gradient tends to (s - t) / C, logits centred."""
    student, teacher = draw(3, 1, 4, 5), draw(4, 1, 4, 5)
    method = EnsembleDistillation(alpha=1.0, temperature=1000.0, average="logits")
    gradient = jax.grad(
        lambda z: (
            loss_of(method, z, batch_of(np.zeros(4)), teacher=np.float32(teacher)).loss
        )
    )(np.float32(student))
    gap = student - teacher
    limit = (gap - gap.mean(axis=-1, keepdims=True)) / 5 / 4  # the mean over B = 4
    # float32 leaves 1e-7 of logits / tau, which tau gives back: 1e-4.
    np.testing.assert_allclose(gradient, limit, atol=2e-3)
