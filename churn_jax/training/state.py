"""The state of training: stacked trees, one entry per replica."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import PartitionSpec as P

from churn_jax.methods import Method
from churn_jax.training.partition import MEMBER, REPLICA
from churn_jax.typing import PyTree

__all__ = [
    "BestState",
    "Coefficients",
    "ReplicaInputs",
    "TrainState",
    "Weights",
    "joined",
    "stopped_term",
]


@struct.dataclass
class Weights:
    """What networks consist of: another set of it than the one that trains.

    Attributes:
        params: as in `TrainState`.
        model_state: as in `TrainState`.
    """

    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]


@struct.dataclass
class TrainState:
    """Everything that changes during training; checkpointed whole.

    Attributes:
        step: `[R]` int32, updates done.
        params: one tree per group, leaves `[R, S, ...]`.
        model_state: like `params` (batch statistics).
        opt_state: like `params`.
        alive: `[R]` bool; a replica whose loss turned non-finite is frozen.
        stopped_step: `[R]` int32, the update that was refused; -1 while alive.
        stopped_term: `[R]` int32, which term was non-finite; see `stopped_term`.
        sums: `[R, 1 + terms]` float32, loss and terms summed since the epoch began.
        updates: `[R]` float32, updates since the epoch began.
        peers: `Weights`: copies of all members that their peers follow, refreshed
            every few updates; `()` for methods without.
        ema: `Weights`: exponential moving average of the weights and of the batch
            statistics; `()` where it is off.
        memory: what the method remembers between updates (`Method.init_memory`),
            leaves `[R, ...]`, the same on all devices of a replica; `()` for methods
            without.
    """

    step: jax.Array
    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]
    opt_state: tuple[PyTree, ...]
    alive: jax.Array
    stopped_step: jax.Array
    stopped_term: jax.Array
    sums: jax.Array
    updates: jax.Array
    peers: PyTree = ()
    ema: PyTree = ()
    memory: PyTree = ()

    @classmethod
    def specs(cls, slots: Any = P(REPLICA, MEMBER)) -> "TrainState":
        """How each field lies on the mesh; `slots` are the networks' leaves."""
        replicas: Any = P(REPLICA)
        return cls(
            step=replicas,
            params=slots,
            model_state=slots,
            opt_state=slots,
            alive=replicas,
            stopped_step=replicas,
            stopped_term=replicas,
            sums=replicas,
            updates=replicas,
            peers=slots,
            ema=slots,
            memory=replicas,
        )

    def saved(self) -> dict[str, Any]:
        """The fields by name, as a checkpoint holds them.

        Without an empty memory: checkpoints from before there was one have none.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if not jax.tree.leaves(self.memory):
            del fields["memory"]
        return fields


@struct.dataclass
class BestState:
    """The weights of each replica's best validation epoch.

    Attributes:
        params: as in `TrainState`.
        model_state: as in `TrainState`.
        score: `[R]` float32, the validation accuracy reached; -1 before the first.
        epoch: `[R]` int32, after how many epochs.
    """

    params: tuple[PyTree, ...]
    model_state: tuple[PyTree, ...]
    score: jax.Array
    epoch: jax.Array

    def update(self, state: TrainState, score: jax.Array, epoch) -> "BestState":
        """Takes over the replicas whose score is higher than before; ties keep."""
        better = state.alive & (score > self.score)

        def pick(new, old):
            choose = better.reshape(-1, *([1] * (new.ndim - 1)))
            return jnp.where(choose, new, old)

        return BestState(
            params=jax.tree.map(pick, state.params, self.params),
            model_state=jax.tree.map(pick, state.model_state, self.model_state),
            score=jnp.where(better, score, self.score),
            epoch=jnp.where(better, jnp.asarray(epoch, jnp.int32), self.epoch),
        )


@struct.dataclass
class Coefficients:
    """What may differ between replicas besides seeds; leaves `[R]`."""

    method: Method
    learning_rate: jax.Array
    weight_decay: jax.Array


@struct.dataclass
class ReplicaInputs:
    """Constants of a replica during one epoch; never donated.

    Attributes:
        order: `[R, N]` int32, this epoch's data order.
        augment_key: `[R]` typed keys.
        coefficients: leaves `[R]`.
        sample_key: `[R]` typed keys of the members' own samples; `()` where all
            members share one.
        batch: images `[R, B, ...]` and labels `[R, B]` of the next update, where each
            replica is fed its own; `()` elsewhere.
    """

    order: jax.Array
    augment_key: jax.Array
    coefficients: Coefficients
    sample_key: PyTree = ()
    batch: tuple = ()


def stopped_term(code: int, terms: tuple[str, ...]) -> str:
    """The name of what was non-finite: a term, `loss`, `gradient` or `memory`."""
    names: tuple[Any, ...] = (*terms, "loss", "gradient", "memory")
    return names[code]


def joined(
    params: Sequence[PyTree], model_state: Sequence[PyTree]
) -> tuple[PyTree, ...]:
    """Weights as variables, one tree per group."""
    return tuple({**s, "params": p} for p, s in zip(params, model_state, strict=True))
