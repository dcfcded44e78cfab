"""Figures of model updates: errors against flips, ranks, chains, curves."""

import dataclasses
import re
import textwrap

import numpy as np

from churn_compare.documents.plotting import (
    COLOURS,
    INK,
    drawing,
    error_line,
    legend,
    line_style,
    point,
    short_label,
)
from churn_jax.reports.cells import rate
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.updates import UpdateResult, Updates

RANKS = 10  # the last one drawn by itself; what is above is one more point
MOST_SHOWN = 8  # updates in the figure of ranks

# A label that ends in what a study varies: ", m = 4", "(alpha=0.8)", " m=2".
_SETTING = re.compile(
    r"^(?P<rest>.*?)[\s,(]*\b(?P<name>m|alpha)\s*=\s*(?P<value>\d+(?:\.\d*)?)\)?$"
)
_SYMBOLS = {"m": "Networks of the ensemble, m", "alpha": "Weight of LDI, α"}


def errors_against_flips(updates: Updates) -> str:
    """New error rate against NFR, one point per update (Figure 1 of the paper)."""
    results = updates.whole
    height = 3.4 + 0.2 * -(-len(results) // 2)  # room for the labels below
    with drawing(5.4, height) as (figure, done):
        axes = figure.add_subplot()
        for i, result in enumerate(results):
            error, flips = result.first.new_error, result.first.negative_flip_rate
            x, y = ((100 * e.mean, 100 * e.stderr) for e in (error, flips))
            # A ninth update has the first one's colour, so it needs another shape.
            point(axes, i, x, y, result.label, shape=i + i // len(COLOURS))
        axes.set_xlabel("Error rate of the new model %   (less is better)")
        axes.set(ylabel="NFR %   (less is better)", xmargin=0.15, ymargin=0.15)
        legend(figure, axes)
        return done("New error rate against negative flip rate of every update")


def rank_histogram(updates: Updates) -> str:
    """Negative flips by the rank of their wrong class in the old model (Figure 4)."""
    results = [result for result in updates.whole if result.ranks.sum()]
    if not results:
        return ""
    highest = max(len(result.ranks) for result in results) - 1
    last = min(highest, RANKS)
    places = np.arange(2, last + 1 + (highest > RANKS))
    with drawing(5.4, 4.2) as (figure, done):
        axes = figure.add_subplot()
        for i, result in enumerate(results[:MOST_SHOWN]):
            counts = np.zeros(max(highest, last) + 1)
            counts[: len(result.ranks)] = result.ranks
            shown = counts[2 : last + 1]
            if highest > RANKS:
                shown = np.append(shown, counts[last + 1 :].sum())
            axes.plot(
                places,
                100 * shown / counts.sum(),
                **line_style(i, result.label, size=None),
                linewidth=1.5,
            )
        names = [f"> {RANKS}" if place > RANKS else str(place) for place in places]
        axes.set_xticks(places, names)
        axes.set_xlabel("Rank in the old model of the class predicted by the new one")
        axes.set_ylabel("Share of negative flips %")
        axes.set_ylim(bottom=0)
        legend(figure, axes)
        return done("Rank in the old model of the wrong class of negative flips")


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Updates that differ in one number that their label ends in."""

    label: str  # what the labels have in common
    setting: str  # `"m"` or `"alpha"`
    values: tuple[float, ...]  # of the setting, ascending
    results: tuple[UpdateResult, ...]  # one per value


def curves(updates: Updates) -> tuple[Curve, ...]:
    """Updates whose label ends in `m=<integer>` or `alpha=<number>`."""
    groups: dict[tuple[str, str], dict[float, UpdateResult]] = {}
    for result in updates.whole:
        if found := _SETTING.match(result.label):
            key = found["name"], found["rest"].strip()
            groups.setdefault(key, {})[float(found["value"])] = result
    return tuple(
        Curve(rest, name, tuple(sorted(of)), tuple(of[value] for value in sorted(of)))
        for (name, rest), of in groups.items()
        if len(of) > 1
    )


def against_setting(updates: Updates) -> str:
    """NFR and both error rates against m, or alpha (Figure 6); empty without curves."""
    found = curves(updates)
    settings = [name for name in _SYMBOLS if any(c.setting == name for c in found)]
    if not settings:
        return ""
    with drawing(5.4, 4.2 if len(settings) == 1 else 7.6) as (figure, done):
        panels = figure.subplots(2 * len(settings), 1, squeeze=False)[:, 0]
        for place, name in enumerate(settings):
            upper, lower = panels[2 * place : 2 * place + 2]
            chosen = [curve for curve in found if curve.setting == name]
            for i, curve in enumerate(chosen):
                _line(upper, curve, "negative_flip_rate", i, curve.label or "NFR")
                beginning = f"{curve.label}: " if len(chosen) > 1 else ""
                for k, which in enumerate(("old", "new")):
                    rate = f"{which}_error"
                    _line(lower, curve, rate, 2 * i + k, f"{beginning}{which}")
            ticks = sorted({value for curve in chosen for value in curve.values})
            for axes, text in ((upper, "NFR %"), (lower, "ER %")):
                axes.set(ylabel=text, ymargin=0.15)
                axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                axes.legend(fontsize=8, ncols=2)
            lower.set_xlabel(_SYMBOLS[name])
        return done(
            "NFR and error rates against the size of the ensemble or the weight"
        )


def _line(axes, curve: Curve, name: str, i: int, label: str) -> None:
    found = [getattr(result.first, name) for result in curve.results]
    mean, stderr = [100 * e.mean for e in found], [100 * e.stderr for e in found]
    error_line(axes, i, curve.values, mean, stderr, label)


MOST_CHAINS = 12
FEWEST = 3  # versions
WRAP = 16  # characters of a version's label on one line


def find_chains(updates: Updates) -> tuple[tuple[str, ...], ...]:
    """The longest sequences of at least three versions, each replacing the last."""
    after: dict[str, list[str]] = {}
    for result in updates.results:
        following = after.setdefault(result.old, [])
        if result.new not in following and result.new != result.old:
            following.append(result.new)
    replaced = {new for following in after.values() for new in following}
    paths: list[tuple[str, ...]] = []

    def walk(path: tuple[str, ...]) -> None:
        on = [new for new in after.get(path[-1], ()) if new not in path]
        for new in on:
            walk((*path, new))
        if not on and len(path) >= FEWEST:
            paths.append(path)

    for first in after:
        if first not in replaced:
            walk((first,))
    return tuple(path for path in paths if not any(set(path) < set(p) for p in paths))


def chains(updates: Updates) -> str:
    """Every chain on a line, with the NFR of its arrows; empty text without one."""
    found = find_chains(updates)[:MOST_CHAINS]
    if not found:
        return ""
    longest = max(map(len, found))
    with drawing(5.4, 0.3 + 1.2 * len(found)) as (figure, done):
        axes = figure.add_subplot()
        for line, chain in enumerate(found):
            _draw(axes, updates, chain, -float(line))
        axes.set_xlim(-0.45, longest - 0.55)
        axes.set_ylim(-len(found) + 0.45, 0.6)
        axes.axis("off")
        return done("Chains of versions with the negative flip rate of every update")


def _draw(axes, updates: Updates, chain: tuple[str, ...], height: float) -> None:
    labels = dict(zip(updates.versions, updates.labels, strict=True))
    errors = _errors(updates)
    for place, name in enumerate(chain):
        text = "\n".join(textwrap.wrap(short_label(labels[name]), WRAP))
        error = f"\nER {100 * errors[name].mean:.2f}" if name in errors else ""
        axes.text(place, height, text + error, ha="center", va="center", fontsize=8)
    for i, old in enumerate(chain):
        for j in range(i + 1, len(chain)):
            far = j - i
            room, up, bend, line = (
                (0.3, 0.0, 0.0, "-") if far == 1 else (0.05, 0.2, -0.22 / far, ":")
            )
            arrow = {"arrowstyle": "->", "connectionstyle": f"arc3,rad={bend}"}
            arrow |= {"color": INK, "linewidth": 1.0, "linestyle": line}
            ends = (j - room, height + up), (i + room, height + up)
            axes.annotate("", *ends, arrowprops=arrow)
            lift = 0.05 if far == 1 else 0.2 + 0.11 * far
            flips = _flips(updates, old, chain[j])
            where = (i + j) / 2, height + lift
            axes.text(*where, flips, ha="center", va="bottom", fontsize=8)


def _errors(updates: Updates) -> dict[str, Estimate]:
    """Error rate of every version, from the first update that it is in."""
    out: dict[str, Estimate] = {}
    for result in updates.whole:
        out.setdefault(result.old, result.all_pairs.old_error)
        out.setdefault(result.new, result.all_pairs.new_error)
    return out


def _flips(updates: Updates, old: str, new: str) -> str:
    """NFR of an update of the study, or else over all pairs of runs."""
    for result in updates.whole:
        if (result.old, result.new) == (old, new):
            return rate(result.first.negative_flip_rate)
    i, j = updates.versions.index(old), updates.versions.index(new)
    return f"{100 * updates.matrices.negative_flip_rate[i, j]:.2f}"
