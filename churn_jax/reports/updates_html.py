"""The section "Updates" of the page."""

from churn_jax.escaping import escape
from churn_jax.reports import updates_plots
from churn_jax.reports.beside import html_table
from churn_jax.reports.page import scrolling_table
from churn_jax.reports.report import Report
from churn_jax.reports.updates_tables import (
    beside_updates,
    flip_tables,
    sentences,
    update_rows,
)

__all__ = ["html_section"]

MOST_OPEN = 12  # models; a larger table of all pairs is folded
FIGURES = (
    (
        updates_plots.errors_against_flips,
        "Error rate against negative flips",
        "One point per update, as in Figure 1 of the paper: left and down is better. "
        "Bars: one standard error.",
    ),
    (
        updates_plots.chains,
        "Chains of versions",
        "NFR %, of their own pairs where the new version was trained against the old "
        "one; dotted: of versions that are not next to each other, over all pairs of "
        "runs where this is no update of the study. Below a version: its error rate.",
    ),
    (
        updates_plots.against_setting,
        "What the setting does",
        "As in Figure 6 of the paper. Bars: one standard error.",
    ),
    (
        updates_plots.rank_histogram,
        "Rank of the wrong class in the old model",
        "Negative flips alone, as in Figure 4 of the paper: the class that the new "
        "model wrongly predicts was the old model's runner-up at rank 2.",
    ),
)


def html_section(report: Report) -> str:
    """Tables and figures; empty text for a study without updates."""
    updates = report.updates
    if updates is None:
        return ""
    out = ["<section><h2>Updates</h2>"]
    out += [f'<p class="note">{escape(remark)}</p>' for remark in updates.remarks]
    if updates.results:
        text = " ".join(sentences(updates))
        heads, rows = update_rows(updates)
        out.append(f'<p class="soft">{escape(text)}</p>')
        out.append(scrolling_table(heads, rows, "plain"))
        opened = " open" if len(updates.versions) <= MOST_OPEN else ""
        title = "<strong>Every model against every other</strong>"
        out.append(f"<div><details{opened}><summary>{title}</summary>")
        for found in flip_tables(updates):
            out.append(f'<p class="soft">{escape(found.caption)}</p>')
            out.append(scrolling_table(found.heads, found.rows, "plain"))
        out.append("</details></div>")
        drawn = ((draw(updates), *words) for draw, *words in FIGURES)
        figures = [
            f"<figure><h3>{escape(title)}</h3>{svg}"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for svg, title, caption in drawn
            if svg
        ]
        out.append('<div class="grid">' + "\n".join(figures) + "</div>")
    out.append("</section>")
    beside = beside_updates(report)
    return "\n".join(out) + (html_table(beside, "Update") if beside else "")
