"""Every old run against every new one: class sets, memory, and the standard error."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from churn_jax import metrics
from churn_jax.class_sets import UNKNOWN_LOGIT
from churn_jax.metrics import (
    CrossMetric,
    PairMetric,
    cross_pairs,
    pair_metrics,
    summarize_cross,
    summarize_paired,
)
from tests import reference_metrics as ref

# The package's name `cross_pairs` is the function.
module = importlib.import_module("churn_jax.metrics.cross_pairs")
pytestmark = pytest.mark.usefixtures("quick_to_compile")

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


def mean_l1(a, b):
    return np.mean(ref.l1_distance(a, b))


STREAMING = {
    "churn": (metrics.churn, ref.churn, False),
    "surrogate_churn": (
        functools.partial(metrics.surrogate_churn, alpha=3.0),
        functools.partial(ref.surrogate_churn, alpha=3.0),
        False,
    ),
    "l1_distance": (metrics.l1_distance, mean_l1, False),
    "churn_by_correctness": (
        metrics.churn_by_correctness,
        ref.churn_by_correctness,
        True,
    ),
    "churn_bound_from_errors": (
        metrics.churn_bound_from_errors,
        ref.churn_bound_from_errors,
        True,
    ),
    "churn_bound_from_confidence": (
        metrics.churn_bound_from_confidence,
        ref.churn_bound_from_confidence,
        False,
    ),
    "flip_rates": (metrics.flip_rates, ref.flip_rates, True),
    "negative_flip_rate": (metrics.negative_flip_rate, ref.negative_flip_rate, True),
}


def loop(reference, old, new, *labels):
    rows = [[reference(a, b, *labels) for b in new] for a in old]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


@pytest.mark.parametrize("name", STREAMING)
def test_streamed_pairs_equal_a_loop_over_pairs(name, versions):
    metric, reference, labelled = STREAMING[name]
    old, new, labels, mask = versions
    expected = loop(
        reference, old[:, mask], new[:, mask], *([labels[mask]] if labelled else [])
    )
    given = labels if labelled else None
    found = cross_pairs(metric, old, new, given, mask, block_bytes=BLOCKS_OF_8)
    assert all(
        x.dtype == jnp.float32 and x.shape == (R1, R2) for x in jax.tree.leaves(found)
    )
    np.testing.assert_allclose(np.array(found), expected, rtol=2e-6, atol=1e-7)


def test_one_set_against_itself_is_pairwise(versions):
    old, _, labels, _ = versions
    for metric in (metrics.churn_by_correctness, metrics.churn_bound_from_errors):
        np.testing.assert_array_equal(
            np.array(cross_pairs(metric, old, old, labels)),
            np.array(metrics.pairwise(metric, old, labels)),
        )


def test_the_block_size_does_not_matter_and_padding_may_hold_anything(versions):
    old, new, _, mask = versions
    spoilt = [np.where(mask[None, :, None], x, np.nan) for x in (old, new)]
    expected = loop(ref.churn, old[:, mask], new[:, mask])
    for block_bytes in (1, 10**9):
        found = cross_pairs(metrics.churn, *spoilt, mask=mask, block_bytes=block_bytes)
        np.testing.assert_allclose(found, expected, rtol=2e-6)


# Old columns are out of order; classes 1 and 7 are the new version's alone.
OLD_IDS, NEW_IDS, UNION = (9, 4, 2), (1, 2, 4, 7, 9), [1, 2, 4, 7, 9]


@pytest.mark.parametrize("examples", ["all", "known"])
@pytest.mark.parametrize("name", ["l1_distance", "flip_rates"])
def test_class_sets_are_aligned_by_id(name, examples, versions):
    metric, reference, labelled = STREAMING[name]
    old, new, places, mask = versions
    old, labels = old[..., :3], np.array(UNION)[places]
    found = cross_pairs(
        metric,
        old,
        new,
        labels,
        mask,
        old_classes=OLD_IDS,
        new_classes=NEW_IDS,
        examples=examples,
        block_bytes=BLOCKS_OF_8,
    )
    keep = mask & np.isin(labels, OLD_IDS) if examples == "known" else mask
    aligned = ref.on_union(old, OLD_IDS, UNION)[:, keep]
    given = [places[keep]] if labelled else []
    expected = loop(reference, aligned, new[:, keep].astype(float), *given)
    np.testing.assert_allclose(np.array(found), expected, rtol=2e-6, atol=1e-7)
    if examples == "known" and labelled:  # the same classes marked in the logits
        marked = np.maximum(ref.on_union(old, OLD_IDS, UNION), UNKNOWN_LOGIT)
        same = cross_pairs(
            metric, marked.astype(np.float32), new, places, mask, examples="known"
        )
        np.testing.assert_allclose(np.array(same), expected, rtol=2e-6, atol=1e-7)


def test_a_version_with_more_classes_needs_no_ids(versions):
    old, new, labels, _ = versions
    fewer = old[..., :3]
    expected = loop(ref.negative_flip_rate, fewer, new, labels)
    found = cross_pairs(metrics.negative_flip_rate, fewer, new, labels)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    beyond = np.full(N, 17)  # nobody's class: nobody is right
    rates = cross_pairs(metrics.flip_rates, fewer, new, beyond)
    np.testing.assert_array_equal(rates.negative_flip_rate, np.zeros((R1, R2)))
    known = cross_pairs(
        metrics.negative_flip_rate, fewer, new, beyond, examples="known"
    )
    assert np.isnan(known).all()


def test_any_other_function_is_called_pair_by_pair(versions):
    old, new, labels, mask = versions

    def largest_gap(a, b, labels, mask):  # not a mean
        gap = jnp.max(jnp.abs(a - b), axis=-1)
        return jnp.max(jnp.where(mask & (labels < 4), gap, 0.0))

    found = cross_pairs(largest_gap, old, new, labels, mask)
    gaps = np.abs(old[:, None] - new[None]).max(-1)
    expected = gaps[..., mask & (labels < 4)].max(-1)
    np.testing.assert_array_equal(found, expected)
    known = cross_pairs(
        largest_gap, old[..., :3], new[..., :3], labels, examples="known"
    )
    gaps = np.abs(old[:, None, :, :3] - new[None, :, :, :3]).max(-1)
    np.testing.assert_array_equal(known, gaps[..., labels < 3].max(-1))


def test_metrics_of_ones_own_stream(versions):
    old, new, _, _ = versions
    expected = np.square(old[:, None] - new[None]).sum((2, 3)) / N

    @dataclasses.dataclass(frozen=True)
    class Squared(PairMetric):
        def block(self, logits, labels, mask):
            x = jnp.where(mask[None, :, None], logits, 0.0)
            return jnp.sum(jnp.square(x[:, None] - x[None]), axis=(2, 3))

    @dataclasses.dataclass(frozen=True)
    class SquaredCross(CrossMetric):
        def of_runs(self, logits, labels, mask):
            return jnp.where(mask[None, :, None], logits, 0.0)

        def compare(self, old, new, mask):
            return jnp.sum(jnp.square(old[:, None] - new[None]), axis=(2, 3))

    for metric in (Squared(), SquaredCross()):
        found = cross_pairs(metric, old, new, block_bytes=BLOCKS_OF_8)
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_jit_vmap_bfloat16_and_sharded_runs(versions):
    old, new = (jnp.asarray(x[:, :32], jnp.bfloat16) for x in versions[:2])
    expected = loop(ref.churn, np.array(old, np.float32), np.array(new, np.float32))
    mesh = jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Auto,))
    place = NamedSharding(mesh, PartitionSpec(None, "data", None))
    compute = jax.jit(functools.partial(cross_pairs, metrics.churn))
    for sides in ((old, new), jax.device_put((old, new), place)):
        np.testing.assert_allclose(compute(*sides), expected, rtol=2e-6)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x[..., ::-1]]), (old, new))
    mapped = jax.jit(jax.vmap(functools.partial(cross_pairs, metrics.churn)))(*stacked)
    np.testing.assert_allclose(mapped, np.stack([expected] * 2), rtol=2e-6)


def test_memory_does_not_grow_with_examples():
    block = 2**18
    classes = module._Classes((), (), (), False)

    def temporary_bytes(examples, runs=8, width=32):
        size = block // (4 * 2 * runs * width)
        shape = jax.ShapeDtypeStruct((runs, examples, width), jnp.float32)
        lowered = module._stream.lower(
            pair_metrics._SurrogateChurn(), size, classes, shape, shape, None, None
        )
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many = temporary_bytes(2_000), temporary_bytes(64_000)
    # 8 x 8 x 64,000 x 32 floats would be 0.5 GiB; the scores of a block are 256 KiB.
    assert many <= few + 1024 < 4 * block


def test_errors_name_shapes_classes_and_missing_labels(versions):
    old, new, labels, _ = versions
    compare = functools.partial(cross_pairs, metrics.churn)
    with pytest.raises(ValueError, match=r"new must be \[R, N, C\].*\(37, 5\)"):
        compare(old, new[0])
    with pytest.raises(ValueError, match=r"same examples.*\(3, 37, 5\).*\(2, 36, 5\)"):
        compare(old, new[:, 1:])
    with pytest.raises(ValueError, match=r"\(37,\).*\(36,\)"):
        compare(old, new, mask=np.ones(36, bool))
    with pytest.raises(ValueError, match=r"\(37,\).*\(36,\)"):
        compare(old, new, labels[1:])
    with pytest.raises(ValueError, match=r"old_classes.*5 integers.*\(4,\)"):
        compare(old, new, old_classes=range(4))
    with pytest.raises(ValueError, match=r"new_classes.*different.*\[0, 1, 1, 2, 3\]"):
        compare(old, new, new_classes=[0, 1, 1, 2, 3])
    with pytest.raises(ValueError, match=r"'all', 'known'.*'some'"):
        compare(old, new, examples="some")
    with pytest.raises(ValueError, match="depends on their labels"):
        compare(old, new, examples="known")
    with pytest.raises(ValueError, match="needs labels"):
        cross_pairs(metrics.flip_rates, old, new)
    with pytest.raises(ValueError, match=r"cross_pairs.*scalars.*\(37,\).*\(37, 5\)"):
        cross_pairs(lambda a, b: jnp.sum(a * b, -1), old, new)
    with pytest.raises(ValueError, match=r"R1, R2.*\(3,\)"):
        summarize_cross(np.zeros(3))
    with pytest.raises(ValueError, match=r"R, R.*\(2, 3\)"):
        summarize_paired(np.zeros((2, 3)))


def test_no_valid_example_gives_nan(versions):
    old, new, _, _ = versions
    assert np.isnan(cross_pairs(metrics.churn, old, new, mask=np.zeros(N, bool))).all()
    assert np.isnan(cross_pairs(metrics.churn, old[:, :0], new[:, :0])).all()


def compiled(summarize):
    """One program instead of one for each operation."""
    return jax.jit(summarize)


class TestSummarizeCross:
    def test_equals_deleting_rows_and_columns(self):
        matrix = np.random.default_rng(0).random((4, 3)).astype(np.float32)
        summary = compiled(summarize_cross)(matrix)
        np.testing.assert_allclose(summary[:3], ref.summarize_cross(matrix), rtol=1e-5)
        assert summary[3:] == (4, 3)

    def test_by_hand(self):
        # Means of rows .15, .35, .25 and of columns .2, .3; no pair is peculiar.
        # Variance .02 / 6 + .005 / 2, its root .0763763.
        summary = compiled(summarize_cross)(
            np.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.3]])
        )
        np.testing.assert_allclose(summary[:3], [0.25, 0.0957427, 0.0763763], rtol=1e-5)

    def test_one_run_on_a_side_leaves_the_other(self):
        # Deviations of .1 from .2: (.01 + .01) / 2, its root .1.
        for matrix in ([[0.1, 0.3]], [[0.1], [0.3]]):
            summary = compiled(summarize_cross)(np.array(matrix))
            np.testing.assert_allclose(summary.stderr, 0.1, rtol=1e-5)
        assert np.isnan(compiled(summarize_cross)(np.array([[0.5]])).stderr)

    @pytest.mark.parametrize(
        ("of_old", "of_new", "of_pair"),
        [(1, 1, 1), (1, 0.1, 0.3), (0.3, 0.5, 1), (0, 0, 1)],
    )
    def test_standard_error_is_that_of_runs_not_of_pairs(self, of_old, of_new, of_pair):
        # Old runs, new runs and pairs each have an effect of their own.
        rng = np.random.default_rng(0)
        matrices = of_old * rng.normal(size=(4000, 5, 1))
        matrices = matrices + of_new * rng.normal(size=(4000, 1, 6))
        matrices = matrices + of_pair * rng.normal(size=(4000, 5, 6))
        summary = jax.jit(jax.vmap(lambda m: summarize_cross(m)[:3]))(matrices)
        true = np.std(summary[0])
        # 4000 draws: the deviation is known to about 1 per cent.
        assert 0.94 * true < np.sqrt(np.mean(summary[2] ** 2)) < 1.13 * true
        if of_old:
            assert np.mean(summary[1]) / np.sqrt(30) < 0.7 * true


class TestSummarizePaired:
    def test_only_the_diagonal_counts_by_hand(self):
        matrix = np.array([[0.1, 9, 9], [9, 0.2, 9], [9, 9, 0.6]])
        # Mean .3; squares .04 + .01 + .09 = .14; .14 / 6 has the root .152753.
        summary = compiled(summarize_paired)(matrix)
        np.testing.assert_allclose(summary[:3], [0.3, 0.216025, 0.152753], rtol=1e-5)
        assert summary.num_runs == 3

    def test_one_pair_has_no_standard_error(self):
        summary = compiled(summarize_paired)(np.array([[0.5]]))
        np.testing.assert_array_equal(summary[:3], [0.5, 0, np.nan])
