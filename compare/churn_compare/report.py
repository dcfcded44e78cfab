"""The report of an update: one document, of which each writer shows a level of detail.

Verdict is what a terminal shows, summary a comment and a notebook, full the page.
"""

import datetime
import functools
import platform
from collections.abc import Sequence

import numpy as np

from churn_compare.documents import (
    Block,
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
from churn_compare.figures import (
    confidence_and_displacement,
    has_matplotlib,
    reliability,
)
from churn_compare.group_tables import group_blocks, group_title
from churn_compare.number_text import count_text, level_text, remark
from churn_compare.quantities import QUANTITIES
from churn_compare.result import Findings, GateOutcome, Judged, Version
from churn_compare.tables import (
    changes_table,
    flow_map,
    mean_count,
    noise_table,
    regressions_table,
    reliability_table,
    singles_table,
)
from churn_compare.verdict import gate_sentence, sentences

_LISTED, _REGRESSIONS = 50, 2000  # on the page: shown openly, and at all
KINDS = {"pass": "good", "fail": "bad", "inconclusive": "mixed"}  # of texts


def document(result: Findings, command: str = "") -> Document:
    """The report of an update; drawing its figures takes a while."""
    facts = {"Command": command} | {
        side.name: f"{_side(side)}, {_counted(side.examples, 'example')}"
        for side in (result.old, result.new)
    }
    blocks = [
        *verdict(result, sentences(result), [*result.read, *map(remark, result.notes)]),
        *sections(result),
        what_was_run(facts, result.level),
        Section("Glossary", [Terms(terms(result))], detail="full"),
    ]
    title = f"{result.old.name} → {result.new.name}"
    return Document(title, [about(result)], blocks, command)


def verdict(
    result: Judged,
    said: Sequence[str],
    notes: Sequence[str],
    gates: Sequence[tuple[GateOutcome, str]] | None = None,
    sentence: str = "",
) -> list[Section]:
    """What was read, the gates and the sentences: the start of every report."""
    each = [(gate, "") for gate in result.gates] if gates is None else gates
    sentence = sentence or gate_sentence(result)
    blocks: list[Block] = [Text((Strong(sentence),), f"outcome {KINDS[result.state]}")]
    blocks += [
        gate_rows(each),
        *(Text(s, "lead" * (not i)) for i, s in enumerate(said)),
    ]
    read = Rows([Text(note) for note in notes], kind="note remark")
    return [Section("", [read]), Section("", blocks, kind="said")]


def what_was_run(facts: dict[str, str], level: float) -> Section:
    """When and with what a comparison was made."""
    return Section(
        "What was run", [Facts(facts | made(level, "Software"))], detail="full"
    )


def sections(result: Findings) -> list[Section]:
    """The numbers, figures and tables of an update."""
    return [
        Section("", changes_table(result)),
        Section("The update", [singles_table(result)], detail="summary"),
        Section("More than retraining?", _noise(result), detail="summary"),
        Section("Where changed predictions go", _flow(result), detail="full"),
        Section("Probabilities", _probabilities(result), detail="full"),
        *(
            Section(
                group_title(grouping),
                group_blocks(grouping, groups, result.level, result.labelled),
                detail="summary",
            )
            for grouping, groups in result.groupings.items()
        ),
        Section("Largest regressions", _regressions(result), detail="summary"),
    ]


def about(result: Findings) -> str:
    """What was compared, in one line."""
    old, new = _side(result.old), _side(result.new)
    sides = f"each: {old}" if old == new else f"old: {old}; new: {new}"
    labels = "" if result.labelled else " without labels"
    examples = f"{_counted(result.examples, 'example')}{_in_clusters(result)}{labels}"
    return f"{examples}; {sides}"


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
        rest = gate.line.removeprefix(word)
        lines.append(Text((Strong(word, kind), f"{rest}{step}"), f"line {kind}"))
    return Rows(lines)


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
    tables: list[Block] = (
        [] if result.curves is None else [reliability_table(*result.curves)]
    )
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
    folded = [Fold("As a table", tables)] if tables else []
    return [Grid(figures), *folded] if figures else []


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
    more = Fold(f"{count_text(len(others.rows))} more", [others])
    return [Text(said, "soft"), first, *([more] if others.rows else [])]


def scored(result: Findings) -> bool:
    """Whether both versions have logits or probabilities."""
    return "classes" not in (result.old.kind, result.new.kind)


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
