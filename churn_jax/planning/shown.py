"""A plan as text: what fits, how long a step takes, what moves, which rules hold."""

from collections.abc import Sequence

from churn_jax.planning.estimate import Plan

__all__ = [
    "ESTIMATE",
    "comparison",
    "markdown_table",
    "mesh_text",
    "plan_text",
    "size",
    "time_text",
]

ESTIMATE = "The compiler's estimate; no TPU ran it."


def size(count: float) -> str:
    """Bytes in the unit that suits.

    Example:
        >>> size(16 * 2**30), size(3 * 2**20), size(1000)
        ('16.00 GiB', '3.0 MiB', '1,000 B')
    """
    if count >= 2**30:
        return f"{count / 2**30:.2f} GiB"
    if count >= 2**20:
        return f"{count / 2**20:.1f} MiB"
    if count >= 2**14:
        return f"{count / 2**10:.1f} KiB"
    return f"{int(count):,} B"


def time_text(seconds: float) -> str:
    """A time in the unit that suits.

    Example:
        >>> time_text(0.0123), time_text(2.0), time_text(3e-6)
        ('12.30 ms', '2.00 s', '3.0 us')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.2f} ms"
    return f"{1e6 * seconds:.1f} us"


def mesh_text(plan: Plan) -> str:
    """`replica=2,member=1,data=8`."""
    return ",".join(f"{axis}={count}" for axis, count in plan.mesh.items())


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table whose columns are aligned, the first to the left.

    Args:
        head: of the columns.
        rows: of cells.
    """
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = [row[0].ljust(widths[0])]
        parts += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return f"| {' | '.join(parts)} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [line(head), line(rule), *map(line, rows)]


def plan_text(plan: Plan) -> str:
    """Everything about one mesh, as Markdown."""
    versions = ", ".join(f"{name} {text}" for name, text in plan.versions.items())
    lines = [
        f"{plan.preset}, row {plan.row}: {plan.network}; {plan.replicas} replicas, "
        f"batch {plan.batch_size}",
        f"{plan.topology}, {plan.devices} devices, mesh {mesh_text(plan)}; {versions}, "
        f"compiled in {plan.compile_seconds:.0f} s",
        *_turns(plan),
        "",
        *_memory(plan),
    ]
    if plan.refusal:
        return "\n".join(lines)
    lines += ["", *_speed(plan), "", *_moved(plan), "", "Placement:"]
    for check in plan.checks:
        lines.append(f"- {'ok' if check.holds else 'NO'}: {check.rule} ({check.seen})")
    return "\n".join(lines)


def _turns(plan: Plan) -> list[str]:
    if plan.calls == 1:
        return []
    each = plan.replicas // (plan.mesh["replica"] * plan.calls)
    return [f"replicas take turns on a device, {each} at a time; all turns count"]


def _memory(plan: Plan) -> list[str]:
    rows = [(name, size(count)) for name, count in plan.memory.items() if count]
    rows += [
        (f"{name} (beside the step)", size(count))
        for name, count in plan.beside.items()
        if count
    ]
    if plan.refusal:
        table = markdown_table(("one device holds", "bytes"), rows)
        return [f"Does not fit: {plan.refusal}.", "", *table]
    rows.append(("together", size(plan.used)))
    verdict = "Fits" if plan.fits else "Does not fit"
    share = plan.used / plan.hbm
    return [
        f"{verdict}: {size(plan.used)} of {size(plan.hbm)} per device ({share:.0%}).",
        "",
        *markdown_table(("one device holds", "bytes"), rows),
    ]


def _speed(plan: Plan) -> list[str]:
    done = plan.useful or plan.flops * plan.devices
    unknown = sum(plan.unknown.values())
    lines = [
        f"{ESTIMATE} Per update:",
        f"- arithmetic {time_text(plan.compute_seconds)} ({plan.cycles:,.0f} cycles of "
        f"one device; {unknown:,} small instructions have no estimate)",
        f"- communication {time_text(plan.communication_seconds)} (bytes over links in "
        "rings, 1 us from chip to chip: ours)",
        f"- a step takes {time_text(plan.overlapped_seconds)} if both overlap, "
        f"{time_text(plan.step_seconds)} if not; below is the latter",
        f"- {plan.rate:,.0f} examples per second, over all replicas",
        f"- {plan.flops:.3g} operations and {plan.bytes:.3g} bytes per device (on-chip "
        "memory included), as the compiler counts them",
        f"- {done:.3g} operations of all networks: {plan.utilisation:.1%} of the "
        "chips' bfloat16 peak",
    ]
    if plan.open_loops:
        turns = f"{plan.open_turns} times, those inside of them once"
        if plan.open_turns == 1:
            turns = "once (a step is repeated only beside a replica that diverges)"
        lines.append(
            f"- loops of a length that the compiler does not know: {plan.open_loops}, "
            f"taken to turn {turns}"
        )
    return lines


def _moved(plan: Plan) -> list[str]:
    if not plan.communication:
        return ["Nothing moves between devices."]
    head = ("axis", "collective", "count per update", "bytes", "largest", "estimate")
    rows = [
        (
            row.axes,
            row.kind,
            f"{row.count / plan.updates:,.4g}",
            f"{row.bytes / plan.updates:,.0f}",
            f"{row.largest:,}",
            time_text(row.seconds),
        )
        for row in plan.communication
    ]
    return markdown_table(head, rows)


def comparison(plans: Sequence[Plan]) -> str:
    """The meshes that were compiled beside each other, as Markdown."""
    rows = []
    for plan in plans:
        if plan.refusal:
            rows.append((mesh_text(plan), "no", "-", "-", "-", "-", "-"))
            continue
        rows.append(
            (
                mesh_text(plan),
                "yes" if plan.fits else "no",
                size(plan.used),
                time_text(plan.compute_seconds),
                time_text(plan.communication_seconds),
                f"{plan.rate:,.0f}",
                f"{plan.utilisation:.1%}",
            )
        )
    head = ("mesh", "fits", "memory", "arithmetic", "communication")
    return "\n".join(markdown_table((*head, "examples/s", "of the peak"), rows))
