"""Cost of a training step over that of its parts, by the engine, in turns.

    JAX_PLATFORMS=cpu python benchmarks/steps.py tiled teachers perturbed

* `tiled`: a BatchEnsemble of M members on B images, which it tiles, against the plain
  network on M B images.
* `teachers`: a student learns from an ensemble of networks of its own kind that are run
  in every update (ELODI). `step / sum` is over a training step without a teacher and so
  many forward passes, each compiled and called by itself, and should be at most 1.15.
  `vmapped` and `unrolled` are all teachers' passes in one call, over the separate
  calls. `cached` is a step whose teachers' logits were kept, over one without a
  teacher. With `--bf16` the teachers are in bfloat16.
* `perturbed`: a BatchEnsemble is distilled from M teachers with each perturbation.
  `counted` is the arithmetic of the networks' passes (`Method.passes`, operations as
  XLA counts them) relative to plain distillation's, `measured` the same of the step's
  time; their ratio should be at most 1.2.

Times are of the processors' seconds of all threads, which other work on the machine
hardly changes, and behind the slash of the clock; ratios are medians of the turns'.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from engine import CLASSES, network_of, open_engine, random_dataset, stepper, untrained
from turns import head, machine, of_turns, row, take_turns, timed

from churn_jax import ensembles, methods, models
from churn_jax.methods.perturbing import PERTURBATIONS
from churn_jax.studies.cost import network_flops
from churn_jax.training.partition import compilation
from churn_jax.training.teachers import Teachers

# Network, its options, image, updates of a turn.
NETWORKS = {
    "mlp256": ("mlp", {"features": (256, 256)}, (28, 28, 1), 16),
    "mlp1024": ("mlp", {"features": (1024, 1024)}, (28, 28, 1), 8),
    "lenet5": ("lenet5", {}, (28, 28, 1), 4),
    "resnet8": ("resnet8", {}, (32, 32, 3), 1),
    "resnet20": ("resnet20", {}, (32, 32, 3), 8),
    "resnet32": ("resnet32", {}, (32, 32, 3), 8),
    "wide_resnet10_1": ("wide_resnet10_1", {}, (32, 32, 3), 8),
    "wide_resnet28_2": ("wide_resnet28_2", {}, (32, 32, 3), 2),
}


class Bench:
    """A network and how the engine trains it."""

    def __init__(self, name: str, options: argparse.Namespace):
        kind, self.fields, self.image, updates = NETWORKS[name]
        self.name, self.kind, self.options = name, kind, options
        self.members, self.batch = options.members, options.batch
        self.updates = options.updates or updates
        self.train = {"replicas": options.replicas, "batch_size": options.batch}
        self.train["mapping"] = options.mapping
        examples = max(4096, options.batch * self.updates)
        self.dataset = random_dataset(self.image, examples)

    def network(self, **more) -> ensembles.Network:
        """The network, perhaps with shared weights or another dtype."""
        return network_of(self.kind, **self.fields, **more)

    def opened(self, network, method=None, **more):
        """The run and the session of `open_engine`."""
        return open_engine(network, self.dataset, method, **{**self.train, **more})

    def turns(self, contenders: dict) -> dict[str, np.ndarray]:
        """`[turns, 2]`: processors' and clock seconds."""
        found = take_turns(contenders, self.options.repeats, self.options.seconds)
        return {name: turns[:, ::-1] for name, turns in found.items()}

    def ms(self, turns: np.ndarray) -> str:
        """Milliseconds of an update and a replica: processors' and the clock's."""
        each = 1e3 * np.median(turns, axis=0) / self.updates / self.options.replicas
        return " / ".join(f"{x:.2f}" for x in each)


def tiled(bench: Bench) -> None:
    """A row: the BatchEnsemble over the plain network."""
    members, batch = bench.members, bench.batch
    ensemble = bench.network(layers=models.BatchEnsemble(members))
    method = methods.ERM(members=members, deploy="mean_probs")
    ours = bench.opened(ensemble, method)
    plain = bench.opened(bench.network(), batch_size=members * batch)
    found = bench.turns(
        {"ours": stepper(*ours, bench.updates), "plain": stepper(*plain, bench.updates)}
    )
    ratio = of_turns(found["ours"], found["plain"])
    times = bench.ms(found["ours"]), bench.ms(found["plain"])
    row(bench.name, f"{members} x {batch}", *times, ratio, len(found["ours"]))


def passes(network, variables, images, mapping: str, times: int):
    """All teachers' forward passes, `times` in a row.

    `separate` calls a compiled network once per teacher; `vmap` and `unroll` are the
    engine's, all in one call.
    """
    members = jax.tree.leaves(variables)[0].shape[0]
    params = ensembles.take_member(variables, 0)["params"]
    options = compilation(convolutional=network.convolves(params))
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


def teachers(bench: Bench) -> None:
    """A row: the step with online teachers over a step and their passes."""
    options, network, groups = bench.options, bench.network(), ()
    student = bench.network(**({"remat": True} if options.remat else {}))
    trained = untrained(network, bench.dataset, bench.members, **bench.train)
    if options.bf16:
        network = bench.network(dtype=jnp.bfloat16)
        groups = (ensembles.Group(network, bench.members),)
    elodi = methods.ELODI(top_k=options.top_k)
    shape = options.replicas, 1, len(bench.dataset.train), CLASSES
    kept = Teachers(trained, cached=np.zeros(shape, np.float32))
    online = Teachers(trained, groups=groups)
    opened = {
        "step": bench.opened(student, elodi, teacher=online),
        "plain": bench.opened(student),
        "cached": bench.opened(student, elodi, teacher=kept),
    }
    contenders = {way: stepper(*one, bench.updates) for way, one in opened.items()}
    variables = jax.tree.map(lambda v: jnp.asarray(v[0]), trained.teacher_variables())
    images = np.random.default_rng(1).normal(size=(bench.batch, *bench.image))
    ran = jnp.asarray(images, jnp.float32), bench.updates * options.replicas
    for way in ("separate", "vmap", "unroll"):
        contenders[way] = passes(network, variables[0], ran[0], way, ran[1])
    found = bench.turns(contenders)
    program = opened["step"][1].program
    mapping = program.teacher.mapping if program.teacher else "none"
    row(
        f"{bench.name} ({program.mapping}, {mapping})",
        *(bench.ms(found[way]) for way in ("step", "plain", "separate")),
        of_turns(found["step"], found["plain"] + found["separate"]),
        of_turns(found["vmap"], found["separate"]),
        of_turns(found["unroll"], found["separate"]),
        of_turns(found["cached"], found["plain"]),
        len(found["step"]),
    )


def perturbed(bench: Bench) -> None:
    """A row for each perturbation: measured over counted."""
    members, image = bench.members, jax.ShapeDtypeStruct((1, *bench.image), "float32")
    student = bench.network(layers=models.BatchEnsemble(members))
    plain = bench.network()
    teacher = untrained(plain, bench.dataset, members, **bench.train)

    def counted(method) -> float:
        """Operations of an update per example."""
        needed = method.passes
        total = needed.training * network_flops(student, image, "training")
        total += needed.teachers * members * network_flops(plain, image)
        total += needed.input_gradients * network_flops(
            student, image, "input_gradients"
        )
        drawn = needed.drawn_teacher + members * needed.teachers_input_gradients
        return total + drawn * network_flops(plain, image, "input_gradients")

    contenders, work = {}, {}
    for kind in dict.fromkeys(("none", *bench.options.kinds)):
        method = methods.OneToOneDistillation(members=members, perturbation=kind)
        opened = bench.opened(student, method, teacher=teacher)
        contenders[kind], work[kind] = stepper(*opened, bench.updates), counted(method)
    found = bench.turns(contenders)
    for kind, turns in found.items():
        share = work[kind] / work["none"]
        slower = float(np.median(turns[:, 1] / found["none"][:, 1]))
        cells = 1e-9 * bench.batch * work[kind], share, slower, slower / share
        row(f"{bench.name}, {kind}", bench.ms(turns), *cells, len(turns))


TABLES = {
    tiled: ("network", "rows", "ms", "plain ms", "ratio", "turns"),
    teachers: ("network (mapping of replicas, of teachers)", "ms a step",
               "ms a plain step", "ms of separate passes", "step / sum", "vmapped",
               "unrolled", "cached", "turns"),
    perturbed: ("network, perturbation", "ms a step", "GFLOP a step", "counted",
                "measured", "ratio", "turns"),
}  # fmt: skip


def main() -> None:
    """Measures and prints the tables."""
    kinds = {table.__name__: table for table in TABLES}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", choices=kinds)
    parser.add_argument("--networks", nargs="+", default=["mlp256", "lenet5"])
    parser.add_argument("--members", type=int, help="default 4, or 8 teachers")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--top-k", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", default=list(PERTURBATIONS))
    parser.add_argument("--mapping", default="auto")
    parser.add_argument("--bf16", action="store_true", help="of the teachers")
    parser.add_argument("--remat", action="store_true", help="of the student")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=60.0, help="per network")
    parser.add_argument("--updates", type=int, help="per turn; default by network")
    options = parser.parse_args()
    print(options)
    members = options.members
    for table in options.tables:
        options.members = members or (8 if table == "teachers" else 4)
        head(*TABLES[kinds[table]])
        for name in options.networks:
            kinds[table](Bench(name, options))
    print(machine())


if __name__ == "__main__":
    main()
