"""Examples per second of R x M networks: the engine, one run at a time, and PyTorch.

    python benchmarks/replicas.py --torch-python PATH/TO/ENVIRONMENT/bin/python

For each model, in one run and taking turns:

* the engine (`churn_jax.training`) with the mappings vmap, unroll, loop and auto;
  `study` is auto with the replicas over a CPU's cores, as the commands train them;
* `one by one`: the same engine with R = 1, R times, as a script that is run once per
  seed (starting and compiling R times would come on top and is not counted);
* PyTorch (`torch_peer.py` in its own environment): default and channels_last.

Every contender gathers its batch from uint8 images in memory, normalises, runs forward
and backward and updates with momentum SGD, in float32 or as `--dtype` says. On GPUs and
TPUs whose peak is known the last column is the share of what `ceiling.py` says is
possible. Ten seeds of ResNet-32, for minutes of a laptop or on a GPU:

    python benchmarks/replicas.py --models resnet32 --mappings auto --seconds 300
    python benchmarks/replicas.py --models resnet32 --mappings vmap --batch 128
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import ceiling
import jax
import jax.numpy as jnp
import numpy as np
from engine import CLASSES, network_of, open_engine, random_dataset, stepper
from turns import Measure, last_line, machine, rates, take_turns

from churn_jax import methods, models
from churn_jax.command.launch import use_all_cores

_MAPPINGS = ("vmap", "unroll", "loop", "auto", "study")


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of one model's measurement."""

    image: tuple[int, int, int]  # height, width, channels
    replicas: int
    updates: int  # per replica and measurement
    batch: int = 128  # examples per update and replica


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


def engine(
    name: str, workload: Workload, args: argparse.Namespace, mapping: str, runs: int = 1
) -> Measure:
    """The engine with a mapping of the replicas, divided into so many launches."""
    run, session = open_engine(
        network_of(name, dtype=args.dtype),
        random_dataset(workload.image),
        methods.ERM(members=args.members),
        study=mapping == "study",
        replicas=workload.replicas // runs,
        batch_size=workload.batch,
        mapping="auto" if mapping == "study" else mapping,
    )
    measure = stepper(run, session, workload.updates, runs)
    for note in session.notes:
        print(f"  {note}")
    return lambda: measure()[0]


def pytorch(
    name: str, workload: Workload, args: argparse.Namespace, memory_format: str
) -> Measure:
    """The peer, started anew for every turn."""
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
    images = _images(workload, args)
    return lambda: images / last_line(command)["images_per_s"]


def _images(workload: Workload, args: argparse.Namespace) -> int:
    """Number of images of a turn."""
    return workload.replicas * args.members * workload.updates * workload.batch


def workload_of(label: str, args: argparse.Namespace) -> Workload:
    """A workload, with the values of the command line."""
    given = {"replicas": args.replicas, "updates": args.updates, "batch": args.batch}
    given = {name: value for name, value in given.items() if value is not None}
    if any(value < 1 for value in given.values()):
        raise SystemExit(f"{', '.join(given)} must be at least 1")
    return dataclasses.replace(_WORKLOADS[label], **given)


def measure_model(label: str, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Seconds of each contender, one number per repeat."""
    workload, name = workload_of(label, args), label.split("-")[0]
    print(f"{label}: {workload}", flush=True)
    contenders = {
        f"engine, {m}": engine(name, workload, args, m) for m in args.mappings
    }
    contenders["one by one"] = engine(name, workload, args, "auto", workload.replicas)
    for memory_format in ("default", "channels_last") if args.torch_python else ():
        peer = pytorch(name, workload, args, memory_format)
        contenders[f"PyTorch, {memory_format}"] = peer
    return take_turns(contenders, args.repeats, args.seconds)


def print_table(label: str, args, found: dict[str, np.ndarray]) -> None:
    """Prints median and best images per second, and ratios to the references."""
    workload = workload_of(label, args)
    title = (
        f"{label}: R = {workload.replicas}, M = {args.members}, batch "
        f"{workload.batch}, images {workload.image}, {args.dtype}, "
        f"{len(found['one by one'])} repeats of {workload.updates} updates"
    )
    more = {}
    if (peak := ceiling.of_this_device()) is not None:
        name = label.split("-")[0]
        network = models.create(name, num_classes=CLASSES, dtype=args.dtype)
        step = ceiling.step_of(network, workload.image, workload.batch, args.dtype)
        most = workload.batch / step.seconds(peak)
        title += f"; at most {most:,.0f} images/s, {step.share(peak):.0%} of the peak"
        more["of the most"] = lambda rate: f"{rate / most:.0%}"
    print(f"\n{title}")
    references = [n for n in found if n == "one by one" or n.startswith("PyTorch")]
    rates(found, _images(workload, args), "images", against=references, **more)


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(_WORKLOADS)
    parser.add_argument("--models", "--model", nargs="+", choices=known, default=known)
    parser.add_argument("--mappings", nargs="+", choices=_MAPPINGS, default=_MAPPINGS)
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
    for label in args.models:
        print_table(label, args, measure_model(label, args))
    print(machine())


if __name__ == "__main__":
    main()
