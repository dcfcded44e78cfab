"""All comparisons."""

from tests.freeze import (  # noqa: F401
    case_classes,
    case_outcomes,
    case_shared,
)
from tests.freeze.registry import CASES as CASES
