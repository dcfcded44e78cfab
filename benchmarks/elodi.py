"""Cost of a step with an online teacher, over one training step and its passes.

    JAX_PLATFORMS=cpu python benchmarks/elodi.py

A student learns from an ensemble of networks of its own kind that are run in every
update (ELODI). `sum` is a training step without a teacher and so many forward passes,
each compiled and called by itself; `step / sum` should be at most 1.15. `vmapped` and
`unrolled` are all teachers' passes in one call, over the separate calls. `cached` is a
step whose teachers' logits were kept, over a step without a teacher. A ratio is the
median of those of the turns: of the processor seconds of all threads, which other work
hardly changes, and behind the slash of the clock's. With `--bf16` the teachers are in
bfloat16.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from engine import CLASSES, network_of, open_engine, random_dataset, stepper, untrained
from turns import head, machine, of_turns, row, take_turns, timed

from churn_jax import ensembles, methods
from churn_jax.training.partition import compilation
from churn_jax.training.teachers import Teachers

# Network, its options, image and updates per turn.
WORKLOADS = {
    "mlp256": ("mlp", {"features": (256, 256)}, (28, 28, 1), 16),
    "lenet5": ("lenet5", {}, (28, 28, 1), 4),
    "resnet8": ("resnet8", {}, (32, 32, 3), 1),
}


def passes(network, variables, images, mapping: str, times: int):
    """All teachers' forward passes, `times` in a row.

    `separate` calls a compiled network once per teacher; `vmap` and `unroll` are the
    engine's, all in one call.
    """
    members = jax.tree.leaves(variables)[0].shape[0]
    params = ensembles.take_member(variables, 0)["params"]
    options = compilation(convolutional=network.with_convolutions_from(params))
    compiled = functools.partial(jax.jit, compiler_options=options)  # as steps are
    if mapping == "separate":
        one = compiled(lambda v, x: network.apply(v, x, train=False)[0].logits)
        every = [ensembles.take_member(variables, i) for i in range(members)]
        calls = [lambda v=v: one(v, images) for v in every]
    else:
        committee = functools.partial(
            ensembles.apply_committee,
            (ensembles.Group(network, members),),
            mapping=mapping,
            train=False,
        )
        together = compiled(lambda v, x: committee((v,), x)[0].logits)
        calls = [lambda: together(variables, images)]

    def work() -> None:
        for _ in range(times):
            jax.block_until_ready([call() for call in calls])

    return timed(work)


def measure_workload(name: str, options: argparse.Namespace) -> None:
    """Prints one architecture's row."""
    kind, fields, image, updates = WORKLOADS[name]
    updates = options.updates or updates
    train = {"replicas": options.replicas, "batch_size": options.batch}
    train["mapping"] = options.mapping
    dataset = random_dataset(image, options.batch * updates)
    plain = network_of(kind, **fields)
    student = network_of(kind, **fields, **({"remat": True} if options.remat else {}))
    trained = untrained(plain, dataset, options.members, **train)
    network, groups = plain, ()
    if options.bf16:
        network = network_of(kind, **fields, dtype=jnp.bfloat16)
        groups = (ensembles.Group(network, options.members),)
    elodi = methods.ELODI(top_k=options.top_k)
    kept = np.zeros((options.replicas, 1, len(dataset.train), CLASSES), np.float32)
    opened = {
        "step": open_engine(
            student, dataset, elodi, teacher=Teachers(trained, groups=groups), **train
        ),
        "plain": open_engine(student, dataset, **train),
        "cached": open_engine(
            student, dataset, elodi, teacher=Teachers(trained, cached=kept), **train
        ),
    }
    variables = jax.tree.map(lambda v: jnp.asarray(v[0]), trained.teacher_variables())
    shape = (options.batch, *image)
    images = jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)
    times = updates * options.replicas
    contenders = {way: stepper(*one, updates) for way, one in opened.items()}
    for way in ("separate", "vmap", "unroll"):
        contenders[way] = passes(network, variables[0], images, way, times)
    found = take_turns(contenders, options.repeats, options.seconds)
    found = {way: turns[:, ::-1] for way, turns in found.items()}
    ms = [
        " / ".join(f"{1e3 * x / times:.2f}" for x in np.median(found[way], axis=0))
        for way in ("step", "plain", "separate")
    ]
    program = opened["step"][1].program
    mapping = program.teacher.mapping if program.teacher else "none"
    row(
        f"{name} ({program.mapping}, {mapping})",
        *ms,
        of_turns(found["step"], found["plain"] + found["separate"]),
        of_turns(found["vmap"], found["separate"]),
        of_turns(found["unroll"], found["separate"]),
        of_turns(found["cached"], found["plain"]),
        len(found["step"]),
    )


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=["mlp256", "lenet5"])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--mapping", default="auto")
    parser.add_argument("--bf16", action="store_true", help="of the teachers")
    parser.add_argument("--remat", action="store_true", help="of the student")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=60.0, help="per network")
    parser.add_argument("--updates", type=int, help="per turn; default by network")
    options = parser.parse_args()
    print(options)
    head("network (mapping of replicas, of teachers)", "ms a step", "ms a plain step",
         "ms of separate passes", "step / sum", "vmapped", "unrolled", "cached",
         "turns")  # fmt: skip
    for name in options.workloads:
        measure_workload(name, options)
    print(machine())


if __name__ == "__main__":
    main()
