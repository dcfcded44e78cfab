"""What a BatchEnsemble's step costs compared with one plain network on as many rows.

    python benchmarks/batch_ensemble.py                   # this machine's clock
    python benchmarks/batch_ensemble.py --topology v5e:2x2  # TPU compiler, without one

A step is forward, backward and momentum SGD, in float32. The BatchEnsemble of K members
is given B images and tiles them, the plain network is given K B images. Both take turns
in one process, several updates per call as in training, each on its own part of the
data. The ratio is that of the medians of the processor seconds of all threads, which
other work on the machine hardly changes. The table also has the ratio of wall-clock
times, and the bytes and the arithmetic of the compiled programs as XLA counts them.
With `--topology` one chip's program is compiled and the compiler's own estimate of
cycles is added up; nothing is run. That estimate has a floor of 1,824 cycles for an
elementwise kernel, however small, and a BatchEnsemble has more of them (fast weights
are updated in kernels of their own), so the ratio is also given without the floors of
the kernels that the plain network has not. The result is a Markdown table, or with
`--json` one line per workload.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import statistics
import time

os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# The TPU compiler is only compiled with here: no chip has to be locked.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax

from churn_jax import models
from churn_jax.models.layers import compiling_for
from churn_jax.training.partition import compilation

_CLASSES = 10
# The estimate of an elementwise kernel on a few hundred numbers, in cycles.
_FLOOR = 1824
_OPTIMIZER = optax.sgd(0.01, momentum=0.9)


@dataclasses.dataclass(frozen=True)
class Workload:
    """One network and batch.

    Attributes:
        network: a name of the zoo.
        image: `[H, W, C]`, or `[D]` for an MLP: as pixels, half of a small step on a
            TPU is spent on their layout.
        batch: B, images per member.
        updates: per call.
        options: of the network.
    """

    network: str
    image: tuple[int, ...]
    batch: int
    updates: int
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """As the table has it."""
        widths = "x".join(map(str, self.options.get("features", ())))
        return " ".join(filter(None, (self.network, widths)))


def _mlp(width: int, batch: int, updates: int) -> Workload:
    return Workload("mlp", (784,), batch, updates, {"features": (width, width)})


_CIFAR = (32, 32, 3)
WORKLOADS = {
    "mlp256-b128": _mlp(256, 128, 40),
    "mlp256-b512": _mlp(256, 512, 10),
    "mlp1024-b128": _mlp(1024, 128, 10),
    "mlp1024-b512": _mlp(1024, 512, 4),
    "lenet5": Workload("lenet5", (28, 28, 1), 32, 10),
    "resnet20": Workload("resnet20", _CIFAR, 8, 8),
    "resnet32": Workload("resnet32", _CIFAR, 8, 8),
    "wide_resnet10_1": Workload("wide_resnet10_1", _CIFAR, 8, 8),
    "wide_resnet28_2": Workload("wide_resnet28_2", _CIFAR, 8, 2),
}


def build(workload: Workload, members: int | None, dtype=jnp.float32):
    """`(step, state, data)`: of a BatchEnsemble, or where `members` is None plain.

    Args:
        workload: network and batch.
        members: K, whose rows `data` already holds for the plain network.
        dtype: what the networks compute in.
    """
    layers = models.PLAIN if members is None else models.BatchEnsemble(members)
    model = models.create(
        workload.network,
        num_classes=_CLASSES,
        dtype=dtype,
        layers=layers,
        **workload.options,
    )

    def loss(params, rest, images, labels):
        output, rest = model.apply(
            {"params": params, **rest}, images, train=True, mutable=list(rest)
        )
        labels = jnp.broadcast_to(labels, output.logits.shape[:-1])
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        return jnp.mean(cross_entropy(output.logits, labels)), rest

    def step(state, images, labels):
        params, rest, momentum = state
        gradients, rest = jax.grad(loss, has_aux=True)(params, rest, images, labels)
        updates, momentum = _OPTIMIZER.update(gradients, momentum)
        return optax.apply_updates(params, updates), rest, momentum

    def start():
        variables = dict(model.init(jax.random.key(0), jnp.zeros((1, *workload.image))))
        params = variables.pop("params")
        return params, variables, _OPTIMIZER.init(params)

    return step, start


def several(step):
    """`step` in a loop, update i on the rows from i on of twice as many."""

    def steps(state, images, labels, updates):
        rows = len(labels) // 2

        def one(i, state):
            part = [jax.lax.dynamic_slice_in_dim(x, i, rows) for x in (images, labels)]
            return step(state, *part)

        return jax.lax.fori_loop(0, updates, one, state)

    return steps


def shapes(workload: Workload, rows: int):
    """Images and labels of a step, as shapes."""
    return (
        jax.ShapeDtypeStruct((rows, *workload.image), jnp.float32),
        jax.ShapeDtypeStruct((rows,), jnp.int32),
    )


def compile_both(workload: Workload, members: int, sharding=None, dtype=jnp.float32):
    """The compiled steps of the BatchEnsemble and of the plain network."""
    compiled = []
    for count in (members, None):
        step, start = build(workload, count, dtype)
        rows = workload.batch if count else members * workload.batch
        if sharding is None:
            step, updates = several(step), (jax.ShapeDtypeStruct((), jnp.int32),)
            data = (*shapes(workload, 2 * rows), *updates)
        else:
            data = shapes(workload, rows)
        arguments = (jax.eval_shape(start), *data)
        if sharding is not None:
            arguments = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
                arguments,
            )
        # Layers look at the backend; a topology's is not the one of this process.
        platform = "cpu" if sharding is None else "tpu"
        with compiling_for(platform):
            lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
        # Options of the engine's steps on a CPU.
        options = None
        if sharding is None:
            options = compilation(convolutional=len(workload.image) == 3)
        compiled.append(lowered.compile(options))
    return compiled


def counted(compiled) -> dict[str, float]:
    """Bytes and arithmetic of a program, as XLA counts them."""
    cost = compiled.cost_analysis()
    return {"bytes": cost["bytes accessed"], "flops": cost["flops"]}


def cycles(compiled) -> tuple[int, int]:
    """The TPU compiler's estimate, summed over kernels, and how many there are.

    Raises:
        ValueError: the program has loops, whose cycles are not these.
    """
    text = compiled.as_text()
    if re.search(r" while\(", text):
        raise ValueError("the estimate of a loop's body is of one round")
    found = re.findall(r'"estimated_cycles":"(\d+)"', text[text.index("\nENTRY ") :])
    return sum(map(int, found)), len(found)


def measure(workload: Workload, members: int, compiled, repeats: int, seconds: float):
    """`(processor, clock)` seconds per step, a list for each side; they take turns."""
    generator = np.random.default_rng(0)
    runs: list[list] = []
    for count, program in zip((members, None), compiled, strict=True):
        _, start = build(workload, count)
        rows = 2 * (workload.batch if count else members * workload.batch)
        images = jnp.asarray(generator.normal(size=(rows, *workload.image)), "f4")
        labels = jnp.asarray(generator.integers(0, _CLASSES, rows), "i4")
        runs.append([program, jax.jit(start)(), images, labels])
    times: list[list[tuple[float, float]]] = [[], []]
    began = time.perf_counter()
    for repeat in range(repeats + 1):
        for run, taken in zip(runs, times, strict=True):
            program, state, images, labels = run
            start = time.process_time(), time.perf_counter()
            updates = np.int32(workload.updates)
            run[1] = jax.block_until_ready(program(state, images, labels, updates))
            if repeat:  # the first one warms up
                taken.append(
                    (
                        (time.process_time() - start[0]) / workload.updates,
                        (time.perf_counter() - start[1]) / workload.updates,
                    )
                )
        if repeat >= 5 and time.perf_counter() - began > seconds:
            break
    return times


def main() -> None:
    """Measures what is asked for and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=30.0, help="per workload")
    parser.add_argument("--topology", help="compile for this TPU, for example v5e:2x2")
    parser.add_argument("--bfloat16", action="store_true", help="with --topology")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sharding, dtype = None, jnp.bfloat16 if options.bfloat16 else jnp.float32
    if options.topology:
        from jax.experimental import topologies

        device = topologies.get_topology_desc(
            platform="tpu", topology_name=options.topology
        ).devices[0]
        sharding = jax.sharding.SingleDeviceSharding(device)
    results = []
    for name in options.workloads:
        workload = WORKLOADS[name]
        both = compile_both(workload, options.members, sharding, dtype)
        found = [counted(one) for one in both]
        result = {
            "workload": name,
            "network": workload.label,
            "rows": f"{options.members} x {workload.batch}",
            "bytes": found[0]["bytes"] / found[1]["bytes"],
            "flops": found[0]["flops"] / found[1]["flops"],
        }
        if options.topology:
            (ours, kernels), (plain, plain_kernels) = map(cycles, both)
            floors = (kernels - plain_kernels) * _FLOOR
            result |= {
                "kernels": kernels,
                "plain kernels": plain_kernels,
                "cycles": ours,
                "plain": plain,
                "ratio": ours / plain,
                "without floors": (ours - floors) / plain,
            }
        else:
            times = measure(
                workload, options.members, both, options.repeats, options.seconds
            )
            for kind, part in (("ratio", 0), ("clock", 1)):
                ours, plain = (statistics.median(t[part] for t in ts) for ts in times)
                result |= {f"{kind} ms": 1e3 * ours, f"{kind} plain ms": 1e3 * plain}
                result[kind] = ours / plain
        results.append(result)
        if options.json:
            print(json.dumps(result), flush=True)
            continue
        if len(results) == 1:
            print(f"| {' | '.join(result)} |\n|{' --- |' * len(result)}")
        cells = (
            f"{v:.4g}" if isinstance(v, float) else str(v) for v in result.values()
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    if not options.json:
        today = datetime.date.today()
        load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
        print(f"\n{platform.machine()}, jax {jax.__version__}, load {load}, {today}")


if __name__ == "__main__":
    main()
