"""ELODI: the two references and their mix, its forms, its gradient, its refusals.

That it equals its equation for random logits is in `test_every_method.py`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.methods import ELODI
from tests import reference_losses as one
from tests.methods.cases import (
    CLASSES,
    EXAMPLES,
    OLD,
    TEACHER,
    KnownTeachers,
    batch_of,
    draw,
    known_logits,
    labels_of,
)

LOGITS = draw(0, 1, EXAMPLES, CLASSES).astype(np.float32)
LABELS = labels_of(0)
BOTH = np.concatenate([TEACHER, OLD])
MEAN = np.mean(np.float64(TEACHER), axis=0)


@functools.partial(jax.jit, static_argnames="olds")
def outcome(method, logits, answers, olds=0, labels=LABELS, mask=None):
    """`LossOutput`, and its gradients in the student's and the teachers' logits."""

    def objective(logits, answers):
        batch = batch_of(labels, mask)
        out = method.loss(
            known_logits,
            {"params": logits},
            batch,
            teacher=KnownTeachers(answers, olds),
            step=0,
            key=batch.keys[0],
        )
        return out.loss, out

    gradients, out = jax.grad(objective, (0, 1), has_aux=True)(logits, answers)
    return out, *gradients


def apart(target, logits=LOGITS[0], rows=slice(None), **options):
    """The mean difference over examples, float64."""
    values = one.logit_difference_inhibition(
        student_logits=logits, teacher_logits=target, **options
    )
    return np.mean(values[rows])


def test_the_mix_does_not_matter_where_there_is_one_reference():
    for answers, olds, name in ((TEACHER, 0, "ldi_ensemble"), (OLD, 2, "ldi_old")):
        losses = []
        for mix in (0.0, 0.9):
            method = ELODI(alpha=jnp.float32(1.0), mix=jnp.float32(mix))
            out, _, _ = outcome(method, LOGITS, answers, olds)
            assert set(out.terms) == {"cross_entropy", name}
            losses.append(float(out.loss))
        assert losses[0] == losses[1] == float(out.terms[name])


def test_the_gradient_reaches_the_student_alone_and_only_in_the_top_classes():
    method = ELODI(alpha=1.0, mix=1.0, top_k=2)
    _, gradient, theirs = outcome(method, LOGITS, BOTH, 2)
    np.testing.assert_array_equal(theirs, 0.0)
    top = np.argsort(-MEAN, axis=-1)[:, :2]
    mask = np.zeros((EXAMPLES, CLASSES), bool)
    np.put_along_axis(mask, top, True, axis=-1)
    expected = np.where(mask, 2 * (LOGITS[0] - MEAN), 0) / EXAMPLES
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-5, atol=1e-7)
    assert np.all((gradient[0] != 0) == mask)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0},
        {"top_k": CLASSES},
        {"top_k": 2, "rank_by": "student"},
        {"top_k": 3, "order": 1.0},
        {"top_k": 0, "order": 3.0, "margin": 0.5},
    ],
)
def test_the_forms_of_the_difference_are_those_of_the_loss(options):
    out, _, _ = outcome(ELODI(alpha=1.0, **options), LOGITS, TEACHER)
    options = {**options, "top_k": options["top_k"] or CLASSES}
    np.testing.assert_allclose(out.loss, apart(MEAN, **options), rtol=3e-6)


def test_the_released_form_is_a_mean_without_the_label_and_knows_no_top_k():
    excess = np.maximum(np.abs(LOGITS[0] - MEAN) - 0.2, 1e-7) ** 2
    excess[np.arange(EXAMPLES), LABELS] = 0.0
    for k in (1, 10):
        method = ELODI(alpha=1.0, form="release", margin=0.2, top_k=k)
        out, _, _ = outcome(method, LOGITS, TEACHER)
        np.testing.assert_allclose(out.loss, np.mean(excess.mean(-1)), rtol=3e-6)


def test_an_old_model_of_fewer_classes_is_followed_on_those():
    old = OLD[:1].copy()
    old[..., [0, 3]] = UNKNOWN_LOGIT
    known = np.array([1, 2, 4])
    for k in (2, 0):
        method = ELODI(alpha=1.0, mix=0.0, top_k=k)
        out, gradient, _ = outcome(method, LOGITS, np.concatenate([TEACHER, old]), 1)
        expected = apart(old[0][:, known], LOGITS[0][:, known], top_k=k or CLASSES)
        np.testing.assert_allclose(out.loss, expected, rtol=3e-6)
        np.testing.assert_array_equal(gradient[0][:, [0, 3]], 0.0)


def test_classes_that_the_student_does_not_have_are_ignored():
    narrow = LOGITS.copy()
    narrow[..., 2] = UNKNOWN_LOGIT
    rest = np.array([0, 1, 3, 4])
    out, _, _ = outcome(ELODI(alpha=1.0), narrow, TEACHER)
    expected = apart(MEAN[:, rest], LOGITS[0][:, rest], top_k=CLASSES)
    np.testing.assert_allclose(out.loss, expected, rtol=3e-6)
