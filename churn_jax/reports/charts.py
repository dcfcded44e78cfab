"""Charts of a page: numbers in, a figure out, drawn when the page is written.

How they look is in `churn_compare.documents.plotting`. A chart of nothing is an empty
figure, which no page shows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from churn_compare.documents import Figure
from churn_compare.documents.plotting import drawing, legend, point


class Chart(NamedTuple):
    """The text next to a chart, and its size in inches."""

    name: str
    title: str
    caption: str
    words: str  # alternative text
    size: tuple[float, float] = (5.4, 4.0)

    def of(self, draw: Callable[..., None], rows: int = 1, columns: int = 1) -> Figure:
        """A figure whose axes `draw` is given and fills; its legend is of them all."""

        def svg() -> str:
            with drawing(*self.size) as (figure, done):
                panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
                draw(*panels.flat)
                legend(figure, _of_all([*panels.flat]))
                return done(self.words)

        return Figure(svg, self.title, self.caption, name=self.name)


class Point(NamedTuple):
    """A point with standard errors, of the row at some place of the study."""

    place: int
    label: str
    x: tuple[float, float]
    y: tuple[float, float]
    shape: int | None = None  # number of its marker; None is `place`


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

    def draw(axes):
        behind(axes)
        for one in points:
            point(axes, one.place, one.x, one.y, one.label, one.shape)
        axes.set(xlabel=x, ylabel=y)
        axes.margins(margins)

    return chart.of(draw)


def _of_all(panels: Sequence[Any]) -> Any:
    """The first panel, whose legend has the lines that only others show, too."""
    first = {*panels[0].get_legend_handles_labels()[1]}
    for axes in panels[1:]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in first:
                handle = getattr(handle, "lines", [handle])[0]  # of an error bar
                style = {"color": handle.get_color(), "marker": handle.get_marker()}
                style["linestyle"] = handle.get_linestyle()
                panels[0].plot([], [], label=label, **style)
                first.add(label)
    return panels[0]
