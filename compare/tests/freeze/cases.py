"""All comparisons."""

from tests.freeze import (  # noqa: F401
    case_classes,
    case_outcomes,
    case_python,
    case_rare,
    case_refused,
    case_shared,
    case_store,
    case_versions,
)
from tests.freeze.registry import CASES as CASES
