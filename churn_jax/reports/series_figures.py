"""Churn, or Delta_1, and accuracy against examples, lambda or members."""

import dataclasses
import json
import re
from collections.abc import Sequence

import numpy as np

from churn_compare.documents.plotting import (
    INK,
    drawing,
    error_line,
    legend,
    level,
    short_label,
)
from churn_jax.configuration.codec import to_json
from churn_jax.reports.quantities import QUANTITIES, Quantity
from churn_jax.reports.report import Report, Row

FEWEST = 3  # points that make a curve


@dataclasses.dataclass(frozen=True)
class Series:
    """Rows that are one method with several values of one setting."""

    label: str  # what their labels have in common
    values: tuple[float, ...]  # of the setting, ascending
    rows: tuple[Row, ...]  # one per value


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
    """What labels begin with, up to the setting: `"AD, λ = 0.1"` becomes `"AD"`."""
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
    label = "Strength λ, log scale"
    return _drawn(found, report.headline, label, baseline=report.baseline)


def against_members(report: Report) -> str:
    """By the number of networks of an ensemble; empty text without three numbers."""
    found = series_of(report, "members")
    return _drawn(found, report.headline, "Networks per ensemble, J", scale="linear")


def _drawn(
    series: Sequence[Series],
    about: Quantity,
    across: str,
    *,
    scale: str = "log",
    baseline: Row | None = None,
    ticks: str = "{:g}",
    rotation: float = 0,
) -> str:
    """A quantity above accuracy, with the baseline as a line across."""
    if not series:
        return ""
    from matplotlib.ticker import FuncFormatter, NullLocator

    with drawing(5.4, 4.8) as (figure, done):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, quantity in zip(panels, (about, QUANTITIES["accuracy"]), strict=True):
            if baseline is not None:
                (mean,), (error,) = _scaled(quantity, [baseline])
                style = {"linewidth": 1.0, "linestyle": ":", "color": INK}
                label = short_label(baseline.info.label)
                level(axes, mean, error, alpha=0.12, label=label, **style)
            for i, one in enumerate(series):
                mean, stderr = _scaled(quantity, one.rows)
                error_line(axes, i, one.values, mean, stderr, one.label)
            axes.set_ylabel(quantity.heading)
        axes = panels[-1]
        values = sorted({value for one in series for value in one.values})
        axes.set(xscale=scale, xticks=values, xlabel=across)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: ticks.format(x)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", rotation=rotation)
        legend(figure, panels[0])
        what = about.heading.removesuffix(" %")
        return done(f"{what} and accuracy by {across.partition(',')[0].lower()}")


def _scaled(quantity: Quantity, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors as shown."""
    estimates = [getattr(row.summary, quantity.name) for row in rows]
    found = quantity.scale * np.array([(e.mean, e.stderr) for e in estimates])
    return found[:, 0], found[:, 1]


# What a label says about a size: ", 1,000 examples", "(n = 500)", a last ", 500".
_SIZE = re.compile(
    r"[\s,(]+(?:n\s*=\s*)?\d[\d,]*(?:\s+(?:training\s+)?examples?\b\s*\)?|\s*\)?$)"
)


def size_series(report: Report) -> tuple[Series, ...]:
    """The methods that were trained on more than one number of examples."""
    whole = report.study.record.data.train
    groups: dict[str, dict[int, Row]] = {}
    for row in report.rows:
        own = row.info.spec.train_size
        if (size := whole if own is None else own) is None:
            continue
        label = _SIZE.sub("", row.info.label) or row.info.label
        if size in groups.get(label, {}):
            label = row.info.label
        groups.setdefault(label, {})[size] = row
    return tuple(
        Series(label, tuple(sorted(rows)), tuple(rows[s] for s in sorted(rows)))
        for label, rows in groups.items()
        if len(rows) > 1
    )


def churn_against_training_size(report: Report) -> str:
    """Churn and accuracy by training-set size; empty text for a single size."""
    across = "Training examples, log scale"
    style = {"ticks": "{:,.0f}", "rotation": 30}
    return _drawn(size_series(report), QUANTITIES["churn"], across, **style)
