"""The section "Members": whether the members of an ensemble differ at all.

Members that share most of their weights can come out nearly identical, and then their
mean is worth no more than one of them. So every report says how much they differ.
"""

import dataclasses
from collections.abc import Callable

from rich.table import Table

from churn_jax.escaping import escape, terminal_text
from churn_jax.reports.cells import number, percent
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.members import Agreement
from churn_jax.reports.page import scrolling_table
from churn_jax.reports.report import Report

__all__ = ["MembersTable", "html_section", "members_table", "terminal_table"]

HARDLY = 0.001  # share of examples; below it members are as good as the same
CAPTION = (
    "Of the members of one run on the test split, mean ± standard deviation over runs. "
    "KL: mean over ordered pairs of members, nats. Disagreement: share of examples "
    "that two members predict differently, over all pairs."
)


@dataclasses.dataclass(frozen=True)
class MembersTable:
    """What every form of the report shows.

    Attributes:
        heads: of the columns.
        rows: cells, the label first.
        sentences: about the table, then about members that hardly differ.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("Members", lambda found: str(found.members)),
    ("KL", lambda found: number(over_runs(found.mean_kl))),
    ("Disagreement %", lambda found: percent(over_runs(found.disagreement))),
    ("Accuracy of a member %", lambda found: percent(over_runs(found.member_accuracy))),
    ("Accuracy of the mean %", lambda f: percent(over_runs(f.ensemble_accuracy))),
)


def members_table(report: Report) -> MembersTable | None:
    """How much the members of each row differ.

    Args:
        report: from `collect`.

    Returns:
        The table; None where no row kept its members' predictions.
    """
    rows, sentences = [], [CAPTION]
    for row in report.rows:
        found, label = row.agreement, row.info.label
        if found is None:
            continue
        rows.append((label, *(cell(found) for _, cell in _COLUMNS)))
        if found.examples < found.total:
            sentences.append(
                f"{label}: on {found.examples:,} of {found.total:,} examples, evenly "
                "spaced."
            )
        if found.disagreement.mean() < HARDLY:
            sentences.append(
                f"{label}: two members predict the same class for more than 99.9 % of "
                "the examples. Members that agree in everything give nothing that one "
                "of them does not."
            )
    if not rows:
        return None
    heads = ("Method", *(head for head, _ in _COLUMNS))
    return MembersTable(heads, tuple(rows), tuple(sentences))


def html_section(report: Report) -> str:
    """The section of the page; empty text without members' predictions."""
    found = members_table(report)
    if found is None:
        return ""
    text = "".join(f'<p class="soft">{escape(s)}</p>' for s in found.sentences)
    table = scrolling_table(found.heads, found.rows, "plain")
    return f"<section><h2>Members</h2>{text}{table}</section>"


def terminal_table(found: MembersTable) -> Table:
    """The table of a terminal."""
    table = Table(title="Members", caption=terminal_text(" ".join(found.sentences)))
    for i, head in enumerate(found.heads):
        table.add_column(head, justify="right" if i else "left")
    for cells in found.rows:
        table.add_row(*map(terminal_text, cells))
    return table
