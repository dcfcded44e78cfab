"""What a step with an online teacher costs, over one training step and its passes.

    JAX_PLATFORMS=cpu python benchmarks/elodi.py

A student learns from an ensemble of networks of its own kind that are run in every
update (ELODI). `sum` is a training step without a teacher and so many forward passes,
each compiled and called by itself; `step / sum` should be at most 1.15. `vmapped` and
`unrolled` are all teachers' passes in one call, over the separate calls. `cached` is a
step whose teachers' logits were kept, over a step without a teacher. Everything
takes turns in one process, and a ratio is the median of the ratios of a turn, so that a
busy machine slows both sides alike. Ratios are of the processor seconds of all threads,
which other work hardly changes, and behind the slash of the clock's. In bfloat16
(`--bf16`) only the teachers are.
"""

import argparse
import dataclasses
import datetime
import functools
import os
import platform
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax import data, ensembles, methods, models
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.training.partition import compilation, fetch, split
from churn_jax.training.replicas import make_step
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.session import open_session
from churn_jax.training.teachers import Teachers

_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Workload:
    """One architecture.

    Attributes:
        network: a name of the zoo.
        image: `[H, W, C]`.
        updates: per turn.
        options: of the network.
    """

    network: str
    image: tuple[int, ...]
    updates: int
    options: dict = dataclasses.field(default_factory=dict)


WORKLOADS = {
    "mlp256": Workload("mlp", (28, 28, 1), 16, {"features": (256, 256)}),
    "lenet5": Workload("lenet5", (28, 28, 1), 4),
    "resnet8": Workload("resnet8", (32, 32, 3), 1),
}


def build(workload: Workload, *, bf16: bool = False, remat: bool = False):
    """The `Network`."""
    options = dict(workload.options)
    if bf16:
        options["dtype"] = jnp.bfloat16
    if remat:
        options["remat"] = True
    module = models.create(workload.network, num_classes=_CLASSES, **options)
    return ensembles.from_linen(module)


def _dataset(image: tuple[int, ...], count: int) -> data.Dataset:
    generator = np.random.default_rng(0)

    def examples(count: int) -> data.Split:
        return data.Split(
            generator.integers(0, 256, (count, *image), dtype=np.uint8),
            generator.integers(0, _CLASSES, count, dtype=np.int32),
            np.arange(count),
        )

    parts = examples(count), examples(64), examples(64)
    return data.Dataset("random", *parts, _CLASSES, fingerprint="random")


def _session(method, network, dataset, options: argparse.Namespace, teacher=None):
    config = TrainConfig(
        replicas=options.replicas,
        batch_size=options.batch,
        epochs=1000,  # a long run, as `auto` is told; a part of it is measured
        mapping=options.mapping,
        optimizer=OptimizerConfig(learning_rate=0.01, weight_decay=0.0),
    )
    groups = (ensembles.Group(network, method.members),)
    run = Run("benchmark", method, groups, config)
    session = open_session(
        run, dataset, directory=None, teacher=teacher, mean=0.5, std=0.25
    )
    return run, session


def _teacher(network, dataset, options: argparse.Namespace) -> Any:
    """Untrained networks in the form of a trained ensemble."""
    method = methods.ERM(members=options.members, deploy="mean_probs")
    run, session = _session(method, network, dataset, options)
    pairs = zip(session.state.params, session.state.model_state)
    variables = tuple({**fetch(s), "params": fetch(p)} for p, s in pairs)
    return SimpleNamespace(
        run=run, identity="{}", stopped=(), teacher_variables=lambda: variables
    )


Seconds = tuple[float, float]


def _timed(work: Callable[[], None]) -> Callable[[], Seconds]:
    """Processor and clock seconds of `work`, which is done once before."""

    def measure() -> Seconds:
        start = time.process_time(), time.perf_counter()
        work()
        return time.process_time() - start[0], time.perf_counter() - start[1]

    measure()
    return measure


def stepper(session, replicas: int, updates: int) -> Callable[[], Seconds]:
    """Compiles, and returns a function that says how long so many updates took."""
    chunks = chunk_count(session.program, replicas)
    states, inputs = split(session.state, chunks), split(session.inputs(0), chunks)
    teachers = split(session.teacher, chunks) if session.teacher else [()] * chunks
    step = make_step(session.program, steps_per_call=session.steps_per_call)
    calls, rest = divmod(updates, session.steps_per_call)
    if rest:
        raise SystemExit(
            f"{updates} updates are not a multiple of {session.steps_per_call} per call"
        )

    def work() -> None:
        for i in range(chunks):
            for _ in range(calls):
                states[i] = step(
                    states[i], inputs[i], teachers[i], session.images, session.labels
                )
        jax.block_until_ready(states)

    return _timed(work)


def passes(network, variables, images, mapping: str, times: int):
    """Like `stepper`, of all teachers' forward passes, `times` in a row.

    `separate` calls a compiled network once per teacher; `vmap` and `unroll` are the
    engine's, all in one call.
    """
    members = jax.tree.leaves(variables)[0].shape[0]
    params = ensembles.take_member(variables, 0)["params"]
    options = compilation(convolutional=network.with_convolutions_from(params))
    compiled = functools.partial(jax.jit, compiler_options=options)  # as steps are
    if mapping == "separate":
        one = compiled(lambda v, x: network.apply(v, x, train=False)[0].logits)
        every = [ensembles.take_member(variables, i) for i in range(members)]
        calls = [lambda v=v: one(v, images) for v in every]
    else:

        def committee(variables, images):
            return ensembles.apply_committee(
                (ensembles.Group(network, members),),
                (variables,),
                images,
                mapping=mapping,
                train=False,
            )[0].logits

        together = compiled(committee)
        calls = [lambda: together(variables, images)]

    def work() -> None:
        for _ in range(times):
            jax.block_until_ready([call() for call in calls])

    return _timed(work)


def measure_workload(name: str, options: argparse.Namespace) -> None:
    """Prints one architecture's row."""
    workload = WORKLOADS[name]
    updates = options.updates or workload.updates
    dataset = _dataset(workload.image, options.batch * updates)
    student = build(workload, remat=options.remat)
    plain = build(workload)
    trained = _teacher(plain, dataset, options)
    network, groups = plain, ()
    if options.bf16:
        network = build(workload, bf16=True)
        groups = (ensembles.Group(network, options.members),)
    tutors = Teachers(trained, groups=groups)
    elodi = methods.ELODI(top_k=options.top_k)
    _, taught = _session(elodi, student, dataset, options, tutors)
    _, alone = _session(methods.ERM(), student, dataset, options)
    logits = np.zeros((options.replicas, 1, len(dataset.train.labels), _CLASSES))
    kept = Teachers(trained, cached=logits.astype(np.float32))
    _, cached = _session(elodi, student, dataset, options, kept)
    variables = jax.tree.map(lambda v: jnp.asarray(v[0]), trained.teacher_variables())
    generator = np.random.default_rng(1)
    shape = (options.batch, *workload.image)
    images = jnp.asarray(generator.normal(size=shape), jnp.float32)
    times = updates * options.replicas
    contenders = {
        "step": stepper(taught, options.replicas, updates),
        "plain": stepper(alone, options.replicas, updates),
        "cached": stepper(cached, options.replicas, updates),
        **{
            kind: passes(network, variables[0], images, kind, times)
            for kind in ("separate", "vmap", "unroll")
        },
    }
    taken: dict[str, list[Seconds]] = {kind: [] for kind in contenders}
    began = time.perf_counter()
    for _ in range(options.repeats):
        for kind, measure in contenders.items():
            taken[kind].append(measure())
        if time.perf_counter() - began > options.seconds:
            break
    turns = {k: np.asarray(v) / times for k, v in taken.items()}

    def ms(kind: str) -> str:
        return " / ".join(f"{1e3 * x:.2f}" for x in np.median(turns[kind], axis=0))

    def ratio(ours, theirs) -> str:
        return " / ".join(f"{x:.2f}" for x in np.median(ours / theirs, axis=0))

    program = taught.program
    mapping = program.teacher.mapping if program.teacher else "none"
    parts = [
        f"{name} ({program.mapping}, {mapping})",
        ms("step"),
        ms("plain"),
        ms("separate"),
        ratio(turns["step"], turns["plain"] + turns["separate"]),
        ratio(turns["vmap"], turns["separate"]),
        ratio(turns["unroll"], turns["separate"]),
        ratio(turns["cached"], turns["plain"]),
        str(len(turns["step"])),
    ]
    print(f"| {' | '.join(parts)} |", flush=True)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=["mlp256", "lenet5"])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--mapping", default="auto")
    parser.add_argument("--bf16", action="store_true", help="of the teachers")
    parser.add_argument("--remat", action="store_true", help="of the student")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=60.0, help="per network")
    parser.add_argument("--updates", type=int, help="per turn; default by network")
    options = parser.parse_args()
    print(
        f"{options.members} teachers{' in bfloat16' if options.bf16 else ''}, batch "
        f"{options.batch}, R = {options.replicas}, K = {options.top_k}"
        f"{', activations of the student recomputed' if options.remat else ''}\n"
    )
    print(
        "| network (mapping of replicas, of teachers) | ms a step | ms a plain step | "
        "ms of separate passes | step / sum | vmapped | unrolled | cached | turns |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.workloads:
        measure_workload(name, options)
    load = os.getloadavg()[0]
    print(
        f"\n{os.cpu_count()} cores, {jax.devices()[0].device_kind}, load {load:.1f}, "
        f"{datetime.date.today()}, Python {platform.python_version()}, "
        f"jax {jax.__version__}"
    )


if __name__ == "__main__":
    main()
