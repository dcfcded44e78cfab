"""A plan as a document: what fits, how long a step takes, what moves, which rules."""

from collections.abc import Sequence

from churn_compare.documents import (
    Block,
    Document,
    Section,
    Table,
    Text,
    bullets,
    plain_text,
)
from churn_jax.planning.estimate import Plan

ESTIMATE = "The compiler's estimate; no TPU ran it."


def size(count: float) -> str:
    """Bytes in the unit that suits."""
    if count >= 2**30:
        return f"{count / 2**30:.2f} GiB"
    if count >= 2**20:
        return f"{count / 2**20:.1f} MiB"
    if count >= 2**14:
        return f"{count / 2**10:.1f} KiB"
    return f"{int(count):,} B"


def time_text(seconds: float) -> str:
    """A time in the unit that suits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.2f} ms"
    return f"{1e6 * seconds:.1f} us"


def mesh_text(plan: Plan) -> str:
    """`replica=2,member=1,data=8`."""
    return ",".join(f"{axis}={count}" for axis, count in plan.mesh.items())


def aligned_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table that a terminal shows as Markdown, to be copied into an issue."""
    return Table(heads, rows, kind="aligned")


def as_text(document: Document) -> str:
    """A document with a blank line between its blocks; long lines stay whole."""
    return plain_text(document, width=100_000, spaced=True).rstrip("\n")


def plan_text(plan: Plan) -> str:
    """Everything about one mesh, as Markdown."""
    return as_text(plan_document(plan))


def plan_document(plan: Plan) -> Document:
    """Everything about one mesh."""
    versions = ", ".join(f"{name} {text}" for name, text in plan.versions.items())
    about = [
        f"{plan.preset}, row {plan.row}: {plan.network}; {plan.replicas} replicas, "
        f"batch {plan.batch_size}",
        f"{plan.topology}, {plan.devices} devices, mesh {mesh_text(plan)}; {versions}, "
        f"compiled in {plan.compile_seconds:.0f} s",
    ]
    if plan.calls > 1:
        each = plan.replicas // (plan.mesh["replica"] * plan.calls)
        about.append(
            f"replicas take turns on a device, {each} at a time; all turns count"
        )
    blocks: list[Block] = [bullets(about), *_memory(plan)]
    if not plan.refusal:
        checks = [
            f"{'ok' if check.holds else 'NO'}: {check.rule} ({check.seen})"
            for check in plan.checks
        ]
        placement = [Text("Placement:"), bullets(checks, kind="list")]
        blocks += [_speed(plan), _moved(plan), Section("", placement)]
    return Document(f"{plan.preset} on {plan.topology}", blocks=blocks)


def _memory(plan: Plan) -> list[Block]:
    rows = [(name, size(count)) for name, count in plan.memory.items() if count]
    rows += [
        (f"{name} (next to the step)", size(count))
        for name, count in plan.other_memory.items()
        if count
    ]
    if plan.refusal:
        verdict = f"Does not fit: {plan.refusal}."
    else:
        rows.append(("together", size(plan.used)))
        verdict = (
            f"{'Fits' if plan.fits else 'Does not fit'}: {size(plan.used)} of "
            f"{size(plan.hbm)} per device ({plan.used / plan.hbm:.0%})."
        )
    return [Text(verdict), aligned_table(("one device holds", "bytes"), rows)]


def _speed(plan: Plan) -> Section:
    done = plan.useful or plan.flops * plan.devices
    unknown = sum(plan.unknown.values())
    lines = [
        f"arithmetic {time_text(plan.compute_seconds)} ({plan.cycles:,.0f} cycles of "
        f"one device; {unknown:,} small instructions have no estimate)",
        f"communication {time_text(plan.communication_seconds)} (bytes over links in "
        "rings, 1 us from chip to chip: ours)",
        f"a step takes {time_text(plan.overlapped_seconds)} if both overlap, "
        f"{time_text(plan.step_seconds)} if not; below is the latter",
        f"{plan.rate:,.0f} examples per second, over all replicas",
        f"{plan.flops:.3g} operations and {plan.bytes:.3g} bytes per device (on-chip "
        "memory included), as the compiler counts them",
        f"{done:.3g} operations of all networks: {plan.utilisation:.1%} of the "
        "chips' bfloat16 peak",
    ]
    if plan.open_loops:
        turns = f"{plan.open_turns} times, those inside of them once"
        if plan.open_turns == 1:
            turns = "once (a step is repeated only if another replica diverges)"
        lines.append(
            f"loops of a length that the compiler does not know: {plan.open_loops}, "
            f"taken to turn {turns}"
        )
    heading = Text(f"{ESTIMATE} Per update:")
    return Section("", [heading, bullets(lines, kind="list")])


def _moved(plan: Plan) -> Block:
    if not plan.communication:
        return Text("Nothing moves between devices.")
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
    heads = ("axis", "collective", "count per update", "bytes", "largest", "estimate")
    return aligned_table(heads, rows)
