"""Methods that learn from old models: whom they follow, what they remember, refusals.

That each equals its equation is in `test_every_method.py`.
"""

import dataclasses
import functools
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.configuration.rows import Teaching
from churn_jax.methods import (
    ELODI,
    BayesianUpdate,
    ChurnConstraint,
    FocalDistillation,
    neighbour_targets,
)
from tests import reference_losses as reference
from tests.methods.cases import (
    CLASSES,
    COUNTS,
    EXAMPLES,
    OLD,
    TEACHER,
    KnownTeachers,
    batch_of,
    draw,
    labels_of,
    loss_of,
)
from tests.refusals import refusals

LOGITS = draw(0, 1, EXAMPLES, CLASSES).astype(np.float32)
LABELS = labels_of(0)
MASK = np.array([1, 0, 1, 1, 0, 1, 1, 1], np.float32)


def outcome(method, answers, olds, labels=LABELS, logits=LOGITS, memory=(), mask=MASK):
    """`LossOutput` of a method that `answers`, the last `olds` of them old, teach."""
    batch = batch_of(labels, mask).replace(memory=memory)
    teacher = KnownTeachers(jnp.asarray(answers), olds)
    return loss_of(method, logits, batch, teacher=teacher)


def test_a_margin_raises_the_logits_of_new_classes_alone():
    old = OLD[:1].copy()
    old[..., -2:] = UNKNOWN_LOGIT
    method = FocalDistillation(alpha=0.3, temperature=2.0, margin=1.5)
    plain = outcome(dataclasses.replace(method, margin=0.0), old, 1)
    found = outcome(method, old, 1)
    raised = LOGITS[0] + 1.5 * np.array([0, 0, 0, 1, 1])
    expected = reference.cross_entropy(raised, LABELS)[MASK > 0].mean()
    np.testing.assert_allclose(found.terms["cross_entropy"], expected, rtol=1e-6)
    np.testing.assert_array_equal(found.terms["focal_kl"], plain.terms["focal_kl"])
    # Nothing is new to an old model of all classes, nor without an old model.
    known = outcome(method, OLD[:1], 1)
    without = outcome(dataclasses.replace(method, margin=0.0), OLD[:1], 1)
    np.testing.assert_array_equal(known.loss, without.loss)


def test_the_multiplier_follows_the_limit_and_never_falls_below_zero():
    start = np.zeros(1, np.float32)
    method = ChurnConstraint(start=1.0, rate=0.3, limit=0.2)
    found = outcome(method, TEACHER, 0, memory=start)
    away = float(found.terms["divergence"])
    np.testing.assert_allclose(found.memory, 0.3 * (away - 0.2), rtol=1e-5)
    loose = dataclasses.replace(method, limit=away + 10.0)
    np.testing.assert_array_equal(outcome(loose, TEACHER, 0, memory=start).memory, -1.0)
    alone = outcome(loose, TEACHER, 0, memory=np.float32([-1.0]))
    np.testing.assert_array_equal(alone.loss, alone.terms["cross_entropy"])


def test_confusions_are_counted_as_batches_pass():
    method = BayesianUpdate(olds=2)
    after = outcome(method, OLD, 2, memory=COUNTS[:3]).memory
    expected = COUNTS[:3].copy()
    for counts, logits in zip(expected, [*OLD, LOGITS[0]], strict=True):
        for i in np.flatnonzero(MASK):
            counts[LABELS[i], np.argmax(logits[i])] += 1
    np.testing.assert_array_equal(after, expected)


def test_before_the_first_batch_the_old_prediction_stands():
    method = BayesianUpdate()
    memory = method.init_memory(CLASSES)
    assert memory.shape == (2, CLASSES, CLASSES) and np.all(memory > 0)
    out = outcome(method, OLD[:1], 1, memory=memory)
    values = reference.cross_entropy(LOGITS[0], np.argmax(OLD[0], -1))
    np.testing.assert_allclose(out.loss, np.mean(values[MASK > 0]), rtol=1e-6)
    other = outcome(method, OLD[:1], 1, (LABELS + 1) % CLASSES, memory=memory)
    assert other.loss == out.loss  # alpha = 1 leaves the labels out
    assert np.any(other.memory != out.memory)


def test_a_class_that_the_new_model_cannot_know_is_no_target():
    """The label is, where the old model's prediction stays and is such a class."""
    new = LOGITS.copy()
    new[..., -1] = UNKNOWN_LOGIT
    labels = np.minimum(LABELS, CLASSES - 2)
    sure = np.zeros((1, EXAMPLES, CLASSES), np.float32)
    sure[..., -1] = 9.0
    method = BayesianUpdate(cost_ratio=1e6)
    memory = jnp.stack([jnp.eye(CLASSES) + 0.1] * 2)
    out = outcome(method, sure, 1, labels=labels, logits=new, memory=memory)
    np.testing.assert_allclose(out.loss, out.terms["cross_entropy"], rtol=1e-6)


MEAN = np.mean(np.float64(TEACHER), axis=0)


@functools.partial(jax.jit, static_argnames="olds")
def followed(method, logits, answers, olds=0):
    """`LossOutput`, and its gradient in the student's logits."""

    def objective(logits):
        out = outcome(method, answers, olds, logits=logits, mask=np.ones(EXAMPLES))
        return out.loss, out

    gradient, out = jax.grad(objective, has_aux=True)(logits)
    return out, gradient


def apart(target, logits=LOGITS[0], rows=slice(None), **options):
    """The mean difference over examples, float64."""
    values = reference.logit_difference_inhibition(
        student_logits=logits, teacher_logits=target, **options
    )
    return np.mean(values[rows])


def test_the_mix_does_not_matter_where_there_is_one_reference():
    for answers, olds, name in ((TEACHER, 0, "ldi_ensemble"), (OLD, 2, "ldi_old")):
        losses = []
        for mix in (0.0, 0.9):
            method = ELODI(alpha=jnp.float32(1.0), mix=jnp.float32(mix))
            out, _ = followed(method, LOGITS, answers, olds)
            assert set(out.terms) == {"cross_entropy", name}
            losses.append(float(out.loss))
        assert losses[0] == losses[1] == float(out.terms[name])


def test_an_old_model_of_fewer_classes_is_followed_on_those():
    old = OLD[:1].copy()
    old[..., [0, 3]] = UNKNOWN_LOGIT
    known = np.array([1, 2, 4])
    for k in (2, 0):
        method = ELODI(alpha=1.0, mix=0.0, top_k=k)
        out, gradient = followed(method, LOGITS, np.concatenate([TEACHER, old]), 1)
        expected = apart(old[0][:, known], LOGITS[0][:, known], top_k=k or CLASSES)
        np.testing.assert_allclose(out.loss, expected, rtol=3e-6)
        np.testing.assert_array_equal(gradient[0][:, [0, 3]], 0.0)


def test_classes_that_the_student_does_not_have_are_ignored():
    narrow = LOGITS.copy()
    narrow[..., 2] = UNKNOWN_LOGIT
    rest = np.array([0, 1, 3, 4])
    out, _ = followed(ELODI(alpha=1.0), narrow, TEACHER)
    expected = apart(MEAN[:, rest], LOGITS[0][:, rest], top_k=CLASSES)
    np.testing.assert_allclose(out.loss, expected, rtol=3e-6)


def in_numpy(logits, labels, k, uniform):
    """Every distance in float64, the nearest in the order of examples."""
    logits = np.asarray(logits, np.float64)
    classes, targets = np.eye(logits.shape[1]), []
    for one in logits:
        near = np.argsort(((one - logits) ** 2).sum(-1), kind="stable")[:k]
        targets.append(classes[labels[near]].mean(0))
    return uniform / logits.shape[1] + (1 - uniform) * np.array(targets)


@pytest.mark.parametrize("k", [1, 4, 20, 37])
def test_targets_equal_numpy(k, rng):
    logits = rng.normal(size=(37, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 37)
    found = neighbour_targets(logits, labels, k, uniform=0.2)
    np.testing.assert_allclose(found, in_numpy(logits, labels, k, 0.2), atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)


def test_of_equal_logits_any_are_neighbours():
    equal = neighbour_targets(jnp.zeros((3, 2)), jnp.array([1, 0, 0]), 3)
    np.testing.assert_allclose(equal, [[2 / 3, 1 / 3]] * 3)


def test_distances_are_never_all_in_memory(rng):
    size = 20_000  # all distances would take 1.6 GB
    logits, labels = rng.normal(size=(size, 3)), np.zeros(size, int)
    tracemalloc.start()
    neighbour_targets(logits.astype(np.float32), labels, 5)
    assert tracemalloc.get_traced_memory()[1] < 40e6
    tracemalloc.stop()


Z, Y = np.zeros((3, 4), np.float32), np.zeros(3, int)

test_what_has_no_neighbours_is_refused = refusals(
    (np.stack([Z, Z]), np.stack([Y, Y]), 1, r"logits \[N, C\]"),
    (Z, Y, 4, "got .*, 4 and 0.0"),
    (Z, Y, 0, "at least 1; got 0"),
    (np.full_like(Z, np.nan), Y, 1, "needs finite logits"),
    (Z, Y - 1, 1, "labels from 0 to C - 1"),
    (Z, Y[1:], 1, r"\(3,\); got \(2,\)"),
    call=neighbour_targets,
)

test_a_row_without_an_offline_teacher_has_no_neighbours = refusals(
    ({"neighbours": 3}, r"neighbours needs teaching\.offline"),
    ({"offline": True, "uniform": 0.1}, r"neighbours needs teaching\.offline"),
    call=lambda options: Teaching(**options),
)
