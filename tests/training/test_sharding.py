"""Every mesh computes what one device computes: losses, gradients, weights, metrics.

Two mesh axes, dense networks or losses alone would not show what goes wrong without
`shard_map`: with jax 0.10.2, automatic partitioning over a (2, 2, 2) mesh returns a
multiple of the gradient of a vmapped convolution.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.training import MeshShape
from churn_jax.data.augment import augment, normalize
from churn_jax.ensembles import Outputs
from churn_jax.methods import ERM, Batch, Codistillation, EnsembleDistillation
from churn_jax.metrics.state import LongSum
from churn_jax.training.partition import (
    DATA,
    MEMBER,
    REPLICA,
    make_mesh,
)
from churn_jax.training.predictions import make_predict, predict_split
from churn_jax.training.seeds import member_counts
from churn_jax.training.state import TrainState
from tests.metrics.cases import STREAMED
from tests.training import tiny

METHODS = {
    "co-distilled pair": Codistillation(beta=0.3, alpha=0.1),
    "distilled ensemble": EnsembleDistillation(members=2, deploy="mean_probs"),
    "plain ensemble": ERM(members=2, deploy="mean_probs"),
    "stale twins": Codistillation(
        beta=0.3, update="independent", refresh_steps=2, member_sample="bootstrap"
    ),
}
MESHES = [(2, 2, 2), (1, 1, 8), (4, 2, 1)]

# One method per way of communicating is fast: a pair, and an ensemble that teaches.
# What members sample and remember is in the slow ones.
methods = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if "distilled" in name else pytest.mark.slow)
        for name in METHODS
    ],
)
meshes = pytest.mark.parametrize(  # the first has all axes
    "shape",
    [MESHES[0], *(pytest.param(s, marks=pytest.mark.slow) for s in MESHES[1:])],
    ids=str,
)


class Outcome(NamedTuple):
    """What a mesh computed."""

    stepper: tiny.Stepper
    start: TrainState  # before the first update
    placed: Any  # shardings of the state after three updates
    first: TrainState  # after one update
    third: TrainState  # after three
    logits: jax.Array  # [R, N, C] after three, on the mesh


@functools.cache
def outcome(name, shape):
    method = METHODS[name]
    taught_by = tiny.teacher(2) if method.needs_teacher else None
    run = tiny.make_run(method, mesh=MeshShape(*shape))
    stepper = tiny.stepper(run, taught_by=taught_by)
    start = stepper.now()
    first = stepper.advance(1)
    with tiny.compilations() as names:
        third = stepper.advance(2)
    assert not [name for name in names if "steps" in name]
    state, program = stepper.states[0], stepper.session.program
    logits = predict_split(
        make_predict(program, method),
        [(state.params, state.model_state)],
        stepper.session.images,
        program.mesh,
        batch_size=32,
    )
    placed = jax.tree.map(lambda x: x.sharding, state)
    return Outcome(stepper, start, placed, first, third, logits)


def gradient(first: TrainState):
    """The first update's gradient: what momentum holds after it (no weight decay)."""
    return tuple(momentum.trace for _, momentum, _ in first.opt_state)


@methods
def test_a_mesh_computes_what_one_device_computes(name):
    compare(name, (2, 2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("shape", MESHES[1:], ids=str)
def test_other_meshes_compute_what_one_device_computes(shape):
    compare("co-distilled pair", shape)


def compare(name, shape):
    one, mesh = outcome(name, (1, 1, 1)), outcome(name, shape)
    assert mesh.stepper.session.program.mesh.size == np.prod(shape)
    size = max(np.abs(g).max() for g in jax.tree.leaves(gradient(one.first)))
    assert size > 0.1, "gradients too small for the tolerance to mean anything"
    for pick in (
        lambda o: o.first.sums,  # the loss and every term
        lambda o: gradient(o.first),
        lambda o: o.first.params,
        lambda o: o.third.sums,
        lambda o: o.third.params,
        lambda o: o.third.model_state,
        lambda o: o.third.opt_state,
        lambda o: (o.third.step, o.third.peers),  # most have no copies
        lambda o: o.logits,
    ):
        assert tiny.largest_difference(pick(one), pick(mesh)) < 1e-5
    moved = tiny.largest_difference(one.first.params, one.third.params)
    assert moved > 1e-2


@methods
def test_the_gradient_is_the_one_of_a_plain_loop(name):
    """One device against `jax.grad` of a Python loop: no vmap, no mesh, no slots."""
    method, r = METHODS[name], 1
    one = outcome(name, (1, 1, 1))
    config, session = one.stepper.run.config, one.stepper.session
    data, inputs = tiny.dataset().train, session.inputs(0)
    rows = np.asarray(inputs.order)[r, : tiny.BATCH]
    labels = jnp.asarray(data.labels[rows])
    taught = jax.tree.map(np.asarray, session.teacher)

    def member(tree, m):
        return jax.tree.map(lambda leaf: leaf[r, m], tree)

    def forward(networks, x, train=True):
        results = [tiny.NETWORK.apply(v, x, train=train) for v in networks]
        logits = jnp.stack([outputs.logits for outputs, _ in results])
        return Outputs(logits), [state for _, state in results]

    def teacher(x, pick=None):
        networks = [member(taught[0], m) for m in range(2)]
        return forward(networks, x, False)[0].logits

    if method.stale_steps:  # the copies are made before the first update
        taught = ({"params": one.start.params[0], **one.start.model_state[0]},)
    counts = None
    if method.member_sample == "bootstrap":
        counts = member_counts(inputs.sample_key[r], 2, jnp.asarray(rows))

    def objective(params, raw):
        step_key = jax.random.fold_in(inputs.augment_key[r], 0)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        keys = fold(jax.random.fold_in(step_key, 0), jnp.arange(tiny.BATCH))
        images = normalize(augment(raw, keys, config.augmentation), 0.5, 0.25)
        batch = Batch(images, labels, jnp.ones(tiny.BATCH), keys, None, counts)
        states = [member(one.start.model_state[0], m) for m in range(2)]
        out = method.loss(
            forward,
            [{"params": p, **s} for p, s in zip(params, states)],
            batch,
            teacher=teacher,
            step=jnp.int32(0),
            key=step_key,
        )
        return out.loss

    params = [member(one.start.params[0], m) for m in range(2)]
    loss, truth = jax.jit(jax.value_and_grad(objective))(params, data.images[rows])
    assert abs(float(loss) - one.first.sums[r, 0]) < 1e-5
    for m in range(2):
        ours = member(gradient(one.first)[0], m)
        assert tiny.largest_difference(ours, truth[m]) < 1e-5


@meshes
def test_the_state_stays_where_it_was_placed(shape):
    result = outcome("co-distilled pair", shape)
    mesh = result.stepper.session.program.mesh
    specs = TrainState.specs()
    for field in ("params", "model_state", "opt_state", "step", "sums", "alive"):
        expected = NamedSharding(mesh, getattr(specs, field))
        for leaf, sharding in zip(
            jax.tree.leaves(getattr(result.first, field)),
            jax.tree.leaves(getattr(result.placed, field)),
            strict=True,
        ):
            assert sharding.is_equivalent_to(expected, np.ndim(leaf))


def inputs_of(case, logits, labels):
    """What a metric reads, taken from the replicas' predictions `[R, N, C]`."""
    if case.kind == "one":
        return {"logits": logits[0]}
    if case.kind == "labelled":
        return {"logits": logits[0], "labels": labels}
    if case.kind in ("pair", "labelled pair"):
        pair = {"logits_a": logits[0], "logits_b": logits[1]}
        return pair if case.kind == "pair" else {**pair, "labels": labels}
    if case.kind == "update":
        return {"old_logits": logits[0], "new_logits": logits[1], "labels": labels}
    if case.kind == "scores of models":
        return {"scores": logits}
    if case.kind in ("members", "labelled members"):
        members = {"member_logits": logits}
        return members if case.kind == "members" else {**members, "labels": labels}
    if case.kind == "clicks":
        return {"logits": logits[0, ..., :2], "labels": jnp.minimum(labels, 1)}
    chosen = logits[..., :2] if case.kind == "binary models" else logits
    return {"logits": chosen} | ({"labels": labels} if "labelled" in case.kind else {})


def all_states(logits, labels):
    return [c.empty().update(**inputs_of(c, logits, labels)) for c in STREAMED]


def sums(state):
    """The fields of a State; a `LongSum` means something only as a whole."""
    leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, LongSum))
    return [x.value() if isinstance(x, LongSum) else x for x in leaves]


@meshes
def test_every_metric_state_of_sharded_predictions_equals_one_device(shape):
    """Summed by `psum` inside `shard_map`, against the whole array on one device."""
    labels = jnp.asarray(tiny.dataset().train.labels)
    one = jax.device_get(outcome("co-distilled pair", (1, 1, 1)).logits)
    truth = jax.jit(all_states)(jnp.asarray(one), labels)
    result = outcome("co-distilled pair", shape)
    assert result.logits.shape == (4, tiny.EXAMPLES, tiny.CLASSES)
    sharded = jax.jit(
        jax.shard_map(
            lambda *shard: jax.lax.psum(all_states(*shard), DATA),
            mesh=result.stepper.session.program.mesh,
            in_specs=(P(None, DATA), P(DATA)),
            out_specs=P(),
            check_vma=True,
        )
    )(result.logits, labels)
    assert len(STREAMED) > 10
    for case, ours, theirs in zip(STREAMED, sharded, truth, strict=True):
        for a, b in zip(sums(ours), sums(theirs), strict=True):
            if jnp.issubdtype(a.dtype, jnp.integer):
                assert np.array_equal(a, b), case
            else:  # the logits themselves agree to 1e-5
                np.testing.assert_allclose(
                    a, b, rtol=1e-5, atol=1e-5, err_msg=str(case)
                )


def test_shard_map_is_right_where_automatic_partitioning_need_not_be(record_property):
    """Why the step is manual. Nothing is asserted of the automatic gradient: it was
    twice the true one with jax 0.10.2 and may be right some day."""
    mesh = make_mesh(MeshShape(2, 2, 2))
    key_x, key_w = jax.random.split(jax.random.key(0))
    x = jax.random.normal(key_x, (4, 2, 16, 8, 8, 8))
    w = jax.random.normal(key_w, (4, 2, 3, 3, 8, 8)) / 8

    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def objective(w, x):
        return jnp.sum(jnp.sin(jax.vmap(jax.vmap(convolve))(x, w)))

    spec_w, spec_x = P(REPLICA, MEMBER), P(REPLICA, MEMBER, DATA)
    placed = (
        jax.device_put(w, NamedSharding(mesh, spec_w)),
        jax.device_put(x, NamedSharding(mesh, spec_x)),
    )
    truth = jax.jit(jax.grad(objective))(w, x)
    ours = jax.jit(
        jax.shard_map(
            # The weights do not vary over data, so their gradient is summed over it.
            jax.grad(objective),
            mesh=mesh,
            in_specs=(spec_w, spec_x),
            out_specs=spec_w,
            check_vma=True,
        )
    )(*placed)
    automatic = jax.jit(jax.grad(objective))(*placed)
    ratio = float(jnp.vdot(jax.device_get(automatic), truth) / jnp.vdot(truth, truth))
    record_property("automatic gradient / true gradient", ratio)
    print(f"automatic gradient / true gradient: {ratio:.3f}")
    # Sums of 16 * 64 products in another order.
    np.testing.assert_allclose(ours, truth, atol=1e-3)
    assert float(jnp.abs(truth).max()) > 10
