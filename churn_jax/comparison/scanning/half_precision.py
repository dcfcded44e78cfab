"""Half-precision numbers as float32, in a fraction of the time of a cast."""

import numpy as np

__all__ = ["widen"]

_EXPONENT = 0x7C00  # of infinities and NaN in float16
_SIGN = 0x8000
_SIGN_AND_VALUE = np.uint32(0x8FFFFFFF).view(np.int32)
_REBIAS = np.float32(2.0**112)  # float32 counts exponents from 127, float16 from 15
_LEAST = np.float32(2.0**-14)  # normal number in float16


def widen(numbers: np.ndarray, out: np.ndarray) -> None:
    """Writes float16 or bfloat16 as float32, each number exactly."""
    # NumPy converts float16 one number at a time; here the bits move with a few
    # operations on whole arrays.
    bits = numbers.view(np.uint16)
    if numbers.dtype != np.float16:
        _from_bfloat16(bits, out)
    elif bits.max(initial=0) < _EXPONENT:
        _from_nonnegative(bits, out)
    elif _is_finite(bits):
        _from_finite(bits, out)
    else:
        np.copyto(out, numbers)


def _is_finite(bits: np.ndarray) -> bool:
    """Of float16: the largest numbers of either sign are below infinity."""
    above = bits.view(np.int16).max() < _EXPONENT
    return bool(above and bits.max() < _SIGN + _EXPONENT)


def _from_bfloat16(bits: np.ndarray, out: np.ndarray) -> None:
    """The upper half of float32."""
    wide = out.view(np.uint32)
    np.copyto(wide, bits)
    np.left_shift(wide, np.uint32(16), out=wide)


def _from_finite(bits: np.ndarray, out: np.ndarray) -> None:
    """Exponent and digits move up, the sign further; the exponent's zero is scaled."""
    wide = out.view(np.int32)
    np.copyto(wide, bits.view(np.int16))  # repeats the sign, which the mask removes
    np.left_shift(wide, np.int32(13), out=wide)
    np.bitwise_and(wide, _SIGN_AND_VALUE, out=wide)
    np.multiply(out, _REBIAS, out=out)


def _from_nonnegative(bits: np.ndarray, out: np.ndarray) -> None:
    """The same without subnormal numbers on the way, which processors are slow with."""
    # With the exponent's zero added as an integer, f, a subnormal number is too large:
    # it should be 2 f - 2^-14, which is less than f for those and for no others.
    wide = out.view(np.int32)
    np.copyto(wide, bits)
    np.left_shift(wide, np.int32(13), out=wide)
    np.add(wide, np.int32(112 << 23), out=wide)
    subnormal = np.add(out, out)
    np.subtract(subnormal, _LEAST, out=subnormal)
    np.minimum(out, subnormal, out=out)
