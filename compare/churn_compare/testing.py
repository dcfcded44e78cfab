"""Gates in the tests of a project that ships models."""

import inspect
from collections.abc import Mapping
from typing import Any, Literal

from churn_compare.comparison import compare
from churn_compare.display import CompareResult
from churn_compare.example_ids import PredictionsError
from churn_compare.gates import (
    GateError,
    Gating,
    On,
    as_gates,
    combined,
    gates_by_name,
    waivers_of,
)
from churn_compare.number_text import NOTHING, count_text, share_text
from churn_compare.pair import Table
from churn_compare.reading.outcomes import has_outcomes
from churn_compare.suggestions import did_you_mean

_REGRESSIONS = 5  # regressions named in a message
_LIMITS = ("max_churn", "max_nfr", "min_accuracy_gain")  # some limits, for hints


def assert_compatible(
    old: Any,
    new: Any,
    *,
    gates: Gating = (),
    on: On | None = None,
    min_examples: int | None = None,
    inconclusive: Literal["fail", "pass"] = "fail",
    **options: Any,
) -> CompareResult:
    """Asserts that a new version of a classifier may replace the old one.

    A test may be as short as

        def test_the_new_model_keeps_what_the_old_one_got_right():
            assert_compatible("old.csv", "new.csv", max_nfr="1%", max_churn=0.05)

    Args:
        old: predictions of the version in use, as for `churn_compare.compare`.
        new: predictions of the version that is to replace it.
        gates: conditions, or the path of a TOML file with them; limits among the
            options replace its conditions on the same quantity.
        on: number that limits given here are for: the "estimate", the "bound" of its
            confidence interval nearer to failing, or the whole "interval"; None for
            that of the condition that is replaced, or else the estimate.
        min_examples: least number of examples of slices and classes that are judged;
            None for that of the condition that is replaced, or else 1.
        inconclusive: "fail" if a limit within the interval of its gate fails the
            assertion, or "pass".
        **options: limits as in `gates={"max_nfr": 0.01}`, a number or `"1%"`, on any
            quantity (`max_churn`, `min_accuracy_gain`, which may be negative,
            `max_ece_change`), on each slice (`max_slice_nfr`) or class
            (`max_class_nfr`); and arguments of `compare`: `labels`, `slices`, ...

    Raises:
        AssertionError: if a condition does not hold; its `result` is the comparison.
        ValueError: if predictions cannot be read or joined, or a condition is invalid.

    Example:
        >>> old, new = [0, 1, 1, 0], [0, 1, 0, 0]
        >>> result = assert_compatible(old, new, labels=[0, 1, 1, 0], max_nfr="25%")
        >>> result["churn"].value
        0.25
        >>> assert_compatible(old, new, labels=[0, 1, 1, 0], min_accuracy_gain=0)
        Traceback (most recent call last):
            ...
        AssertionError: the new version is not compatible with the old one
        FAIL  accuracy gain at least 0 points: ...
        1 example was right and is wrong now:
          2: label 1, now 0
    """
    # pytest leaves this frame out of its report, which then shows the user's line.
    __tracebackhide__ = True
    if inconclusive not in ("fail", "pass"):
        raise GateError(f"inconclusive must be 'fail' or 'pass'; got {inconclusive!r}")
    known, limits = inspect.signature(compare).parameters, {}
    if options.get("equivalent") is not None:
        limits["equivalent"] = options.pop("equivalent")
    for name in [name for name in options if name not in known]:
        if not name.startswith(("max_", "min_")):
            hint = did_you_mean(name, [*known, *_LIMITS, "on", "min_examples"], 1)
            raise TypeError(f"there is no argument {name!r}{hint}")
        limits[name] = options.pop(name)
    given: dict[str, Any] = {"on": on, "min_examples": min_examples}
    chosen = {name: value for name, value in given.items() if value is not None}
    if isinstance(gates, Mapping):
        wanted = gates_by_name(gates, **chosen)
    elif chosen and not limits:
        names = " and ".join(chosen)
        raise GateError(f"set {names} in each gate, or give limits such as max_nfr=0.1")
    else:
        wanted = as_gates(gates, bool(limits))
    kept = [name for name in given if name not in chosen]
    wanted = combined(wanted, gates_by_name(limits, **chosen), kept)
    if not wanted:
        raise GateError("no condition to assert; give one, such as max_nfr=0.01")
    options["waivers"] = waivers_of(gates, options.get("waivers"))
    try:
        result = compare(old, new, gates=wanted, **options)
    except PredictionsError:
        if isinstance(old, Table) or not has_outcomes(old):
            raise
        said = "these are outcomes; assert compare_outcomes(old, new, gates=...).passed"
        raise PredictionsError(said) from None
    if not result.passed and (result.state, inconclusive) != ("inconclusive", "pass"):
        error = AssertionError(_message(result))
        vars(error)["result"] = result
        raise error
    return result


def _message(result: CompareResult) -> str:
    lines = ["the new version is not compatible with the old one"]
    lines += [outcome.line for outcome in result.gates if not outcome.passed]
    lines += [outcome.line for outcome in result.gates if outcome.passed]
    total, worst = result.regressions_total, result.regressions[:_REGRESSIONS]
    if total:
        were, are = ("example was", "is") if total == 1 else ("examples were", "are")
        pairs = result.run_pairs
        where = "" if pairs == 1 else f" in some of the {pairs} pairs of runs"
        which = f"; the worst {len(worst)}" if 0 < len(worst) < total else ""
        text = f"{count_text(total)} {were} right and {are} wrong now"
        lines.append(f"{text}{where}{which}{':' * bool(worst)}")
    waived = {of.id for of in result.waived.waivers} if result.waived else ()
    for found in worst:
        sure = share_text(found.new_confidence)
        sure = "" if sure == NOTHING else f" with confidence {sure}"
        often = f", in {share_text(found.share)} of them" * (result.run_pairs > 1)
        lines.append(f"  {found.id}: label {found.label}, now {found.new}{sure}{often}")
        lines[-1] += " (waived)" * (found.id in waived)
    return "\n".join(lines)
