"""Examples per second of R x M networks: the engine, one run at a time, and PyTorch.

    python benchmarks/replicas.py --torch-python PATH/TO/ENVIRONMENT/bin/python

For each model, in one run and taking turns so that a busy machine slows all alike:

* the engine (`churn_jax.training`) with the mappings vmap, unroll, loop and auto, and
  if named with `tune`, and with vmap of other convolutions (`packed`, `patches`, see
  `packing.py`); `study` is auto with the replicas over a CPU's cores, as the commands
  train them;
* `one by one`: the same engine with R = 1, R times, as a script that is run once per
  seed (starting and compiling R times would come on top and is not counted);
* PyTorch (`torch_peer.py` in its own environment): default and channels_last.

Every contender gathers its batch from uint8 images in memory, normalises, runs forward
and backward and updates with momentum SGD, in float32 or as `--dtype` says. The result
is the median over repeats; the table is Markdown. On GPUs and TPUs whose peak is known
the last column is the share of what `ceiling.py` says is possible.

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

import ceiling
import jax
import jax.numpy as jnp
import numpy as np
import packing

from churn_jax import data, ensembles, methods, models
from churn_jax.command.launch import use_all_cores
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.training.partition import replicate, split
from churn_jax.training.program import over_cores
from churn_jax.training.replicas import make_step
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.session import open_session

_EXAMPLES = 4096
_CLASSES = 10
_MAPPINGS = ("vmap", "unroll", "loop", "auto", "study")
_LAYERS = {"packed": packing.Packed(), "patches": packing.Patches()}  # with vmap
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
    "resnet8": Workload((32, 32, 3), replicas=4, updates=4),
    "resnet20": Workload((32, 32, 3), replicas=2, updates=4),
    # Ten seeds as in a study; the batch is a CPU's, `--batch 128` suits a GPU.
    "resnet32": Workload((32, 32, 3), replicas=10, updates=4, batch=16),
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


def linen(name: str, args: argparse.Namespace, **fields):
    """The network of a contender."""
    return models.create(name, num_classes=_CLASSES, dtype=args.dtype, **fields)


def engine(
    name: str, workload: Workload, args: argparse.Namespace, mapping: str, runs: int = 1
) -> Callable[[], float]:
    """Compiles, and returns a function that trains and says how many seconds it took.

    Args:
        name: of the network.
        workload: what to train.
        args: members.
        mapping: of the replicas, or one of `_LAYERS`.
        runs: into how many launches the replicas are divided.
    """
    layers = {"layers": _LAYERS[mapping]} if mapping in _LAYERS else {}
    network = ensembles.from_linen(linen(name, args, **layers))
    run = Run(
        "benchmark",
        methods.ERM(members=args.members),
        (ensembles.Group(network, args.members),),
        TrainConfig(
            replicas=workload.replicas // runs,
            batch_size=workload.batch,
            epochs=1000,  # a long run, as `auto` is told; a part of it is measured
            mapping="vmap" if layers else "auto" if mapping == "study" else mapping,
            optimizer=OptimizerConfig(
                learning_rate=0.01, nesterov=False, weight_decay=0.0
            ),
        ),
    )
    session = open_session(
        over_cores(run) if mapping == "study" else run,
        _dataset(workload.image),
        directory=None,
        teacher=None,
        mean=0.5,
        std=0.25,
    )
    chunks = chunk_count(session.program, run.config.replicas)
    states, inputs = split(session.state, chunks), split(session.inputs(0), chunks)
    # As training does it: several updates a call, and fewer in the last one.
    most, left, counts = session.steps_per_call, workload.updates, []
    step = make_step(session.program, steps_per_call=None if most > 1 else 1)
    while left > 0:
        counts.append(np.int32(min(most, left)))
        left -= most
    calls = [(replicate(n, session.program.mesh),) if most > 1 else () for n in counts]

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(runs):
            for i in range(chunks):
                for count in calls:
                    data = (session.images, session.labels)
                    states[i] = step(states[i], inputs[i], (), *data, *count)
            jax.block_until_ready(states)
        return time.perf_counter() - start

    start = time.perf_counter()
    measure()
    for note in session.notes:
        print(f"  {note}")
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
        f"--dtype={args.dtype}",
        *(["--compile"] if args.torch_compile else []),
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
    peak, most = ceiling.of_this_device(), 0.0
    title = (
        f"{label}: R = {workload.replicas}, M = {args.members}, "
        f"batch {workload.batch}, "
        f"images {workload.image}, {args.dtype}, {repeats} repeats of "
        f"{workload.updates} updates"
    )
    head = ["contender", "images/s", "best", *(f"/ {c}" for c in references)]
    if peak is not None:
        network = linen(label.split("-")[0], args)
        step = ceiling.step_of(network, workload.image, workload.batch, args.dtype)
        most = workload.batch / step.seconds(peak)
        title += f"; at most {most:,.0f} images/s, {step.share(peak):.0%} of the peak"
        head.append("of the most")
    rows = [title, "", _row(head), _row(["---"] * len(head))]
    for contender, median in medians.items():
        best = bests[contender]
        ratios = [
            f"{median / medians[c]:.2f} ({best / bests[c]:.2f})" for c in references
        ]
        ratios += [f"{median / most:.0%}"] if most else []
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
    ways = (*_MAPPINGS, "tune", *_LAYERS)
    parser.add_argument("--mappings", nargs="+", choices=ways, default=_MAPPINGS)
    parser.add_argument("--dtype", type=jnp.dtype, default="float32", help="bfloat16")
    parser.add_argument("--members", type=int, default=1, help="M")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0, help="begin no repeat of a model after them"
    )
    for name in ("replicas", "batch", "updates"):
        parser.add_argument(f"--{name}", type=int, help="instead of each workload's")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: its own")
    parser.add_argument("--torch-python", help="interpreter that has PyTorch")
    parser.add_argument(
        "--torch-compile", action="store_true", help="torch.compile, max-autotune"
    )
    return parser.parse_args(words)


def main() -> None:
    args = parse_args()
    use_all_cores()
    tables = []
    for label in args.models:
        tables.append(table(label, args, measure_model(label, args)))
        print("\n" + tables[-1] + "\n", flush=True)
    print(machine())


if __name__ == "__main__":
    main()
