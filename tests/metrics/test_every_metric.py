"""What holds for every metric: reference, masks, transforms, dtypes, errors.

All metrics share one compiled program per transform; each test looks at its own.
"""

import functools
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from churn_jax import metrics
from churn_jax.losses import confusion_counts
from tests.devices import over_devices, spread
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
from tests.refusals import refusals

pytestmark = pytest.mark.usefixtures("strict_dtypes")

every = pytest.mark.parametrize("case", CASES, ids=str)
streamed = pytest.mark.parametrize("case", STREAMED, ids=str)

# Sums of at most a few hundred float32 terms, each correct to a few times 6e-8.
RTOL = 2e-6


def close(actual, expected, rtol=RTOL):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-7)


def spec(case, name):
    """How an input is sharded by its examples."""
    return PartitionSpec(*(None,) * example_axis(name, case.kind), "data")


def inputs_of(seed, cases=CASES):
    """Inputs of every case, by its name."""
    return {case.name: make_inputs(case.kind, seed) for case in cases}


def each(change, inputs, cases=CASES):
    """`change(case, name, value)` of every input of every case."""
    return {
        case.name: {k: change(case, k, v) for k, v in inputs[case.name].items()}
        for case in cases
    }


def every_value(inputs, mask=None):
    """Every metric, by its case's name."""
    options = {} if mask is None else {"mask": mask}
    return {case.name: case.function(**inputs[case.name], **options) for case in CASES}


program = jax.jit(every_value)
ALL, SOME = np.ones(N, bool), np.arange(N) % 7 > 0  # leaves some of each shard


def _with_classes_ruled_out(case, name, x):
    """Impossible classes as well, more of them than the labels' type can count."""
    if not case.any_classes:
        return x
    if not is_floating(name):
        return x.astype(np.int8)
    never = np.full((*x.shape[:-1], 124), -np.inf, np.float32)
    return np.concatenate([x, never], axis=-1)


def compiled(inputs, mask):
    """Every metric of the inputs and of classes that every model rules out."""
    return program(each(_with_classes_ruled_out, inputs), mask)


# Each of these gives the inputs of all cases, which of their examples are valid, and
# every metric of those as it is computed there. Examples in docstrings run without jit.


def plain(seed):
    inputs = inputs_of(seed)
    return inputs, ALL, compiled(inputs, ALL)


def padded():
    """What is not valid may hold anything."""

    def spoil(case, name, x):
        x = x.copy()
        rows = np.moveaxis(x, example_axis(name, case.kind), 0)  # a view
        rows[~SOME] = np.nan if is_floating(name) else -1
        return x

    inputs = inputs_of(3)
    return inputs, SOME, compiled(each(spoil, inputs), SOME)


def sharded():
    """Two replicas in bfloat16, of which the second is wanted, on eight devices.

    The mesh is in the types of the arrays.
    """

    def place(case, name, x):
        x = x.astype(jnp.bfloat16) if is_floating(name) else x
        of_replicas = PartitionSpec(None, *spec(case, name))
        return spread(x, of_replicas, "Explicit")

    stacked = jax.tree.map(lambda *x: np.stack(x), inputs_of(7), inputs_of(8))
    values = jax.jit(jax.vmap(every_value, (0, None)))(
        each(place, stacked), spread(SOME, kind="Explicit")
    )

    def rounded(case, name, x):
        return x.astype(jnp.bfloat16).astype(np.float32) if is_floating(name) else x

    return each(rounded, inputs_of(8)), SOME, jax.tree.map(lambda x: x[1], values)


PLACES = {
    **{f"seed {seed}": functools.partial(plain, seed) for seed in range(3)},
    "padding": padded,
    "replicas in bfloat16, sharded": sharded,
}


def in_places(places, slow):
    """A test in each place, of which some are slow."""
    marks = {name: pytest.mark.slow for name in slow}
    names = [pytest.param(name, marks=marks.get(name, ())) for name in places]
    return pytest.mark.parametrize("place", names)


@functools.cache
def values_in(place):
    return jax.device_get({**PLACES, **STREAMS}[place]())


def check(case, place):
    inputs, mask, values = values_in(place)
    valid = take(inputs[case.name], case.kind, np.flatnonzero(mask))
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(values[case.name]))
    close(values[case.name], case.reference(**valid))


@every
@in_places(PLACES, slow=["replicas in bfloat16, sharded"])
def test_equals_the_float64_reference(case, place):
    check(case, place)


@jax.jit
def computed(states):
    """What the states of some cases hold, by the case's name."""
    return {c.name: c.compute(states[c.name]) for c in CASES if c.name in states}


def empty_states(cases=STREAMED):
    return {case.name: case.empty() for case in cases}


def updated(states, batches, mask):
    return {
        c.name: states[c.name].update(**batches[c.name], mask=mask) for c in STREAMED
    }


def merged(*parts):
    names = [case.name for case in STREAMED]
    return {
        n: functools.reduce(lambda a, b: a.merge(b), [p[n] for p in parts])
        for n in names
    }


def batches_of(inputs, size):
    """The examples in turn, `size` at a time, and which of them are valid."""
    for start in range(0, N, size):
        index = np.arange(start, start + size)
        batch = {c.name: take(inputs[c.name], c.kind, index) for c in STREAMED}
        yield batch, SOME[index]


def reduced(inputs, mask):
    """The states of one shard of the examples, added over the shards."""
    return jax.lax.psum(updated(empty_states(), inputs, mask), "data")


def shard_map():
    inputs = inputs_of(9, STREAMED)
    specs = each(lambda case, name, x: spec(case, name), inputs, STREAMED)
    run = over_devices(reduced, specs, PartitionSpec("data"))
    return inputs, SOME, computed(jax.device_get(run(inputs, SOME)))


def pmap():
    inputs = inputs_of(9, STREAMED)
    shards = jax.tree.map(lambda *x: np.stack(x), *batches_of(inputs, N // 8))
    states = jax.device_get(jax.pmap(reduced, axis_name="data")(*shards))
    return inputs, SOME, computed(jax.tree.map(lambda x: x[0], states))


def step(whole, total, batch, mask):
    """The state that sees batches in turn, the one that is merged, and the batch's."""
    part = updated(empty_states(), batch, mask)
    return updated(whole, batch, mask), merged(total, part), part


@functools.cache
def streamed_batches():
    """States of four batches, put together in three ways, and the empty ones."""
    inputs, take_step = inputs_of(11, STREAMED), jax.jit(step)
    whole, total, parts = empty_states(), empty_states(), []
    for batch, mask in batches_of(inputs, 12):
        whole, total, part = take_step(whole, total, batch, mask)
        parts.append(part)
    added = jax.tree.map(lambda *x: sum(x[1:], x[0]), *jax.device_get(parts))
    return inputs, [whole, total, added, empty_states()]


@functools.cache
def values_in_a_stack():
    """Also of states of several models, as `leave_one_model_out` returns them."""
    inputs, states = streamed_batches()
    return inputs, computed(jax.tree.map(lambda *x: jnp.stack(x), *states))


def batched(way):
    inputs, values = values_in_a_stack()
    return inputs, SOME, jax.tree.map(lambda x: x[way], values)


STREAMS = {
    "shard_map and psum": shard_map,
    "pmap and psum": pmap,
    "batches in turn": functools.partial(batched, 0),
    "batches merged": functools.partial(batched, 1),
    "batches added": functools.partial(batched, 2),
}


@streamed
@in_places(STREAMS, slow=["pmap and psum"])
@pytest.mark.filterwarnings("ignore:.*pmap.*:DeprecationWarning")
def test_states_add_up_to_the_float64_reference(case, place):
    check(case, place)


@streamed
def test_a_state_keeps_its_shapes(case):
    whole = streamed_batches()[1][0][case.name]
    chex.assert_trees_all_equal_shapes_and_dtypes(whole, case.empty())


@functools.cache
def values_of_nothing():
    of_states = jax.tree.map(lambda x: x[3], values_in_a_stack()[1])
    return jax.device_get((compiled(inputs_of(3), ~ALL), of_states))


@every
def test_no_valid_example_gives_nan(case):
    whole, streamed = values_of_nothing()
    found = jax.tree.leaves((whole[case.name], streamed.get(case.name)))
    assert found and all(np.all(np.isnan(x)) for x in found)


def _shifted(case, name, x):
    """The same number for every class, or for no metric that such a shift changes."""
    if not (case.shift_invariant and is_floating(name)):
        return x
    shift = np.random.default_rng(0).integers(-8, 8, (*x.shape[:-1], 1))
    return (x + shift).astype(np.float32)


def _renamed(case, name, x):
    """Another order of the classes, where classes have no meaning."""
    if not case.class_symmetric:
        return x
    order = np.random.default_rng(1).permutation(C)
    return x[..., order] if is_floating(name) else np.argsort(order).astype(x.dtype)[x]


def _equal(case, name, x):
    """The first model in place of every other."""
    if has_models(case.kind) and is_floating(name):
        return np.repeat(x[:1], len(x), axis=0)
    return make_inputs(case.kind, 2)["logits_a"] if name == "logits_b" else x


def _reversed(case, name, x):
    if has_models(case.kind) and is_floating(name):
        return x[::-1]
    other = {"logits_a": "logits_b", "logits_b": "logits_a"}.get(name, name)
    return make_inputs(case.kind, 2)[other]


def _spoilt(case, name, x):
    """One score of the example 3 is nan."""
    if not is_floating(name):
        return x
    x = x.copy()
    x[(*(1,) * example_axis(name, case.kind), 3, 1)] = np.nan
    return x


def _mislabelled(case, name, x):
    """The label of the example 3 is no class."""
    return x if is_floating(name) else np.where(np.arange(N) == 3, -1, x)


@functools.cache
def changed_values(change):
    return jax.device_get(compiled(each(change, inputs_of(2)), ALL))


def of_cases(*flags):
    """Every case with all of these flags."""
    chosen = [c for c in CASES if all(getattr(c, flag) for flag in flags)]
    return pytest.mark.parametrize("case", chosen, ids=str)


@of_cases("shift_invariant")
def test_logits_may_be_shifted_and_classes_renamed(case):
    expected = values_in("seed 2")[2][case.name]
    # Adding an integer rounds the logits by up to 5e-7, which ECE's sums feel most.
    close(changed_values(_shifted)[case.name], expected, rtol=1e-5)
    close(changed_values(_renamed)[case.name], expected)


@of_cases("distance")
def test_equal_models_do_not_differ_and_their_order_is_free(case):
    value = values_in("seed 2")[2][case.name]
    assert value > 0.0
    assert changed_values(_equal)[case.name] == 0.0  # exactly
    close(changed_values(_reversed)[case.name], value)


@every
def test_a_score_that_is_nan_is_not_hidden(case):
    for x in jax.tree.leaves(changed_values(_spoilt)[case.name]):
        assert np.isnan(x).any()


LABELLED = [c for c in CASES if "labels" in make_inputs(c.kind)]


@pytest.mark.parametrize("case", LABELLED, ids=str)
def test_a_label_that_is_no_class_is_not_hidden(case):
    assert np.isnan(jax.tree.leaves(changed_values(_mislabelled)[case.name])).any()


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
    extremes["classes ruled out"] = each(_with_classes_ruled_out, drawn, DIFFERENTIABLE)
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
            assert not (case.distance and where == "equal models" and np.any(g))


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
    elsewhere = {"cross_pairs", "deep_ensemble_equivalent", "flip_rank", "flip_rates"}
    elsewhere |= {"leave_one_model_out", "log_loss", "pairwise", "pairwise_kl"}
    elsewhere |= {"summarize_cross", "summarize_paired", "summarize_pairs"}
    functions = {n for n in metrics.__all__ if inspect.isfunction(getattr(metrics, n))}
    # Names that other files of this folder bring have their own tests there.
    assert tested | elsewhere <= functions
    states = {type(case.empty()).__name__ for case in STREAMED}
    assert states == {
        n
        for n in metrics.__all__
        if n.endswith("State") and n not in ("MeanState", "RateState")
    }


def test_the_mask_is_the_last_argument():
    for case in CASES:
        if inspect.isclass(function := getattr(metrics, case.name.split("-")[0])):
            function = function.update
        parameters = list(inspect.signature(function).parameters)
        assert parameters[-1] == "mask" or "mask" not in parameters


# ---- what some of them refuse


Z, Y = make_inputs("labelled").values()
MODELS = make_inputs("members")["member_logits"]
BINARY = r"\[\.\.\., N, 2\].*\(48, 3\).*\[0, z\]"


def calibrated(z=Z, y=Y):
    return metrics.calibrated_scores(Z, Y, validation_logits=z, validation_labels=y)


def curve(z=MODELS, **options):
    return metrics.ensemble_reference_curve(z, Y, **options)


def equivalent(*curve):
    return metrics.deep_ensemble_equivalent(0.7, np.array(curve))


test_what_does_not_fit_is_refused = refusals(
    (lambda: calibrated(z=Z[:, :4]), r"classes.*\(48, 5\).*\(48, 4\)"),
    (lambda: calibrated(y=Y[1:]), r"validation_logits.*\(48,\).*\(47,\)"),
    (lambda: metrics.fit_temperature(Z, Y[1:]), r"labels.*\(48,\).*\(47,\)"),
    (lambda: metrics.expected_calibration_error(Z, Y, 0), r"num_bins.*0"),
    (lambda: metrics.diversity_by_confidence(MODELS, 0), r"num_bins.*0"),
    (lambda: metrics.AUCState.empty(0), r"num_bins.*0"),
    (lambda: metrics.AUCState.empty(8, 0.0), "limit must be positive and finite"),
    (lambda: metrics.AUCState.empty(8, np.inf), "limit must be positive and fini"),
    (lambda: metrics.AUCState.empty(8, np.nan), "limit must be positive and fini"),
    *(
        (lambda f=f, x=x: f(mask=np.where(Y > 0, 1, x)), f"0/1 numbers; got {x}. Exam")
        for f, x in (
            (functools.partial(metrics.accuracy, Z, Y), 0.25),
            (functools.partial(metrics.brier_score, jnp.array(Z), Y), np.nan),
            (functools.partial(metrics.pairwise, metrics.churn, MODELS), 2),
            (functools.partial(confusion_counts, Y, Y, C), -1),
        )
    ),
    (lambda: metrics.roc_auc(Z[:, :3], Y), BINARY),
    (lambda: metrics.calibration_ratio(Z[:, :3], Y), BINARY),
    (lambda: equivalent(), r"\[M\].*0,"),
    (lambda: equivalent([0.5], [0.4]), r"\[M\].*2, 1"),
    (lambda: metrics.deep_ensemble_equivalent(0.7, 0.5), r"\[M\].*\(\)"),
    (lambda: equivalent(np.inf, 0.5), r"finite.*inf"),
    (lambda: curve(MODELS[0]), r"\[M, N, C\].*\(48, 5\)"),
    (lambda: curve(validation_logits=MODELS), "together"),
    (lambda: curve(validation_mask=Y > 0), "validation_mask only with them"),
    (
        lambda: curve(validation_logits=MODELS[:3], validation_labels=Y),
        r"members.*\(4, 48.*\(3, 48, 5\)",
    ),
    (
        lambda: curve(validation_logits=MODELS[:, 1:], validation_labels=Y),
        r"validation_logits.*\(47,\).*\(48,\)",
    ),
    (lambda: curve(np.repeat(MODELS, 3, 0)[:9]), r"511 subsets.*prefixes"),
    (lambda: curve(subsets="some"), "some"),
    *(
        (lambda a=a: metrics.surrogate_churn(Z, Z, a), f"alpha must be positive .*{a}")
        for a in (-1.0, np.inf, np.nan, np.float32(-2))
    ),
    (lambda: metrics.prediction_difference(MODELS, 0.5), r"at least 1.*0\.5"),
    (lambda: metrics.weighted_prediction_difference(MODELS, 0), r"least 1.*0"),
    (lambda: metrics.positive_prediction_difference(MODELS), r"N, 2\].*\(4, 48"),
    (lambda: metrics.prediction_difference(MODELS[0]), r"\[M, N, C\].*\(48, 5\)"),
    (
        lambda: metrics.hamming_prediction_difference(MODELS[:1]),
        r"\[R, \.\.\., C\] with at least two models .*\(1, 48, 5\)",
    ),
    (lambda: metrics.summarize_pairs(np.zeros((2, 3))), r"R, R.*\(2, 3\)"),
    (lambda: metrics.summarize_paired(np.zeros((2, 3))), r"R, R.*\(2, 3\)"),
    (lambda: metrics.summarize_cross(np.zeros(3)), r"R1, R2.*\(3,\)"),
    (
        lambda: metrics.leave_one_model_out(metrics.ambiguity, MODELS[:2]),
        r"at least three.*\(2, 48, 5\)",
    ),
    (lambda: metrics.SurrogateChurnState.empty(4.0), "positional"),
    error=(TypeError, ValueError),
)


def test_states_of_other_kinds_settings_and_shapes_do_not_merge():
    bins, area = metrics.ECEState, metrics.AUCState
    orders = (metrics.PredictionDifferenceState.empty(order=o) for o in (1, 2))
    for states, message in (
        ((bins.empty(5), bins.empty(4)), r"one kind.*\(5,\).*\(4,\)"),
        ((area.empty(8), area.empty(8, 4.0)), r"limit=16\.0.*limit=4\.0"),
        (orders, r"order=1.*order=2"),
        ((bins.empty(5), metrics.ChurnState.empty()), r"ECEState.*ChurnState"),
    ):
        one, two = states
        with pytest.raises(ValueError, match=message):
            one.merge(two)
