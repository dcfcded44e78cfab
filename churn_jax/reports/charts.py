"""Charts of a page: numbers in, a figure out, drawn when the page is written.

How they look is in `churn_compare.documents.plotting`. A chart of nothing is an empty
figure, which no page shows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from churn_compare.documents import Figure
from churn_compare.documents.plotting import (
    INK,
    drawing,
    error_line,
    legend,
    level,
    line_style,
    point,
    short_label,
)

Values = Sequence[float] | np.ndarray


class Chart(NamedTuple):
    """The text next to a chart, and its size in inches."""

    name: str
    title: str
    caption: str
    words: str  # what it shows, for those who cannot see it
    size: tuple[float, float] = (5.4, 4.0)

    def of(self, draw: Callable[[Any], Any]) -> Figure:
        """A figure that `draw` fills; it returns the axes that the legend is of."""

        def svg() -> str:
            with drawing(*self.size) as (figure, done):
                legend(figure, draw(figure))
                return done(self.words)

        return Figure(svg, self.title, self.caption, name=self.name)


class Point(NamedTuple):
    """A point with standard errors, of the row at some place of the study."""

    place: int
    label: str
    x: tuple[float, float]
    y: tuple[float, float]
    shape: int | None = None  # place whose marker it has, if that is another one


class Line(NamedTuple):
    """A line, with standard errors or, if they are None, without."""

    place: int
    label: str
    x: Values
    y: Values
    errors: Values | None = None
    style: Mapping[str, Any] = {}


class Level(NamedTuple):
    """A number with its standard error that lies across a panel."""

    label: str
    y: float
    error: float
    style: Mapping[str, Any] = {"linewidth": 1.0, "linestyle": ":", "color": INK}
    alpha: float = 0.12


class Panel(NamedTuple):
    """Lines over one axis; `limits` are those of y."""

    ylabel: str
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    title: str = ""
    limits: tuple[float | None, float | None] | None = None


class Across(NamedTuple):
    """The axis that all panels of a chart share."""

    label: str
    scale: str = "linear"
    ticks: Sequence[float] = ()
    form: Callable[[float], str] = "{:g}".format
    rotation: float = 0
    limits: tuple[float, float] | None = None
    mark: float | None = None  # where a dotted line is


def scatter(
    chart: Chart,
    points: Sequence[Point],
    x: str,
    y: str,
    *,
    margins: float = 0.15,
    behind: Callable[[Any], None] = lambda axes: None,
) -> Figure:
    """One point per row; `behind` draws what else is there."""
    if not points:
        return Figure()

    def draw(figure):
        axes = figure.add_subplot()
        behind(axes)
        for one in points:
            point(axes, one.place, one.x, one.y, one.label, one.shape)
        axes.set(xlabel=x, ylabel=y)
        axes.margins(margins)
        return axes

    return chart.of(draw)


def lines(
    chart: Chart, panels: Sequence[Panel], across: Across, columns: int = 1
) -> Figure:
    """Panels over one axis, with one legend."""
    panels = [panel for panel in panels if panel.lines]
    if not panels:
        return Figure()

    def draw(figure):
        from matplotlib.ticker import FuncFormatter, NullLocator

        rows = -(-len(panels) // columns)
        every = figure.subplots(rows, columns, sharex=True, squeeze=False)
        for axes, panel in zip(every.flat, panels):
            for one in panel.levels:
                style = dict(one.style)
                if one.label:
                    style["label"] = short_label(one.label)
                level(axes, one.y, one.error, alpha=one.alpha, **style)
            for i, label, x, y, errors, style in panel.lines:
                if errors is None:
                    drawn = line_style(i, label, size=None) | {"linewidth": 1.5}
                    axes.plot(x, y, **{**drawn, **style})
                else:
                    error_line(axes, i, x, y, errors, label, **style)
            axes.set(ylabel=panel.ylabel)
            axes.set_title(panel.title, fontsize=10)
            if across.mark is not None:
                axes.axvline(across.mark, color=INK, linewidth=1.0, linestyle=":")
            if panel.limits is not None:
                axes.set_ylim(*panel.limits)
        for axes in every[-1]:
            axes.set(xscale=across.scale, xlabel=across.label)
            if across.limits is not None:
                axes.set_xlim(*across.limits)
            if across.ticks:
                axes.set_xticks(across.ticks)
                form = FuncFormatter(lambda x, _: across.form(x))
                axes.xaxis.set_major_formatter(form)
                axes.xaxis.set_minor_locator(NullLocator())
            axes.tick_params(axis="x", rotation=across.rotation)
        first = {one.label for one in panels[0].lines}
        for one in (one for panel in panels[1:] for one in panel.lines):
            if one.label not in first:  # the legend is of the first panel
                every[0, 0].plot([], [], **line_style(one.place, one.label, size=None))
                first.add(one.label)
        return every[0, 0]

    return chart.of(draw)
