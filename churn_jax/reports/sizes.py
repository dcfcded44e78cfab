"""Churn and accuracy against the number of training examples."""

import dataclasses
import re

import numpy as np

from churn_jax.documents.plotting import (
    colour,
    dash,
    drawing,
    error_bar,
    legend,
    marker,
    short_label,
)
from churn_jax.reports.estimates import Estimate
from churn_jax.reports.report import Report, Row

__all__ = ["SizeSeries", "churn_against_training_size", "size_series"]

# What a label says about a size: ", 1,000 examples", "(n = 500)", a last ", 500".
_SIZE = re.compile(
    r"[\s,(]+(?:n\s*=\s*)?\d[\d,]*(?:\s+(?:training\s+)?examples?\b\s*\)?|\s*\)?$)"
)
PANELS = (("churn", "Churn %"), ("accuracy", "Accuracy %"))


@dataclasses.dataclass(frozen=True)
class SizeSeries:
    """One method at several training-set sizes.

    Attributes:
        label: the rows' label without the size.
        sizes: training examples, ascending.
        rows: one per size.
    """

    label: str
    sizes: tuple[int, ...]
    rows: tuple[Row, ...]

    def estimates(self, name: str) -> list[Estimate]:
        """One estimate per size."""
        return [getattr(row.summary, name) for row in self.rows]


def size_series(report: Report) -> tuple[SizeSeries, ...]:
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
        SizeSeries(label, tuple(sorted(rows)), tuple(rows[s] for s in sorted(rows)))
        for label, rows in groups.items()
        if len(rows) > 1
    )


def churn_against_training_size(report: Report) -> str:
    """Churn and accuracy by training-set size; empty text for a single size."""
    series = size_series(report)
    if not series:
        return ""
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = sorted({size for one in series for size in one.sizes})
    with drawing(5.4, 4.8) as (figure, done):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, (name, title) in zip(panels, PANELS, strict=True):
            for i, one in enumerate(series):
                estimates = one.estimates(name)
                stderr = [100 * (error_bar(e.stderr) or 0.0) for e in estimates]
                axes.errorbar(
                    one.sizes,
                    [100 * e.mean for e in estimates],
                    yerr=np.array(stderr),
                    color=colour(i),
                    linestyle=dash(i),
                    marker=marker(i),
                    capsize=3,
                    linewidth=1.5,
                    label=short_label(one.label),
                )
            axes.set_ylabel(title)
        axes = panels[-1]
        axes.set_xscale("log")
        axes.set_xticks(sizes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{int(x):,}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", rotation=30)
        axes.set_xlabel("Training examples, log scale")
        legend(figure, panels[0])
        return done("Churn and accuracy against the number of training examples")
