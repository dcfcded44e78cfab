"""Examples per second of the click model that learns in one pass, and its tables.

    python benchmarks/clicks.py --torch-python PATH/TO/ENVIRONMENT/bin/python

Two questions, each a table:

1. How many examples a second do R replicas of three towers learn, each example scored
   before it is learned, against PyTorch (`clicks_torch.py`, in its own environment):
   the same network, batches, loss and AdaGrad, with sparse gradients of an `Embedding`?
2. Does an update cost more with more rows in the tables?

Without `--torch-python` the peer is left out.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from turns import Measure, head, last_line, machine, rates, row, take_turns

from churn_jax.configuration.training import OptimizerConfig, Seeds, TrainConfig
from churn_jax.data import Clicks, as_clicks, synthetic_clicks
from churn_jax.methods import AntiDistillation
from churn_jax.models import ClickModel
from churn_jax.training import OnePass, Run, click_run
from churn_jax.training.partition import replicate
from churn_jax.training.session import open_session
from churn_jax.training.step import make_step

_WINDOWS = 4  # different ones, in turns
_STRENGTH = 0.5
_PEER_BATCHES = 8  # of a window; the seconds are scaled


def make_run(args: argparse.Namespace, rows: int, replicas: int) -> Run:
    """Three towers on tables that hold `rows` rows together."""
    sizes = (rows // args.fields,) * args.fields
    return click_run(
        "benchmark",
        AntiDistillation(members=3, strength=_STRENGTH),
        ClickModel(sizes, args.numeric),
        TrainConfig(
            replicas=replicas,
            epochs=1,
            batch_size=args.batch,
            optimizer=OptimizerConfig(
                "adagrad", 0.02, momentum=0.0, nesterov=False, weight_decay=0.0
            ),
            seeds=Seeds(init="fixed"),
            one_pass=OnePass(args.window),
        ),
    )


def clicks_of(args: argparse.Namespace, run: Run) -> Clicks:
    """A few windows; Zipf's law in every field."""
    fields = args.fields, run.clicks.sizes
    arrays = synthetic_clicks(_WINDOWS * args.window, *fields, numeric=args.numeric)
    return as_clicks("synthetic", arrays)


def engine(run: Run, data: Clicks) -> Measure:
    """Compiles; returns what learns one window and says how many seconds it took."""
    session = open_session(run, data)
    (part,) = session.parts
    state, inputs = part.state, part.inputs(0)
    windows = list(data.train.windows(run.config.one_pass.window))
    step, number = make_step(part.program), 0

    def measure() -> float:
        nonlocal state, number
        start = time.perf_counter()
        given = replicate(windows[number % _WINDOWS], part.program.mesh)
        state, scores = step(state, inputs, (), given, np.int32(number))
        jax.block_until_ready((state, scores))
        number += 1
        return time.perf_counter() - start

    measure()
    return measure


def pytorch(args: argparse.Namespace, run: Run, data: Clicks, threads: int) -> Measure:
    """The peer, started anew for every turn; seconds for a window of all replicas."""
    offsets = np.asarray(run.clicks.offsets, np.int32)
    window = next(iter(data.train.windows(args.window)))
    file = tempfile.NamedTemporaryFile(suffix=".npz")
    ids, labels = window.ids + offsets, window.labels
    np.savez(file.name, ids=ids, numeric=window.numeric, labels=labels)
    settings = {
        "rows": run.clicks.rows,
        "fields": len(run.clicks.sizes),
        "numeric": run.clicks.numeric,
        "embedding_dim": run.clicks.embedding_dim,
        "features": run.clicks.features,
        "components": run.clicks.components,
        "replicas": run.config.replicas,
        "batch": run.config.batch_size,
        "learning_rate": run.config.optimizer.learning_rate,
        "strength": _STRENGTH,
        "threads": threads,
        "part": min(args.window, _PEER_BATCHES * args.batch),
    }
    script = str(Path(__file__).with_name("clicks_torch.py"))
    words = [f"--window={file.name}", f"--settings={json.dumps(settings)}"]
    scale = args.window / settings["part"]

    def measure() -> float:
        assert file  # which closing would delete
        return last_line([args.torch_python, script, *words])["seconds"] * scale

    return measure


def throughput(args: argparse.Namespace, replicas: int) -> None:
    """Table 1."""
    run = make_run(args, args.rows, replicas)
    data = clicks_of(args, run)
    peers = {
        f"PyTorch, threads {threads or 'default'}": pytorch(args, run, data, threads)
        for threads in (args.threads if args.torch_python else ())
    }
    found = take_turns({"engine": engine(run, data), **peers}, args.repeats)
    print(
        f"\nR = {replicas}, batch {args.batch}, {args.fields} fields, "
        f"{args.rows:,} rows, {args.repeats} repeats of {args.window:,} examples"
    )
    unit = "examples x replicas"
    rates(found, replicas * args.window, unit, against=[*peers])


def table_sizes(args: argparse.Namespace) -> None:
    """Table 2: all sizes of the engine in memory at once, in turns."""
    contenders: dict[str, Measure] = {}
    megabytes = {}
    for rows in args.sizes:
        run = make_run(args, rows, 1)
        data = clicks_of(args, run)
        contenders[f"engine {rows}"] = engine(run, data)
        megabytes[rows] = 2 * 4 * run.clicks.rows * run.clicks.width / 1e6
        if args.torch_python:
            contenders[f"peer {rows}"] = pytorch(args, run, data, args.threads[0])
    found = take_turns(contenders, args.repeats)
    updates = args.window // args.batch

    def milliseconds(name: str) -> list[float]:
        """Median and best of an update."""
        return [1e3 * float(f(found[name])) / updates for f in (np.median, np.min)]

    columns = ["rows", "tables and AdaGrad, MB", "ms per update", "best", "/ first"]
    columns += ["PyTorch, ms", "its best"] if args.torch_python else []
    print(f"\nR = 1, batch {args.batch}, {args.repeats} repeats of {updates} updates")
    head(*columns)
    first = milliseconds(f"engine {args.sizes[0]}")
    for rows, size in megabytes.items():
        median, best = milliseconds(f"engine {rows}")
        cells = [f"{rows:,}", f"{size:,.1f}", median, best]
        cells.append(f"{median / first[0]:.2f} ({best / first[1]:.2f})")
        row(*cells, *(milliseconds(f"peer {rows}") if args.torch_python else ()))


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--fields", type=int, default=8)
    parser.add_argument("--numeric", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100_000, help="of all tables")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--sizes", type=float, nargs="*", default=[1e4, 1e5, 1e6, 1e7], help="of tables"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 0], help="of PyTorch; 0: its own"
    )
    parser.add_argument("--torch-python", help="interpreter that has PyTorch")
    args = parser.parse_args(words)
    args.sizes = [int(size) for size in args.sizes]
    return args


def main() -> None:
    args = parse_args()
    for replicas in args.replicas:
        throughput(args, replicas)
    if args.sizes:
        table_sizes(args)
    print(machine())


if __name__ == "__main__":
    main()
