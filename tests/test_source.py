"""README, docs, notebooks, recipes and workflow install from what pyproject says."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["churn-jax"]
PLACES = [
    ROOT / "README.md",
    ROOT / "docs" / "how_to" / "gate_in_ci.md",
    ROOT / "docs" / "start" / "install.md",
    ROOT / "experiments" / "compare" / "github-actions.yml",
    ROOT / "experiments" / "launch" / "recipes" / "tpu_vm.sh",
    ROOT / "experiments" / "launch" / "recipes" / "workstation_gpu.sh",
    *sorted((ROOT / "docs/tutorials").glob("*.ipynb")),
]
REQUIREMENT = re.compile(r"churn-jax(\[\w+\])?( @ [^\s\"'}\\]+)?")


def written(text: str) -> str:
    """`text` with the setting in every line that installs the package."""
    source = f" @ {SETTINGS['source']}" if SETTINGS["source"] else ""
    return "\n".join(
        REQUIREMENT.sub(rf"churn-jax\g<1>{source}", line)
        if "pip install" in line or "SOURCE:-" in line
        else line
        for line in text.split("\n")
    )


@pytest.mark.parametrize("path", PLACES, ids=lambda p: p.name)
def test_it_installs_from_the_one_source(path):
    text = path.read_text()
    assert SETTINGS["source"] in text
    assert text == written(text), "run `python -m tests.test_source`"


if __name__ == "__main__":
    for path in PLACES:
        path.write_text(written(path.read_text()))
