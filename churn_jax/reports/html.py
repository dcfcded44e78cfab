"""`report.html`: one file that needs nothing else, on a screen, a phone or paper.

No scripts, no fonts, no images from elsewhere. Whatever comes from a file is escaped.
"""

from pathlib import Path

from churn_jax.configuration.record import Stopped
from churn_jax.documents.html import html_blocks
from churn_jax.escaping import escape
from churn_jax.predictions import replace_file
from churn_jax.reports import (
    agreement,
    ambiguous,
    beside,
    bounds,
    equivalent_plots,
    plots,
    sizes,
    strengths,
)
from churn_jax.reports.cells import times
from churn_jax.reports.factors import training_table
from churn_jax.reports.glossary import GLOSSARY
from churn_jax.reports.page import (
    facts_table,
    figure,
    figures_section,
    header,
    page,
    run_facts,
    run_section,
    scrolling_table,
)
from churn_jax.reports.report import Report, Row, collect
from churn_jax.reports.tables import columns
from churn_jax.reports.updates_report import beside_updates, updates_section

__all__ = ["render", "write_report"]

FIRST = (
    plots.accuracy_against_churn,
    "Accuracy against reproducibility",
    "Up and left is better. Bars: one standard error.",
)
FIGURES = (
    (
        sizes.churn_against_training_size,
        "Training-set size",
        "Bars: one standard error, leaving one run out at a time.",
    ),
    (
        strengths.against_strength,
        "Strength of the penalty",
        "Bars and the band around the baseline: one standard error.",
    ),
    (
        strengths.against_members,
        "Size of the ensemble",
        "Bars: one standard error, leaving one run out at a time.",
    ),
    (
        equivalent_plots.on_reference_curve,
        "Worth how many networks",
        "Line and band: deep ensembles, mean and standard deviation over runs, each "
        "calibrated for itself. Points: deep-ensemble equivalent and calibrated NLL of "
        "every other method, bars one standard error. A point at the left end is worse "
        "than one network, one at the right end at least as good as the largest "
        "ensemble.",
    ),
    (
        equivalent_plots.against_parameters,
        "Calibrated NLL against size",
        "Down and left is better. Bars: one standard error.",
    ),
    (
        equivalent_plots.against_diversity,
        "Calibrated NLL against diversity",
        "Rows with several members. Bars: one standard error.",
    ),
    (
        plots.pairwise_churn,
        "Every two runs",
        "Blocks on the diagonal are runs of one method; off the diagonal, runs of "
        "different methods. Dark stripes there: run r of every method has the same "
        "seeds, so run r of two methods churns less than other pairs do. A run and "
        f"itself: empty. At most {plots.RUNS_SHOWN} runs per method.",
    ),
    (
        plots.churn_by_correctness,
        "Where the churn is",
        "Churn on the examples that one of two runs gets right, and on those it gets "
        "wrong; both directions averaged. Bars: standard deviation over pairs.",
    ),
    (
        plots.training_curves,
        "Training",
        "Mean over the runs that finished. The loss is each method's own objective: "
        "its height cannot be compared between methods.",
    ),
    (
        plots.confidence_histogram,
        "Prediction confidence",
        "All runs pooled, 10 bins. More confident is not better calibrated.",
    ),
    (
        plots.reliability_diagram,
        "Reliability",
        "All runs pooled, 15 bins; above the line is under-confident. Bins with fewer "
        f"than {plots.FEWEST_IN_BIN} examples are left out.",
    ),
)


def write_report(run_dir) -> Path:
    """Write `report.html` into a run folder.

    Args:
        run_dir: the folder of a study.

    Returns:
        The path written.

    Raises:
        ReportError: there is no usable `study.json`.
        OSError: the file could not be written; an earlier one is left as it was.
    """
    path = Path(run_dir) / "report.html"
    page = render(collect(run_dir))
    with replace_file(path) as file:
        file.write(page.encode())
    return path


def render(report: Report) -> str:
    """The page as text.

    Args:
        report: from `collect`.

    Returns:
        A whole HTML document.
    """
    study = report.study
    return page(
        study.title,
        (
            _header(report),
            _results(report),
            _training(report),
            html_blocks([updates_section(report)]),
            _beside_updates(report),
            agreement.html_section(report),
            beside.html_section(report),
            _figures(report),
            ambiguous.html_section(report),
            bounds.html_section(report),
            _methods(report),
            run_section(
                study.record,
                {
                    "Runs per method": study.replicas,
                    "Rows not asked for": ", ".join(study.unselected.values()),
                    "Settings": " ".join(study.config.notes),
                },
            ),
            _glossary(),
        ),
    )


def _beside_updates(report: Report) -> str:
    found = beside_updates(report)
    return beside.html_table(found, "Update") if found else ""


def _header(report: Report) -> str:
    """The title, what was run, the sentence to take away and one figure."""
    out = [header(report.study.title, run_facts(report.study.record), None)]
    if report.best:
        named, _, rest = escape(report.best).partition(". ")
        out.append(f'<p class="best"><strong>{named}.</strong> {rest}</p>')
    if report.rows:
        draw, title, caption = FIRST
        out.append('<div class="grid first">' + figure(draw(report), title, caption))
        out.append(f"<div>{_verdicts(report)}</div></div>")
    return "\n".join(out)


def _verdicts(report: Report) -> str:
    verdicts = [row for row in report.rows if row.verdict]
    if not verdicts:
        return ""
    lines = "\n".join(
        f'<li class="{row.tone}"><strong>{escape(row.info.label)}</strong>: '
        f"{escape(row.verdict)}</li>"
        for row in verdicts
    )
    against = f"<h3>Against {escape(report.baseline_label)}</h3>"
    return f'{against}<ul class="verdicts">{lines}</ul>'


def _results(report: Report) -> str:
    out = ["<section><h2>Results</h2>"]
    out += [f'<p class="note">{escape(remark)}</p>' for remark in report.remarks]
    out += [f"<p>{escape(sentence)}</p>" for sentence in report.context]
    if report.rows:
        out.append(_main_table(report))
    return "\n".join([*out, "</section>"])


def _main_table(report: Report) -> str:
    shown = columns(report)
    rows = [[column.cell(row) for column in shown] for row in report.rows]
    table = scrolling_table([c.header for c in shown], rows, "main")
    return f'<p class="soft">{escape(report.caption)}</p>{table}'


def _training(report: Report) -> str:
    """What runs share, row by row; nothing where all rows train alike."""
    head, *rows = training_table(report.study, [r.info for r in report.rows]) or [()]
    if not head:
        return ""
    table = scrolling_table(head, rows, "words")
    return f"<section><h2>What the rows differ in</h2>{table}</section>"


def _figures(report: Report) -> str:
    if not report.rows:
        return ""
    return figures_section(
        (draw(report), title, caption) for draw, title, caption in FIGURES
    )


def _methods(report: Report) -> str:
    out = ['<section><h2>Methods</h2><div class="grid">']
    for row in report.rows:
        others = {  # what the table has no column for
            quantity.heading: quantity.write(getattr(row.summary, quantity.name))
            for quantity in report.quantities
            if quantity not in report.columns and quantity.name != "parameters"
        }
        out.append(
            f'<div class="card"><h3>{escape(row.info.label)}</h3>'
            f"{facts_table(_method_facts(row))}<details><summary>More numbers"
            f"</summary>{facts_table(others)}</details></div>"
        )
    for missing in report.missing:
        out.append(
            f'<div class="card"><h3>{escape(missing.info.label)}</h3>'
            f"<p>Not in the tables: {escape(missing.reason)}.</p></div>"
        )
    return "\n".join([*out, "</div></section>"])


def _method_facts(row: Row) -> dict[str, str]:
    info, summary = row.info, row.summary
    facts = {
        "Equation": info.equation,
        "Coefficients": ", ".join(
            f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}"
            for k, v in info.coefficients.items()
        ),
        "Networks": _text(info.members),
        "Cost": _cost(info.training_cost, info.inference_cost),
        "Parameters": "" if info.parameters is None else f"{info.parameters:,}",
        "Training": _seconds(info.seconds, info.compile_seconds),
        "Runs counted": f"{len(summary.runs)}, on {summary.examples:,} examples",
    }
    if summary.stopped:
        told = {stop.replica: stop for stop in info.stopped}
        facts["Stopped runs"] = "; ".join(
            _stop(told.get(run, Stopped(run))) for run in summary.stopped
        )
    return {name: value for name, value in facts.items() if value}


def _stop(stop: Stopped) -> str:
    """`2, term cross_entropy, step 120`."""
    term = f", term {stop.term}" if stop.term else ""
    return f"{stop.replica}{term}" + (
        "" if stop.step is None else f", step {stop.step}"
    )


def _cost(training, inference) -> str:
    if training is None and inference is None:
        return ""
    return f"training {times(training)}, inference {times(inference)}"


def _seconds(seconds, compile_seconds) -> str:
    if seconds is None:
        return ""
    extra = "" if compile_seconds is None else f" + {compile_seconds:.1f} s compiling"
    return f"{seconds:,.1f} s{extra}"


def _glossary() -> str:
    out = ["<section><h2>Glossary</h2><dl>"]
    for name, source, formula, meaning in GLOSSARY:
        where = f' <span class="soft">{escape(source)}</span>' if source else ""
        out.append(
            f"<dt>{escape(name)}{where}</dt>"
            f'<dd><span class="math">{escape(formula)}</span><br>{escape(meaning)}</dd>'
        )
    return "\n".join([*out, "</dl></section>"])


def _text(value) -> str:
    return "" if value is None else str(value)
