"""Every number of 16 bits, beside NumPy's own cast."""

import ml_dtypes
import numpy as np
import pytest

from churn_jax.comparison.scanning.row_reader import widen

ALL = np.arange(1 << 16).astype(np.uint16)


def widened(numbers):
    out = np.full(numbers.shape, 7.0, np.float32)
    widen(numbers, out)
    return out


def same_bits(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("which", ["all", "finite", "nonnegative"])
def test_every_float16_is_exact(which):
    half = ALL.view(np.float16)
    if which != "all":
        half = half[np.isfinite(half)]
    if which == "nonnegative":
        half = half[~np.signbit(half)]
    wanted = half.astype(np.float32)
    found = widened(half)
    assert np.array_equal(found, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(wanted))


def test_every_bfloat16_is_exact():
    half = ALL.view(ml_dtypes.bfloat16)
    assert np.array_equal(widened(half), half.astype(np.float32), equal_nan=True)


def test_strided_and_empty_arrays():
    half = np.arange(24, dtype=np.float16).reshape(4, 6)
    assert same_bits(widened(half[::2, 1:4]), half[::2, 1:4].astype(np.float32))
    assert widened(half[:0]).shape == (0, 6)
