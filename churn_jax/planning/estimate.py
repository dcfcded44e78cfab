"""What the compiler says about a step on a mesh: memory, cycles, communication."""

import collections
import dataclasses
import math
import re
import time
from collections.abc import Sequence
from typing import Any

import jax

from churn_jax.planning.chips import Slice
from churn_jax.planning.hlo import Counted, collectives_of, cycles_of
from churn_jax.planning.rules import Check, shard_bytes
from churn_jax.planning.steps import Step
from churn_jax.typing import PyTree

__all__ = ["Communication", "Plan", "estimate", "ring_seconds"]

# Latency from chip to chip, on top of the bytes' time. Ours: no vendor gives it.
HOP_SECONDS = 1e-6
_USED = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Communication:
    """Collectives of one kind along the same axes.

    Attributes:
        axes: mesh axes that are crossed, joined by commas.
        kind: of HLO.
        count: per call of every replica.
        bytes: that they yield per call on one device.
        largest: array among them, in bytes.
        seconds: estimated by `ring_seconds`.
    """

    axes: str
    kind: str
    count: int
    bytes: int
    largest: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The compiler's estimate of one step on one mesh; no device ran it.

    Attributes:
        preset: name of the study.
        row: of the study.
        network: its name.
        topology: as `v5e:4x4`.
        mesh: devices along every axis.
        replicas: R.
        batch_size: of one replica, over all data shards.
        updates: that one call of the step makes.
        calls: of the step, one after another, until every replica has made them.
        fits: whether the compiler found room for it and for `other_memory`.
        refusal: why the compiler refused it; other numbers are then 0.
        hbm: bytes of one device that a program may use.
        memory: bytes of one device by category.
        other_memory: the same, of what else is on the device while the step runs.
        flops: operations of one device per update, as the compiler counts them.
        useful: operations of all networks on all devices per update, as
            `churn_jax.studies.cost` counts them; 0 where it does not.
        bytes: that operations read and write on one device per update, on-chip memory
            included.
        peak: operations per second of one device in bfloat16.
        cycles: of one device per update.
        unknown: how many instructions of each kind have no estimate.
        open_loops: loops whose length the compiler does not know.
        open_turns: that the outermost of them are taken to turn; others once.
        compute_seconds: cycles over the clock, per update.
        communication: collectives by axis and kind.
        communication_seconds: of all of them per update.
        checks: the placement rules.
        compile_seconds: that compiling took.
        versions: of jax and libtpu.
    """

    preset: str
    row: str
    network: str
    topology: str
    mesh: dict[str, int]
    replicas: int
    batch_size: int
    updates: int
    calls: int
    fits: bool
    refusal: str
    hbm: int
    memory: dict[str, int]
    other_memory: dict[str, int]
    flops: float = 0.0
    useful: float = 0.0
    bytes: float = 0.0
    peak: float = 0.0
    cycles: float = 0.0
    unknown: dict[str, int] = dataclasses.field(default_factory=dict)
    open_loops: int = 0
    open_turns: int = 1
    compute_seconds: float = 0.0
    communication: tuple[Communication, ...] = ()
    communication_seconds: float = 0.0
    checks: tuple[Check, ...] = ()
    compile_seconds: float = 0.0
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Number of devices of the mesh."""
        return math.prod(self.mesh.values())

    @property
    def used(self) -> int:
        """Bytes of one device, `other_memory` included."""
        return sum(self.memory.values()) + sum(self.other_memory.values())

    @property
    def step_seconds(self) -> float:
        """Per update, if communication and computation do not overlap."""
        return self.compute_seconds + self.communication_seconds

    @property
    def overlapped_seconds(self) -> float:
        """Per update, if they overlap completely."""
        return max(self.compute_seconds, self.communication_seconds)

    @property
    def rate(self) -> float:
        """Replicas times examples per second, with nothing overlapped."""
        if not self.step_seconds:
            return 0.0
        return self.replicas * self.batch_size / self.step_seconds

    @property
    def utilisation(self) -> float:
        """Useful operations per second over the peak of all devices."""
        if not self.step_seconds:
            return 0.0
        done = self.useful or self.flops * self.devices
        return done / (self.step_seconds * self.devices * self.peak)

    @property
    def passed(self) -> bool:
        """Whether every placement rule holds."""
        return all(check.holds for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, with those derived from them."""
        found = dataclasses.asdict(self)
        derived = ("used", "step_seconds", "overlapped_seconds", "rate", "utilisation")
        return {**found, **{name: getattr(self, name) for name in derived}}


def ring_seconds(
    kind: str, yielded: int, devices: int, link: float, dims: int = 1
) -> float:
    """Estimated time of one collective on a ring of devices, both ways round."""
    # Of g devices 2 (g - 1) / g of the bytes leave each in a reduction that all know
    # the result of, half of that in one of its halves, over two links; two devices have
    # one. An all-to-all passes a quarter of the ring, a permutation takes one way. A
    # message also passes half of the ring, twice or once, a microsecond from chip to
    # chip; devices that fill a grid of `dims` pass it along its sides, one after
    # another.
    if devices < 2:
        return 0.0
    share, links = (devices - 1) / devices, 1 if devices == 2 else 2
    if kind == "all-reduce":
        sent, turns = 2 * share * yielded, 2
    elif kind == "reduce-scatter":
        sent, turns = (devices - 1) * yielded, 1
    elif kind in ("all-to-all", "ragged-all-to-all"):
        sent, turns = max(share, devices / 4) * yielded, 1
    elif kind in ("collective-permute", "collective-broadcast"):
        sent, turns, links = float(yielded), 1, 1
    else:
        sent, turns = share * yielded, 1
    hops = turns * dims * devices ** (1 / dims) / 2
    return sent / (links * link) + hops * HOP_SECONDS


def _communication(
    found: Sequence[Counted], mesh: dict[str, int], part: Slice, step: Step
) -> tuple[Communication, ...]:
    table: dict[tuple[str, str], list[Counted]] = collections.defaultdict(list)
    for one in found:
        if one.collective.axes:
            key = ", ".join(one.collective.axes), one.collective.kind
            table[key].append(one)
    rows = []
    for (axes, kind), ones in sorted(table.items()):
        devices = math.prod(mesh[axis] for axis in axes.split(", "))
        # More devices than one row of the grid has span several rows.
        sides = [side for side in part.grid if side > 1]
        dims = 1 if devices <= max(part.grid) else max(1, len(sides))
        link = part.chip.link
        seconds = sum(
            one.times * ring_seconds(kind, one.collective.bytes, devices, link, dims)
            for one in ones
        )
        rows.append(
            Communication(
                axes=axes,
                kind=kind,
                count=step.calls * sum(one.times for one in ones),
                bytes=step.calls * sum(o.times * o.collective.bytes for o in ones),
                largest=max(p for one in ones for p in one.collective.parts),
                seconds=step.calls * seconds / step.updates,
            )
        )
    return tuple(rows)


def _sizes(trees: dict[str, PyTree]) -> dict[str, int]:
    """One device's bytes of every tree."""
    return {name: shard_bytes(tree) for name, tree in trees.items()}


def _memory(step: Step, analysis: Any) -> dict[str, int]:
    """One device's bytes by category; the compiler pads arrays to its tiles."""
    parts = _sizes(step.parts)
    arguments = analysis.argument_size_in_bytes
    fresh = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return {
        **{name: size for name, size in parts.items() if size},
        "padding of these": max(0, arguments - sum(parts.values())),
        "results in memory of their own": max(0, fresh),
        "temporary": analysis.temp_size_in_bytes,
        "program": analysis.generated_code_size_in_bytes,
    }


def _reused(step: Step, analysis: Any) -> int:
    """Bytes of arguments that results are written into, less those of other results."""
    # The compiler pads arrays, so that half of a small state in place can be more bytes
    # than all of it has; that the other half is not shows in the results.
    reused = analysis.alias_size_in_bytes
    fresh = analysis.output_size_in_bytes - reused
    # A table says where every result is.
    table = 4096 + 16 * len(jax.tree.leaves(step.arguments))
    return reused if fresh <= table else max(0, reused - fresh)


def _versions() -> dict[str, str]:
    import importlib.metadata

    found = {"jax": jax.__version__}
    try:
        found["libtpu"] = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        pass
    return found


def estimate(
    step: Step,
    part: Slice,
    rules: Any,
    *,
    preset: str,
    useful: float = 0.0,
) -> Plan:
    """Compiles a step and reads a `Plan` from the program, or why it has no room."""
    chip, mesh = part.chip, dict(step.program.mesh.shape)
    config = step.run.config
    common = {
        "preset": preset,
        "row": step.run.name,
        "network": step.network,
        "topology": part.name,
        "mesh": mesh,
        "replicas": config.replicas,
        "batch_size": config.batch_size,
        "updates": step.updates,
        "calls": step.calls,
        "open_turns": step.open_turns,
        "hbm": chip.room,
        "peak": chip.flops,
        "useful": useful,
        "versions": _versions(),
        "other_memory": _sizes(step.others),
    }
    began = time.perf_counter()
    try:
        compiled = step.jitted.lower(*step.arguments).compile()
    except jax.errors.JaxRuntimeError as error:
        refusal = _no_room(str(error)) or _idle(str(error), part, step)
        if refusal is None:
            raise
        needed = _sizes(step.parts)
        return Plan(
            **common,
            fits=False,
            refusal=refusal,
            memory={name: size for name, size in needed.items() if size},
            compile_seconds=time.perf_counter() - began,
        )
    seconds = time.perf_counter() - began
    text, analysis = compiled.as_text(), compiled.memory_analysis()
    cycles = cycles_of(text, trips=step.open_turns)
    found = collectives_of(text, step.program.mesh, trips=step.open_turns)
    rows = _communication(found, mesh, part, step)
    memory = _memory(step, analysis)
    used = sum(memory.values()) + sum(common["other_memory"].values())
    cost = compiled.cost_analysis() or {}
    each = cycles.total * step.calls / step.updates
    return Plan(
        **common,
        fits=used <= chip.room,
        refusal="",
        memory=memory,
        # The compiler counts a loop's body once, which is one update.
        flops=step.calls * float(cost.get("flops", 0.0)),
        bytes=step.calls * float(cost.get("bytes accessed", 0.0)),
        cycles=each,
        unknown=cycles.unknown,
        open_loops=cycles.open_loops,
        compute_seconds=each / chip.clock,
        communication=rows,
        communication_seconds=sum(row.seconds for row in rows),
        checks=tuple(rules(step, found, _reused(step, analysis))),
        compile_seconds=seconds,
    )


def _no_room(message: str) -> str | None:
    """The compiler's message that memory does not suffice, as one sentence."""
    if match := _USED.search(message):
        used, limit = (float(match[i]) * _UNITS[match[i + 1]] / 2**30 for i in (1, 3))
        return (
            f"the compiler finds no room: the step takes {used:.1f} GiB per device of "
            f"the {limit:.1f} that it may use"
        )
    if "RESOURCE_EXHAUSTED" in message:
        return f"the compiler finds no room: {' '.join(message.split())[:200]}"
    return None


def _idle(message: str, part: Slice, step: Step) -> str | None:
    """The compiler's message that devices of the slice are left out."""
    if "should include all slice devices" not in message:
        return None
    return (
        f"the compiler wants a mesh of all {part.devices} devices of such a slice, and "
        f"this one has {step.program.mesh.size}; --mesh names another"
    )
