"""The placement rules, what may move between devices, checked in a compiled step.

Nothing crosses `replica`. `member` carries logits, moments and scalars, and for a
perturbation through sharded teachers one array of the images' size. `data` carries
gradients and statistics. The state is sharded from the first update on and is updated
in place.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np

from churn_jax.planning.hlo import Counted
from churn_jax.planning.steps import Step
from churn_jax.training.partition import DATA, MEMBER, REPLICA

__all__ = ["Check", "check_study", "crossing", "largest", "shard_bytes"]

_FLOAT = 4
# Numbers per replica: what a method logs, means over the batch, and flags.
_SCALARS = 64


@dataclasses.dataclass(frozen=True)
class Check:
    """A rule and whether it holds.

    Attributes:
        rule: in words.
        holds: True if it holds.
        seen: what was found, with numbers.
    """

    rule: str
    holds: bool
    seen: str


def shard_bytes(tree) -> int:
    """Bytes of a tree of shapes with shardings on one device."""

    def of(leaf) -> int:
        whole = leaf.sharding is None
        shape = leaf.shape if whole else leaf.sharding.shard_shape(leaf.shape)
        key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        size = 8 if key else np.dtype(leaf.dtype).itemsize
        return math.prod(shape) * size

    return sum(of(leaf) for leaf in jax.tree.leaves(tree))


def crossing(found: Sequence[Counted], axis: str) -> list[Counted]:
    """The collectives that cross an axis of the mesh."""
    return [one for one in found if axis in one.collective.axes]


def largest(found: Sequence[Counted]) -> int:
    """Bytes of the largest array that they move."""
    return max((part for one in found for part in one.collective.parts), default=0)


def _moved(found: Sequence[Counted]) -> int:
    return sum(one.times * one.collective.bytes for one in found)


def check_study(step: Step, found: Sequence[Counted], reused: int) -> list[Check]:
    """The rules for a row of a study; `reused` are bytes updated in place."""
    checks = [_replicas(found), _members(step, found), _data(step, found)]
    return [*checks, _one_axis(found), _sharded(step), _in_place(step, reused)]


def _replicas(found: Sequence[Counted]) -> Check:
    across = crossing(found, REPLICA)
    return Check(
        "nothing crosses replica",
        not across,
        f"{len(across)} collectives, {_moved(across):,} bytes",
    )


def _one_axis(found: Sequence[Counted]) -> Check:
    mixed = [one for one in found if len(one.collective.axes) > 1]
    return Check(
        "every collective is along one axis", not mixed, f"{len(mixed)} along several"
    )


def _local(step: Step) -> tuple[int, int]:
    """Replicas and examples of an update on one device."""
    mesh = step.program.mesh.shape
    return (
        step.run.config.replicas // (mesh[REPLICA] * step.calls),
        step.program.batch_size // mesh[DATA],
    )


def _answers(step: Step) -> int:
    """The number of networks that answer for one example: members, or all teachers."""
    taught = 0
    if step.program.teacher is not None:
        taught = sum(group.members for group in step.program.teacher.groups)
    return max(step.run.method.members, taught, 1)


def _members(step: Step, found: Sequence[Counted]) -> Check:
    """Logits `[R, M, B, C]`, moments `[R, M, M, C]`, scalars; images for directions."""
    replicas, batch = _local(step)
    answers = _answers(step)
    logits = replicas * answers * batch * step.classes * _FLOAT
    moments = replicas * answers**2 * step.classes * _FLOAT
    limit = max(logits, moments, replicas * _SCALARS * _FLOAT)
    image = math.prod(step.arguments[3].shape[1 if not _own(step) else 2 :])
    images = replicas * batch * image * _FLOAT
    passes = step.run.method.passes
    allowed = passes.drawn_teacher + passes.teachers_input_gradients
    across = crossing(found, MEMBER)
    larger = [part for one in across for part in one.collective.parts if part > limit]
    times = sum(
        one.times for one in across for part in one.collective.parts if part > limit
    )
    sharded = step.program.teacher is not None and step.program.teacher.sharded
    permitted = (
        all(part <= images for part in larger)
        and times <= allowed * step.updates
        and sharded
    )
    rule = "member carries logits, moments and scalars"
    if allowed and sharded:
        rule += f", and {allowed} reduction of the images' size"
    return Check(
        rule,
        not larger or permitted,
        f"largest {largest(across):,} of {limit:,} bytes"
        + (f", and {-(-times // step.updates)} of {images:,}" if larger else ""),
    )


def _own(step: Step) -> bool:
    return step.program.feed == "own"


def _data(step: Step, found: Sequence[Counted]) -> Check:
    """Gradients once, batch norm's moments in every pass, and sums."""
    state, method = step.arguments[0], step.run.method
    replicas, _ = _local(step)
    passes = method.passes
    forward = passes.training + passes.forward + passes.input_gradients
    # Mean and variance of a pass, and their cotangents if it is differentiated.
    statistics = 2 * (forward + passes.training) * shard_bytes(state.model_state)
    moments = replicas * _answers(step) ** 2 * step.classes * _FLOAT
    gradients = shard_bytes(state.params)
    sums = replicas * _SCALARS * _FLOAT * (1 + len(jax.tree.leaves(state.sums)))
    limit = gradients + statistics + 4 * moments + sums
    across = crossing(found, DATA)
    parts = {
        kind: [one for one in across if one.collective.kind == kind]
        for kind in ("all-reduce", "reduce-scatter")
    }
    # A reduction may be made in two: every device is left with its share of the sum,
    # and all gather what they reduced. Nothing else is gathered.
    scattered = step.program.mesh.shape[DATA] * _moved(parts["reduce-scatter"])
    summed = _moved(parts["all-reduce"]) + scattered
    others = _moved(across) - sum(map(_moved, parts.values()))
    moved = -(-summed // step.updates)
    return Check(
        "data carries gradients and statistics",
        moved <= limit and others <= scattered + sums * step.updates,
        f"{moved:,} of {limit:,} bytes: gradients {gradients:,}, statistics "
        f"{statistics:,}"
        + (f"; gathered {-(-others // step.updates):,}" if others else ""),
    )


def _sharded(step: Step) -> Check:
    """No leaf of the state is whole on a device unless its axis has one device."""
    mesh, wrong = step.program.mesh.shape, 0
    shards = mesh[REPLICA]
    networks = mesh[REPLICA] * step.program.member_devices
    state = step.arguments[0]
    for tree, parts in (
        ((state.params, state.model_state, state.opt_state, state.ema), networks),
        (state.step, shards),
    ):
        for leaf in jax.tree.leaves(tree):
            wrong += (
                shard_bytes(leaf) * parts
                != math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
            )
    return Check(
        "the state is in shards from the beginning",
        not wrong,
        f"{wrong} arrays are not; a device holds 1/{networks} of the networks",
    )


def _in_place(step: Step, reused: int) -> Check:
    state = shard_bytes(step.arguments[0])
    return Check(
        "the state is updated in place",
        reused >= state,
        f"{reused:,} bytes reused, the state has {state:,}",
    )
