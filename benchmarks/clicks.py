"""Examples per second of the click model that learns in one pass, and its tables.

    python benchmarks/clicks.py --torch-python PATH/TO/ENVIRONMENT/bin/python

Two questions, each a table:

1. How many examples a second do R replicas of three towers learn, each example scored
   before it is learned, against PyTorch (`clicks_torch.py`, in its own environment):
   the same network, batches, loss and AdaGrad, with sparse gradients of an `Embedding`
   or of an `EmbeddingBag`?
2. Does an update cost more with more rows in the tables?

Without `--torch-python` the peer is left out.
"""

import argparse
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from turns import Measure, head, machine, peak_mebibytes, rates, row, take_turns

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
_EMBEDDINGS = ("Embedding", "EmbeddingBag")
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


class Peer:
    """A process of PyTorch that waits between measurements."""

    def __init__(self, args, run, data: Clicks, embedding: str, threads: int):
        offsets = np.asarray(run.clicks.offsets, np.int32)
        windows = list(data.train.windows(args.window))
        self._file = tempfile.NamedTemporaryFile(suffix=".npz")
        np.savez(
            self._file.name,
            ids=np.stack([w.ids + offsets for w in windows]),
            numeric=np.stack([w.numeric for w in windows]),
            labels=np.stack([w.labels for w in windows]),
        )
        settings = {
            "rows": run.clicks.rows,
            "fields": len(run.clicks.sizes),
            "numeric": run.clicks.numeric,
            "embedding": embedding,
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
        words = [f"--windows={self._file.name}", f"--settings={json.dumps(settings)}"]
        self._process = subprocess.Popen(
            [args.torch_python, script, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._scale = args.window / settings["part"]
        self.name = f"PyTorch {self._line()['version']}, {embedding}, "
        self.name += f"threads {threads or 'default'}"
        self()

    def _line(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the PyTorch peer failed; its message is above")
        return json.loads(line)

    def __call__(self) -> float:
        """Learns a part of a window with every replica; seconds for all of it."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()["seconds"] * self._scale

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()
        self._file.close()


def throughput(args: argparse.Namespace, replicas: int) -> None:
    """Table 1."""
    run = make_run(args, args.rows, replicas)
    data = clicks_of(args, run)
    contenders: dict[str, Measure] = {"engine": engine(run, data)}
    kinds = itertools.product(_EMBEDDINGS, args.threads) if args.torch_python else ()
    peers = [Peer(args, run, data, *kind) for kind in kinds]
    contenders |= {peer.name: peer for peer in peers}
    found = take_turns(contenders, args.repeats)
    for peer in peers:
        peer.close()
    print(
        f"\nR = {replicas}, batch {args.batch}, {args.fields} fields, "
        f"{args.rows:,} rows, {args.repeats} repeats of {args.window:,} examples"
    )
    unit = "examples x replicas"
    rates(found, replicas * args.window, unit, against=[peer.name for peer in peers])


def table_sizes(args: argparse.Namespace) -> None:
    """Table 2: all sizes in memory at once, in turns."""
    contenders: dict[str, Measure] = {}
    peers: list[Peer] = []
    megabytes = {}
    for rows in args.sizes:
        run = make_run(args, rows, 1)
        data = clicks_of(args, run)
        contenders[f"engine {rows}"] = engine(run, data)
        megabytes[rows] = 2 * 4 * run.clicks.rows * run.clicks.width / 1e6
        if args.torch_python:
            peers.append(Peer(args, run, data, "Embedding", args.threads[0]))
            contenders[f"peer {rows}"] = peers[-1]
    found = take_turns(contenders, args.repeats)
    for peer in peers:
        peer.close()
    updates = args.window // args.batch

    def milliseconds(name: str) -> list[float]:
        """Median and best of an update."""
        return [1e3 * float(f(found[name])) / updates for f in (np.median, np.min)]

    columns = ["rows", "tables and AdaGrad, MB", "ms per update", "best", "/ first"]
    columns += [f"{peers[0].name}, ms", "its best"] if peers else []
    print(f"\nR = 1, batch {args.batch}, {args.repeats} repeats of {updates} updates")
    head(*columns)
    first = milliseconds(f"engine {args.sizes[0]}")
    for rows, size in megabytes.items():
        median, best = milliseconds(f"engine {rows}")
        cells = [f"{rows:,}", f"{size:,.1f}", median, best]
        cells.append(f"{median / first[0]:.2f} ({best / first[1]:.2f})")
        row(*cells, *(milliseconds(f"peer {rows}") if peers else ()))
    print(f"\nPeak memory of the engine's process: {peak_mebibytes():,.0f} MiB")


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
