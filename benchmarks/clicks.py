"""Examples per second of the streaming click model, its tables, and a long stream.

    python benchmarks/clicks.py --torch-python PATH/TO/ENVIRONMENT/bin/python

Three questions, each a table:

1. How many examples a second do R replicas of three towers learn, each example scored
   before it is learned, against PyTorch (`clicks_torch.py`, in its own environment):
   the same network, batches, loss and AdaGrad, with sparse gradients of an `Embedding`
   or of an `EmbeddingBag`? The engine's time includes the metrics over replicas;
   PyTorch's does not.
2. Does an update cost more with more rows in the tables?
3. How long would 10^8 examples take, and does memory grow? A stretch of a stream drawn
   on the fly goes through the whole loop, files apart.

Everything contends in one run, in turns; medians and bests over the repeats. Without
`--torch-python` the peer is left out.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from replicas import machine

from churn_jax.configuration.streams import StreamConfig
from churn_jax.data.tables import Window, synthetic_clicks
from churn_jax.methods import AntiDistillation
from churn_jax.models.click import ClickModel
from churn_jax.training.partition import fetch, place, replicate
from churn_jax.training.progressive import StreamRun, run_stream
from churn_jax.training.progressive.metrics import StreamMetrics
from churn_jax.training.progressive.state import init_inputs, init_stream, make_program
from churn_jax.training.progressive.step import Examples, make_step, term_names
from churn_jax.training.run import Interrupted

_WINDOWS = 4  # different ones, in turns
_STRENGTH = 0.5
_EMBEDDINGS = ("Embedding", "EmbeddingBag")
_PEER_BATCHES = 8  # of a window; the seconds are scaled

Measure = Callable[[], float]


def make_run(args: argparse.Namespace, rows: int, replicas: int) -> StreamRun:
    """Three towers on tables that hold `rows` rows together."""
    sizes = (rows // args.fields,) * args.fields
    return StreamRun(
        "benchmark",
        AntiDistillation(members=3, strength=_STRENGTH),
        ClickModel(sizes, args.numeric),
        StreamConfig(replicas=replicas, batch_size=args.batch, window=args.window),
    )


def stream_of(args: argparse.Namespace, run: StreamRun, examples: int):
    """Zipf's law in every field."""
    return synthetic_clicks(
        examples, args.fields, run.model.sizes, numeric=args.numeric
    )


def windows_of(args: argparse.Namespace, run: StreamRun) -> list[Window]:
    stream = stream_of(args, run, _WINDOWS * args.window)
    return list(stream.windows(args.window))


def engine(run: StreamRun, windows: list[Window]) -> Measure:
    """Compiles; returns what learns one window and says how many seconds it took."""
    program = make_program(run)
    inputs = init_inputs(run, program)
    state = init_stream(run, program, inputs)
    terms = term_names(program, state, inputs)
    sums = np.zeros((run.config.replicas, 1 + len(terms)), np.float32)
    sums = place(sums, program.mesh, P("replica"))
    state = state.replace(dense=state.dense.replace(sums=sums))
    empty = fetch(StreamMetrics.empty(run.config.replicas))
    metrics = replicate(empty, program.mesh)
    step, number = make_step(program), 0

    def measure() -> float:
        nonlocal state, metrics, number
        start = time.perf_counter()
        given = replicate(Examples.of(windows[number % _WINDOWS]), program.mesh)
        state, metrics, scores = step(state, metrics, inputs, given, np.int32(number))
        jax.block_until_ready((state, scores))
        number += 1
        return time.perf_counter() - start

    return measure


class Peer:
    """A process of PyTorch that waits between measurements."""

    def __init__(self, args, run, windows: list[Window], embedding: str, threads: int):
        offsets = np.asarray(run.model.offsets, np.int32)
        self._file = tempfile.NamedTemporaryFile(suffix=".npz")
        np.savez(
            self._file.name,
            ids=np.stack([w.ids + offsets for w in windows]),
            numeric=np.stack([w.numeric for w in windows]),
            labels=np.stack([w.labels for w in windows]),
        )
        settings = {
            "rows": run.model.rows,
            "fields": len(run.model.sizes),
            "numeric": run.model.numeric,
            "embedding": embedding,
            "embedding_dim": run.model.embedding_dim,
            "features": run.model.features,
            "components": run.model.components,
            "replicas": run.config.replicas,
            "batch": run.config.batch_size,
            "learning_rate": run.config.optimizer.learning_rate,
            "strength": _STRENGTH,
            "threads": threads,
            "part": min(args.window, _PEER_BATCHES * args.batch),
        }
        self._process = subprocess.Popen(
            [
                args.torch_python,
                str(Path(__file__).with_name("clicks_torch.py")),
                f"--windows={self._file.name}",
                f"--settings={json.dumps(settings)}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._scale = args.window / settings["part"]
        self.name = f"PyTorch {self._line()['version']}, {embedding}, "
        self.name += f"threads {threads or 'default'}"

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


def take_turns(contenders: dict[str, Measure], repeats: int) -> dict[str, list[float]]:
    """Seconds per window, after one that is not counted (compilation, first touch)."""
    for name, measure in contenders.items():
        print(f"  {name}: first window {measure():.1f} s", file=sys.stderr, flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            seconds[name].append(measure())
    return seconds


def _row(cells) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def throughput(args: argparse.Namespace, replicas: int) -> None:
    """Table 1."""
    run = make_run(args, args.rows, replicas)
    windows = windows_of(args, run)
    contenders: dict[str, Measure] = {"engine": engine(run, windows)}
    kinds = itertools.product(_EMBEDDINGS, args.threads) if args.torch_python else ()
    peers = [Peer(args, run, windows, *kind) for kind in kinds]
    contenders |= {peer.name: peer for peer in peers}
    seconds = take_turns(contenders, args.repeats)
    for peer in peers:
        peer.close()
    learned = replicas * args.window
    print(
        f"\nR = {replicas}, batch {args.batch}, {args.fields} fields, "
        f"{args.rows:,} rows, {args.repeats} repeats of {args.window:,} examples\n"
    )
    references = [name for name in seconds if name != "engine"]
    print(_row(["contender", "examples x replicas / s", "best"]
               + [f"/ {name}" for name in references]))  # fmt: skip
    print(_row(["---"] + ["---:"] * (2 + len(references))))
    for name, taken in seconds.items():
        ratios = [
            f"{statistics.median(seconds[r]) / statistics.median(taken):.2f} "
            f"({min(seconds[r]) / min(taken):.2f})"
            for r in references
        ]
        rate, best = learned / statistics.median(taken), learned / min(taken)
        print(_row([name, f"{rate:,.0f}", f"{best:,.0f}", *ratios]), flush=True)


def table_sizes(args: argparse.Namespace) -> None:
    """Table 2: all sizes in memory at once, in turns."""
    contenders: dict[str, Measure] = {}
    peers: list[Peer] = []
    megabytes = []
    for rows in args.sizes:
        run = make_run(args, rows, 1)
        windows = windows_of(args, run)
        contenders[f"engine {rows}"] = engine(run, windows)
        megabytes.append(2 * 4 * run.model.rows * run.model.width / 1e6)
        if args.torch_python:
            peers.append(Peer(args, run, windows, "Embedding", args.threads[0]))
            contenders[f"peer {rows}"] = peers[-1]
    seconds = take_turns(contenders, args.repeats)
    for peer in peers:
        peer.close()
    updates = args.window // args.batch
    head = ["rows", "tables and AdaGrad, MB", "ms per update", "best", "/ first"]
    head += [f"{peers[0].name}, ms", "its best"] if peers else []
    print(f"\nR = 1, batch {args.batch}, {args.repeats} repeats of {updates} updates\n")
    print(_row(head) + "\n" + _row(["---:"] * len(head)))
    first = seconds[f"engine {args.sizes[0]}"]
    for rows, size in zip(args.sizes, megabytes, strict=True):
        taken = seconds[f"engine {rows}"]
        cells = [f"{rows:,}", f"{size:,.1f}", *_milliseconds(taken, updates)]
        cells.append(
            f"{statistics.median(taken) / statistics.median(first):.2f} "
            f"({min(taken) / min(first):.2f})"
        )
        if peers:
            cells += _milliseconds(seconds[f"peer {rows}"], updates)
        print(_row(cells), flush=True)
    print(f"\nPeak memory of the engine's process: {_peak():,.0f} MB")


def _milliseconds(seconds: list[float], updates: int) -> list[str]:
    """Median and best."""
    each = [1000 * s / updates for s in seconds]
    return [f"{statistics.median(each):.3f}", f"{min(each):.3f}"]


def _memory() -> float:
    """What this process holds now, in MB; nan where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return float("nan")


def _peak() -> float:
    """The most that this process ever held, in MB."""
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def long_stream(args: argparse.Namespace, replicas: int) -> None:
    """Table 3: the beginning of a stream of 10^8 examples, through the whole loop."""
    run = make_run(args, args.rows, replicas)
    stream = stream_of(args, run, args.examples)
    seen: list[tuple[int, float, float]] = []
    stop = threading.Event()

    def on_progress(progress) -> None:
        seen.append((progress.examples, time.perf_counter(), _memory()))
        if seen[-1][1] - seen[0][1] > args.stream_seconds:
            stop.set()

    try:
        run_stream(run, stream, None, on_progress=on_progress, stop=stop)
    except Interrupted:
        pass  # the rest is extrapolated
    # The first segment compiles.
    begin, end = seen[min(1, len(seen) - 1)], seen[-1]
    if begin is end:
        raise SystemExit("the stretch is too short; raise --stream-seconds")
    rate = (end[0] - begin[0]) / (end[1] - begin[1])
    half = seen[len(seen) // 2]
    print(f"\nA stream of {args.examples:,} examples, R = {replicas}\n")
    head = ["measured", "examples / s", "all of it, hours (extrapolated)"]
    head += ["MB at first", "half-way", "at the end of the stretch"]
    print(_row(head) + "\n" + _row(["---:"] * len(head)))
    cells = [f"{end[0]:,} in {end[1] - seen[0][1]:.0f} s", f"{rate:,.0f}"]
    cells += [f"{args.examples / rate / 3600:.2f}"]
    print(_row(cells + [f"{memory:,.0f}" for _, _, memory in (begin, half, end)]))


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--parts", nargs="+", choices=_PARTS, default=_PARTS, help="which tables"
    )
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--fields", type=int, default=8)
    parser.add_argument("--numeric", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100_000, help="of all tables")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7], help="of tables"
    )
    parser.add_argument("--examples", type=float, default=1e8, help="of the stream")
    parser.add_argument("--stream-seconds", type=float, default=30.0)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 0], help="of PyTorch; 0: its own"
    )
    parser.add_argument("--torch-python", help="interpreter that has PyTorch")
    args = parser.parse_args(words)
    args.sizes, args.examples = [int(s) for s in args.sizes], int(args.examples)
    return args


_PARTS = ("throughput", "sizes", "stream")


def main() -> None:
    args = parse_args()
    if not args.torch_python:
        print("PyTorch is left out: pass --torch-python an interpreter that has it")
    # First, so that its memory is its own.
    if "stream" in args.parts:
        long_stream(args, args.replicas[-1])
    if "throughput" in args.parts:
        for replicas in args.replicas:
            throughput(args, replicas)
    if "sizes" in args.parts:
        table_sizes(args)
    print("\n" + machine())


if __name__ == "__main__":
    main()
