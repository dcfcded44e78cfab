"""One update as a document: the page, a terminal, Markdown and a notebook."""

import datetime
import functools
import platform
from collections.abc import Sequence

import numpy as np

from churn_compare.documents import (
    Block,
    Column,
    Document,
    Facts,
    Figure,
    Fold,
    Grid,
    Rows,
    Section,
    Strong,
    Table,
    Term,
    Terms,
    Text,
    bullets,
)
from churn_compare.figures import (
    confidence_and_displacement,
    has_matplotlib,
    reliability,
)
from churn_compare.group_tables import group_blocks, group_title, worst_groups
from churn_compare.number_text import count_text, level_text, remark
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Findings, GateOutcome, Version, state_of
from churn_compare.tables import (
    changes_lines,
    changes_markdown,
    changes_table,
    flow_lines,
    flow_map,
    mean_count,
    noise_singles,
    noise_table,
    regressions_lines,
    regressions_table,
    reliability_table,
    singles,
    singles_lines,
    singles_table,
)
from churn_compare.verdict import gate_sentence, sentences

BLANK = Text("\n")  # a line of the terminal
_LISTED, _REGRESSIONS = 50, 2000  # on the page: shown openly, and at all
_IN_MARKDOWN = 10  # regressions
KINDS = {"pass": "good", "fail": "bad", "inconclusive": "mixed"}  # of texts


def page(result: Findings, command: str = "") -> Document:
    """The page of an update; drawing its figures takes a while."""
    blocks = [
        Section("", verdict_blocks(result), kind="said"),
        Text("\n".join((*result.read, *result.notes)), "note remark"),
        *sections(result),
        Section("What was run", [Facts(_run(result, command))]),
        Section("Glossary", [Terms(terms(result))]),
    ]
    title = f"{result.old.name} → {result.new.name}"
    return Document(title, _facts(result), blocks, command)


def sections(result: Findings) -> list[Section]:
    """The numbers, figures and tables of an update, for a page."""
    return [
        Section("Numbers", [*changes_table(result), singles_table(result)]),
        Section("More than retraining?", _noise(result)),
        Section("Where changed predictions go", _flow(result)),
        Section("Probabilities", _probabilities(result)),
        *(
            Section(
                group_title(grouping),
                group_blocks(grouping, groups, result.level, result.labelled),
            )
            for grouping, groups in result.groupings.items()
        ),
        Section("Largest regressions", _regressions(result)),
    ]


def terminal(result: Findings) -> Document:
    """What is printed: sentences, tables, and last the gates."""
    blocks = [
        Text(arrow(result), "best"),
        Text(about(result), "soft"),
        *(Text(line, "soft") for line in result.read),
        BLANK,
        *map(Text, sentences(result)),
        *(Text(remark(note), "note") for note in result.notes),
        *changes_lines(result),
        *singles_lines(singles(result), result.level, "Update"),
        *singles_lines(noise_singles(result.noise), result.level, "Retraining alone"),
        *worst_groups(result),
        *regressions_lines(result),
        *flow_lines(result.flow),
        *gate_lines(_gates(result), gate_sentence(result)),
    ]
    return Document(arrow(result), blocks=blocks)


def comment(result: Findings) -> Document:
    """The comment for a pull request, in Markdown."""
    said = [*sentences(result), *map(remark, result.notes)]
    blocks: list[Block] = [Text(" ".join((f"{about(result)}.", *result.read)))]
    if result.gates:
        lines = bullets([gate.line for gate in result.gates])
        blocks += [Text((Strong(gate_sentence(result)),)), lines]
    rows = [*singles(result), *noise_singles(result.noise)]
    blocks += [bullets(said), *changes_markdown(result)]
    blocks += singles_lines(rows, result.level, what="What it is")
    if groups := worst_groups(result):
        blocks.append(Fold("Classes and slices", groups))
    if shown := result.regressions[:_IN_MARKDOWN]:
        cells = [(found.id, found.label, found.old, found.new) for found in shown]
        heads = [Column(head, "left") for head in ("Example", "Label", "Old", "New")]
        table = Table(heads, cells)
        total = f"{len(shown)} of {result.regressions_total:,}"
        blocks.append(Fold(f"Largest regressions: {total}", [table]))
    return Document(arrow(result), blocks=blocks)


def notebook(result: Findings) -> list[Block]:
    """Verdict, gates and numbers; figures and groups are on the page only."""
    blocks = [Text((Strong(f"{result.old.name} → {result.new.name}"),))]
    if result.gates:
        blocks += [Text((Strong(gate_sentence(result)),)), gate_rows(_gates(result))]
    blocks += map(Text, (*result.read, *sentences(result), *result.notes))
    return [*blocks, *changes_table(result), singles_table(result)]


def arrow(result: Findings) -> str:
    """`old.npz -> new.npz`, as the terminal and Markdown have it."""
    return f"{result.old.name} -> {result.new.name}"


def about(result: Findings) -> str:
    """What was compared, in one sentence."""
    old, new = (
        f"{side.kind}, {_counted(side.runs, 'run')}, "
        f"{_counted(side.classes, 'class', 'es')}"
        for side in (result.old, result.new)
    )
    sides = f"both: {old}" if old == new else f"old: {old}; new: {new}"
    return f"{_counted(result.examples, 'example')}{_in_clusters(result)}; {sides}"


def _in_clusters(result: Findings) -> str:
    """Of which clusters the examples are."""
    if result.clusters is None:
        return ""
    of = f" of {result.clusters.column}" if result.clusters.column else ""
    return f" in {_counted(result.clusters.count, 'cluster')}{of}"


def _counted(count: int, word: str, plural: str = "s") -> str:
    return f"{count_text(count)} {word}{'' if count == 1 else plural}"


def gate_rows(gates: Sequence[tuple[GateOutcome, str]]) -> Rows:
    """The gates, each with its update in a folder, as coloured lines of the page."""
    lines = []
    for gate, step in gates:
        kind, word = KINDS[gate.state], gate.state.upper()
        rest = gate.line.removeprefix(word).strip()
        lines.append(Text((Strong(word, kind), f" {rest}{step}"), kind))
    return Rows(lines)


def _gates(result: Findings) -> list[tuple[GateOutcome, str]]:
    return [(gate, "") for gate in result.gates]


def gate_lines(gates: Sequence[tuple[GateOutcome, str]], sentence: str) -> list[Block]:
    """The gates in a terminal, each on one line, and how many hold."""
    if not gates:
        return []
    lines = []
    for gate, where in gates:
        kind = KINDS[gate.state] + (" best" if gate.state == "fail" else "")
        lines.append(Text(f"{gate.line}{where}", f"line {kind}"))
    kind = KINDS[state_of(gate.state for gate, _ in gates)]
    return [BLANK, *lines, Text(sentence, f"outcome {kind}")]


def verdict_blocks(result: Findings) -> list[Block]:
    """The first section of the page."""
    blocks: list[Block] = []
    if result.gates:
        kind = f"outcome {KINDS[result.state]}"
        blocks.append(Text(gate_sentence(result), kind))
    first, *others = sentences(result)
    return [*blocks, Text(first, "lead"), *map(Text, others), gate_rows(_gates(result))]


def _facts(result: Findings) -> list[str]:
    """What was compared, in parts of a line."""
    examples = f"{count_text(result.examples)} examples{_in_clusters(result)}"
    examples += "" if result.labelled else " without labels"
    old, new = _side(result.old), _side(result.new)
    return [
        examples,
        *([f"each: {old}"] if old == new else [f"old: {old}", f"new: {new}"]),
    ]


def _side(version: Version) -> str:
    kind = {"classes": "predicted classes"}.get(version.kind, version.kind)
    runs = "1 run" if version.runs == 1 else f"{version.runs} runs"
    return f"{kind}, {count_text(version.classes)} classes, {runs}"


def _noise(result: Findings) -> list[Block]:
    if result.noise is None:
        return []
    said = (
        "Two runs of one version differ though nothing was changed. Only what the "
        "update changes beyond that is its own doing."
    )
    return [Text(said, "soft"), noise_table(result.noise)]


def _flow(result: Findings) -> list[Block]:
    flow = result.flow
    if not sum(flow.examples):
        return [Text("No prediction changes.")]
    runs = result.run_pairs
    changed = result["churn"].value * result.examples
    said = f"{mean_count(changed)} examples change their class"
    if runs > 1:
        said += f", mean over {runs} pairs of runs"
    said += ", from the class in the row to the class in the column"
    if result.labelled:
        said += '; "worse" counts those that were right before and are wrong now'
    if sum(flow.examples) < changed - 0.5:
        said += f"; shown are the {count_text(len(flow.old))} largest flows"
    return [Text(f"{said}.", "soft"), flow_map(flow)]


def _probabilities(result: Findings) -> list[Block]:
    """Reliability and displacement: figures, and what can be told in tables."""
    figures: list[Block] = []
    tables = [] if result.curves is None else [reliability_table(*result.curves)]
    if not has_matplotlib():
        return tables
    if result.curves is not None:
        caption = (
            "On the dotted line, predictions made with confidence 0.8 are right in "
            "80 % of cases. Hollow marks: bins of fewer than 10 examples. Below: how "
            "many examples each bin has."
        )
        drawn = functools.partial(reliability, *result.curves)
        name = reliability.__name__
        figures.append(Figure(drawn, "Reliability", caption, name=name))
    points = result.points
    if points is not None:
        caption = "One mark per example."
        if len(points.outcome) < points.sampled_from:
            caption = (
                f"A sample of {count_text(len(points.outcome))} of the "
                f"{count_text(points.sampled_from)} examples, more of the changed ones "
                "than of the rest: see the numbers below the figure."
            )
        drawn = functools.partial(confidence_and_displacement, points)
        title, name = "Confidence and displacement", drawn.func.__name__
        figures.append(Figure(drawn, title, caption, name=name))
    return [Grid(figures), Fold("As a table", tables)]


def _regressions(result: Findings) -> list[Block]:
    if not result.labelled:
        return []
    listed, total = len(result.regressions), result.regressions_total
    if not listed:
        return [Text("None is listed." if total else "There is none.")]
    runs = result.run_pairs > 1
    of = f"{count_text(listed)} of the {count_text(total)}"
    of = of if listed < total else f"All {count_text(total)}"
    when = "in some pair of runs" if runs else "now"
    said = f"{of} examples that were right before and are wrong {when}, worst first."
    shown = result.regressions[:_REGRESSIONS]
    first, others = (
        regressions_table(part, scored=scored(result), runs=runs)
        for part in (shown[:_LISTED], shown[_LISTED:])
    )
    blocks: list[Block] = [Text(said, "soft"), first]
    if others.rows:
        blocks.append(Fold(f"{count_text(len(others.rows))} more", [others]))
    return blocks


def scored(result: Findings) -> bool:
    """Whether both versions have logits or probabilities."""
    return "classes" not in (result.old.kind, result.new.kind)


def _run(result: Findings, command: str) -> dict[str, str]:
    old, new = (
        f"{side.name}: {_side(side)}, {count_text(side.examples)} examples"
        for side in (result.old, result.new)
    )
    compared = f"{count_text(result.examples)} examples"
    facts = {"Command": command, "Old": old, "New": new, "Compared": compared}
    return facts | made(result.level, "Versions")


def made(level: float, software: str) -> dict[str, str]:
    """When and with what a comparison was made."""
    from churn_compare import __version__

    return {
        "Intervals": f"{level_text(level)} confidence",
        "Date": datetime.date.today().isoformat(),
        software: f"churn_compare {__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}",
    }


def terms(result: Findings) -> list[Term]:
    """Every quantity and test that this comparison has."""
    found: dict[str, str] = {}
    for name in result.quantities:
        quantity = QUANTITIES[name]
        if quantity.is_change:
            continue  # its two versions explain it
        heading = quantity.heading.removesuffix(", old").removesuffix(", new")
        better = quantity.better and f" {quantity.better.capitalize()} is better."
        found.setdefault(heading, f"{quantity.formula}.{better}")
    level = level_text(result.level)
    found[f"{level} interval"] = (
        f"In about {level} of repetitions with other examples (and other runs, where "
        "there are several) such an interval holds the true number. Both versions are "
        "always compared on the same examples."
    )
    if result.labelled:
        found["Negative and positive flips"] = (
            "Examples that were right and are wrong now, and the reverse. Their rates "
            "differ by the gain in accuracy."
        )
    if result.mcnemar is not None:
        swapped = result.clusters is not None
        name = "clusters' sign-flip test" if swapped else "exact McNemar test"
        found[f"p ({name})"] = (
            "How likely as uneven a split into negative and positive flips would be if "
            "both versions were equally accurate. Of several pairs of runs, the median."
        )
    if any(group.adjusted_p == group.adjusted_p for group in result.groups):
        found["Adjusted p (Holm)"] = (
            "p after correction for testing all groups of a table at once: below 0.05 "
            "for even one group by chance happens in at most 5 % of such tables."
        )
    if result.noise is not None:
        found["Expected from retraining alone"] = (
            "Mean churn between two runs of the same version."
        )
    if result.points is not None:
        found["Displacement"] = (
            "Euclidean distance between the old and the new logits of an example, each "
            "centred; of log-probabilities where there are no logits."
        )
    if result.curves is not None:
        found["Reliability"] = (
            "Accuracy of the predictions made with about the same confidence."
        )
    return [Term(name, meaning) for name, meaning in found.items()]
