"""No room of the house grows: `budgets.toml` has the limit of each, in lines.

`python -m tests.test_budgets` prints what is there.
"""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = {".py", ".j2", ".css", ".js"}


def rooms() -> list[dict]:
    return tomllib.loads((ROOT / "budgets.toml").read_text())["room"]


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def counted(room: dict, names: list[str]) -> tuple[int, int]:
    """Lines and files of a room."""
    found = [
        ROOT / name
        for name in names
        if Path(name).suffix in TEXT and name.startswith(tuple(room["paths"]))
    ]
    return sum(len(path.read_bytes().splitlines()) for path in found), len(found)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_no_room_is_larger_than_its_limit():
    names = tracked()
    for room in rooms():
        lines, _ = counted(room, names)
        assert 0 < lines <= room["lines"], (
            f"{room['name']} has {lines:,} lines, {room['lines']:,} are allowed: "
            "make it smaller, or lower another limit in a commit of its own"
        )


if __name__ == "__main__":
    every = tracked()
    for one in rooms():
        print("{:28}{:8,} lines {:4} files".format(one["name"], *counted(one, every)))
