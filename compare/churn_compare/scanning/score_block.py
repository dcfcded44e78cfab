"""Numbers and faults of a block of scores, for one run and for two."""

import dataclasses

import numpy as np

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_compare.example_ids import some
from churn_compare.pair import Kind, Table
from churn_compare.store import PredictionsError

_NAN, _INFINITE, _EMPTY, _NEGATIVE, _SUM, _PERCENT = range(1, 7)
_WHAT = {
    _NAN: "have NaN {kind}",
    _INFINITE: "have infinite {kind}",
    _EMPTY: "have no finite entry in their {kind}",
    _NEGATIVE: "have negative probabilities",
    _SUM: "have probabilities that do not sum to one",
    _PERCENT: "have probabilities that sum to 100 (percent? divide them by 100)",
}
_DIGITS = 6  # significant digits of float32
_NAMED = 4  # one more than a message names, so that it shows that there are more


def sum_tolerance(sample: np.ndarray, dtype: np.dtype) -> float:
    """Largest allowed difference of the sum of rounded probabilities from one."""
    # 1e-3, but bfloat16 has fewer digits, and in float16 an entry near 0 may be off by
    # 2^-25, which adds up over many classes. In decimals of a few digits each entry may
    # be off by half a unit of the last one, up to 0.5 in all.
    classes = sample.shape[1]
    tolerance = 2.0**-7 if dtype.name == "bfloat16" else 1e-3
    if dtype == np.float16:
        tolerance += classes * 2.0**-24
    return max(tolerance, min(classes * _half_unit(sample, dtype), 0.5))


def _half_unit(sample: np.ndarray, dtype: np.dtype) -> float:
    """Half a unit of the last decimal plus 1 % for float32; 0 for integers."""
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
    """Code of the fault of each row, `[n]` uint8; 0 without a fault."""
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


def check_faults(faults: list[tuple[Table, np.ndarray]], ids: np.ndarray) -> None:
    """Raises one error for all faults."""
    found = [
        _sentence(side, codes, code, ids)
        for side, codes in faults
        for code in _WHAT
        if np.any(codes == code)
    ]
    if found:
        raise PredictionsError("; ".join(found))


def _sentence(side: Table, codes: np.ndarray, code: int, ids: np.ndarray) -> str:
    examples = np.flatnonzero(np.any(codes == code, axis=0))
    named = [str(i) for i in ids[examples[:_NAMED]]]
    if len(codes) > 1:
        runs = np.argmax(codes[:, examples] == code, axis=0)
        named = [f"{i} (run {side.runs[run]})" for i, run in zip(named, runs)]
    return (
        f"{side.name}: {len(examples)} of {codes.shape[1]} examples "
        f"{_WHAT[code].format(kind=side.kind)}, for example ids {some(named)}"
    )


_LOG_FLOOR = -30.0  # least log-probability, so that KL is finite
# Smaller ratios are raised to e^-43, 2e-19, which does not change sums: their squares
# would be subnormal numbers, which are slow.
_LEAST_LOG_RATIO = np.float32(-43)
_UNKNOWN = UNKNOWN_LOGIT / 2  # below the row's top: probability 0 beyond doubt


@dataclasses.dataclass
class Block:
    """`n` rows of one run."""

    scores: np.ndarray  # `[n, C]` logits or probabilities, float32 or float64
    ratios: np.ndarray  # `[n, C]` float32, each probability over the row's largest one
    top: np.ndarray  # `[n]` largest score of each row
    total: np.ndarray  # `[n]` float64, sum of the ratios
    predicted: np.ndarray  # `[n]` class of the side
    tied: np.ndarray  # True for rows in which several classes have the largest score
    faults: np.ndarray  # `[n]` uint8, see `score_faults`
    label_log_prob: np.ndarray | None  # `[n]` float64; None without labels
    brier: np.ndarray | None  # `[n]` float64; None without labels
    unknown: bool  # True if a class may be unknown in some row


def read_scores(
    scores: np.ndarray,
    ratios: np.ndarray,
    kind: Kind,
    labels: np.ndarray | None,
    tolerance: float,
    ranks: np.ndarray | None = None,
) -> Block:
    """Numbers of one run; ties go to the class with the lowest of `ranks` `[C]`."""
    # With r_c = exp(z_c - max z) (or p_c / max p) and s = sum_c r_c, the
    # probability of class c is r_c / s and the top one 1 / s.
    rows = np.arange(len(scores))
    predicted = scores.argmax(axis=1)
    top = scores[rows, predicted]  # NaN if any entry is
    scores[rows, predicted] = -np.inf
    tied = np.flatnonzero(scores[rows, scores.argmax(axis=1)] == top)
    scores[rows, predicted] = top
    if ranks is not None:
        largest = scores[tied] == top[tied, None]
        predicted[tied] = np.where(largest, ranks, len(ranks)).argmin(axis=1)
    if kind == "logits":
        np.subtract(scores, top[:, None], out=ratios, casting="same_kind")
        least = scores.min() - top.max()  # of any row, or below
        if least < _LEAST_LOG_RATIO:
            np.maximum(ratios, _LEAST_LOG_RATIO, out=ratios)
        np.exp(ratios, out=ratios)
        smallest, unknown = top, bool(least <= _UNKNOWN)
    else:
        np.divide(scores, top[:, None], out=ratios, casting="same_kind")
        np.maximum(ratios, np.exp(_LEAST_LOG_RATIO), out=ratios)
        smallest, unknown = scores.min(axis=1), False
    if labels is None:
        total, log_prob, brier = _sums(ratios), None, None
    else:
        total, log_prob, brier = _of_labels(
            scores, ratios, kind, top, predicted, labels
        )
    faults = find_faults(kind, top, smallest, total * top, tolerance)
    return Block(
        scores, ratios, top, total, predicted, tied, faults, log_prob, brier, unknown
    )


def _of_labels(scores, ratios, kind, top, predicted, labels):
    """Sum of the ratios, log-probability of the label, Brier score; `[n]` float64."""
    # The label is left out of the sums to avoid cancellation near certainty: brier =
    # (sum_{c != y} r_c^2 + (sum_{c != y} r_c)^2) / s^2.
    known = np.flatnonzero(labels >= 0)
    place = known, labels[known]
    own = np.zeros(len(ratios), np.float64)
    at_label = ratios[place]
    own[known] = at_label
    ratios[place] = 0
    others, squares = _sums(ratios), np.vecdot(ratios, ratios).astype(np.float64)
    ratios[place] = at_label
    total = others + own
    brier = (squares + others**2) / total**2
    log_own = np.full(len(ratios), -np.inf)
    if kind == "logits":
        log_own[known] = scores[place].astype(np.float64) - top[known]
        log_own[log_own <= _UNKNOWN] = -np.inf
    else:
        log_own[known] = np.log(scores[place].astype(np.float64) / top[known])
    log_total = np.where(predicted == labels, np.log1p(others), np.log(total))
    return total, log_own - log_total, brier


def _sums(numbers: np.ndarray) -> np.ndarray:
    """Row sums, `[n]` float64; a dot product is the fastest way."""
    ones = np.ones(numbers.shape[1], numbers.dtype)
    return np.vecdot(numbers, ones).astype(np.float64)


def surrogate_churn(
    old: np.ndarray, new: np.ndarray, work: np.ndarray, rest: np.ndarray | float
) -> np.ndarray:
    """`1/2 sum_c |r_c - r'_c|` of each row, `[n]` float64."""
    np.subtract(old, new, out=work)
    np.abs(work, out=work)
    return 0.5 * (_sums(work) + rest)


Classes = slice | np.ndarray


class Part:
    """A block, split into the classes that both sides know and the others."""

    def __init__(self, block: Block, shared: Classes, alone: Classes, kind: Kind):
        scores, top = block.scores, block.top
        if kind == "probabilities":  # replaced by floored logarithms
            least = np.exp(_LOG_FLOOR) * block.total * top
            least = least.astype(scores.dtype)  # one type, else NumPy converts all
            np.maximum(scores, least[:, None], out=scores)
            np.log(scores, out=scores)
            top = np.log(top)
        self.total, self.log_sum = block.total, top + np.log(block.total)
        self.unknown = block.unknown
        self.ratios, self.scores = block.ratios[:, shared], scores[:, shared]
        self.alone = block.ratios[:, alone].sum(axis=1, dtype=np.float64)


def kl_divergence(old: Part, new: Part, work: np.ndarray) -> np.ndarray:
    """`KL(old || new)` of each row in nats, `[n]` float64; NaN for unknown classes."""
    # sum_c p_c (z_c - z'_c) - log sum exp z + log sum exp z'
    if old.unknown or new.unknown:
        return np.full(len(old.total), np.nan)
    np.subtract(new.scores, old.scores, out=work, casting="same_kind")
    moved = np.vecdot(old.ratios, work).astype(np.float64) / old.total
    return np.maximum(new.log_sum - old.log_sum - moved, 0.0)
