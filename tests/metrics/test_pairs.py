"""Every pair of models, of one set and of an old and a new one: streams, class sets."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax import metrics
from churn_jax.metrics import cross_pairs, pairwise
from churn_jax.metrics.pairs import PairMetric
from tests import reference_metrics as ref
from tests.devices import spread
from tests.metrics.cases import CASES, M, make_inputs
from tests.refusals import refusals

R1, R2, N, C = 3, 2, 37, 5
BLOCKS_OF_8 = 4 * (R1 + R2) * C * 8  # the last one is ragged


@pytest.fixture(scope="module")
def versions():
    """Old and new runs, labels, mask; as related as two versions are."""
    rng = np.random.default_rng(0)
    base = 2 * rng.normal(size=(N, C))
    old, new = (
        (base + rng.normal(size=(R, N, C))).astype(np.float32) for R in (R1, R2)
    )
    labels = np.argmax(base + 2 * rng.normal(size=(N, C)), -1).astype(np.int32)
    return old, new, labels, rng.random(N) < 0.7


# Metric, reference, whether they need labels.
STREAMING = {
    case.name: (case.function, case.reference, case.kind == "labelled pair")
    for case in CASES
    if case.kind.endswith("pair")
    and case.name not in ("l1_distance", "surrogate_churn-3.0")
}
STREAMING["flip_rates"] = metrics.flip_rates, ref.flip_rates, True


def mean_l1(a, b):
    return np.mean(ref.l1_distance(a, b))


STREAMING["l1_distance"] = metrics.l1_distance, mean_l1, False


def loop(reference, old, new, *labels):
    rows = [[reference(a, b, *labels) for b in new] for a in old]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def close(found, expected):
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(found))
    np.testing.assert_allclose(np.array(found), expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", STREAMING)
def test_streamed_pairs_equal_a_loop_over_pairs(name, versions):
    """Across two sets, and of one set for a mean and for parts of it."""
    metric, reference, labelled = STREAMING[name]
    old, new, labels, mask = versions
    given = [labels[mask]] if labelled else []
    options = {"mask": mask, "block_bytes": BLOCKS_OF_8}
    options["labels"] = labels if labelled else None
    found = cross_pairs(metric, old, new, **options)
    assert all(x.shape == (R1, R2) for x in jax.tree.leaves(found))
    close(found, loop(reference, old[:, mask], new[:, mask], *given))
    if name in ("l1_distance", "churn_by_correctness"):
        own = pairwise(metric, old, **options)
        close(own, loop(reference, old[:, mask], old[:, mask], *given))


@pytest.mark.parametrize("name", STREAMING)
def test_pairs_of_a_run_with_nan_are_nan(name, versions):
    metric, _, labelled = STREAMING[name]
    runs, labels = versions[0].copy(), versions[2] if labelled else None
    runs[1, N - 1, 2] = np.nan
    with_it = np.isin(np.arange(R1), 1)
    with_it = with_it[:, None] | with_it
    for x in jax.tree.leaves(pairwise(metric, runs, labels)):
        np.testing.assert_array_equal(np.isnan(x), with_it)


def test_the_block_size_does_not_matter_and_padding_may_hold_anything(versions):
    old, new, _, mask = versions
    spoilt = [np.where(mask[None, :, None], x, np.nan) for x in (old, new)]
    expected = loop(ref.churn, old[:, mask], new[:, mask])
    for block_bytes in (1, 10**9):
        options = {"mask": mask, "block_bytes": block_bytes}
        close(cross_pairs(metrics.churn, *spoilt, **options), expected)
    own = pairwise(metrics.surrogate_churn, spoilt[0], mask=mask)
    close(own, loop(ref.surrogate_churn, old[:, mask], old[:, mask]))


@pytest.mark.parametrize(
    ("name", "examples"), [("flip_rates", "all"), ("l1_distance", "known")]
)
def test_an_old_version_may_know_fewer_classes(name, examples, versions):
    """Because its last columns are missing, and the first is marked as unknown."""
    metric, reference, labelled = STREAMING[name]
    old, new, labels, mask = versions
    old = np.where(np.arange(C) > 0, old, np.float32(UNKNOWN_LOGIT))[..., :3]
    keep = mask & np.isin(labels, (1, 2)) if examples == "known" else mask
    options = {"examples": examples, "block_bytes": BLOCKS_OF_8}
    found = cross_pairs(metric, old, new, labels, mask, **options)
    whole = np.full(new[:1].shape, -np.inf).repeat(R1, 0)
    whole[..., 1:3] = old[..., 1:]
    given = [labels[keep]] if labelled else []
    close(found, loop(reference, whole[:, keep], new[:, keep].astype(float), *given))


def test_a_version_with_more_classes_needs_no_ids(versions):
    old, new, labels, _ = versions
    fewer = old[..., :3]
    expected = loop(ref.flip_rates, fewer, new, labels)[0]
    close(cross_pairs(metrics.negative_flip_rate, fewer, new, labels), expected)
    beyond = np.full(N, 17)  # nobody's class
    for examples in ("all", "known"):
        for metric in (metrics.flip_rates, metrics.churn_by_correctness):
            found = cross_pairs(metric, fewer, new, beyond, examples=examples)
            assert np.isnan(found).all()


def test_any_other_function_is_called_pair_by_pair(versions):
    old, new, labels, mask = versions

    def largest_gap(a, b, labels, mask):  # not a mean
        gap = jnp.max(jnp.abs(a - b), axis=-1)
        return jnp.max(jnp.where(mask & (labels < 4), gap, 0.0))

    counted = mask & (labels < 4)
    for other, found in (
        (new, cross_pairs(largest_gap, old, new, labels, mask)),
        (old, pairwise(largest_gap, old, labels, mask)),
    ):
        gaps = np.abs(old[:, None] - other[None]).max(-1)
        np.testing.assert_array_equal(found, gaps[..., counted].max(-1))
    few = [x[..., :3] for x in (old, new)]
    known = cross_pairs(largest_gap, *few, labels, examples="known")
    gaps = np.abs(few[0][:, None] - few[1][None]).max(-1)
    np.testing.assert_array_equal(known, gaps[..., labels < 3].max(-1))


def test_metrics_of_ones_own_stream(versions):
    old, new, _, _ = versions
    every = np.concatenate([old, new])
    expected = np.square(every[:, None] - every[None]).sum((2, 3)) / N

    @dataclasses.dataclass(frozen=True)
    class Squared(PairMetric):
        def of_run(self, logits, labels):
            return logits

        def compare(self, old, new):
            return jnp.square(old - new)

    close(pairwise(Squared(), every, block_bytes=700), expected)
    found = cross_pairs(Squared(), old, new, block_bytes=BLOCKS_OF_8)
    close(found, expected[:R1, R1:])
    np.testing.assert_allclose(Squared()(old[0], new[1]), expected[0, R1 + 1], 1e-5)


def test_jit_vmap_bfloat16_and_sharded_runs(versions):
    old, new = (jnp.asarray(x[:, :32], jnp.bfloat16) for x in versions[:2])
    wide = [np.array(x, np.float32) for x in (old, new)]
    expected = loop(ref.churn, *wide)
    old, new = spread((old, new), PartitionSpec(None, "data"))
    compute = functools.partial(cross_pairs, metrics.churn)
    close(jax.jit(compute)(old, new), expected)
    stacked = [np.stack([x, x[..., ::-1]]) for x in wide]
    close(jax.jit(jax.vmap(compute))(*stacked), np.stack([expected] * 2))
    own = jax.jit(functools.partial(pairwise, metrics.surrogate_churn))
    expected = loop(ref.surrogate_churn, wide[0], wide[0])
    close(own(old), expected)


@pytest.mark.parametrize(
    ("metric", "compare"),
    [(metrics.churn, "pairwise"), (metrics.surrogate_churn, "cross_pairs")],
)
def test_memory_does_not_grow_with_examples(metric, compare):
    block, runs, width = 2**18, 16, 32

    def temporary_bytes(examples):
        shape = jax.ShapeDtypeStruct((runs, examples, width), jnp.float32)
        half = jax.ShapeDtypeStruct((runs // 2, examples, width), jnp.float32)
        of = functools.partial(getattr(metrics, compare), metric, block_bytes=block)
        given = (shape,) if compare == "pairwise" else (half, half)
        analysis = jax.jit(of).lower(*given).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    few, many = temporary_bytes(2_000), temporary_bytes(64_000)
    # 16 x 16 x 64,000 x 32 floats would be 2 GiB; the scores of a block are 256 KiB.
    assert many <= few + 1024 < 4 * block


def test_no_valid_example_gives_nan(versions):
    old, new, _, _ = versions
    nothing = np.zeros(N, bool)
    for found in (
        cross_pairs(metrics.churn, old, new, mask=nothing),
        cross_pairs(metrics.churn, old[:, :0], new[:, :0]),
        pairwise(metrics.churn, old, mask=nothing),
        pairwise(metrics.churn, old[:, :0]),
    ):
        assert np.isnan(found).all()


def product(a, b):
    return jnp.sum(a * b, -1)


X, Y = np.ones((R1, N, C), np.float32), np.ones((R2, N, C), np.float32)


def compared(metric, arguments, options):
    two_sets = len(arguments) > 1 and np.ndim(arguments[1]) > 1
    (cross_pairs if two_sets else pairwise)(metric, *arguments, **options)


test_errors_name_shapes_classes_and_missing_labels = refusals(
    (metrics.churn, (X, Y[0]), {}, r"new must be \[R, N, C\].*\(37, 5\)"),
    (metrics.churn, (X, Y[:, 1:]), {}, r"same examples.*\(3, 37, 5\).*\(2, 36, 5"),
    (metrics.churn, (X, Y), {"mask": np.ones(36, bool)}, r"\(37,\).*\(36,\)"),
    (metrics.churn, (X, Y, np.zeros(36, int)), {}, r"\(37,\).*\(36,\)"),
    (metrics.churn, (X, Y), {"examples": "some"}, "'all', 'known'.*'some'"),
    (metrics.churn, (X, Y), {"examples": "known"}, "depends on their labels"),
    (metrics.flip_rates, (X, Y), {}, "needs labels"),
    (product, (X, Y), {}, r"scalars.*\(37,\).*\(37, 5\)"),
    (metrics.churn, (X[0],), {}, r"R, N, C.*\(37, 5\)"),
    (metrics.churn, (X,), {"mask": np.ones(36, bool)}, r"\(37,\).*\(36,\)"),
    (metrics.flip_rates, (X, np.zeros(36, int)), {}, r"\(37,\).*\(36,\)"),
    (metrics.churn_by_correctness, (X,), {}, "needs labels"),
    (product, (X,), {}, r"scalars.*\(37,\).*\(37, 5\)"),
    call=compared,
)


summarize_pairs = jax.jit(metrics.summarize_pairs)
summarize_cross = jax.jit(metrics.summarize_cross)
summarize_paired = jax.jit(metrics.summarize_paired)


@pytest.mark.parametrize(
    ("summarize", "matrix", "expected"),
    [
        # Pairs .1, .2, .3; without run 0: .3, without 1: .2, without 2: .1.
        # Variance 2/3 * (.01 + 0 + .01), its root .11547. The diagonal does not count.
        (
            summarize_pairs,
            [[np.nan, 0.1, 0.2], [0.1, np.nan, 0.3], [0.2, 0.3, np.nan]],
            (0.2, 0.0816497, 0.1154701),
        ),
        (summarize_pairs, [[0, 0.25], [0.25, 0]], (0.25, 0.0, np.nan)),
        # Means of rows .15, .35, .25 and of columns .2, .3; no pair is peculiar.
        # Variance .02 / 6 + .005 / 2, its root .0763763.
        (
            summarize_cross,
            [[0.1, 0.2], [0.3, 0.4], [0.2, 0.3]],
            (0.25, 0.0957427, 0.0763763),
        ),
        # One run on a side leaves the other: deviations of .1 from .2, their root .1.
        (summarize_cross, [[0.1, 0.3]], (0.2, 0.1, 0.1)),
        (summarize_cross, [[0.1], [0.3]], (0.2, 0.1, 0.1)),
        (summarize_cross, [[0.5]], (0.5, 0.0, np.nan)),
        # Only the diagonal: mean .3; squares .04 + .01 + .09; .14 / 6 = .152753^2.
        (
            summarize_paired,
            [[0.1, 9, 9], [9, 0.2, 9], [9, 9, 0.6]],
            (0.3, 0.216025, 0.152753),
        ),
        (summarize_paired, [[0.5]], (0.5, 0.0, np.nan)),
    ],
)
def test_by_hand(summarize, matrix, expected):
    summary = summarize(np.array(matrix))
    np.testing.assert_allclose(summary[:3], expected, rtol=1e-5)
    assert summary[3:] in (np.shape(matrix), (len(matrix),))


@pytest.mark.parametrize(
    ("name", "shape"), [("summarize_pairs", (6, 6)), ("summarize_cross", (4, 3))]
)
def test_equals_deleting_rows_and_columns(name, shape):
    matrix = np.random.default_rng(0).random(shape).astype(np.float32)
    expected = getattr(ref, name)(matrix)
    np.testing.assert_allclose(globals()[name](matrix)[:3], expected, rtol=1e-5)


MASK = np.arange(48) % 3 > 0


def without_one(metric, logits, **inputs):
    run = functools.partial(metrics.leave_one_model_out, metric)
    found = jax.jit(run)(logits, **inputs)
    others = [np.arange(M) != m for m in range(M)]
    compiled = jax.jit(metric)
    return found, [compiled(logits[keep], **inputs) for keep in others]


def test_leaving_a_model_out_is_the_metric_of_the_others():
    inputs = make_inputs("labelled models", 0)
    metric = metrics.label_prediction_difference
    found, expected = without_one(metric, **inputs, mask=MASK)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_stream_keeps_one_state_per_left_out_model():
    logits = make_inputs("models", 2)["logits"]

    @jax.jit
    def window(x):
        empty = metrics.PredictionDifferenceState.empty()
        return metrics.leave_one_model_out(empty.update, x)

    states = window(logits[:, :24]).merge(window(logits[:, 24:]))
    _, expected = without_one(metrics.prediction_difference, logits)
    np.testing.assert_allclose(states.compute(), expected, rtol=1e-6)
