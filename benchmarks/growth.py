"""Time per update and memory as the work grows, one quantity at a time.

    JAX_PLATFORMS=cpu python benchmarks/growth.py --json growth.json

Replicas, members (co-distillation), parameters, classes, training examples, and host
devices with as many replicas or with one batch: the engine trains an MLP (64 inputs,
two layers of 256, 10 classes, batch 128, 10,000 examples) of which one quantity is
another. Every cell is a process of its own; it takes the median of five measurements of
half a second, by the clock and of processors' time, which other work on the machine
changes less, and the peak of the process's memory. Results are added to the file of
`--json`, cell by cell, and cells that it has are not measured again.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from turns import alone, head, machine, peak_mebibytes, row, take_turns

AXES = {
    "replicas": (1, 2, 4, 8, 16, 32, 64),
    "members": (1, 2, 4, 8, 16),
    "parameters": (10**4, 10**5, 10**6, 10**7, 10**8),
    "classes": (10, 100, 1000, 10_000, 21_841),
    "examples": (10**3, 10**4, 10**5, 10**6, 10**7),
    "devices, 8 replicas": (1, 2, 4, 8),
    "devices, one batch": (1, 2, 4, 8),
}
_SECONDS, _REPEATS = 0.5, 5
_BASE = {"replicas": 1, "members": 1, "width": 256, "classes": 10, "examples": 10_000}


def cell_of(axis: str, value: int) -> dict:
    """The base with one quantity set."""
    if axis == "parameters":  # two layers on 64 inputs and 10 outputs
        width = round((-74 + (74**2 + 4 * value) ** 0.5) / 2)
        return {**_BASE, "width": width, "mesh": (1, 1, 1)}
    if axis == "devices, 8 replicas":
        return {**_BASE, "replicas": 8, "mesh": (value, 1, 1)}
    if axis == "devices, one batch":
        return {**_BASE, "mesh": (1, 1, value)}
    return {**_BASE, axis: value, "mesh": (1, 1, 1)}


def measured(cell: dict) -> dict[str, float]:
    """Trains for some seconds, as training does."""
    from engine import open_engine, random_dataset, stepper

    from churn_jax import ensembles, methods, models
    from churn_jax.configuration.training import MeshShape

    layers = (cell["width"], cell["width"])
    network = models.create("mlp", num_classes=cell["classes"], features=layers)
    method: methods.Method = methods.ERM()
    if cell["members"] > 1:
        method = methods.Codistillation(members=cell["members"], beta=0.1)
    run, session = open_engine(
        ensembles.from_linen(network),
        random_dataset((8, 8, 1), cell["examples"], cell["classes"]),
        method,
        replicas=cell["replicas"],
        mesh=MeshShape(*cell["mesh"]),
    )

    measure, updates = stepper(run, session, 1), 1
    for most in (session.steps_per_epoch, 10_000):  # as many as take half a second
        updates = int(np.clip(_SECONDS * updates / measure(updates)[0], 1, most))
    found = take_turns({"": lambda: measure(updates)}, _REPEATS)[""]
    clock, processors = np.median(found, axis=0) * 1e3 / updates
    numbers = {"ms": clock, "processor_ms": processors, "MiB": peak_mebibytes()}
    return {**numbers, "updates": updates, "load": os.getloadavg()[0]}


def print_table(found: dict) -> None:
    """Prints a row per quantity, with the results of all its values."""
    head("", "values", "ms of processors", "ms by the clock", "MiB at most")
    for axis, values in found.items():

        def listed(name: str, form: str, values=values) -> str:
            return " / ".join(format(one[name], form) for one in values.values())

        sizes = " / ".join(f"{int(value):,}" for value in values)
        times = listed("processor_ms", ".3g"), listed("ms", ".3g")
        row(axis, sizes, *times, listed("MiB", ",.0f"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("growth.json"))
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES))
    parser.add_argument("--cell", help="measure this one in this process")
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measured(json.loads(args.cell))))
        return
    found = json.loads(args.json.read_text()) if args.json.exists() else {}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count="
    for axis in args.axes:
        for value in AXES[axis]:
            if str(value) in found.setdefault(axis, {}):
                continue
            cell = cell_of(axis, value)
            devices = f"{flags}{max(cell['mesh'])}"
            one = alone(__file__, "--cell", json.dumps(cell), XLA_FLAGS=devices)
            print(axis, value, one, flush=True)
            found[axis][str(value)] = one
            args.json.write_text(json.dumps(found, indent=1))
    print_table(found)
    print(machine())


if __name__ == "__main__":
    main()
