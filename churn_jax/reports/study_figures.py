"""The figures of a study's page, as SVG text.

How they look is in `churn_compare.documents.plotting`.
"""

import numpy as np

from churn_compare.documents.plotting import (
    INK,
    bars_by_row,
    colour,
    dash,
    drawing,
    legend,
    line_style,
    point,
    short_label,
)
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.quantities import QUANTITIES
from churn_jax.reports.report import Report, Row

RUNS_SHOWN = 20  # per method in the pairwise map
FEWEST_IN_BIN = 20  # reliability of fewer examples is noise


def _scaled(estimate: Estimate, scale: float) -> tuple[float, float]:
    """The mean and its standard error."""
    return scale * estimate.mean, scale * estimate.stderr


def accuracy_against_churn(report: Report) -> str:
    """Accuracy against churn, or Delta_1 where a study is about it; standard errors."""
    about = report.headline
    if about.name != "prediction_difference":  # reproducibility, in any study
        about = QUANTITIES["churn"]
    found = [getattr(row.summary, about.name) for row in report.rows]
    if not np.isfinite([e.mean for e in found]).any():
        return ""
    with drawing(5.4, 4.0) as (figure, done):
        axes = figure.add_subplot()
        for i, (row, estimate) in enumerate(zip(report.rows, found, strict=True)):
            x = _scaled(estimate, about.scale)
            if np.isfinite(x[0]):
                y = _scaled(row.summary.accuracy, 100)
                point(axes, i, x, y, row.info.label)
        axes.set(xlabel=f"{about.heading}   (less is better)", ylabel="Accuracy %")
        axes.margins(0.15)
        legend(figure, axes)
        what = about.heading.removesuffix(" %")
        return done(f"Accuracy against {what} of every method, with standard errors")


def pairwise_churn(report: Report) -> str:
    """Share of examples any two runs predict differently, runs grouped by method."""
    classes = [row.summary.curves.classes[:RUNS_SHOWN] for row in report.rows]
    sizes = [len(c) for c in classes]
    runs = np.concatenate(classes)
    churn = np.stack([np.mean(run != runs, axis=1) for run in runs])
    np.fill_diagonal(churn, np.nan)
    edges = np.cumsum([0, *sizes])
    middle = (edges[:-1] + edges[1:] - 1) / 2
    with drawing(5.4, 4.6) as (figure, done):
        axes = figure.add_subplot()
        finite = churn[np.isfinite(churn)]
        low, high = (finite.min(), finite.max()) if finite.size else (0, 0.01)
        scale = {"vmin": 100 * low, "vmax": 100 * high, "cmap": "cividis"}
        image = axes.imshow(100 * churn, interpolation="none", **scale)
        for edge in edges[1:-1] - 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
            axes.axvline(edge, color="white", linewidth=1.5)
        labels = [short_label(row.info.label) for row in report.rows]
        axes.set_yticks(middle, labels)
        axes.set_xticks(middle, labels, rotation=40, ha="right", rotation_mode="anchor")
        axes.tick_params(length=0)
        bar = figure.colorbar(image, ax=axes, shrink=0.85)
        bar.set_label("Churn %")
        bar.outline.set_visible(False)
        return done("Churn between every two runs, grouped by method")


def churn_by_correctness(report: Report) -> str:
    """Churn on the examples one of two runs gets right, and on those it gets wrong."""
    bars = {}
    for name, label in (
        ("churn_correct", "on right examples"),
        ("churn_incorrect", "on wrong"),
    ):
        found = [getattr(row.summary, name) for row in report.rows]
        bars[label] = [100 * e.mean for e in found], [100 * e.std for e in found]
    if not np.isfinite([means for means, _ in bars.values()]).any():
        return ""
    labels = [row.info.label for row in report.rows]
    with drawing(5.4, 1.5 + 0.45 * len(labels)) as (figure, done):
        axes = figure.add_subplot()
        bars_by_row(axes, labels, bars)
        axes.set_xlabel("Churn %")
        legend(figure, axes)
        return done("Churn on right and on wrong examples, by method")


def confidence_histogram(report: Report) -> str:
    """Distribution of prediction confidence, the margin of the top two classes."""
    from matplotlib.ticker import LogFormatter

    with drawing(5.4, 3.8) as (figure, done):
        axes = figure.add_subplot()
        for i, row in enumerate(report.rows):
            counts = row.summary.curves.confidence_counts
            axes.stairs(
                100 * counts / max(counts.sum(), 1),
                np.linspace(0, 1, len(counts) + 1),
                color=colour(i),
                linestyle=dash(i),
                linewidth=1.8,
                label=short_label(row.info.label),
            )
        axes.set_xlabel("Prediction confidence (top minus second probability)")
        axes.set(ylabel="Examples %, log scale", yscale="log", xlim=(0, 1))
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(LogFormatter(minor_thresholds=(2, 0.5)))  # 10, not ten to the one
        legend(figure, axes)
        return done("Histogram of prediction confidence, by method")


def reliability_diagram(report: Report) -> str:
    """Accuracy against top probability in 15 bins; on the diagonal is calibrated."""
    with drawing(5.4, 4.4) as (figure, done):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.5)
        for i, row in enumerate(report.rows):
            curves = row.summary.curves
            enough = curves.bin_counts >= FEWEST_IN_BIN
            axes.plot(
                curves.bin_probability[enough],
                curves.bin_accuracy[enough],
                **line_style(i, row.info.label, size=4),
                linewidth=1.5,
            )
        axes.set(xlabel="Top probability", ylabel="Accuracy")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        legend(figure, axes)
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
    with drawing(5.4, 0.6 + 2.1 * len(shown)) as (figure, done):
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, title, scale) in zip(panels, shown, strict=True):
            for i, row in enumerate(report.rows):
                if (curve := _curve(row, name)) is None:
                    continue
                x, mean = curve
                style = line_style(i, row.info.label, size=None)
                style |= {"linewidth": 1.5, "marker": "." if len(x) < 3 else None}
                axes.plot(x, scale * mean, **style)
            axes.set_ylabel(title)
        panels[-1].set_xlabel("Epoch" if _has_epochs(report) else "Step")
        legend(figure, panels[0])
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


NLL = "calibrated_nll"
LESS = "Calibrated NLL   (less is better)"


def _places(report: Report, across: str) -> list[tuple[int, Row]]:
    """Rows with both numbers, by their place in the study."""
    return [
        (i, row)
        for i, row in enumerate(report.rows)
        if np.isfinite(getattr(row.summary, across).mean)
        and np.isfinite(row.summary.calibrated_nll.mean)
    ]


def _point(axes, place: int, row: Row, across: Estimate, scale: float = 1.0) -> None:
    y = _scaled(row.summary.calibrated_nll, 1)
    point(axes, place, _scaled(across, scale), y, row.info.label)


def on_reference_curve(report: Report) -> str:
    """Calibrated NLL of deep ensembles by size, and where every row lands on it."""
    from matplotlib.ticker import MaxNLocator

    curve = report.reference
    rows = [
        (i, row)
        for i, row in _places(report, "dee")
        if curve is not None and row.info.name != curve.name
    ]
    if curve is None or not rows:
        return ""
    sizes = np.arange(1, len(curve.mean) + 1)
    with drawing(5.4, 4.4) as (figure, done):
        axes = figure.add_subplot()
        spread = np.nan_to_num(curve.std)
        low, high = curve.mean - spread, curve.mean + spread
        axes.fill_between(sizes, low, high, color=INK, alpha=0.12, linewidth=0)
        label = f"Deep ensembles of {short_label(curve.label)}"
        style = {"color": INK, "linewidth": 1.5, "marker": "."}
        axes.plot(sizes, curve.mean, label=label, **style)
        for i, row in rows:
            nll = row.summary.calibrated_nll.mean
            axes.axhline(nll, color=colour(i), linewidth=0.8, linestyle=":", zorder=0)
            _point(axes, i, row, row.summary.dee)
        axes.set(xlabel="Members of a deep ensemble", ylabel=LESS)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(0.08)
        legend(figure, axes)
        return done("Calibrated NLL of deep ensembles by size, and of every method")


def against_parameters(report: Report) -> str:
    """What a lower calibrated NLL costs in trained numbers."""
    return _against(report, "parameters", "Parameters, millions, log scale", 1e-6)


def against_diversity(report: Report) -> str:
    """Whether members that differ more are better together."""
    return _against(report, "member_kl", "KL of two members, nats", 1.0)


def _against(report: Report, across: str, label: str, scale: float) -> str:
    from matplotlib.ticker import FuncFormatter, NullLocator

    if report.headline.name != NLL:
        return ""
    rows = _places(report, across)
    values = {getattr(row.summary, across).mean for _, row in rows}
    if len(values) < 2:
        return ""
    with drawing(5.4, 4.0) as (figure, done):
        axes = figure.add_subplot()
        for i, row in rows:
            _point(axes, i, row, getattr(row.summary, across), scale)
        if across == "parameters":
            axes.set_xscale("log")
            axes.set_xticks(_spaced([scale * value for value in values]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set(xlabel=label, ylabel=LESS)
        axes.margins(0.15)
        legend(figure, axes)
        what = QUANTITIES[across].heading.lower()
        return done(f"Calibrated NLL against {what} of every method")


def _spaced(values: list[float]) -> list[float]:
    """Values whose labels do not overlap on a logarithmic axis."""
    kept: list[float] = []
    for value in sorted(values):
        if not kept or value > 1.25 * kept[-1]:
            kept.append(value)
    return kept
