"""LDI by hand, the set of the top K, its gradient, orders, margins, unknown classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import logit_difference_inhibition as ldi
from churn_jax.losses import released_logit_difference as released
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

S = jnp.array([1.0, 4.0, 0.0, -2.0])
T = jnp.array([3.0, 2.5, -1.0, -2.0])


def gradient(s, t, **options):
    def total(s):
        return jnp.sum(ldi(student_logits=s, teacher_logits=t, **options))

    return jax.grad(total)(s)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Differences 2, 1.5, 1, 0; the teacher's ranking is 0, 1, 2, 3.
        ({"top_k": 1}, 4.0),
        ({"top_k": 2}, 6.25),
        ({"top_k": None}, 7.25),
        ({"top_k": 0}, 7.25),
        ({"top_k": 9}, 7.25),
        ({}, 7.25),  # the paper's 10 is more than these
        ({"top_k": 1, "rank_by": "student"}, 2.25),  # its highest is class 1
        ({"top_k": 2, "order": 1}, 3.5),
        ({"top_k": 2, "order": 3}, 8 + 3.375),
        ({"top_k": None, "margin": 1.25}, 0.75**2 + 0.25**2),
        ({"top_k": None, "margin": 1.25, "order": 1}, 1.0),
    ],
)
def test_by_hand(options, expected):
    value = ldi(student_logits=S, teacher_logits=T, **options)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
def test_top_k_of_all_classes_equals_the_full_sum(rng, rank_by):
    s, t = rng.normal(size=(2, 6, 7)).astype(np.float32)
    full = ldi(student_logits=s, teacher_logits=t, top_k=None)
    at_c = ldi(student_logits=s, teacher_logits=t, top_k=7, rank_by=rank_by)
    np.testing.assert_array_equal(at_c, full)
    # One class less takes the sorting path; the missing one is the lowest.
    below = ldi(student_logits=s, teacher_logits=t, top_k=6, rank_by=rank_by)
    lowest = np.argmin(t if rank_by == "teacher" else s, axis=-1)
    missing = np.take_along_axis((s - t) ** 2, lowest[:, None], -1)[:, 0]
    np.testing.assert_allclose(below + missing, full, rtol=2e-6)


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
def test_gradient_is_exactly_zero_outside_the_top_k(rng, rank_by):
    s, t = rng.normal(size=(2, 16, 9)).astype(np.float32)
    g = np.asarray(gradient(s, t, top_k=3, rank_by=rank_by))
    ranked = t if rank_by == "teacher" else s
    inside = np.argsort(np.argsort(-ranked, -1), -1) < 3
    np.testing.assert_array_equal(g[~inside], 0.0)
    np.testing.assert_allclose(g[inside], (2 * (s - t))[inside], rtol=1e-6)


def test_ties_go_to_the_class_with_the_lowest_number():
    t = jnp.array([0.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(gradient(t + 1.0, t, top_k=2), [0.0, 2.0, 2.0, 0.0])


@pytest.mark.parametrize("order", [1, 1.5, 2, 3])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gradient_is_zero_at_equal_logits_and_within_the_margin(order, margin):
    g = gradient(T, T, order=order, margin=margin)
    np.testing.assert_array_equal(g, np.zeros(4))
    near = T + jnp.array([0.0, 1e-30, -1e-6, 0.5])
    g = gradient(near, T, order=order, margin=margin)
    assert np.all(np.isfinite(g))
    if margin:
        np.testing.assert_array_equal(g, np.zeros(4))


def test_order_one_has_the_sign_as_its_gradient():
    np.testing.assert_array_equal(gradient(S, T, order=1), [-1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
@pytest.mark.parametrize("top_k", [2, None])
def test_classes_the_teacher_does_not_know_never_count(rank_by, top_k):
    # The student ranks the unknown class 4 first; two known ones still count.
    s, t = jnp.append(S, 9.0), jnp.append(T, UNKNOWN_LOGIT)
    options = {"rank_by": rank_by, "top_k": top_k}
    np.testing.assert_array_equal(
        ldi(student_logits=s, teacher_logits=t, **options),
        ldi(student_logits=S, teacher_logits=T, **options),
    )
    assert gradient(s, t, **options)[4] == 0.0
    np.testing.assert_allclose(
        ldi(student_logits=s, teacher_logits=t, **options),
        reference.logit_difference_inhibition(
            student_logits=s, teacher_logits=t, **options
        ),
    )


def test_a_teacher_with_fewer_classes_than_k_counts_those():
    t = jnp.array([3.0, UNKNOWN_LOGIT, UNKNOWN_LOGIT, -2.0])
    assert ldi(student_logits=S, teacher_logits=t, top_k=3) == 4.0
    np.testing.assert_array_equal(gradient(S, t, top_k=3), [-4.0, 0.0, 0.0, 0.0])


def _outputs(jaxpr):
    """Sizes of everything that a program computes, also inside of its parts."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for part in equation.params.values():
            if hasattr(part, "jaxpr"):
                yield from _outputs(part.jaxpr)


def test_top_k_of_many_classes_needs_no_array_larger_than_the_logits():
    shape = jax.ShapeDtypeStruct((4, 21841), jnp.float32)

    def total(s, t):
        return jnp.sum(ldi(student_logits=s, teacher_logits=t))

    sizes = list(_outputs(jax.make_jaxpr(jax.grad(total))(shape, shape)))
    assert len(sizes) > 20 and max(sizes) <= 4 * 21841


def test_margin_can_be_swept():
    margins = jnp.array([0.0, 0.5, 1.25])

    def at(margin):
        return ldi(student_logits=S, teacher_logits=T, margin=margin)

    np.testing.assert_allclose(
        jax.vmap(at)(margins), [at(m) for m in (0.0, 0.5, 1.25)], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": -1}, "top_k must be a whole number .*; got -1"),
        ({"top_k": True}, "top_k must be a whole number .*; got True"),
        ({"top_k": 2.0}, "top_k must be a whole number .*; got 2.0"),
        ({"order": 0.5}, "order must be a finite number of at least 1; got 0.5"),
        ({"rank_by": "old"}, "teacher, student; got 'old'"),
        ({"margin": -0.1}, "margin must be at least 0; got -0.1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ldi(student_logits=S, teacher_logits=T, **options)


def test_released_form_by_hand():
    """Differences 2, 1.5, 1, 0 less 0.5, the label's left out, divided by C = 4."""
    label = jnp.array(1)
    value = released(student_logits=S, teacher_logits=T, labels=label, margin=0.5)
    np.testing.assert_allclose(value, (1.5**2 + 0.5**2) / 4, rtol=1e-6)

    def total(s):
        return released(student_logits=s, teacher_logits=T, labels=label, margin=0.5)

    np.testing.assert_allclose(jax.grad(total)(S), [-0.75, 0.0, 0.25, 0.0], rtol=1e-6)


def test_released_form_keeps_its_floor_at_equality():
    value = released(student_logits=T, teacher_logits=T, labels=jnp.array(0))
    np.testing.assert_allclose(value, 0.75e-14, rtol=1e-5)


def test_released_form_counts_the_classes_that_the_teacher_knows():
    s, t = jnp.append(S, 9.0), jnp.append(T, UNKNOWN_LOGIT)
    label = jnp.array(2)
    np.testing.assert_array_equal(
        released(student_logits=s, teacher_logits=t, labels=label),
        released(student_logits=S, teacher_logits=T, labels=label),
    )


def test_the_two_forms_differ_by_more_than_a_factor(rng):
    """At alpha = 0.8 of both, one is not the other with another weight."""
    s, t = rng.normal(size=(2, 32, 100)).astype(np.float32)
    labels = np.zeros(32, np.int32)
    paper = ldi(student_logits=s, teacher_logits=t)
    code = released(student_logits=s, teacher_logits=t, labels=labels, margin=0.0)
    ratio = np.asarray(paper / code)
    assert ratio.min() > 2.0 and ratio.max() / ratio.min() > 1.5


def test_labels_are_checked():
    with pytest.raises(ValueError, match=r"labels must have the shape.*\(2,\)"):
        released(student_logits=S, teacher_logits=T, labels=jnp.zeros(2, jnp.int32))
