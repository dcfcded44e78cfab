"""Every loss on a tiny case that was worked out by hand; the numbers are here."""

import functools

import jax
import numpy as np
import pytest

from churn_jax import losses
from tests.losses.cases import options_and_arrays, value_and_gradients

LOG2, LOG3 = np.log(2), np.log(3)
NEVER = -np.inf


def of(name, given, value, gradients=None, rtol=1e-6, **options):
    """A row: a loss, its arrays and options, its value, some of its gradients."""
    label = ",".join([name, *(f"{k}={v}" for k, v in options.items())])
    row = (getattr(losses, name), given | options, value, gradients or {}, rtol)
    return pytest.param(row, id=label)


def labelled(z, *labels):
    return {"logits": z, "labels": np.array(labels)}


def pair(a, b):
    return {"logits_a": a, "logits_b": b}


# Probabilities (1/2, 1/4, 1/4) and (1/4, 1/4, 1/2).
A, B = np.log([[2.0, 1.0, 1.0]]), np.log([[1.0, 1.0, 2.0]])
ONE, OTHER = 1e4 * np.eye(3)[:1], 1e4 * np.eye(3)[2:]
SURE, UNSURE = [30.0, 0.0, NEVER], [0.0, 0.0, NEVER]
# Classes that the type of the label cannot count.
FLAT, NARROW = np.zeros((1, 300)), {"labels": np.uint8([1])}
WIDE = {"logits": FLAT, **NARROW}
DYADIC = {"logits": np.log([[4.0, 2.0, 1.0, 1.0]])}  # (1/2, 1/4, 1/8, 1/8)

# RACT: (1 + 2 + 3 + 5 + 7) / 3 and (4 + 1 + 1 + 6 + 2) / 4. The new logit of the label
# is left alone.
OLD = np.log([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]])
NEW = np.log([[5.0, 7.0, 2.0], [1.0, 6.0, 2.0]])
HEADS = {"old_head_logits": OLD, "new_logits": NEW, "labels": np.array([2, 0])}
OF_NEW = np.array([[5.0, 7.0, 0.0], [0.0, 6.0, 2.0]]) / [[18.0], [14.0]]

# At tau = 2 the logits halve: teacher (2/3, 1/3), student (1/2, 1/2);
# 4 (2/3 log 4/3 + 1/3 log 2/3) = 4 (5/3 log 2 - log 3).
TEMPERED = 4 * (5 / 3 * LOG2 - LOG3)
TEACHER = [[*np.log([4.0, 1.0]), NEVER]]  # a class that both exclude adds nothing

# Differences 2, 1.5, 1, 0; the teacher's ranking is 0, 1, 2, 3.
LDI = {
    "student_logits": [1.0, 4.0, 0.0, -2.0],
    "teacher_logits": [3.0, 2.5, -1.0, -2.0],
}
SIGNS = {"student_logits": [-1, 1, 1, 0]}
RELEASED = LDI | {"labels": np.array(1)}
SAME = RELEASED | {"student_logits": LDI["teacher_logits"]}
# Right, wrong, and wrong: a tie is class 0.
VOTES = {"old_logits": [[2.0, 0.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]}
VOTES["labels"] = np.array([0, 2, 1])


def focal(student, old, *labels):
    models = {"student_logits": student, "old_logits": old}
    return models | {"labels": np.array(labels)}


# <1,2> = 1*3 + 2*(-1) = 1, <1,3> = 1*2 + 2*0 = 2, <2,3> = 3*2 + (-1)*0 = 6; k = 2.
# Deviations (-1/2, 1/2), (2, -2), (1, -1); products -1, -1/2 and 2.
# Averages (2, 1/3); residuals (-1, 5/3), (1, -4/3), (0, -1/3).
# Example differences: (1,2) 2, 3; (1,3) 1, 2; (2,3) 1, 1.
# q2 = (3, -1) - (1/5) (1, 2); the third vector lies in the plane of the others.
MEMBERS = {"outputs": [[1.0, 2.0], [3.0, -1.0], [2.0, 0.0]]}
RESIDUALS = np.array([(-1 - 20 / 9) / 2, (-5 / 9) / 2, (4 / 9) / 2])
# dL/dz1 = 2 (z1 . z2 / k) z2 / k = 2 * 1/2 * z2 / 2; k counts valid examples only.
PADDED = {
    "outputs": [[1.0, 2.0, 9.0, 9.0], [3.0, -1.0, 9.0, 9.0]],
    "mask": np.array([1, 1, 0, 0]),
}
OF_PADDED = [[1.5, -0.5, 0, 0], [0.5, 1.0, 0, 0]]


def differences(order, sums):
    """Both orders of a pair are equal: the mean over ordered pairs is over three."""
    mean = np.mean(sums) / 2
    reciprocal = "inverse_difference_penalty", MEMBERS, 1 / (0.5 + mean)
    return (
        of("difference_penalty", MEMBERS, -mean, order=order),
        of(*reciprocal, order=order, epsilon=0.5),
    )


ROWS = [
    of("cross_entropy", labelled(A, 0), [LOG2]),
    of("cross_entropy", {"logits": A, "labels": np.uint8([2])}, [2 * LOG2]),
    of(  # Huge logits keep their digits; an impossible class receives nothing.
        "cross_entropy",
        labelled([[1e4, 9999.0, NEVER]], 0),
        [np.log1p(np.exp(-1))],
        {"logits": [[-0.26894143, 0.26894143, 0.0]]},
    ),
    of("cross_entropy", labelled([[0.0, 0.0, 0.0]], 3), [np.nan]),  # not a class
    of("label_smoothing", labelled([UNSURE], 0), [LOG2], smoothing=0.0),
    of("label_smoothing", labelled([UNSURE], 2), [np.inf], smoothing=1.0),
    # As of cross-entropy: a negative label counts from the end.
    of("squared_error", labelled([*A, *A], -1, 3), [0.875, np.nan]),
    of("focal", labelled([*A, *A], -1, 3), [9 / 8 * LOG2, np.nan]),
    of("ract", HEADS | {"labels": np.array([-1, 3])}, [np.log(6), np.nan]),
    of("squared_error", WIDE, [299 / 300]),
    of("focal", WIDE, [(299 / 300) ** 2 * np.log(300)]),
    of("ract", {"old_head_logits": FLAT, "new_logits": FLAT} | NARROW, [np.log(599)]),
    of(
        "released_logit_difference",
        {"student_logits": FLAT + 2, "teacher_logits": FLAT} | NARROW,
        [299 / 300],
    ),
    of("l1", pair(A, B), [0.5]),
    of("l1", pair(ONE, OTHER), [2.0]),
    # 1/4 log 2 from the first class and 1/4 log 2 from the third.
    of("symmetric_kl", pair(A, B), [0.5 * LOG2]),
    of("symmetric_kl", pair(ONE, OTHER), [2e4]),  # twice the gap
    # -1/2 log 1/4 - 1/4 log 1/4 - 1/4 log 1/2 = (1 + 1/2 + 1/4) log 2.
    of("cross_entropy_between", {"target_logits": A, "logits": B}, [1.75 * LOG2]),
    of(  # The expectation is under the target.
        "cross_entropy_between",
        {"target_logits": [SURE, UNSURE], "logits": [UNSURE, SURE]},
        [LOG2, 15.0],
    ),
    of(
        "backward_compatible",
        {"old_head_logits": OLD, "labels": np.array([2, 0])},
        np.log([2.0, 1.5]),
    ),
    of("ract", HEADS, np.log([6.0, 3.5]), {"new_logits": OF_NEW}),
    of(
        "distillation_kl",
        {"student_logits": [UNSURE], "teacher_logits": TEACHER},
        [TEMPERED],
        rtol=2e-6,
        temperature=2.0,
    ),
    of(  # The expectation is under the teacher.
        "distillation_kl",
        {"student_logits": [UNSURE, SURE], "teacher_logits": [SURE, UNSURE]},
        [LOG2, 15.0 - LOG2],
    ),
    of(  # Dir(2, 1) has the density 2 p_1; the teachers say 1/2, 1/4 and 1/4.
        "dirichlet_nll",
        {
            "student_logits": np.log([[2.0, 1.0]]),
            "teacher_logits": np.log([[[1.0, 1.0]], [[1.0, 3.0]], [[1.0, 3.0]]]),
        },
        [2 / 3 * LOG2],
        rtol=2e-6,
        smoothing=0.0,
    ),
    of(  # Smoothed, the sure teacher is 0.8 (1, 0) + 0.2 (1/2, 1/2) = (0.9, 0.1).
        "dirichlet_nll",
        {"student_logits": np.log([[2.0, 1.0]]), "teacher_logits": [[[200.0, 0.0]]]},
        [-np.log(1.8)],
        rtol=2e-6,
        smoothing=0.2,
    ),
    of("logit_difference_inhibition", LDI, 7.25),  # the paper's 10 is more than these
    *(
        of("logit_difference_inhibition", LDI, value, **options)
        for value, options in (
            (4.0, {"top_k": 1}),
            (6.25, {"top_k": 2}),
            (7.25, {"top_k": None}),
            (7.25, {"top_k": 0}),
            (7.25, {"top_k": 9}),
            (2.25, {"top_k": 1, "rank_by": "student"}),  # its highest is class 1
            (3.5, {"top_k": 2, "order": 1}),
            (8 + 3.375, {"top_k": 2, "order": 3}),
            (0.75**2 + 0.25**2, {"top_k": None, "margin": 1.25}),
            (1.0, {"top_k": None, "margin": 1.25, "order": 1}),
        )
    ),
    of("logit_difference_inhibition", LDI, 4.5, SIGNS, order=1),
    of(  # Differences 2, 1.5, 1, 0 less 0.5, the label's left out, divided by C = 4.
        "released_logit_difference",
        RELEASED,
        (1.5**2 + 0.5**2) / 4,
        {"student_logits": [-0.75, 0.0, 0.25, 0.0]},
        margin=0.5,
    ),
    # The floor stays where nothing differs.
    of("released_logit_difference", SAME, 0.75e-14, rtol=1e-5, margin=1.0),
    of("released_logit_difference", SAME | {"labels": np.array(4)}, np.nan),
    of("focal_weights", VOTES, [6.0, 1.0, 1.0], {"old_logits": np.zeros((3, 3))}),
    of("focal_weights", VOTES, [2.0, 0.0, 0.0], alpha=0.0, beta=2.0),
    # Old (2/3, 1/3), student (1/2, 1/2); weight 6 where old is right.
    of(
        "focal_kl",
        focal(np.zeros((2, 2)), np.log([[4.0, 1.0]] * 2), 0, 1),
        [6 * TEMPERED, TEMPERED],
        rtol=2e-6,
        temperature=2.0,
    ),
    of(
        "focal_logit_matching",
        focal([[1.0, 1.0, 0.0]] * 2, [[3.0, 0.0, 1.0]] * 2, 0, 2),
        [12.0, 2.0],
    ),
    # 1/2 log 2 + 1/4 log 4 + 2/8 log 8 = (1/2 + 1/2 + 3/4) log 2.
    of("entropy", DYADIC, [1.75 * LOG2], rtol=2e-6),
    of("entropy", DYADIC, [LOG2], rtol=2e-6, top_k=2),
    of("entropy", DYADIC, [0.5 * LOG2], rtol=2e-6, top_k=1),
    # (f - 1/4) log 4f: 1/4 log 2 + 0 + 2 (-1/8)(-log 2) = 1/2 log 2.
    of("uniform_symmetric_kl", DYADIC, [0.5 * LOG2], rtol=2e-6),
    of("uniform_symmetric_kl", DYADIC, [0.25 * LOG2], rtol=2e-6, top_k=2),
    of("uniform_symmetric_kl", DYADIC, [0.375 * LOG2], rtol=2e-6, top_k=3),
    of("correlation_penalty", MEMBERS, 0.5**2 + 1.0**2 + 3.0**2),
    of("correlation_penalty", PADDED, 0.25, {"outputs": OF_PADDED}),
    of("covariance_penalty", MEMBERS, 1.0**2 + 0.5**2 + 2.0**2),
    of("residual_correlation_penalty", MEMBERS, np.sum(RESIDUALS**2)),
    *differences(1, (5, 3, 2)),
    *differences(2, (13, 5, 2)),
    *differences(3, (35, 9, 2)),
    of(
        "difference_penalty",
        {"outputs": MEMBERS["outputs"][:2], "mask": np.array([0, 1])},
        -9.0,
    ),
    of(  # H((.5,.5), (.8,.2)) = -(ln .8 + ln .2) / 2, H((.8,.2), (.5,.5)) = ln 2.
        "cross_entropy_difference_penalty",
        {"logits": np.log([[[0.5, 0.5]], [[0.8, 0.2]]])},
        -(-np.log(0.16) / 2 + LOG2) / 2,
    ),
    of("orthogonalize", MEMBERS, [[1.0, 2.0], [2.8, -1.4], [0.0, 0.0]]),
    # <q1, z2> = 1, <q1, z3> = 2, <q2, z3> = 5.6; k = 2.
    of("orthogonalized_correlation_penalty", MEMBERS, 0.25 + 1.0 + 2.8**2),
]


def of_row(row, arrays):
    """The value, and gradients where some are listed or where inputs are infinite."""
    loss, given, _, gradients, _ = row
    options, known = options_and_arrays(**given)
    if gradients or not all(np.all(np.isfinite(x)) for x in known.values()):
        return value_and_gradients(loss, options, arrays)
    return loss(**arrays, **options), {}


@functools.cache
def results():
    """Of every row, in one program."""
    rows = [row.values[0] for row in ROWS]
    program = jax.jit(lambda arrays: [of_row(*x) for x in zip(rows, arrays)])
    return jax.device_get(program([options_and_arrays(**row[1])[1] for row in rows]))


@pytest.mark.usefixtures("strict_dtypes")
@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_by_hand(number):
    _, _, expected, gradients, rtol = ROWS[number].values[0]
    value, found = results()[number]
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=1e-20)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(found[name], gradient, rtol=rtol, atol=1e-6)
    if np.all(np.isfinite(expected)):
        assert all(np.all(np.isfinite(g)) for g in found.values())
