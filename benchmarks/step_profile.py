"""Where the time of one training step goes, by operation.

    JAX_PLATFORMS=cpu taskset -c 0 python benchmarks/step_profile.py --model resnet20

A network of the zoo, its loss, gradients and momentum SGD, compiled as the engine
compiles it; three steps under JAX's profiler. Operations are grouped by what XLA calls
them, the shape of their result and whether they belong to the backward pass.
"""

import argparse
import collections
import re
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from replicas import machine

from churn_jax import models
from churn_jax.ensembles import from_linen
from churn_jax.training.partition import compilation

_STEPS = 3


def compile_step(name: str, batch: int, image: tuple[int, ...]):
    """The compiled step and its first arguments."""
    network = models.create(name, num_classes=10)
    drawn = np.random.default_rng(0).normal(size=(batch, *image)).astype("f4")
    images = jnp.asarray(drawn)  # an argument: of a constant XLA computes the patches
    labels = jnp.arange(batch) % 10
    variables = jax.jit(network.init)(jax.random.key(0), images)
    optimizer = optax.sgd(0.01, 0.9)

    def loss(params, rest, images):
        variables = {"params": params, **rest}
        output, rest = network.apply(variables, images, train=True, mutable=list(rest))
        losses = optax.softmax_cross_entropy_with_integer_labels(output.logits, labels)
        return losses.mean(), rest

    def step(params, rest, moments, images):
        gradients, rest = jax.grad(loss, has_aux=True)(params, rest, images)
        updates, moments = optimizer.update(gradients, moments, params)
        return optax.apply_updates(params, updates), rest, moments, images

    params = variables.pop("params")
    state = (params, variables, optimizer.init(params), images)
    convolutional = from_linen(network).with_convolutions_from(params)
    jitted = jax.jit(step, compiler_options=compilation(convolutional=convolutional))
    return jitted.lower(*state).compile(), state


def milliseconds(compiled, state) -> dict[str, float]:
    """Per operation of the program, for one step."""
    state = jax.block_until_ready(compiled(*state))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(_STEPS):
                state = jax.block_until_ready(compiled(*state))
        trace = next(Path(folder).rglob("*.xplane.pb"))
        profile = jax.profiler.ProfileData.from_file(str(trace))
    total: dict[str, float] = collections.Counter()
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                total[event.name] += event.duration_ns / 1e6 / _STEPS
    return total


def grouped(total: dict[str, float], program: str) -> list[tuple[float, int, str]]:
    """Milliseconds, number and kind of operations, the longest first."""
    groups: dict[str, list[float]] = collections.defaultdict(list)
    for line in program.splitlines():
        found = re.match(r"\s*(?:ROOT )?%([\w.-]+) = (\w+\[[\d,]*\])", line)
        if found and (spent := total.get(found[1])):
            name = re.search(r'op_name="([^"]*)"', line)
            backward = name is not None and "transpose(" in name[1]
            kind = re.sub(r"[.\d]+$", "", found[1]) + " " + found[2]
            groups[kind + (" backward" if backward else "")].append(spent)
    rows = [(sum(spent), len(spent), kind) for kind, spent in groups.items()]
    return sorted(rows, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20", choices=models.available())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image", type=int, nargs=3, default=(32, 32, 3))
    parser.add_argument("--rows", type=int, default=30)
    args = parser.parse_args()
    compiled, state = compile_step(args.model, args.batch, tuple(args.image))
    rows = grouped(milliseconds(compiled, state), compiled.as_text())
    print("| ms | operations | kind, result |\n|--:|--:|:--|")
    for spent, count, kind in rows[: args.rows]:
        print(f"| {spent:.1f} | {count} | {kind} |")
    print(f"\n{sum(spent for spent, _, _ in rows):.0f} ms in {machine()}")


if __name__ == "__main__":
    main()
