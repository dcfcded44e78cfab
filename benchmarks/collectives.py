"""Traffic of the compiled training step between devices, and its memory on each.

    python benchmarks/collectives.py                     # 8 host devices, 2 x 2 x 2
    python benchmarks/collectives.py --topology v5e:2x4  # TPU compiler, without a TPU

Compiles one step of four replicas of a co-distilled pair (or `--method`) of
ResNets for CIFAR-10 and prints its collectives by mesh axis: replicas never
communicate, members exchange logits, data shards reduce. Nothing is run.
"""

import argparse
import collections
import dataclasses
import json
import os
import time
from types import SimpleNamespace

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# The TPU compiler is only compiled with here: no chip has to be locked.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

import jax
from turns import head, row

from churn_jax.data import Augmentation
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM, Codistillation, EnsembleDistillation
from churn_jax.models import ResNet
from churn_jax.planning.hlo import collectives_of
from churn_jax.planning.step import Sizes, run_step
from churn_jax.training import MeshShape, Run, TrainConfig
from churn_jax.training.teachers import Teachers

METHODS = {
    "codistillation": Codistillation(beta=0.1),
    "ensemble": ERM(members=2, deploy="mean_probs"),
    "distillation": EnsembleDistillation(members=2, deploy="mean_probs"),
}
_CLASSES = 10


def _devices(topology: str | None):
    if topology is None:
        jax.config.update("jax_num_cpu_devices", 8)
        return jax.devices()
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


def compile_step(options):
    """The compiled step, its program and the seconds that compiling took."""
    method = METHODS[options.method]
    widths = tuple(options.width * 2**stage for stage in range(3))
    resnet = ResNet(depth=options.depth, widths=widths, num_classes=_CLASSES)
    network, image = from_linen(resnet), (options.pixels, options.pixels, 3)
    config = TrainConfig(
        replicas=options.replicas,
        epochs=1,
        batch_size=options.batch_size,
        mesh=MeshShape.parse(options.mesh),
        mapping="vmap",
        steps_per_call=1,
        augmentation=Augmentation(pad_crop=4, flip=True),
    )
    ensemble = Run(options.method, method, (Group(network, method.members),), config)
    (run,) = ensemble.as_replicas()
    teachers = None
    if method.needs_teacher:
        taught_by = dataclasses.replace(ensemble, method=ERM(members=2))
        teachers = Teachers(SimpleNamespace(run=taught_by))
    sizes = DataFacts(image, _CLASSES, options.examples)
    step = run_step(run, sizes, _devices(options.topology), teachers)
    began = time.perf_counter()
    compiled = step.jitted.lower(*step.arguments).compile()
    return compiled, step.program, time.perf_counter() - began


def measure(options) -> dict:
    """Everything that is printed, as JSON values."""
    compiled, program, seconds = compile_step(options)
    found = collectives_of(compiled.as_text(), program.mesh)
    memory = compiled.memory_analysis()
    devices = list(program.mesh.devices.flat)
    return {
        "method": options.method,
        "model": f"ResNet-{options.depth}",
        "replicas": options.replicas,
        "batch_size": options.batch_size,
        "classes": _CLASSES,
        "mesh": dict(program.mesh.shape),
        "device": devices[0].device_kind,
        "collectives": [dataclasses.asdict(c) for c in found],
        "memory": {
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes,
            "reused": memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        "compile_seconds": seconds,
        "jax": jax.__version__,
    }


def show(result: dict) -> None:
    mesh = " x ".join(f"{axis} {size}" for axis, size in result["mesh"].items())
    print(
        f"{result['method']} of {result['model']}, {result['replicas']} replicas, "
        f"batch {result['batch_size']}; {result['device']}, mesh {mesh}; jax "
        f"{result['jax']}, compiled in {result['compile_seconds']:.1f} s\n"
    )
    table = collections.defaultdict(list)
    for one in result["collectives"]:
        table[", ".join(one["axes"]) or "none", one["kind"]].append(one["parts"])
    head("axis", "collective", "count", "bytes per device", "largest array")
    for (axes, kind), several in sorted(table.items()):
        parts = [part for one in several for part in one]
        row(axes, kind, len(several), f"{sum(parts):,}", f"{max(parts):,}")
    sizes = ", ".join(f"{k} {v / 2**20:.1f} MiB" for k, v in result["memory"].items())
    print(f"\nMemory per device: {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", help="compile for a TPU, for example v5e:2x4")
    parser.add_argument("--mesh", default="replica=2,member=2,data=2")
    parser.add_argument("--method", choices=METHODS, default="codistillation")
    parser.add_argument("--depth", type=int, default=8, help="of the ResNet")
    parser.add_argument("--width", type=int, default=16, help="of its first stage")
    parser.add_argument("--pixels", type=int, default=32, help="of an image's side")
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
