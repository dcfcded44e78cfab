"""Small charts as SVG, drawn without a plotting library, which takes long to import.

Text and axes take the colour of the surrounding page, as in `plotting`.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from churn_compare.escaping import escape

__all__ = ["Axes", "bottom_axis", "chart", "element", "left_axis", "legend"]
__all__ += ["line", "marks", "shortened", "ticks"]

LONGEST_LABEL = 28  # characters of a label
LINE = 15  # from one line of text to the next
LETTER = 6.2  # mean width of a letter
_SLANTED = 40  # degrees


def element(tag: str, *inside: str, text: str = "", **attributes) -> str:
    """An element of an SVG that no plotting library draws; its text is escaped here.

    `stroke_width` is `stroke-width`, a float has one decimal, None is left out.

    Example:
        >>> element("g", element("text", text="a<b"), x=1.25, class_="bar")
        '<g x="1.2" class="bar"><text>a&lt;b</text></g>'
    """
    out = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None:
            continue
        if isinstance(value, float):
            value = f"{value:.1f}"
        name = name.rstrip("_").replace("_", "-") if name != "viewBox" else name
        out.append(f' {name}="{escape(str(value))}"')
    body = escape(text) + "".join(inside)
    out.append(f">{body}</{tag}>" if body else "/>")
    return "".join(out)


def shortened(text: str) -> str:
    """A label on one line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


@dataclasses.dataclass(frozen=True)
class Axes:
    """A rectangle of the picture and the numbers at its edges."""

    left: float
    top: float
    right: float
    bottom: float
    across: tuple[float, float]  # the numbers at the left and at the right edge
    up: tuple[float, float]  # at the lower and at the upper edge

    def x(self, value: float) -> float:
        """Where a number lies on the way from left to right."""
        low, high = self.across
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Where a number lies on the way from below to the top."""
        low, high = self.up
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)


def chart(width: float, height: float, description: str, *parts: str) -> str:
    """The picture of these parts."""
    return element(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=description,
        font_size=11,
        fill="currentColor",
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many round numbers from `low` to `high`.

    Example:
        >>> ticks(0.0, 7.3)
        [0.0, 2.0, 4.0, 6.0]
    """
    rough = max(high - low, 1e-300) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * n for n in range(first, last + 1)]


def _texts(places: Sequence[float]) -> list[str]:
    """The numbers with as many decimals as one of them needs."""
    digits = next(
        (n for n in range(12) if all(abs(round(p, n) - p) < 1e-9 for p in places)), 12
    )
    return [f"{place + 0.0:,.{digits}f}" for place in places]


def bottom_axis(
    axes: Axes,
    title: str = "",
    places: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    *,
    ruled: bool = True,
) -> str:
    """The line below, with numbers or names; `height_below` says what it takes."""
    places = ticks(*axes.across) if places is None else places
    names = _texts(places) if labels is None else labels
    slanted = labels is not None and _too_long(axes, labels)
    parts = []
    if ruled:
        parts.append(_rule(axes.left, axes.bottom, axes.right, axes.bottom))
    for place, name in zip(places, names, strict=True):
        x, y = axes.x(place), axes.bottom
        if ruled:
            parts.append(_rule(x, y, x, y + 4))
        style: dict = {"text_anchor": "middle", "y": y + 15}
        if slanted:
            turn = f"rotate(-{_SLANTED} {x:.1f} {y + 11:.1f})"
            style = {"text_anchor": "end", "y": y + 11, "transform": turn}
        parts.append(element("text", text=shortened(name), x=x, **style))
    middle = (axes.left + axes.right) / 2
    y = axes.bottom + height_below(axes, labels, bool(title)) - 4
    if title:
        parts.append(element("text", text=title, x=middle, y=y, text_anchor="middle"))
    return "".join(parts)


def height_below(
    axes: Axes, labels: Sequence[str] | None = None, titled: bool = True
) -> float:
    """What the names and the title of a bottom axis take."""
    height = 20.0
    if labels is not None and _too_long(axes, labels):
        longest = max(len(shortened(label)) for label in labels)
        height = 16 + longest * LETTER * math.sin(math.radians(_SLANTED))
    return height + LINE * titled


def _too_long(axes: Axes, labels: Sequence[str]) -> bool:
    longest = max((len(shortened(label)) for label in labels), default=0)
    return (longest + 1) * LETTER * len(labels) > axes.right - axes.left


def left_axis(
    axes: Axes,
    title: str = "",
    places: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    *,
    ruled: bool = True,
) -> str:
    """The line to the left, with numbers or names, and a title on its side."""
    places = ticks(*axes.up) if places is None else places
    names = _texts(places) if labels is None else labels
    parts = []
    if ruled:
        parts.append(_rule(axes.left, axes.top, axes.left, axes.bottom))
    for place, name in zip(places, names, strict=True):
        x, y = axes.left, axes.y(place)
        if ruled:
            parts.append(_rule(x - 4, y, x, y))
        name = shortened(name)
        parts.append(element("text", text=name, x=x - 7, y=y + 4, text_anchor="end"))
    if title:
        x, y = 11.0, (axes.top + axes.bottom) / 2
        turn = f"rotate(-90 {x:.1f} {y:.1f})"
        style = {"text_anchor": "middle", "transform": turn}
        parts.append(element("text", text=title, x=x, y=y, **style))
    return "".join(parts)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="currentColor")


def line(points: Iterable[tuple[float, float]], colour: str, **style) -> str:
    """A line through points of the picture."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    style: dict = {"stroke_width": 1.6} | style
    return element("path", d=f"M{path}", fill="none", stroke=colour, **style)


# Half lengths of the strokes of a mark, in units of the picture: from x, y to x, y. The
# first two are closed.
_SHAPES = {
    "circle": "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",
    "square": "m-3 -3h6v6h-6z",
    "dot": "h0",
    "dash": "m-3 0h6",
    "cross": "m-3 -3l6 6m0 -6l-6 6",
    "plus": "m-3 0h6m-3 -3v6",
}


def marks(
    points: Iterable[tuple[float, float]], colour: str, shape: str = "circle", **style
) -> str:
    """All marks of one kind as one path, so that thousands of them stay small."""
    path = "".join(f"M{x:.1f} {y:.1f}{_SHAPES[shape]}" for x, y in points)
    filled = colour if shape in ("circle", "square") else "none"
    style = {"fill": filled, "stroke": colour, "stroke_linecap": "round"} | style
    return element("path", d=path, **style) if path else ""


def legend(entries: Sequence[tuple[str, str, dict]], x: float, y: float) -> str:
    """One line for each shape, text and style of `marks`; `dashes` add a line."""
    parts = []
    for i, (shape, text, style) in enumerate(entries):
        style, middle = dict(style), y + LINE * i
        dashes = style.pop("dashes", "")
        if dashes:
            ends = [(x - 11, middle), (x + 11, middle)]
            dash = None if dashes == "full" else dashes
            parts.append(line(ends, style["colour"], stroke_dasharray=dash))
        parts.append(marks([(x, middle)], shape=shape, **style))
        parts.append(element("text", text=text, x=x + 17, y=middle + 4))
    return "".join(parts)
