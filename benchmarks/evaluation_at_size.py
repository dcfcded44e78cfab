"""Evaluation of 21,841 classes at 10^5 examples and more: time and memory.

    JAX_PLATFORMS=cpu python benchmarks/evaluation_at_size.py

Every measurement runs in a process of its own; memory is that process's peak, mapped
pages included. Logits of an old and a new version are made on the devices, batch by
batch: two tables of normal numbers, shifted along the classes by another step for every
batch.

* `logits`: making them and one sum over each, the floor;
* `states`: and adding them to States of churn, surrogate churn, flips, negative
  log-likelihood, Brier score and calibration error of both versions; at three sizes, so
  that one sees whether memory grows, on one device and with the examples sharded over
  eight, which are threads of the same cores on CPU.

CPU seconds, of all threads together, say more on a machine that others use too.
"""

import argparse
import json
import time

import numpy as np
from turns import alone, head, machine, peak_mebibytes, row

_PAIR = ("churn", "surrogate_churn")


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
    numbers = jax.tree.leaves([state.compute() for state in found.values()])
    assert int(found["flips"].examples) == update * options.examples
    return {"seconds": seconds, "busy": busy, "numbers": [float(x) for x in numbers]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [10_000, 30_000, 100_000]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--examples", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        found = states(options, update=options.only == "states")
        print(json.dumps({**found, "peak": peak_mebibytes()}))
        return
    head("what", "devices", "examples", "seconds", "s per 10^5", "CPU s per 10^5",
         "peak MiB")  # fmt: skip
    numbers = []
    for name, devices in (("logits", 1), ("states", 1), ("states", 8)):
        for examples in options.sizes if name == "states" else options.sizes[-1:]:
            words = ["--only", name, "--examples", examples, "--devices", devices]
            words += ["--classes", options.classes, "--batch", options.batch]
            found = alone(__file__, *words)
            each, busy = (found[of] / examples * 1e5 for of in ("seconds", "busy"))
            times = (f"{x:.1f}" for x in (found["seconds"], each, busy))
            row(name, devices, f"{examples:,}", *times, f"{found['peak']:.0f}")
        numbers.append(found["numbers"])
    np.testing.assert_allclose(numbers[2], numbers[1], rtol=1e-4)
    print(machine())


if __name__ == "__main__":
    main()
