"""Weak scaling on paper: as much work per chip on ever more chips."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from churn_compare.documents import Document, Text
from churn_jax.configuration.training import MeshShape
from churn_jax.planning.chips import Slice
from churn_jax.planning.compile import plan_apart
from churn_jax.planning.estimate import Plan
from churn_jax.planning.report import (
    ESTIMATE,
    aligned_table,
    as_text,
    mesh_text,
    time_text,
)
from churn_jax.setting_checks import check_choice

__all__ = [
    "GROW",
    "Point",
    "grown",
    "scaling",
    "scaling_document",
    "scaling_svg",
    "scaling_text",
]

GROW = ("replicas", "batch")


@dataclasses.dataclass(frozen=True)
class Point:
    """One size of the slice.

    Attributes:
        chips: of the slice.
        plan: of the study that has grown with it.
        efficiency: examples per second and chip, over those of the smallest slice.
        per_doubling: share of the speed that each doubling since the last point kept;
            1 for the first.
    """

    chips: int
    plan: Plan
    efficiency: float
    per_doubling: float


def grown(config: Any, grow: str, devices: int) -> Any:
    """The study with its replicas, or its batch, multiplied by the devices."""
    check_choice("--grow", grow, GROW)
    train = config.train
    if grow == "replicas":
        replicas = train.replicas * devices
        fields = {"replicas": replicas, "mesh": MeshShape(replica=devices)}
        if train.seed_numbers:
            fields["seed_numbers"] = ()
    else:
        fields = {
            "batch_size": train.batch_size * devices,
            "mesh": MeshShape(data=devices),
        }
    # One at a time: either alone would not fit the mesh.
    methods = tuple(_of_the_study(spec, grow) for spec in config.methods)
    train = dataclasses.replace(train, **fields)
    return dataclasses.replace(config, methods=methods, train=train)


def _of_the_study(spec: Any, grow: str) -> Any:
    """A row without a batch size of its own, so that it takes the study's."""
    if grow != "batch":
        return spec
    own = tuple(change for change in spec.train if change[0] != "batch_size")
    return dataclasses.replace(spec, train=own)


def scaling(
    config: Any,
    row: str,
    slices: Sequence[Slice],
    *,
    grow: str = "replicas",
    on_slice: Callable[[Slice, int, int], None] = lambda part, number, count: None,
    plan: Callable[..., Plan] = plan_apart,
) -> list[Point]:
    """Plans a study that grows with the slice.

    Args:
        config: the study as it is on one device.
        row: its name.
        slices: from small to large.
        grow: see `grown`.
        on_slice: told which slice is compiled for, its number and how many there are.
        plan: compiles one.

    Raises:
        ValueError: as `plan` and `grown` do, or a size does not fit a device.
    """
    points: list[Point] = []
    for number, part in enumerate(slices, 1):
        on_slice(part, number, len(slices))
        larger = grown(config, grow, part.devices)
        found = plan(larger, row, part, larger.train.mesh)
        if not found.rate:
            raise ValueError(f"{part.name}: {found.refusal}")
        efficiency = per_doubling = 1.0
        if points:
            first, last = points[0], points[-1]
            each = found.rate / part.chips
            efficiency = each / (first.plan.rate / first.chips)
            kept = each / (last.plan.rate / last.chips)
            per_doubling = kept ** (1 / math.log2(part.chips / last.chips))
        points.append(Point(part.chips, found, efficiency, per_doubling))
    return points


def _limit(point: Point) -> str:
    """What limits the efficiency."""
    plan = point.plan
    if not plan.communication:
        return "nothing moves"
    largest = max(plan.communication, key=lambda row: row.seconds)
    share = plan.communication_seconds / plan.step_seconds
    return f"{largest.kind} over {largest.axes}, {share:.0%} of a step"


def scaling_text(points: Sequence[Point]) -> str:
    """The table, as Markdown."""
    return as_text(scaling_document(points))


def scaling_document(points: Sequence[Point]) -> Document:
    """Speed and efficiency of every slice."""
    rows = []
    for point in points:
        plan = point.plan
        rows.append(
            (
                plan.topology,
                mesh_text(plan),
                f"{plan.replicas} x {plan.batch_size}",
                time_text(plan.compute_seconds),
                time_text(plan.communication_seconds),
                f"{plan.rate:,.0f}",
                f"{point.efficiency:.1%}",
                f"{point.per_doubling:.1%}",
                _limit(point),
            )
        )
    heads = ("slice", "mesh", "replicas x batch", "arithmetic", "communication")
    heads += ("examples/s", "efficiency", "per doubling", "limited by")
    return Document("", blocks=[Text(ESTIMATE), aligned_table(heads, rows)])


def scaling_svg(series: dict[str, Sequence[Point]]) -> str:
    """The efficiency over the number of chips, as SVG.

    Args:
        series: label to points.
    """
    from churn_compare.documents.plotting import colour, dash, drawing, legend, marker

    with drawing(6.0, 3.6) as (figure, done):
        axes = figure.subplots()
        for i, (label, points) in enumerate(series.items()):
            axes.plot(
                [point.chips for point in points],
                [100 * point.efficiency for point in points],
                color=colour(i),
                marker=marker(i),
                linestyle=dash(i),
                label=label,
            )
        axes.set_xscale("log", base=2)
        ticks = sorted({p.chips for points in series.values() for p in points})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_ylim(0, 108)
        axes.set_xlabel("chips")
        axes.set_ylabel("estimated efficiency (%)")
        legend(figure, axes)
        return done("Estimated efficiency by the number of chips")
