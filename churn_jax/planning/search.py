"""The mesh to take on a slice: the likeliest are compiled, the fastest is named."""

import dataclasses
from collections.abc import Callable
from typing import Any

from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.models.layers import compiling_for
from churn_jax.planning.apart import plan_apart
from churn_jax.planning.chips import Slice
from churn_jax.planning.datasets import row_sizes
from churn_jax.planning.estimate import ALL_DEVICES, Plan
from churn_jax.planning.meshes import Candidate, ranked, ranked_stream, row_load
from churn_jax.planning.planned import useful_flops
from churn_jax.planning.steps import without_weights
from churn_jax.planning.streams import table_bytes
from churn_jax.training.examples import example_of

__all__ = ["Search", "likely_meshes", "search"]


@dataclasses.dataclass(frozen=True)
class Search:
    """What was compiled, and which mesh is recommended.

    Attributes:
        plans: of the meshes that were compiled, as the cheap model ranked them.
        best: the fastest of those that fit; None where none does.
        why: a sentence.
    """

    plans: tuple[Plan, ...]
    best: Plan | None
    why: str


def likely_meshes(config: Any, row: str, part: Slice) -> list[Candidate]:
    """Every sensible mesh, the likeliest first; nothing is compiled for the TPU.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        row: its name.
        part: the slice of chips.

    Raises:
        ValueError: no such row, or data of unknown size.
    """
    devices = part.devices
    if not isinstance(config, StudyConfig):
        train = config.spec(row).config(config.train)
        table = table_bytes(config, row)
        return ranked_stream(
            train.replicas, train.batch_size, table, part.chip, devices
        )
    config = without_weights(config)
    spec = config.spec(row)
    sizes = row_sizes(config.data, spec)
    example = example_of(sizes.shape, tokens=sizes.tokens)
    with compiling_for("tpu"):
        flops = useful_flops(config, row)
        load = row_load(config, spec, sizes.classes, flops=flops, shape=example)
    return ranked(load, part.chip, devices)


def search(
    config: Any,
    row: str,
    part: Slice,
    *,
    many: int = 3,
    on_mesh: Callable[[MeshShape, int, int], None] = lambda mesh, number, count: None,
    plan: Callable[..., Plan] = plan_apart,
) -> Search:
    """Compiles the likeliest meshes and recommends one.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        row: its name.
        part: the slice of chips.
        many: how many are compiled at least; where none of them fits, as many again.
        on_mesh: told which mesh is compiled next, its number and how many there are.
        plan: compiles one.

    Raises:
        ValueError: as `plan` does.
    """
    waiting = likely_meshes(config, row, part)
    plans: list[Plan] = []
    for limit in (many, 2 * many):
        while waiting and len(plans) < limit:
            candidate, *waiting = waiting
            left = min(limit, len(plans) + 1 + len(waiting))
            on_mesh(candidate.mesh, len(plans) + 1, left)
            plans.append(plan(config, row, part, candidate.mesh))
            if plans[-1].refusal.startswith(ALL_DEVICES):
                waiting = [one for one in waiting if not one.idle]
        if any(one.fits for one in plans):
            break
    best = max((one for one in plans if one.fits), key=lambda p: p.rate, default=None)
    return Search(tuple(plans), best, _why(plans, best, part))


def _why(plans: list[Plan], best: Plan | None, part: Slice) -> str:
    if best is None:
        said = next((f" ({one.refusal})" for one in plans if one.refusal), "")
        return (
            f"none of {len(plans)} meshes fits{said}; take more chips, fewer replicas "
            "or a smaller batch, or --model.remat where the network has it"
        )
    text = ",".join(f"{axis}={count}" for axis, count in best.mesh.items())
    reasons = []
    if best.mesh["replica"] > 1:
        reasons.append(
            f"{best.mesh['replica']} groups of replicas never wait for each other"
        )
    if not best.communication_seconds:
        reasons.append("nothing is moved between chips")
    else:
        share = best.communication_seconds / best.step_seconds
        reasons.append(f"communication takes {share:.0%} of a step")
    others = [one for one in plans if one.fits and one is not best]
    if others:
        second = max(others, key=lambda p: p.rate)
        other = ",".join(f"{axis}={count}" for axis, count in second.mesh.items())
        gain = best.rate / second.rate
        if gain >= 1.005:
            reasons.append(f"it is {gain:.2f} times as fast as {other}")
    if refused := sum(not one.fits for one in plans):
        reasons.append(f"{refused} of {len(plans)} meshes do not fit")
    if idle := part.devices - best.devices:
        reasons.append(
            f"{idle} of {part.devices} devices are idle: replicas, networks and batch "
            "have no other divisors"
        )
    return f"take --mesh {text}: {'; '.join(reasons)}"
