"""Anti-distillation through the engine: meshes, sweeps, committees, divergence."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.training import MeshShape, OptimizerConfig
from churn_jax.ensembles import Group, Outputs, from_function, from_linen
from churn_jax.methods import AntiDistillation
from churn_jax.models import Gate
from churn_jax.training.predictions import predict_split
from tests.training import tiny

ADAGRAD = OptimizerConfig(name="adagrad", learning_rate=0.05, weight_decay=0.0)


def _init(key, x):
    wide, deep = jax.random.split(key)
    size = x[0].size
    return {
        "wide": jax.random.normal(wide, (size, tiny.CLASSES)) / size,
        "deep": jax.random.normal(deep, (size, tiny.CLASSES)) / size**0.5,
    }


def _apply(params, x):
    x = x.reshape(x.shape[0], -1)
    deep = jnp.tanh(x @ params["deep"])
    return Outputs(x @ params["wide"] + deep, features=x @ params["deep"], part=deep)


WIDE_AND_DEEP = from_function(_init, _apply, name="wide and deep")
GATE = Group(from_linen(Gate(1), name="gate"), 2, gate=True)


def run_of(method, groups=None, **options):
    options = {"optimizer": ADAGRAD, **options}
    run = tiny.make_run(method, network=WIDE_AND_DEEP, **options)
    return run if groups is None else dataclasses.replace(run, groups=tuple(groups))


def predictions(stepper):
    """What is deployed of the first eight images, `[R, 8, C]`."""
    state, program = stepper.states[0], stepper.session.program
    logits = predict_split(
        program,
        stepper.run.method,
        [(state.params, state.model_state)],
        stepper.session.data[0][:8],
        batch_size=8,
    )
    return np.asarray(logits)


METHODS = {
    "gate and part": AntiDistillation(
        deploy="gate", on="part", train_on="both", strength=4.0, label_reduction="sum"
    ),
    "memory and samples": AntiDistillation(
        penalty="covariance",
        running=0.5,
        member_sample="bootstrap",
        common_only=True,
        strength=0.5,
    ),
}


@pytest.mark.parametrize(
    "name",
    ["gate and part", pytest.param("memory and samples", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_a_mesh_computes_what_one_device_computes(name):
    """Replicas, members and examples are all sharded; so is the gate."""
    method = METHODS[name]
    groups = [Group(WIDE_AND_DEEP, 2)]
    if method.deploy == "gate":
        groups.append(GATE)
    ends = []
    for shape in ((1, 1, 1), (2, 2, 2)):
        run = run_of(method, groups, mesh=MeshShape(*shape))
        stepper = tiny.stepper(run)
        first, third = stepper.advance(1), stepper.advance(2)
        ends.append((first.sums, third.sums, third.params, third.memory, third.alive))
        ends[-1] += (predictions(stepper),)
        start = first.params
    assert tiny.largest_difference(*ends) < 1e-5
    assert np.all(ends[0][4])
    # Everything moves: both parts of the networks and the gate.
    moved = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), start, ends[1][2])
    assert min(jax.tree.leaves(moved)) > 1e-4


def test_the_gate_is_no_member_and_needs_a_method_that_trains_it():
    groups = [Group(WIDE_AND_DEEP, 2), GATE]
    run = run_of(AntiDistillation(deploy="gate"), groups)
    assert sum(g.members for g in run.groups) == 2
    with pytest.raises(ValueError, match="deploy='mean_probs' would not train it"):
        run_of(AntiDistillation(), groups)
    with pytest.raises(ValueError, match="2 gate group"):
        run_of(AntiDistillation(deploy="gate"), [*groups, GATE])
    with pytest.raises(ValueError, match="needs a gate in the committee"):
        tiny.session_of(run_of(AntiDistillation(deploy="gate"), groups[:1]))
    one_for_all = Group(from_linen(Gate(2), name="gate"), 1, gate=True)
    shared = run_of(
        AntiDistillation(deploy="gate"),
        [groups[0], one_for_all],
        mesh=MeshShape(2, 2, 2),
    )
    with pytest.raises(ValueError, match="1 networks of gate cannot be sharded"):
        tiny.session_of(shared)
