"""A comparison as Markdown, for a comment on a pull request."""

from collections.abc import Sequence

from churn_jax.comparison.result import CompareResult
from churn_jax.comparison.showing.overview import (
    Cell,
    about,
    changed_rows,
    noise_rows,
    single_rows,
    title,
)
from churn_jax.comparison.showing.verdict import gate_sentence, sentences
from churn_jax.comparison.showing.wording import level_text, remark
from churn_jax.escaping import markdown_text

_REGRESSIONS = 10


def markdown(result: CompareResult) -> str:
    """What the comparison says, its gates and its numbers, for GitHub."""
    lines = [
        f"### {markdown_text(title(result))}",
        "",
        markdown_text(about(result)) + ".",
    ]
    if result.gates:
        lines += ["", f"**{markdown_text(gate_sentence(result))}**", ""]
        lines += [f"* {markdown_text(outcome.line)}" for outcome in result.gates]
    lines += ["", *(f"* {markdown_text(sentence)}" for sentence in sentences(result))]
    lines += [f"* {markdown_text(remark(note))}" for note in result.notes]
    if changed := changed_rows(result):
        rows = [
            (row.heading, _cell(row.old), _cell(row.new), _cell(row.change), row.word)
            for row in changed
        ]
        lines += _table("lrrrl", ("", "Old", "New", "Change", ""), rows)
    rows = [
        (row.heading, row.number.value, row.number.ends, row.formula)
        for row in (*single_rows(result), *noise_rows(result))
    ]
    interval = f"{level_text(result.level)} interval"
    lines += _table("lrrl", ("", "Value", interval, "What it is"), rows)
    return "\n".join(lines + _regressions(result)) + "\n"


def _cell(cell: Cell) -> str:
    return f"{cell.value} ({cell.ends})" if cell.ends else cell.value


def _table(
    sides: str, heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """Lines of a table; `sides` has l for a column to the left, r to the right."""
    line = "|" + "|".join({"l": ":--", "r": "--:"}[side] for side in sides) + "|"
    body = ["| " + " | ".join(map(markdown_text, row)) + " |" for row in rows]
    return ["", "| " + " | ".join(heads) + " |", line, *body]


def _regressions(result: CompareResult) -> list[str]:
    shown = result.regressions[:_REGRESSIONS]
    if not shown:
        return []
    rows = [(found.id, found.label, found.old, found.new) for found in shown]
    summary = f"Largest regressions: {len(shown)} of {result.regressions_total:,}"
    return [
        "",
        f"<details><summary>{summary}</summary>",
        *_table("llll", ("Example", "Label", "Old", "New"), rows),
        "",
        "</details>",
    ]
