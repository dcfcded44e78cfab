"""Calls that end in one sentence."""

import pytest

from churn_compare.store import PredictionsError


def fails(message, call, *given, **options):
    """Asserts that a call raises a `PredictionsError` with this message."""
    with pytest.raises(PredictionsError, match=message) as error:
        call(*given, **options)
    assert "\n" not in str(error.value)
