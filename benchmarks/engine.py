"""The engine as a contender: its compiled step on random images."""

import time
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from turns import Measure

from churn_jax import data, ensembles, methods, models
from churn_jax.training import OptimizerConfig, Run, TrainConfig
from churn_jax.training.partition import fetch, replicate, split
from churn_jax.training.program import over_cores
from churn_jax.training.session import open_session
from churn_jax.training.step import make_step

CLASSES = 10


def network_of(name: str, **options: Any) -> ensembles.Network:
    """A network of the zoo with ten classes."""
    return ensembles.from_linen(models.create(name, num_classes=CLASSES, **options))


def random_dataset(
    image: tuple[int, ...], examples: int = 4096, classes: int = CLASSES
) -> data.Dataset:
    """Images of random bytes with random labels; few to validate and test on."""
    generator = np.random.default_rng(0)

    def part(count: int) -> data.Split:
        return data.Split(
            generator.integers(0, 256, (count, *image), dtype=np.uint8),
            generator.integers(0, classes, count, dtype=np.int32),
            np.arange(count),
        )

    parts = part(examples), part(128), part(128)
    return data.Dataset("random", *parts, classes, fingerprint="random")


def open_engine(
    network: ensembles.Network,
    dataset: data.Dataset,
    method: methods.Method | None = None,
    *,
    teacher: Any = None,
    study: bool = False,
    **train: Any,
):
    """A long run, of which a part is measured, and its session.

    Args:
        network: network of every member.
        dataset: training data.
        method: by default one network.
        teacher: a trained row or `Teachers`.
        study: spread the replicas over a CPU's cores, as commands do.
        train: fields of `TrainConfig`.
    """
    method = method or methods.ERM()
    optimizer = OptimizerConfig(learning_rate=0.01, nesterov=False, weight_decay=0.0)
    config = TrainConfig(**{"epochs": 1000, "optimizer": optimizer, **train})
    groups = (ensembles.Group(network, method.members // network.heads),)
    run = Run("benchmark", method, groups, config)
    run = over_cores(run) if study else run
    return run, open_session(
        run, dataset, directory=None, teacher=teacher, mean=0.5, std=0.25
    )


def untrained(network, dataset, members: int, **train: Any) -> Any:
    """Untrained networks in the form of a trained ensemble, which teaches."""
    method = methods.ERM(members=members, deploy="mean_probs")
    run, session = open_engine(network, dataset, method, **train)
    pairs = zip(session.best.params, session.best.model_state)
    variables = tuple({**fetch(s), "params": fetch(p)} for p, s in pairs)
    host = {"identity": "{}", "stopped": (), "teacher_variables": lambda: variables}
    return SimpleNamespace(run=run, program=session.program, **host)


def stepper(run: Run, session, updates: int, launches: int = 1) -> Measure:
    """Compiles; clock and processor seconds of so many updates of all replicas.

    Args:
        run: the run to train.
        session: session of the run.
        updates: number of updates of every replica.
        launches: number of launches, one after another.
    """
    (part,) = session.parts
    program, chunks = part.program, part.chunks
    states, inputs = split(part.state, chunks), split(part.inputs(0), chunks)
    teachers = split(session.teacher, chunks) if session.teacher else [()] * chunks
    # As training does it: several updates a call, and fewer in the last one.
    most = part.steps_per_call
    step = make_step(program, steps_per_call=None if most > 1 else 1)

    def measure(updates: int = updates) -> tuple[float, float]:
        counts = [min(most, updates - done) for done in range(0, updates, most)]
        calls = [
            (replicate(np.int32(n), program.mesh),) if most > 1 else () for n in counts
        ]
        start = time.perf_counter(), time.process_time()
        for i in list(range(chunks)) * launches:
            for count in calls:
                examples = session.data
                states[i] = step(states[i], inputs[i], teachers[i], *examples, *count)
        jax.block_until_ready(states)
        return time.perf_counter() - start[0], time.process_time() - start[1]

    measure()
    return measure
