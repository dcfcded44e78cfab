"""Tests of what is refused: inputs, and the sentences that their errors say."""

import pytest


def refusals(*rows, call=lambda make: make(), error=ValueError, fixtures=()):
    """A test in which every row is refused in one sentence.

    Args:
        rows: what `call` is given, and a pattern of the message.
        call: what refuses it; without one, a row holds a function without arguments.
        error: the class of the error, or several.
        fixtures: names of the fixtures that `call` is given before the row.
    """

    @pytest.mark.parametrize("row", rows, ids=[row[-1] for row in rows])
    def test(row, request):
        *given, message = row
        given = [*map(request.getfixturevalue, fixtures), *given]
        with pytest.raises(error, match=message) as caught:
            call(*given)
        assert "\n" not in str(caught.value)

    return test
