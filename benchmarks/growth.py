"""Time per update and memory as the work grows, one quantity at a time.

    python benchmarks/growth.py --json growth.json
    python benchmarks/growth.py --json growth.json --figure docs/figures/growth.svg

Replicas, members (co-distillation), parameters, classes, training examples, and host
devices with as many replicas or with one batch: the engine trains an MLP (64 inputs,
two layers of 256, 10 classes, batch 128, 10,000 examples) of which one quantity is
another. Every cell is a process of its own; it takes the median of five measurements of
half a second, by the clock and of processors' time, which other work on the machine
changes less, and the peak of the process's memory. Chips: the study `mnist` with an MLP
on all examples, which grows with a TPU slice, compiled for it and estimated; nothing is
run.

Results are added to the file of `--json`, cell by cell, and cells that it has are not
measured again. `--figure` draws what the file has.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import memory
import numpy as np
import replicas

AXES = {
    "replicas": (1, 2, 4, 8, 16, 32, 64),
    "members": (1, 2, 4, 8, 16),
    "parameters": (10**4, 10**5, 10**6, 10**7, 10**8),
    "classes": (10, 100, 1000, 10_000, 21_841),
    "examples": (10**3, 10**4, 10**5, 10**6, 10**7),
    "devices, 8 replicas": (1, 2, 4, 8),
    "devices, one batch": (1, 2, 4, 8),
    "chips, as many replicas": (1, 4, 16, 64, 256),
    "chips, as large a batch": (1, 4, 16, 64, 256),
}
_SLICES = {1: "1x1", 4: "2x2", 16: "4x4", 64: "8x8", 256: "16x16"}
_SECONDS, _REPEATS = 0.5, 5


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is trained.

    Attributes:
        replicas, members, width, classes, examples: sizes.
        mesh: devices along replica, member and data.
    """

    replicas: int = 1
    members: int = 1
    width: int = 256
    classes: int = 10
    examples: int = 10_000
    mesh: tuple[int, int, int] = (1, 1, 1)

    @property
    def devices(self) -> int:
        """Number of host devices."""
        return max(self.mesh)


def width_of(parameters: int) -> int:
    """Units of two layers on 64 inputs and 10 outputs with so many parameters."""
    return round((-74 + (74**2 + 4 * parameters) ** 0.5) / 2)


def cell_of(axis: str, value: int) -> Cell:
    """The base with one quantity set."""
    if axis == "parameters":
        return Cell(width=width_of(value))
    if axis == "devices, 8 replicas":
        return Cell(replicas=8, mesh=(value, 1, 1))
    if axis == "devices, one batch":
        return Cell(mesh=(1, 1, value))
    return Cell(**{axis: value})


def measured(cell: Cell) -> dict[str, float]:
    """Trains for some seconds, as training does."""
    import jax

    from churn_jax import data, ensembles, methods, models
    from churn_jax.configuration.training import MeshShape, TrainConfig
    from churn_jax.training.partition import replicate, split
    from churn_jax.training.replicas import make_step
    from churn_jax.training.run import Run, chunk_count
    from churn_jax.training.session import open_session

    rng = np.random.default_rng(0)

    def part(count: int) -> data.Split:
        images = rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
        labels = rng.integers(0, cell.classes, count, dtype=np.int32)
        return data.Split(images, labels, np.arange(count))

    train, other = part(cell.examples), part(128)
    dataset = data.Dataset("random", train, other, other, cell.classes, fingerprint="x")
    network = models.create(
        "mlp", num_classes=cell.classes, features=(cell.width, cell.width)
    )
    method: methods.Method = methods.ERM()
    if cell.members > 1:
        method = methods.Codistillation(members=cell.members, beta=0.1)
    run = Run(
        "growth",
        method,
        (ensembles.Group(ensembles.from_linen(network), cell.members),),
        TrainConfig(cell.replicas, epochs=100, mesh=MeshShape(*cell.mesh)),
    )
    session = open_session(
        run, dataset, directory=None, teacher=None, mean=0.5, std=0.25
    )
    chunks = chunk_count(session.program, cell.replicas)
    states, inputs = split(session.state, chunks), split(session.inputs(0), chunks)
    step = make_step(session.program, steps_per_call=None)

    def advance(updates: int) -> np.ndarray:
        """Seconds of the clock and of processors, per update."""
        count = replicate(np.int32(updates), session.program.mesh)
        start = np.array([time.perf_counter(), time.process_time()])
        for i in range(chunks):
            states[i] = step(
                states[i], inputs[i], (), session.images, session.labels, count
            )
        jax.block_until_ready(states)
        end = np.array([time.perf_counter(), time.process_time()])
        return (end - start) / updates

    compiling = advance(1)[0]
    updates = int(np.clip(_SECONDS / advance(1)[0], 1, session.steps_per_epoch))
    updates = int(np.clip(_SECONDS / advance(updates)[0], 1, 10_000))
    clock, processors = np.median([advance(updates) for _ in range(_REPEATS)], axis=0)
    start = time.perf_counter()
    jax.block_until_ready(session.inputs(1))
    return {
        "ms": 1e3 * clock,
        "processor_ms": 1e3 * processors,
        "MiB": memory.peak_mebibytes(),
        "mapping": session.program.mapping,
        "parameters": session.parameters,
        "epoch_s": time.perf_counter() - start,
        "compile_s": compiling,
        "load": os.getloadavg()[0],
    }


def alone(cell: Cell) -> dict[str, float]:
    """`measured` in a process of its own."""
    flags = f"--xla_force_host_platform_device_count={cell.devices}"
    given = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
    command = [sys.executable, __file__, "--cell", json.dumps(dataclasses.asdict(cell))]
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{cell}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def planned(axis: str, chips: int) -> dict[str, float]:
    """The compiler's estimate of the study's update on a slice."""
    from churn_jax.configuration.training import MeshShape
    from churn_jax.planning import Slice, plan_apart
    from churn_jax.studies import ModelConfig, preset

    config = preset("experiments/reproducibility/small.py:mnist")
    replicas, shards = (chips, 1) if "replicas" in axis else (1, chips)
    batch, mesh = config.train.batch_size * shards, MeshShape(replicas, 1, shards)
    train = dataclasses.replace(
        config.train, replicas=replicas, seed_numbers=(), batch_size=batch, mesh=mesh
    )
    data = dataclasses.replace(config.data, train_size=None)
    config = dataclasses.replace(
        config, train=train, data=data, model=ModelConfig("mlp")
    )
    part = Slice.parse(f"v5e:{_SLICES[chips]}")
    found = plan_apart(config, "baseline", part, mesh)
    if found.refusal:
        raise SystemExit(f"{axis}, {chips}: {found.refusal}")
    return {
        "ms": 1e3 * found.seconds,
        "MiB": found.used / 2**20,
        "bytes moved": sum(one.bytes for one in found.communication) / found.updates,
        "compile_s": found.compile_seconds,
    }


def cells(axes: list[str], found: dict) -> Iterator[tuple[str, int, Callable]]:
    """What has not been measured yet."""
    for axis in axes:
        for value in AXES[axis]:
            if str(value) in found.get(axis, {}):
                continue
            if axis.startswith("chips"):
                yield axis, value, lambda a=axis, v=value: planned(a, v)
            else:
                yield axis, value, lambda a=axis, v=value: alone(cell_of(a, v))


def table(found: dict) -> str:
    """Markdown: a row per quantity, with the results of all its values."""
    heads = ["", "values", "ms of processors", "ms by the clock", "MiB at most"]
    rows = [f"| {' | '.join(heads)} |", "|:--|:--|:--|:--|:--|"]
    for axis, values in found.items():

        def listed(name: str, form: str, values=values) -> str:
            held = [one[name] for one in values.values() if name in one]
            return " / ".join(format(number, form) for number in held)

        cells = [axis, " / ".join(f"{int(value):,}" for value in values)]
        cells += [listed("processor_ms", ".3g"), listed("ms", ".3g")]
        rows.append(f"| {' | '.join([*cells, listed('MiB', ',.0f')])} |")
    return "\n".join(rows)


def figure(found: dict) -> str:
    """Time and memory over every quantity, as SVG."""
    from churn_compare.documents.plotting import INK, drawing, line_style

    panels = ["replicas", "members", "parameters", "classes", "examples"]
    panels += ["devices", "chips"]
    with drawing(10.5, 5.6) as (canvas, done):
        grid = canvas.subplots(2, 4)
        for axes, panel in zip(grid.flat, panels):
            lines = {a: v for a, v in found.items() if a.startswith(panel)}
            for name, values in lines.items():
                number = "batch" in name  # the second of two lines
                x = [int(v) for v in values]
                y = [one.get("processor_ms", one["ms"]) for one in values.values()]
                label = name.partition(", ")[2]
                axes.plot(x, y, **line_style(number, label or "ms per update"))
            if len(lines) == 1:
                held = [one["MiB"] for one in next(iter(lines.values())).values()]
                axes.plot(x, held, **line_style(2, "MiB, peak"))
            axes.set(xscale="log", xlabel=panel)
            if max(AXES.get(panel, (256,))) <= 256:
                ticks = [int(v) for v in next(iter(lines.values()), {})]
                axes.set_xticks(ticks, [str(tick) for tick in ticks])
                axes.minorticks_off()
            if len(lines) > 1:
                axes.set(ylabel="ms per update", ylim=(0, None))
                axes.legend(fontsize=7)
            else:
                axes.set(yscale="log")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        grid.flat[-1].axis("off")
        grid.flat[-1].legend(handles, labels, loc="center")
        svg = done("Time per update and memory as the work grows")
    return svg.replace("currentColor", "#1c1e21").replace(INK, "#1c1e21")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("growth.json"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES))
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no cell after"
    )
    parser.add_argument("--cell", help="measure this one in this process")
    args = parser.parse_args()
    if args.cell:
        given = json.loads(args.cell)
        print(json.dumps(measured(Cell(**{**given, "mesh": tuple(given["mesh"])}))))
        return
    found = json.loads(args.json.read_text()) if args.json.exists() else {}
    start = time.perf_counter()
    for axis, value, measure in cells(args.axes, found):
        if time.perf_counter() - start > args.seconds:
            print("time is over; the same command goes on")
            break
        one = measure()
        print(axis, value, one, flush=True)
        found.setdefault(axis, {})[str(value)] = one
        args.json.write_text(json.dumps(found, indent=1))
    print(table(found))
    print(replicas.machine())
    if args.figure:
        args.figure.write_text(figure(found))


if __name__ == "__main__":
    main()
