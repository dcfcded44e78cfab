"""Model updates as blocks of a document, as Markdown and as CSV."""

from churn_compare.documents import (
    Block,
    Column,
    Document,
    Fold,
    Grid,
    Records,
    Section,
    Strong,
    Table,
    Text,
    csv_text,
    markdown,
)
from churn_compare.documents.plotting import drawn_later
from churn_compare.tables import heat_map, matrix_tables
from churn_jax.reports import updates_figures
from churn_jax.reports.cells import ABSENT, estimate_fields
from churn_jax.reports.paper_numbers import (
    PaperNumbers,
    PaperRow,
    assemble,
    paper_caption,
    paper_section,
    published_table,
)
from churn_jax.reports.report import Report
from churn_jax.reports.updates import RATES, Rates, UpdateResult, Updates
from churn_jax.reports.updates_compared import gain_fields, gains_table

_WIDE = 150  # columns of a terminal that has room for every rate
_MOST_OPEN = 12  # models; a larger table of all pairs is folded
_ARROW = "->"  # between the two rows of an update that a published table names
_SECOND = ("negative_flip_rate", "relative_negative_flip_rate")
_EVERY = "Every model against every other"
_CAPTION = (
    "Mean ± standard error. Over all pairs of an old and a new run, by a jackknife "
    "that leaves out one old run, and one new run, at a time."
)
_TARGETED = (
    "Own pairs: new run r was trained against old run r, so the first numbers of a "
    "targeted update are over these pairs alone; the last columns are over all pairs."
)
_KNOWN = (
    "Known: on the examples whose class the old model knows. On all examples an old "
    "model is wrong wherever it does not know the class."
)
_FIGURES = (
    (
        updates_figures.errors_against_flips,
        "Error rate against negative flips",
        "One point per update, as in Figure 1 of the paper: left and down is better. "
        "Bars: one standard error.",
    ),
    (
        updates_figures.chains,
        "Chains of versions",
        "NFR %, of their own pairs where the new version was trained against the old "
        "one; dotted: of versions that are not next to each other, over all pairs of "
        "runs where this is no update of the study. Below a version: its error rate.",
    ),
    (
        updates_figures.against_setting,
        "What the setting does",
        "As in Figure 6 of the paper. Bars: one standard error.",
    ),
    (
        updates_figures.rank_histogram,
        "Rank of the wrong class in the old model",
        "Negative flips alone, as in Figure 4 of the paper: the class that the new "
        "model wrongly predicts was the old model's runner-up at rank 2.",
    ),
)


def updates_section(report: Report) -> Section:
    """Tables and figures; without blocks for a study without updates."""
    updates = report.updates
    if updates is None:
        return Section("", [])
    blocks: list[Block] = [Text(remark, "note") for remark in updates.remarks]
    if updates.results:
        few = len(updates.versions) <= _MOST_OPEN
        blocks += [
            updates_table(updates, " ".join(_sentences(updates))),
            *_gains(report),
            Fold((Strong(_EVERY),), flip_tables(updates), open=few),
            Grid(drawn_later(_FIGURES, updates)),
        ]
    return Section("Updates", blocks)


def _gains(report: Report) -> list[Table]:
    found = gains_table(_updates(report).results, report.study.config.baseline)
    return [] if found is None else [found]


def updates_markdown(report: Report) -> str:
    """The text of `updates.md`."""
    blocks = [updates_section(report)]
    if paper := paper_updates(report):
        blocks.append(paper_section(paper, "Update"))
    return markdown(Document(f"{report.study.config.title}: updates", blocks=blocks))


def updates_csv(report: Report) -> str:
    """The text of `updates.csv`, fractions at full precision."""
    # One line per update, set of examples and pairing: `all` pairs of an old and a new
    # run, or `own` pairs (r, r) of a targeted update. `first` is 1 on the line that
    # fits the update; it has the published numbers, too.
    updates = _updates(report)
    found = paper_updates(report)
    printed = [quantity.name for quantity in (found.metrics if found else ())]
    fields = ["label", "old", "new", "targeted", "examples", "num_examples"]
    fields += ["pairing", "first", "pairs"]
    for quantity in RATES:
        fields += [quantity.name, f"{quantity.name}_std", f"{quantity.name}_stderr"]
    gained = next((r.gain for r in updates.results if r.gain is not None), None)
    fields += gain_fields(gained)
    for name in printed:
        fields += [f"paper_{name}", f"paper_{name}_doubtful"]
    rows = []
    for i, result in enumerate(updates.results):
        paper = found.rows[i].paper if found else {}  # in the order of the results
        own = [("own", result.own_pairs)] if result.own_pairs else []
        for pairing, rates in [*own, ("all", result.all_pairs)]:
            row = _numbers(result, pairing, rates)
            row |= gain_fields(result.gain) if rates is result.first else {}
            for name in printed if rates is result.first else ():
                if (number := paper.get(name)) is not None:
                    row[f"paper_{name}"] = number.mean
                    row[f"paper_{name}_doubtful"] = number.note
            rows.append(row)
    return csv_text(Records(fields, rows))


def _numbers(result: UpdateResult, pairing: str, rates: Rates) -> dict:
    row: dict = {
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
        row |= estimate_fields(quantity.name, getattr(rates, quantity.name))
    return row


def _updates(report: Report) -> Updates:
    if report.updates is None:
        raise ValueError(f"{report.study.folder} is no study of model updates")
    return report.updates


def _sentences(updates: Updates) -> tuple[str, ...]:
    """What the numbers of `updates_table` are."""
    out = [_CAPTION]
    if any(result.second for result in updates.results):
        out.append(_TARGETED)
    if any(result.examples == "known" for result in updates.results):
        out.append(_KNOWN)
    return tuple(out)


def updates_table(updates: Updates, caption: str = "") -> Table:
    """The rates, one row per update and set of examples."""
    second = [q for q in RATES if q.name in _SECOND]
    if not any(result.second for result in updates.results):
        second = []
    known = any(result.examples == "known" for result in updates.results)
    heads = ["Update", "Pairs", *(["Examples"] if known else [])]
    columns = [Column(head) for head in heads]
    columns += [Column(q.heading, from_width=0 if q.narrow else _WIDE) for q in RATES]
    columns += [Column(f"{q.heading}, all pairs", from_width=_WIDE) for q in second]
    rows = []
    for result in updates.results:
        cells = [
            result.label,
            f"{result.first.pairs}{' own' if result.own_pairs else ''}",
        ]
        if known:
            cells.append(f"{result.num_examples:,} {result.examples}")
        cells += [q.write(getattr(result.first, q.name)) for q in RATES]
        cells += [
            q.write(getattr(result.second, q.name)) if result.second else ABSENT
            for q in second
        ]
        rows.append(cells)
    return Table(columns, rows, caption=caption)


def flip_tables(updates: Updates) -> list[Table]:
    """Every two models, on all examples and, if they know other classes, on known."""
    if updates.matrices is None:
        return []
    found = matrix_tables(updates.matrices, updates.labels)
    if (known := updates.known_flips) is not None:
        title = "Negative flips (NFR) %, known"
        caption = "NFR on the examples whose class the old model knows."
        found.append(heat_map(updates.labels, 100 * known, title, caption, 2))
    return found


def paper_updates(report: Report) -> PaperNumbers | None:
    """A paper's update rates next to those measured; None where there are none."""
    # A published row is that of an update if it is named `old->new`, or like the new
    # row alone.
    updates, found = report.updates, published_table(report.study)
    if updates is None or found is None:
        return None
    printed = {metric for row in found.rows.values() for metric in row}
    metrics = tuple(q for q in RATES if q.name in printed and q.name != "churn")
    if not metrics:
        return None
    # The paper's old error rates leave out classes that the old model does not know.
    known = {(r.old, r.new) for r in updates.results if r.examples == "known"}
    rows, used, versions = [], set(), set()
    for result in updates.results:
        pair = f"{result.old}{_ARROW}{result.new}"
        name = pair if pair in found.rows else result.new
        of_known = result.examples == "known"
        label = f"{result.label} (known classes)" if of_known else result.label
        paper = {}
        if name not in used and (of_known or (result.old, result.new) not in known):
            paper = dict(found.rows.get(name, {}))
            used.add(name)
            if paper:
                versions |= {result.old, result.new}
        measured = {q.name: getattr(result.first, q.name) for q in metrics}
        rows.append(PaperRow(name, label, paper, measured))
    infos = [row.info for row in report.rows if row.info.name in versions]
    caption = paper_caption(report.study, found, metrics, infos)
    return assemble(report.study, found, metrics, rows, caption)
