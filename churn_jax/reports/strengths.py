"""Churn, or Delta_1, and accuracy against what rows differ in: lambda, or members."""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np

from churn_jax.configuration.codec import to_json
from churn_jax.documents.plotting import (
    INK,
    colour,
    dash,
    drawing,
    error_bar,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.quantities import QUANTITIES, Quantity
from churn_jax.reports.report import Report, Row

__all__ = ["Series", "against_members", "against_strength", "series_of"]

FEWEST = 3  # points that make a curve


@dataclasses.dataclass(frozen=True)
class Series:
    """Rows that are one method with several values of one setting.

    Attributes:
        label: what their labels have in common.
        values: of the setting, ascending.
        rows: one per value.
    """

    label: str
    values: tuple[float, ...]
    rows: tuple[Row, ...]


def series_of(report: Report, setting: str) -> tuple[Series, ...]:
    """Rows that differ in nothing but one setting of their method."""
    groups: dict[str, dict[float, Row]] = {}
    for row in report.rows:
        method, spec = to_json(row.info.method), row.info.spec
        value = method.get(setting)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        # One network is deployed as it is, whatever an ensemble's outputs make.
        left_out = {setting, "deploy"} if setting == "members" else {setting}
        same = {k: v for k, v in method.items() if k not in left_out}
        own = (spec.train, spec.train_size, spec.model)
        key = json.dumps([same, to_json(own)], sort_keys=True)
        groups.setdefault(key, {}).setdefault(float(value), row)
    return tuple(
        Series(
            _common([rows[value].info.label for value in sorted(rows)]),
            tuple(sorted(rows)),
            tuple(rows[value] for value in sorted(rows)),
        )
        for rows in groups.values()
        if len(rows) >= FEWEST
    )


def _common(labels: Sequence[str]) -> str:
    """What labels begin with, up to the setting: `"AD, λ = 0.1"` becomes `"AD"`.

    Example:
        >>> _common(["No AD, J = 2", "No AD, J = 4"])
        'No AD'
    """
    short, *_ = labels
    while short and not all(label.startswith(short) for label in labels):
        short = short[:-1]
    before, comma, _ = short.rpartition(",")
    return before if comma else short.strip() or labels[0]


def against_strength(report: Report) -> str:
    """By the strength of a penalty; empty text without at least three strengths."""
    found = [
        dataclasses.replace(one, values=one.values[i:], rows=one.rows[i:])
        for one in series_of(report, "strength")
        for i in [sum(value <= 0 for value in one.values)]  # no logarithm
    ]
    found = [one for one in found if len(one.values) >= FEWEST]
    return _drawn(report, found, "Strength λ, log scale", "log", report.baseline)


def against_members(report: Report) -> str:
    """By the number of networks of an ensemble; empty text without three numbers."""
    found = series_of(report, "members")
    return _drawn(report, found, "Networks per ensemble, J", "linear", None)


def _drawn(
    report: Report,
    series: Sequence[Series],
    label: str,
    scale: str,
    level: Row | None,
) -> str:
    """Two panels; `level` is a row that is drawn as a line across both."""
    if not series:
        return ""
    from matplotlib.ticker import FuncFormatter, NullLocator

    ticks = sorted({value for one in series for value in one.values})
    shown = (report.headline, QUANTITIES["accuracy"])
    with drawing(5.4, 4.8) as (figure, done):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, quantity in zip(panels, shown, strict=True):
            if level is not None:
                _across(axes, level, quantity)
            for i, one in enumerate(series):
                mean, stderr = _scaled(quantity, one.rows)
                axes.errorbar(
                    one.values,
                    mean,
                    yerr=stderr,
                    color=colour(i),
                    linestyle=dash(i),
                    marker=marker(i),
                    capsize=3,
                    linewidth=1.5,
                    label=short_label(one.label),
                )
            axes.set_ylabel(quantity.heading)
        axes = panels[-1]
        axes.set_xscale(scale)
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(label)
        legend(figure, panels[0])
        what = label.partition(",")[0].lower()
        return done(f"{shown[0].heading.removesuffix(' %')} and accuracy by {what}")


def _scaled(quantity: Quantity, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors as shown; 0 where an error is unknown."""
    estimates = [getattr(row.summary, quantity.name) for row in rows]
    mean = quantity.scale * np.array([e.mean for e in estimates])
    errors = [quantity.scale * (error_bar(e.stderr) or 0.0) for e in estimates]
    return mean, np.array(errors)


def _across(axes, row: Row, quantity: Quantity) -> None:
    """A row's number as a line with one standard error on either side."""
    (mean,), (error,) = _scaled(quantity, [row])
    axes.axhline(
        mean,
        color=INK,
        linewidth=1.0,
        linestyle=":",
        label=short_label(row.info.label),
    )
    axes.axhspan(mean - error, mean + error, color=INK, alpha=0.12, linewidth=0)
