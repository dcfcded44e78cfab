"""What a step on perturbed images costs, measured over counted arithmetic.

    JAX_PLATFORMS=cpu python benchmarks/ods.py

One student, a BatchEnsemble of four, is distilled from four teachers with each
perturbation in turn. `counted` is the arithmetic of the networks' passes
(`Method.passes`, operations as XLA counts them) relative to plain distillation's,
`measured` the same of the step's time. Their quotient is what the step adds to its
arithmetic; it should be at most 1.2. All kinds take turns, and each turn is compared
with the plain step of the same turn, so that a busy machine slows both alike.
"""

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

import jax
import numpy as np

from churn_jax import data, ensembles, methods, models
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.methods.perturbing import PERTURBATIONS
from churn_jax.studies.cost import input_gradient_flops, network_flops
from churn_jax.training.partition import fetch, split
from churn_jax.training.replicas import make_step
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.session import open_session

_CLASSES, _TEACHERS = 10, 4
# Pixels, and updates per measurement.
_WORKLOADS = {
    "mlp": ((28, 28, 1), 64),
    "lenet5": ((28, 28, 1), 4),
    "resnet8": ((16, 16, 3), 1),
}


def _dataset(image: tuple[int, ...], batch: int, updates: int) -> data.Dataset:
    generator = np.random.default_rng(0)

    def examples(count: int) -> data.Split:
        return data.Split(
            generator.integers(0, 256, (count, *image), dtype=np.uint8),
            generator.integers(0, _CLASSES, count, dtype=np.int32),
            np.arange(count),
        )

    parts = examples(batch * updates), examples(64), examples(64)
    return data.Dataset("random", *parts, _CLASSES, fingerprint="random")


def _session(method, network, dataset, batch: int, replicas: int, teacher=None):
    size = method.members // network.heads
    run = Run(
        "benchmark",
        method,
        (ensembles.Group(network, size),),
        TrainConfig(
            replicas=replicas,
            batch_size=batch,
            epochs=1000,  # a long run, as `auto` is told; a part of it is measured
            optimizer=OptimizerConfig(learning_rate=0.01, weight_decay=0.0),
        ),
    )
    return run, open_session(
        run, dataset, directory=None, teacher=teacher, mean=0.5, std=0.25
    )


def _teacher(network, dataset, batch: int, replicas: int):
    """Untrained networks in the form of a trained ensemble."""
    method = methods.ERM(members=_TEACHERS, deploy="mean_probs")
    run, session = _session(method, network, dataset, batch, replicas)
    pairs = zip(session.state.params, session.state.model_state)
    variables = tuple({**fetch(s), "params": fetch(p)} for p, s in pairs)
    return SimpleNamespace(run=run, identity="{}", teacher_variables=lambda: variables)


def stepper(session, replicas: int, updates: int) -> Callable[[], float]:
    """Compiles, and returns a function that says how long so many updates took."""
    chunks = chunk_count(session.program, replicas)
    states, inputs = split(session.state, chunks), split(session.inputs(0), chunks)
    teachers = split(session.teacher, chunks)
    step = make_step(session.program, steps_per_call=session.steps_per_call)
    calls, rest = divmod(updates, session.steps_per_call)
    if rest:
        raise SystemExit(
            f"{updates} updates are not a multiple of {session.steps_per_call} per call"
        )

    def measure() -> float:
        start = time.perf_counter()
        for i in range(chunks):
            for _ in range(calls):
                states[i] = step(
                    states[i], inputs[i], teachers[i], session.images, session.labels
                )
        jax.block_until_ready(states)
        return time.perf_counter() - start

    measure()
    return measure


def counted(method, student, teacher, image: tuple[int, ...]) -> float:
    """Operations of an update per example."""
    passes = method.passes
    total = passes.training * network_flops(student, image, train=True)
    total += passes.teachers * _TEACHERS * network_flops(teacher, image, train=False)
    total += passes.input_gradients * input_gradient_flops(student, image)
    drawn = passes.drawn_teacher + _TEACHERS * passes.teachers_input_gradients
    return total + drawn * input_gradient_flops(teacher, image)


def measure_model(name: str, options: argparse.Namespace) -> None:
    """Prints one model's table."""
    image, updates = _WORKLOADS[name]
    updates = options.updates or updates
    dataset = _dataset(image, options.batch, updates)
    layers = models.BatchEnsemble(_TEACHERS)
    student = ensembles.from_linen(
        models.create(name, num_classes=_CLASSES, layers=layers)
    )
    plain = ensembles.from_linen(models.create(name, num_classes=_CLASSES))
    teacher = _teacher(plain, dataset, options.batch, options.replicas)
    measures, work = {}, {}
    for kind in options.kinds:
        method = methods.OneToOneDistillation(members=_TEACHERS, perturbation=kind)
        _, session = _session(
            method, student, dataset, options.batch, options.replicas, teacher
        )
        measures[kind] = stepper(session, options.replicas, updates)
        work[kind] = counted(method, student, plain, image)
    times: dict[str, list[float]] = {kind: [] for kind in measures}
    repeats, began = 0, time.perf_counter()
    for _ in range(options.repeats):
        for kind, measure in measures.items():
            times[kind].append(measure() / updates / options.replicas)
        repeats += 1
        if options.seconds and time.perf_counter() - began > options.seconds:
            break
    print(
        f"\n{name}: BE-4, {_TEACHERS} teachers, batch {options.batch}, images {image},"
        f" R = {options.replicas}, {repeats} repeats of {updates} updates\n"
    )
    print("| perturbation | ms a step | GFLOP a step | counted | measured | ratio |")
    print("|---|---|---|---|---|---|")
    for kind, seconds in times.items():
        share = work[kind] / work["none"]
        turns = [a / b for a, b in zip(seconds, times["none"], strict=True)]
        slower = statistics.median(turns)
        print(
            f"| {kind} | {1e3 * statistics.median(seconds):.2f} | "
            f"{1e-9 * options.batch * work[kind]:.3f} | {share:.2f} | {slower:.2f} | "
            f"{slower / share:.2f} |"
        )


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["mlp", "lenet5"])
    parser.add_argument("--kinds", nargs="+", default=list(PERTURBATIONS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, help="of measuring a model, about")
    parser.add_argument("--updates", type=int, help="per turn; default by model")
    options = parser.parse_args()
    if options.kinds[0] != "none":
        options.kinds.insert(0, "none")
    for name in options.models:
        measure_model(name, options)
    load = os.getloadavg()[0]
    print(
        f"\n{os.cpu_count()} cores, {jax.devices()[0].device_kind}, load {load:.1f}, "
        f"{datetime.date.today()}, Python {platform.python_version()}, "
        f"jax {jax.__version__}"
    )


if __name__ == "__main__":
    main()
