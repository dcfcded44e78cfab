"""Runs the notebooks in full and stores what they show: `make notebooks`.

    python colabs/execute.py [NAME ...]

Each runs in an empty folder. Its metadata then say which code was run, for how long, on
what and when; `tests/integration/test_notebooks.py` fails when the code has changed.
"""

import datetime
import hashlib
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from churn_jax.studies.folder import hardware

FOLDER = Path(__file__).parent


def code_hash(notebook) -> str:
    """Of the code cells but the first, which installs."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code[1:]).encode()).hexdigest()


def execute(path: Path) -> float:
    """Runs the notebook and writes it with its outputs; returns the minutes."""
    notebook = nbformat.read(path, as_version=4)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=1800,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        ).execute()
    minutes = (time.monotonic() - start) / 60
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.execution_count = number + 1
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["stored"] = {
        "code": code_hash(notebook),
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(),
        "minutes": round(minutes, 1),
    }
    nbformat.write(notebook, path)
    return minutes


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        taken = execute(FOLDER / f"{name}.ipynb")
        size = (FOLDER / f"{name}.ipynb").stat().st_size / 1000
        print(f"{name:24s} {taken:4.1f} minutes   {size:4.0f} kB", flush=True)
