"""The report of an update: one document, of which each writer shows a level of detail.

Verdict is what a terminal shows, summary a comment and a notebook, full the page.
"""

import datetime
import functools
import platform
from collections.abc import Iterable, Sequence

import numpy as np

from churn_compare.display import CompareResult
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
from churn_compare.result import GateOutcome, Judged, Version
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


def document(result: CompareResult, command: str = "") -> Document:
    """The report of an update; drawing its figures takes a while."""
    facts = {
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
    gates: Sequence[tuple[GateOutcome, str]] = (),
    sentence: str = "",
) -> list[Section]:
    """What was read, the gates and the sentences: the start of every report."""
    lines = []
    for gate, step in gates or [(gate, "") for gate in result.gates]:
        kind, word = KINDS[gate.state], gate.state.upper()
        parts = Strong(word, kind), f"{gate.line.removeprefix(word)}{step}"
        lines.append(Text(parts, f"line {kind}"))
    found = Strong(sentence or gate_sentence(result))
    texts = (Text(text, "lead" * (not i)) for i, text in enumerate(said))
    blocks = [Text((found,), f"outcome {KINDS[result.state]}"), Rows(lines), *texts]
    read = Rows([Text(note) for note in notes], kind="note remark")
    return [Section("", [read]), Section("", blocks, kind="said")]


def what_was_run(facts: dict[str, str], level: float) -> Section:
    """When and with what a comparison was made."""
    facts |= made(level, "Software")
    return Section("What was run", [Facts(facts)], detail="full")


def sections(result: CompareResult) -> list[Section]:
    """The numbers, figures and tables of an update."""
    noise: list[Block] = []
    if result.noise is not None:
        said = (
            "Two runs of one version differ though nothing was changed. Only what the "
            "update changes beyond that is its own doing."
        )
        noise = [Text(said, "soft"), noise_table(result.noise)]
    grouped = {
        group_title(of): group_blocks(of, groups, result.level, result.labelled)
        for of, groups in result.groupings.items()
    }
    return [
        Section("", changes_table(result)),
        Section("The update", [singles_table(result)], detail="summary"),
        Section("More than retraining?", noise, detail="summary"),
        Section("Where changed predictions go", _flow(result), detail="full"),
        Section("Probabilities", _probabilities(result), detail="full"),
        *(
            Section(title, inside, detail="summary")
            for title, inside in grouped.items()
        ),
        Section("Largest regressions", _regressions(result), detail="summary"),
    ]


def about(result: CompareResult) -> str:
    """What was compared, in one line."""
    old, new = _side(result.old), _side(result.new)
    sides = f"each: {old}" if old == new else f"old: {old}; new: {new}"
    said = _counted(result.examples, "example")
    if result.clusters is not None:
        of = f" of {result.clusters.column}" if result.clusters.column else ""
        said += f" in {_counted(result.clusters.count, 'cluster')}{of}"
    return f"{said}{'' if result.labelled else ' without labels'}; {sides}"


def _counted(count: int, word: str) -> str:
    return f"{count_text(count)} {word}{'' if count == 1 else 's'}"


def _side(version: Version) -> str:
    kind = {"classes": "predicted classes"}.get(version.kind, version.kind)
    classes = f"{count_text(version.classes)} classes"
    return f"{kind}, {classes}, {_counted(version.runs, 'run')}"


def _flow(result: CompareResult) -> list[Block]:
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


def _probabilities(result: CompareResult) -> list[Block]:
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


def _regressions(result: CompareResult) -> list[Block]:
    if not result.labelled:
        return []
    listed, total = len(result.regressions), result.regressions_total
    if not listed:
        return [Text("None is listed." if total else "There is none.")]
    when = "in some pair of runs" if result.run_pairs > 1 else "now"
    of = f"{count_text(listed)} of the {count_text(total)}"
    of = of if listed < total else f"All {count_text(total)}"
    said = f"{of} examples that were right before and are wrong {when}, worst first."
    first, others = (
        regressions_table(result, result.regressions[part])
        for part in (slice(_LISTED), slice(_LISTED, _REGRESSIONS))
    )
    more = Fold(f"{count_text(len(others.rows))} more", [others])
    return [Text(said, "soft"), first, *([more] if others.rows else [])]


def made(level: float, software: str) -> dict[str, str]:
    """When and with what a comparison was made."""
    from churn_compare import __version__

    return {
        "Intervals": f"{level_text(level)} confidence",
        "Date": datetime.date.today().isoformat(),
        software: f"churn_compare {__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}",
    }


def quantity_terms(names: Iterable[str], level: float, runs: str) -> dict[str, str]:
    """Quantities and what they are, then intervals; changes explain themselves."""
    found: dict[str, str] = {}
    for name in names:
        if name not in QUANTITIES or QUANTITIES[name].is_change:
            continue
        formula, better = QUANTITIES[name].formula, QUANTITIES[name].better
        first, *rest = formula.split(" ")
        if first.islower() and "_" not in first:
            formula = " ".join((first.capitalize(), *rest))
        # Of scores, the measure knows it.
        known = better and not name.startswith("score")
        heading = QUANTITIES[name].heading.removesuffix(", old").removesuffix(", new")
        said = (
            f"{formula}. {better.capitalize()} is better." if known else f"{formula}."
        )
        found.setdefault(heading, said)
    found[f"{level_text(level)} interval"] = (
        f"In about {level_text(level)} of repetitions with other examples such an "
        f"interval holds the true number. {runs}"
    )
    return found


def terms(result: CompareResult) -> list[Term]:
    """Every quantity and test that this comparison has."""
    runs = (
        "Several runs are taken as a sample, too. Both versions are always compared on "
        "the same examples."
    )
    found = quantity_terms(result.quantities, result.level, runs)
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
