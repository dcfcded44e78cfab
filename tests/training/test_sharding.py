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

from churn_jax.data import augment, normalize
from churn_jax.ensembles import Outputs
from churn_jax.methods import Batch, Codistillation, EnsembleDistillation
from churn_jax.training import MeshShape
from churn_jax.training.predictions import predict_split
from churn_jax.training.state import TrainState, member_weights
from tests.training import tiny

METHODS = {
    "co-distilled pair": Codistillation(beta=0.3, alpha=0.1),
    "distilled ensemble": EnsembleDistillation(members=2, deploy="mean_probs"),
    "stale twins": Codistillation(
        beta=0.3, update="independent", refresh_steps=2, member_sample="bootstrap"
    ),
}


def methods(*names):
    """A pair communicates along all axes; what members are taught and sample is slow.

    `test_teachers.py` has teachers on a mesh, and `test_seeds.py` plain ensembles.
    """
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("name", ["co-distilled pair", *slow])


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
    taught_by = None
    if method.needs_teacher:
        taught_by = tiny.teacher(2, network=tiny.NETWORK)
    run = tiny.make_run(
        method, network=tiny.NETWORK, mesh=MeshShape(*shape), eval_batch_size=32
    )
    stepper = tiny.stepper(run, taught_by=taught_by)
    start = stepper.now()
    first = stepper.advance(1)
    with tiny.compilations() as names:
        third = stepper.advance(2)
    assert not [name for name in names if "steps" in name]
    (joined,) = stepper.states
    state, program = stepper.session.gathered([joined]), stepper.session.program
    held, images = [(state.params, state.model_state)], stepper.session.data[0]
    logits = predict_split(run, program, held, images)
    placed = jax.tree.map(lambda x: x.sharding, state)
    return Outcome(stepper, start, placed, first, third, logits)


@methods("stale twins")
def test_a_mesh_computes_what_one_device_computes(name):
    one, mesh = outcome(name, (1, 1, 1)), outcome(name, (2, 2, 2))
    assert mesh.stepper.session.program.mesh.size == 8
    size = max(np.abs(g).max() for g in jax.tree.leaves(tiny.gradient(one.first)))
    assert size > 0.1, "gradients too small for the tolerance to mean anything"
    for pick in (
        lambda o: o.first.sums,  # the loss and every term
        lambda o: tiny.gradient(o.first),
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
    check_placement(mesh)


@methods("stale twins", "distilled ensemble")
def test_the_gradient_is_the_one_of_a_plain_loop(name):
    """One device against `jax.grad` of a Python loop: no vmap, no mesh, no slots."""
    method, r = METHODS[name], 1
    one = outcome(name, (1, 1, 1))
    config, session = one.stepper.run.config, one.stepper.session
    data, inputs = tiny.dataset().train, session.parts[0].inputs(0)
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

    def objective(params):
        rows = np.asarray(inputs.order)[r, : tiny.BATCH]
        raw, labels = data.images[rows], jnp.asarray(data.labels[rows])
        drawn = None
        if method.member_sample == "bootstrap":
            drawn = member_weights("bootstrap", inputs.sample_key[r], jnp.asarray(rows))
        step_key = jax.random.fold_in(inputs.augment_key[r], 0)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        keys = fold(jax.random.fold_in(step_key, 0), jnp.arange(tiny.BATCH))
        images = normalize(augment(raw, keys, config.augmentation), 0.5, 0.25)
        batch = Batch(images, labels, jnp.ones(tiny.BATCH), keys, None, drawn)
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
    loss, truth = jax.jit(jax.value_and_grad(objective))(params)
    assert abs(float(loss) - one.first.sums[r, 0]) < 1e-5
    for m in range(2):
        ours = member(tiny.gradient(one.first)[0], m)
        assert tiny.largest_difference(ours, truth[m]) < 1e-5


def check_placement(result):
    """The state stays where it was placed."""
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
