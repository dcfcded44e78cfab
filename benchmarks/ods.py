"""Cost of a step on perturbed images, measured over counted arithmetic.

    JAX_PLATFORMS=cpu python benchmarks/ods.py

One student, a BatchEnsemble of four, is distilled from four teachers with each
perturbation in turn. `counted` is the arithmetic of the networks' passes
(`Method.passes`, operations as XLA counts them) relative to plain distillation's,
`measured` the same of the step's time. Their quotient is what the step adds to its
arithmetic; it should be at most 1.2. Each turn is compared with the plain step of the
same turn.
"""

import argparse

import numpy as np
from engine import network_of, open_engine, random_dataset, stepper, untrained
from turns import head, machine, row, take_turns

from churn_jax import methods, models
from churn_jax.methods.perturbing import PERTURBATIONS
from churn_jax.studies.cost import network_flops

_TEACHERS = 4
# Pixels, and updates per measurement.
_WORKLOADS = {
    "mlp": ((28, 28, 1), 64),
    "lenet5": ((28, 28, 1), 4),
    "resnet8": ((16, 16, 3), 1),
}


def counted(method, student, teacher, image: tuple[int, ...]) -> float:
    """Operations of an update per example."""
    passes = method.passes
    total = passes.training * network_flops(student, image, "training")
    total += passes.teachers * _TEACHERS * network_flops(teacher, image)
    total += passes.input_gradients * network_flops(student, image, "input_gradients")
    drawn = passes.drawn_teacher + _TEACHERS * passes.teachers_input_gradients
    return total + drawn * network_flops(teacher, image, "input_gradients")


def measure_model(name: str, options: argparse.Namespace) -> None:
    """Prints one model's table."""
    image, updates = _WORKLOADS[name]
    updates = options.updates or updates
    train = {"replicas": options.replicas, "batch_size": options.batch}
    dataset = random_dataset(image, options.batch * updates)
    student = network_of(name, layers=models.BatchEnsemble(_TEACHERS))
    plain = network_of(name)
    teacher = untrained(plain, dataset, _TEACHERS, **train)
    contenders, work = {}, {}
    for kind in options.kinds:
        method = methods.OneToOneDistillation(members=_TEACHERS, perturbation=kind)
        opened = open_engine(student, dataset, method, teacher=teacher, **train)
        contenders[kind] = stepper(*opened, updates)
        work[kind] = counted(method, student, plain, image)
    found = take_turns(contenders, options.repeats, options.seconds)
    print(f"\n{name}: BE-4, {_TEACHERS} teachers, images {image}, {options}")
    head("perturbation", "ms a step", "GFLOP a step", "counted", "measured", "ratio")
    for kind, turns in found.items():
        share = work[kind] / work["none"]
        slower = float(np.median(turns[:, 0] / found["none"][:, 0]))
        ms = 1e3 * float(np.median(turns[:, 0])) / updates / options.replicas
        cells = (ms, 1e-9 * options.batch * work[kind], share, slower, slower / share)
        row(kind, *cells)


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["mlp", "lenet5"])
    parser.add_argument("--kinds", nargs="+", default=list(PERTURBATIONS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0, help="about, per model")
    parser.add_argument("--updates", type=int, help="per turn; default by model")
    options = parser.parse_args()
    if options.kinds[0] != "none":
        options.kinds.insert(0, "none")
    for name in options.models:
        measure_model(name, options)
    print(machine())


if __name__ == "__main__":
    main()
