"""`churn_compare` imports what it declares, and nothing that needs JAX."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import churn_compare

PACKAGE = Path(churn_compare.__file__).resolve().parent
# Imported only where a user has the library: figures, a fixture, frames to return.
OPTIONAL = {"documents/plotting.py": {"matplotlib"}, "pytest_plugin.py": {"pytest"}}


def test_files_import_what_the_distribution_needs():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    needed = {n.partition(">")[0].replace("-", "_") for n in project["dependencies"]}
    allowed = {*sys.stdlib_module_names, "churn_compare", "markupsafe", *needed}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        lines = re.findall(r"^ *(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        assert {*lines} - allowed <= OPTIONAL.get(name, set()), name


def test_help_and_documents_load_no_library_that_they_can_do_without():
    code = (
        "import sys, churn_compare.documents.plotting\n"
        "assert not {'rich', 'jinja2', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "from churn_compare.cli import main\n"
        "try: main(['-h'])\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'pyarrow', 'jax', 'matplotlib'} & set(sys.modules)"
    )
    words = [sys.executable, "-m", "churn_compare", "--version"]
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    said = subprocess.check_output(words, text=True)
    assert said == f"{churn_compare.__version__}\n"
