"""Losses at their limits: extremes, equal models, impossible and unknown classes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax import losses
from tests import reference_losses as reference
from tests.losses.cases import evaluate, value_of
from tests.refusals import refusals

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- one prediction and its label


def test_binary_logits_are_the_logistic_model():
    z = np.float32([[-3.0, -1.0, 0.0], [3.0, 1.0, 0.0]])
    logits = jax.device_get(losses.binary_logits(z))
    np.testing.assert_array_equal(logits, np.stack([np.zeros_like(z), z], -1))
    ones = np.ones(z.shape, np.int32)
    clicked, _ = evaluate(losses.cross_entropy, logits=logits, labels=ones)
    np.testing.assert_allclose(clicked, np.logaddexp(0, -z), rtol=2e-6)
    assert losses.binary_logits(jnp.zeros(3, jnp.bfloat16)).dtype == jnp.float32


REGULARIZERS = {"entropy": losses.entropy, "skl": losses.uniform_symmetric_kl}


def regularizer(name, z, top_k=None):
    """Value and gradient of rows `[B, 4]`, repeated to 64: compiled once."""
    rows = np.arange(64) % len(z)
    value, grad = evaluate(REGULARIZERS[name], logits=np.float32(z)[rows], top_k=top_k)
    return value[: len(z)], grad["logits"][: len(z)]


def test_uniform_is_the_extreme_of_both_and_one_hot_the_other():
    sizes = [0.0, 10.0, 100.0, 1e4]
    z = 7.0 + np.array(sizes)[:, None] * np.eye(4)[0]
    h, skl = (regularizer(name, z)[0] for name in ("entropy", "skl"))
    np.testing.assert_allclose(h[0], np.log(4.0), rtol=1e-6)
    np.testing.assert_allclose(skl[0], 0.0, atol=1e-7)
    assert 0.0 < h[1] < 2e-3 and not np.any(h[2:])
    # log f = -s for three of four classes: 3/4 (s - log 4) + 3/4 log 4 = 3/4 s.
    np.testing.assert_allclose(skl[2:], [75.0, 7500.0], rtol=1e-5)
    assert 0 < skl[1] < skl[2]


@pytest.mark.parametrize("top_k", [None, 3])
def test_skl_is_unbounded_but_its_gradient_is_bounded(rng, top_k):
    for size in (0.0, 1.0, 30.0, 1e3, 1e4):  # below -5000 lie unknown classes
        z = (size * np.maximum(rng.normal(size=(64, 4)), -0.49)).astype(np.float32)
        _, grad = regularizer("skl", z, top_k)
        assert np.max(np.abs(grad)) <= 1.0 + np.log(4.0)
        if top_k is None:
            log_f = log_softmax(np.float64(z), -1)
            f, h = np.exp(log_f), regularizer("entropy", z)[0][:, None]
            np.testing.assert_allclose(grad, f * (log_f + h) + f - 0.25, atol=2e-6)


def test_impossible_classes_add_nothing_to_entropy():
    z, expected = [[1.0, 0.0, -np.inf, -np.inf]], reference.entropy([[1.0, 0.0]])
    for top_k in (None, 2, 4):
        value, grad = regularizer("entropy", z, top_k)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert np.all(np.isfinite(grad))
        value, grad = regularizer("skl", z, top_k)
        assert np.all(np.isfinite(grad)) if top_k == 2 else np.isposinf(value)


# ---- two models


def distances(a, b):
    """Value and gradients in `a` and `b` of the distances of a pair."""
    a, b = (np.atleast_2d(np.float32(x)) for x in (a, b))
    cross = {"target_logits": a, "logits": b}
    found = {
        "l1": evaluate(losses.l1, logits_a=a, logits_b=b),
        "skl": evaluate(losses.symmetric_kl, logits_a=a, logits_b=b),
        "cross": evaluate(losses.cross_entropy_between, **cross),
    }
    keys = {"cross": ("target_logits", "logits")}
    return {
        name: (value, [grad[k] for k in keys.get(name, ("logits_a", "logits_b"))])
        for name, (value, grad) in found.items()
    }


def test_impossible_classes_of_a_pair():
    # For both: they add nothing and have no gradient.
    found = distances([1.0, 0.0, -np.inf], [0.0, 2.0, -np.inf])
    a, b = np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])
    plain = {"l1": reference.l1(a, b), "skl": reference.symmetric_kl(a, b)}
    plain["cross"] = reference.cross_entropy_between(target_logits=a, logits=b)
    for name, (value, gradients) in found.items():
        np.testing.assert_allclose(value, plain[name], rtol=2e-6)
        assert all(np.all(np.isfinite(g)) and g[0, 2] == 0.0 for g in gradients)
    # For one only: infinitely far, except under a target that excludes it itself.
    found = distances([1.0, 0.0, 0.0], [0.0, 2.0, -np.inf])
    assert found["skl"][0] == found["cross"][0] == np.inf
    swapped = distances([0.0, 2.0, -np.inf], [1.0, 0.0, 0.0])
    assert np.isfinite(swapped["cross"][0])
    # e^-200 is 0 in float32 although its logarithm is finite: no nan.
    found = distances([0.0, 0.0, -200.0], [1.0, 0.0, -np.inf])
    expected = reference.symmetric_kl([[0.0, 0.0]], [[1.0, 0.0]])
    np.testing.assert_allclose(found["skl"][0], expected, rtol=2e-6)
    assert np.isfinite(found["cross"][0])
    assert all(np.all(np.isfinite(g)) for _, pair in found.values() for g in pair)


def test_a_nan_is_not_hidden():
    a = np.float32([[1.0, np.nan, 0.0]])
    assert all(np.isnan(value) for value, _ in distances(a, a[:, ::-1]).values())
    z = np.float32([[1.0, np.nan, 0.0, 0.0]])
    assert all(np.isnan(regularizer(name, z, 2)[0]) for name in REGULARIZERS)


def distill(s, t, temperature=1.0):
    value, grad = evaluate(
        losses.distillation_kl,
        student_logits=np.float32(s),
        teacher_logits=np.float32(t),
        temperature=np.float32(temperature),
    )
    return value, grad["student_logits"], grad["temperature"]


@pytest.fixture
def pair(rng):
    """A student's and a teacher's logits."""
    return rng.normal(scale=2.0, size=(2, 64, 10)).astype(np.float32)


def test_limits_of_the_temperature(pair):
    s, t = pair
    # Hot is logit matching; the next term is of order 1 / temperature; float32 adds
    # 1e4 * 1e-7.
    matching = np.sum(((s - t) - np.mean(s - t, -1, keepdims=True)) ** 2, -1) / 20
    hot = distill(s, t, 100.0)[0]
    np.testing.assert_allclose(hot, matching, rtol=0.05, atol=5e-3)
    # Cold: tau^2 KL -> tau (max s - s_y), y the teacher's class; 0 where they agree.
    gap = np.max(s, -1) - np.take_along_axis(s, np.argmax(t, -1)[:, None], -1)[:, 0]
    assert 20 < np.sum(gap > 0) < 64
    cold = distill(s, t, 1e-3)[0]
    np.testing.assert_allclose(cold, 1e-3 * gap, rtol=1e-2, atol=2e-5)
    # It can be differentiated.
    slope = distill(s, t, 2.0)[2]
    below, above = (np.sum(distill(s, t, tau)[0]) for tau in (1.98, 2.02))
    np.testing.assert_allclose(slope, (above - below) / 0.04, rtol=1e-2)


# ---- a student that is a Dirichlet distribution


def dirichlet_nll(s, t, smoothing=1e-4):
    """Value and gradient of rows `[B, 3]` for one teacher, or for three `[3, B, 3]`.

    Repeated to four rows and three teachers, for which it is compiled once.
    """
    rows, teachers = np.arange(4) % len(s), np.arange(3) % len(t)
    value, grad = evaluate(
        losses.dirichlet_nll,
        student_logits=np.float32(s)[rows],
        teacher_logits=np.float32(t)[teachers][:, rows],
        smoothing=np.float32(smoothing),
    )
    return value[: len(s)], grad["student_logits"][: len(s)]


def test_the_precision_of_a_dirichlet_keeps_its_digits():
    # lgamma(1e6) is 1e7, of which float32 keeps ones: the naive sum is off by several.
    s = np.log(np.array([[3e5, 6e5, 1e5], [2e6, 5e5, 5e5]])).astype(np.float32)
    value, _ = dirichlet_nll(s, s[None], smoothing=0.0)
    # What is left is the precision times the rounding of log probabilities.
    expected = reference.dirichlet_nll(s, s[None], smoothing=0.0)
    np.testing.assert_allclose(value, expected, atol=0.5)
    assert np.all(value < -10.0)
    # A low precision, and both sides of the series.
    s = np.log(np.array([[1e-6, 1e-3, 0.5], [7.99, 8.01, 8.0]])).astype(np.float32)
    t = np.float32([[[1.0, 0.0, 0.5]] * 2])
    expected = reference.dirichlet_nll(s, t)
    np.testing.assert_allclose(dirichlet_nll(s, t)[0], expected, rtol=2e-6, atol=5e-6)


def test_a_dirichlet_is_pulled_back_beyond_the_largest_concentration():
    s = [[500.0, 0.0, 3.0], [-500.0, -600.0, -550.0], [40.0, 39.0, 0.0]]
    value, grad = dirichlet_nll(s, [[[1.0, 0.0, 0.0]] * 3])
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(np.square(grad)))
    assert grad[0, 0] > 1e9  # a wrong and far too precise student comes down
    assert np.sum(grad[1]) < -1.0  # one without any precision goes up
    # The factor is smooth at the largest concentration, e^30.
    s = [[29.999, 28.999, 0.0], [30.001, 29.001, 0.0]]
    _, grad = dirichlet_nll(s, [[[0.0, 1.0, 0.0]] * 2])
    below, above = np.sum(grad / np.exp(30.0), -1)
    np.testing.assert_allclose(below, above, rtol=3e-3)


# ---- an old model and its classes


def unknown_to(z, *classes):
    z = np.array(z, np.float32)
    z[..., list(classes)] = UNKNOWN_LOGIT
    return z


@pytest.mark.parametrize(
    "loss",
    [
        losses.uniform_symmetric_kl,
        partial(losses.uniform_symmetric_kl, top_k=4),
        lambda z: losses.label_smoothing(z, jnp.ones(len(z), int), 0.2),
        lambda z: losses.dirichlet_nll(student_logits=z, teacher_logits=z[None, ::-1]),
    ],
)
def test_a_loss_over_all_classes_is_that_of_a_network_without_unknown_ones(loss):
    known = [0, 1, 3, 4]
    z = unknown_to(normal(3, 6, 5), 2)
    slope = jax.jit(jax.value_and_grad(lambda z: jnp.sum(loss(z))))
    (value, grad), (expected, of_known) = slope(z), slope(z[:, known])
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grad[:, known], of_known, rtol=1e-5, atol=1e-6)
    assert not np.any(grad[:, 2])


def test_a_class_the_old_model_does_not_know_costs_nothing_and_pulls_nothing():
    old, labels = np.log([[1.0, 2.0, 3.0], [4.0, 1.0, 1.0]]), np.array([2, 0])
    new = np.log([[5.0, 7.0, 2.0], [1.0, 6.0, 2.0]])
    old = unknown_to(old, 2)  # the first example's class
    bct, of_bct = evaluate(
        losses.backward_compatible, old_head_logits=old, labels=labels
    )
    roles = {"old_head_logits": old, "labels": labels}
    value, of_ract = evaluate(losses.ract, **roles, new_logits=np.float32(new))
    np.testing.assert_allclose(bct, [0.0, np.log(5 / 4)], rtol=1e-6)
    np.testing.assert_allclose(value, [0.0, np.log(13 / 4)], rtol=1e-6)
    for slope in (*of_bct.values(), *of_ract.values()):
        np.testing.assert_array_equal(slope[0], np.zeros(3))
        assert np.all(np.isfinite(slope[1])) and np.any(slope[1] != 0)
    # Without new negatives the two are one.
    none, _ = evaluate(losses.ract, **roles, new_logits=unknown_to(new, 0, 1, 2))
    np.testing.assert_array_equal(none, bct)


FOCAL = {"kl": losses.focal_kl, "logits": losses.focal_logit_matching}
both = pytest.mark.parametrize("name", FOCAL)


def focal(name, s, o, y, **options):
    roles = {"student_logits": np.float32(s), "old_logits": np.float32(o), "labels": y}
    value, grad = evaluate(FOCAL[name], **roles, **options)
    return value, grad["student_logits"]


@pytest.fixture
def drawn(rng):
    student, old = rng.normal(size=(2, 16, 5)).astype(np.float32)
    return student, old, rng.integers(0, 5, 16)


def test_examples_of_new_classes_keep_the_base_weight(drawn):
    weights = losses.focal_weights(unknown_to(drawn[1], 4), np.full(16, 4))
    np.testing.assert_array_equal(weights, np.ones(16))


def test_at_the_published_temperature_kl_is_half_the_variance_of_the_difference(drawn):
    s, o, y = drawn
    value, _ = focal("kl", *drawn, beta=0.0)
    np.testing.assert_allclose(value, 0.5 * np.var(s - o, axis=-1), rtol=0.05)
    exact = reference.focal_kl(student_logits=s, old_logits=o, labels=y, beta=0.0)
    # tau^2 = 1e4 times the rounding of log-probabilities, 1e-7.
    np.testing.assert_allclose(value, exact, atol=3e-3)


@both
def test_classes_that_a_model_does_not_know_are_left_out(drawn, name):
    """Of the student's they would add 1e8, of which no gradient takes anything away."""
    s, o, y = drawn
    o[:, :3] += 9.0  # so that the old model is right or wrong as before
    y = y % 3
    options = {"temperature": 3.0} if name == "kl" else {}
    expected, _ = focal(name, s[:, :3], o[:, :3], y, **options)
    for sides in ((s, unknown_to(o, 3, 4)), (unknown_to(s, 3, 4), o)):
        value, grad = focal(name, *sides, y, **options)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_array_equal(grad[:, 3:], 0.0)
        assert np.all(np.abs(grad[:, :3]) > 0)
    value, grad = focal(name, s, unknown_to(o, *range(5)), y, **options)  # knows none
    assert not np.any(value) and not np.any(grad)


# ---- logit differences

S4 = np.float32([1.0, 4.0, 0.0, -2.0])
T4 = np.float32([3.0, 2.5, -1.0, -2.0])


def ldi(s, t, **options):
    roles = {"student_logits": np.float32(s), "teacher_logits": np.float32(t)}
    value, grad = evaluate(losses.logit_difference_inhibition, **roles, **options)
    return value, grad["student_logits"]


def test_ties_go_to_the_class_with_the_lowest_number():
    t = np.float32([0.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(ldi(t + 1.0, t, top_k=2)[1], [0.0, 2.0, 2.0, 0.0])


@pytest.mark.parametrize("order", [1, 1.5, 3])
def test_gradient_is_zero_at_equal_logits_and_within_the_margin(order):
    near = T4 + np.float32([0.0, 1e-30, -1e-6, 0.5])
    for margin in (np.float32(0.0), np.float32(0.5)):
        equal, close = (ldi(x, T4, order=order, margin=margin)[1] for x in (T4, near))
        np.testing.assert_array_equal(equal, np.zeros(4))
        assert np.all(np.isfinite(close))
    np.testing.assert_array_equal(close, np.zeros(4))  # all within the margin


@pytest.mark.parametrize("rank_by", ["teacher", "student"])
@pytest.mark.parametrize("top_k", [2, None])
def test_classes_the_teacher_does_not_know_never_count(rank_by, top_k):
    # The student ranks the unknown class 4 first; two known ones still count.
    s, t = np.append(S4, np.float32(9.0)), np.append(T4, np.float32(UNKNOWN_LOGIT))
    options = {"rank_by": rank_by, "top_k": top_k}
    value, grad = ldi(s, t, **options)
    assert grad[4] == 0.0
    fewer = {"student_logits": S4, "teacher_logits": T4}
    expected = reference.logit_difference_inhibition(**fewer, **options)
    np.testing.assert_allclose(value, expected)


def test_classes_the_teacher_does_not_know_are_left_out_of_the_released_mean():
    s, t = np.append(S4, np.float32(9.0)), np.append(T4, np.float32(UNKNOWN_LOGIT))
    released = partial(value_of, losses.released_logit_difference, labels=np.array(2))
    found = released(student_logits=s, teacher_logits=t)
    np.testing.assert_array_equal(found, released(student_logits=S4, teacher_logits=T4))


def test_a_teacher_with_fewer_classes_than_k_counts_those():
    value, grad = ldi(S4, unknown_to([3.0, 0, 0, -2.0], 1, 2), top_k=3)
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
    def loss(s, t):
        ldi = losses.logit_difference_inhibition
        return jnp.sum(ldi(student_logits=s, teacher_logits=t))

    shape = jax.ShapeDtypeStruct((4, 21841), jnp.float32)
    jaxpr = jax.make_jaxpr(jax.jit(jax.value_and_grad(loss)))(shape, shape)
    sizes = list(_outputs(jaxpr))
    assert len(sizes) > 20 and max(sizes) <= 4 * 21841


# ---- penalties between members


def penalty(name, z, **options):
    return value_of(getattr(losses, f"{name}_penalty"), outputs=z, **options)


def test_a_large_common_offset_costs_covariance_no_digits():
    z = np.random.default_rng(8).normal(size=(3, 32)).round(2)
    expected, offset = (penalty("covariance", np.float32(x)) for x in (z, z + 4096.0))
    # The offset itself rounds the outputs to 2.4e-4; E[zz] - E[z]E[z] would be off by
    # 1: its terms are 2^24, whose last bit is 2.
    np.testing.assert_allclose(offset, expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    ["correlation", "covariance", "residual_correlation", "orthogonalized_correlation"],
)
def test_too_large_outputs_give_inf_and_nan_is_seen(name):
    z = normal(9, 3, 16, 2)
    assert np.isfinite(penalty(name, np.float32(1e8) * z))
    assert penalty(name, np.float32(1e12) * z) == np.inf
    for size in (1e19, 1e25, 1e30):
        assert not np.isfinite(penalty(name, np.float32(size) * z))
    assert np.isnan(penalty(name, np.where(z > 2.0, np.float32(np.nan), z)))


@pytest.mark.parametrize("order", [1, 1.5, 2])
def test_equal_members_have_no_gradient(order):
    equal = np.repeat(normal(1, 1, 2), 3, axis=0)
    (value, grad), (reciprocal, other) = (
        evaluate(loss, outputs=equal, order=order)
        for loss in (losses.difference_penalty, losses.inverse_difference_penalty)
    )
    assert value == 0.0 and not np.any(grad["outputs"]) and not np.any(other["outputs"])
    np.testing.assert_allclose(reciprocal, 1e3, rtol=1e-6)


def test_too_large_differences_give_minus_inf():
    z = normal(8, 2, 8)
    assert np.isfinite(penalty("difference", np.float32(1e12) * z))
    assert penalty("difference", np.float32(1e20) * z) == -np.inf
    assert penalty("inverse_difference", np.float32(1e20) * z) == 0.0
    logits = np.float32(1e20) * z[..., None] * np.float32([1, 2])
    between = losses.cross_entropy_difference_penalty
    assert np.isfinite(value_of(between, logits=logits))


# ---- what is refused

Z, Y = np.zeros((4, 5), np.float32), np.zeros(4, np.int32)
MEMBERS = np.ones((3, 8), np.float32)
VOTES, SHARES = np.zeros((4, 8), int), np.ones((4, 3, 3), np.float32)
PRIOR = SHARES[0, 0]
EMPTY = losses.MomentState.empty(3, (2,))


def beliefs(votes=VOTES, shares=SHARES, **options):
    return losses.bayesian_update_targets(votes, shares, **options)


taught = partial(losses.distillation_kl, teacher_logits=Z, student_logits=Z)
spread = partial(losses.dirichlet_nll, teacher_logits=Z[None], student_logits=Z)
ldi_of = partial(losses.logit_difference_inhibition, **taught.keywords)
LABELLED = (
    partial(losses.cross_entropy, Z),
    partial(losses.focal_kl, student_logits=Z, old_logits=Z),
    partial(losses.focal_logit_matching, student_logits=Z, old_logits=Z),
    partial(losses.released_logit_difference, **taught.keywords),
    partial(losses.backward_compatible, Z),
)


def numbers(loss, option, message, *wrong):
    """Numbers of an option that are out of range."""
    return [(partial(loss, **{option: x}), message.format(x)) for x in wrong]


test_what_does_not_fit_is_refused = refusals(
    *((partial(f, labels=Y[1:]), r"\(4,\); got \(3,\).*\(4, 5\)") for f in LABELLED),
    *((partial(f, labels=Z.astype(int)), r"\(4,\); got \(4, 5") for f in LABELLED),
    *((partial(f, labels=Z[:, 0]), "integers; got float32") for f in LABELLED),
    (partial(losses.binary_logits, Y), "log-odds; got int32"),
    *(
        row
        for f in (partial(loss, Z) for loss in REGULARIZERS.values())
        for row in (
            *numbers(f, "top_k", "number of classes, 5; got {}", 0, -1, 6),
            *numbers(f, "top_k", r"Python int.*got (float|bool)", 2.0, True),
        )
    ),
    *numbers(taught, "temperature", "temperature must be positive", 0.0, -1.0, np.nan),
    *numbers(taught, "temperature", "and finite; got {}", np.inf, jnp.float32(-2)),
    *numbers(spread, "temperature", "temperature must be positive", 0.0),
    (partial(taught, temperature=Z[0]), r"scalar; got shape \(5,\)"),
    (partial(spread, temperature=Z[0]), r"temperature must be a scalar.*\(5,\)"),
    (partial(spread, smoothing=1.5), "smoothing must be between 0 and 1; got 1.5"),
    (partial(spread, teacher_logits=Z), r"\[T, \.\.\., C\].*\(4, 5\) over \(4, 5\)"),
    (partial(spread, teacher_logits=Z[None][:0]), "at least one teacher"),
    (partial(spread, teacher_logits=Z[None, :, 1:]), r"one teacher's must.*\(4, 4\)"),
    *numbers(ldi_of, "top_k", "top_k must be a whole .*; got {}", -1, True, 2.0),
    (partial(ldi_of, order=0.5), "finite number of at least 1; got 0.5"),
    (partial(ldi_of, rank_by="old"), "teacher, student; got 'old'"),
    *numbers(ldi_of, "margin", "margin must be at least 0; got {}", -1, np.float32(-1)),
    *numbers(
        partial(losses.label_smoothing, Z, Y),
        "smoothing",
        "smoothing must be between 0 and 1; got {}",
        *(2, -1.0, np.nan, np.float32(2)),
    ),
    *numbers(
        beliefs, "cost_ratio", "cost_ratio must be at least 0; got {}", -1, np.nan
    ),
    *numbers(
        partial(losses.difference_penalty, MEMBERS),
        "order",
        "finite number of at least 1; got {}",
        *(0, 0.5, -1, np.inf, np.nan),
    ),
    *numbers(
        partial(losses.inverse_difference_penalty, MEMBERS),
        "epsilon",
        "epsilon must be above 0; got {}",
        *(0, -1.0, np.nan, np.float32(-1)),
    ),
    (partial(beliefs, rule="map"), "mb, mbme, cr; got 'map'"),
    (partial(beliefs, VOTES[1:]), r"\(3, 8\) for confusions \(4, 3, 3\)"),
    (partial(beliefs, shares=SHARES[..., 0]), r"confusions must be .*\(4, 3\)"),
    (partial(beliefs, prior=PRIOR[:2]), r"prior must be .*\(3,\); got shape \(2,\)"),
    (partial(beliefs, PRIOR), "predictions must be class ids; got float32"),
    (partial(losses.confusion_counts, Y, Y[1:], 2), r"\(4,\) and \(3,\)"),
    *(
        (partial(EMPTY.update, MEMBERS, d), "decay must be at least 0 and below 1; got")
        for d in (1, np.float32(1), jnp.float32(-1))
    ),
    (partial(EMPTY.update, MEMBERS, 0.5), "3 members and 1 classes; the state is for "),
    *(  # a single score
        (partial(losses.cross_entropy_difference_penalty, scores), "binary_logits")
        for scores in (MEMBERS[..., None], MEMBERS)
    ),
    *(
        (f, "positional")
        for f in (partial(losses.ract, Z, Z, Y), partial(losses.distillation_kl, Z, Z))
    ),
    error=(TypeError, ValueError),
)
