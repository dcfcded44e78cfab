"""Model updates as blocks of a document, as Markdown and as CSV."""

import re

import numpy as np

from churn_compare.documents import (
    Block,
    Column,
    Document,
    Figure,
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
from churn_compare.documents.plotting import COLOURS
from churn_compare.tables import heat_map, matrix_tables
from churn_jax.reports import charts
from churn_jax.reports.cells import (
    ABSENT,
    change_cell,
    difference_fields,
    estimate_fields,
    p_value,
    rate,
)
from churn_jax.reports.charts import Across, Chart, Line, Panel, Point
from churn_jax.reports.paper_numbers import (
    PaperNumbers,
    PaperRow,
    assemble,
    paper_caption,
    paper_section,
    published_table,
)
from churn_jax.reports.report import Report
from churn_jax.reports.updates import RATES, Gain, Rates, UpdateResult, Updates

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
    " Own pairs: new run r was trained against old run r, so the first numbers of a "
    "targeted update are over these pairs alone; the last columns are over all pairs."
)
_KNOWN = (
    " Known: on the examples whose class the old model knows. On all examples an old "
    "model is wrong wherever it does not know the class."
)
_GAIN_HEADS = ("Update", "NFR, points", "p", "ER new, points", "p", "Gap closed %")
_GAIN_CAPTION = (
    "Difference from {base} with its 95 % interval, as wide as p asks for. NFR: a "
    "jackknife that leaves run r of all models out at a time; ER: paired by run. p: "
    "two-sided (Student's t, R - 1 degrees of freedom), Holm-adjusted over the "
    "updates. Gap closed: how far NFR is on the way from {base} to {paragon}."
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
            updates_table(updates),
            *_gains_table(updates, report.study.config.baseline),
            Fold((Strong(_EVERY),), flip_tables(updates), open=few),
            Grid(updates_figures(updates)),
        ]
    return Section("Updates", blocks)


def updates_markdown(report: Report) -> str:
    """The text of `updates.md`."""
    paper = paper_section(paper_updates(report), "Update")
    blocks = [updates_section(report), paper]
    return markdown(Document(f"{report.study.config.title}: updates", blocks=blocks))


def updates_csv(report: Report) -> str:
    """The text of `updates.csv`, fractions at full precision."""
    # One line per update, set of examples and pairing: `all` pairs of an old and a new
    # run, or `own` pairs (r, r) of a targeted update. `first` is 1 on the line that
    # fits the update; it has the published numbers, too.
    updates, found = report.updates, paper_updates(report)
    if updates is None:
        raise ValueError(f"{report.study.folder} is not a study of model updates")
    printed = [quantity.name for quantity in (found.metrics if found else ())]
    fields = ["label", "old", "new", "targeted", "examples", "num_examples"]
    fields += ["pairing", "first", "pairs"]
    for quantity in RATES:
        fields += [quantity.name, f"{quantity.name}_std", f"{quantity.name}_stderr"]
    gained = next((r.gain for r in updates.results if r.gain is not None), None)
    fields += _gain_fields(gained)
    for name in printed:
        fields += [f"paper_{name}", f"paper_{name}_doubtful"]
    rows = []
    for i, result in enumerate(updates.results):
        paper = found.rows[i].paper if found else {}  # in the order of the results
        own = [("own", result.own_pairs)] if result.own_pairs else []
        for pairing, rates in [*own, ("all", result.all_pairs)]:
            row = _numbers(result, pairing, rates)
            row |= _gain_fields(result.gain) if rates is result.first else {}
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


def _gain_fields(gain: Gain | None) -> dict[str, float]:
    if gain is None:
        return {}
    return {
        **difference_fields("delta_negative_flip_rate", gain.negative_flip_rate),
        "delta_negative_flip_rate_p": gain.negative_flip_rate.p,
        "delta_negative_flip_rate_p_holm": gain.negative_flip_rate_p,
        **difference_fields("delta_new_error", gain.new_error),
        "delta_new_error_p": gain.new_error.p,
        "delta_new_error_p_holm": gain.new_error_p,
        "gap_closed": gain.closed.mean,
        "gap_closed_stderr": gain.closed.stderr,
    }


def updates_table(updates: Updates) -> Table:
    """The rates, one row per update and set of examples."""
    targeted = any(result.own_pairs for result in updates.results)
    second = [q for q in RATES if targeted and q.name in _SECOND]
    known = any(result.examples == "known" for result in updates.results)
    heads = ["Update", "Pairs", *(["Examples"] if known else [])]
    columns = [Column(head) for head in heads]
    columns += [Column(q.heading, from_width=0 if q.narrow else _WIDE) for q in RATES]
    columns += [Column(f"{q.heading}, all pairs", from_width=_WIDE) for q in second]
    rows = []
    for result in updates.results:
        own = " own" if result.own_pairs else ""
        cells = [result.label, f"{result.first.pairs}{own}"]
        if known:
            cells.append(f"{result.num_examples:,} {result.examples}")
        cells += [q.write(getattr(result.first, q.name)) for q in RATES]
        cells += [
            q.write(getattr(result.all_pairs, q.name)) if own else ABSENT
            for q in second
        ]
        rows.append(cells)
    caption = _CAPTION + (_TARGETED if targeted else "") + (_KNOWN if known else "")
    return Table(columns, rows, caption=caption)


def _gains_table(updates: Updates, baseline: str) -> list[Table]:
    """How much less updates break than that to the baseline, where it is compared."""
    found = [(r, r.gain) for r in updates.results if r.gain is not None]
    if not found:
        return []
    rows = [
        (
            result.label,
            change_cell(gain.negative_flip_rate, gain.negative_flip_rate_p, 100, 2),
            p_value(gain.negative_flip_rate_p),
            change_cell(gain.new_error, gain.new_error_p, 100, 2),
            p_value(gain.new_error_p),
            rate(gain.closed),
        )
        for result, gain in found
    ]
    starts = (r for r in updates.results if r.new == baseline and r.gain is None)
    base = next(result.label for result in starts)
    ideal = (result.label for result, gain in found if gain.closed.mean == 1.0)
    caption = _GAIN_CAPTION.format(base=base, paragon=next(ideal, "an ensemble's"))
    return [Table(_GAIN_HEADS, rows, "Against no treatment", caption)]


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


def updates_figures(updates: Updates) -> list[Figure]:
    """Errors against flips, rates against a setting, ranks of wrong classes."""
    return [
        _errors_against_flips(updates),
        *against_setting(updates),
        _rank_histogram(updates),
    ]


def _percent(result: UpdateResult, name: str) -> tuple[float, float]:
    """A rate that fits the update and its standard error, per cent."""
    found = getattr(result.first, name)
    return 100 * found.mean, 100 * found.stderr


def _errors_against_flips(updates: Updates) -> Figure:
    results = updates.whole
    points = [
        Point(
            i,
            result.label,
            _percent(result, "new_error"),
            _percent(result, "negative_flip_rate"),
            # A ninth update has the first one's colour, so it needs another shape.
            shape=i + i // len(COLOURS),
        )
        for i, result in enumerate(results)
    ]
    chart = Chart(
        "errors_against_flips",
        "Error rate against negative flips",
        "One point per update, as in Figure 1 of the paper: left and down is better. "
        "Bars: one standard error.",
        "New error rate against negative flip rate of every update",
        (5.4, 3.4 + 0.2 * -(-len(results) // 2)),  # room for the labels below
    )
    x = "Error rate of the new model %   (less is better)"
    return charts.scatter(chart, points, x, "NFR %   (less is better)")


# A label that ends in what a study varies: ", m = 4", "(alpha=0.8)", " m=2".
_SETTING = re.compile(
    r"^(?P<rest>.*?)[\s,(]*\b(?P<name>m|alpha)\s*=\s*(?P<value>\d+(?:\.\d*)?)\)?$"
)
_SYMBOLS = {"m": "Networks of the ensemble, m", "alpha": "Weight of LDI, α"}


def curves(updates: Updates) -> dict[tuple[str, str], dict[float, UpdateResult]]:
    """Updates whose label ends in `m=<integer>` or `alpha=<number>`, in its order."""
    groups: dict[tuple[str, str], dict[float, UpdateResult]] = {}
    for result in updates.whole:
        if found := _SETTING.match(result.label):
            key = found["name"], found["rest"].strip()
            groups.setdefault(key, {})[float(found["value"])] = result
    return {
        key: {value: of[value] for value in sorted(of)}
        for key, of in groups.items()
        if len(of) > 1
    }


def against_setting(updates: Updates) -> list[Figure]:
    """NFR and both error rates against m, or alpha (Figure 6); none without curves."""
    found = []
    for setting, heading in _SYMBOLS.items():
        chosen = [(r, of) for (n, r), of in curves(updates).items() if n == setting]
        flips, errors = [], []
        for i, (rest, of) in enumerate(chosen):
            before = f"{rest}: " if len(chosen) > 1 else ""
            named = [(flips, "negative_flip_rate", i, rest or "NFR")]
            named += [
                (errors, f"{which}_error", 2 * i + k, f"{before}ER {which}")
                for k, which in enumerate(("old", "new"))
            ]
            for lines, name, place, label in named:
                y, bars = zip(*(_percent(result, name) for result in of.values()))
                lines.append(Line(place, label, [*of], y, bars))
        chart = Chart(
            "against_setting",
            "What the setting does",
            "As in Figure 6 of the paper. Bars: one standard error.",
            "NFR and error rates against the size of the ensemble or the weight",
            (5.4, 4.2),
        )
        ticks = sorted({value for _, of in chosen for value in of})
        across = Across(heading, ticks=ticks)
        panels = [Panel("NFR %", flips), Panel("ER %", errors)]
        found.append(charts.lines(chart, panels, across))
    return found


RANKS = 10  # the last one drawn by itself; what is above is one more point
MOST_SHOWN = 8  # updates in the figure of ranks


def _rank_histogram(updates: Updates) -> Figure:
    """Negative flips by the rank of their wrong class in the old model (Figure 4)."""
    results = [result for result in updates.whole if result.ranks.sum()]
    highest = max((len(result.ranks) for result in results), default=1) - 1
    last, more = min(highest, RANKS), highest > RANKS
    places = [*range(2, last + 1 + more)]
    lines = []
    for i, result in enumerate(results[:MOST_SHOWN]):
        counts = np.zeros(max(highest, last) + 1)
        counts[: len(result.ranks)] = result.ranks
        shown = [*counts[2 : last + 1], *[counts[last + 1 :].sum()][:more]]
        share = 100 * np.array(shown) / counts.sum()
        lines.append(Line(i, result.label, places, share))
    chart = Chart(
        "rank_histogram",
        "Rank of the wrong class in the old model",
        "Negative flips alone, as in Figure 4 of the paper: the class that the new "
        "model wrongly predicts was the old model's runner-up at rank 2.",
        "Rank in the old model of the wrong class of negative flips",
        (5.4, 4.2),
    )
    across = Across(
        "Rank in the old model of the class predicted by the new one",
        ticks=places,
        form=lambda rank: f"> {RANKS}" if rank > RANKS else f"{rank:g}",
    )
    panel = Panel("Share of negative flips %", lines, limits=(0, None))
    return charts.lines(chart, [panel], across)


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
