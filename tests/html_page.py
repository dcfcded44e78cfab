"""A page as tests read it: by the reader of `compare/tests`, also called `tests`."""

import runpy
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "compare" / "tests" / "html_page.py"
Page = runpy.run_path(str(_SOURCE))["Page"]
