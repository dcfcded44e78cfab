"""A comparison in the terminal: what it says, then its tables."""

import io
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from churn_jax.comparison.result import CompareResult
from churn_jax.comparison.result import Group as Compared
from churn_jax.comparison.showing.overview import (
    Cell,
    SingleRow,
    about,
    changed_rows,
    noise_rows,
    single_rows,
    title,
    worst_groups,
)
from churn_jax.comparison.showing.verdict import gate_sentence, sentences
from churn_jax.comparison.showing.wording import (
    count_text,
    level_text,
    p_text,
    range_text,
    remark,
    share_text,
    value_text,
)
from churn_jax.escaping import printable

_GROUPS, _REGRESSIONS, _WAYS = 5, 10, 5  # rows; the page and the record have all
_NAME = 8  # columns that a name has, however narrow the terminal is
_NARROW = 72  # columns below which only changes have their interval
_WIDE = 100  # columns of a terminal that shows what each quantity is


def print_result(result: CompareResult, console: Console | None = None) -> None:
    """Prints what the comparison says, its tables, and last its gates."""
    of_machine = console is None and not Console().is_terminal
    console = console or Console()
    console.print(Text(title(result), style="bold"))
    console.print(Text(about(result), style="dim"))
    console.print()
    for sentence in sentences(result):
        console.print(Text(sentence))
    for note in result.notes:
        console.print(Text(printable(remark(note)), style="yellow"))
    interval = f"{level_text(result.level)} interval"
    width = console.width
    tables = [
        _changed(result, interval, width),
        _numbers("Update", single_rows(result), interval, width),
        _numbers("Retraining alone", noise_rows(result), interval, width),
        *_groups(result, interval),
        _regressions(result),
        _flow(result),
    ]
    for table in tables:
        if table is not None:
            console.print(table)
    if result.gates:
        console.print()
        for outcome in result.gates:
            style = "green" if outcome.passed else "bold red"
            line = Text(printable(outcome.line), style=style)
            console.print(line, soft_wrap=of_machine)
        style = "bold green" if result.passed else "bold red"
        console.print(Text(gate_sentence(result), style=style))


def plain_text(result: CompareResult, width: int = 80) -> str:
    """What `print_result` prints, without colours."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    print_result(result, console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _table(
    heading: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    left: Collection[int] = (0,),
) -> RenderableType:
    """A heading over a table without frames."""
    # In a narrow terminal, headings and the cells on the left are broken; numbers never
    # are.
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    texts = [[Text(c) if isinstance(c, str) else c for c in row] for row in rows]
    for i, column in enumerate(columns):
        widest = max(
            cell_len(line) for row in texts for line in row[i].plain.split("\n")
        )
        table.add_column(
            Text(column),
            justify="left" if i in left else "right",
            overflow="fold",
            min_width=min(widest, _NAME) if i in left else widest,
        )
    for row in texts:
        table.add_row(*row)
    return Padding(Group(Text(heading, style="bold"), table), (1, 0, 0, 0))


def _changed(result: CompareResult, interval: str, width: int) -> RenderableType | None:
    narrow = width < _NARROW
    rows = [
        [
            row.heading,
            *(_two_lines(Cell(c.value) if narrow else c) for c in (row.old, row.new)),
            _two_lines(row.change),
            Text(row.word, style={"better": "green", "worse": "red"}.get(row.word, "")),
        ]
        for row in changed_rows(result)
    ]
    if not rows:
        return None
    columns = ["", "Old", "New", "Change", ""]
    which = f"{interval} of the change" if narrow else f"{interval}s"
    return _table(f"Both versions, with {which}", columns, rows)


def _two_lines(cell: Cell) -> Text:
    if not cell.ends:
        return Text(cell.value)
    return Text.assemble(cell.value, "\n", (cell.ends, "dim"))


def _numbers(
    heading: str, rows: Sequence[SingleRow], interval: str, width: int
) -> RenderableType | None:
    if not rows:
        return None
    columns = ["", "Value", interval]
    cells = [[row.heading, row.number.value, row.number.ends] for row in rows]
    if width < _WIDE:
        return _table(heading, columns, cells)
    explained = [
        [*some, Text(row.formula, style="dim")]
        for some, row in zip(cells, rows, strict=True)
    ]
    return _table(heading, [*columns, ""], explained, left=(0, 3))


def _groups(result: CompareResult, interval: str) -> list[RenderableType]:
    found = []
    for grouping, groups in worst_groups(result).items():
        what = "Classes" if grouping == "class" else f"Slices by {printable(grouping)}"
        shown = groups[:_GROUPS]
        order = "worst first" if result.labelled else "most churn first"
        some = f" of {count_text(len(groups))}" if len(shown) < len(groups) else ""
        heading = f"{what}, {order}: {len(shown)}{some}"
        if result.labelled:
            columns = ["", "Examples", "Churn", "NFR", "Accuracy change", interval]
            columns.append("Adjusted p")
            rows = [_compared(group) for group in shown]
        else:
            columns = ["", "Examples", "Churn", interval]
            rows = [
                [*_counted(group), range_text(group.churn, "share")] for group in shown
            ]
        found.append(_table(heading, columns, rows))
    return found


def _counted(group: Compared) -> list[str]:
    name, examples = printable(group.name), count_text(group.examples)
    return [name, examples, share_text(group.churn.value)]


def _compared(group: Compared) -> list[str]:
    gain = group.accuracy_gain
    cells = [*_counted(group), share_text(group.negative_flip_rate.value)]
    cells += [value_text(gain, "points"), range_text(gain, "points")]
    return [*cells, p_text(group.adjusted_p)]


def _regressions(result: CompareResult) -> RenderableType | None:
    shown = result.regressions[:_REGRESSIONS]
    if not shown:
        return None
    scored = shown[0].label_drop == shown[0].label_drop
    runs = max(result.old.runs, result.new.runs) > 1
    heading = f"Largest regressions: {len(shown)} of "
    heading += count_text(result.regressions_total)
    if scored:
        heading += "; p: the label's probability, move: of the logits"
    # In one run the old version predicts the label, or it would not be a regression.
    columns = ["Example", "Label", "Old", "New"] if runs else ["Example", "Old", "New"]
    left = range(len(columns))
    columns += ["Fall of p", "Move"] if scored else []
    columns += ["Pairs"] if runs else []
    rows = []
    for found in shown:
        cells = [printable(found.id)]
        cells += [printable(found.label)] if runs else []
        cells.append(_predicted(found.old, found.old_confidence))
        cells.append(_predicted(found.new, found.new_confidence))
        if scored:
            cells += [f"{found.label_drop:.2f}", f"{found.displacement:.2f}"]
        if runs:
            cells.append(f"{100 * found.share:.0f} %")
        rows.append(cells)
    return _table(heading, columns, rows, left)


def _predicted(name: str, confidence: float) -> str:
    known = confidence == confidence
    return f"{printable(name)} ({confidence:.2f})" if known else printable(name)


def _flow(result: CompareResult) -> RenderableType | None:
    flow = result.flow
    shown = min(_WAYS, len(flow.old))
    if not shown:
        return None
    some = f" of {count_text(len(flow.old))}" if shown < len(flow.old) else ""
    columns = ["Old", "New", "Examples"]
    columns += ["Now wrong", "Now right"] if result.labelled else []
    rows = []
    for i in range(shown):
        cells = [printable(flow.old[i]), printable(flow.new[i])]
        cells.append(count_text(flow.examples[i]))
        if result.labelled:
            cells += [count_text(flow.negative[i]), count_text(flow.positive[i])]
        rows.append(cells)
    heading = f"Most frequent changes: {shown}{some}"
    return _table(heading, columns, rows, left=(0, 1))
