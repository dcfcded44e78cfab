"""Networks that know only some of the classes.

Model versions may differ in their classes. Every network still returns logits over all
classes, `[..., C]`; the classes that it was not trained on have `UNKNOWN_LOGIT`.
Works on NumPy and JAX arrays and imports neither.
"""

from typing import Any

# Far below any logit of a trained network, so that its probability is exactly 0 in
# float32; yet finite in every floating-point type, so that 0 times it is 0.
UNKNOWN_LOGIT = -1e4


def known_classes(logits: Any) -> Any:
    """True for the classes that a network knows, from its logits: `[..., C]` bool."""
    # Half of the value, so that rounding in bfloat16 and averages over networks change
    # nothing. `-inf` is unknown; NaN is known, so that it is not lost.
    return ~(logits <= UNKNOWN_LOGIT / 2)
