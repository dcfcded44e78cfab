"""Scores that are no scores: found block by block, told of all at once."""

import numpy as np

from churn_jax.comparison.side import Side
from churn_jax.predictions import PredictionsError, some

__all__ = ["check_faults", "find_faults", "sum_tolerance"]

_NAN, _INFINITE, _EMPTY, _NEGATIVE, _SUM, _PERCENT = range(1, 7)
_WHAT = {
    _NAN: "have NaN {kind}",
    _INFINITE: "have infinite {kind}",
    _EMPTY: "have no finite entry in their {kind}",
    _NEGATIVE: "have negative probabilities",
    _SUM: "have probabilities that do not sum to one",
    _PERCENT: "have probabilities that sum to 100 (percent? divide them by 100)",
}
_DIGITS = 6  # float32 has no more that matter
_NAMED = 4  # one more than a message shows, so that it says that there are more


def sum_tolerance(sample: np.ndarray, dtype: np.dtype) -> float:
    """How far from one the sum of rounded probabilities may lie."""
    # 1e-3, but bfloat16 has fewer digits, and in float16 an entry near 0 may be off by
    # 2^-25, which adds up over many classes. In decimals of a few digits each entry may
    # be off by half a unit of the last one: up to 0.5 in all, or they are no
    # probabilities.
    classes = sample.shape[1]
    tolerance = 2.0**-7 if dtype.name == "bfloat16" else 1e-3
    if dtype == np.float16:
        tolerance += classes * 2.0**-24
    return max(tolerance, min(classes * _half_unit(sample, dtype), 0.5))


def _half_unit(sample: np.ndarray, dtype: np.dtype) -> float:
    """Half a unit of the last decimal, and 1 % for sums in float32; 0 for integers."""
    if np.can_cast(np.float32, dtype):  # 1 - 0.7 is 0.3 only in fewer digits
        dtype = np.dtype(np.float32)
    given = sample.astype(dtype)
    for digits in range(_DIGITS + 1):
        if np.array_equal(np.round(sample, digits).astype(dtype), given):
            return 0.505 * 10.0**-digits if digits else 0.0
    return 0.0


def find_faults(
    kind: str, top: np.ndarray, least: np.ndarray, total: np.ndarray, tolerance: float
) -> np.ndarray:
    """What is wrong with each row, `[n]` uint8; 0 where nothing is."""
    faults = np.zeros(len(top), np.uint8)
    if kind == "probabilities":
        off = ~(np.abs(total - 1) <= tolerance)  # NaN where every entry is 0
        faults[off] = _SUM
        faults[off & (np.abs(total - 100) <= 100 * tolerance)] = _PERCENT
        faults[least < 0] = _NEGATIVE
    faults[np.isneginf(top)] = _EMPTY
    faults[np.isposinf(top)] = _INFINITE
    faults[np.isnan(top)] = _NAN
    return faults


def check_faults(faults: list[tuple[Side, np.ndarray]], ids: np.ndarray) -> None:
    """Raises one error about everything that was found."""
    found = [
        _sentence(side, codes, code, ids)
        for side, codes in faults
        for code in _WHAT
        if np.any(codes == code)
    ]
    if found:
        raise PredictionsError("; ".join(found))


def _sentence(side: Side, codes: np.ndarray, code: int, ids: np.ndarray) -> str:
    examples = np.flatnonzero(np.any(codes == code, axis=0))
    named = [str(i) for i in ids[examples[:_NAMED]]]
    if len(codes) > 1:
        runs = np.argmax(codes[:, examples] == code, axis=0)
        named = [f"{i} (run {side.runs[run]})" for i, run in zip(named, runs)]
    return (
        f"{side.name}: {len(examples)} of {codes.shape[1]} examples "
        f"{_WHAT[code].format(kind=side.kind)}, for example ids {some(named)}"
    )
