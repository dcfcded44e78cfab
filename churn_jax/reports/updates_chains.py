"""Chains of versions: updates that follow one another, left to right (Table 5)."""

import dataclasses
import textwrap

from churn_jax.documents.plotting import INK, drawing, short_label
from churn_jax.reports.cells import rate
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.updates import Updates

__all__ = ["Chain", "chains", "find_chains"]

MOST_CHAINS = 12
FEWEST = 3  # versions
WRAP = 16  # characters of a version's label on one line


@dataclasses.dataclass(frozen=True)
class Chain:
    """Versions of which each replaces the one before.

    Attributes:
        versions: their names, the oldest first.
    """

    versions: tuple[str, ...]


def find_chains(updates: Updates) -> tuple[Chain, ...]:
    """The longest sequences of at least three versions.

    Args:
        updates: from `collect_updates`.

    Returns:
        In the order of the updates; none whose versions are all in another one.
    """
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
    return tuple(
        Chain(path) for path in paths if not any(set(path) < set(p) for p in paths)
    )


def chains(updates: Updates) -> str:
    """Every chain on a line, with the NFR of its arrows; empty text without one."""
    found = find_chains(updates)[:MOST_CHAINS]
    if not found:
        return ""
    longest = max(len(chain.versions) for chain in found)
    with drawing(5.4, 0.3 + 1.2 * len(found)) as (figure, done):
        axes = figure.add_subplot()
        for line, chain in enumerate(found):
            _draw(axes, updates, chain, -float(line))
        axes.set_xlim(-0.45, longest - 0.55)
        axes.set_ylim(-len(found) + 0.45, 0.6)
        axes.axis("off")
        return done("Chains of versions with the negative flip rate of every update")


def _draw(axes, updates: Updates, chain: Chain, height: float) -> None:
    labels = dict(zip(updates.versions, updates.labels, strict=True))
    errors = _errors(updates)
    for place, name in enumerate(chain.versions):
        text = "\n".join(textwrap.wrap(short_label(labels[name]), WRAP))
        error = f"\nER {100 * errors[name].mean:.2f}" if name in errors else ""
        axes.text(place, height, text + error, ha="center", va="center", fontsize=8)
    for i, old in enumerate(chain.versions):
        for j in range(i + 1, len(chain.versions)):
            far, new = j - i, chain.versions[j]
            flips = _flips(updates, old, new)
            bend = 0.0 if far == 1 else -0.22 / far
            axes.annotate(
                "",
                (j - 0.3 if far == 1 else j - 0.05, height + (far > 1) * 0.2),
                (i + 0.3 if far == 1 else i + 0.05, height + (far > 1) * 0.2),
                arrowprops={
                    "arrowstyle": "->",
                    "color": INK,
                    "linewidth": 1.0,
                    "linestyle": "-" if far == 1 else ":",
                    "connectionstyle": f"arc3,rad={bend}",
                },
            )
            lift = 0.05 if far == 1 else 0.2 + 0.11 * far
            axes.text(
                (i + j) / 2, height + lift, flips, ha="center", va="bottom", fontsize=8
            )


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
    return f"{100 * updates.flips[i, j]:.2f}"
