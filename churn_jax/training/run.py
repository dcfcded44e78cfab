"""A run of training, and its result."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.record import Stopped
from churn_jax.configuration.training import NETWORK, MeshShape, TrainConfig
from churn_jax.data.records import StreamedSplit
from churn_jax.data.splits import Split
from churn_jax.ensembles import Group
from churn_jax.methods import Method
from churn_jax.models.click import ClickModel
from churn_jax.setting_checks import check_none
from churn_jax.training.partition import REPLICA, fetch, split
from churn_jax.training.predictions import placed, predict_split
from churn_jax.training.program import Program
from churn_jax.training.state import BestState, TrainState, joined


class Interrupted(RuntimeError):  # noqa: N818 -- an outcome, not a mistake
    """Training was asked to stop; what was done is in the checkpoint."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of training: a method, its networks and the settings.

    Attributes:
        name: name of the run, in its folder and in messages.
        method: method whose coefficients are numbers, or arrays of one per replica.
        groups: the committee; its members must be the method's.
        config: see `TrainConfig`.
        stream: number that makes a student's initial weights differ from its teacher's.
        keep: share w of the initial weights in the deployed ones,
            `w start + (1 - w) trained`; 0 deploys the trained ones. Metrics during
            training are of the trained ones.
        clicks: click model whose towers the groups are; made by `click_run`.
    """

    name: str
    method: Method
    groups: tuple[Group, ...]
    config: TrainConfig
    stream: int = 0
    keep: float = 0.0
    clicks: ClickModel | None = None

    def __post_init__(self):
        """Refuses a committee that the method cannot train."""
        members = sum(group.members for group in self.groups)
        gates = sum(group.gate for group in self.groups)
        sample, deploys = self.method.member_sample, self.method.deploy
        networks = [group.network for group in self.groups if not group.gate]
        misfits = [n for n in networks if n.splits_batch != (sample == "split")]
        check_none(
            self.name,
            (not 0.0 <= self.keep <= 1.0, f"keep must be from 0 to 1; got {self.keep}"),
            (
                members != self.method.members,
                f"the method has {self.method.members} members, the committee "
                f"{members}",
            ),
            (
                misfits,
                "member_sample must be 'split' where a network's members split the "
                f"batch, and nowhere else; got {sample!r} and "
                f"{', '.join(network.name for network in misfits)}",
            ),
            (
                sample == "split" and self.config.mesh.data > 1,
                "members split the rows of a device, so that examples would depend on "
                "the mesh; train with data=1 in the mesh",
            ),
            (gates > 1, f"the committee has {gates} gate groups; it can have one"),
            (
                gates and deploys != "gate",
                "the committee has a gate group; "
                f"deploy={deploys!r} would not train it",
            ),
        )

    def steps_per_epoch(self, examples: int) -> int:
        """Updates of an epoch; refuses a training set of less than a batch."""
        size = self.config.batch_size
        if examples < size:
            raise ValueError(
                f"batch_size {size} is larger than the training set, {examples} "
                "examples"
            )
        return examples // size

    def as_replicas(self) -> "tuple[Run, ...]":
        """A plain ensemble's networks as replicas, a run for each kind of them.

        Network m of replica r has the seed number `r + 65536 m`, and so is what it
        would be alone (`Seeds.members`). Any other run stays as it is, by itself.
        """
        config, optimizer = self.config, self.config.optimizer
        sizes = [group.size for group in self.groups]
        heads = {group.network.heads for group in self.groups}
        coupled = (
            config.seeds.members == "shared"
            or not self.method.is_independent
            or self.method.over_members != "sum"  # one network has no mean over several
            or optimizer.member_rates
            or optimizer.member_algorithms
            # The numbers of their members' samples would collide.
            or (len(heads) > 1 and self.method.member_sample != "shared")
        )
        if coupled or sum(sizes) == 1:
            return (self,)

        def alone(group: Group, first: int) -> Run:
            def each(value):
                return np.repeat(value, group.size) if np.ndim(value) else value

            def rate(value):
                return tuple(map(float, each(value))) if np.ndim(value) else value

            members, mesh = range(first, first + group.size), config.mesh
            changes = [
                ("method", jax.tree.map(each, self.method)),
                ("method.members", group.network.heads),
                ("method.deploy", "mean_probs"),
                ("method.deployed_member", 0),
                ("groups", (Group(group.network),)),
                ("config.replicas", config.replicas * group.size),
                (
                    "config.seed_numbers",
                    tuple(r + NETWORK * m for r in config.numbers for m in members),
                ),
                ("config.optimizer.learning_rate", rate(optimizer.learning_rate)),
                ("config.optimizer.weight_decay", rate(optimizer.weight_decay)),
                ("config.mesh", MeshShape(mesh.replica * mesh.member, 1, mesh.data)),
            ]
            return replaced(self, changes)

        firsts = np.cumsum([0, *sizes[:-1]]).tolist()
        return tuple(map(alone, self.groups, firsts))


@dataclasses.dataclass(frozen=True)
class Progress:
    """The report of the loop after an evaluation."""

    name: str
    epoch: int
    epochs: int
    accuracy: float
    churn: float
    stopped: tuple[Stopped, ...]


@dataclasses.dataclass
class Trained:
    """A trained method.

    Attributes:
        run: run that was trained.
        params: deployed weights, one tree per group, leaves `[R, S, ...]`.
        model_state: the same for the networks' state, such as batch statistics.
        last: the final state.
        best: weights of the best validation epoch.
        program: compiled structure of what is deployed.
        stopped: replicas that were frozen.
        seconds: spent training, over all launches.
        compile_seconds: part of them that the first call of the step took, with its
            compilation.
        parameters: trained numbers per replica.
        identity: text that identifies it, see `churn_jax.training.checkpoint`.
        notes: sentences for the user about what was restored.
        scores: `churn_jax.training.click_feed.ClickScores` of a click model; None for
            all other networks.
    """

    run: Run
    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]
    last: TrainState
    best: BestState
    program: Program
    stopped: tuple[Stopped, ...]
    seconds: float
    compile_seconds: float
    parameters: int
    identity: str
    notes: tuple[str, ...] = ()
    scores: Any = None

    def predict(
        self,
        images: np.ndarray | Split | StreamedSplit,
        weights: str = "config",
        *,
        every_member: bool = False,
    ) -> np.ndarray:
        """Deployed logits of uint8 or float images.

        Every device and every process holds all of them; use `write_predictions` for
        more than fit.

        Args:
            images: `[N, ...]`, or a split, in memory or streamed.
            weights: `config` for those that the configuration deploys, or `ema` for
                their moving average at the end of training.
            every_member: every member's logits instead of the deployed ones.

        Returns:
            `[R, N, C]` float32, or `[R, M, N, C]`.

        Raises:
            ValueError: there is no such set of weights.
        """
        held, rows = self.chunks(weights), placed(images, self.program)
        logits = predict_split(self.run, self.program, held, rows, every_member)
        return np.asarray(fetch(logits))

    def chunks(self, weights: str = "config") -> list[tuple[PyTree, PyTree]]:
        """`(params, model_state)` per chunk of replicas; arguments as in `predict`."""
        if self.run.clicks is not None:
            raise ValueError(
                f"{self.run.name} is a click model, whose predictions are `scores`"
            )
        if weights not in ("config", "ema"):
            raise ValueError(f"weights must be config or ema; got {weights!r}")
        chosen: Any = self if weights == "config" else self.last.ema
        if chosen == ():
            raise ValueError(
                f"{self.run.name} was trained with ema_decay 0, so it has no averaged "
                "weights"
            )
        count = chunk_count(self.program, jax.tree.leaves(self.params)[0].shape[0])
        return split((chosen.params, chosen.model_state), count)

    def teacher_variables(self) -> tuple[PyTree, ...]:
        """The deployed weights as the variables of a teacher, on the host."""
        return joined(*fetch((self.params, self.model_state)))


def chunk_count(program: Program, replicas: int) -> int:
    """Number of states into which the replicas are split: several for `loop`."""
    if program.mapping != "loop":
        return 1
    return replicas // (program.mesh.shape[REPLICA] * program.at_once)


def stopped_replicas(state: TrainState, terms: tuple[str, ...]) -> tuple[Stopped, ...]:
    """The frozen replicas of a state whose small fields are on the host."""
    # Names of what can turn non-finite, by number.
    names = (*terms, "loss", "gradient", "memory")
    return tuple(
        Stopped(int(r), names[state.stopped_term[r]], int(state.stopped_step[r]))
        for r in np.flatnonzero(~np.asarray(state.alive))
    )
