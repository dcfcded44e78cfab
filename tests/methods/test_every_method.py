"""What holds for every method, row by row of the table in `cases.py`."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from churn_jax import methods
from churn_jax.methods import Method, Perturbing, Updating
from tests.methods.cases import (
    CASES,
    CLASSES,
    EXAMPLES,
    TEACHER,
    batch_of,
    difference_quotient,
    evaluate,
    expected,
    labels_of,
    logits_of,
    loss_of,
    teacher_of,
)

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
# One per way of reducing over members, pairs and teachers: compiling takes the time.
FEW = [CASES[i] for i in (2, 6, 10, 11, 18, 19, 23)]


def some_fast(cases, fast):
    """Each of the cases, of which those that are not in `fast` are slow."""
    rows = [
        pytest.param(c, marks=[] if any(c is f for f in fast) else pytest.mark.slow)
        for c in cases
    ]
    return pytest.mark.parametrize("case", rows, ids=lambda c: c.name)


few_cases = some_fast(FEW, FEW[1::2])
sweepable = some_fast([c for c in CASES if c.coefficients], FEW[1::2])
MASK = np.array([1, 0, 1, 1, 0, 1, 1, 0], np.float32)
VALID = np.flatnonzero(MASK)


@every_case
@pytest.mark.parametrize("seed", [0, 1])
def test_loss_equals_the_equation_in_float64(case, seed):
    logits, labels = logits_of(case, seed), labels_of(seed)
    (loss, _), _ = evaluate(case, logits, labels)
    np.testing.assert_allclose(loss, expected(case, logits, labels), rtol=3e-6)


@every_case
def test_gradient_equals_a_float64_difference_and_masked_rows_change_nothing(case):
    logits, labels = logits_of(case, 4, scale=1.0), labels_of(4)
    (loss, _), gradient = evaluate(case, logits, labels, MASK)
    np.testing.assert_allclose(
        loss, expected(case, logits, labels, rows=VALID), rtol=3e-6
    )
    numeric = difference_quotient(case, logits, labels, rows=VALID)
    np.testing.assert_allclose(gradient, numeric, atol=2e-6)
    np.testing.assert_array_equal(gradient[:, MASK == 0], 0.0)


@every_case
@pytest.mark.parametrize("junk", [np.nan, np.inf])
def test_non_finite_padding_does_not_leak(case, junk):
    logits, labels = logits_of(case, 5), labels_of(5)
    clean = evaluate(case, logits, labels, MASK)
    logits[:, MASK == 0] = junk
    teacher = teacher_of(case.method).copy()
    teacher[:, MASK == 0] = junk
    dirty = evaluate(case, logits, labels, MASK, teacher=teacher)
    jax.tree.map(np.testing.assert_array_equal, dirty, clean)


@sweepable
def test_coefficients_differ_between_replicas_under_vmap(case):
    replicas = 3
    logits, labels = logits_of(case, 6, replicas=replicas), labels_of(6)
    scales = np.array([0.0, 0.5, 1.25], np.float32)
    stacked = jax.tree.map(lambda c: c * scales, case.method)

    def one(method, logits):
        return loss_of(method, logits, batch_of(labels)).loss

    together = jax.jit(jax.vmap(one))(stacked, logits)
    for r, scale in enumerate(scales):
        options = {k: v * scale for k, v in case.coefficients.items()}
        if "temperature" in options:  # tau = 0 is not an objective
            if scale == 0:
                continue
        np.testing.assert_allclose(
            together[r], expected(case, logits[r], labels, **options), rtol=3e-6
        )


@few_cases
def test_eight_shards_with_uneven_padding_give_the_global_objective(case):
    """One device of eight holds nothing but padding; others hold one or two rows."""
    logits, labels = logits_of(case, 7, scale=1.0), labels_of(7)
    mask = np.ones(2 * EXAMPLES, np.float32)
    mask[[2, 3, 4, 9, 14]] = 0.0
    rows = np.flatnonzero(mask) % EXAMPLES
    twice = np.tile(logits, (1, 2, 1))
    twice[:, mask == 0] = np.nan

    def local(method, logits, labels, mask, teacher):
        def objective(logits):
            batch = batch_of(labels, mask, axis_name="data")
            return loss_of(method, logits, batch, teacher=teacher).loss

        return jax.value_and_grad(objective)(logits)

    members, examples = P(None, "data"), P("data")
    sharded = jax.shard_map(
        local,
        mesh=Mesh(np.array(jax.devices()), ("data",)),
        in_specs=(P(), members, examples, examples, members),
        out_specs=(P(), members),
        check_vma=True,
    )
    loss, gradient = jax.jit(sharded)(
        jax.tree.map(jnp.float32, case.method),
        twice,
        np.tile(labels.astype(np.int32), 2),
        mask,
        np.tile(teacher_of(case.method), (1, 2, 1)),
    )
    np.testing.assert_allclose(
        loss, expected(case, logits, labels, rows=rows), rtol=3e-6
    )
    _, alone = evaluate(case, logits, labels)
    share = EXAMPLES / len(rows)
    np.testing.assert_allclose(
        gradient[:, mask == 1], share * alone[:, rows], atol=3e-7
    )
    np.testing.assert_array_equal(gradient[:, mask == 0], 0.0)


@every_case
def test_terms_are_scalars_under_their_names(case):
    (loss, terms), _ = evaluate(case, logits_of(case, 8), labels_of(8))
    assert set(terms) == case.terms
    for scalar in (loss, *terms.values()):
        assert scalar.shape == () and scalar.dtype == jnp.float32


@pytest.mark.slow
@few_cases
def test_bfloat16_logits_give_a_float32_loss(case):
    logits = jnp.asarray(logits_of(case, 9), jnp.bfloat16)
    labels = labels_of(9)
    out = loss_of(case.method, logits, batch_of(labels))
    assert out.loss.dtype == jnp.float32
    wide = np.asarray(logits.astype(jnp.float32))
    np.testing.assert_allclose(out.loss, expected(case, wide, labels), rtol=3e-6)


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
    logits, labels = logits_of(case, 10, scale=1e4), labels_of(10)
    (loss, terms), gradient = evaluate(case, logits, labels)
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


@pytest.mark.parametrize("cls", TAUGHT)
def test_a_missing_teacher_is_named(cls):
    missing = f"{cls.__name__} needs an? (old model|teacher)"
    with pytest.raises(ValueError, match=missing):
        cls().loss(lambda *_: None, {}, batch_of([0]), teacher=None, step=0, key=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((methods.EnsembleDistillation, "average", "votes"), "probs, logits"),
        ((methods.MinimumEntropy, "kind", "gini"), "entropy, uniform_skl"),
        ((methods.Ramp, "kind", "cosine"), "constant, linear, step"),
        ((methods.ERM, "deploy", "gate"), "ERM trains no gate"),
    ],
)
def test_unknown_structure_is_refused(options, message):
    cls, name, value = options
    with pytest.raises(ValueError, match=message):
        cls(**{name: value})


@pytest.mark.parametrize("cls", METHODS)
def test_docstring_says_which_equation(cls):
    text = inspect.getdoc(cls)
    assert "References:" in text
    tags = re.findall(
        r"^ +\[[a-z0-9-]+\] (?:Eq\.|Eqs\.|Table|Sec\.|Section) [\d.]+ -- ", text, re.M
    )
    assert tags
    assert text.count("https://arxiv.org/abs/") == len(tags)


def test_table_covers_every_structure():
    seen = {getattr(c.method, "divergence", None) for c in CASES}
    from churn_jax.methods.codistillation import DISAGREEMENTS
    from churn_jax.methods.erm import REGULARIZERS

    assert seen >= set(DISAGREEMENTS)
    assert {getattr(c.method, "kind", None) for c in CASES} >= set(REGULARIZERS)
    assert TEACHER.shape == (2, EXAMPLES, CLASSES)
