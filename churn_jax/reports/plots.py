"""Figures of a report as SVG text that sits inside an HTML page.

Colours are the Okabe-Ito palette, repeated with other markers and dashes, so no method
is told apart by colour alone. Text and axes take the colour of the surrounding page
(`currentColor`), so one figure serves light, dark and print. Matplotlib is imported
when a figure is drawn, not when this module is.
"""

import html
import io
import re
import warnings
from contextlib import contextmanager

import numpy as np

from churn_jax.reports.report import Report, Row

__all__ = [
    "accuracy_against_churn",
    "churn_by_correctness",
    "confidence_histogram",
    "pairwise_churn",
    "reliability_diagram",
    "training_curves",
]

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#8C8C8C",
    "#B8A800",
)
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":")
INK = "#010203"  # stands for currentColor until the SVG is written
RUNS_SHOWN = 20  # per method in the pairwise map
FEWEST_IN_BIN = 20  # reliability of fewer examples is noise
LONGEST_LABEL = 28


def accuracy_against_churn(report: Report) -> str:
    """Accuracy against churn, one marker per method, with standard errors."""
    with _figure(5.4, 4.0) as (figure, done):
        axes = figure.add_subplot()
        for i, row in enumerate(report.rows):
            accuracy, churn = row.summary.accuracy, row.summary.churn
            if not np.isfinite(churn.mean):
                continue
            axes.errorbar(
                100 * churn.mean,
                100 * accuracy.mean,
                xerr=_bar(100 * churn.stderr),
                yerr=_bar(100 * accuracy.stderr),
                fmt=MARKERS[i % len(MARKERS)],
                color=_colour(i),
                markersize=8,
                capsize=3,
                alpha=0.85,
                label=_label(row),
            )
        axes.set_xlabel("Churn %   (less is better)")
        axes.set_ylabel("Accuracy %")
        axes.margins(0.15)
        _legend(figure, axes)
        return done("Accuracy against churn of every method, with standard errors")


def pairwise_churn(report: Report) -> str:
    """Share of examples any two runs predict differently, runs grouped by method."""
    classes = [row.summary.curves.classes[:RUNS_SHOWN] for row in report.rows]
    sizes = [len(c) for c in classes]
    runs = np.concatenate(classes)
    churn = np.stack([np.mean(run != runs, axis=1) for run in runs])
    np.fill_diagonal(churn, np.nan)
    edges = np.cumsum([0, *sizes])
    middle = (edges[:-1] + edges[1:] - 1) / 2
    with _figure(5.4, 4.6) as (figure, done):
        axes = figure.add_subplot()
        finite = churn[np.isfinite(churn)]
        image = axes.imshow(
            100 * churn,
            cmap="cividis",
            interpolation="none",
            vmin=100 * finite.min() if finite.size else 0,
            vmax=100 * finite.max() if finite.size else 1,
        )
        for edge in edges[1:-1] - 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
            axes.axvline(edge, color="white", linewidth=1.5)
        labels = [_label(row) for row in report.rows]
        axes.set_yticks(middle, labels)
        axes.set_xticks(middle, labels, rotation=40, ha="right", rotation_mode="anchor")
        axes.tick_params(length=0)
        bar = figure.colorbar(image, ax=axes, shrink=0.85)
        bar.set_label("Churn %")
        bar.outline.set_visible(False)
        return done("Churn between every two runs, grouped by method")


def churn_by_correctness(report: Report) -> str:
    """Churn on the examples one of two runs gets right, and on those it gets wrong."""
    labels = [_label(row) for row in report.rows]
    places = np.arange(len(labels))
    with _figure(5.4, 1.5 + 0.45 * len(labels)) as (figure, done):
        axes = figure.add_subplot()
        for k, (name, label) in enumerate(
            (("churn_correct", "on right examples"), ("churn_incorrect", "on wrong"))
        ):
            estimates = [getattr(row.summary, name) for row in report.rows]
            mean = 100 * np.array([e.mean for e in estimates])
            axes.barh(
                places + 0.2 * (2 * k - 1),
                np.nan_to_num(mean),
                height=0.38,
                xerr=np.nan_to_num([100 * e.std for e in estimates]),
                color=COLOURS[k],
                hatch=("", "///")[k],
                edgecolor="white",
                ecolor=INK,
                capsize=2,
                label=label,
            )
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set_xlabel("Churn %")
        axes.set_xlim(left=0)
        _legend(figure, axes)
        return done("Churn on right and on wrong examples, by method")


def confidence_histogram(report: Report) -> str:
    """Distribution of prediction confidence, the margin of the top two classes."""
    from matplotlib.ticker import LogFormatter

    with _figure(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        for i, row in enumerate(report.rows):
            counts = row.summary.curves.confidence_counts
            axes.stairs(
                100 * counts / max(counts.sum(), 1),
                np.linspace(0, 1, len(counts) + 1),
                color=_colour(i),
                linestyle=_dash(i),
                linewidth=1.8,
                label=_label(row),
            )
        axes.set_xlabel("Prediction confidence (top minus second probability)")
        axes.set_ylabel("Examples %, log scale")
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(LogFormatter(minor_thresholds=(2, 0.5)))  # 10, not ten to the one
        axes.set_xlim(0, 1)
        _legend(figure, axes)
        return done("Histogram of prediction confidence, by method")


def reliability_diagram(report: Report) -> str:
    """Accuracy against top probability in 15 bins; on the diagonal is calibrated."""
    with _figure(5.4, 4.4) as (figure, done):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.5)
        for i, row in enumerate(report.rows):
            curves = row.summary.curves
            enough = curves.bin_counts >= FEWEST_IN_BIN
            axes.plot(
                curves.bin_probability[enough],
                curves.bin_accuracy[enough],
                color=_colour(i),
                linestyle=_dash(i),
                marker=MARKERS[i % len(MARKERS)],
                markersize=4,
                linewidth=1.5,
                label=_label(row),
            )
        axes.set_xlabel("Top probability")
        axes.set_ylabel("Accuracy")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        _legend(figure, axes)
        return done("Reliability diagram: accuracy against top probability, by method")


CURVES = (
    ("train/loss", "Training loss", 1),
    ("validation/accuracy", "Validation accuracy %", 100),
    ("validation/churn", "Validation churn %", 100),
)


def training_curves(report: Report) -> str:
    """Training loss, validation accuracy and churn; empty text without any curve."""
    shown = [
        curve
        for curve in CURVES
        if any(_curve(row, curve[0]) is not None for row in report.rows)
    ]
    if not shown:
        return ""
    with _figure(5.4, 0.6 + 2.1 * len(shown)) as (figure, done):
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, title, scale) in zip(panels, shown, strict=True):
            for i, row in enumerate(report.rows):
                if (curve := _curve(row, name)) is None:
                    continue
                x, mean = curve
                axes.plot(
                    x,
                    scale * mean,
                    color=_colour(i),
                    linestyle=_dash(i),
                    marker="." if len(x) < 3 else None,
                    linewidth=1.5,
                    label=_label(row),
                )
            axes.set_ylabel(title)
        panels[-1].set_xlabel("Epoch" if _has_epochs(report) else "Step")
        _legend(figure, panels[0])
        return done("Training curves, mean over runs, by method")


def _has_epochs(report: Report) -> bool:
    return all(np.isfinite(row.history.epochs).all() for row in report.rows)


def _curve(row: Row, name: str):
    values = row.history.series.get(name)
    if values is None or not np.isfinite(values).any():
        return None
    stopped = [r for r in row.summary.stopped if r < values.shape[1]]
    if len(stopped) < values.shape[1]:  # [T, R]; a [T, 1] series is about all runs
        values = np.delete(values, stopped if values.shape[1] > 1 else [], axis=1)
    good = np.isfinite(values).any(axis=1)
    epochs, steps = row.history.epochs, row.history.steps
    x = epochs if np.isfinite(epochs).all() else steps
    if not good.any():
        return None
    return x[good], np.nanmean(values[good], axis=1)


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _dash(i: int) -> str:
    return DASHES[i % len(DASHES)]


def _label(row: Row) -> str:
    """The method's label as Matplotlib takes it: no mathematics, never hidden."""
    text = " ".join(row.info.label.split())
    if len(text) > LONGEST_LABEL:
        text = text[: LONGEST_LABEL - 1] + "…"
    text = text.replace("$", r"\$")
    return "\u200b" + text if text.startswith("_") else text


def _bar(stderr: float):
    return stderr if np.isfinite(stderr) else None


def _legend(figure, axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = 2 if len(labels) > 1 else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@contextmanager
def _figure(width: float, height: float):
    """A figure and the function that turns it into inline SVG with a description."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "font.size": 10,
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "svg.fonttype": "none",
        "hatch.linewidth": 0.6,
    }
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color")
    style |= dict.fromkeys((*ink, "ytick.color"), INK)

    figure = Figure(figsize=(width, height), layout="constrained")

    def done(description: str) -> str:
        matplotlib.rcParams["svg.hashsalt"] = description  # ids differ between figures
        out = io.StringIO()
        figure.savefig(
            out,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )
        return _inline(out.getvalue(), description)

    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser has the fonts
        yield figure, done


def _inline(svg: str, description: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[A-Za-z0-9.]+_\d+"', "<g", svg)  # would repeat in the page
    (width, height), *_ = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{html.escape(description)}">'
    )
    svg = re.sub(r"<svg\b[^>]*>", lambda _: opening, svg, count=1)
    return svg.replace(INK, "currentColor")
