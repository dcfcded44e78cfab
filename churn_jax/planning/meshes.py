"""Which meshes a row can have on a slice, and which of them to compile first.

Replicas never communicate, so devices along `replica` cost nothing but the choice of
how many there are. Devices along `member` share out the networks, and move logits. What
is left goes to `data`, where gradients are summed in every update.
"""

import dataclasses
import math
from typing import Any

import jax

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.planning.chips import Chip
from churn_jax.planning.estimate import HOP_SECONDS, ring_seconds
from churn_jax.planning.steps import taught_by

__all__ = [
    "Candidate",
    "Load",
    "candidates",
    "mesh_name",
    "ranked",
    "ranked_stream",
    "row_load",
]

# Share of the peak that small networks reach; in the cheap model alone.
_REACHED = 0.1


@dataclasses.dataclass(frozen=True)
class Load:
    """A row as the cheap model sees it."""

    replicas: int
    slots: tuple[int, ...]  # networks of a replica that the member axis divides
    batch: int  # of a replica
    flops: float  # of an update of all replicas
    parameters: int  # trained bytes of one replica
    logits: int  # bytes of one example's logits of all members
    divided: float = 1.0  # share of the operations that the member axis shares out


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mesh with the estimate of the cheap model."""

    mesh: MeshShape
    seconds: float
    idle: int


def mesh_name(mesh: MeshShape) -> str:
    """A mesh as `--mesh` takes it.

    Example:
        >>> mesh_name(MeshShape(2, 1, 8))
        'replica=2,member=1,data=8'
    """
    return f"replica={mesh.replica},member={mesh.member},data={mesh.data}"


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def row_load(
    config: StudyConfig, spec: MethodSpec, classes: int, *, flops: float, shape: Any
) -> Load:
    """The load of a study's row, whose update takes `flops` over all replicas."""
    train = spec.config(config.train)
    own = [g for g in spec.groups(config.model, classes) if not g.gate]
    teachers, _, cached = taught_by(config, spec, classes)
    sizes, divided = [group.size for group in own], 1.0
    # One network with several heads, or one that is taught, lies on all of its
    # replica's devices, whose member axis then shares out the teachers alone.
    if sizes == [1] and (own[0].network.heads > 1 or teachers):
        passes, heads = spec.method.passes, own[0].network.heads
        # A pass with its gradient takes three times a forward pass.
        taught = passes.teachers * sum(group.members for group in teachers)
        divided = taught / (taught + 3 * passes.training * heads)
        sizes = []
    if not cached:
        sizes += [group.size for group in teachers]
    parameters = 0
    for group in own:
        drawn = jax.eval_shape(group.network.init, jax.random.key(0), shape)
        leaves = jax.tree.leaves(drawn["params"])
        parameters += group.size * sum(4 * math.prod(leaf.shape) for leaf in leaves)
    answers = max(spec.method.members, sum(g.members for g in teachers))
    return Load(
        replicas=train.replicas,
        slots=tuple(sizes) or (1,),
        batch=train.batch_size,
        flops=flops,
        parameters=parameters,
        logits=4 * answers * classes,
        divided=divided,
    )


def candidates(load: Load, devices: int) -> list[MeshShape]:
    """Every mesh of most devices: replica | R, member | networks, data | B."""
    shared = math.gcd(*load.slots)
    found = []
    for replica in _divisors(load.replicas):
        for member in _divisors(shared):
            left = devices // (replica * member)
            if left:
                data = max(n for n in _divisors(load.batch) if n <= left)
                found.append(MeshShape(replica, member, data))
    most = max(mesh.size for mesh in found)
    # A mesh that wastes half of the slice is no candidate where another wastes none.
    return [mesh for mesh in found if 2 * mesh.size > most]


def ranked(load: Load, chip: Chip, devices: int) -> list[Candidate]:
    """The candidates, the fastest of the cheap model first."""
    # An update takes `flops / devices` at a tenth of the peak, and the time of summing
    # gradients over `data` and of gathering logits over `member`. Of equal ones that
    # with more devices along replica comes first, then that with more along member.
    rows = []
    for mesh in candidates(load, devices):
        whole = load.flops / (mesh.replica * mesh.data) / (_REACHED * chip.flops)
        compute = whole * (1 - load.divided + load.divided / mesh.member)
        replicas = load.replicas // mesh.replica
        gradients = replicas * load.parameters // mesh.member
        logits = replicas * load.batch // mesh.data * load.logits
        moved = ring_seconds("all-reduce", gradients, mesh.data, chip.link)
        moved += ring_seconds("all-gather", logits, mesh.member, chip.link)
        # Batch norm's sums, of many layers, wait for the slowest device each time.
        moved += 100 * (mesh.data - 1) * HOP_SECONDS
        rows.append(Candidate(mesh, compute + moved, devices - mesh.size))
    return sorted(
        rows, key=lambda c: (c.seconds, -c.mesh.replica, -c.mesh.member, c.mesh.data)
    )


def ranked_stream(
    replicas: int, batch: int, table: int, chip: Chip, devices: int
) -> list[Candidate]:
    """The meshes of a stream, most replica devices first if the tables fit."""
    rows = []
    for mesh in candidates(Load(replicas, (1,), batch, 0.0, 0, 0), devices):
        here = replicas // mesh.replica
        full = here * table / mesh.data > chip.hbm / 2
        # A row of the tables is looked up by every device along `data`.
        rows.append(Candidate(mesh, float(here) + full * replicas, devices - mesh.size))
    return sorted(rows, key=lambda c: (c.seconds, c.idle))
