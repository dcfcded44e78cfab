"""A comparison of outcomes as a document: the page, a terminal, Markdown."""

import dataclasses
import difflib
import math
import statistics

from churn_compare.documents import (
    Block,
    Cell,
    Column,
    Document,
    Fold,
    Rows,
    Section,
    Strong,
    Table,
    Term,
    Terms,
    Text,
)
from churn_compare.gates import EXCESS
from churn_compare.number_text import (
    Unit,
    count_text,
    equals_text,
    judgement,
    level_text,
    p_text,
    range_text,
    remark,
    size_text,
    value_text,
    with_range,
)
from churn_compare.outcomes.result import (
    Change,
    MeasureFindings,
    OutcomesResult,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.report import quantity_terms, verdict, what_was_run
from churn_compare.result import Group
from churn_compare.tables import changes_table, number_cell, singles_table
from churn_compare.verdict import (
    detectable_sentence,
    group_sentences,
    pooled_sentence,
    waived_sentence,
)

_BRIEF, _LISTED, _NAMED = 10, 50, 3  # below full detail, on the page, in a sentence
_WORDS = 40  # of a text that tables show; characters that need no more than a table
_CHARACTERS = 4000  # of a text whose words are compared
_MEANS = {
    "accuracy_gain": "Accuracy",
    "score_change": "The mean",
    "error_change": "The mean error",
}


def document(result: OutcomesResult, command: str = "") -> Document:
    """The report of an update."""
    several = len(result.measures) > 1
    said = []
    for measure in result.measures:
        first, *rest = sentences(measure, result.clusters)
        said += [f"{measure.name}: {first}" if several else first, *rest]
    blocks = verdict(result, said, [*result.read, *map(remark, result.notes)])
    for measure in result.measures:
        heading = measure.name if several else ""
        blocks.append(Section(heading, changes_table(measure)))
        floor = "runs_differ" in measure.quantities
        first = "the runs" if floor else "the update"
        parts: dict[str, list[Block]] = {first: _numbers(measure)}
        for column, of in measure.groupings.items():
            parts[f"slices by {column}"] = [_slices(measure, column, of)]
        last = f"largest {_turn(measure)}s" if measure.judged else "largest changes"
        parts["least stable" if floor else last] = _changes(measure)
        for part, inside in parts.items():
            title = f"{heading}: {part}" if several else part
            title = title[:1].upper() + title[1:]
            blocks.append(Section(title, inside, detail="summary"))
    blocks.append(what_was_run({"Old": result.old, "New": result.new}, result.level))
    names = [name for measure in result.measures for name in measure.quantities]
    found = quantity_terms(names, result.level, "Runs are taken as they are.")
    terms = Terms([Term(name, meaning) for name, meaning in found.items()])
    blocks.append(Section("Glossary", [terms], detail="full"))
    arrow = f"{result.old} → {result.new}" if result.new else result.old
    return Document(arrow, [about(result)], blocks, command)


def about(result: OutcomesResult) -> str:
    """What was compared, in one sentence."""
    said = f"{count_text(result.examples)} examples"
    if result.clusters is not None:
        said += f" in {count_text(result.clusters)} clusters"
    parts = []
    for measure in result.measures:
        a, b = measure.runs
        runs = "" if a == b == 1 else f", {a} and {b} runs"
        runs = runs if result.new else f", {a} runs"
        named = "" if measure.name == measure.kind else f" ({measure.kind})"
        parts.append(f"{measure.name}{named}{runs}")
    return f"{said}; {'; '.join(parts)}"


def sentences(measure: MeasureFindings, clusters: int | None = None) -> list[str]:
    """The findings about a measure in plain words."""
    if "runs_differ" in measure.quantities:
        return _floor(measure)
    found = [_changed(measure)]
    if EXCESS in measure.quantities:
        found.append(_noise(measure))
    if not measure.judged:
        found.append("Nothing says which outcome is better.")
        return found
    found.append(_average(measure, clusters))
    if measure.equivalent is not None:
        found.append(_equivalence(measure))
    unit, what = QUANTITIES[measure.change].unit, _MEANS[measure.change]
    group = "examples" if clusters is None else "clusters"
    found += detectable_sentence(measure.detectable, unit, group)
    if measure.pooled is not None:
        found.append(pooled_sentence(measure.pooled, what.lower(), unit))
    if measure.waived is not None:
        falls = "negative flips" if measure.decided else _turn(measure) + "s"
        found += waived_sentence(measure.waived, measure[measure.worse], falls)
    return found + group_sentences(measure, measure.level, what)


def _floor(measure: MeasureFindings) -> list[str]:
    """What identical runs do."""
    differ, agree = measure["runs_differ"], measure["runs_agree"]
    found = [
        f"Two of {measure.runs[0]} runs differ on {with_range(differ, 'share')} of "
        f"examples; all agree on {with_range(agree, 'share')}."
    ]
    if measure.of_runs:
        runs = measure.of_runs
        share = measure.kind in ("correct", "answer", "label")
        scale, unit = (100, " %") if share else (1, "")
        least, most = (f"{scale * end:.4g}" for end in (min(runs), max(runs)))
        spread = f"{scale * statistics.stdev(runs):.2g}{' points' if share else ''}"
        what = "The mean error" if measure.kind == "value" else "The mean"
        what = "Accuracy" if share else what
        found.append(
            f"{what} is {scale * statistics.fmean(runs):.4g}{unit}, from {least} to "
            f"{most}{unit} over runs (standard deviation {spread})."
        )
    found.append("An update that changes no more cannot be told from another run.")
    return found


def _changed(measure: MeasureFindings) -> str:
    decided = measure.decided
    changed = measure["churn" if decided else "share_changed"]
    what = "no outcome"
    if changed.value:
        what = f"the outcome of {with_range(changed, 'share')} of examples"
    said = f"The update changes {what}"
    if not measure.judged:
        return f"{said}."
    worse = measure[measure.worse]
    better = measure["positive_flip_rate" if decided else "share_better"]
    if decided:
        return (
            f"{said}: {with_range(worse, 'share')} were right and are wrong now, "
            f"{with_range(better, 'share')} were wrong and are right now."
        )
    return (
        f"{said}: {with_range(worse, 'share')} get worse, "
        f"{with_range(better, 'share')} get better."
    )


def _noise(measure: MeasureFindings) -> str:
    within = [
        f"{value_text(measure[name], 'share')} ({side})"
        for name, side in (("within_old", "old"), ("within_new", "new"))
        if name in measure.quantities
    ]
    excess = measure[EXCESS]
    said = f"Runs of one version differ on {' and '.join(within)} of examples"
    size = f"{value_text(excess, 'points')} ({range_text(excess, 'points')})"
    if excess.low <= 0 <= excess.high:
        return f"{said}: the update changes not detectably more than that, {size}."
    more = "more" if excess.value > 0 else "less"
    return f"{said}: the update changes {size.lstrip('+-')} {more} than that."


def _average(measure: MeasureFindings, clusters: int | None) -> str:
    name = measure.change
    change, unit = measure[name], QUANTITIES[name].unit
    stem = name.rpartition("_")[0]
    sides = "share" if unit == "points" else "number"
    old, new = (
        value_text(dataclasses.replace(change, value=measure[name].value), sides)
        for name in (f"{stem}_old", f"{stem}_new")
    )
    what = _MEANS[name]
    test = "clusters' sign-flip " if clusters else "sign-flip "
    test = "exact McNemar " if measure.runs == (1, 1) and not clusters else test
    test = test if measure.decided else ""
    brackets = f"{range_text(change, unit)}; {test}{equals_text(measure.p)}"
    size = value_text(change, unit)
    judged = judgement(name, change, measure.lower_is_better)
    if judged == "unclear":
        return (
            f"{what} does not change detectably, from {old} to {new}: {size} "
            f"({brackets})."
        )
    verb = "rises" if change.value > 0 else "falls"
    less = f", which is {judged}" if measure.lower_is_better else ""
    return (
        f"{what} {verb} by {size.lstrip('+-')}, from {old} to {new} ({brackets}){less}."
    )


def _equivalence(measure: MeasureFindings) -> str:
    assert measure.within is not None and measure.equivalent is not None
    unit: Unit = QUANTITIES[measure.change].unit
    margin = size_text(measure.equivalent, unit)
    level = level_text(2 * measure.level - 1)
    ends = range_text(measure.within, unit)
    shown = "It is" if measure.is_equivalent else "It is not"
    return (
        f"{shown} shown that the change is smaller than {margin} ({level} interval "
        f"{ends})."
    )


def _numbers(measure: MeasureFindings) -> list[Block]:
    more = []
    if EXCESS in measure.quantities:
        size, ends = (f(measure[EXCESS], "points") for f in (value_text, range_text))
        what = "share of changed examples beyond that of runs of one version"
        more = [("Beyond runs of one version", size, ends, what)]
    blocks: list[Block] = [singles_table(measure, more)]
    if measure.quantiles:
        heads = ["Quantiles of the change", *(f"{q:.0%}" for q in measure.quantiles)]
        row = ["new minus old", *(f"{x:+.4g}" for x in measure.quantiles.values())]
        blocks.append(Table(heads, [row], kind="compare"))
    return blocks


def _slices(measure: MeasureFindings, column: str, of: list[Group]) -> Table:
    of.sort(key=lambda s: (2.0 if math.isnan(s.adjusted_p) else s.adjusted_p, s.name))
    heads: list[Column | str] = [Column(column, "left"), "Examples", "Changed"]
    heads += ["Worse", "Change", "Adjusted p"] if measure.judged else []
    changed = "churn" if measure.decided else "share_changed"
    rows = []
    for s in of:
        row: list[Cell | str] = [s.name, Cell(count_text(s.examples), s.examples)]
        row.append(number_cell(s.quantities[changed], "share"))
        if measure.judged:
            row.append(number_cell(s.quantities[measure.worse], "share"))
            change = s.quantities[measure.change]
            row.append(number_cell(change, QUANTITIES[measure.change].unit))
            row.append(Cell(p_text(s.adjusted_p), s.adjusted_p))
        rows.append(row)
    return Table(heads, rows, kind="compare", sortable=True, brief=_BRIEF)


def _turn(measure: MeasureFindings) -> str:
    """How a score gets worse."""
    return "rise" if measure.lower_is_better else "fall"


def _changes(measure: MeasureFindings) -> list[Block]:
    if not measure.changes:
        return [Text("There is none.")]
    total = count_text(measure.changes_total)
    said = f"{len(measure.changes)} of {total}, worst first."
    table = _change_table(measure, measure.changes)
    longest = max(len(text) for c in measure.changes for text in (c.old, c.new))
    if measure.kind != "answer" or longest <= _WORDS:
        return [Text(said, "soft"), table]
    texts = [_side_by_side(change) for change in measure.changes]
    blocks: list[Block] = [Text(said, "soft"), table]
    blocks += [Fold("Word by word", texts[:_LISTED], open=True)]
    if texts[_LISTED:]:
        blocks.append(Fold(f"{len(texts) - _LISTED} more", texts[_LISTED:]))
    return blocks


def _side_by_side(change: Change) -> Rows:
    """Both texts, with the words that only one of them has."""
    old, new = (text[:_CHARACTERS].split() for text in (change.old, change.new))
    matched = difflib.SequenceMatcher(None, old, new, autojunk=False)
    before: list[str | Strong] = []
    after: list[str | Strong] = []
    for kind, a, b, c, d in matched.get_opcodes():
        sides = ((before, old[a:b], "bad"), (after, new[c:d], "good"))
        for parts, words, tone in sides:
            text = " ".join(words)
            if text:
                parts += [" ", text if kind == "equal" else Strong(text, tone)]
    rows: list[Text] = [Text((Strong(change.id),))]
    if change.target:
        rows.append(Text(f"Target: {change.target}", "soft"))
    rows += [Text(["Old:", *before]), Text(["New:", *after])]
    return Rows(rows, kind="list")


def _change_table(measure: MeasureFindings, shown) -> Table:
    floor = "runs_differ" in measure.quantities
    sides = ("One run", "Another") if floor else ("Old", "New")
    heads = [Column(head, "left") for head in ("Example", *sides)]
    goal = any(change.target for change in shown)
    heads += [Column("Target", "left")] if goal else []
    if floor:
        heads.append(Column("Pairs that differ"))
    elif not measure.decided:
        heads.append(Column(_turn(measure).title() if measure.judged else "Distance"))
    rows = []
    for change in shown:
        row: list[Cell | str] = [change.id, _short(change.old), _short(change.new)]
        row += [_short(change.target)] if goal else []
        row += [] if measure.decided else [Cell(f"{change.fall:.4g}", change.fall)]
        rows.append(row)
    return Table(heads, rows, kind="compare", brief=_BRIEF)


def _short(text: str) -> str:
    words = text.split()
    cut = " ".join(words[:_WORDS])[: 8 * _WORDS]
    return f"{cut} ..." if len(cut) < len(" ".join(words)) else cut
