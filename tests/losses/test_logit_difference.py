"""LDI by hand, the set of the top K, its gradient, orders, margins, unknown classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.losses import logit_difference_inhibition as ldi
from churn_jax.losses import released_logit_difference as released
from tests import reference_losses as reference

pytestmark = pytest.mark.usefixtures("strict_dtypes")

S = np.float32([1.0, 4.0, 0.0, -2.0])
T = np.float32([3.0, 2.5, -1.0, -2.0])


@functools.partial(jax.jit, static_argnames=("top_k", "order", "rank_by"))
def run(s, t, margin=0.0, **options):
    """The loss and its gradient in the student."""

    def loss(s):
        return ldi(student_logits=s, teacher_logits=t, margin=margin, **options)

    value, pull = jax.vjp(loss, s)
    return value, pull(jnp.ones_like(value))[0]


def student_gradient(s, t, **options):
    return np.asarray(run(np.float32(s), np.float32(t), **options)[1])


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
    np.testing.assert_allclose(run(S, T, **options)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
def test_one_class_less_than_all_leaves_out_the_lowest(rng, rank_by):
    s, t = rng.normal(size=(2, 16, 7)).astype(np.float32)
    full, _ = run(s, t, top_k=None)
    below, grad = run(s, t, top_k=6, rank_by=rank_by)
    lowest = np.argmin(t if rank_by == "teacher" else s, axis=-1)
    missing = np.take_along_axis((s - t) ** 2, lowest[:, None], -1)[:, 0]
    np.testing.assert_allclose(below + missing, full, rtol=2e-6)
    # The gradient is exactly zero outside the top K.
    inside = np.arange(7) != lowest[:, None]
    np.testing.assert_array_equal(grad[~inside], 0.0)
    np.testing.assert_allclose(grad[inside], (2 * (s - t))[inside], rtol=1e-6)


def test_ties_go_to_the_class_with_the_lowest_number():
    t = np.float32([0.0, 2.0, 2.0, 2.0])
    grad = student_gradient(t + 1.0, t, top_k=2)
    np.testing.assert_array_equal(grad, [0.0, 2.0, 2.0, 0.0])


@pytest.mark.parametrize("order", [1, 1.5, 2, 3])
def test_gradient_is_zero_at_equal_logits_and_within_the_margin(order):
    near = T + np.float32([0.0, 1e-30, -1e-6, 0.5])
    for margin in (0.0, 0.5):
        equal, close = (
            student_gradient(x, T, order=order, margin=margin) for x in (T, near)
        )
        np.testing.assert_array_equal(equal, np.zeros(4))
        assert np.all(np.isfinite(close))
    np.testing.assert_array_equal(close, np.zeros(4))  # all within the margin


def test_order_one_has_the_sign_as_its_gradient():
    np.testing.assert_array_equal(student_gradient(S, T, order=1), [-1, 1, 1, 0])


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
@pytest.mark.parametrize("top_k", [2, None])
def test_classes_the_teacher_does_not_know_never_count(rank_by, top_k):
    # The student ranks the unknown class 4 first; two known ones still count.
    s, t = np.append(S, np.float32(9.0)), np.append(T, np.float32(UNKNOWN_LOGIT))
    options = {"rank_by": rank_by, "top_k": top_k}
    value, grad = run(s, t, **options)
    np.testing.assert_array_equal(value, run(S, T, **options)[0])
    assert grad[4] == 0.0
    roles = {"student_logits": s, "teacher_logits": t}
    expected = reference.logit_difference_inhibition(**roles, **options)
    np.testing.assert_allclose(value, expected)


def test_a_teacher_with_fewer_classes_than_k_counts_those():
    t = np.float32([3.0, UNKNOWN_LOGIT, UNKNOWN_LOGIT, -2.0])
    value, grad = run(S, t, top_k=3)
    assert value == 4.0
    np.testing.assert_array_equal(grad, [-4.0, 0.0, 0.0, 0.0])


def _outputs(jaxpr):
    """Sizes of everything that a program computes, also inside of its parts."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for part in equation.params.values():
            if hasattr(part, "jaxpr"):
                yield from _outputs(part.jaxpr)


def test_top_k_of_many_classes_needs_no_array_larger_than_the_logits():
    shape = jax.ShapeDtypeStruct((4, 21841), jnp.float32)
    sizes = list(_outputs(jax.make_jaxpr(run)(shape, shape)))
    assert len(sizes) > 20 and max(sizes) <= 4 * 21841


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


@jax.jit
def run_released(s, t, labels, margin=1.0):
    def loss(s):
        return released(
            student_logits=s, teacher_logits=t, labels=labels, margin=margin
        )

    return jax.value_and_grad(loss)(s)


def test_released_form_by_hand():
    """Differences 2, 1.5, 1, 0 less 0.5, the label's left out, divided by C = 4."""
    value, grad = run_released(S, T, 1, 0.5)
    np.testing.assert_allclose(value, (1.5**2 + 0.5**2) / 4, rtol=1e-6)
    np.testing.assert_allclose(grad, [-0.75, 0.0, 0.25, 0.0], rtol=1e-6)
    # The floor stays where nothing differs.
    np.testing.assert_allclose(run_released(T, T, 0)[0], 0.75e-14, rtol=1e-5)
    # Classes that the teacher does not know are not counted.
    s, t = np.append(S, np.float32(9.0)), np.append(T, np.float32(UNKNOWN_LOGIT))
    np.testing.assert_array_equal(run_released(s, t, 2)[0], run_released(S, T, 2)[0])
    with pytest.raises(ValueError, match=r"labels must have the shape.*\(2,\)"):
        released(student_logits=S, teacher_logits=T, labels=np.zeros(2, int))


def test_the_two_forms_differ_by_more_than_a_factor(rng):
    """At alpha = 0.8 of both, one is not the other with another weight."""
    s, t = rng.normal(size=(2, 32, 100)).astype(np.float32)
    roles = {"student_logits": s, "teacher_logits": t}
    paper = jax.jit(lambda: ldi(**roles))()
    code = jax.jit(lambda: released(**roles, labels=np.zeros(32, int), margin=0.0))()
    ratio = np.asarray(paper / code)
    assert ratio.min() > 2.0 and ratio.max() / ratio.min() > 1.5
