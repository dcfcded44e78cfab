"""A fixture for the tests of a project that ships models.

`pytest_plugins = ["churn_compare.pytest_plugin"]` in a `conftest.py` enables it.
It is not a pytest entry point: importing it would delay the tests of other projects.
"""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def model_update(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`assert_compatible`, with conditions and outcomes as properties of the test."""
    from churn_compare.testing import assert_compatible

    def check(*sides: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        result = None
        try:
            result = assert_compatible(*sides, **options)
        except AssertionError as error:
            result = vars(error).get("result")
            raise
        finally:
            # As `record_property`, which warns about pytest's default format.
            for outcome in result.gates if result is not None else ():
                request.node.user_properties.append((outcome.gate, outcome.line))
        return result

    return check
