"""Where changed predictions go: old classes on the left, new classes on the right."""

import dataclasses
import itertools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from churn_compare.documents.chart import element
from churn_compare.number_text import count_text
from churn_compare.result import Flow

MOST = 12  # classes on a side, the last of which may stand for all others
MEANING = {  # of the kinds of ribbons, in the order in which they are drawn
    "negative": "right before, wrong now",
    "positive": "wrong before, right now",
    "other": "wrong before and now",
    "changed": "changed",
}
COLOURS = {
    "negative": "#D55E00",
    "positive": "#009E73",
    "other": "#8C8C8C",
    "changed": "#0072B2",
}

WIDTH, LABEL, BAR = 352, 104, 5  # of the picture, of the names, of a class
RIBBONS = 250  # height of all ribbons together
SLOT, GAP, TOP = 27, 5, 24  # two lines of text, space between classes, the heading
LONGEST = 14  # columns of a name


@dataclasses.dataclass(frozen=True)
class _Ribbon:
    """Examples that went from one box to another."""

    left: int
    right: int
    kind: str
    examples: float


@dataclasses.dataclass
class _Box:
    """One class, or all others, on one side; drawing a ribbon advances `top`."""

    name: str
    others: bool = False
    examples: float = 0.0
    negative: float = 0.0
    top: float = 0.0


def flow_diagram(flow: Flow, name: str = "flow") -> str:
    """Changed predictions as inline SVG; "" if none changes."""
    # Of more than 12 classes on a side the smallest share one box; what goes from one
    # such box to the other is only counted in words, as its ribbon would hide the rest.
    if not sum(flow.examples):
        return ""
    labelled = flow.negative[0] == flow.negative[0]
    left_of, left = _boxes(flow.old, flow.examples)
    right_of, right = _boxes(flow.new, flow.examples)
    ribbons = _ribbons(flow, left_of, right_of, labelled)
    hidden = sum(r.examples for r in ribbons if _between_others(r, left, right))
    ribbons = [r for r in ribbons if not _between_others(r, left, right)]
    for ribbon in ribbons:
        for box in (left[ribbon.left], right[ribbon.right]):
            box.examples += ribbon.examples
            box.negative += ribbon.examples * (ribbon.kind == "negative")
    left, right = ([box for box in side if box.examples] for side in (left, right))
    scale = RIBBONS / sum(ribbon.examples for ribbon in ribbons)
    height = max(_place(left, scale), _place(right, scale))
    labels = [
        *(_label(box, scale, labelled, LABEL, "end") for box in left),
        *(_label(box, scale, labelled, WIDTH - LABEL, None) for box in right),
    ]
    fills = COLOURS | {"negative": f"url(#{name}-hatched)"}
    drawn = [_path(ribbon, left, right, scale, fills) for ribbon in ribbons]
    kinds = [kind for kind in MEANING if any(r.kind == kind for r in ribbons)]
    legend, height = _legend(kinds, hidden, height, fills)
    return element(
        "svg",
        _hatching(f"{name}-hatched"),
        element("text", text="Predicted before", x=LABEL, y=13, text_anchor="end"),
        element("text", text="Predicted now", x=WIDTH - LABEL, y=13),
        *drawn,
        *labels,
        *legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_label="Changed predictions, from old class to new class",
        font_size=11,
        fill="currentColor",
    )


def _hatching(name: str) -> str:
    """A pattern that marks negative flips without colours."""
    line = {"stroke": "currentColor", "stroke_opacity": ".55", "stroke_width": "1.6"}
    pattern = element(
        "pattern",
        element("rect", width=5, height=5, fill=COLOURS["negative"]),
        element("path", d="M0 0V5", **line),
        id=name,
        width=5,
        height=5,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return element("defs", pattern)


def _boxes(
    names: Sequence[str], examples: Sequence[float]
) -> tuple[list[int], list[_Box]]:
    """The box of each entry, and the boxes: the largest first, all others last."""
    sizes: dict[str, float] = {}
    for name, count in zip(names, examples, strict=True):
        sizes[name] = sizes.get(name, 0.0) + count
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    kept = order if len(order) <= MOST else order[: MOST - 1]
    place = {name: i for i, name in enumerate(kept)}
    boxes = [_Box(name) for name in kept]
    if len(kept) < len(order):
        boxes.append(_Box(f"{count_text(len(order) - len(kept))} others", others=True))
    return [place.get(name, len(kept)) for name in names], boxes


def _between_others(
    ribbon: _Ribbon, left: Sequence[_Box], right: Sequence[_Box]
) -> bool:
    return left[ribbon.left].others and right[ribbon.right].others


def _ribbons(
    flow: Flow, left: Iterable[int], right: Iterable[int], labelled: bool
) -> list[_Ribbon]:
    """At most one ribbon of each kind between two boxes, from top to bottom."""
    sums: dict[tuple[int, int, str], float] = {}
    for a, b, examples, negative, positive in zip(
        left, right, flow.examples, flow.negative, flow.positive, strict=True
    ):
        parts = (
            {
                "negative": negative,
                "positive": positive,
                "other": examples - negative - positive,
            }
            if labelled
            else {"changed": examples}
        )
        for kind, part in parts.items():
            if part > 1e-9:  # a mean over pairs of runs leaves rounding errors
                sums[a, b, kind] = sums.get((a, b, kind), 0.0) + part
    return [_Ribbon(*key, sums[key]) for key in sorted(sums, key=_drawing_order)]


def _drawing_order(key: tuple[int, int, str]) -> tuple[int, int, int]:
    left, right, kind = key
    return left, right, list(MEANING).index(kind)


def _place(boxes: list[_Box], scale: float) -> float:
    """Stacks the boxes, each with room for its name; returns the lower end."""
    y = float(TOP)
    for box in boxes:
        tall = scale * box.examples
        slot = max(tall, SLOT)
        box.top = y + (slot - tall) / 2
        y += slot + GAP
    return y


def _path(
    ribbon: _Ribbon,
    left: Sequence[_Box],
    right: Sequence[_Box],
    scale: float,
    fills: Mapping[str, str],
) -> str:
    """One ribbon, below those drawn before it on either side."""
    a, b = left[ribbon.left], right[ribbon.right]
    tall = scale * ribbon.examples
    (x0, y0), (x1, y1) = (LABEL + BAR + 4, a.top), (WIDTH - LABEL - BAR - 4, b.top)
    a.top, b.top = a.top + tall, b.top + tall
    middle = (x0 + x1) / 2
    count = mean_count(ribbon.examples)
    examples = "1 example" if count == "1" else f"{count} examples"
    title = f"{a.name} → {b.name}: {examples}, {MEANING[ribbon.kind]}"
    outline = (
        f"M{x0} {y0:.1f}C{middle} {y0:.1f} {middle} {y1:.1f} {x1} {y1:.1f}"
        f"V{y1 + tall:.1f}C{middle} {y1 + tall:.1f} {middle} {y0 + tall:.1f} "
        f"{x0} {y0 + tall:.1f}Z"
    )
    said = element("title", text=title)
    fill = fills[ribbon.kind]
    return element("path", said, fill=fill, fill_opacity=".62", d=outline)


def _label(box: _Box, scale: float, labelled: bool, at: int, anchor: str | None) -> str:
    """The bar of a class, its name and how many examples."""
    tall = scale * box.examples
    middle = box.top + tall / 2
    x = at + 4 if anchor else at - 4 - BAR
    counts = mean_count(box.examples)
    if labelled:
        counts += f", {mean_count(box.negative)} worse"
    place = {"x": at, "text_anchor": anchor}
    small = {"font_size": 9, "opacity": ".75"}
    name = element("title", text=box.name)
    return "".join(
        [
            element("rect", x=x, y=box.top, width=BAR, height=float(max(tall, 1))),
            element("text", name, text=short_name(box.name), y=middle - 2, **place),
            element("text", text=counts, y=middle + 9, **place, **small),
        ]
    )


def _legend(
    kinds: Iterable[str], hidden: float, height: float, fills: Mapping[str, str]
) -> tuple[list[str], float]:
    """The legend below the picture, and what is not drawn."""
    out = []
    for kind in kinds:
        height += 16
        sample = {"x": LABEL, "y": height - 9, "width": 18, "height": 10}
        out += [
            element("rect", fill=fills[kind], fill_opacity=".62", **sample),
            element("text", text=MEANING[kind], x=LABEL + 25, y=height),
        ]
    if hidden:
        height += 18
        said = f"not drawn: {mean_count(hidden)} from others to others"
        at = {"x": WIDTH // 2, "y": height, "text_anchor": "middle"}
        out.append(element("text", text=said, **at))
    return out, height + 6


def mean_count(examples: float) -> str:
    """How many examples; a mean over pairs of runs may have a fraction."""
    return count_text(round(examples) if examples >= 10 else round(examples, 1))


def short_name(text: str, longest: int = LONGEST) -> str:
    """A name cut to so many columns; East Asian characters take two."""
    text = " ".join(text.split())
    widths = [2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text]
    if sum(widths) <= longest:
        return text
    ends = itertools.accumulate(widths)
    return text[: sum(end < longest for end in ends)] + "…"
