"""The program of a run: what its step compiles, and how networks are mapped."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.training import MeshShape
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import Group, apply_committee, mapping
from churn_jax.models.click import ClickModel
from churn_jax.training.optim import Optimizer
from churn_jax.training.partition import MEMBER, REPLICA, compilation, make_mesh
from churn_jax.training.state import without_weights
from churn_jax.training.teachers import TeacherProgram, Teachers

if TYPE_CHECKING:
    from churn_jax.training.run import Run


# Members are unrolled where vmapped ones are slow only if they are few: every one of
# them is compiled.
_FEW_MEMBERS = 4
# The longest loop of updates in one call: longer ones save nothing and delay an
# interruption.
LONGEST_CALL = 64


@dataclasses.dataclass(frozen=True)
class OnePassProgram:
    """A click model and the windows in which it learns."""

    model: ClickModel
    window: int  # W
    warm_windows: int  # windows in which all replicas take replica number 0's order


@dataclasses.dataclass(frozen=True)
class Program:
    """A run's structure; what differs between replicas is in `ReplicaInputs`.

    Runs of equal structure have equal programs, and share what is compiled of them.
    """

    groups: tuple[Group, ...]  # the committee of one replica
    optimizer: Optimizer
    batch_size: int  # per update and replica, over all data shards
    mesh: Mesh
    mapping: str = "vmap"  # of replicas: vmap, unroll or loop
    at_once: int = 1  # replicas of a device in one call of `loop`, vmapped
    member_mapping: str = "vmap"  # of a replica's networks: vmap or unroll
    augmentation: Augmentation | None = None
    mean: float | tuple[float, ...] = 0.0  # of pixels in [0, 1], one per channel or all
    std: float | tuple[float, ...] = 1.0
    teacher: TeacherProgram | None = None
    convolutional: bool = True  # decides compiler options and `_guarded`
    stale_steps: int = 0  # updates between copies of members for their peers; 0: none
    ema_decay: float = 0.0  # of the moving average of the weights; 0: none
    # The step's images and labels: the whole training set (`resident`), one batch for
    # all replicas (`shared`) or one for each (`own`); or `windows` of clicks, each with
    # its number.
    feed: str = "resident"
    example_shape: tuple[int, ...] = ()  # of one example; resident ones lie flat
    one_pass: Any = None  # the `OnePassProgram` of a click model, else None

    def __post_init__(self):
        """Checks the mesh, and the settings given per network."""
        shards = self.mesh.shape[MEMBER]
        for group in self.groups:
            if group.size % shards and not self.replicated:
                raise ValueError(
                    f"{group.size} networks of {group.network.name} cannot be sharded "
                    f"over a member axis of {shards} devices"
                )
        networks = sum(group.size for group in self.groups)
        for field in ("member_rates", "member_algorithms"):
            given = getattr(self.optimizer.config, field)
            if given and len(given) != networks:
                raise ValueError(
                    f"{field} must be empty or one per network of a replica, "
                    f"{networks}; got {len(given)}"
                )

    @property
    def replicated(self) -> bool:
        """True if each device along the member axis holds all networks of its replicas.

        So a single network can be on a mesh whose member axis shards other rows, or its
        teachers; the devices along it do the same work.
        """
        return self.mesh.shape[MEMBER] > 1 and sum(g.size for g in self.groups) == 1

    def apply(self, variables: Any, x: jax.Array, **options: Any) -> Any:
        """`apply_committee` on a replica's networks, inside `shard_map`."""
        options |= {"member_axis": self.member_axis, "mapping": self.member_mapping}
        return apply_committee(self.groups, variables, x, **options)

    @property
    def compilation(self) -> dict[str, Any] | None:
        """The `compiler_options` of its steps and predictions."""
        if self.one_pass is not None:
            return None
        short = self.optimizer.total_steps < mapping.LONG_RUN
        return compilation(self.mesh, convolutional=self.convolutional, short=short)

    @property
    def member_axis(self) -> str | None:
        """The mesh axis over which networks are sharded, or None."""
        return None if self.replicated else MEMBER

    @property
    def member_devices(self) -> int:
        """Number of devices over which a replica's networks are sharded."""
        return 1 if self.replicated else self.mesh.shape[MEMBER]

    @property
    def slots(self) -> P:
        """Placement of the networks' leaves `[R, S, ...]`."""
        return P(REPLICA) if self.replicated else P(REPLICA, MEMBER)


def _evaluated(group: Group, examples: jax.ShapeDtypeStruct) -> tuple[Any, Any]:
    """A network's `apply` in evaluation, and the shapes of its variables."""
    variables = jax.eval_shape(group.network.init, jax.random.key(0), examples)
    return functools.partial(group.network.apply, train=False), variables


def over_cores(run: "Run") -> "Run":
    """The run, with replicas spread over a CPU's devices if it names no mesh.

    Each has the bits that it has when replicas are trained one by one, on any number of
    devices.
    """
    config, devices = run.config, jax.local_device_count()
    unused = config.mesh.size == 1 < devices and jax.process_count() == 1
    if jax.default_backend() != "cpu" or not unused:
        return run
    fit = (n for n in range(devices, 0, -1) if config.replicas % n == 0)
    return replaced(run, [("config.mesh", MeshShape(replica=next(fit)))])


def choose_mappings(
    run: "Run",
    taught_by: Sequence[Group],
    example: jax.ShapeDtypeStruct,
    *,
    platform: str,
    updates: int,
) -> tuple[dict[str, Any], str, bool]:
    """Resolves `run.config.mapping`; `updates` are those of the whole run.

    Returns fields of `Program`, the mapping of the teachers, and whether loops are
    slow: inside one, a CPU takes many times longer for gradients of XLA's own
    convolutions.
    """
    config, groups, mesh = run.config, run.groups, run.config.mesh
    share = max(1, config.batch_size // mesh.data)
    examples = jax.ShapeDtypeStruct((share, *example.shape[1:]), example.dtype)

    def params_of(group: Group) -> PyTree:
        return _evaluated(group, example)[1]["params"]

    def held(group: Group) -> int:
        return -(-group.size // mesh.member)

    def at_once(count: int, activations: int) -> int:
        return mapping.vmapped_at_once(count, activations, platform)

    def kept(group: Group) -> int:  # by one network; it matters on a TPU alone
        if platform != "tpu":
            return 0
        given = _evaluated(group, examples)
        return mapping.convolved_bytes(*given, examples, lanes=mapping.LANES)

    def crowded(groups: Sequence[Group]) -> bool:
        return any(at_once(held(g), kept(g)) < held(g) for g in groups)

    own = [params_of(group) for group in groups]
    parameters = max(sum(math.prod(p.shape) for p in jax.tree.leaves(o)) for o in own)
    convolutional = any(group.network.convolves(p) for group, p in zip(groups, own))
    # A teacher's convolutions are slow where the student's would be.
    any_convolution = convolutional or any(
        group.network.convolves(params_of(group)) for group in taught_by
    )
    replicas = config.replicas // mesh.replica
    together = at_once(replicas, sum(held(g) * kept(g) for g in groups))
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
    slow_vmap = any_convolution and platform == "cpu"
    unrolled = chosen == "unroll" or (chosen == "loop" and slow_vmap)
    # On a CPU dense forward passes are fastest one after another; measured in
    # `benchmarks/steps.py`.
    alone = platform == "cpu" and chosen != "vmap"
    members = "unroll" if unrolled else "vmap"
    teachers = "unroll" if alone else members
    automatic = config.mapping == "auto"
    if automatic:
        few = all(held(group) <= _FEW_MEMBERS for group in groups)
        if few and crowded(groups):
            members = "unroll"
        if crowded(taught_by):
            teachers = "scan"
    # `loop` takes several replicas per call only where it was chosen to split a vmap:
    # on a CPU it was chosen because one replica after another is fastest.
    split_vmap = automatic and chosen == "loop" and together < replicas
    slow_loops = slow_vmap and any(
        mapping.convolved_otherwise(jax.make_jaxpr(apply)(given, examples).jaxpr)
        for apply, given in (_evaluated(g, examples) for g in (*groups, *taught_by))
    )
    fields = {
        "mapping": chosen,
        "at_once": together if split_vmap else 1,
        "member_mapping": members,
        "convolutional": convolutional,
    }
    return fields, teachers, slow_loops


def make_program(
    run: "Run",
    example: jax.ShapeDtypeStruct,
    steps_per_epoch: int,
    *,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] = 1.0,
    teachers: Teachers | None = None,
    devices: Sequence[Any] | None = None,
    feed: str = "resident",
) -> tuple[Program, int]:
    """The program of a run, and how many updates one dispatch makes.

    See `example_of` for `example` and `Program` for `feed`; a stream is dispatched
    update by update.
    """
    config = run.config
    mesh = make_mesh(config.mesh, devices)
    platform = mesh.devices.flat[0].platform
    own = () if teachers is None else teachers.own_groups()
    old = () if teachers is None else teachers.old_groups()
    mapped, taught, slow_loops = choose_mappings(
        run,
        (*own, *old),
        example,
        platform=platform,
        updates=steps_per_epoch * config.epochs,
    )
    augment = not config.augmentation.is_off and config.seeds.augment != "off"
    teacher = None
    if teachers is not None:
        # Sharded if the member axis divides every group of them.
        sharded = bool(own) and all(g.size % config.mesh.member == 0 for g in own)
        groups, cached = without_weights((*own, *old)), teachers.cached is not None
        teacher = TeacherProgram(groups, sharded, taught, len(old), cached)
    program = Program(
        groups=without_weights(run.groups),
        optimizer=Optimizer.of(
            config.optimizer,
            steps_per_epoch=steps_per_epoch,
            total_steps=steps_per_epoch * config.epochs,
        ),
        batch_size=config.batch_size,
        mesh=mesh,
        **mapped,
        stale_steps=run.method.stale_steps,
        ema_decay=config.ema_decay,
        feed=feed,
        example_shape=example.shape[1:],
        augmentation=config.augmentation if augment else None,
        mean=mean,
        std=std,
        teacher=teacher,
    )
    asked = config.steps_per_call
    if feed != "resident" and asked > 1:
        raise ValueError(f"streams: one update per call; got steps_per_call {asked}")
    if asked > steps_per_epoch:
        raise ValueError(
            f"steps_per_call {asked} is more than the {steps_per_epoch} of an epoch"
        )
    # A loop saves dispatches, and on a CPU maps temporary memory once for all updates.
    looped = feed == "resident" and not slow_loops
    return program, asked or (min(steps_per_epoch, LONGEST_CALL) if looped else 1)
