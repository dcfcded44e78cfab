"""What a training step is called with, as shapes with shardings: nothing is made."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import Group
from churn_jax.training.examples import example_of
from churn_jax.training.partition import REPLICA
from churn_jax.training.program import Program
from churn_jax.training.replicas import term_names
from churn_jax.training.run import Run
from churn_jax.training.state import (
    ReplicaInputs,
    TrainState,
    init_coefficients,
    init_state,
)
from churn_jax.typing import PyTree

__all__ = ["abstract_arguments", "placed"]


def placed(mesh: Mesh, spec: Any, tree: PyTree) -> PyTree:
    """The shapes of a tree with shardings; `spec` is one for all, or a tree of them."""

    def place(spec, part):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part
        )

    return jax.tree.map(place, spec, tree, is_leaf=lambda x: isinstance(x, P))


def _variables(groups: tuple[Group, ...], replicas: int, example) -> tuple[PyTree, ...]:
    """Shapes `[R, S, ...]` of every group's variables."""

    def stacked(group: Group):
        one = jax.eval_shape(group.network.init, jax.random.key(0), example)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((replicas, group.size, *x.shape), x.dtype),
            one,
        )

    return tuple(stacked(group) for group in groups)


def abstract_arguments(
    run: Run,
    program: Program,
    image: tuple[int, ...],
    examples: int,
    *,
    classes: int = 10,
    dtype: Any = np.uint8,
) -> tuple:
    """The arguments of `make_step` as shapes with shardings; none is allocated."""
    config, mesh = run.config, program.mesh
    replicas, batch = config.replicas, program.batch_size
    example = example_of(image, tokens=np.dtype(dtype) == np.int32)
    variables = _variables(run.groups, replicas, example)

    def build(variables, terms):
        numbers = np.arange(replicas)
        memory = run.method.init_memory(classes)
        state = init_state(program, variables, replicas, terms, memory)
        shared = run.method.member_sample == "shared"
        inputs = ReplicaInputs(
            jnp.zeros((replicas, examples), jnp.int32),
            config.seeds.keys("augment", numbers),
            init_coefficients(run.method, config.optimizer, replicas, mesh),
            () if shared else config.seeds.keys("sample", numbers),
        )
        return state, inputs

    teacher: tuple = ()
    if program.teacher is not None:
        if program.teacher.cached:
            table = jax.ShapeDtypeStruct((replicas, 1, examples, classes), jnp.float32)
            teacher = ({"logits": table},)
        teacher += _variables(program.teacher.groups, replicas, example)
    lead = {"resident": (examples,), "shared": (batch,), "own": (replicas, batch)}
    shape = (math.prod(image),) if program.feed == "resident" else image
    images = jax.ShapeDtypeStruct((*lead[program.feed], *shape), dtype)
    labels = jax.ShapeDtypeStruct(lead[program.feed], jnp.int32)
    specs = (
        TrainState.specs(program.slots),
        P(REPLICA),
        program.teacher_spec,
        *program.data_specs,
    )

    def arguments(terms: int) -> tuple:
        state, inputs = jax.eval_shape(lambda v: build(v, terms), variables)
        trees = (state, inputs, teacher, images, labels)
        return tuple(placed(mesh, spec, tree) for spec, tree in zip(specs, trees))

    return arguments(len(term_names(program, *arguments(0))))
