"""The numbers that tables and figures show: headings, cells, which a study chooses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from churn_compare.documents import Column
from churn_compare.suggestions import did_you_mean
from churn_jax.lazy import Lazy
from churn_jax.registry import Registry

if TYPE_CHECKING:
    import numpy as np

    from churn_jax import metrics
    from churn_jax.reports.estimates import Estimate
else:
    metrics = Lazy("churn_jax.metrics")  # imported when a column is measured

ABSENT = "–"
WIDE = 150  # columns of a terminal that shows whole tables


def plus_minus(mean: float, spread: float, digits: int, sign: str = "") -> str:
    """`0.213 ± 0.004`; the spread is left out, and a dash shown, where it is NaN."""
    if not math.isfinite(mean):
        return "∞" if mean == math.inf else ABSENT
    text = f"{mean:{sign}.{digits}f}"
    return f"{text} ± {spread:.{digits}f}" if math.isfinite(spread) else text


@dataclasses.dataclass(frozen=True)
class Form:
    """How an estimate is written, as a function of the `Estimate`."""

    scale: float = 1.0  # 100 for per cent
    digits: int = 3
    error: bool = False  # `±` is the standard error, not the standard deviation
    sign: str = ""  # "+" for changes

    def __call__(self, estimate: Estimate) -> str:
        """`5.72 ± 0.18`; a dash where nothing was measured."""
        spread = estimate.stderr if self.error else estimate.std
        scaled = self.scale * estimate.mean, self.scale * spread
        return plus_minus(*scaled, self.digits, self.sign)


number = Form()
percent = Form(100.0, 2)
rate = Form(100.0, 2, error=True)
signed_rate = Form(100.0, 2, error=True, sign="+")
mean_error = Form(error=True)
of_set = Form(digits=4, error=True)  # a set of runs has no spread of its own


def equivalent(estimate: Estimate) -> str:
    """`2.74 ± 0.12` networks; `≥ 4.00` where the largest ensemble is no better."""
    # Without a spread where all runs are at one end of the scale.
    spread = estimate.std if estimate.std > 0 else math.nan
    text = plus_minus(estimate.mean, spread, 2)
    return f"≥ {text}" if estimate.at_least and math.isfinite(estimate.mean) else text


def millions(estimate: Estimate) -> str:
    """`0.46 M`; `2.4 k` below a tenth of a million."""
    if not math.isfinite(estimate.mean):
        return ABSENT
    if estimate.mean < 1e5:
        return f"{estimate.mean / 1e3:.1f} k"
    return f"{estimate.mean / 1e6:.2f} M"


def times(value: float | None) -> str:
    """`2×`, that of two networks, whatever their size."""
    return ABSENT if value is None else f"{value:.3g}×"


def p_value(p: float | None) -> str:
    """`0.021`, `< 0.001`."""
    if p is None or not math.isfinite(p):
        return ABSENT
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def estimate_fields(name: str, estimate: Estimate) -> dict[str, float]:
    """The three columns that a CSV has of an estimate."""
    names = name, f"{name}_std", f"{name}_stderr"
    return dict(zip(names, (estimate.mean, estimate.std, estimate.stderr)))


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One number of a `MethodSummary`."""

    name: str  # its field
    heading: str  # of its column
    write: Callable[[Estimate], str] = number  # the text of a cell
    narrow: bool = False  # whether a narrow terminal shows it too
    on_request: bool = False  # True if only studies that name such a column report it
    # `(logits [N, C], labels [N])` of one run to its number, for a column that is no
    # field of a `MethodSummary`
    measure: Callable[..., Any] | None = None
    of_runs: bool = False  # whether `measure` takes all runs, `logits [R, N, C]`
    of: str = ""  # quantity whose relative change against the baseline this is

    @property
    def __wrapped__(self) -> Any:
        """The function that a `column` was made of, by which it can be imported."""
        return self.measure

    def column(self, width: int = WIDE) -> Column:
        """Its column, which a terminal that is not so wide shows only if narrow."""
        return Column(self.heading, from_width=0 if self.narrow else width)

    def cell(self, summary: Any) -> str:
        """The text of its cell."""
        return self.write(getattr(summary, self.name))

    def shown(self, summary: Any) -> tuple[float, float]:
        """The mean and its standard error in the unit of the heading."""
        estimate = getattr(summary, self.name)
        scale = getattr(self.write, "scale", 1.0)
        return scale * estimate.mean, scale * estimate.stderr

    @property
    def what(self) -> str:
        """Its heading without the unit."""
        return self.heading.removesuffix(" %")


def _change(name: str, heading: str, of: str) -> Quantity:
    """The relative change of a quantity against the baseline, on request."""
    narrow = of != "rank_loss"
    return Quantity(name, f"{heading} change %", signed_rate, narrow, True, of=of)


_POSITIVE = "positive_prediction_difference"
_QUANTITIES = (
    Quantity("accuracy", "Accuracy %", percent, narrow=True),
    Quantity("churn", "Churn %", percent, narrow=True),
    # Not a share: the paper's number, times 100, may exceed 100.
    Quantity("surrogate_churn", "SChurn ×100", percent),
    Quantity("churn_correct", "Churn correct %", percent),
    Quantity("churn_incorrect", "Churn incorrect %", percent),
    Quantity("ece", "ECE %", percent),
    Quantity("nll", "NLL"),
    Quantity("brier", "Brier"),
    Quantity("confidence", "Confidence"),
    Quantity("entropy", "Entropy, nats"),
    Quantity("l1", "L1"),
    Quantity("nfr", "NFR %", percent),
    Quantity("prediction_difference", "Δ₁", of_set, narrow=True),
    Quantity("prediction_difference_2", "Δ₂", of_set),
    Quantity("relative_prediction_difference", "Δʳ", of_set),
    Quantity("label_prediction_difference", "Δᴸ", of_set),
    Quantity("hamming_prediction_difference", "Δᴴ", of_set),
    Quantity("calibrated_nll", "Cal. NLL", narrow=True, on_request=True),
    Quantity("calibrated_brier", "Cal. Brier", on_request=True),
    Quantity("calibrated_ece", "Cal. ECE %", percent, on_request=True),
    Quantity("temperature", "Temperature", on_request=True),
    Quantity("dee", "DEE", equivalent, narrow=True, on_request=True),
    Quantity("member_kl", "KL of members", on_request=True),
    Quantity("member_disagreement", "Churn of members %", percent, on_request=True),
    Quantity("parameters", "Parameters", millions, on_request=True),
    Quantity(
        "rank_loss",
        "Rank loss",
        mean_error,
        on_request=True,
        measure=lambda logits, labels: 1 - float(metrics.roc_auc(logits, labels)),
    ),
    Quantity(
        "calibration",
        "Calibration",
        mean_error,
        on_request=True,
        measure=lambda logits, labels: metrics.calibration_ratio(logits, labels),
    ),
    Quantity(
        _POSITIVE,
        "Δʳ₁",
        of_set,
        on_request=True,
        measure=lambda logits, labels: metrics.positive_prediction_difference(logits),
        of_runs=True,
    ),
    _change("log_loss_change", "Log loss", "nll"),
    _change("rank_loss_change", "Rank loss", "rank_loss"),
    _change(f"{_POSITIVE}_change", "Δʳ₁", _POSITIVE),
)

QUANTITIES = Registry(
    "column",
    {quantity.name: quantity for quantity in _QUANTITIES},
    lambda value: isinstance(value, Quantity),
)
"""By name, in the order of the CSV."""

CALIBRATED = frozenset(
    ("calibrated_nll", "calibrated_brier", "calibrated_ece", "temperature", "dee")
)
"""Columns that need the validation predictions."""

DEFAULT_COLUMNS = (
    *("accuracy", "churn", "churn_correct", "churn_incorrect", "ece", "nll"),
)
"""The columns of Table 2 of the first paper without SChurn, which is not a share."""


def column(
    heading: str,
    *,
    runs: bool = False,
    write: Callable[[Estimate], str] | None = None,
    narrow: bool = False,
) -> Callable[[Callable[[np.ndarray, np.ndarray], Any]], Quantity]:
    """A decorator that makes a report column of a function of your own.

    Studies show it that name it among their `columns`, by the function's name or by
    `package.module:name`. A function of one run's logits is called run by run: the mean
    over runs, with its standard deviation.

    With `runs=True` the function gets the logits of all runs that finished. It returns
    one number per run, `[R]`, which is shown as the mean and its standard error; or one
    number of all runs, such as a quantity of pairs, whose standard error is the
    jackknife's over runs, as that of churn is: the function is called R more times,
    without one run each, and there is no error with fewer than three runs.

    Args:
        heading: heading of the column; empty makes one of the function's name.
        runs: whether the function takes `logits [R, N, C]` instead of `[N, C]`.
        write: the text of a cell; by default `mean ± std`, with `runs` `mean ± stderr`.
        narrow: whether a narrow terminal shows it too.

    Returns:
        A decorator of `(logits, labels [N])`, which are read-only, to a number, or to
        `[R]` numbers. Where the function fails or its number is not finite, the report
        says so and leaves the cell empty.

    Example:
        >>> @column("Largest logit")
        ... def largest_logit(logits, labels):
        ...     return logits.max()
        >>> QUANTITIES["largest_logit"].heading
        'Largest logit'
        >>> @column("Range of logits", runs=True)
        ... def range_of_logits(logits, labels):
        ...     return (logits.max(axis=0) - logits.min(axis=0)).mean()
        >>> QUANTITIES["range_of_logits"].of_runs
        True
    """
    written = write or (mean_error if runs else number)

    def make(measure: Callable[[np.ndarray, np.ndarray], Any]) -> Quantity:
        if (name := getattr(measure, "__name__", None)) is None:
            raise ValueError(
                "a column is a name or a function that has one, by `def`; got "
                f"{measure!r}"
            )
        shown = heading or name.replace("_", " ").capitalize()
        made = Quantity(name, shown, written, narrow, True, measure, runs)
        return QUANTITIES.register(name)(made)

    return make


def column_name(given: str | Quantity | Callable[..., Any]) -> str:
    """The name of a column that is given by name, as it is, or as a function."""
    if isinstance(given, str):
        return given
    if not isinstance(given, Quantity):
        given = column("", runs=True)(given)
    if QUANTITIES.find(given.name) is not given:  # another of its name came later
        QUANTITIES.register(given.name)(given)
    return given.name


def recorded_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The names by which another process finds the columns; refuses unknown ones."""
    for name in columns:
        if ":" not in name and name not in QUANTITIES:
            raise ValueError(
                f"no column {name!r} can be shown; known: {', '.join(QUANTITIES)}"
                f"{did_you_mean(name, QUANTITIES)}"
            )
    found = [QUANTITIES.find(name) for name in columns]
    headings = [one.heading for one in found]
    if twice := {heading for heading in headings if headings.count(heading) > 1}:
        raise ValueError(f"two columns have the heading {min(twice)!r}; rename one")
    # A plain function that was made a column here cannot be imported as one.
    return tuple(QUANTITIES.name(one, lambda name=one.name: name) for one in found)
