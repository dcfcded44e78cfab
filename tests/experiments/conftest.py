from tests.reports.conftest import drawn as drawn
