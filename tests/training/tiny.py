"""Tiny runs with convolutions and batch norm, through the engine's own set-up."""

import contextlib
import dataclasses
import functools
import json
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import monitoring
from jax.sharding import PartitionSpec as P

from churn_jax.data import Augmentation, Dataset, Split
from churn_jax.ensembles import Group, Outputs, from_function, from_linen
from churn_jax.ensembles.network import linear_head
from churn_jax.methods import ERM, Method
from churn_jax.models import BatchEnsemble
from churn_jax.planning.hlo import collectives_of
from churn_jax.training import MeshShape, OptimizerConfig, Run, Seeds, TrainConfig
from churn_jax.training.partition import MEMBER, REPLICA, fetch, join, make_mesh, split
from churn_jax.training.session import Session, open_session
from churn_jax.training.state import TrainState, init_variables
from churn_jax.training.step import make_step

EXAMPLES, BATCH, CLASSES = 64, 16, 5
STEPS_PER_EPOCH = EXAMPLES // BATCH
ONE = MeshShape()
MOMENTS = {"mean": 0.5, "std": 0.25}
EVENT = "/jax/core/compile/backend_compile_duration"


class TinyNet(nn.Module):
    """A convolution and batch norm, and another convolution unless it is to be slim.

    Two with batch norm between them are what partitioning gets wrong; one compiles in
    half the time.
    """

    slim: bool = False
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(4, (3, 3), strides=1 + self.slim)(x)
        x = nn.BatchNorm(
            use_running_average=not train, axis_name=self.axis_name, momentum=0.9
        )(x)
        if not self.slim:
            x = nn.Conv(4, (3, 3), strides=2)(nn.relu(x))
        return nn.Dense(CLASSES)(nn.relu(x).reshape(x.shape[0], -1))


class SharedNet(nn.Module):
    """A convolution, batch norm and a dense layer of a BatchEnsemble."""

    heads: int
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x, train):
        layers = BatchEnsemble(self.heads)
        x, entered = layers.enter(self, x, train)
        x = layers.conv(
            4,
            3,
            stride=2,
            padding=1,
            dtype=jnp.float32,
            name="conv",
            kernel_init=nn.initializers.lecun_normal(),
        )(x)
        norm = layers.norm(
            train=train, name="norm", axis_name=self.axis_name, momentum=0.9
        )
        x = nn.relu(norm(x)).reshape(x.shape[0], -1)
        return layers.leave(layers.head(CLASSES, dtype=jnp.float32)(x), entered)


def hashed(network):
    """The network with weights that are a cheap hash of the key."""
    return dataclasses.replace(network, init=functools.partial(_hashed, network))


def _hashed(network, key, x):
    """A cheap hash of the key as weights: Flax's draws take seconds to compile."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    variables = jax.eval_shape(network.init, jax.random.key(0), shape)
    low, high = jax.random.key_data(key)

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        if leaf.ndim == 1:  # biases, and what batch norm holds
            return jnp.full(leaf.shape, float("scale" in name or "var" in name))
        bits = jnp.arange(leaf.size, dtype=jnp.uint32) * jnp.uint32(2654435761) + low
        bits = (bits ^ (bits >> 16) ^ high ^ jnp.uint32(leaf.size)) * jnp.uint32(0x85EB)
        bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
        unit = (bits >> 8).astype(jnp.float32) / 2**24 - 0.5
        fan_in = leaf.size // leaf.shape[-1]
        return (unit * (12 / fan_in) ** 0.5).reshape(leaf.shape)

    return jax.tree_util.tree_map_with_path(draw, variables)


NETWORK = hashed(from_linen(TinyNet()))
SLIM = hashed(from_linen(TinyNet(slim=True)))


def _init_linear(key, x):
    size = x[0].size
    return {"kernel": jax.random.normal(key, (size, CLASSES)) / size**0.5}


def _apply_linear(params, x):
    return x.reshape(x.shape[0], -1) @ params["kernel"]


# For what has nothing to do with the network: compiles in a fraction of the time.
LINEAR = from_function(_init_linear, _apply_linear)


WIDTH = 6  # of the features of SMALL


def _init_small(key, x):
    first, last = jax.random.split(key)
    size = x[0].size
    return {
        "hidden": jax.random.normal(first, (size, WIDTH)) / size**0.5,
        "head": {"kernel": jax.random.normal(last, (WIDTH, CLASSES))},
    }


def _apply_small(params, x):
    features = jnp.tanh(x.reshape(x.shape[0], -1) @ params["hidden"])
    return Outputs(features @ params["head"]["kernel"], features)


# Two layers whose last one is known.
SMALL = dataclasses.replace(from_function(_init_small, _apply_small), head=linear_head)


def read_metrics(folder):
    """The lines of the `metrics.jsonl` of a training."""
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def dataset():
    """Random 8x8 images with random labels; the same on every call."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (EXAMPLES, 8, 8, 1)).astype(np.uint8)
    labels = rng.integers(0, CLASSES, EXAMPLES).astype(np.int32)
    part = Split(images, labels, np.arange(len(labels)))
    return Dataset("tiny", part, part, part, CLASSES, fingerprint="tiny")


def teacher(networks: int, replicas: int = 4, network=SLIM):
    """Untrained networks in the form of a trained ensemble, other ones per replica."""
    run = SimpleNamespace(
        name="teacher",
        groups=(Group(network, networks),),
        method=ERM(members=networks, deploy="mean_probs"),
        config=TrainConfig(replicas=replicas, seeds=Seeds(7)),
        stream=0,
    )
    host = jax.device_get(drawn(run, jnp.zeros((1, 8, 8, 1))))
    parts = {"identity": "{}", "teacher_variables": lambda: host}
    return SimpleNamespace(run=run, program=SimpleNamespace(**MOMENTS), **parts)


def drawn(run, example, mesh=ONE):
    """The first variables of a run, without a session."""
    where = SimpleNamespace(mesh=make_mesh(mesh), slots=P(REPLICA, MEMBER))
    return init_variables(run, where, example)


def make_run(method: Method, *, network=SLIM, **options) -> Run:
    """A run of `method`; options are those of `TrainConfig`."""
    options = {
        "replicas": 4,
        "epochs": 3,
        "batch_size": BATCH,
        "mapping": "vmap",
        "steps_per_call": 1,
        "augmentation": Augmentation(pad_crop=1, flip=True),
        "optimizer": OptimizerConfig(learning_rate=0.1, weight_decay=0.0),
        **options,
    }
    groups = (Group(network, method.members // network.heads),)
    return Run("tiny", method, groups, TrainConfig(**options))


# The second of two replicas stops soon.
STOPPING = OptimizerConfig(learning_rate=(0.1, 1e38), weight_decay=0.0)


def linear_run(method: Method, *, network=LINEAR, **options) -> Run:
    """A run of two replicas on images as they are."""
    options = {"replicas": 2, "augmentation": Augmentation(), **options}
    return make_run(method, network=network, **options)


def session_of(run: Run, *, taught_by=None) -> Session:
    """The run's set-up, as the loop makes it."""
    return open_session(run, dataset(), teacher=taught_by, **MOMENTS)


@dataclasses.dataclass
class Stepper:
    """A compiled step with its arguments; states are chunks, as in the loop."""

    run: Run
    session: Session
    step: Any
    states: list[TrainState]  # chunks of replicas
    teachers: list[Any]

    @property
    def data(self):
        return self.session.data

    def inputs(self, epoch: int):
        return split(self.session.parts[0].inputs(epoch), len(self.states))

    def advance(self, steps: int) -> TrainState:
        """Takes so many steps; returns the state on the host."""
        for _ in range(steps):
            done = int(fetch(self.states[0].step)[0])
            inputs = self.inputs(done // STEPS_PER_EPOCH)
            self.states = [
                self.step(*parts, *self.data)
                for parts in zip(self.states, inputs, self.teachers, strict=True)
            ]
        return self.now()

    def now(self) -> TrainState:
        """The state as that of the run."""
        return fetch(self.session.gathered([join(self.states)]))

    def history(self, steps: int) -> list[TrainState]:
        """The state before so many steps and after each of them."""
        return [self.now(), *(self.advance(1) for _ in range(steps))]


def stepper(run: Run, *, taught_by=None) -> Stepper:
    """Sets a run up; equal programs share the compiled step."""
    session = session_of(run, taught_by=taught_by)
    (part,) = session.parts
    teachers = [()] * part.chunks
    if session.program.teacher is not None:
        teachers = split(session.teacher, part.chunks)
    step = make_step(part.program, steps_per_call=1)
    return Stepper(run, session, step, split(part.state, part.chunks), teachers)


def compiled(run: Run, *, taught_by=None):
    """The session of a run, its step, which never runs, and what that moves."""
    session = session_of(run, taught_by=taught_by)
    (part,) = session.parts
    arguments = (part.state, part.inputs(0), session.teacher, *session.data)
    step = make_step(part.program).lower(*arguments).compile()
    return session, step, collectives_of(step.as_text(), part.program.mesh)


def weights(state: TrainState):
    """Everything that a network consists of."""
    return state.params, state.model_state


def gradient(first: TrainState):
    """The first update's gradient: what momentum holds after it (no weight decay)."""
    return tuple(momentum.trace for _, momentum, _ in first.opt_state)


def largest_difference(a, b) -> float:
    """Largest absolute difference of two trees of one structure; nan is infinite."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    gaps = [
        np.max(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)), initial=0)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    ]
    return float(np.nan_to_num(max(gaps), nan=np.inf))


def bitwise_equal(a, b) -> bool:
    """True if two trees hold the same bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    pairs = zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (a, b)))
    return all(
        (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
        for x, y in pairs
    )


def replica(tree, r: int):
    """Replica r of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[r], tree)


@contextlib.contextmanager
def compilations():
    """A list that fills with the names of the functions that are compiled."""
    names, listening = [], True

    def listen(event, seconds, **details):
        if listening and event == EVENT:
            names.append(details.get("fun_name", "?"))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        listening = False  # JAX 0.7 cannot unregister
