"""How the networks on one device are computed: replicas, members, teachers."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import jax

from churn_jax.ensembles import Group, mapping
from churn_jax.ensembles.activations import convolved_bytes
from churn_jax.training.run import Run

__all__ = ["Mappings", "choose_mappings"]

# Members are written one after another where vmapped ones are slow only if they are
# few: every one of them is compiled.
_FEW_MEMBERS = 4


@dataclasses.dataclass(frozen=True)
class Mappings:
    """What `churn_jax.ensembles.mapping` maps how.

    Attributes:
        replicas: `vmap`, `unroll` or `loop`.
        at_once: replicas that a call of `loop` takes, vmapped.
        members: `vmap` or `unroll`.
        teachers: `vmap`, `unroll` or `scan`.
        slow_scan: whether a convolution's weight gradient would be many times slower
            inside of a loop of the program, as on CPU.
        convolutional: whether a trained network convolves.
    """

    replicas: str
    at_once: int
    members: str
    teachers: str
    slow_scan: bool
    convolutional: bool


def _shapes(groups: Sequence[Group], example: jax.ShapeDtypeStruct) -> tuple[bool, int]:
    """Whether a network convolves, and how many parameters the largest one has."""
    params = [
        jax.eval_shape(group.network.init, jax.random.key(0), example)["params"]
        for group in groups
    ]
    sizes = [sum(math.prod(p.shape) for p in jax.tree.leaves(tree)) for tree in params]
    convolutional = any(
        group.network.with_convolutions_from(tree)
        for group, tree in zip(groups, params)
    )
    return convolutional, max(sizes, default=0)


def _activations(
    groups: Sequence[Group], examples: jax.ShapeDtypeStruct, platform: str
) -> list[int]:
    """`convolved_bytes` of every group's network; on a TPU alone it matters."""
    if platform != "tpu":
        return [0] * len(groups)
    found = []
    for group in groups:
        apply = functools.partial(group.network.apply, train=False)
        variables = jax.eval_shape(group.network.init, jax.random.key(0), examples)
        found.append(convolved_bytes(apply, variables, examples, lanes=mapping.LANES))
    return found


def choose_mappings(
    run: Run,
    taught_by: Sequence[Group],
    example: jax.ShapeDtypeStruct,
    *,
    platform: str,
    updates: int,
) -> Mappings:
    """Resolves `run.config.mapping` for everything that it concerns.

    Args:
        run: what to train.
        taught_by: groups of teachers and old models.
        example: `[1, ...]`.
        platform: `cpu`, `gpu` or `tpu`.
        updates: of the whole run.

    Raises:
        ValueError: unknown mapping.
    """
    config, groups = run.config, run.groups
    mesh = config.mesh
    convolutional, parameters = _shapes(groups, example)
    # A teacher's convolutions are slow where the student's would be.
    any_convolution = convolutional or _shapes(taught_by, example)[0]

    def held(group: Group) -> int:
        """Networks of a replica on one device."""
        return -(-group.size // mesh.member)

    def at_once(count: int, activations: int) -> int:
        return mapping.vmapped_at_once(count, activations, platform)

    share = max(1, config.batch_size // mesh.data)
    examples = jax.ShapeDtypeStruct((share, *example.shape[1:]), example.dtype)
    sizes = _activations(groups, examples, platform)
    replicas = config.replicas // mesh.replica
    together = at_once(replicas, sum(held(g) * a for g, a in zip(groups, sizes)))
    networks = config.replicas * sum(group.size for group in groups)
    chosen = mapping.choose(
        config.mapping,
        convolutional=any_convolution,
        backend=platform,
        slots=-(-networks // (mesh.replica * mesh.member)),
        parameters=parameters,
        updates=updates,
        split=together < replicas,
    )
    slow_scan = any_convolution and platform == "cpu"
    unrolled = chosen == "unroll" or (chosen == "loop" and slow_scan)
    # One after another a processor's dense forward passes are fastest; measured in
    # `benchmarks/elodi.py`.
    alone = platform == "cpu" and chosen != "vmap"
    members = "unroll" if unrolled else "vmap"
    teachers = "unroll" if alone else members
    if config.mapping == "auto":

        def crowded(groups: Sequence[Group], sizes: Sequence[int]) -> bool:
            pairs = zip(groups, sizes)
            return any(at_once(held(group), a) < held(group) for group, a in pairs)

        few = all(held(group) <= _FEW_MEMBERS for group in groups)
        if few and crowded(groups, sizes):
            members = "unroll"
        if crowded(taught_by, _activations(taught_by, examples, platform)):
            teachers = "scan"
    # `loop` takes several replicas per call only where it was chosen to split a vmap:
    # on a CPU it was chosen because one replica after another is fastest.
    split_vmap = config.mapping == "auto" and chosen == "loop" and together < replicas
    return Mappings(
        chosen,
        together if split_vmap else 1,
        members,
        teachers,
        slow_scan,
        convolutional,
    )
