"""The section "Members": whether the members of an ensemble differ at all.

Members that share most of their weights can come out nearly identical, and then their
mean is worth no more than one of them. So every report says how much they differ.
"""

from collections.abc import Callable

from churn_jax.documents import HTML, MARKDOWN, TERMINAL, Only, Section, Table, Text
from churn_jax.reports.cells import number, percent
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.members import Agreement
from churn_jax.reports.report import Report

__all__ = ["HARDLY", "members_section"]

HARDLY = 0.001  # share of examples; below it members are as good as the same
CAPTION = (
    "Of the members of one run on the test split, mean ± standard deviation over runs. "
    "KL: mean over ordered pairs of members, nats. Disagreement: share of examples "
    "that two members predict differently, over all pairs."
)


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("Members", lambda found: str(found.members)),
    ("KL", lambda found: number(over_runs(found.mean_kl))),
    ("Disagreement %", lambda found: percent(over_runs(found.disagreement))),
    ("Accuracy of a member %", lambda found: percent(over_runs(found.member_accuracy))),
    ("Accuracy of the mean %", lambda f: percent(over_runs(f.ensemble_accuracy))),
)


def members_section(report: Report) -> Section | None:
    """How much the members of each row differ; None where none were kept."""
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
    said, table = [Text(text, "soft") for text in sentences], Table(heads, rows)
    titled = Table(heads, rows, "Members", caption=" ".join(sentences))
    page = [Only((HTML,), said), table, Only((MARKDOWN,), said)]
    blocks = [Only((HTML, MARKDOWN), page), Only((TERMINAL,), [titled])]
    return Section("Members", blocks)
