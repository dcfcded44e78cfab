import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from churn_jax import metrics
from churn_jax.metrics import (
    PairMetric,
    pair_metrics,
    pairs,
    pairwise,
    summarize_pairs,
)
from tests import reference_metrics as ref

R, N, C = 4, 37, 5
FLIPS = metrics.FlipRates._fields


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(0)
    base = 2 * rng.normal(size=(N, C))
    logits = (base + rng.normal(size=(R, N, C))).astype(np.float32)
    labels = np.argmax(base + 2 * rng.normal(size=(N, C)), -1).astype(np.int32)
    return logits, labels, rng.random(N) < 0.7


def mean_l1(a, b):
    return np.mean(ref.l1_distance(a, b))


STREAMING = {
    "churn": (metrics.churn, ref.churn, False),
    "surrogate_churn": (metrics.surrogate_churn, ref.surrogate_churn, False),
    "surrogate_churn alpha": (
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
    **{
        name: (getattr(metrics, name), getattr(ref, name), False)
        for name in ("churn_bound_from_confidence", "churn_bound_from_confidence_sum")
    },
    **{name: (getattr(metrics, name), getattr(ref, name), True) for name in FLIPS},
}


def loop(reference, logits, *labels):
    rows = [[reference(a, b, *labels) for b in logits] for a in logits]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("masked", [False, True])
def test_streamed_pairs_equal_a_loop_over_pairs(name, masked, runs):
    metric, reference, labelled = STREAMING[name]
    logits, labels, mask = runs
    keep = mask if masked else np.ones(N, bool)
    expected = loop(reference, logits[:, keep], *([labels[keep]] if labelled else []))
    actual = pairwise(
        metric,
        logits,
        labels if labelled else None,
        mask if masked else None,
        block_bytes=4 * R * C * 8,  # blocks of 8: the last one is ragged
    )
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(actual))
    np.testing.assert_allclose(np.array(actual), expected, rtol=2e-6, atol=1e-7)


def test_padding_may_hold_anything(runs):
    logits, _, mask = runs
    padded = np.where(mask[None, :, None], logits, np.nan)
    for metric in (metrics.churn, metrics.surrogate_churn, metrics.l1_distance):
        np.testing.assert_array_equal(
            pairwise(metric, padded, mask=mask), pairwise(metric, logits, mask=mask)
        )


@pytest.mark.parametrize("block_bytes", [1, 10**9])
def test_the_block_size_does_not_matter(block_bytes, runs):
    actual = pairwise(metrics.surrogate_churn, runs[0], block_bytes=block_bytes)
    expected = loop(ref.surrogate_churn, runs[0])
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-7)


def test_any_other_function_is_called_pair_by_pair(runs):
    logits, labels, mask = runs

    def largest_gap(a, b):  # not a mean
        return jnp.max(jnp.abs(a - b))

    expected = np.abs(logits[:, None] - logits[None]).max((2, 3))
    np.testing.assert_array_equal(pairwise(largest_gap, logits), expected)
    actual = pairwise(metrics.churn_bound_from_errors, logits, labels, mask)
    expected = loop(ref.churn_bound_from_errors, logits[:, mask], labels[mask])
    np.testing.assert_allclose(actual, expected, rtol=2e-6)


def test_a_pair_metric_of_ones_own_streams(runs):
    @dataclasses.dataclass(frozen=True)
    class SquaredLogitDistance(PairMetric):
        scale: float = 1.0

        def block(self, logits, labels, mask):
            x = jnp.where(mask[None, :, None], logits, 0.0) * self.scale
            return jnp.sum(jnp.square(x[:, None] - x[None]), axis=(2, 3))

    actual = pairwise(SquaredLogitDistance(2.0), runs[0], block_bytes=700)
    x = runs[0].astype(np.float64)
    expected = 4 * np.square(x[:, None] - x[None]).sum((2, 3)) / N
    np.testing.assert_allclose(actual, expected, rtol=2e-6)


def test_jit_bfloat16_and_sharded_runs(runs):
    logits = jnp.asarray(runs[0][:, :32], jnp.bfloat16)
    expected = loop(ref.surrogate_churn, np.array(logits, np.float32))
    mesh = jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Auto,))
    sharded = jax.device_put(
        logits, NamedSharding(mesh, PartitionSpec(None, "data", None))
    )
    compute = jax.jit(lambda x: pairwise(metrics.surrogate_churn, x))
    for x in (logits, sharded):
        np.testing.assert_allclose(compute(x), expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    "metric", [pair_metrics._Churn(), pair_metrics._SurrogateChurn()]
)
def test_memory_does_not_grow_with_examples(metric):
    block = 2**18

    def temporary_bytes(examples, runs=16, classes=32):
        size = block // (4 * runs * classes)
        shape = jax.ShapeDtypeStruct((runs, examples, classes), jnp.float32)
        lowered = pairs._stream.lower(metric, size, shape, None, None)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many = temporary_bytes(2_000), temporary_bytes(64_000)
    # 16 x 16 x 64,000 x 32 floats would be 2 GiB; the scores of a block are 256 KiB.
    assert many <= few + 1024 < 4 * block


def test_errors_name_shapes_and_missing_labels(runs):
    logits, labels, _ = runs
    with pytest.raises(ValueError, match=r"R, N, C.*\(37, 5\)"):
        pairwise(metrics.churn, logits[0])
    with pytest.raises(ValueError, match=r"\(37,\).*\(36,\)"):
        pairwise(metrics.churn, logits, mask=np.ones(36, bool))
    with pytest.raises(ValueError, match=r"\(37,\).*\(36,\)"):
        pairwise(metrics.negative_flip_rate, logits, labels[:-1])
    with pytest.raises(ValueError, match="needs labels"):
        pairwise(metrics.churn_by_correctness, logits)
    with pytest.raises(ValueError, match=r"scalars.*\(37,\).*\(37, 5\)"):
        pairwise(lambda a, b: jnp.sum(a * b, -1), logits)
    with pytest.raises(ValueError, match=r"R, R.*\(2, 3\)"):
        summarize_pairs(np.zeros((2, 3)))


def test_no_valid_example_gives_nan(runs):
    assert np.isnan(pairwise(metrics.churn, runs[0], mask=np.zeros(N, bool))).all()
    assert np.isnan(pairwise(metrics.churn, runs[0][:, :0])).all()


class TestSummarizePairs:
    def test_equals_deleting_rows_and_columns(self):
        matrix = np.random.default_rng(0).random((6, 6)).astype(np.float32)
        summary = summarize_pairs(matrix)
        np.testing.assert_allclose(summary[:3], ref.summarize_pairs(matrix), rtol=1e-5)
        assert summary.num_runs == 6

    def test_ignores_the_diagonal(self):
        matrix = np.random.default_rng(0).random((5, 5)).astype(np.float32)
        other = matrix.copy()
        np.fill_diagonal(other, np.nan)
        np.testing.assert_array_equal(summarize_pairs(matrix), summarize_pairs(other))

    def test_by_hand(self):
        # Pairs .1, .2, .3; without run 0: .3, without 1: .2, without 2: .1.
        # Variance 2/3 * (.01 + 0 + .01), its root .11547.
        summary = summarize_pairs(
            np.array([[0, 0.1, 0.2], [0.1, 0, 0.3], [0.2, 0.3, 0]])
        )
        np.testing.assert_allclose(summary[:3], [0.2, 0.0816497, 0.1154701], rtol=1e-5)

    def test_two_runs_have_no_standard_error(self):
        summary = summarize_pairs(np.array([[0, 0.25], [0.25, 0]]))
        np.testing.assert_array_equal(summary[:3], [0.25, 0.0, np.nan])

    def test_standard_error_is_that_of_runs_not_of_pairs(self):
        # Each run moves all its pairs: value = u_a + u_b + noise.
        rng = np.random.default_rng(0)
        u = rng.normal(size=(2000, 8))
        noise = 0.1 * rng.normal(size=(2000, 8, 8))
        matrices = u[:, :, None] + u[:, None] + noise + np.swapaxes(noise, 1, 2)
        summary = jax.vmap(lambda m: summarize_pairs(m)[:3])(matrices)
        true_variance = np.var(summary[0])
        # 2000 draws: the variance is known to about 3 per cent.
        np.testing.assert_allclose(np.mean(summary[2] ** 2), true_variance, rtol=0.1)
        naive = np.mean(summary[1] ** 2) / 28
        assert naive < 0.3 * true_variance
