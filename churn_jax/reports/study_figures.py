"""The figures of a study's page."""

import numpy as np

from churn_compare.documents import Figure
from churn_compare.documents.plotting import (
    INK,
    bars_by_row,
    colour,
    line_style,
    short_label,
)
from churn_jax.reports import charts
from churn_jax.reports.charts import Chart, Point
from churn_jax.reports.quantities import QUANTITIES, Quantity
from churn_jax.reports.report import Report, Row

RUNS_SHOWN = 20  # per method in the pairwise map


def first_figure(report: Report) -> Figure:
    """Accuracy, or log loss, against churn, or Delta_1 where a study is about it."""
    about, quality = report.headline, QUANTITIES[report.quality]
    up, what = ("Down", "Log loss") if quality.name == "nll" else ("Up", "Accuracy")
    if about.name != "prediction_difference":  # reproducibility, in any study
        about = QUANTITIES["churn"]
    chart = Chart(
        "accuracy_against_churn",
        f"{what} against reproducibility",
        f"{up} and left is better. Bars: one standard error.",
        f"{what} against {about.what} of every method, with standard errors",
    )
    points = _points(report, about, quality)
    heading = f"{about.heading}   (less is better)"
    return charts.scatter(chart, points, heading, quality.heading)


def study_figures(report: Report) -> list[Figure]:
    """The figures under the heading of that name; most studies lack some."""
    if not report.rows:
        return []
    return [
        on_reference_curve(report),
        pairwise_churn(report),
        churn_by_correctness(report),
        training_curves(report),
    ]


def _points(report: Report, across: Quantity, up: Quantity) -> list[Point]:
    """Rows with both numbers."""
    found = []
    for i, row in enumerate(report.rows):
        x, y = (quantity.shown(row.summary) for quantity in (across, up))
        if np.isfinite(x[0]) and np.isfinite(y[0]):
            found.append(Point(i, row.label, x, y))
    return found


def on_reference_curve(report: Report) -> Figure:
    """Calibrated NLL of deep ensembles by size, and where every row lands on it."""
    curve, rows = report.reference, report.rows
    points = _points(report, QUANTITIES["dee"], QUANTITIES["calibrated_nll"])
    if curve is None:
        return Figure()
    points = [one for one in points if rows[one.place].info.name != curve.name]

    def behind(axes):
        from matplotlib.ticker import MaxNLocator

        sizes = np.arange(1, len(curve.mean) + 1)
        spread = np.nan_to_num(curve.std)
        low, high = curve.mean - spread, curve.mean + spread
        axes.fill_between(sizes, low, high, color=INK, alpha=0.12, linewidth=0)
        label = f"Deep ensembles of {short_label(curve.label)}"
        style = {"color": INK, "linewidth": 1.5, "marker": "."}
        axes.plot(sizes, curve.mean, label=label, **style)
        for one in points:
            style = {"linewidth": 0.8, "linestyle": ":", "zorder": 0}
            axes.axhline(one.y[0], color=colour(one.place), **style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    chart = Chart(
        "on_reference_curve",
        "Worth how many networks",
        "Line and band: deep ensembles, mean and standard deviation over runs, each "
        "calibrated for itself. Points: deep-ensemble equivalent and calibrated NLL of "
        "every other method, bars one standard error. A point at the left end is worse "
        "than one network, one at the right end at least as good as the largest "
        "ensemble.",
        "Calibrated NLL of deep ensembles by size, and of every method",
        (5.4, 4.4),
    )
    x, y = "Members of a deep ensemble", "Calibrated NLL   (less is better)"
    return charts.scatter(chart, points, x, y, margins=0.08, behind=behind)


def pairwise_churn(report: Report) -> Figure:
    """Share of examples any two runs predict differently, runs grouped by method."""
    classes = [row.summary.classes[:RUNS_SHOWN] for row in report.rows]

    def draw(axes):
        runs = np.concatenate(classes)
        churn = 100 * np.stack([np.mean(run != runs, axis=1) for run in runs])
        np.fill_diagonal(churn, np.nan)
        edges = np.cumsum([0, *map(len, classes)])
        middle = (edges[:-1] + edges[1:] - 1) / 2
        finite = churn[np.isfinite(churn)]
        low, high = (finite.min(), finite.max()) if finite.size else (0, 1)
        scale = {"vmin": low, "vmax": high, "cmap": "cividis"}
        image = axes.imshow(churn, interpolation="none", **scale)
        for edge in edges[1:-1] - 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
            axes.axvline(edge, color="white", linewidth=1.5)
        short = [short_label(row.label) for row in report.rows]
        axes.set_yticks(middle, short)
        axes.set_xticks(middle, short, rotation=40, ha="right", rotation_mode="anchor")
        axes.tick_params(length=0)
        bar = axes.figure.colorbar(image, ax=axes, shrink=0.85)
        bar.set_label("Churn %")
        bar.outline.set_visible(False)

    chart = Chart(
        "pairwise_churn",
        "Every two runs",
        "Blocks on the diagonal are runs of one method; off the diagonal, runs of "
        "different methods. Dark stripes there: run r of both methods has the same "
        "seeds, and churns less than other pairs do. A run and itself: empty. At most "
        f"{RUNS_SHOWN} runs per method.",
        "Churn between every two runs, grouped by method",
        (5.4, 4.6),
    )
    return chart.of(draw)


def churn_by_correctness(report: Report) -> Figure:
    """Churn on the examples one of two runs gets right, and on those it gets wrong."""
    labels, kinds = [row.label for row in report.rows], {}
    names = {"churn_correct": "on right examples", "churn_incorrect": "on wrong"}
    for name, label in names.items():
        found = [getattr(row.summary, name) for row in report.rows]
        kinds[label] = [100 * e.mean for e in found], [100 * e.std for e in found]
    if not np.isfinite([numbers for numbers, _ in kinds.values()]).any():
        return Figure()

    def draw(axes):
        bars_by_row(axes, labels, kinds)
        axes.set_xlabel("Churn %")

    chart = Chart(
        "churn_by_correctness",
        "Where the churn is",
        "Churn on the examples that one of two runs gets right, and on those it gets "
        "wrong; both directions averaged. Bars: standard deviation over pairs.",
        "Churn on right and on wrong examples, by method",
        (5.4, 1.5 + 0.45 * len(labels)),
    )
    return chart.of(draw)


_CURVES = (
    ("train/loss", "Training loss", 1),
    ("validation/accuracy", "Validation accuracy %", 100),
    ("validation/churn", "Validation churn %", 100),
)
# Of clicks, before they were learned.
_ALONG = (
    ("validation/nll", "Log loss, nats", 1),
    ("validation/auc", "Area under the ROC curve", 1),
    ("validation/positive_prediction_difference", "Δʳ₁", 1),
)


def training_curves(report: Report) -> Figure:
    """Training loss, validation accuracy and churn, the mean over runs."""
    stream = report.study.one_pass
    panels: dict[str, list[tuple]] = {}
    for name, title, scale in _ALONG if stream else _CURVES:
        for i, row in enumerate(report.rows):
            x, mean = _curve(row, name, stream)
            if len(x):
                panels.setdefault(title, []).append((i, row.label, x, scale * mean))
    epochs = all(np.isfinite(row.history.epochs).all() for row in report.rows)
    said = (
        "Mean over the runs that finished. The loss is each method's own objective: "
        "its height cannot be compared between methods."
    )
    if stream:
        said = "Each point is of the examples since the last, before they were learned."
    chart = Chart(
        "training_curves",
        "Along the stream" if stream else "Training",
        said,
        "Training curves, mean over runs, by method",
        (5.4, 0.6 + 2.1 * len(panels)),
    )

    def draw(*every):
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            for i, label, x, mean in lines:
                style = line_style(i, label, size=None) | {"linewidth": 1.5}
                style["marker"] = "." if len(x) < 3 else None
                axes.plot(x, mean, **style)
            axes.set(ylabel=title)
        axes.set(xlabel="Window" if stream else "Epoch" if epochs else "Step")

    return chart.of(draw, len(panels)) if panels else Figure()


def _curve(row: Row, name: str, by_step: bool) -> tuple[np.ndarray, np.ndarray]:
    """Epochs, or steps, and the mean over the runs that finished; empty without."""
    steps, epochs = row.history.steps, row.history.epochs
    values = row.history.series.get(name, np.full((len(steps), 1), np.nan))
    stopped = [r for r in row.summary.stopped if r < values.shape[1]]
    if 1 < values.shape[1] > len(stopped):  # [T, R]; [T, 1] is about all runs
        values = np.delete(values, stopped, axis=1)
    good = np.isfinite(values).any(axis=1)
    x = steps if by_step or not np.isfinite(epochs).all() else epochs
    return x[good], np.nanmean(values[good], axis=1)
