"""Columns that a user registered: measured run by run, or of all runs at once."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from churn_compare.store import WHOLE_BYTES, Predictions, fits_whole
from churn_jax.reports.estimates import over_runs, over_set
from churn_jax.reports.quantities import QUANTITIES, Quantity
from churn_jax.reports.summary import MethodSummary


class ColumnError(ValueError):
    """A column's function failed, or returned anything but a number per run."""


def with_columns(
    summary: MethodSummary, predictions: Predictions, columns: Iterable[str]
) -> tuple[MethodSummary, tuple[ColumnError, ...]]:
    """The summary with columns that have a measure, and errors of those left out."""
    runs, labels = summary.runs, predictions.labels
    values, without, own, errors = {}, {}, {}, []
    for column in columns:
        try:
            quantity = QUANTITIES.find(column)
            if quantity.measure is None:
                continue
            name = quantity.name
            logits = np.zeros(0)
            if quantity.of_runs:
                _, examples, classes = predictions.shape
                numbers = len(runs) * examples * classes
                if not predictions.in_memory and not fits_whole(numbers):
                    raise ColumnError(
                        f"column {name} needs the logits of all runs at once, "
                        f"{4 * numbers / 2**30:.1f} GiB, and at most "
                        f"{WHOLE_BYTES / 2**30:.3g} GiB are read whole; write it as a "
                        "function of one run (without runs=True)"
                    )
                logits = np.stack([predictions.logits[run] for run in runs])
                found = _called(quantity, logits, labels, (len(runs),))
            else:
                each = (predictions.logits[run] for run in runs)
                found = np.array([_called(quantity, z, labels) for z in each])
            found = _finite(quantity, found, runs)
            if found.ndim:
                values[name], own[name] = found, over_runs(found)
                continue
            left = np.full(len(runs), np.nan)
            if len(runs) > 2:  # two runs without one are not a pair any more
                parts = (np.delete(logits, i, axis=0) for i in range(len(runs)))
                left = np.array([_called(quantity, z, labels) for z in parts])
                left = _finite(quantity, left, runs, "without run")
            own[name], without[name] = over_set(found, left), left
        except ValueError as error:  # a column that is not known, or a ColumnError
            errors.append(ColumnError(str(error)))
    summary = dataclasses.replace(
        summary,
        run_values={**summary.run_values, **values},
        set_values={**summary.set_values, **without},
    )
    return summary.having(**own), tuple(errors)


def _called(
    quantity: Quantity, logits: np.ndarray, labels: np.ndarray, runs: tuple = ()
) -> np.ndarray:
    """The function's value: one number, or one for each of the `runs`."""
    measure = cast(Callable, quantity.measure)
    try:
        found = np.asarray(measure(logits, labels), np.float64)
    except Exception as error:
        raise ColumnError(
            f"column {quantity.name} failed on logits {logits.shape} "
            f"({type(error).__name__}: {error})"
        ) from error
    if found.shape not in ((), runs):
        each = f" or {runs[0]}, one for each run," if runs else ""
        all_ = "" if quantity.of_runs else "; with column(..., runs=True) it is given "
        raise ColumnError(
            f"column {quantity.name} must return one number{each} for logits "
            f"{logits.shape}; got shape {found.shape}"
            f"{all_ and all_ + 'the logits of all runs'}"
        )
    return found


def _finite(
    quantity: Quantity, found: np.ndarray, runs: tuple[int, ...], where: str = "for run"
) -> np.ndarray:
    if np.isfinite(found).all():
        return found
    bad = [str(run) for run, ok in zip(runs, np.isfinite(found).ravel()) if not ok]
    which = f" {where} {', '.join(bad)}" if found.ndim else ""
    raise ColumnError(f"column {quantity.name} is not a finite number{which}")
