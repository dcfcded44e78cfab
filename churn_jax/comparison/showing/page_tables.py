"""The tables of a comparison's page."""

import math
from collections.abc import Sequence

from churn_jax.comparison.result import (
    QUANTITIES,
    CompareResult,
    Flow,
    Interval,
    Noise,
    Quantity,
    Regression,
)
from churn_jax.comparison.showing.sorting import (
    Cell,
    Column,
    number,
    sortable_table,
    word,
)
from churn_jax.comparison.showing.wording import (
    has_range,
    judgement,
    level_text,
    p_text,
    range_text,
    share_text,
    value_text,
)
from churn_jax.escaping import escape

BETTER = {"lower": "lower is better", "higher": "higher is better", "": ""}
ARROWS = {"better": "✓ better", "worse": "✗ worse"}


def versions_table(result: CompareResult) -> str:
    """Old, new and change of every quantity that each version has; "" without any."""
    rows = []
    for stem in ("accuracy", "nll", "brier", "ece"):
        old, new = (f"{stem}_{version}" for version in ("old", "new"))
        change = f"{stem}_gain" if stem == "accuracy" else f"{stem}_change"
        if not {old, new} & set(result.quantities):
            continue
        quantity = QUANTITIES[old]
        heading = quantity.heading.removesuffix(", old")
        rows.append(
            f'<tr><th scope="row">{escape(heading)}'
            f"<small>{BETTER[quantity.better]}</small></th>"
            f"<td>{_found(result, old)}</td><td>{_found(result, new)}</td>"
            f"<td>{_found(result, change)}{_verdict(result, change)}</td></tr>"
        )
    if not rows:
        return ""
    return _table(
        "compare versions",
        ("Both versions", "Old", "New", "Change"),
        rows,
        f"Below each number: its {level_text(result.level)} interval.",
    )


def update_table(result: CompareResult) -> str:
    """Every quantity of the update: value, interval and what it is."""
    rows = []
    for name, interval in result.quantities.items():
        quantity = QUANTITIES[name]
        if name.endswith(("_old", "_new")) or quantity.unit in ("points", "change"):
            continue
        rows.append(
            f'<tr><th scope="row">{escape(quantity.heading)}'
            f"<small>{BETTER[quantity.better]}</small></th>"
            f"<td>{escape(value_text(interval, quantity.unit))}</td>"
            f"<td>{escape(range_text(interval, quantity.unit)) or _none(interval)}</td>"
            f"<td>{escape(quantity.formula)}</td></tr>"
        )
    interval = f"{level_text(result.level)} interval"
    heads = ("The update", "Value", interval, "What it is")
    return _table("compare numbers", heads, rows)


def noise_table(noise: Noise) -> str:
    """Churn between runs of one version, and what the update adds."""
    rows = [
        f'<tr><th scope="row">{heading}</th><td>{value_text(interval, unit)}'
        f"<small>{range_text(interval, unit)}</small></td></tr>"
        for heading, interval, unit in (
            ("Between runs of the old version", noise.within_old, "share"),
            ("Between runs of the new version", noise.within_new, "share"),
            ("Expected from retraining alone", noise.expected, "share"),
            ("The update, beyond that", noise.excess, "points"),
        )
        if not math.isnan(interval.value)
    ]
    rows.append(
        f'<tr><th scope="row">p of "nothing beyond that"</th>'
        f"<td>{escape(p_text(noise.p))}</td></tr>"
    )
    return _table("compare", ("Churn", ""), rows)


def regressions_table(
    regressions: Sequence[Regression], *, scored: bool, runs: bool
) -> str:
    """Examples that were right and are wrong now, worst first."""
    columns = [
        Column("Example", "ascending", words=True),
        Column("Label", "ascending", words=True),
        Column("Predicted before", "ascending", words=True),
        Column("Predicted now", "ascending", words=True),
    ]
    if scored:
        columns += [Column("Fall of the label's probability"), Column("Displacement")]
    if runs:
        columns.append(Column("Of pairs of runs"))
    rows = []
    for found in regressions:
        row = [
            word(found.id),
            word(found.label),
            _prediction(found.old, found.old_confidence),
            _prediction(found.new, found.new_confidence),
        ]
        if scored:
            row += [_plain(found.label_drop), _plain(found.displacement)]
        if runs:
            row.append(number(share_text(found.share), found.share))
        rows.append(row)
    return sortable_table(columns, rows)


def flow_table(flow: Flow, most: int) -> str:
    """The largest flows, as text."""
    labelled = bool(flow.negative) and not math.isnan(flow.negative[0])
    counts = (flow.examples, flow.negative, flow.positive)[: 3 if labelled else 1]
    whole = all(float(count).is_integer() for column in counts for count in column)
    columns = [
        Column("From", "ascending", words=True),
        Column("To", "ascending", words=True),
        Column("Examples"),
    ]
    if labelled:
        columns += [
            Column("Right before, wrong now"),
            Column("Wrong before, right now"),
        ]
    rows = []
    for old, new, *row in zip(flow.old, flow.new, *counts, strict=True):
        shown = (number(f"{c:,.0f}" if whole else f"{c:,.1f}", c) for c in row)
        rows.append([word(old), word(new), *shown])
        if len(rows) == most:
            break
    left = len(flow.old) - len(rows)
    return sortable_table(columns, rows, f"The {most} largest." if left else "")


def _table(
    kind: str, heads: Sequence[str], rows: Sequence[str], caption: str = ""
) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}">{said}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _found(result: CompareResult, name: str) -> str:
    """A number with its interval below; a dash where there is none."""
    interval = result.quantities.get(name)
    if interval is None:
        return "–"
    quantity: Quantity = QUANTITIES[name]
    value, below = (
        escape(text(interval, quantity.unit)).replace(" %", "\u00a0%")
        for text in (value_text, range_text)
    )
    return value + (f"<small>{below}</small>" if below else "")


def _verdict(result: CompareResult, name: str) -> str:
    """Better or worse, in a word as well as in a colour."""
    interval = result.quantities.get(name)
    if interval is None or not has_range(interval):
        return ""
    found = judgement(name, interval)
    if found == "unclear":
        return "<small>not detectable</small>"
    return f'<span class="{found}">{ARROWS[found]}</span>'


def _none(interval: Interval) -> str:
    return "undefined" if math.isnan(interval.value) else "–"


def _prediction(name: str, confidence: float) -> Cell:
    below = "" if math.isnan(confidence) else f"<small>{share_text(confidence)}</small>"
    return Cell(escape(name) + below)


def _plain(value: float) -> Cell:
    return number("–" if math.isnan(value) else f"{value:.3g}", value)
