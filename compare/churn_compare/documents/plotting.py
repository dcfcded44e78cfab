"""Style of all figures, and their conversion to SVG inside an HTML page.

Colours are the Okabe-Ito palette, repeated with other markers and dashes, so methods
differ in more than colour. Text and axes have the colour of the surrounding page
(`currentColor`), so one figure is for light, dark and print. Matplotlib is imported
when a figure is drawn, not when this module is.
"""

import functools
import io
import math
import re
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from churn_compare.documents.blocks import Block, Figure
from churn_compare.escaping import escape

COLOURS = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00 #8C8C8C #B8A800".split()
MARKERS = "osD^vP*X<"  # one more than colours, so that pairs repeat late
DASHES = ("-", "--", "-.", ":")
LONGEST_LABEL = 28  # characters of a label
HATCHES = ("", "///", "...", "xxx")
INK = "#010203"  # stands for currentColor until the SVG is written


def colour(i: int) -> str:
    """Colour of the method at place `i` of a study."""
    return COLOURS[i % len(COLOURS)]


def marker(i: int) -> str:
    """Marker of the method at place `i`."""
    return MARKERS[i % len(MARKERS)]


def dash(i: int) -> str:
    """Line style of the method at place `i`."""
    return DASHES[i % len(DASHES)]


def line_style(i: int, label: str | None = None, size: float | None = 5) -> dict:
    """Line style of the method at place `i`; size None is Matplotlib's default."""
    style: dict = {"color": colour(i), "linestyle": dash(i), "marker": marker(i)}
    style |= {} if size is None else {"markersize": size}
    return style | ({} if label is None else {"label": short_label(label)})


def short_label(text: str) -> str:
    """A label for Matplotlib: not mathematics, not hidden, not too long."""
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
    return ("\u200b" * text.startswith("_") + text).replace("$", r"\$")


def error_bar(stderr: float):
    """An error for `errorbar`; None if it is not finite."""
    return stderr if math.isfinite(stderr) else None


def error_line(axes, i: int, x, y, stderr, label: str, **style) -> None:
    """The line of the method at place `i`, with error bars except for NaN."""
    errors = [error_bar(error) or 0.0 for error in stderr]
    style = {"capsize": 3, "linewidth": 1.5} | style
    axes.errorbar(x, y, yerr=errors, **line_style(i, label, size=None), **style)


def level(axes, y: float, stderr: float, *, alpha: float, **style) -> None:
    """A horizontal line with a band of one standard error on each side."""
    half = error_bar(stderr) or 0.0
    axes.axhspan(y - half, y + half, color=style["color"], alpha=alpha, linewidth=0)
    axes.axhline(y, **style)


def point(axes, i: int, x, y, label: str, shape: int | None = None) -> None:
    """Method `i` as a point, perhaps marked as `shape`; `x`, `y` have their errors."""
    style = {"color": colour(i), "markersize": 8, "capsize": 3, "alpha": 0.85}
    style |= {"fmt": marker(i if shape is None else shape), "label": short_label(label)}
    errors = {"xerr": error_bar(x[1]), "yerr": error_bar(y[1])}
    axes.errorbar(x[0], y[0], **errors, **style)


def face(i: int) -> dict:
    """Style of the bars and boxes of the method at place `i`."""
    style = {"edgecolor": INK, "linewidth": 0.8, "alpha": 0.8}
    return style | {"facecolor": colour(i), "hatch": HATCHES[i % len(HATCHES)]}


def bars_by_row(axes, rows, kinds) -> None:
    """Horizontal bars of each kind: numbers and errors, or NaN, of all rows."""
    height = 0.8 / len(kinds)
    for k, (kind, (values, errors)) in enumerate(kinds.items()):
        places = [row + (k - (len(kinds) - 1) / 2) * height for row in range(len(rows))]
        known = [value if math.isfinite(value) else 0.0 for value in values]
        style = face(k) | {"height": 0.9 * height, "capsize": 2, "ecolor": INK}
        bars = [error_bar(error) or 0.0 for error in errors]
        axes.barh(places, known, xerr=bars, label=kind, **style)
    axes.set_yticks(range(len(rows)), [short_label(row) for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(left=0)


def legend(figure, axes, columns: int = 2) -> None:
    """The legend of `axes`, below the figure."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = min(columns, len(labels))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


_kept: ContextVar[list | None] = ContextVar("kept", default=None)


@contextmanager
def kept_figures():
    """Context manager with a list of the Matplotlib figures drawn in it, not as SVG."""
    figures: list = []
    token = _kept.set(figures)
    try:
        yield figures
    finally:
        _kept.reset(token)


def page_figures(blocks: Sequence[Block]) -> dict:
    """The figures that a page would draw, by name."""
    found: dict = {}
    for block in blocks:
        if isinstance(block, Figure) and callable(block.svg):
            with kept_figures() as kept:
                block.svg()
            found |= {block.name: kept[0]} if kept else {}
        found |= page_figures(getattr(block, "blocks", ()))
    return found


def _png(figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, facecolor="white")
    return out.getvalue()


@contextmanager
def drawing(width: float, height: float):
    """A figure and the function that turns it into inline SVG with a description."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    style = {"font.size": 10, "font.family": "sans-serif", "legend.fontsize": 9}
    style |= {"svg.fonttype": "none", "hatch.linewidth": 0.6}
    without = ("axes.spines.top", "axes.spines.right", "axes.grid", "legend.frameon")
    style |= dict.fromkeys((*without, "text.usetex"), False)
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color")
    style |= dict.fromkeys((*ink, "ytick.color"), INK)

    figure = Canvas(figsize=(width, height), layout="constrained")

    def done(description: str) -> str:
        if (kept := _kept.get()) is not None:
            # A notebook shows only figures of pyplot by default.
            vars(figure)["_repr_png_"] = functools.partial(_png, figure)
            kept.append(figure)
            return ""
        matplotlib.rcParams["svg.hashsalt"] = description  # ids differ between figures
        out, none = io.StringIO(), ("Date", "Creator", "Format", "Type")
        options = {"format": "svg", "transparent": True}
        figure.savefig(out, metadata=dict.fromkeys(none), **options)
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
        f'role="img" aria-label="{escape(description)}">'
    )
    svg = re.sub(r"<svg\b[^>]*>", lambda _: opening, svg, count=1)
    return svg.replace(INK, "currentColor")


def picture(figure, done, *, name: str, title: str, caption: str) -> Figure:
    """A figure of `drawing` as SVG for the page and as PNG for a file called `name`."""
    png = _png(figure)
    if _kept.get() is None:
        figure.set_layout_engine("none")  # the slow layout is done
    return Figure(done(title), title, caption, png=png, name=name)
