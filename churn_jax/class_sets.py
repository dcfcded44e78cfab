"""Networks that know some of the classes, beside others that know all.

Model versions may differ in their classes. Every network still answers with logits over
all classes, `[..., C]`; the classes that it was not trained on hold `UNKNOWN_LOGIT`.
Works on NumPy and JAX arrays alike and imports neither.
"""

from typing import Any

__all__ = ["UNKNOWN_LOGIT", "known_classes"]

# Far below any logit of a trained network, so that its probability is exactly 0 in
# float32; yet finite in every floating-point type, so that 0 times it is 0.
UNKNOWN_LOGIT = -1e4


def known_classes(logits: Any) -> Any:
    """Which classes a network knows, from its logits.

    `logits > UNKNOWN_LOGIT / 2`: half way, so that rounding in bfloat16 and averages of
    equally ignorant networks change nothing.

    Args:
        logits: `[..., C]`, a NumPy or JAX array.

    Returns:
        `[..., C]` bool. A class excluded by `-inf` is unknown too; nan counts as known,
        so that it is not lost.

    Example:
        >>> import numpy as np
        >>> print(known_classes(np.array([2.0, -3.0, UNKNOWN_LOGIT])))
        [ True  True False]
    """
    return ~(logits <= UNKNOWN_LOGIT / 2)
