"""`updates.md` for people and `updates.csv` for programs."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from churn_jax.escaping import markdown_text
from churn_jax.reports.report import Report
from churn_jax.reports.tables import beside_lines
from churn_jax.reports.updates import RATES, Rates, UpdateResult, Updates
from churn_jax.reports.updates_tables import (
    beside_updates,
    flip_tables,
    sentences,
    update_rows,
)

__all__ = ["updates_csv", "updates_markdown"]


def updates_markdown(report: Report) -> str:
    """The updates of a study as a Markdown page.

    Args:
        report: from `collect`, with updates.

    Returns:
        The text of `updates.md`: rates, what they are, every model against every other,
        the paper's numbers, and which updates are left out.
    """
    updates = _updates(report)
    lines = [f"# {markdown_text(report.study.title)}: updates", ""]
    if updates.results:
        lines += _table(*update_rows(updates))
        lines += [line for text in sentences(updates) for line in ("", text)]
        lines += ["", "## Every model against every other"]
        for found in flip_tables(updates):
            lines += ["", *_table(found.heads, found.rows), "", found.caption]
    if updates.remarks:
        lines += ["", *(f"* {markdown_text(remark)}" for remark in updates.remarks)]
    if beside := beside_updates(report):
        lines += beside_lines(beside, "Update")
    return "\n".join(lines) + "\n"


def _updates(report: Report) -> Updates:
    if report.updates is None:
        raise ValueError(f"{report.study.folder} is no study of model updates")
    return report.updates


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head, *lines = (
        "| " + " | ".join(map(markdown_text, cells)) + " |" for cells in (heads, *rows)
    )
    rule = "|" + "|".join([":--"] + ["--:"] * (len(heads) - 1)) + "|"
    return [head, rule, *lines]


def updates_csv(report: Report) -> str:
    """The updates for programs, fractions at full precision.

    One line per update, set of examples and pairing: `all` pairs of an old and a new
    run, or `own` pairs (r, r) of a targeted update. `first` is 1 on the line that
    fits the update. A study with published numbers has them in `paper_...` columns of
    the lines that are first.

    Args:
        report: from `collect`, with updates.

    Returns:
        The text of `updates.csv`, with a header line; absent numbers are empty.
    """
    updates = _updates(report)
    beside = beside_updates(report)
    printed = [quantity.name for quantity in (beside.metrics if beside else ())]
    fields = ["label", "old", "new", "targeted", "examples", "num_examples"]
    fields += ["pairing", "first", "pairs"]
    for quantity in RATES:
        fields += [quantity.name, f"{quantity.name}_std", f"{quantity.name}_stderr"]
    for name in printed:
        fields += [f"paper_{name}", f"paper_{name}_doubtful"]
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for i, result in enumerate(updates.results):
        paper = beside.rows[i].paper if beside else {}  # in the order of the results
        for pairing, rates in _pairings(result):
            line = _csv_line(result, pairing, rates)
            for name in printed if rates is result.first else ():
                if (number := paper.get(name)) is not None:
                    line[f"paper_{name}"] = _full(number.mean)
                    line[f"paper_{name}_doubtful"] = number.note
            writer.writerow(line)
    return out.getvalue()


def _pairings(result: UpdateResult) -> list[tuple[str, Rates]]:
    own = [("own", result.own_pairs)] if result.own_pairs else []
    return [*own, ("all", result.all_pairs)]


def _csv_line(result: UpdateResult, pairing: str, rates: Rates) -> dict:
    line: dict = {
        "label": result.label,
        "old": result.old,
        "new": result.new,
        "targeted": int(result.targeted),
        "examples": result.examples,
        "num_examples": result.num_examples,
        "pairing": pairing,
        "first": int(rates is result.first),
        "pairs": rates.pairs,
    }
    for quantity in RATES:
        estimate = getattr(rates, quantity.name)
        line[quantity.name] = _full(estimate.mean)
        line[f"{quantity.name}_std"] = _full(estimate.std)
        line[f"{quantity.name}_stderr"] = _full(estimate.stderr)
    return line


def _full(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""
