"""Calls that end in one sentence."""

import pytest

from churn_compare.store import PredictionsError


def fails(message, call, *given, of=PredictionsError, **options):
    """Asserts that a call raises an error `of` a type with this message of one line."""
    with pytest.raises(of, match=message) as error:
        call(*given, **options)
    assert "\n" not in str(error.value)
