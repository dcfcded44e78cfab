"""Evaluation of 21,841 classes at 10^5 examples and more: time, memory, shards.

    JAX_PLATFORMS=cpu python benchmarks/evaluation_at_size.py

Every measurement runs in a process of its own; memory is that process's peak, mapped
pages included. Logits of an old and a new version are made on the devices, batch by
batch: two tables of normal numbers, shifted along the classes by another step for every
batch.

* `logits`: making them and one sum over each, the floor;
* `states`: and adding them to States of churn, surrogate churn, flips, negative
  log-likelihood, Brier score and calibration error of both versions; at three sizes, so
  that one sees whether memory grows, on one device and with the examples sharded over
  eight, which are threads of the same cores on CPU;
* `write`: `ShardWriter`, float16, four shards one after the other, until they are on
  the disk;
* `predict, write`: a linear network of 64 inputs on eight devices, whose predictions go
  from the devices to a shard batch by batch, as `training.write_predictions` does it;
* `compare`: `churn_jax.compare` of two versions in four and two shards whose writers
  took turns with blocks of examples, and of the same numbers in two `.npy` files.

CPU seconds, of all threads together, say more on a machine that others use too. What
10^7 examples take is extrapolated from the largest size: time grows with their number,
memory does not.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from memory import peak_mebibytes

_CLASSES = 21_841
_EXTRAPOLATED = 10_000_000
_SHARDS = {"old": 4, "new": 2}
_BLOCK = 64  # examples that a writer takes in a row


def states(options: argparse.Namespace, update: bool) -> dict:
    """Seconds of `options.examples` examples, without compiling, and the numbers."""
    import jax

    jax.config.update("jax_num_cpu_devices", max(options.devices, 1))
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from churn_jax import metrics

    mesh = jax.make_mesh((options.devices,), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    batch, classes = options.batch, options.classes

    def make(key):
        drawn, moved, wrong = jax.random.split(key, 3)
        table = 3 * jax.random.normal(drawn, (batch, classes))
        change = jax.random.normal(moved, (batch, classes))
        right = jnp.argmax(table, -1) + 7 * jax.random.bernoulli(wrong, 0.25, (batch,))
        return table, change, right

    tables = jax.jit(make, out_shardings=rows)(jax.random.key(0))
    one = (metrics.NLLState, metrics.BrierState, metrics.ECEState)
    empty = {
        "churn": metrics.ChurnState.empty(),
        "surrogate_churn": metrics.SurrogateChurnState.empty(alpha=1.0),
        "flips": metrics.FlipState.empty(),
        **{f"{kind.__name__} {s}": kind.empty() for kind in one for s in "ab"},
        "sum": metrics.MeanState.empty(),
    }

    def step(found, tables, number, valid):
        table, change, right = tables
        a = jnp.roll(table, 31 * number, axis=-1)
        b = a + jnp.roll(change, 17 * number, axis=-1)
        labels = (right + 31 * number) % classes
        mask = jnp.arange(batch) < valid
        if not update:
            sums = jnp.sum(a, -1) + jnp.sum(b, -1)
            return {**found, "sum": found["sum"].add(sums, mask)}
        new = {name: found[name].update(a, b, mask) for name in _PAIR}
        new["flips"] = found["flips"].update(
            old_logits=a, new_logits=b, labels=labels, mask=mask
        )
        for side, logits in (("a", a), ("b", b)):
            for kind in one:
                name = f"{kind.__name__} {side}"
                new[name] = found[name].update(logits, labels, mask)
        return {**found, **new}

    replicated = NamedSharding(mesh, PartitionSpec())
    step = jax.jit(step, out_shardings=replicated)
    empty = jax.device_put(empty, replicated)
    warm = step(empty, tables, 0, batch)
    jax.block_until_ready(warm)
    begin, busy = time.perf_counter(), time.process_time()
    found = empty
    for number in range(-(-options.examples // batch)):
        left = min(batch, options.examples - number * batch)
        found = step(found, tables, number, left)
        jax.block_until_ready(found)  # else the batches to come wait in memory
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    numbers = {}
    if update:
        assert int(found["flips"].examples) == options.examples
        numbers = {
            name: float(state.compute())
            for name, state in found.items()
            if name not in ("flips", "sum")
        }
        numbers["negative flips"] = int(found["flips"].negative)
    return {"seconds": seconds, "busy": busy, "numbers": numbers}


_PAIR = ("churn", "surrogate_churn")


def _block_of_logits(options: argparse.Namespace) -> Callable[[str, int], np.ndarray]:
    """`[b, C]` float32 logits of a version's block of examples, by its number."""
    rng = np.random.default_rng(0)
    table = 3 * rng.standard_normal((2 * _BLOCK, options.classes), np.float32)
    change = rng.standard_normal((2 * _BLOCK, options.classes), np.float32)

    def block(side: str, number: int) -> np.ndarray:
        of = slice(number % _BLOCK, number % _BLOCK + _BLOCK)
        logits = np.roll(table[of], 31 * number, 1)
        return logits if side == "old" else logits + change[of]

    return block


def write(options: argparse.Namespace) -> dict:
    """Both versions in shards; seconds are those of the writer alone."""
    from churn_compare.store import ShardWriter, write_index

    blocks, seconds, written = options.shard_examples // _BLOCK, 0.0, 0
    ids = np.arange(blocks * _BLOCK).reshape(blocks, _BLOCK)
    logits = _block_of_logits(options)
    for side, shards in _SHARDS.items():
        folder = options.folder / side
        for shard in range(shards):
            mine = range(shard, blocks, shards)
            held = ids[shard::shards].reshape(-1)
            labels = held % options.classes
            begin = time.perf_counter()
            of = options.classes, "float16"
            writer = ShardWriter(folder, shard, shards, held, labels, 1, *of)
            seconds += time.perf_counter() - begin
            for number in mine:
                rows = logits(side, number)[None]
                begin = time.perf_counter()
                writer.write(rows)
                seconds += time.perf_counter() - begin
                written += rows.size * 2
            begin = time.perf_counter()
            writer.close()
            seconds += time.perf_counter() - begin
        write_index(folder, shards)
    return {"seconds": seconds, "bytes": written}


def predict_and_write(options: argparse.Namespace) -> dict:
    """Predictions of a linear network, from eight devices to one shard."""
    import jax

    jax.config.update("jax_num_cpu_devices", 8)
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec

    from churn_compare.store import write_index
    from churn_jax.ensembles import Group, from_function
    from churn_jax.methods import ERM
    from churn_jax.training import MeshShape, OptimizerConfig
    from churn_jax.training.partition import REPLICA, make_mesh, place, replicate
    from churn_jax.training.predictions import (
        make_predict,
        predict_batches,
        write_share,
    )
    from churn_jax.training.program import Program

    count, classes = options.shard_examples, options.classes
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((count, 64), np.float32)
    weights = rng.standard_normal((1, 1, 64, classes), np.float32)
    mesh = make_mesh(MeshShape(data=8))
    network = from_function(lambda key, x: {}, lambda p, x: jnp.dot(x, p["w"]))
    program = Program(
        groups=(Group(network, 1),),
        optimizer=OptimizerConfig(),
        schedule=lambda count: 1.0,
        batch_size=options.batch,
        mesh=mesh,
        mapping="vmap",
        mean=0.0,
        std=1.0,
    )
    params = ({"w": place(weights, mesh, PartitionSpec(REPLICA))},)
    begin = time.perf_counter()
    failed = write_share(
        predict_batches(
            make_predict(program, ERM()),
            [(params, ({},))],
            replicate(inputs, mesh),
            mesh,
            batch_size=options.batch,
        ),
        mesh,
        (np.arange(count), np.arange(count) % classes),
        options.folder / "predicted",
        shard=0,
        shards=1,
        devices=jax.local_devices(),
        dtype="float16",
    )
    assert failed is None, failed
    write_index(options.folder / "predicted", 1)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "bytes": 2 * count * classes}


def write_whole(options: argparse.Namespace) -> dict:
    """The same numbers in a `.npy` file per version."""
    blocks = options.shard_examples // _BLOCK
    shape, logits = (blocks * _BLOCK, options.classes), _block_of_logits(options)
    for side in _SHARDS:
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        with open(options.folder / f"{side}.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for number in range(blocks):
                file.write(logits(side, number).astype(np.float16).tobytes())
    np.save(options.folder / "labels.npy", np.arange(shape[0]) % options.classes)
    return {"seconds": 0.0}


def compare(options: argparse.Namespace, sharded: bool) -> dict:
    """Everything that a comparison computes."""
    import churn_jax

    churn_jax.compare([0, 1], [0, 1], labels=[0, 1])  # loading it is not its time
    begin = time.perf_counter()
    if sharded:
        found = churn_jax.compare(options.folder / "old", options.folder / "new")
    else:
        old, new = (options.folder / f"{side}.npy" for side in _SHARDS)
        found = churn_jax.compare(old, new, labels=options.folder / "labels.npy")
    return {
        "seconds": time.perf_counter() - begin,
        "numbers": {name: found[name].value for name in ("churn", "accuracy_gain")},
    }


MEASURED: dict[str, Callable[[argparse.Namespace], dict]] = {
    "logits": lambda o: states(o, update=False),
    "states": lambda o: states(o, update=True),
    "write": write,
    "predict, write": predict_and_write,
    "write whole": write_whole,
    "compare, shards": lambda o: compare(o, sharded=True),
    "compare, .npy": lambda o: compare(o, sharded=False),
}


def alone(name: str, options: argparse.Namespace, **changed) -> dict:
    """One measurement in a new process."""
    command = [sys.executable, __file__, "--only", name]
    for key, value in {**vars(options), **changed}.items():
        if key not in ("only", "sizes", "parts") and value is not None:
            command += [f"--{key.replace('_', '-')}", str(value)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def same(numbers: list[dict[str, float]]) -> None:
    """Whatever was done in two ways has given the same numbers."""
    for name, value in numbers[0].items():
        for other in numbers[1:]:
            np.testing.assert_allclose(other[name], value, rtol=1e-4, err_msg=name)


def run_states(options: argparse.Namespace) -> None:
    """Prints the table of time and memory by size and devices."""
    print(
        "| what | devices | examples | seconds | s per 10^5 | CPU s per 10^5 | "
        "peak MiB |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    longest = {}
    for name, devices in (("logits", 1), ("states", 1), ("states", 8)):
        sizes = options.sizes if name == "states" else options.sizes[-1:]
        for examples in sizes:
            found = alone(name, options, examples=examples, devices=devices)
            longest[name, devices] = found
            each, busy = (found[of] / examples * 1e5 for of in ("seconds", "busy"))
            print(
                f"| {name} | {devices} | {examples:,} | {found['seconds']:.1f} | "
                f"{each:.1f} | {busy:.1f} | {found['peak']:.0f} |",
                flush=True,
            )
    same([longest["states", devices]["numbers"] for devices in (1, 8)])
    for devices in (1, 8):
        found = longest["states", devices]
        hours = found["seconds"] / options.sizes[-1] * _EXTRAPOLATED / 3600
        print(
            f"\nExtrapolated to {_EXTRAPOLATED:,} examples on {devices} devices: "
            f"{hours:.2f} hours, {found['peak']:.0f} MiB"
        )


def run_shards(options: argparse.Namespace) -> None:
    """Prints the table of shards written and compared."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        options = argparse.Namespace(**{**vars(options), "folder": Path(folder)})
        alone("write whole", options)
        written = alone("write", options)
        print("\n| what | GB | seconds | MB/s | peak MiB |")
        print("|---|---:|---:|---:|---:|")
        numbers = []
        for name, found in (
            ("write", written),
            ("predict, write", alone("predict, write", options)),
            *(
                (name, alone(name, options))
                for name in ("compare, .npy", "compare, shards") * 2
            ),
        ):
            size = found.get("bytes", written["bytes"])
            if "numbers" in found:
                numbers.append(found["numbers"])
            print(
                f"| {name} | {size / 1e9:.2f} | {found['seconds']:.1f} | "
                f"{size / 1e6 / found['seconds']:.0f} | {found['peak']:.0f} |"
            )
        same(numbers)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 30_000, 100_000]
    )
    parser.add_argument("--classes", type=int, default=_CLASSES)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--shard-examples", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where shards are made")
    parser.add_argument("--parts", nargs="+", default=["states", "shards"])
    parser.add_argument("--examples", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse_args()
    if options.only:
        found = MEASURED[options.only](options)
        print(json.dumps({**found, "peak": peak_mebibytes()}))
        return
    if "states" in options.parts:
        run_states(options)
    if "shards" in options.parts:
        run_shards(options)
    print(
        f"\n{options.classes:,} classes, batch {options.batch}; {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{datetime.date.today()}, Python {platform.python_version()}, NumPy "
        f"{np.__version__}"
    )


if __name__ == "__main__":
    main()
