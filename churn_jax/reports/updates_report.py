"""Model updates of a study as sections of its page, and as `updates.md` and `.csv`."""

import re
from collections.abc import Sequence

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
)
from churn_compare.documents.plotting import COLOURS
from churn_compare.tables import heat_map, matrix_tables
from churn_jax.reports import charts
from churn_jax.reports.cells import (
    ABSENT,
    change_cells,
    difference_fields,
    estimate_fields,
    rate,
)
from churn_jax.reports.charts import Across, Chart, Line, Panel, Point
from churn_jax.reports.paper_numbers import (
    PaperNumbers,
    PaperRow,
    next_to_paper,
    paper_section,
    published_table,
)
from churn_jax.reports.report import Report
from churn_jax.reports.updates import RATES, Gain, UpdateResult, Updates

_WIDE = 150  # columns of a terminal that has room for every rate
_MOST_OPEN = 12  # models; a larger table of all pairs is folded
_SECOND = ("negative_flip_rate", "relative_negative_flip_rate")
_BY_NAME = {quantity.name: quantity for quantity in RATES}


def updates_sections(report: Report) -> tuple[Section, Section]:
    """Tables and figures, and the paper's rates; nothing for a study without."""
    if (updates := report.updates) is None:
        return Section("", []), Section("", [])
    blocks: list[Block] = [Text(remark, "note") for remark in updates.remarks]
    if updates.results:
        every = (Strong("Every model against every other"),)
        few = len(updates.versions) <= _MOST_OPEN
        blocks += [
            updates_table(updates),
            *_gains_table(updates, report.study.config.baseline),
            Fold(every, flip_tables(updates), open=few),
            Grid(
                [
                    _errors_against_flips(updates.whole),
                    *against_setting(updates),
                ]
            ),
        ]
    return Section("Updates", blocks), paper_section(paper_updates(report), "Update")


def updates_document(report: Report) -> Document:
    """Content of `updates.md` and `updates.csv`, fractions at full precision."""
    # One line per update, set of examples and pairing: `all` pairs of an old and a new
    # run, or `own` pairs (r, r) of a targeted update. `first` is 1 on the line that
    # fits the update; it has the published numbers, too.
    found = paper_updates(report)
    results = () if report.updates is None else report.updates.results
    printed = [quantity.name for quantity in (found.metrics if found else ())]
    gained = any(result.gain is not None for result in results)
    rows = []
    for i, result in enumerate(results):
        paper = found.rows[i].paper if found else {}  # in the order of the results
        for pairing, rates in result.rates.items():
            first = rates is result.first
            row: dict = {
                "label": result.label,
                "old": result.old,
                "new": result.new,
                "targeted": int(result.targeted),
                "examples": result.examples,
                "num_examples": int(result.flips.examples),
                "pairing": pairing,
                "first": int(first),
                "pairs": rates.pairs,
            }
            for quantity in RATES:
                row |= estimate_fields(quantity.name, getattr(rates, quantity.name))
            if gained:
                row |= _gain_fields(result.gain if first else None)
            for name in printed:
                number = paper.get(name) if first else None
                row[f"paper_{name}"] = None if number is None else number.mean
                row[f"paper_{name}_doubtful"] = "" if number is None else number.note
            rows.append(row)
    fields = [*rows[0]] if rows else []
    title = f"{report.study.config.title}: updates"
    blocks = updates_sections(report)
    return Document(title, blocks=blocks, data=Records(fields, rows))


_GAINED = (
    *(
        f"delta_{name}{end}"
        for name in ("negative_flip_rate", "new_error")
        for end in ("", "_stderr", "_p", "_p_holm")
    ),
    *("gap_closed", "gap_closed_stderr"),
)


def _gain_fields(gain: Gain | None) -> dict[str, float | None]:
    if gain is None:
        return dict.fromkeys(_GAINED)
    found = {"gap_closed": gain.closed.mean, "gap_closed_stderr": gain.closed.stderr}
    for change in gain.changes:
        found |= difference_fields(*change)
    return {name: found[name] for name in _GAINED}


def updates_table(updates: Updates) -> Table:
    """The rates, one row per update and set of examples."""
    targeted = any("own" in result.rates for result in updates.results)
    second = [q for q in RATES if targeted and q.name in _SECOND]
    known = any(result.examples == "known" for result in updates.results)
    columns = [Column("Update"), Column("Pairs")]
    columns += [Column("Examples")] if known else []
    columns += [Column(q.heading, from_width=0 if q.narrow else _WIDE) for q in RATES]
    columns += [Column(f"{q.heading}, all pairs", from_width=_WIDE) for q in second]
    rows = []
    for result in updates.results:
        own = " own" if "own" in result.rates else ""
        cells = [result.label, f"{result.first.pairs}{own}"]
        if known:
            cells.append(f"{int(result.flips.examples):,} {result.examples}")
        cells += [q.write(getattr(result.first, q.name)) for q in RATES]
        cells += [
            q.write(getattr(result.rates["all"], q.name)) if own else ABSENT
            for q in second
        ]
        rows.append(cells)
    caption = (
        "Mean ± standard error. Over all pairs of an old and a new run, by a jackknife "
        "that leaves out one old run, and one new run, at a time."
    )
    if targeted:
        caption += (
            " Own pairs: new run r was trained against old run r, so the first numbers "
            "of a targeted update are over these pairs alone; the last columns are "
            "over all pairs."
        )
    if known:
        caption += (
            " Known: on the examples whose class the old model knows. On all examples "
            "an old model is wrong wherever it does not know the class."
        )
    return Table(columns, rows, caption=caption)


def _gains_table(updates: Updates, baseline: str) -> list[Table]:
    """How much less updates break than that to the baseline, where it is compared."""
    found = [(r, r.gain) for r in updates.results if r.gain is not None]
    if not found:
        return []
    rows = [
        (
            result.label,
            *(cell for one in gain.changes for cell in change_cells(*one[1:])),
            rate(gain.closed),
        )
        for result, gain in found
    ]
    starts = (r for r in updates.results if r.new == baseline and r.gain is None)
    base = next(result.label for result in starts)
    ideal = (result.label for result, gain in found if gain.closed.mean == 1.0)
    paragon = next(ideal, "an ensemble's")
    caption = (
        f"Difference from {base} with its 95 % interval, as wide as p asks for. NFR: a "
        "jackknife that leaves run r of all models out at a time; ER: paired by run. "
        "p: two-sided (Student's t, R - 1 degrees of freedom), Holm-adjusted over the "
        f"updates. Gap closed: how far NFR is on the way from {base} to {paragon}."
    )
    heads = ("Update", "NFR, points", "p", "ER new, points", "p", "Gap closed %")
    return [Table(heads, rows, "Against no treatment", caption)]


def flip_tables(updates: Updates) -> list[Table]:
    """Every two models, on all examples and, if they know other classes, on known."""
    found = matrix_tables(updates.matrices, updates.labels)
    if (known := updates.known_flips) is not None:
        title = "Negative flips (NFR) %, known"
        caption = "NFR on the examples whose class the old model knows."
        found.append(heat_map(updates.labels, 100 * known, title, caption, 2))
    return found


def _shown(result: UpdateResult, name: str) -> tuple[float, float]:
    """A rate that fits the update and its standard error, per cent."""
    return _BY_NAME[name].shown(getattr(result.first, name))


def _errors_against_flips(results: Sequence[UpdateResult]) -> Figure:
    points = [
        Point(
            i,
            result.label,
            _shown(result, "new_error"),
            _shown(result, "negative_flip_rate"),
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

            def line(place: int, label: str, name: str, of=of) -> Line:
                y, bars = zip(*(_shown(result, name) for result in of.values()))
                return Line(place, label, [*of], y, bars)

            before = f"{rest}: " if len(chosen) > 1 else ""
            flips.append(line(i, rest or "NFR", "negative_flip_rate"))
            errors += [
                line(2 * i + k, f"{before}ER {which}", f"{which}_error")
                for k, which in enumerate(("old", "new"))
            ]
        chart = Chart(
            "against_setting",
            "What the setting does",
            "As in Figure 6 of the paper. Bars: one standard error.",
            "NFR and error rates against the size of the ensemble or the weight",
            (5.4, 4.2),
        )
        ticks = sorted({value for _, of in chosen for value in of})
        panels = [Panel("NFR %", flips), Panel("ER %", errors)]
        found.append(charts.lines(chart, panels, Across(heading, ticks=ticks)))
    return found


def paper_updates(report: Report) -> PaperNumbers | None:
    """A paper's update rates next to those measured; None where there are none."""
    # A published row is that of an update if it is named `old->new`, or like the new
    # row alone.
    if (updates := report.updates) is None:
        return None
    found = published_table(report.study)
    printed = found.printed - {"churn"} if found is not None else ()
    metrics = tuple(q for q in RATES if q.name in printed)
    if found is None or not metrics:
        return None
    # The paper's old error rates leave out classes that the old model does not know.
    known = {(r.old, r.new) for r in updates.results if r.examples == "known"}
    rows, used, versions = [], set(), set()
    for result in updates.results:
        pair = f"{result.old}->{result.new}"
        name = pair if pair in found.rows else result.new
        of_known = result.examples == "known"
        label = f"{result.label} (known classes)" if of_known else result.label
        paper = {}
        if name not in used and (of_known or (result.old, result.new) not in known):
            paper = found.rows.get(name, {})
            used.add(name)
            versions |= {result.old, result.new} if paper else set()
        measured = {q.name: getattr(result.first, q.name) for q in metrics}
        rows.append(PaperRow(name, label, paper, measured))
    return next_to_paper(report, found, metrics, rows, versions)
