"""The click table of the anti-distillation paper beside the measured numbers.

Doubtful cells are shown as such, with the reason. The paper's data are private, so its
numbers are context for the direction of an effect, never a target.
"""

import dataclasses
import math

from churn_jax.reports.published import Published, PublishedTable, published_keys, table
from churn_jax.reports.stream import StreamReport, StreamRow

__all__ = ["StreamBeside", "stream_beside"]

ABSENT = "–"
METRICS = (
    ("log_loss_change", "Log loss change %"),
    ("rank_loss_change", "Rank loss change %"),
    ("positive_prediction_difference", "Δʳ₁"),
)
CHANGES = {"log_loss_change": "log_loss", "rank_loss_change": "rank_loss"}


@dataclasses.dataclass(frozen=True)
class StreamBeside:
    """The comparison as text.

    Attributes:
        heads: of the columns; two per quantity, paper and measured.
        rows: cells, those of the study first, then what only the paper has.
        notes: why cells are doubtful, each once; cells refer to them from 1.
        caption: what is compared with what.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    caption: str


def stream_beside(report: StreamReport) -> StreamBeside | None:
    """The published numbers of a study's rows beside those over its stream.

    Args:
        report: from `collect_stream`.

    Returns:
        None when the study names no published table, or one that is unknown here.
    """
    if report.study.published not in published_keys():
        return None
    found = table(report.study.published)
    metrics = [m for m in METRICS if any(m[0] in row for row in found.rows.values())]
    notes: dict[str, int] = {}
    measured = {row.info.name: row for row in report.rows}
    planned = {info.name: info.label for info in report.study.methods}
    rows = []
    for name in dict.fromkeys([*measured, *found.rows]):
        printed, row = found.rows.get(name, {}), measured.get(name)
        label = planned.get(name) or f"{name.replace('_', ' ')} (paper only)"
        cells = [label]
        for metric, _ in metrics:
            cells.append(_paper_cell(metric, printed.get(metric), notes))
            cells.append(_measured_cell(metric, row, name == report.study.baseline))
        rows.append(tuple(cells))
    heads = ["Row"]
    heads += [f"{title}, {who}" for _, title in metrics for who in ("paper", "ours")]
    return StreamBeside(tuple(heads), tuple(rows), tuple(notes), _caption(found))


def _paper_cell(metric: str, number: Published | None, notes: dict[str, int]) -> str:
    if number is None:
        return ABSENT
    text = _written(metric, number.mean)
    if number.doubtful:
        place = notes.setdefault(number.note, len(notes) + 1)
        text += f" doubtful [{place}]"
    return text


def _measured_cell(metric: str, row: StreamRow | None, baseline: bool) -> str:
    if row is None:
        return ABSENT
    if metric not in CHANGES:
        return _written(metric, row.numbers["stream"].whole["relative_pd"])
    if baseline:
        return _written(metric, 0.0)
    if "stream" not in row.changes:
        return ABSENT
    change = row.changes["stream"].changes[CHANGES[metric]].relative.difference
    return _written(metric, change)


def _written(metric: str, value: float) -> str:
    if not math.isfinite(value):
        return ABSENT
    return f"{100 * value:+.3f}" if metric in CHANGES else f"{value:.4f}"


def _caption(found: PublishedTable) -> str:
    runs = f", {found.runs} runs" if found.runs else ""
    return (
        f"Paper: {found.citation}, {found.title}{runs}. Ours: this stream. The paper's "
        "data are private and its settings mostly unstated: only the direction and the "
        "rough size of an effect can be compared."
    )
