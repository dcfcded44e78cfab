"""What holds for every method, row by row of the table in `cases.py`."""

import functools
import inspect
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax import methods
from churn_jax.ensembles import average_logits, average_probs
from churn_jax.methods import ERM, Method, MinimumEntropy, Perturbing, Ramp, Updating
from churn_jax.methods import AntiDistillation as Apart
from churn_jax.methods import Codistillation as Peers
from churn_jax.methods import OneToOneDistillation as Pushed
from tests.devices import over_devices
from tests.differences import difference_quotient
from tests.methods.cases import (
    CASES,
    CLASSES,
    EXAMPLES,
    OLD,
    TEACHER,
    KnownTeachers,
    batch_of,
    draw,
    evaluate,
    expected,
    known_logits,
    labels_of,
    logits_of,
    loss_of,
    plain_loss,
    teacher_of,
)
from tests.refusals import refusals

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
# Of four shards one holds nothing but padding, and one has some.
MASK = np.array([0, 0, 1, 1, 0, 1, 1, 1], np.float32)
VALID = np.flatnonzero(MASK)
SCALES = (0.0, 0.5, 1.25)


class Replica(NamedTuple):
    """What one replica of a case's program is given."""

    logits: np.ndarray
    labels: np.ndarray
    mask: np.ndarray = np.ones(EXAMPLES, np.float32)
    scale: float = 1.0  # of the coefficients


@functools.cache
def replicas_of(case):
    """By name; the names say for which test."""
    swept = zip(SCALES, logits_of(case, 6, replicas=len(SCALES)))
    return {
        "seed 0": Replica(logits_of(case, 0), labels_of(0)),
        "seed 1": Replica(logits_of(case, 1), labels_of(1)),
        "gradient": Replica(logits_of(case, 4, scale=1.0), labels_of(4), MASK),
        "padded": Replica(logits_of(case, 5), labels_of(5), MASK),
        "one device": Replica(logits_of(case, 7, scale=1.0), labels_of(7)),
        "huge": Replica(logits_of(case, 10, scale=1e4), labels_of(10)),
        **{f"times {s}": Replica(z, labels_of(6), scale=s) for s, z in swept},
    }


@functools.cache
def evaluated(case, padding=None):
    """`(loss, terms), gradient` of every replica, in one program.

    Args:
        case: the row of the table.
        padding: what masked examples of the student and of its teachers hold.
    """
    replicas = replicas_of(case)
    logits, labels, mask, scale = map(np.stack, zip(*replicas.values()))
    teacher = np.stack([teacher_of(case.method)] * len(replicas))
    if padding is not None:
        masked = (mask == 0)[:, None, :, None]
        logits, teacher = (
            np.where(masked, np.float32(padding), x) for x in (logits, teacher)
        )
    found = evaluate(case, logits, labels, mask, teacher, scale)
    names = enumerate(replicas)
    return {name: jax.tree.map(lambda x, r=r: x[r], found) for r, name in names}


@every_case
def test_loss_equals_the_equation_in_float64(case):
    for seed in ("seed 0", "seed 1"):
        (loss, terms), _ = evaluated(case)[seed]
        logits, labels, *_ = replicas_of(case)[seed]
        np.testing.assert_allclose(loss, expected(case, logits, labels), rtol=3e-6)
        assert set(terms) == case.terms
        for scalar in (loss, *terms.values()):
            assert scalar.shape == () and scalar.dtype == jnp.float32


@every_case
def test_gradient_equals_a_float64_difference_and_masked_rows_change_nothing(case):
    logits, labels, *_ = replicas_of(case)["gradient"]
    (loss, _), gradient = evaluated(case)["gradient"]
    np.testing.assert_allclose(loss, expected(case, logits, labels, rows=VALID), 3e-6)

    def objective(moved):
        return expected(case, moved, labels, rows=VALID, fixed=logits)

    numeric = difference_quotient(objective, logits)
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)
    np.testing.assert_array_equal(gradient[:, MASK == 0], 0.0)


@every_case
def test_non_finite_padding_does_not_leak(case):
    for junk in (np.nan, np.inf):
        dirty = evaluated(case, junk)
        jax.tree.map(np.testing.assert_array_equal, dirty, evaluated(case))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.coefficients], ids=lambda c: c.name
)
def test_coefficients_differ_between_replicas_under_vmap(case):
    for scale in SCALES:
        options = {k: v * scale for k, v in case.coefficients.items()}
        if options.get("temperature") == 0:  # is not an objective
            continue
        logits, labels, *_ = replicas_of(case)[f"times {scale}"]
        (loss, _), _ = evaluated(case)[f"times {scale}"]
        wanted = expected(case, logits, labels, **options)
        np.testing.assert_allclose(loss, wanted, rtol=3e-6)


def test_eight_devices_with_uneven_padding_give_the_global_objective():
    """One device of eight holds nothing but padding; others hold one or two rows."""
    (case,) = (c for c in CASES if "penalty=correlation" in c.name)
    logits, labels, *_ = replicas_of(case)["one device"]
    mask = np.ones(2 * EXAMPLES, np.float32)
    mask[[2, 3, 4, 9, 14]] = 0.0
    rows = np.flatnonzero(mask) % EXAMPLES
    twice = np.tile(logits, (1, 2, 1))
    twice[:, mask == 0] = np.nan

    def local(method, logits, labels, mask):
        def objective(logits):
            return plain_loss(method, logits, batch_of(labels, mask, "data")).loss

        return jax.value_and_grad(objective)(logits)

    members, examples = P(None, "data"), P("data")
    specs = (P(), members, examples, examples)
    loss, gradient = over_devices(local, *specs, out=(P(), members))(
        jax.tree.map(jnp.float32, case.method),
        twice,
        np.tile(labels.astype(np.int32), 2),
        mask,
    )
    np.testing.assert_allclose(loss, expected(case, logits, labels, rows=rows), 3e-6)
    numeric = difference_quotient(
        lambda moved: expected(case, moved, labels, rows=rows), logits
    )
    # Both copies of an example have half of its gradient, or one of them all of it.
    np.testing.assert_array_equal(gradient[:, mask == 0], 0.0)
    both = gradient[:, :EXAMPLES] + gradient[:, EXAMPLES:]
    np.testing.assert_allclose(both, numeric, atol=2e-6)


@every_case
def test_leaves_are_the_coefficients_and_nothing_else(case):
    marked = jax.tree.map(lambda _: "coefficient", case.method)
    for name in case.coefficients:
        assert getattr(marked, name) == "coefficient"
    for name in ("members", "deploy", "deployed_member"):
        assert getattr(marked, name) == getattr(case.method, name)
    leaves, treedef = jax.tree.flatten(case.method)
    assert treedef.unflatten(leaves) == case.method


@every_case
def test_loss_is_finite_at_huge_logits(case):
    (loss, terms), gradient = evaluated(case)["huge"]
    assert np.isfinite(loss) and all(np.isfinite(t) for t in terms.values())
    assert np.all(np.isfinite(gradient))
    # A gradient in a logit is 1/n of cross-entropy's (at most 1) plus SKL's, which is
    # linear in the gaps of the logits, and those are below 1e5 here.
    assert np.max(np.abs(gradient)) < case.steepest


def test_every_public_method_is_in_the_table():
    public = {
        value
        for name in methods.__all__
        if inspect.isclass(value := getattr(methods, name))
        and issubclass(value, Method)
        and value not in (Method, Perturbing, Updating)
    }
    assert public == {type(c.method) for c in CASES}


METHODS = sorted({type(c.method) for c in CASES}, key=str)
TAUGHT = [cls for cls in METHODS if cls.needs_teacher or cls.old_models]


FROM_OLD = (methods.BackwardCompatible, methods.RACT, methods.BayesianUpdate)
MEMORY = "keeps the method's memory"
OWN = "2 members need a teacher each and {} external ones; got 3 teachers"
THREE_TEACHERS = np.zeros((3, EXAMPLES, CLASSES)), 0


def without_features(variables, images, extras):
    return known_logits(variables, images)


def loss_from(method, answers=None, olds=0, network=known_logits):
    """The loss of a method that `answers` teach, the last of them of old models."""
    teacher = None if answers is None else KnownTeachers(jnp.asarray(answers), olds)
    params = {"params": jnp.zeros((method.members, EXAMPLES, CLASSES))}
    batch = batch_of(labels_of(0))
    options = {"teacher": teacher, "step": 0, "key": batch.keys[0]}
    return method.loss(network, params, batch, **options)


test_what_a_method_lacks_is_named = refusals(
    *((c(), f"{c.__name__} needs an? (old model|teacher)") for c in TAUGHT),
    *((c(), TEACHER, 0, f"{c.__name__} needs an old model; name") for c in FROM_OLD),
    *((c(), OLD, 1, f"{c.__name__} learns from old models alone") for c in FROM_OLD),
    (Method(), "Method defines no loss"),
    (Peers(update="independent"), "stale members' logits"),
    (Apart(on="part"), "on='part' needs networks whose outputs"),
    (Apart(deploy="gate"), "needs a gate in the committee"),
    (Apart(running=0.6), "needs an engine that keeps"),
    (methods.ChurnConstraint(), TEACHER, 0, MEMORY),
    (methods.BayesianUpdate(olds=2), OLD, 2, MEMORY),
    (methods.BayesianUpdate(), OLD, 2, "olds=1, but the row has 2 old models"),
    (methods.RACT(), OLD, 2, without_features, r"have \.features; these have none"),
    (Pushed(members=2), *THREE_TEACHERS, OWN.format(0)),
    (Pushed(members=2, external_teachers=2), *THREE_TEACHERS, OWN.format(2)),
    (
        Pushed(members=2, external_teachers=3),
        *THREE_TEACHERS,
        "3 external teachers leave none to learn from; got 3 teachers",
    ),
    call=loss_from,
    error=(TypeError, ValueError),
)

HALF = np.log(np.float32([[[0.5, 0.25, 0.25]]]))  # [M=1, B=1, C=3]
# Two peers on one example: (3/4, 1/4) and (1/4, 3/4).
PAIR = np.log(np.float32([[[0.75, 0.25]], [[0.25, 0.75]]]))
# Two teachers, one example: (0.9, 0.1) and (0.5, 0.5) average to (0.7, 0.3).
TAUGHT_BY = np.log(np.float32([[[0.9, 0.1]], [[0.5, 0.5]]]))
UNIFORM = np.zeros((1, 1, 2), np.float32)
NARROW = np.float32([[[0, 0, methods.UNKNOWN_LOGIT]]])
WIDER = np.log(np.float32([[[0.72, 0.08, 0.2]], [[0.4, 0.4, 0.2]]]))
AVERAGES = {"logits": average_logits, "probs": average_probs}
ROOTS = np.sqrt([0.7, 0.3]) / np.sum(np.sqrt([0.7, 0.3]))
# Two members of a teacher with the mean (3, 2, -1), and an old model.
THREE = np.float32([[[2, 2, 0]], [[4, 2, -2]], [[1, 6, 0]]])
_distilled = partial(methods.EnsembleDistillation, alpha=1.0)
_peers = partial(methods.Codistillation, beta=1.0)
_alone = partial(_peers, update="independent")
LOG_2, LOG_3, LOG_4 = np.log([2, 3, 4])
# H(b, a) = log 4 - (1/4) log 3, and H(a) = log 4 - (3/4) log 3.
CROSS, OWN = LOG_4 - 0.25 * LOG_3, LOG_4 - 0.75 * LOG_3
APART = {"skl": LOG_3, "l1": 1.0, "kl": LOG_3, "cross_entropy": 2 * CROSS}
APART |= {"joint_cross_entropy": 2 * CROSS}
# The first member has come to where the second one's copy is: only one is off.
STALE = {"skl": LOG_3, "l1": 1.0, "kl": 0.5 * LOG_3, "cross_entropy": OWN + CROSS}


def _gain(p):
    """`KL(p || uniform)` of two classes."""
    return LOG_2 + np.sum(p * np.log(p))


GAIN = _gain(np.r_[0.7, 0.3])


def of(method, logits, loss, labels=(0,), teacher=None):
    """A row: what the method's loss is, worked out by hand."""
    return method, logits, np.array(labels), teacher, loss


BY_HAND = [
    # -log 1/2 and -log 1/4 average to 1.5 log 2.
    of(methods.ERM(), np.repeat(HALF, 2, axis=1), 1.5 * LOG_2, [0, 2]),
    # H(1/2, 1/4, 1/4) = 1.5 log 2; Eq. 6: (3/4 + 3/8) log 2.
    of(methods.MinimumEntropy(alpha=0.25), HALF, 1.125 * LOG_2),
    # sum_j (f_j - 1/3) log f_j = -(1/6) log 2 + (1/6) 2 log 2 = (1/6) log 2
    of(
        methods.MinimumEntropy(alpha=0.25, kind="uniform_skl"),
        HALF,
        (0.75 - 0.25 / 6) * LOG_2,
    ),
    # Eqs. 8, 9, 17 and 18: log 4/3 + log 4, and how far apart the peers are.
    *(
        of(_peers(divergence=kind), PAIR, np.log(4 / 3) + LOG_4 + far)
        for kind, far in APART.items()
    ),
    *(
        of(_alone(divergence=kind), PAIR[[1, 1]], 2 * LOG_4 + far, teacher=PAIR)
        for kind, far in STALE.items()
    ),
    # tau 2 turns (0.7, 0.3) into its square roots, normalised; and 2^2 = 4.
    of(_distilled(temperature=2.0), UNIFORM, 4 * _gain(ROOTS), (0,), TAUGHT_BY),
    # (3/4, 1/4) of (0.9, 0.1) and (1/2, 1/2) average to (5/8, 3/8).
    of(
        _distilled(temperature=2.0, average="tempered_probs"),
        UNIFORM,
        4 * _gain(np.r_[5, 3] / 8),
        teacher=TAUGHT_BY,
    ),
    # (1, 4, 0) and the teachers' highest two: 4 + 4 from the mean, 4 + 0 from the
    # old model.
    of(
        methods.ELODI(alpha=0.5, mix=0.25, top_k=2),
        np.float32([[[1, 4, 0]]]),
        0.5 * np.log1p(np.exp(-3) + np.exp(-4)) + 0.5 * (0.25 * 8 + 0.75 * 4),
        [1],
        KnownTeachers(THREE, 1),
    ),
    # k = KL((0.7, 0.3) || (1/2, 1/2)), and (log 2 + l k) / (1 + l) at l = 0.7 + 0.3;
    # also where the teachers know a class that the student does not.
    *(
        of(method, logits, loss, teacher=teacher)
        for logits, teacher in ((UNIFORM, TAUGHT_BY), (NARROW, WIDER))
        for method, loss in (
            (_distilled(temperature=1.0), GAIN),
            (methods.ChurnConstraint(start=0.7), 0.5 * (LOG_2 + GAIN)),
        )
    ),
]
BY_HAND += [  # their average, computed once, teaches the same
    of(method, logits, loss, labels, AVERAGES[method.teacher_average](teacher)[None])
    for method, logits, labels, teacher, loss in BY_HAND
    if isinstance(teacher, np.ndarray) and method.teacher_average in AVERAGES
    if method.needs_teacher
]


def test_losses_worked_out_by_hand():
    @jax.jit
    def losses(rows):
        return [
            plain_loss(method, logits, batch_of(labels), teacher=teacher).loss
            for method, logits, labels, teacher, _ in rows
        ]

    for found, (method, *_, loss) in zip(losses(BY_HAND), BY_HAND, strict=True):
        np.testing.assert_allclose(found, loss, rtol=1e-5, err_msg=str(method))


def test_alpha_ramps_on_both_sides_of_the_convex_combination():
    logits, labels = draw(1, 1, 8, 5).astype(np.float32), labels_of(1)
    ramped = MinimumEntropy(alpha=0.4, ramp=Ramp("linear", 10.0))
    for step in (0, 30):
        fixed = MinimumEntropy(alpha=0.4 * min((step + 1) / 10, 1.0))
        got = loss_of(ramped, logits, batch_of(labels), step=step)
        expected = loss_of(fixed, logits, batch_of(labels))
        np.testing.assert_allclose(got.loss, expected.loss, rtol=1e-6)


INDEPENDENT = {"update": "independent"}
SUBSET = {"members": 2, "member_sample": "subset"}

test_structure_is_checked = refusals(
    (methods.Ramp, {"kind": "cosine"}, "constant, linear, step"),
    (ERM, {"members": 0}, "members must be at least 1; got 0"),
    (ERM, {"deploy": "vote"}, "member, mean_probs, mean_logits, gate; got 'vote'"),
    (ERM, {"deploy": "gate"}, "ERM trains no gate"),
    (ERM, {"deployed_member": 1}, "below members=1; got 1"),
    (ERM, {"members": 3, "deployed_member": -1}, "below members=3; got -1"),
    (ERM, {"members": 2, "deployed_member": 1}, "=1 needs deploy='member'"),
    (ERM, {"members": 2, "deployed_member": True}, "whole number; got True"),
    (ERM, {"members": "two"}, "members must be a whole number; got 'two'"),
    *(
        (ERM, SUBSET | {"member_share": s}, f"above 0 and at most 1.*got {s}")
        for s in (0.0, 1.5)
    ),
    (ERM, {"member_sample": "own"}, "shared, bootstrap, subset, split; got 'own'"),
    (Peers, {"member_sample": "split"}, "one of shared, bootstrap; got 'split'"),
    (Peers, {"member_sample": "subset"}, "one of shared, bootstrap; got 'subset'"),
    (Apart, {"member_sample": "split"}, "shared, bootstrap, subset; got 'split'"),
    (Pushed, {"member_sample": "bootstrap"}, "shared, split; got 'bootstrap'"),
    (methods.EnsembleDistillation, {"average": "votes"}, "probs, logits"),
    (methods.MinimumEntropy, {"kind": "gini"}, "entropy, uniform_skl"),
    (methods.FocalDistillation, {"divergence": "l1"}, "kl, logits; got 'l1'"),
    (methods.ChurnConstraint, {"examples": "old"}, "all, right; got 'old'"),
    (methods.BayesianUpdate, {"rule": "map"}, "mb, mbme, cr; got 'map'"),
    (methods.BayesianUpdate, {"olds": 0}, "olds must be at least 1; got 0"),
    (methods.ELODI, {"form": "code"}, "one of paper, release; got 'code'"),
    (methods.ELODI, {"rank_by": "old"}, "one of teacher, student; got 'old'"),
    (methods.ELODI, {"top_k": -1}, "top_k must be at least 0; got -1"),
    (methods.ELODI, {"order": 0.5}, "order must be at least 1; got 0.5"),
    (methods.ELODI, {"order": np.nan}, "order must be at least 1; got nan"),
    (methods.ELODI, {"order": np.inf}, "order must be at least 1 and finite; got inf"),
    (methods.ELODI, {"top_k": 2.5}, "top_k must be a whole number; got 2.5"),
    (methods.MinimumEntropy, {"top_k": 2.5}, "top_k must be a whole number; got 2.5"),
    (Pushed, {"external_teachers": 1.5}, "must be a whole number; got 1.5"),
    (Pushed, {"pixel_range": (1.0, 0.0)}, r"must rise; got \(1.0, 0.0\)"),
    (Apart, {"penalty": 3}, "3 has no name; give a function or a class, or a name"),
    (Pushed, {"perturbation": "mixup"}, "two_sided; got 'mixup'"),
    (Pushed, {"external_teachers": -1}, "at least 0; got -1"),
    (
        Pushed,
        {"perturbation": "two_sided", "external_teachers": 1},
        "the teachers themselves; got external_t",
    ),
    (methods.MinimumEntropy, {"alpha": 2}, "alpha must be from 0 to 1; got 2"),
    (methods.MinimumEntropy, {"alpha": np.nan}, "from 0 to 1; got nan"),
    (methods.EnsembleDistillation, {"temperature": 0}, "must be above 0; got 0"),
    (methods.EnsembleDistributionDistillation, {"smoothing": 2.0}, "from 0 to 1"),
    (methods.ELODI, {"mix": 2.0}, "mix must be from 0 to 1; got 2.0"),
    (methods.Ramp, {"steps": 100}, "a constant ramp has no steps; got 100"),
    (Apart, {"order": 1}, "order is of difference .*; got 1 and 0.001 with"),
    (Apart, {"penalty": "difference", "epsilon": 0.1}, "epsilon of inverse_diff"),
    (Apart, {"gate": "constant"}, "needs deploy='gate'; got 'mean_probs'"),
    (methods.Ramp, {"steps": -1.0}, "steps must be at least 0; got -1"),
    (Peers, {"beta": np.inf}, "beta must be finite; got inf"),
    (Apart, {"strength": -1}, "strength must be at least 0; got -1"),
    (Peers, {"members": 1}, "members must be at least 2; got 1"),
    (Peers, {"divergence": "js"}, "joint_cross_entropy; got 'js'"),
    (Peers, {"kind": "gini"}, "entropy, uniform_skl; got 'gini'"),
    (Peers, {"update": "async"}, "joint, independent; got 'async'"),
    (Peers, {**INDEPENDENT, "refresh_steps": 0}, "at least 1; got 0"),
    (Peers, {**INDEPENDENT, "refresh_steps": 2.0}, "whole number; got 2.0"),
    (Peers, {"refresh_steps": 5}, "refresh_steps=5 needs update='independent'"),
    (
        Peers,
        {**INDEPENDENT, "divergence": "joint_cross_entropy"},
        "gradients into both peers",
    ),
    (Apart, {"members": 1}, "members must be at least 2; got 1"),
    (Apart, {"penalty": "pearson"}, "unknown penalty 'pearson'; known: correl"),
    (Apart, {"label_reduction": "none"}, "label_reduction must be .* mean, sum"),
    (Apart, {"on": "scores"}, "on must be one of logits, .*'scores'"),
    (Apart, {"train_on": "all"}, "train_on must be one of .*'all'"),
    (Apart, {"gate": "sparse"}, "gate must be .* input, constant; got 'sparse'"),
    (Apart, {"component_losses": "focal"}, "component_losses must be some of"),
    (Apart, {"component_losses": ("focal",)}, "one loss per member, 2; got 1"),
    (
        Apart,
        {"component_losses": ("focal",) * 2, "train_on": "ensemble"},
        "train_on='ensemble' trains their mixture",
    ),
    (
        Apart,
        {"penalty": "cross_entropy_difference", "on": "part"},
        "needs on='logits'; got 'part'",
    ),
    (Apart, {"deploy": "member", "train_on": "both"}, "deploy='member' has none"),
    (Apart, {"running": 1.0}, "at least 0 and below 1; got 1.0"),
    (Apart, {"running": 0.9, "on": "features"}, "running moments are for the"),
    (Apart, {"common_only": True}, "all examples are common"),
    (
        Apart,
        {"member_sample": "bootstrap", "train_on": "both"},
        "'bootstrap' needs train_on='components'",
    ),
    (Apart, {"member_share": 0.5}, "is of .*='subset'; got 0.5 with 'shared'"),
    (Apart, {"order": 0.5}, "order must be at least 1; got 0.5"),
    (Apart, {"epsilon": 0.0}, "epsilon must be above 0; got 0.0"),
    call=lambda cls, options: cls(**options),
    error=(TypeError, ValueError),
)
