"""What holds for every metric: reference, masks, transforms, dtypes, errors."""

import functools
import inspect
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from churn_jax import metrics
from tests.metrics.cases import (
    CASES,
    STREAMED,
    C,
    N,
    example_axis,
    has_models,
    is_floating,
    make_inputs,
    take,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")

every = pytest.mark.parametrize("case", CASES, ids=str)
streamed = pytest.mark.parametrize("case", STREAMED, ids=str)

# Sums of at most a few hundred float32 terms, each correct to a few times 6e-8.
RTOL = 2e-6


def close(actual, expected, rtol=RTOL):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-7)


def specs(case):
    """Where the example axis of every input is sharded, mask included."""
    named = {
        k: PartitionSpec(*(None,) * example_axis(k, case.kind), "data")
        for k in make_inputs(case.kind, n=1)
    }
    return {**named, "mask": PartitionSpec("data")}


def reference_of_valid(case, inputs):
    """The reference on the examples that the mask keeps."""
    inputs = dict(inputs)
    index = np.flatnonzero(inputs.pop("mask"))
    return case.reference(**take(inputs, case.kind, index))


def make_mesh(axis_type):
    axis_types = (getattr(jax.sharding.AxisType, axis_type),)
    return jax.make_mesh((8,), ("data",), axis_types=axis_types)


@every
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_the_float64_reference(case, seed, strict_dtypes):
    inputs = make_inputs(case.kind, seed)
    arrays = jax.tree.map(jnp.asarray, inputs)
    actual = case.function(**arrays)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(actual))
    close(actual, case.reference(**inputs))


@every
def test_masked_equals_filtered_whatever_the_padding_holds(case):
    inputs = make_inputs(case.kind, 3)
    mask = np.random.default_rng(0).random(N) < 0.6
    expected = case.reference(**take(inputs, case.kind, np.flatnonzero(mask)))
    padded = {}
    for name, x in inputs.items():
        x = np.moveaxis(x.copy(), example_axis(name, case.kind), 0)
        x[~mask] = np.nan if is_floating(name) else -1
        padded[name] = np.moveaxis(x, 0, example_axis(name, case.kind))
    close(jax.jit(case.function)(**padded, mask=mask), expected)


@every
def test_no_valid_example_gives_nan(case):
    inputs = make_inputs(case.kind, 3)
    value = jax.jit(case.function)(**inputs, mask=np.zeros(N, bool))
    assert all(np.all(np.isnan(x)) for x in jax.tree.leaves(value))
    if case.empty:
        assert all(
            np.all(np.isnan(x)) for x in jax.tree.leaves(case.compute(case.empty()))
        )


@every
def test_bfloat16_is_computed_in_float32(case):
    inputs = make_inputs(case.kind, 4)
    low = {k: jnp.asarray(v, jnp.bfloat16) for k, v in inputs.items() if is_floating(k)}
    up = {k: v.astype(jnp.float32) for k, v in low.items()}
    actual = jax.jit(case.function)(**{**inputs, **low})
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(actual))
    close(actual, case.reference(**{**inputs, **jax.device_get(up)}))


@pytest.mark.parametrize("case", [c for c in CASES if c.shift_invariant], ids=str)
def test_logits_may_be_shifted_and_classes_renamed(case):
    inputs = make_inputs(case.kind, 5)
    function = jax.jit(case.function)
    expected = function(**inputs)
    rng = np.random.default_rng(0)
    shifted = {
        k: (v + rng.integers(-8, 8, (*v.shape[:-1], 1))).astype(np.float32)
        if is_floating(k)
        else v
        for k, v in inputs.items()
    }
    # Adding an integer rounds the logits by up to 5e-7, which ECE's sums feel most.
    close(function(**shifted), expected, rtol=1e-5)
    if case.class_symmetric:
        logits = next(v for k, v in inputs.items() if is_floating(k))
        order = rng.permutation(logits.shape[-1])
        renamed = {
            k: v[..., order] if is_floating(k) else np.argsort(order)[v]
            for k, v in inputs.items()
        }
        close(function(**renamed), expected)


@every
def test_jit_and_vmap_equal_eager(case):
    both = [make_inputs(case.kind, seed) for seed in (6, 7)]
    mask = np.arange(N) % 5 > 0
    expected = [reference_of_valid(case, {**x, "mask": mask}) for x in both]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *both)
    mapped = jax.jit(jax.vmap(lambda x: case.function(**x, mask=mask)))(stacked)
    for i in range(2):
        close(jax.tree.map(lambda x, i=i: x[i], mapped), expected[i])


@every
@pytest.mark.parametrize("axis_type", ["Auto", "Explicit"])
def test_sharded_arrays_give_the_same_number(case, axis_type):
    inputs = {**make_inputs(case.kind, 8), "mask": np.arange(N) % 7 > 0}
    mesh = make_mesh(axis_type)
    placed = {
        k: jax.device_put(v, NamedSharding(mesh, specs(case)[k]))
        for k, v in inputs.items()
    }
    actual = jax.jit(lambda x: case.function(**x))(placed)
    close(actual, reference_of_valid(case, inputs))


@streamed
def test_shard_map_and_psum_of_the_state(case):
    inputs = {**make_inputs(case.kind, 9), "mask": np.arange(N) % 7 > 0}

    def on_shard(inputs):
        return jax.lax.psum(case.empty().update(**inputs), "data")

    mesh = make_mesh("Auto")
    mapped = jax.shard_map(
        on_shard, mesh=mesh, in_specs=(specs(case),), out_specs=PartitionSpec()
    )
    actual = case.compute(jax.jit(mapped)(inputs))
    close(actual, reference_of_valid(case, inputs))


@streamed
@pytest.mark.filterwarnings("ignore:.*pmap.*:DeprecationWarning")
def test_pmap_and_psum_of_the_state(case):
    inputs = {**make_inputs(case.kind, 10), "mask": np.arange(N) % 7 > 0}
    shards = [take(inputs, case.kind, np.arange(8 * d, 8 * d + 8)) for d in range(6)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *shards)

    def on_device(inputs):
        return jax.lax.psum(case.empty().update(**inputs), "data")

    states = jax.pmap(on_device, axis_name="data", devices=jax.devices()[:6])(stacked)
    first = jax.tree.map(lambda x: x[0], jax.device_get(states))
    close(case.compute(first), reference_of_valid(case, inputs))


@streamed
def test_batches_merge_to_the_whole(case):
    inputs = {**make_inputs(case.kind, 11), "mask": np.arange(N) % 7 > 0}
    expected = reference_of_valid(case, inputs)
    whole = case.empty()
    parts = []
    update = jax.jit(lambda state, batch: state.update(**batch))
    for start, stop in itertools.pairwise((0, 12, 24, 36, N)):
        batch = take(inputs, case.kind, np.arange(start, stop))
        whole = update(whole, batch)
        parts.append(update(case.empty(), batch))
    close(case.compute(whole), expected)
    close(case.compute(functools.reduce(lambda a, b: a.merge(b), parts)), expected)
    added = jax.tree.map(lambda *x: sum(x[1:], x[0]), *parts)
    close(case.compute(added), expected)
    chex.assert_trees_all_equal_shapes_and_dtypes(whole, case.empty())


@pytest.mark.parametrize("case", [c for c in CASES if c.differentiable], ids=str)
def test_gradient_is_that_of_the_reference_and_always_finite(case):
    inputs = make_inputs(case.kind, 12, n=4)
    logits = {k: v for k, v in inputs.items() if is_floating(k)}
    rest = {k: v for k, v in inputs.items() if not is_floating(k)}
    gradient = jax.jit(jax.grad(lambda logits: case.function(**logits, **rest)))

    rng = np.random.default_rng(0)
    direction = {k: rng.normal(size=v.shape) for k, v in logits.items()}
    slope = sum(np.sum(g * direction[k]) for k, g in gradient(logits).items())

    def along(step):
        moved = {k: v + step * direction[k] for k, v in logits.items()}
        return case.reference(**moved, **rest)

    # Central differences in float64 are good to 1e-9; what is left is float32.
    np.testing.assert_allclose(slope, (along(1e-6) - along(-1e-6)) / 2e-6, rtol=1e-4)

    first = next(iter(logits.values()))
    one = first[:1] if has_models(case.kind) else first
    equal = {k: np.array(np.broadcast_to(one, v.shape)) for k, v in logits.items()}
    for factor in (0.0, 1e4, 1e30):
        huge = {k: np.float32(factor) * v for k, v in logits.items()}
        for g in jax.tree.leaves((gradient(huge), gradient(equal))):
            assert np.isfinite(g).all(), factor


@every
def test_wrong_shapes_are_named(case):
    inputs = make_inputs(case.kind)
    with pytest.raises(ValueError, match=rf"mask.*\({N},\).*\({N}, 1\)"):
        case.function(**inputs, mask=np.ones((N, 1), bool))
    if "logits_b" in inputs:
        short = {**inputs, "logits_b": inputs["logits_b"][:-1]}
        with pytest.raises(ValueError, match=rf"\({N}, {C}\).*\({N - 1}, {C}\)"):
            case.function(**short)
    if "labels" in inputs:
        with pytest.raises(ValueError, match=rf"labels.*\({N},\).*\({N - 1},\)"):
            case.function(**{**inputs, "labels": inputs["labels"][:-1]})
        with pytest.raises(TypeError, match="float32"):
            case.function(**{**inputs, "labels": inputs["labels"].astype(np.float32)})
    if has_models(case.kind) and case.at_least > 1:
        one = {k: v[:1] if is_floating(k) else v for k, v in inputs.items()}
        with pytest.raises(ValueError, match=rf"\(1, {N}, "):
            case.function(**one)


def test_the_table_covers_every_public_name():
    tested = {case.name.split("-")[0] for case in CASES} - {"AUCState"}
    elsewhere = {
        "calibrated_brier_score",
        "calibrated_expected_calibration_error",
        "calibrated_negative_log_likelihood",
        "cross_pairs",
        "deep_ensemble_equivalent",
        "flip_rank",
        "flip_rates",
        "leave_one_model_out",
        "log_loss",
        "pairwise",
        "pairwise_kl",
        "summarize_cross",
        "summarize_paired",
        "summarize_pairs",
        "two_fold_calibrated_scores",
    }
    functions = {n for n in metrics.__all__ if inspect.isfunction(getattr(metrics, n))}
    # Names that other files of this folder bring have their own tests there.
    assert tested | elsewhere <= functions
    states = {type(case.empty()).__name__ for case in STREAMED}
    assert states == {
        n
        for n in metrics.__all__
        if n.endswith("State") and n not in ("MeanState", "RateState")
    }


@pytest.mark.parametrize("name", ["labels", "mask"])
def test_positional_order_is_the_contract(name):
    for case in CASES:
        if inspect.isclass(function := getattr(metrics, case.name.split("-")[0])):
            function = function.update
        parameters = list(inspect.signature(function).parameters)
        if name in parameters and name == "mask":
            assert parameters[-1] == "mask"
