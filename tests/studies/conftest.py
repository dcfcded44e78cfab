"""A study that is trained once for all tests."""

import pytest

from churn_jax.studies import run_study
from tests.reports.conftest import undrawn as undrawn
from tests.studies.small import LOGGED, VERSIONS


@pytest.fixture(scope="session")
def versions(tmp_path_factory):
    """The folder of the study of versions; read only."""
    out = tmp_path_factory.mktemp("versions")
    return run_study(VERSIONS, out, loggers=[LOGGED, "csv"])
