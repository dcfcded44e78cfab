"""Two versions compared at a million examples, against reading their files once.

    python benchmarks/compare.py --examples 1000000 --classes 1000

Makes two `.npy` files of logits (4 GB at that size in float16; deleted at the end) and
labels. Contenders take turns, each in a process of its own; a ratio is the median over
rounds of a contender's time over that of the same round's reading pass. CPU seconds are
those of all threads; memory is the process's peak, mapped pages included.

* `read`: one pass over both files, memory-mapped, that converts blocks of a thousand
  rows to float32, in one thread;
* `scan`: the pass of `churn_jax` alone;
* `compare`: the whole of `churn_jax.compare` with labels, intervals, classes and all;
* `compare, shards`: the same, of versions in four and two shards;
* `script`: what a user would write, which holds everything in memory and draws its
  bootstrap in a loop.
"""

import argparse
import functools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from turns import Measure, alone, head, machine, peak_mebibytes, row, take_turns

_ROWS = 1000


def make_files(folder: Path, examples: int, classes: int, dtype: str) -> None:
    """Logits of an old and a new version and labels; the same ones every time."""
    rng = np.random.default_rng(0)
    drawn = 3 * rng.standard_normal((2 * _ROWS, classes), np.float32)
    moved = 1 * rng.standard_normal((2 * _ROWS, classes), np.float32)
    header = {"descr": np.dtype(dtype).str, "fortran_order": False}
    header["shape"] = (examples, classes)
    labels = np.empty(examples, np.int64)
    with open(folder / "old.npy", "wb") as old, open(folder / "new.npy", "wb") as new:
        for file in (old, new):
            np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, examples, _ROWS):
            count = min(_ROWS, examples - start)
            first, second = rng.integers(0, _ROWS, 2)
            logits = np.roll(drawn[first : first + count], rng.integers(classes), 1)
            labels[start : start + count] = logits.argmax(1)
            new.write((logits + moved[second : second + count]).astype(dtype).tobytes())
            old.write(logits.astype(dtype).tobytes())
    wrong = rng.random(examples) < 0.25
    labels[wrong] = rng.integers(0, classes, wrong.sum())
    np.save(folder / "labels.npy", labels)


def write_shards(folder: Path, dtype: str) -> None:
    """The same versions in four and two shards, whose writers took turns."""
    from churn_compare.store import ShardWriter, write_index

    labels = np.load(folder / "labels.npy")
    for side, shards in (("old", 4), ("new", 2)):
        values = np.load(folder / f"{side}.npy", mmap_mode="r")
        starts = range(0, len(values), _ROWS)
        for shard in range(shards):
            rows = [
                np.arange(s, min(s + _ROWS, len(values))) for s in starts[shard::shards]
            ]
            ids, place = np.concatenate(rows), folder / f"{side}-shards"
            of = ids, labels[ids], 1, values.shape[1], dtype
            writer = ShardWriter(place, shard, shards, *of)
            for block in rows:
                writer.write(np.asarray(values[block], np.float32)[None])
            writer.close()
        write_index(place, shards)


def read(folder: Path, examples: int, resamples: int) -> None:
    """Both files as float32, block by block."""
    for name in ("old", "new"):
        values = np.load(folder / f"{name}.npy", mmap_mode="r")
        for start in range(0, examples, _ROWS):
            values[start : min(start + _ROWS, examples)].astype(np.float32)


def scan(folder: Path, examples: int, resamples: int) -> None:
    """The pass over the scores alone."""
    from churn_compare.reading.join import join
    from churn_compare.reading.sides import read_side
    from churn_compare.scanning import scan

    old, new = (read_side(folder / f"{name}.npy", name) for name in ("old", "new"))
    scan(join(old, new, labels=folder / "labels.npy"))


def compare(folder: Path, examples: int, resamples: int, kind: str = ".npy") -> None:
    """Everything; shards have their labels."""
    import churn_jax

    old, new = folder / f"old{kind}", folder / f"new{kind}"
    labels = folder / "labels.npy" if kind == ".npy" else None
    churn_jax.compare(old, new, labels=labels, resamples=resamples)


def script(folder: Path, examples: int, resamples: int) -> None:
    """A plain NumPy comparison, all in memory."""
    old, new, labels = (
        np.load(folder / f"{name}.npy") for name in ("old", "new", "labels")
    )

    def softmax(logits):
        e = np.exp(logits.astype(np.float32) - logits.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def calibration_error(right, confidence):
        error = 0.0
        for low in np.arange(15) / 15:
            inside = (confidence > low) & (confidence <= low + 1 / 15)
            if inside.any():
                gap = right[inside].mean() - confidence[inside].mean()
                error += inside.mean() * abs(gap)
        return error

    old_probs, new_probs = softmax(old), softmax(new)
    was, now = old_probs.argmax(1), new_probs.argmax(1)
    each = {
        "accuracy_old": was == labels,
        "accuracy_new": now == labels,
        "churn": was != now,
        "negative_flip_rate": (was == labels) & (now != labels),
        "positive_flip_rate": (was != labels) & (now == labels),
        "confidence_old": old_probs.max(1),
        "confidence_new": new_probs.max(1),
    }

    def numbers(rows):
        of = {name: values[rows] for name, values in each.items()}
        errors = {
            f"ece_{side}": calibration_error(
                of[f"accuracy_{side}"], of[f"confidence_{side}"]
            )
            for side in ("old", "new")
        }
        return {name: values.mean() for name, values in of.items()} | errors

    rng = np.random.default_rng(0)
    draws = [numbers(rng.integers(0, examples, examples)) for _ in range(resamples)]
    for name in draws[0]:
        np.quantile([draw[name] for draw in draws], (0.025, 0.975))
    for label in np.unique(labels):
        numbers(labels == label)


CONTENDERS: dict[str, Callable[[Path, int, int], None]] = {
    "read": read,
    "scan": scan,
    "compare": compare,
    "compare, shards": functools.partial(compare, kind="-shards"),
    "script": script,
}


def measured(name: str, folder: Path, examples: int, resamples: int) -> dict:
    """Seconds and peak memory of a contender in a process of its own."""
    if name.startswith(("scan", "compare")):
        import churn_jax  # its time is not the comparison's

        churn_jax.compare([0, 1], [0, 1], labels=[0, 1])
    start = time.perf_counter(), time.process_time()
    CONTENDERS[name](folder, examples, resamples)
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    return {"found": [*seconds, peak_mebibytes()]}


def contenders(
    options: argparse.Namespace, folder: Path, names: Iterable[str]
) -> dict[str, Measure]:
    """Makes the files; each contender gives clock and CPU seconds and peak MiB."""
    make_files(folder, options.examples, options.classes, options.dtype)
    if "compare, shards" in names:
        write_shards(folder, options.dtype)
    words = ["--folder", folder, "--examples", options.examples]
    words += ["--resamples", options.resamples]

    def started(name: str) -> Measure:
        return lambda: alone(__file__, "--only", name, *words)["found"]

    return {name: started(name) for name in names}


def parse_args(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are made")
    parser.add_argument("--contenders", nargs="+", default=["read", "scan", "compare"])
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def run(options: argparse.Namespace, folder: Path) -> None:
    """Makes the files, measures and prints the table."""
    size = 2 * options.examples * options.classes * np.dtype(options.dtype).itemsize
    if (free := shutil.disk_usage(folder).free) < 1.1 * size:
        sys.exit(f"{folder} has {free / 1e9:.1f} GB left; {size / 1e9:.1f} GB needed")
    names = dict.fromkeys(("read", *options.contenders))
    found = take_turns(contenders(options, folder, names), options.rounds)
    head("contender", "s", "of `read`", "CPU s", "of `read`", "peak MiB")
    for name, turns in found.items():
        ratios = np.median(turns / found["read"], axis=0)
        middle = np.median(turns, axis=0)
        cells = [f"{x[part]:.2f}" for part in (0, 1) for x in (middle, ratios)]
        row(name, *cells, f"{turns[:, 2].max():.0f}")
    print(f"\n{options}{machine()}")


def main() -> None:
    options = parse_args()
    if options.only:
        of = options.only, options.folder, options.examples, options.resamples
        print(json.dumps(measured(*of)))
    else:
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            run(options, Path(folder))


if __name__ == "__main__":
    main()
