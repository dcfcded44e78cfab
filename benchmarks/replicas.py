"""Examples per second of R x M networks: the engine, one run at a time, and PyTorch.

    python benchmarks/replicas.py --torch-python PATH/TO/ENVIRONMENT/bin/python

For each model, in one run and taking turns so that a busy machine slows all alike:

* the engine (`churn_jax.training`) with the mappings vmap, unroll, loop and auto;
* `one by one`: the same engine with R = 1, R times, as a script that is run once per
  seed (starting and compiling R times would come on top and is not counted);
* PyTorch (`torch_peer.py` in its own environment): default and channels_last.

Every contender gathers its batch from uint8 images in memory, normalises, runs forward
and backward and updates with momentum SGD in float32. The result is the median over
repeats; the table is Markdown.

Ten seeds of ResNet-32, for minutes of a laptop or on a GPU:

    python benchmarks/replicas.py --models resnet32 --mappings auto --seconds 300
    python benchmarks/replicas.py --models resnet32 --mappings vmap --batch 128
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from churn_jax import data, ensembles, methods, models
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.training.partition import split
from churn_jax.training.replicas import make_step
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.session import open_session

_EXAMPLES = 4096
_CLASSES = 10
_MAPPINGS = ("vmap", "unroll", "loop", "auto")
_FORMATS = ("default", "channels_last")


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is measured for one model.

    Attributes:
        image: `[H, W, C]`.
        replicas: R.
        updates: per replica and measurement.
        batch: examples per update and replica.
    """

    image: tuple[int, int, int]
    replicas: int
    updates: int
    batch: int = 128


_WORKLOADS = {
    "mlp": Workload((28, 28, 1), replicas=10, updates=64),
    # The digits preset's: small enough that a step's overhead counts.
    "mlp-8x8x1": Workload((8, 8, 1), replicas=10, updates=128, batch=64),
    "lenet5": Workload((28, 28, 1), replicas=10, updates=8),
    "lenet5-32x32x3": Workload((32, 32, 3), replicas=10, updates=8),
    "resnet20": Workload((32, 32, 3), replicas=2, updates=2),
    # Ten seeds as in a study; the batch is a CPU's, `--batch 128` suits a GPU.
    "resnet32": Workload((32, 32, 3), replicas=10, updates=1, batch=16),
}


def _dataset(image: tuple[int, int, int]) -> data.Dataset:
    generator = np.random.default_rng(0)

    def examples(count: int) -> data.Split:
        return data.Split(
            generator.integers(0, 256, (count, *image), dtype=np.uint8),
            generator.integers(0, _CLASSES, count, dtype=np.int32),
            np.arange(count),
        )

    parts = examples(_EXAMPLES), examples(128), examples(128)
    return data.Dataset("random", *parts, _CLASSES, fingerprint="random")


def engine(
    name: str, workload: Workload, args: argparse.Namespace, mapping: str, runs: int = 1
) -> Callable[[], float]:
    """Compiles, and returns a function that trains and says how many seconds it took.

    Args:
        name: of the network.
        workload: what to train.
        args: members.
        mapping: of the replicas.
        runs: into how many launches the replicas are divided.
    """
    network = ensembles.from_linen(models.create(name, num_classes=_CLASSES))
    run = Run(
        "benchmark",
        methods.ERM(members=args.members),
        (ensembles.Group(network, args.members),),
        TrainConfig(
            replicas=workload.replicas // runs,
            batch_size=workload.batch,
            epochs=1000,  # a long run, as `auto` is told; a part of it is measured
            mapping=mapping,
            optimizer=OptimizerConfig(
                learning_rate=0.01, nesterov=False, weight_decay=0.0
            ),
        ),
    )
    session = open_session(
        run,
        _dataset(workload.image),
        directory=None,
        teacher=None,
        mean=0.5,
        std=0.25,
    )
    chunks = chunk_count(session.program, run.config.replicas)
    states, inputs = split(session.state, chunks), split(session.inputs(0), chunks)
    step = make_step(session.program, steps_per_call=session.steps_per_call)
    calls = max(workload.updates // session.steps_per_call, 1)
    if calls * session.steps_per_call != workload.updates:
        raise SystemExit(
            f"{workload.updates} updates of {name} are not a multiple of "
            f"{session.steps_per_call} updates per dispatch"
        )

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(runs):
            for i in range(chunks):
                for _ in range(calls):
                    states[i] = step(
                        states[i], inputs[i], (), session.images, session.labels
                    )
            jax.block_until_ready(states)
        return time.perf_counter() - start

    start = time.perf_counter()
    measure()
    print(f"  {mapping}: first call {time.perf_counter() - start:.1f} s", flush=True)
    return measure


def pytorch(
    name: str, workload: Workload, args: argparse.Namespace, memory_format: str
) -> dict:
    """One launch of the peer; its line."""
    command = [
        args.torch_python,
        str(Path(__file__).with_name("torch_peer.py")),
        f"--model={name}",
        f"--slots={workload.replicas * args.members}",
        f"--batch={workload.batch}",
        f"--steps={max(workload.updates, 3)}",
        f"--memory-format={memory_format}",
        f"--threads={args.threads}",
        f"--image-size={workload.image[0]}",
        f"--channels={workload.image[2]}",
        f"--device={'cuda' if jax.default_backend() == 'gpu' else 'cpu'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the PyTorch peer failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def workload_of(label: str, args: argparse.Namespace) -> Workload:
    """What is measured, with what the command line says instead."""
    given = {"replicas": args.replicas, "updates": args.updates, "batch": args.batch}
    given = {name: value for name, value in given.items() if value is not None}
    if any(value < 1 for value in given.values()):
        raise SystemExit(f"{', '.join(given)} must be at least 1")
    return dataclasses.replace(_WORKLOADS[label], **given)


def measure_model(label: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Images per second of each contender, one number per repeat."""
    workload, name = workload_of(label, args), label.split("-")[0]
    print(f"{label}: {workload}", flush=True)
    engines = {f"engine, {m}": engine(name, workload, args, m) for m in args.mappings}
    engines["one by one"] = engine(name, workload, args, "auto", workload.replicas)
    images = workload.replicas * args.members * workload.updates * workload.batch
    rates: dict[str, list[float]] = {}
    start = time.perf_counter()
    for repeat in range(args.repeats):
        if repeat and args.seconds and time.perf_counter() - start > args.seconds:
            print(f"  {args.seconds} s are over after {repeat} repeats", flush=True)
            break
        for contender, measure in engines.items():
            rates.setdefault(contender, []).append(images / measure())
        for memory_format in _FORMATS if args.torch_python else ():
            line = pytorch(name, workload, args, memory_format)
            contender = f"PyTorch {line['version']}, {memory_format}"
            rates.setdefault(contender, []).append(line["images_per_s"])
    return rates


def table(label: str, args, rates: dict[str, list[float]]) -> str:
    """Markdown rows: median, best, and ratios of medians (and, in brackets, of bests).

    Other programs on the machine slow a repeat down and never speed it up, so the best
    repeat is the better estimate where the machine is shared.
    """
    workload = workload_of(label, args)
    repeats = len(rates["one by one"])
    medians = {c: statistics.median(r) for c, r in rates.items()}
    bests = {c: max(r) for c, r in rates.items()}
    references = [c for c in rates if c == "one by one" or c.startswith("PyTorch")]
    title = (
        f"{label}: R = {workload.replicas}, M = {args.members}, "
        f"batch {workload.batch}, "
        f"images {workload.image}, {repeats} repeats of {workload.updates} updates"
    )
    head = ["contender", "images/s", "best", *(f"/ {c}" for c in references)]
    rows = [title, "", _row(head), _row(["---"] * len(head))]
    for contender, median in medians.items():
        best = bests[contender]
        ratios = [
            f"{median / medians[c]:.2f} ({best / bests[c]:.2f})" for c in references
        ]
        rows.append(_row([contender, f"{median:,.0f}", f"{best:,.0f}", *ratios]))
    return "\n".join(rows)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """Processor, cores, date and versions, as one line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        named = [x.split(":", 1)[1].strip() for x in lines if "model name" in x]
        cpu = named[0] if named else cpu
    versions = ", ".join(
        f"{p} {importlib.metadata.version(p)}" for p in ("jax", "flax", "churn_jax")
    )
    return (
        f"{jax.devices()[0].device_kind} ({cpu}), {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the end, {datetime.date.today()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(_WORKLOADS)
    parser.add_argument("--models", "--model", nargs="+", choices=known, default=known)
    parser.add_argument("--mappings", nargs="+", choices=_MAPPINGS, default=_MAPPINGS)
    parser.add_argument("--members", type=int, default=1, help="M")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0, help="begin no repeat of a model after them"
    )
    for name in ("replicas", "batch", "updates"):
        parser.add_argument(f"--{name}", type=int, help="instead of each workload's")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own")
    parser.add_argument("--torch-python", help="interpreter that has PyTorch")
    return parser.parse_args(words)


def main() -> None:
    args = parse_args()
    tables = []
    for label in args.models:
        tables.append(table(label, args, measure_model(label, args)))
        print("\n" + tables[-1] + "\n", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
