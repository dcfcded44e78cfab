"""Cost of a BatchEnsemble's step against one plain network on as many rows.

    JAX_PLATFORMS=cpu python benchmarks/batch_ensemble.py

Both train by the engine, in turns: the BatchEnsemble of K members on B images, which it
tiles, the plain network on K B images. Ratios are of the medians, of the processor
seconds of all threads, which other work on the machine hardly changes, and of the
clock's.
"""

import argparse

import numpy as np
from engine import network_of, open_engine, random_dataset, stepper
from turns import head, machine, row, take_turns

from churn_jax import methods, models

# Network, options, image, batch B of a member, updates of a turn.
WORKLOADS = {
    f"mlp{width}-b{batch}": (
        "mlp",
        {"features": (width, width)},
        (28, 28, 1),
        batch,
        5120 // batch,
    )
    for width in (256, 1024)
    for batch in (128, 512)
} | {
    "lenet5": ("lenet5", {}, (28, 28, 1), 32, 10),
    "resnet20": ("resnet20", {}, (32, 32, 3), 8, 8),
    "resnet32": ("resnet32", {}, (32, 32, 3), 8, 8),
    "wide_resnet10_1": ("wide_resnet10_1", {}, (32, 32, 3), 8, 8),
    "wide_resnet28_2": ("wide_resnet28_2", {}, (32, 32, 3), 8, 2),
}


def main() -> None:
    """Measures what is asked for and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=30.0, help="per workload")
    options = parser.parse_args()
    head("network", "rows", "ms", "plain ms", "processor time", "clock", "turns")
    members = options.members
    for name in options.workloads:
        network, fields, image, batch, updates = WORKLOADS[name]
        dataset = random_dataset(image)
        layers = models.BatchEnsemble(members)
        ensemble = network_of(network, layers=layers, **fields)
        method = methods.ERM(members=members, deploy="mean_probs")
        ours = open_engine(ensemble, dataset, method, replicas=1, batch_size=batch)
        plain = network_of(network, **fields)
        peer = open_engine(plain, dataset, replicas=1, batch_size=members * batch)
        contenders = {"ours": stepper(*ours, updates), "plain": stepper(*peer, updates)}
        found = take_turns(contenders, options.repeats, options.seconds)
        ms = {n: 1e3 * np.median(t, axis=0) / updates for n, t in found.items()}
        clock, processor = ms["ours"] / ms["plain"]
        times = (f"{ms[n][1]:.2f}" for n in ("ours", "plain"))
        ratios = (f"{processor:.2f}", f"{clock:.2f}", len(found["ours"]))
        row(name, f"{members} x {batch}", *times, *ratios)
    print(machine())


if __name__ == "__main__":
    main()
