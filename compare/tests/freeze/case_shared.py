"""The cases of a folder shared/cases/compare above, if it is there."""

import re
import shlex
import shutil
from pathlib import Path

from tests.freeze.registry import act
from tests.freeze.session import Kept, run


def _found() -> Path | None:
    for folder in Path(__file__).resolve().parents:
        if (folder / "shared" / "cases" / "compare").is_dir():
            return folder / "shared" / "cases" / "compare"
    return None


def _case(folder: Path, command: str):
    def do(kept: Kept) -> None:
        shutil.copytree(folder, ".", dirs_exist_ok=True)
        for path in Path().rglob("*"):
            path.chmod(0o755)
        words = shlex.split(command)
        full = ["--full"] * (len(folder.name) % 3 == 0)
        run(kept, [*words, *full, "--json", "r.json"], written=("r.json",))

    return do


if (FOLDER := _found()) is not None:
    for case in sorted(FOLDER.iterdir()):
        said = (case / "README.txt").read_text()
        line = re.search(
            r"^command: +(?:churn-jax compare|churn-compare) +(.*)$", said, re.M
        )
        old = sorted(path.name for path in case.glob("old.*"))
        new = sorted(path.name for path in case.glob("new.*"))
        words = re.sub(r"\(.*|\|.*", "", line[1]) if line else " ".join((*old, *new))
        act(f"shared.{case.name}", _case(case, words))
        if case.name == "p_of_outcomes_differs":
            act(f"shared.{case.name}_2", _case(case, f"{words} --kind classes"))
            act(f"shared.{case.name}_3", _case(case, f"{words} --score-column correct"))
