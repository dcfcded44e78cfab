"""A preset's row compiled for a mesh of a slice: memory, what moves, and cycles."""

import collections
import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.models.layers import compiling_for
from churn_jax.planning.hlo import collectives_of, cycles_of
from churn_jax.planning.step import Step, study_step
from churn_jax.training.partition import REPLICA

_USED = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


class NoCompilerError(ValueError):
    """The TPU compiler is not installed."""


class Chip(NamedTuple):
    """The peaks of one device of a chip, as the compiler counts devices."""

    name: str  # as in the name of a topology
    kind: str  # as `jax.Device.device_kind` has it
    room: float  # GiB of memory that the compiler gives to a program
    flops: float  # peak operations per second in bfloat16
    bandwidth: float  # bytes per second between chip and memory
    clock: float  # cycles per second
    devices: int = 1  # per chip


# Peak arithmetic and memory bandwidth are those of the pages "TPU v4", "TPU v5e", "TPU
# v5p" and "TPU v6e" of cloud.google.com/tpu/docs. The room is what the compiler names
# where it refuses a program that is too large.
#
# The clock is derived: peak arithmetic over 2 x the multiplications of one cycle, which
# are 4 or 8 units of 128 x 128 (v5e; v4 and v5p), or 4 times 256 x 256 (v6e). With it
# the compiler's estimate of a product of two matrices of 8192 x 8192 is 87 (v5e), 90
# (v4, v5p) and 70 % (v6e) of the peak. The compiler's v4 has one device per core, two
# per chip, so figures are halved there.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", "TPU v4", 15.25, 137.5e12, 614e9, 1.05e9, devices=2),
        Chip("v5e", "TPU v5 lite", 15.75, 197e12, 819e9, 1.5e9),
        Chip("v5p", "TPU v5", 95, 459e12, 2765e9, 1.75e9),
        Chip("v6e", "TPU v6 lite", 31.25, 918e12, 1640e9, 1.75e9),
    )
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A grid of chips."""

    name: str  # as `parse` takes it
    chip: Chip  # kind of chip
    grid: tuple[int, ...]  # chips along every dimension

    @classmethod
    def parse(cls, name: str) -> "Slice":
        """From a name such as `v5e:4x4` or `v5p:2x2x1`.

        Raises:
            ValueError: the chip is unknown, or the text has no grid.

        Example:
            >>> Slice.parse("v5e:4x8").devices
            32
        """
        kind, _, grid = name.partition(":")
        if kind not in CHIPS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", grid):
            hint = "" if kind in CHIPS else did_you_mean(kind, CHIPS, count=1)
            raise ValueError(
                f"topology {name!r} must be one of {', '.join(CHIPS)} with its grid of "
                f"chips, as in v5e:4x4 or v5p:2x2x1{hint}"
            )
        # The compiler refuses grids that cannot be.
        return cls(name, CHIPS[kind], tuple(map(int, grid.split("x"))))

    @property
    def devices(self) -> int:
        """Number of devices for the compiler, which counts the cores of a v4."""
        return math.prod(self.grid) * self.chip.devices


def check_compiler() -> None:
    """Refuses to go on without the TPU compiler; says how to install it."""
    if importlib.util.find_spec("libtpu") is None:
        raise NoCompilerError(
            "the TPU compiler, libtpu, is not installed; it needs no TPU: "
            'pip install "churn-jax[tpu]", or pip install libtpu'
        )


def devices_of(part: Slice) -> Sequence[Any]:
    """The slice's devices, to compile for; none of them has to be there."""
    check_compiler()
    # Nothing is asked of a TPU machine, and no chip has to be locked.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    from jax.experimental import topologies

    options = {}
    if max(part.grid) <= 2:  # else the compiler's hosts of 2 x 2 must divide it
        bounds = (*part.grid, 1)[:3]
        options["chips_per_host_bounds"] = (*bounds[:2], 1)
    try:
        return topologies.get_topology_desc(
            platform="tpu", topology_name=part.name, **options
        ).devices
    except Exception as error:
        raise ValueError(
            f"the TPU compiler refuses the topology {part.name}: "
            f"{str(error).splitlines()[0]}"
        ) from error


@dataclasses.dataclass(frozen=True)
class Communication:
    """Collectives of one kind along the same axes."""

    axes: str  # of the mesh, joined by commas
    kind: str  # of HLO
    count: float  # per update
    bytes: float  # that they yield per update on one device
    largest: int  # bytes of the largest array among them


@dataclasses.dataclass(frozen=True)
class Plan:
    """The compiler's figures for one step on one mesh; no device ran it."""

    preset: str  # name of the study
    row: str  # row of the study
    network: str  # its name
    topology: str  # as `v5e:4x4`
    mesh: dict[str, int]  # devices along every axis
    replicas: int  # R
    batch_size: int  # batch size of one replica, over all data shards
    calls: int  # number of calls of the step after which every replica has been updated
    hbm: int  # bytes of one device that a program may use
    memory: dict[str, int]  # bytes of one device by category
    fits: bool = False  # True if the compiler found room for it
    refusal: str = ""  # why the compiler refused it; other numbers are then 0
    # cycles of one device per update, of the instructions that have an estimate; 0 if
    # none has
    cycles: float = 0.0
    unknown: int = 0  # number of instructions without one
    communication: tuple[Communication, ...] = ()  # collectives by axis and kind
    compile_seconds: float = 0.0  # seconds that compiling took
    # versions of jax and libtpu
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def used(self) -> int:
        """Bytes that one device holds."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """Cycles over the clock, per update; without what moves between devices."""
        return self.cycles / CHIPS[self.topology.partition(":")[0]].clock

    @property
    def at_a_time(self) -> int:
        """Number of replicas that one device computes in one call."""
        return self.replicas // (self.mesh[REPLICA] * self.calls)

    @property
    def apart(self) -> bool:
        """True if nothing moves between replicas."""
        return not any(REPLICA in one.axes for one in self.communication)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, with those derived from them."""
        derived = {"used": self.used, "seconds": self.seconds}
        return dataclasses.asdict(self) | derived


def default_row(config: StudyConfig) -> str:
    """The row with the most networks, also its teachers'; of several the last."""

    def networks(spec: Any) -> int:
        rows = (spec, *map(config.spec, spec.dependencies))
        return sum(row.method.members for row in rows)

    return max(reversed(config.methods), key=networks).name


def default_mesh(config: StudyConfig, part: Slice) -> MeshShape:
    """As many devices along `replica` as divide the replicas, others along `data`."""
    replica = math.gcd(config.train.replicas, part.devices)
    return MeshShape(replica, 1, part.devices // replica)


def plan(
    config: StudyConfig,
    row: str,
    part: Slice,
    mesh: MeshShape | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Plan:
    """Compiles one row's training step for a slice and reads what the compiler says.

    Args:
        config: the study.
        row: its name.
        part: the slice of chips.
        mesh: how its devices are used; None is the study's.
        devices: others than the slice's, for tests.

    Raises:
        ValueError: no such row or slice, or the mesh does not fit.
        NoCompilerError: libtpu is not installed.
    """
    if mesh is not None:
        train = dataclasses.replace(config.train, mesh=mesh)
        config = dataclasses.replace(config, train=train)
    mesh = config.train.mesh
    if mesh.size > part.devices:
        raise ValueError(
            f"mesh replica={mesh.replica},member={mesh.member},data={mesh.data} needs "
            f"{mesh.size} devices; {part.name} has {part.devices}"
        )
    found = devices_of(part) if devices is None else devices
    with compiling_for(found[0].platform):
        return compiled(study_step(config, row, found), part, config.name)


def compiled(step: Step, part: Slice, preset: str) -> Plan:
    """Compiles a step and reads a `Plan` from the program, or why it has no room."""
    run, config = step.run, step.run.config
    networks = [f"{g.size} x {g.network.name}" for g in run.groups if not g.gate]
    own = _sizes(step.parts)
    others = {
        f"{name} (next to the step)": n for name, n in _sizes(step.others).items()
    }
    versions = {"jax": jax.__version__}
    try:
        versions["libtpu"] = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        pass
    found = Plan(
        preset=preset,
        row=run.name,
        network=", ".join(networks),
        topology=part.name,
        mesh=dict(step.program.mesh.shape),
        replicas=config.replicas,
        batch_size=config.batch_size,
        calls=step.calls,
        hbm=int(part.chip.room * 2**30),
        memory=own | others,
        versions=versions,
    )
    began = time.perf_counter()
    try:
        program = step.jitted.lower(*step.arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        said = " ".join(str(error).split())
        if not (refusal := _refusal(said, part, step)):
            raise ValueError(
                f"the TPU compiler refuses {run.name}: {said[:300]}"
            ) from error
        seconds = time.perf_counter() - began
        return dataclasses.replace(found, refusal=refusal, compile_seconds=seconds)
    seconds, text = time.perf_counter() - began, program.as_text()
    cycles, sizes = cycles_of(text), program.memory_analysis()
    fresh = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    padding = sizes.argument_size_in_bytes - sum(own.values())
    found = dataclasses.replace(
        found,
        memory={
            **own,
            "padding of these": max(0, padding),  # arrays are padded to tiles
            "results in memory of their own": max(0, fresh),
            "temporary": sizes.temp_size_in_bytes,
            "program": sizes.generated_code_size_in_bytes,
            **others,
        },
        cycles=cycles.total * step.calls / step.updates,
        unknown=cycles.unknown,
        communication=_communication(text, step),
        compile_seconds=seconds,
    )
    return dataclasses.replace(found, fits=found.used <= found.hbm)


def _sizes(trees: dict[str, PyTree]) -> dict[str, int]:
    """One device's bytes of every tree of shapes with shardings that has any."""

    def of(leaf) -> int:
        size = math.prod(leaf.sharding.shard_shape(leaf.shape))
        key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return size * (8 if key else np.dtype(leaf.dtype).itemsize)

    found = {name: sum(map(of, jax.tree.leaves(tree))) for name, tree in trees.items()}
    return {name: size for name, size in found.items() if size}


def _communication(text: str, step: Step) -> tuple[Communication, ...]:
    """What an update of every replica moves, by axes and kind."""
    table = collections.defaultdict(list)
    for one in collectives_of(text, step.program.mesh):
        if one.axes:
            table[", ".join(one.axes), one.kind].append(one)
    each = step.calls / step.updates
    return tuple(
        Communication(
            axes=axes,
            kind=kind,
            count=each * sum(one.times for one in ones),
            bytes=each * sum(one.times * one.bytes for one in ones),
            largest=max(part for one in ones for part in one.parts),
        )
        for (axes, kind), ones in sorted(table.items())
    )


def _refusal(message: str, part: Slice, step: Step) -> str:
    """Why the compiler refuses a step, in one sentence; empty for other errors."""
    if match := _USED.search(message):
        used, limit = (float(match[i]) * _UNITS[match[i + 1]] / 2**30 for i in (1, 3))
        return (
            f"the compiler finds no room: the step takes {used:.1f} GiB per device of "
            f"the {limit:.1f} that it may use"
        )
    if "RESOURCE_EXHAUSTED" in message:
        return f"the compiler finds no room: {message[:200]}"
    if "should include all slice devices" not in message:
        return ""
    return (
        f"the compiler wants a mesh of all {part.devices} devices of such a slice, and "
        f"this one has {step.program.mesh.size}; give another by --mesh"
    )
