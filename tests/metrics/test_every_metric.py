"""What holds for every metric: reference, masks, transforms, dtypes, errors.

All metrics share one compiled program per transform; each test looks at its own.
"""

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

pytestmark = pytest.mark.usefixtures("strict_dtypes", "quick_to_compile")

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


def inputs_of(seed, cases=CASES):
    """Inputs of every case, by its name."""
    return {case.name: make_inputs(case.kind, seed) for case in cases}


def with_mask(seed):
    """Inputs of every case with a State, and a mask that leaves some of each shard."""
    mask = {"mask": np.arange(N) % 7 > 0}
    return {name: {**x, **mask} for name, x in inputs_of(seed, STREAMED).items()}


def every_value(inputs, mask=None):
    """Every metric, by its case's name."""
    options = {} if mask is None else {"mask": mask}
    return {case.name: case.function(**inputs[case.name], **options) for case in CASES}


compiled = jax.jit(every_value)


@functools.cache
def values_of(seed):
    return jax.device_get(compiled(inputs_of(seed), np.ones(N, bool)))


@every
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_the_float64_reference(case, seed):
    actual = values_of(seed)[case.name]
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(actual))
    close(actual, case.reference(**make_inputs(case.kind, seed)))


@jax.jit
def computed(states):
    """What the states of some cases hold, by the case's name."""
    return {c.name: c.compute(states[c.name]) for c in CASES if c.name in states}


def updated(states, batches):
    return {c.name: states[c.name].update(**batches[c.name]) for c in STREAMED}


def empty_states(cases=STREAMED):
    return {case.name: case.empty() for case in cases}


@functools.cache
def masked_values():
    mask = np.random.default_rng(0).random(N) < 0.6
    inputs = inputs_of(3)
    for case in CASES:
        for name, x in inputs[case.name].items():
            x = np.moveaxis(x, example_axis(name, case.kind), 0)  # a view
            x[~mask] = np.nan if is_floating(name) else -1
    return mask, jax.device_get(compiled(inputs, mask))


@every
def test_masked_equals_filtered_whatever_the_padding_holds(case):
    mask, values = masked_values()
    inputs = take(make_inputs(case.kind, 3), case.kind, np.flatnonzero(mask))
    close(values[case.name], case.reference(**inputs))


@functools.cache
def values_of_nothing():
    whole = compiled(inputs_of(3), np.zeros(N, bool))
    streamed = computed(empty_states([case for case in CASES if case.empty]))
    return jax.device_get((whole, streamed))


@every
def test_no_valid_example_gives_nan(case):
    whole, streamed = values_of_nothing()
    found = jax.tree.leaves((whole[case.name], streamed.get(case.name)))
    assert found and all(np.all(np.isnan(x)) for x in found)
    assert (case.name in streamed) == bool(case.empty)


@functools.cache
def bfloat16_values():
    low = {
        case: {
            k: jnp.asarray(v, jnp.bfloat16) if is_floating(k) else v
            for k, v in inputs.items()
        }
        for case, inputs in inputs_of(4).items()
    }
    return jax.device_get((low, compiled(low)))


@every
def test_bfloat16_is_computed_in_float32(case):
    inputs, values = (x[case.name] for x in bfloat16_values())
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(values))
    up = {k: v.astype(np.float32) if is_floating(k) else v for k, v in inputs.items()}
    close(values, case.reference(**up))


def _shifted(case, inputs):
    """The same number for every class, or for no metric that such a shift changes."""
    if not case.shift_invariant:
        return inputs
    rng = np.random.default_rng(0)
    return {
        k: (v + rng.integers(-8, 8, (*v.shape[:-1], 1))).astype(np.float32)
        if is_floating(k)
        else v
        for k, v in inputs.items()
    }


def _renamed(case, inputs):
    """Another order of the classes, where classes have no meaning."""
    if not case.class_symmetric:
        return inputs
    logits = next(v for k, v in inputs.items() if is_floating(k))
    order = np.random.default_rng(1).permutation(logits.shape[-1])
    return {
        k: v[..., order] if is_floating(k) else np.argsort(order).astype(v.dtype)[v]
        for k, v in inputs.items()
    }


@functools.cache
def values_as_they_are_shifted_and_renamed():
    inputs, whole = inputs_of(2), np.ones(N, bool)
    changed = [
        {case.name: change(case, inputs[case.name]) for case in CASES}
        for change in (_shifted, _renamed)
    ]
    return values_of(2), *jax.device_get([compiled(x, whole) for x in changed])


@pytest.mark.parametrize("case", [c for c in CASES if c.shift_invariant], ids=str)
def test_logits_may_be_shifted_and_classes_renamed(case):
    expected, shifted, renamed = (
        x[case.name] for x in values_as_they_are_shifted_and_renamed()
    )
    # Adding an integer rounds the logits by up to 5e-7, which ECE's sums feel most.
    close(shifted, expected, rtol=1e-5)
    close(renamed, expected)


def sharded(inputs, mask, axis_type):
    mesh = make_mesh(axis_type)

    def place(case):
        shardings = {k: NamedSharding(mesh, spec) for k, spec in specs(case).items()}
        return {
            k: jax.device_put(v, shardings[k]) for k, v in inputs[case.name].items()
        }

    placed_mask = jax.device_put(mask, NamedSharding(mesh, PartitionSpec("data")))
    return compiled({case.name: place(case) for case in CASES}, placed_mask)


def mapped(inputs, mask):
    """Of two replicas; the second is the one that is wanted."""
    stacked = jax.tree.map(lambda *x: np.stack(x), inputs_of(7), inputs)
    values = jax.jit(jax.vmap(lambda x: every_value(x, mask)))(stacked)
    return jax.tree.map(lambda x: x[1], values)


TRANSFORMS = {
    "explicit sharding": functools.partial(sharded, axis_type="Explicit"),
    "automatic sharding": functools.partial(sharded, axis_type="Auto"),
    "vmap": mapped,
    "eager": lambda inputs, mask: every_value(jax.tree.map(jnp.asarray, inputs), mask),
}


@functools.cache
def transformed(name):
    mask = np.arange(N) % 7 > 0
    return mask, jax.device_get(TRANSFORMS[name](inputs_of(8), mask))


def first_is_fast(names):
    first, *others = names
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in others]
    return pytest.mark.parametrize("transform", [first, *slow])


@every
@first_is_fast(TRANSFORMS)
def test_transforms_give_the_same_number(case, transform):
    mask, values = transformed(transform)
    inputs = {**make_inputs(case.kind, 8), "mask": mask}
    close(values[case.name], reference_of_valid(case, inputs))


def reduced(inputs):
    """The states of one shard of the examples, added over the shards."""
    return jax.lax.psum(updated(empty_states(), inputs), "data")


def by_shard_map(inputs):
    shards = ({case.name: specs(case) for case in STREAMED},)
    mapped = jax.shard_map(
        reduced, mesh=make_mesh("Auto"), in_specs=shards, out_specs=PartitionSpec()
    )
    return jax.jit(mapped)(inputs)


def by_pmap(inputs):
    shards = [
        {
            case.name: take(inputs[case.name], case.kind, np.arange(6 * d, 6 * d + 6))
            for case in STREAMED
        }
        for d in range(8)
    ]
    stacked = jax.tree.map(lambda *x: np.stack(x), *shards)
    states = jax.device_get(jax.pmap(reduced, axis_name="data")(stacked))
    return jax.tree.map(lambda x: x[0], states)


REDUCTIONS = {"shard_map": by_shard_map, "pmap": by_pmap}


@functools.cache
def reduced_over_devices(name):
    return jax.device_get(computed(jax.device_get(REDUCTIONS[name](with_mask(9)))))


@streamed
@first_is_fast(REDUCTIONS)
@pytest.mark.filterwarnings("ignore:.*pmap.*:DeprecationWarning")
def test_psum_of_the_state_over_devices(case, transform):
    expected = reference_of_valid(case, with_mask(9)[case.name])
    close(reduced_over_devices(transform)[case.name], expected)


@functools.cache
def streams():
    """The state of four batches in turn, and what three ways of joining them give."""
    inputs, update, merge = with_mask(11), jax.jit(updated), jax.jit(merged)
    whole, parts = empty_states(), []
    for start, stop in itertools.pairwise((0, 12, 24, 36, N)):
        batches = {
            case.name: take(inputs[case.name], case.kind, np.arange(start, stop))
            for case in STREAMED
        }
        whole = update(whole, batches)
        parts.append(update(empty_states(), batches))
    added = jax.tree.map(lambda *x: sum(x[1:], x[0]), *jax.device_get(parts))
    joined = (whole, merge(parts), jax.tree.map(jnp.asarray, added))
    return whole, jax.device_get([computed(states) for states in joined])


def merged(parts):
    return {
        case.name: functools.reduce(
            lambda a, b: a.merge(b), [part[case.name] for part in parts]
        )
        for case in STREAMED
    }


@streamed
def test_batches_merge_to_the_whole(case):
    expected = reference_of_valid(case, with_mask(11)[case.name])
    whole, values = streams()
    for one in values:
        close(one[case.name], expected)
    chex.assert_trees_all_equal_shapes_and_dtypes(whole[case.name], case.empty())


DIFFERENTIABLE = [c for c in CASES if c.differentiable]


def logits_and_rest(case):
    inputs = make_inputs(case.kind, 12, n=4)
    logits = {k: v for k, v in inputs.items() if is_floating(k)}
    return logits, {k: v for k, v in inputs.items() if not is_floating(k)}


@functools.cache
def gradients():
    """Of every such metric, in its logits: as drawn, and where much could overflow."""

    def gradient_of(case, logits):
        _, rest = logits_and_rest(case)
        return jax.grad(lambda logits: case.function(**logits, **rest))(logits)

    @jax.jit
    def program(logits):
        return {c.name: gradient_of(c, logits[c.name]) for c in DIFFERENTIABLE}

    def equal(case, logits):
        first = next(iter(logits.values()))
        one = first[:1] if has_models(case.kind) else first
        return {k: np.array(np.broadcast_to(one, v.shape)) for k, v in logits.items()}

    drawn = {case.name: logits_and_rest(case)[0] for case in DIFFERENTIABLE}
    equals = {case.name: equal(case, drawn[case.name]) for case in DIFFERENTIABLE}
    extremes = {
        f"{factor} of it": jax.tree.map(lambda v, f=factor: np.float32(f) * v, drawn)
        for factor in (0.0, 1e4, 1e30)
    }
    extremes["equal models"] = equals
    found = {name: program(logits) for name, logits in extremes.items()}
    return jax.device_get((program(drawn), found))


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradient_is_that_of_the_reference_and_always_finite(case):
    logits, rest = logits_and_rest(case)
    gradient, extremes = gradients()

    rng = np.random.default_rng(0)
    direction = {k: rng.normal(size=v.shape) for k, v in logits.items()}
    slope = sum(np.sum(g * direction[k]) for k, g in gradient[case.name].items())

    def along(step):
        moved = {k: v + step * direction[k] for k, v in logits.items()}
        return case.reference(**moved, **rest)

    # Central differences in float64 are good to 1e-9; what is left is float32.
    np.testing.assert_allclose(slope, (along(1e-6) - along(-1e-6)) / 2e-6, rtol=1e-4)

    for where, found in extremes.items():
        for g in jax.tree.leaves(found[case.name]):
            assert np.isfinite(g).all(), where


@every
def test_wrong_shapes_are_named(case):
    def call(**inputs):  # shapes are checked before anything is compiled
        return jax.eval_shape(case.function, **inputs)

    inputs = make_inputs(case.kind)
    with pytest.raises(ValueError, match=rf"mask.*\({N},\).*\({N}, 1\)"):
        call(**inputs, mask=np.ones((N, 1), bool))
    if "logits_b" in inputs:
        short = {**inputs, "logits_b": inputs["logits_b"][:-1]}
        with pytest.raises(ValueError, match=rf"\({N}, {C}\).*\({N - 1}, {C}\)"):
            call(**short)
    if "labels" in inputs:
        with pytest.raises(ValueError, match=rf"labels.*\({N},\).*\({N - 1},\)"):
            call(**{**inputs, "labels": inputs["labels"][:-1]})
        with pytest.raises(TypeError, match="float32"):
            call(**{**inputs, "labels": inputs["labels"].astype(np.float32)})
    if has_models(case.kind) and case.at_least > 1:
        one = {k: v[:1] if is_floating(k) else v for k, v in inputs.items()}
        with pytest.raises(ValueError, match=rf"\(1, {N}, "):
            call(**one)


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
