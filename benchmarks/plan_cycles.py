"""Cost of several replicas at once on one TPU chip against one at a time.

    python benchmarks/plan_cycles.py                            # v5e, four slots
    python benchmarks/plan_cycles.py --networks mlp lenet5 --slots 8

The real training step of a study is compiled for one chip with one replica and with
several, which are vmapped, or mapped as `auto` chooses, and the TPU compiler's
estimates of their cycles are compared: `cycles of all / (slots x cycles of one)`, per
update. Below 1 the slots share kernels that one network does not fill. `at a time` says
how many slots a call takes. Nothing is run.
"""

import argparse
import dataclasses

from turns import head, machine, row

from churn_jax.configuration.training import MeshShape
from churn_jax.planning import Slice
from churn_jax.planning.process import plan_apart
from churn_jax.studies import preset

_MNIST = "experiments/reproducibility/small.py:mnist"
_CIFAR10 = "experiments/reproducibility/presets.py:cifar10_resnet32"
_CIFAR100 = "experiments/diversity/presets.py:cifar100"
# A study, its row and the network, with the batch of one replica.
NETWORKS = {
    "mlp": (_MNIST, "baseline", "mlp", 128),
    "lenet5": (_MNIST, "baseline", "lenet5", 128),
    "resnet8": (_CIFAR10, "baseline", "resnet8", 128),
    "resnet32": (_CIFAR10, "baseline", "resnet32", 128),
    "be_wrn10_1": (_CIFAR100, "scratch", "wide_resnet10_1", 64),
    "be_wrn28_2": (_CIFAR100, "scratch", "wide_resnet28_2", 64),
}


def study_of(name: str, replicas: int, mapping: str):
    """The study and the row of one of `NETWORKS`."""
    study, row, network, batch = NETWORKS[name]
    config = preset(study)
    model = dataclasses.replace(config.model, name=network, features=())
    train = dataclasses.replace(
        config.train,
        replicas=replicas,
        seed_numbers=(),
        batch_size=batch,
        mapping=mapping,
        mesh=MeshShape(),
    )
    return dataclasses.replace(config, model=model, train=train), row


def measure(name: str, slots: int, mappings: list[str], part: Slice):
    """One result per mapping; each is compiled in a process of its own."""
    config, row = study_of(name, 1, "vmap")
    alone = plan_apart(config, row, part, MeshShape())
    for mapping in mappings:
        config, row = study_of(name, slots, mapping)
        together = plan_apart(config, row, part, MeshShape())
        yield {
            "network": alone.network,
            "batch": alone.batch_size,
            "slots": slots,
            "mapping": mapping,
            "at a time": slots // together.calls,
            "cycles of one": round(alone.cycles),
            "cycles of all": round(together.cycles),
            "ratio": together.cycles / (slots * alone.cycles),
            "seconds to compile": together.compile_seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--slots", type=int, default=4, help="replicas on the chip")
    parser.add_argument("--mappings", nargs="+", default=["vmap", "auto"])
    parser.add_argument("--topology", default="v5e:1x1")
    options = parser.parse_args()
    part = Slice.parse(options.topology)
    for number, name in enumerate(options.networks):
        for result in measure(name, options.slots, options.mappings, part):
            if number == 0 and result["mapping"] == options.mappings[0]:
                head(*result)
            row(*result.values())
    print(f"\n{part.name}{machine()}")


if __name__ == "__main__":
    main()
