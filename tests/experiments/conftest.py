from tests.reports.conftest import drawn

__all__ = ["drawn"]
