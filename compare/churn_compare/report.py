"""The report of an update or of versions, in three levels of detail.

A terminal shows the verdict, a comment or a notebook the summary, a page everything.
"""

import dataclasses
import datetime
import functools
import importlib.util
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from churn_compare import tables
from churn_compare.display import CompareResult, Display, OutcomesResult, VersionsResult
from churn_compare.documents import (
    Block,
    Detail,
    Document,
    Facts,
    Figure,
    Fold,
    Grid,
    Rows,
    Section,
    Strong,
    Term,
    Terms,
    Text,
)
from churn_compare.documents.plotting import COLOURS, INK, drawing
from churn_compare.number_text import count_text, counted, level_text, remark
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Curve, GateOutcome, Measured, MeasureFindings, Version
from churn_compare.verdict import gate_sentence, sentences

_OF_STEP = 20  # regressions listed for each update of a folder
_MANY, _SHORT = 8, 10  # most versions, and characters of a name, as headings
FEW = 10  # examples of a bin below which its mark is hollow
_SIZE = (5.4, 4.2)  # inches of a figure
KINDS = {"pass": "good", "fail": "bad", "inconclusive": "mixed"}  # `Text.kind`


def document(result: Display, command: str = "") -> Document:
    """The report of an update or of versions, with its figures yet to be drawn."""
    if isinstance(result, VersionsResult):
        return _of_versions(result, command)
    if isinstance(result, CompareResult):
        facts = {
            side.name: f"{_side(side)}, {counted(side.examples, 'example')}"
            for side in (result.old, result.new)
        }
    else:
        assert isinstance(result, OutcomesResult)
        facts = {"Old" if result.new else "Runs": result.old, "New": result.new}
    measured, said, parts = result.each(), [], []
    for name, of in measured.items():
        name = name if len(measured) > 1 else ""
        first, *rest = sentences(of)
        said += [f"{name}: {first}" if name else first, *rest]
        parts += sections(name, of)
    glossary = Terms(terms([*measured.values()]))
    found = composed(
        result,
        parts,
        [*result.read, *map(remark, result.notes)],
        facts,
        command,
        about=about(result),
        said=said,
    )
    blocks = [*found.blocks, Section("Glossary", [glossary], detail="full")]
    return dataclasses.replace(found, blocks=blocks)


def _of_versions(result: VersionsResult, command: str) -> Document:
    names, steps = result.names, list(result.steps)
    short = len(names) <= _MANY and max(map(len, names)) <= _SHORT
    labels = names if short else tuple(str(i + 1) for i in range(len(names)))
    links = [f"update-{i + 1}" for i in range(len(steps))]
    matrices: list[Block] = []
    if len(steps) > 1:
        matrices += tables.matrix_tables(result, labels, any(s.paired for s in steps))
        steps, links = [*steps, result.whole], [*links, "first-to-last"]
    facts = {
        "Versions": ", ".join(f"{v.name} ({v.kind})" for v in result.versions),
        "Compared": f"{count_text(result.examples)} examples that all versions have",
    }
    gates = [(g, f" [{s.title}]") for s in result.steps for g in s.gates]
    read = {line for step in result.steps for line in step.read}
    notes = [note if note in read else remark(note) for note in result.notes]
    parts = [
        Section("Versions", [tables.version_table(result, labels)]),
        Section("Updates", [tables.step_table(result, links)]),
        Section("Every version against every other", matrices, detail="summary"),
        *(
            Section(step.title, _step(step), link, detail="full")
            for step, link in zip(steps, links)
        ),
    ]
    counts = f"{count_text(len(names))} versions; {count_text(result.examples)}"
    counts += f" examples{'' if result.labelled else ' without labels'}"
    return composed(result, parts, notes, facts, command, about=counts, gates=gates)


def _step(step: CompareResult) -> list[Block]:
    """Blocks of one of several updates, without its classes and slices."""
    blocks: list[Block] = [
        *map(Text, sentences(step)),
        *tables.changes_table(step),
        tables.singles_table(step),
        Fold("Where changed predictions go", [tables.flow_map(step.flow)]),
    ]
    if shown := step.regressions[:_OF_STEP]:
        total = count_text(step.regressions_total)
        summary = f"Largest regressions, {count_text(len(shown))} of {total}"
        blocks.append(Fold(summary, [tables.regressions_table(step, shown)]))
    return blocks


def composed(
    result: Any,
    sections: Sequence[Section],
    notes: Sequence[str],
    facts: Mapping[str, str],
    command: str = "",
    *,
    about: str = "",
    said: Sequence[str] | None = None,
    gates: Sequence[tuple[GateOutcome, str]] | None = None,
) -> Document:
    """A report: what was read, the verdict, sections, and what was run."""
    from churn_compare import __version__

    lines = []
    for gate, step in gates or [(gate, "") for gate in result.gates]:
        kind, word = KINDS[gate.state], gate.state.upper()
        parts = Strong(word, kind), f"{gate.line.removeprefix(word)}{step}"
        lines.append(Text(parts, f"line {kind}"))
    sentence = Strong(gate_sentence(result.gates))
    found = Text((sentence,), f"outcome {KINDS[result.state]}")
    said = result.verdict() if said is None else said
    texts = (Text(text, "lead" * (not i)) for i, text in enumerate(said))
    read = Rows([Text(note) for note in notes], kind="note remark")
    run = {
        "Intervals": f"{level_text(result.level)} confidence",
        "Date": datetime.date.today().isoformat(),
        "Software": f"churn_compare {__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}",
    }
    blocks = [
        Section("", [read]),
        Section("", [found, Rows(lines), *texts], kind="said"),
        *sections,
        Section("What was run", [Facts({**facts, **run})], detail="full"),
    ]
    return Document(result.title, [about], blocks, command)


def sections(heading: str, found: Measured) -> list[Section]:
    """The numbers, figures and tables of one kind of outcome."""
    floor = "runs_differ" in found.quantities
    parts: dict[str, tuple[list[Block], Detail]] = {}
    first = "the runs" if floor else "the update"
    parts[first] = [tables.singles_table(found)], "summary"
    if isinstance(found, CompareResult):
        parts["where changed predictions go"] = _flow(found), "full"
        parts["probabilities"] = _probabilities(found), "full"
        last, listed = "largest regressions", _regressions(found)
    else:
        assert isinstance(found, MeasureFindings)
        last = f"largest {found.turn}s" if found.judged else "largest changes"
        last, listed = "least stable" if floor else last, tables.change_blocks(found)
    for of, groups in found.groupings.items():
        title = "classes" if of == "class" else f"slices by {of}"
        parts[title] = tables.group_blocks(found, of, groups), "summary"
    parts[last] = listed, "summary"
    start = f"{heading}: " if heading else ""
    named = {start + part: of for part, of in parts.items()}
    return [Section(heading, tables.changes_table(found))] + [
        Section(title[:1].upper() + title[1:], inside, detail=detail)
        for title, (inside, detail) in named.items()
    ]


def about(result: CompareResult | OutcomesResult) -> str:
    """The comparison in one line."""
    said = counted(result.examples, "example")
    measured = result if isinstance(result, CompareResult) else result.measures[0]
    if (clusters := measured.clusters) is not None:
        of = f" of {clusters.column}" if clusters.column else ""
        said += f" in {counted(clusters.count, 'cluster')}{of}"
    if isinstance(result, CompareResult):
        old, new = _side(result.old), _side(result.new)
        sides = f"each: {old}" if old == new else f"old: {old}; new: {new}"
        return f"{said}{'' if result.labelled else ' without labels'}; {sides}"
    for measure in result.measures:
        a, b = measure.runs
        runs = "" if a == b == 1 else f", {a} and {b} runs"
        runs = runs if result.new else f", {a} runs"
        named = "" if measure.name == measure.kind else f" ({measure.kind})"
        said += f"; {measure.name}{named}{runs}"
    return said


def _side(version: Version) -> str:
    kind = {"classes": "predicted classes"}.get(version.kind, version.kind)
    classes = f"{count_text(version.classes)} classes"
    return f"{kind}, {classes}, {counted(version.runs, 'run')}"


def _flow(result: CompareResult) -> list[Block]:
    flow, runs, shown = result.flow, result.run_pairs, sum(result.flow.examples)
    if not shown:
        return [Text("No prediction changes.")]
    changed = result["churn"].value * result.examples
    said = f"{tables.mean_count(changed)} examples change their class"
    said = "1 example changes its class" if said.startswith("1 ") else said
    said += f", mean over {runs} pairs of runs" if runs > 1 else ""
    said += ", from the class in the row to the class in the column"
    if result.labelled:
        said += '; "worse" counts those that were right before and are wrong now'
    if shown < changed - 0.5:
        said += f"; the {count_text(len(flow.old))} largest flows are shown"
    return [Text(f"{said}.", "soft"), tables.flow_map(flow)]


def _probabilities(result: CompareResult) -> list[Block]:
    """Reliability as a figure and a table."""
    if result.curves is None:
        return []
    table = tables.reliability_table(**result.curves)
    if not has_matplotlib():
        return [table]
    caption = (
        "On the dotted line, predictions made with confidence 0.8 are right in 80 % of "
        "cases. Hollow marks: bins of fewer than 10 examples. Below: share of the "
        "examples in each bin."
    )
    drawn = functools.partial(reliability, **result.curves)
    figure = Figure(drawn, "Reliability", caption, name=reliability.__name__)
    return [Grid([figure]), Fold("As a table", [table])]


def has_matplotlib() -> bool:
    """True if Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def reliability(old: Curve, new: Curve) -> str:
    """Accuracy against confidence of both versions; below, examples of each bin."""
    with drawing(*_SIZE) as (figure, done):
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        for i, (name, curve) in enumerate((("old", old), ("new", new))):
            counts = np.asarray(curve.examples)
            full, few = counts >= FEW, (counts > 0) & (counts < FEW)
            style = {"color": COLOURS[i], "marker": "os"[i]}
            where = curve.confidence, curve.accuracy
            upper.plot(
                *(x[full] for x in where), label=name, ls=("-", "--")[i], **style
            )
            upper.plot(*(x[few] for x in where), ls="", mfc="none", **style)
            place = (np.arange(len(counts)) + 0.3 + 0.4 * i) / len(counts)
            share = 100 * counts / max(counts.sum(), 1)
            lower.bar(place, share, 0.4 / len(counts), color=COLOURS[i])
        upper.set_ylabel("Accuracy")
        lower.set(ylabel="Examples %", xlabel="Confidence (top probability)")
        upper.legend()
        return done("Reliability of the old and the new version")


def _regressions(result: CompareResult) -> list[Block]:
    if not result.labelled:
        return []
    total = result.regressions_total
    if not result.regressions:
        return [Text("None is listed." if total else "There is none.")]
    when = "in some pair of runs" if result.run_pairs > 1 else "now"
    said = (
        f"Examples that were right before and are wrong {when}, worst first; "
        f"{count_text(total)} in all."
    )
    table = tables.regressions_table(result, result.regressions)
    return [Text(said, "soft"), *tables.folded(table)]


def terms(measured: Sequence[Measured]) -> list[Term]:
    """Definitions of the quantities and tests of a comparison."""
    found: dict[str, str] = {}
    first = measured[0]
    for name in (name for of in measured for name in of.quantities):
        if (quantity := QUANTITIES[name]).is_change:
            continue  # changes explain themselves
        word, *rest = quantity.formula.split(" ")
        if word.islower() and "_" not in word:
            word = word.capitalize()
        said = f"{' '.join((word, *rest))}."
        # For scores it depends on the measure.
        if quantity.better and not name.startswith("score"):
            said += f" {quantity.better.capitalize()} is better."
        found.setdefault(
            quantity.heading.removesuffix(", old").removesuffix(", new"), said
        )
    level = level_text(first.level)
    runs = "Runs are treated as fixed."
    if first.of_classes:
        runs = (
            "Several runs are treated as a sample, too. Both versions are always "
            "compared on the same examples."
        )
    found[f"{level} interval"] = (
        f"In about {level} of repetitions with other examples, such an interval "
        f"contains the true value. {runs}"
    )
    if decided := [of for of in measured if of.decided]:
        found["Negative and positive flips"] = (
            "Examples that were right and are wrong now, and the reverse. Their rates "
            "differ by the gain in accuracy."
        )
        several = first.of_classes and first.run_pairs > 1
        over = "; larger where runs as a sample leave more to chance" * several
        found[f"p ({decided[0].test} test)"] = (
            "Probability of negative and positive flips at least as unevenly split, if "
            f"both versions were equally accurate{over}."
        )
    if any(g.adjusted_p == g.adjusted_p for of in measured for g in of.groups):
        found["Adjusted p (Holm)"] = (
            "p corrected for testing all groups of a table at once: by chance alone, "
            "at most 5 % of such tables have an adjusted p below 0.05."
        )
    if first.noise is not None:
        found["Expected from retraining alone"] = (
            "Mean churn between two runs of the same version."
        )
    if isinstance(first, CompareResult) and first.curves is not None:
        found["Reliability"] = (
            "Accuracy of the predictions made with about the same confidence."
        )
    return [Term(name, meaning) for name, meaning in found.items()]
